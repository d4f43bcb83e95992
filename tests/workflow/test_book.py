"""The book of a run that is made by hand: links that lead somewhere, nothing asked for, nothing that runs."""

import html
import os
import re
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import nbformat
import pytest
from browser import DESK, PHONE, _browse, check_keyboard, chromium, measured
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


def output(data, target=None):
    metadata = {"paper": target} if target else {}
    return nbformat.v4.new_output("display_data", data, metadata=metadata)


def executed(first, *outputs):
    code = nbformat.v4.new_code_cell("display(1)", execution_count=1, outputs=list(outputs), id="made")
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(first, id="top"), code])
    nb.metadata["papermill"] = {"parameters": {"run": NAME, "title": "by hand"}}
    return nb


def of(room):
    """What the book asks of a run whose folders lie in `room`."""
    folder, figures = (os.path.relpath(room / name, ROOT) for name in ("artifacts", "figures"))
    return SimpleNamespace(name=NAME, folder=folder, figures=figures)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run's folder with executed notebooks, one of them of a pair, and its book."""
    room = tmp_path_factory.mktemp("run")
    folder = room / "artifacts" / "notebooks"
    folder.mkdir(parents=True)
    (room / "figures").mkdir()
    table, loud = tables.estimators(), "<p>" + html.escape(" ".join(STRINGS)) + "</p>"
    of_paper = output(table._repr_mimebundle_(), "tab_estimators")
    nbformat.write(executed("# 08 Tables", of_paper), folder / "08_tables.ipynb")
    nbformat.write(executed(FORMULAS, output({"text/html": loud})), folder / "02_single_pass.ipynb")
    nbformat.write(executed("# 01 Generate"), folder / "01_generate__m__d.ipynb")
    return book.write(of(room), lambda text: None).resolve()


def anchors(path):
    return set(map(html.unescape, re.findall(r'\bid="([^"]*)"', path.read_text(encoding="utf-8"))))


def test_every_link_leads_somewhere_and_nothing_is_asked_for(made):
    pages, count = {path.relative_to(made).as_posix() for path in made.rglob("*.html")}, 0
    names = ("01_generate__m__d", "02_single_pass", "08_tables")
    assert pages == {"index.html", "report.html", *(f"notebooks/{name}.html" for name in names)}
    for page in (made / name for name in pages):
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"<pre.*?</pre>", "", text, flags=re.S)
        assert not re.search(r'src="(?!data:)|<link |@import|url\(', prose), page
        assert "default-src 'none'" in text and ("<script" in text) <= (page.name == "report.html"), page
        for href in map(html.unescape, re.findall(r'<a [^>]*?href="([^"]*)"', text)):
            name, _, anchor = href.partition("#")
            to = Path(os.path.normpath(page.parent / name)) if name else page
            assert to.is_relative_to(made) and to.is_file(), (page.name, href)
            assert not anchor or anchor in anchors(to), (page.name, href)
            count += 1
    assert count > 15


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
    assert book.picture(f'<img {source} alt="a word">') == "a word"
    data = (
        f'<img alt="x > y" src="data:image/png;base64,UE5H" {source.replace("src", "title").replace("SRC", "title")}>'
    )
    assert book.PICTURE.fullmatch(data) and book.picture(data) == data


def test_the_same_run_gives_the_same_bytes_and_half_a_book_is_none(made, monkeypatch):
    run = of(made.parents[1])
    before = {path.relative_to(made): path.read_bytes() for path in made.rglob("*.html")}
    book.write(run, lambda text: None)
    assert {path.relative_to(made): path.read_bytes() for path in made.rglob("*.html")} == before
    monkeypatch.setattr(book, "render", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        book.write(run)
    assert {path.name for path in made.parent.iterdir()} == {"book"} and (made / "index.html").exists()


@pytest.mark.slow
@pytest.mark.skipif(chromium is None, reason="no chromium on this machine")
@pytest.mark.parametrize("name", ["index.html", "notebooks/02_single_pass.html"])
def test_pages_in_a_browser(made, name):
    path = made / PurePosixPath(name)
    done = _browse(path.as_uri(), "--dump-dom", "--proxy-server=127.0.0.1:9")  # where nothing answers
    assert "CONSOLE" not in done.stderr and 'class="ran"' not in done.stdout
    for width in (PHONE, DESK):
        asked = "[document.documentElement.scrollWidth, performance.getEntriesByType('resource').length]"
        wide, loaded = measured(path, asked, width)
        assert wide <= width and not loaded
    reached = "[...document.querySelectorAll('.scrolls')].filter((x) => x.scrollWidth > x.clientWidth + 1)"
    assert measured(path, f"{reached}.every((x) => x.tabIndex === 0)")
    check_keyboard(path)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert measured(path, ground) == "rgb(255, 255, 255)" != measured(path, ground, dark=True)
