"""`./run_all.sh book [PROFILE]`: a run's executed notebooks, its report and an index of both as pages that open from a
file, in figures/<run>/book/.

No page has a script (but the report's own) or asks for anything: formulas become MathML, pictures data. Links between
notebooks lead to their pages; of links to other files the words stay.
"""

import html
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import nbformat
from latex2mathml.converter import convert
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter
from pygments.formatters import HtmlFormatter

from lib.paper.exhibits import captions
from lib.paths import ROOT, UserError, visible
from workflow.marked import marked
from workflow.pipeline import Run
from workflow.report import linked, page
from workflow.report_file import CARRIERS

TEMPLATE = Path(__file__).with_name("book.html.jinja")
FORMULA = re.compile(r"```.*?```|`[^`\n]*`|\$\$(.+?)\$\$|\$([^$\n]+(?:\n[^$\n]+)?)\$", re.DOTALL)
HREF = re.compile(r'<a href="(?!#|https?:)([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
PICTURE = re.compile(r"""<img\b(?:[^>"']|"[^"]*"|'[^']*')*>""", re.IGNORECASE)
OUTPUT = re.compile(r'<div class="(output_\w+ rendered_html[^"]*)"')


def write(run: Run, say: Callable[[str], None] = print) -> Path:
    """The book of a run that was made, whole or not at all; its folder. UserError where there is no run to show."""
    if not (ROOT / run.folder / "notebooks" / "08_tables.ipynb").exists():
        raise UserError(f"run '{run.name}' has no executed 08_tables yet; ./run_all.sh {run.name} makes it")
    pages = make_pages(run)
    folder = ROOT / run.figures / "book"
    with tempfile.TemporaryDirectory(prefix=f".book-{os.getpid()}-", dir=folder.parent) as scratch:
        for name, text in pages.items():
            path = Path(scratch, "book", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if folder.exists():
            os.replace(folder, Path(scratch, "old"))
        os.replace(Path(scratch, "book"), folder)
    size = sum(len(text.encode()) for text in pages.values()) / 1e6
    say(f"{run.figures}/book/index.html: {len(pages)} pages, {size:.1f} MB")
    return folder


def make_pages(run: Run) -> dict[str, str]:
    """The report, a page per executed notebook, and the index, by name."""
    notebooks = {
        path.stem: nbformat.read(path, 4) for path in sorted((ROOT / run.folder / "notebooks").glob("*.ipynb"))
    }
    found = [(stem, *one) for stem in CARRIERS if stem in notebooks for one in marked(notebooks[stem].cells)]
    cells = {
        target: f"notebooks/{stem}.html#cell-id={notebooks[stem].cells[number - 1]['id']}"
        for stem, number, target, _ in found
    }
    pages = {"report.html": page(notebooks["08_tables"], {target: data for *_, target, data in found}, cells)}
    titles = {stem: title_of(stem, nb) for stem, nb in notebooks.items()}
    for stem, nb in notebooks.items():
        pages[f"notebooks/{stem}.html"] = render(titles[stem], up="../", body=body_of(stem, nb, set(notebooks)))
    places = [(short, target, cells[target]) for target, (short, _) in captions().items() if target in cells]
    pages["index.html"] = render(f"The book of run {run.name}", places=places, notebooks=titles)
    return pages


def render(title: str, **given: Any) -> str:
    """A page of the book."""
    env = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    light, dark = (Markup(HtmlFormatter(style=style).get_style_defs(".highlight"))  # noqa: S704  of Pygments
                   for style in ("friendly", "github-dark"))  # fmt: skip
    template = env.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return visible(template.render(title=title, light=light, dark=dark, **given))


def title_of(stem: str, nb: nbformat.NotebookNode) -> str:
    """A notebook's heading without its markup, and the model and dataset that it was executed for."""
    heading = re.sub(r"[`$\\*#]|\[([^\]]*)\]\([^)]*\)", r"\1", nb.cells[0].source.splitlines()[0]).strip()
    return ": ".join(filter(None, [heading, stem.partition("__")[2].replace("__", ", ")]))


def body_of(stem: str, nb: nbformat.NotebookNode, stems: set[str]) -> Markup:
    """A notebook as HTML; each output that scrolls can be reached by the keyboard."""
    body, _ = Notebooks(template_name="basic").from_notebook_node(nb)
    body = linked(stem, OUTPUT.sub(r'<div tabindex="0" class="scrolls \1"', body), set())  # with formulas of tables
    body = HREF.sub(lambda match: link(match, stems), body)
    return Markup(PICTURE.sub(lambda match: picture(match[0]), body))  # noqa: S704


def link(match: re.Match, stems: set[str]) -> str:
    """A link to another notebook's page; the words alone where the run has none."""
    name = Path(html.unescape(match[1])).name.removesuffix(".ipynb")
    return f'<a href="{html.escape(name)}.html">{match[2]}</a>' if name in stems else match[2]


def picture(tag: str) -> str:
    """An `<img>` whose picture is data; its words in place of any other, of which nothing is read."""
    if re.search(r'\ssrc="data:image/', tag):
        return tag
    return next((match[1] for match in re.finditer(r'\salt="([^"]*)"', tag)), "")


class Notebooks(HTMLExporter):
    """Notebooks as the body of a page, formulas as MathML."""

    @jinja2.pass_context
    def markdown2html(self, context, source: str) -> str:  # type: ignore[override]
        return with_formulas(source, lambda text: super(Notebooks, self).markdown2html(context, text))


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
