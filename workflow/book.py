"""`./run_all.sh book`: a run's executed notebooks, report, tables and the project's pages as a site that opens from a
file, in figures/<run>/book/.

Pages lie as the files do of which they are made, so that links between these hold; a file that is linked becomes a page
of its lines. No page has a script (but the report's own) or asks for anything: formulas become MathML, pictures data.
"""

import base64
import html
import inspect
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import jinja2
import nbformat
from latex2mathml.converter import convert
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound

from lib.paper.exhibits import BY_NAME, captions
from lib.project import ROOT, UserError, visible
from workflow.jobs import Run
from workflow.marked import marked
from workflow.report import linked, page

TEMPLATE = Path(__file__).with_name("book.html.jinja")
FORMULA = re.compile(r"```.*?```|`[^`\n]*`|\$\$(.+?)\$\$|\$([^$\n]+(?:\n[^$\n]+)?)\$", re.DOTALL)
HREF = re.compile(r'<a href="(?![a-z]+:|#)([^"#]+)(#[^"]*)?"([^>]*)>(.*?)</a>', re.DOTALL)
PICTURE = re.compile(r"""<img\b(?:[^>"']|"[^"]*"|'[^']*')*>""", re.IGNORECASE)
KINDS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".svg": "svg+xml", ".webp": "webp"}
LARGEST = 1_000_000  # bytes of a file that becomes a page


@dataclass(frozen=True)
class Place:
    """Where a table or figure is made: its cell, and the lines of its function."""

    target: str
    short: str
    cell: str
    code: str
    name: str
    latex: str = ""


