"""The book of a run that is made by hand: links both ways, nothing asked for, nothing that runs."""

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
from lib.project import ROOT, UserError
from workflow import book

NAME = "test-book"
FORMULAS = r"""# 02 A page

Of $x_{<i}$ and `$no formula` the mean, 5 dollars:

$$f = \arg\min_{f} \sum_i \left( f(c_i) - \mathbb{I}_i \right)^2$$

[metrics](../lib/score/metrics.py#L3), [next](08_tables.ipynb), [nowhere](../lib/nothing.py), [a folder](../lib)
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
    """A run's folder with two executed notebooks, one of them of a pair, and its book."""
    room = tmp_path_factory.mktemp("run")
    run = of(room)
    folder = room / "artifacts" / "notebooks"
    folder.mkdir(parents=True)
    (room / "figures").mkdir()
    table, loud = tables.estimators(), "<p>" + html.escape(" ".join(STRINGS)) + "</p>"
    of_paper = output(table._repr_mimebundle_(), "tab_estimators")
    nbformat.write(executed("# 08 Tables", of_paper), folder / "08_tables.ipynb")
    nbformat.write(executed(FORMULAS, output({"text/html": loud})), folder / "02_single_pass.ipynb")
    nbformat.write(executed("# 01 Generate"), folder / "01_generate__m__d.ipynb")
    return book.write(run, lambda text: None).resolve()


def anchors(path):
    return set(map(html.unescape, re.findall(r'\bid="([^"]*)"', path.read_text(encoding="utf-8"))))


def test_every_link_leads_somewhere_and_nothing_is_asked_for(made):
    pages, known, count = sorted(made.rglob("*.html")), {}, 0
    assert {"index.html", "report.html", "README.html", "08_tables.html"} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"<pre.*?</pre>", "", text, flags=re.S)
        assert not re.search(r'src="(?!data:)|<link |@import|url\(', prose), page
        assert "default-src 'none'" in text and ("<script" in text) <= (page.name == "report.html"), page
        for href in map(html.unescape, re.findall(r'<a [^>]*?href="([^"]*)"', text)):
            if re.match(r"[a-z]+:", href):
                continue
            name, _, anchor = href.partition("#")
            to = Path(os.path.normpath(page.parent / name)) if name else page
            assert to.is_relative_to(made) and to.is_file(), (page.name, href)
            assert not anchor or anchor in known.setdefault(to, anchors(to)), (page.name, href)
            count += 1
    assert count > 300


def test_a_table_leads_to_its_cell_and_its_function_and_back(made):
    report = (made / "report.html").read_text()
    cell, code = re.search(r'Made in <a href="([^"]+)">this cell</a> by <a href="([^"]+)">', report).groups()
    assert cell == "notebooks/08_tables.html#cell-id=made"
    module, line = code.split("#L")
    shown = (made / module).read_text()
    at = html.unescape(re.sub("<[^>]+>", "", shown.split(f'id="L{line}">')[1].split('<span class="l"')[0]))
    following = (ROOT / "lib/paper/tables.py").read_text().splitlines()[int(line) - 1 : int(line) + 8]
    assert at.strip() == following[0].strip() and any("def estimators(" in one for one in following)
    assert '<a href="../report.html#tab_estimators">' in (made / "notebooks/08_tables.html").read_text()
    assert 'href="../../report.html#tab_estimators"' in shown, "and the module to what it makes"
    assert 'href="report.html#tab_estimators"' in (made / "index.html").read_text()


def test_a_notebook_is_shown_as_the_run_executed_it(made):
    text = (made / "notebooks/02_single_pass.html").read_text()
    assert text.count("<math") == 2 and r"\arg" not in text and "<code>$no formula</code>" in text
    assert 'href="../lib/score/metrics.py.html#L3"' in text and 'href="08_tables.html"' in text
    assert ", nowhere, a folder" in text, "words without a page are no link"
    assert "As it is stored" not in text and "<script" not in text
    stored = (made / "notebooks/01_generate.html").read_text()
    assert 'As it is stored; this run executed it for <a href="01_generate__m__d.html">m, d</a>' in stored
    assert "<math" in (made / "notebooks/08_tables.html").read_text(), "formulas that a table declares"


