"""The book of a run that is made by hand: links that lead somewhere, nothing asked for, nothing that runs."""

import html
import os
import re
from types import SimpleNamespace

import nbformat
import pytest
from browser import check_in_browser, check_links, chromium, measured
from hostile import STRINGS

from lib.paper import tables
from lib.paths import ROOT
from workflow import book

NAME = "test-book"
FORMULAS = r"""# 02 A page

Of $x_{<i}$ and `$no formula` the mean, 5 dollars:

$$f = \arg\min_{f} \sum_i \left( f(c_i) - \mathbb{I}_i \right)^2$$

[metrics](../lib/score/metrics.py#L3), [next](08_tables.ipynb), [nowhere](09_nothing.ipynb), [away](/etc/passwd)
"""


def executed(first, data=None, target=None):
    """A notebook of a heading and a cell that shows something, for the paper or not."""
    shown = nbformat.v4.new_output("display_data", data or {}, metadata={"paper": target} if target else {})
    code = nbformat.v4.new_code_cell("display(1)", execution_count=1, outputs=[shown] * bool(data), id="made")
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(first, id="top"), code])
    nb.metadata["papermill"] = {"parameters": {"run": NAME, "title": "by hand"}}
    return nb


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What the book asks of a run: folders with executed notebooks, one of them of a pair."""
    room = tmp_path_factory.mktemp("run")
    folder, figures = room / "artifacts", room / "figures"
    (folder / "notebooks").mkdir(parents=True)
    figures.mkdir()
    table, loud = tables.estimators(), "<p>" + html.escape(" ".join(STRINGS)) + "</p>"
    notebooks = {
        "08_tables": executed("# 08 Tables", table._repr_mimebundle_(), "tab_estimators"),
        "02_single_pass": executed(FORMULAS, {"text/html": loud}),
        "01_generate__m__d": executed("# 01 Generate"),
    }
    for name, nb in notebooks.items():
        nbformat.write(nb, folder / "notebooks" / f"{name}.ipynb")
    places = {"folder": os.path.relpath(folder, ROOT), "figures": os.path.relpath(figures, ROOT)}
    return SimpleNamespace(name=NAME, **places)


@pytest.fixture(scope="module")
def made(run):
    return book.write_book(run, lambda text: None).resolve()


def test_every_link_leads_somewhere_and_nothing_is_asked_for(made):
    pages = sorted(made.rglob("*.html"))
    assert len(pages) == 5 and check_links(*pages) > 15
    for page in pages:
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"<pre.*?</pre>", "", text, flags=re.S)
        assert not re.search(r'src="(?!data:)|<link |@import|url\(', prose), page
        assert "default-src 'none'" in text and ("<script" in text) <= (page.name == "report.html"), page


def test_index_report_and_cell_of_a_table_lead_to_each_other(made):
    report, index = ((made / name).read_text() for name in ("report.html", "index.html"))
    assert 'Computed in <a href="notebooks/08_tables.html#cell-id=made">this cell</a>' in report
    assert 'href="report.html#tab_estimators"' in index and 'href="notebooks/08_tables.html#cell-id=made"' in index
    assert '<a href="notebooks/01_generate__m__d.html">01 Generate: m, d</a>' in index
    assert '<a href="../report.html">' in (made / "notebooks/08_tables.html").read_text()


def test_a_notebook_is_shown_as_the_run_executed_it(made):
    text = (made / "notebooks/02_single_pass.html").read_text()
    assert text.count("<math") == 2 and r"\arg" not in text and "<code>$no formula</code>" in text
    assert '<p>metrics, <a href="08_tables.html">next</a>, nowhere, away</p>' in text
    assert "<math" in (made / "notebooks/08_tables.html").read_text(), "formulas that a table declares"


@pytest.mark.parametrize("source", [
    'src="/etc/passwd"', "src='/etc/passwd'", "src=../pyproject.toml", 'SRC = "x.png"',
    'src="https://some.where/badge.svg"', 'src="x" title="data:image/png"',
])  # fmt: skip
def test_a_picture_that_is_no_data_is_left_as_words(source):
    assert book.keep_embedded_picture(f'<img {source} alt="a word">') == "a word"
    aside = re.sub("(?i)src", "title", source)
    data = f'<img alt="x > y" src="data:image/png;base64,UE5H" {aside}>'
    assert book.PICTURE.fullmatch(data) and book.keep_embedded_picture(data) == data


def test_the_same_run_gives_the_same_bytes_and_half_a_book_is_none(run, made, monkeypatch):
    before = {path.relative_to(made): path.read_bytes() for path in made.rglob("*.html")}
    book.write_book(run, lambda text: None)
    assert {path.relative_to(made): path.read_bytes() for path in made.rglob("*.html")} == before
    monkeypatch.setattr(book, "render", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        book.write_book(run)
    assert {path.name for path in made.parent.iterdir()} == {"book"} and (made / "index.html").exists()


@pytest.mark.slow
@pytest.mark.skipif(chromium is None, reason="no chromium on this machine")
@pytest.mark.parametrize("name", ["index.html", "notebooks/02_single_pass.html"])
def test_pages_in_a_browser(made, name):
    path = made / name
    check_in_browser(path)
    reached = "[...document.querySelectorAll('.scrolls')].filter((x) => x.scrollWidth > x.clientWidth + 1)"
    assert measured(path, f"{reached}.every((x) => x.tabIndex === 0)")