def write(run: Run, say: Callable[[str], None] = print) -> Path:
    """The book of a run that was made, whole or not at all; its folder. UserError where there is no run to show."""
    tables = ROOT / run.folder / "notebooks" / "08_tables.ipynb"
    if not tables.exists():
        raise UserError(f"run '{run.name}' has no executed 08_tables yet; ./run_all.sh {run.name} makes it")
    pages = Book(run, tables).pages
    folder = ROOT / run.figures / "book"
    with tempfile.TemporaryDirectory(prefix=f".book-{os.getpid()}-", dir=folder.parent) as scratch:
        for name, text in pages.items():
            path = Path(scratch, "book", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if folder.exists():
            os.replace(folder, Path(scratch, "old"))
        os.replace(Path(scratch, "book"), folder)
        shutil.rmtree(Path(scratch, "old"), ignore_errors=True)
    size = sum(len(text.encode()) for text in pages.values()) / 1e6
    say(f"{run.figures}/book/index.html: {len(pages)} pages, {size:.1f} MB")
    return folder


def page_of(path: PurePosixPath) -> PurePosixPath:
    """The page that a file of the project becomes."""
    return path.with_suffix(".html") if path.suffix in (".md", ".ipynb") else path.with_name(path.name + ".html")


class Book:
    """The pages of a run, by name. What a page links is made when it is met."""

    def __init__(self, run: Run, tables: Path):
        self.run, self.pages = run, dict[str, str]()
        env = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        env.globals |= {name: Markup(HtmlFormatter(style=style).get_style_defs(".highlight"))  # noqa: S704  of Pygments
                        for name, style in (("light", "friendly"), ("dark", "github-dark"))}  # fmt: skip
        self.template = env.from_string(TEMPLATE.read_text(encoding="utf-8"))
        nb = nbformat.read(tables, 4)
        self.places = {place.target: place for place in self.made_in(nb)}
        outputs = {name: data for _, name, data in marked(nb.cells)}
        self.pages["report.html"] = page(nb, outputs, self.places)
        self.lists = {"Notebooks": self.notebooks(), "About it": self.documents()}
        self.add("index.html", f"The book of run {run.name}", "", {"places": self.places.values(), "lists": self.lists})

    def add(self, name: str, title: str, body: str, index: dict | None = None) -> None:
        up = "../" * name.count("/")
        body = Markup(body)  # noqa: S704
        self.pages[name] = visible(self.template.render(title=title, body=body, up=up, index=index))

    # ---- what is made of what

    def made_in(self, nb: nbformat.NotebookNode) -> list[Place]:
        """Of every table and figure of 08, in the order of the paper, where it is made."""
        cells = {target: nb.cells[number - 1]["id"] for number, target, _ in marked(nb.cells)}
        self.shorts = {target: short for target, (short, _) in captions().items() if target in cells}
        return [self.place(target, short, cells[target]) for target, short in self.shorts.items()]

    def place(self, target: str, short: str, cell: str) -> Place:
        function = BY_NAME[target].function
        source = PurePosixPath(Path(inspect.getfile(function)).relative_to(ROOT).as_posix())
        line, latex = inspect.getsourcelines(function)[1], ROOT / self.run.figures / f"{target}.tex"
        name = f"{'.'.join(source.with_suffix('').parts)}.{function.__name__}"
        code = f"{self.linked_file(source)}#L{line}"
        there = self.linked_file(PurePosixPath(latex.relative_to(ROOT).as_posix())) if latex.exists() else ""
        return Place(target, short, f"notebooks/08_tables.html#cell-id={cell}", code, name, str(there or ""))

    def documents(self) -> list[tuple[str, str]]:
        """README, the other pages beside it, and those in docs/."""
        paths = [ROOT / "README.md", *sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")} - {ROOT / "README.md"})]
        files = [PurePosixPath(path.relative_to(ROOT).as_posix()) for path in paths]
        return [(str(page_of(file)), self.document(file)) for file in files]

    def document(self, file: PurePosixPath) -> str:
        """Adds the page of a Markdown file, if it is not there; its title."""
        text = (ROOT / file).read_text(encoding="utf-8")
        first = re.search(r"^# (.+)$", text, flags=re.M)
        title = plain(first[1]) if first else str(file)
        if str(page_of(file)) not in self.pages:
            self.pages[str(page_of(file))] = ""  # pages may link one another
            self.add(str(page_of(file)), title, self.tied(slugs(markdown(text)), file))
        return title

    def notebooks(self) -> list[tuple[str, str]]:
        """Every notebook as this run executed it; as it is stored, where the run did not, or did so once per model and
        dataset, which then follow."""
        found, folder = [], ROOT / self.run.folder / "notebooks"
        for stored in sorted((ROOT / "notebooks").glob("*.ipynb")):
            own, parts = folder / stored.name, sorted(folder.glob(f"{stored.stem}__*.ipynb"))
            title = self.notebook(own if own.exists() else stored)
            links = [(f"{part.stem}.html", part.stem.partition("__")[2].replace("__", ", ")) for part in parts]
            if not own.exists():
                self.note(f"notebooks/{stored.stem}.html", links)
            found.append((f"notebooks/{stored.stem}.html", title))
            for part, (href, words) in zip(parts, links, strict=True):
                self.notebook(part)
                found.append((f"notebooks/{href}", f"{title}: {words}"))
        return found

    def note(self, name: str, links: list[tuple[str, str]]) -> None:
        """Says on a notebook's page that it is as stored, and where it was executed."""
        there = ", ".join(f'<a href="{href}">{html.escape(words)}</a>' for href, words in links)
        said = f"this run executed it for {there}" if there else "this run read what it leaves behind"
        self.pages[name] = self.pages[name].replace("<main>", f'<main><p class="soft">As it is stored; {said}.</p>', 1)

    def notebook(self, path: Path) -> str:
        """Adds the page of a notebook; its title."""
        nb, file = nbformat.read(path, 4), PurePosixPath("notebooks", path.name)
        body, _ = Notebooks(template_name="basic").from_notebook_node(nb)
        body = re.sub(r'<div class="(output_\w+ rendered_html[^"]*)"', r'<div tabindex="0" class="scrolls \1"', body)
        body = self.tied(linked(path.stem, body, set()), file)  # with the formulas that tables declare
        for number, target, _ in marked(nb.cells):
            if place := self.places.get(target):
                at = body.index(">", body.index(f'id="cell-id={nb.cells[number - 1]["id"]}"')) + 1
                back = f'<a href="../report.html#{target}"><code>{target}</code></a> of the report'
                by = f'<a href="../{place.code}"><code>{place.name}</code></a>'
                body = f'{body[:at]}<p class="soft">{back}, by {by}</p>{body[at:]}'
        title = plain(re.sub(r"^#+ *", "", nb.cells[0].source.splitlines()[0]))
        self.add(str(page_of(file)), title, body)
        return title

    # ---- links

    def tied(self, body: str, file: PurePosixPath) -> str:
        """A page's body with links to files of the project as links to their pages (none where there is none), and
        pictures as data."""

        def link(match: re.Match) -> str:
            to, anchor, rest, words = match.groups()
            path = PurePosixPath(os.path.normpath(file.parent / html.unescape(to)))
            at = self.linked_file(path)
            if not at:
                return words
            href = os.path.relpath(at, page_of(file).parent)
            return f'<a href="{html.escape(href)}{anchor or ""}"{rest}>{words}</a>'

        return PICTURE.sub(lambda match: picture(match[0], file.parent), HREF.sub(link, body))

    def linked_file(self, path: PurePosixPath) -> PurePosixPath | None:
        """The page of a file of the project, made if it is of lines; None where it is no file, or too large for one."""
        file, at = ROOT / path, page_of(path)
        if ".." in path.parts or not file.is_file() or file.stat().st_size > LARGEST:
            return None
        if path.suffix == ".md":
            self.document(path)
        elif path.suffix == ".ipynb":
            return at if path.parent.name == "notebooks" else None
        elif str(at) not in self.pages:
            head = f"<h1><code>{html.escape(str(path))}</code></h1>{self.makes(file)}"
            self.add(str(at), str(path), head + lines(file))
        return at

    def makes(self, file: Path) -> str:
        """Links from a module to the tables and figures of the report that it makes."""
        up = "../" * len(file.relative_to(ROOT).parts[1:])
        made = [name for name in self.shorts if Path(inspect.getfile(BY_NAME[name].function)) == file]
        links = ", ".join(f'<a href="{up}report.html#{name}"><code>{name}</code></a>' for name in made)
        return f'<p class="soft">Makes, of the report: {links}</p>' if made else ""


class Tag(HTMLParser):
    """The attributes of one element."""

    def __init__(self, text: str):
        super().__init__()
        self.given: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.given = {name: value or "" for name, value in attrs}


def picture(tag: str, folder: PurePosixPath) -> str:
    """An `<img>` of a page in a folder of the project, its picture as data; its words where that is none of the
    project's own: it lies elsewhere, or is no picture."""
    given = Tag(tag).given
    source = given.get("src", "")
    if source.startswith("data:image/"):
        return tag
    words = html.escape(given.get("alt") or source)
    try:
        path = (ROOT / folder / unquote(source)).resolve(strict=True)
    except (OSError, ValueError):  # nothing is there, or it is no name of a file
        return words
    if not path.is_relative_to(ROOT.resolve()) or path.suffix.lower() not in KINDS or not path.is_file():
        return words
    data = f"data:image/{KINDS[path.suffix.lower()]};base64,{base64.b64encode(path.read_bytes()).decode()}"
    size = "".join(f' {name}="{html.escape(given[name])}"' for name in ("width", "height") if given.get(name))
    return f'<img src="{data}" alt="{html.escape(given.get("alt", ""))}"{size}>'


class Notebooks(HTMLExporter):
    """Notebooks as the body of a page, formulas as MathML."""

    @jinja2.pass_context
    def markdown2html(self, context, source: str) -> str:  # type: ignore[override]
        return with_formulas(source, lambda text: super(Notebooks, self).markdown2html(context, text))


def markdown(text: str) -> str:
    """A page of README or docs/."""
    return with_formulas(text, markdown2html_mistune)


def with_formulas(source: str, render: Callable[[str], str]) -> str:
    """Markdown rendered with its formulas set aside, and these as MathML in their places."""
    made: list[str] = []

    def aside(match: re.Match) -> str:
        display, inline = match.groups()
        if not (display or inline):
            return match[0]
        text = (display or inline).replace(r"\arg", r"\operatorname{arg}")  # which the converter does not know
        made.append(convert(text, display="block" if display else "inline"))
        return f"FORMULA{len(made) - 1}HERE"

    body = render(FORMULA.sub(aside, source))
    return re.sub(r"FORMULA(\d+)HERE", lambda match: made[int(match[1])], body)


def plain(text: str) -> str:
    """A heading without its markup."""
    return re.sub(r"[`$\\*]|\[([^\]]*)\]\([^)]*\)", r"\1", text).strip()


def slugs(body: str) -> str:
    """Headings under the names by which Markdown files link to them, and tables that scroll inside themselves."""

    def heading(match: re.Match) -> str:
        words = html.unescape(re.sub(r"<[^>]+>|¶", "", match[3]))
        name = re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")
        return f'<h{match[1]} id="{name}">{re.sub(r"<a class=.anchor-link.*?</a>", "", match[3])}</h{match[1]}>'

    body = re.sub(r'<h(\d) id="([^"]*)">(.*?)</h\1>', heading, body, flags=re.DOTALL)
    return body.replace("<table>", '<div class="scrolls" tabindex="0"><table>').replace("</table>", "</table></div>")


def lines(file: Path) -> str:
    """A file's lines, numbered and each with a name: L12."""
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        lexer = get_lexer_for_filename(file.name)
    except ClassNotFound:
        lexer = TextLexer()
    shown = highlight(text, lexer, HtmlFormatter(nowrap=True)).rstrip("\n").split("\n")
    body = "".join(f'<span class="l" id="L{number}">{line}</span>' for number, line in enumerate(shown, 1))
    return f'<div class="highlight"><pre class="source" tabindex="0">{body}</pre></div>'
