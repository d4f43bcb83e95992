"""The book of a run that is made by hand: links that lead somewhere, nothing asked for, nothing that runs."""

import html
import os
import re
from types import SimpleNamespace

import nbformat
import pytest
from browser import check_in_browser, check_links, chromium
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
    (room / "artifacts/notebooks").mkdir(parents=True)
    (room / "figures").mkdir()
    loud = f"<p>{html.escape(' '.join(STRINGS))}</p>"
    notebooks = {
        "08_tables": executed("# 08 Tables", {"text/html": tables.estimators()._repr_html_()}, "tab_estimators"),
        "02_single_pass": executed(FORMULAS, {"text/html": loud}),
        "01_generate__m__d": executed("# 01 Generate"),
    }
    for name, nb in notebooks.items():
        nbformat.write(nb, room / "artifacts/notebooks" / f"{name}.ipynb")
    place = os.path.relpath(room, ROOT)
    return SimpleNamespace(name=NAME, folder=f"{place}/artifacts", figures=f"{place}/figures")


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


def test_a_notebook_is_shown_as_the_run_executed_it(made):
    text = (made / "notebooks/02_single_pass.html").read_text()
    assert text.count("<math") == 2 and r"\arg" not in text and "<code>$no formula</code>" in text
    assert '<p>metrics, <a href="08_tables.html">next</a>, nowhere, away</p>' in text
    assert "<math" in (made / "notebooks/08_tables.html").read_text(), "formulas that a table declares"


def test_a_picture_that_is_no_data_is_left_as_words():
    for source in ("src='/etc/passwd'", 'SRC = "x.png"', "src=../x", 'src="https://x/y.svg" title="data:image/png"'):
        assert book.keep_embedded_picture(f'<img {source} alt="a word">') == "a word"
    data = '<img alt="x > y" src="data:image/png;base64,UE5H" title="https://x">'
    assert book.PICTURE.fullmatch(data) and book.keep_embedded_picture(data) == data


def test_the_same_run_gives_the_same_bytes_and_half_a_book_is_none(run, made, monkeypatch):
    before = [path.read_bytes() for path in sorted(made.rglob("*.html"))]
    book.write_book(run, lambda text: None)
    assert [path.read_bytes() for path in sorted(made.rglob("*.html"))] == before
    monkeypatch.setattr(book, "render", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        book.write_book(run)
    assert {path.name for path in made.parent.iterdir()} == {"book"} and (made / "index.html").exists()


@pytest.mark.slow
@pytest.mark.skipif(chromium is None, reason="no chromium on this machine")
@pytest.mark.parametrize("name", ["index.html", "notebooks/02_single_pass.html"])
def test_pages_in_a_browser(made, name):
    check_in_browser(made / name)