def test_every_formula_of_the_notebooks_is_one():
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, 4).cells:
            if cell.cell_type == "markdown":
                shown = re.sub(r"<code>.*?</code>", "", book.markdown(cell.source), flags=re.S)
                assert "$" not in shown and "FORMULA" not in shown and "\\" not in re.sub(r"<[^>]*>", "", shown), path


@pytest.mark.parametrize("source", [
    'src="../../../../../../etc/passwd"', "src='/etc/passwd'", "src=/etc/passwd", 'SRC = "../../../../../etc/passwd"',
    'src="https://some.where/badge.svg"', 'src="//some.where/x.png"', 'src="nowhere.png"', 'src="../pyproject.toml"',
    'src="link.png"', 'alt="" src="file:///etc/passwd"', 'src="&#47;etc/passwd"', 'src="a\x00b.png"', "src",
])  # fmt: skip
def test_a_picture_that_is_none_of_the_projects_own_is_left_as_words(source, tmp_path, monkeypatch):
    monkeypatch.setattr(book, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]")
    (tmp_path / "docs/link.png").symlink_to("/etc/passwd")
    shown = book.Book.tied(None, f"<p>before <img {source} srcset=x.png> after</p>", PurePosixPath("docs/page.md"))
    assert "<img" not in shown and "base64" not in shown and "before" in shown and "after" in shown


@pytest.mark.parametrize("source", ['src="../a%20b.png"', "src='../a b.png'", 'alt="x > y" width=3 src = "../a b.png"'])
def test_a_picture_of_the_project_is_embedded(source, tmp_path, monkeypatch):
    monkeypatch.setattr(book, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "a b.png").write_bytes(b"PNG")
    shown = book.Book.tied(None, f"<IMG {source} srcset=x.png>", PurePosixPath("docs/page.md"))
    assert re.fullmatch('<img src="data:image/png;base64,UE5H" alt="(x &gt; y)?"( width="3")?>', shown)


def test_a_run_without_tables_has_no_book(tmp_path):
    with pytest.raises(UserError, match="has no executed 08_tables yet"):
        book.write(of(tmp_path))


def test_the_same_run_gives_the_same_bytes_and_half_a_book_is_none(made, monkeypatch):
    run = of(made.parents[1])
    before = {path.relative_to(made): path.read_bytes() for path in made.rglob("*.html")}
    book.write(run, lambda text: None)
    assert {path.relative_to(made): path.read_bytes() for path in made.rglob("*.html")} == before
    monkeypatch.setattr(book.Book, "documents", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        book.write(run)
    assert {path.name for path in made.parent.iterdir()} == {"book"} and (made / "index.html").exists()


@pytest.mark.slow
@pytest.mark.skipif(chromium is None, reason="no chromium on this machine")
@pytest.mark.parametrize("name", ["index.html", "README.html", "notebooks/02_single_pass.html",
                                  "lib/paper/tables.py.html"])  # fmt: skip
def test_pages_in_a_browser(made, name):
    path = made / PurePosixPath(name)
    done = _browse(path.as_uri(), "--dump-dom", "--proxy-server=127.0.0.1:9")  # where nothing answers
    assert "CONSOLE" not in done.stderr and 'class="ran"' not in done.stdout
    for width in (PHONE, DESK):
        asked = "[document.documentElement.scrollWidth, performance.getEntriesByType('resource').length]"
        wide, loaded = measured(path, asked, width)
        assert wide <= width and not loaded
    reached = "[...document.querySelectorAll('.scrolls, .source')].filter((x) => x.scrollWidth > x.clientWidth + 1)"
    assert measured(path, f"{reached}.every((x) => x.tabIndex === 0)")
    check_keyboard(path)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert measured(path, ground) == "rgb(255, 255, 255)" != measured(path, ground, dark=True)
