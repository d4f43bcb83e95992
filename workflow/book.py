"""`./run_all.sh book [PROFILE]`: a run's executed notebooks and its report as web pages in figures/<run>/book/.

The pages open as files and load nothing: formulas become MathML and pictures data. Only the report has a script. Links
between notebooks lead to their pages; links to other files become plain text.
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
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from pygments.formatters import HtmlFormatter

from lib.paper.captions import CAPTIONS
from lib.paths import ROOT, UserError, visible
from workflow.export import marked_outputs, parameters_of
from workflow.pipeline import Run, command_of
from workflow.report import report_page

TEMPLATE = Path(__file__).with_name("book.html.jinja")
CARRIERS = ("08_tables", "09_beyond")  # the notebooks whose outputs the report shows
HREF = re.compile(r'<a href="(?!#|https?:)([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
PICTURE = re.compile(r"""<img\b(?:[^>"']|"[^"]*"|'[^']*')*>""", re.IGNORECASE)
OUTPUT = re.compile(r'<div class="(output_\w+ rendered_html[^"]*)"')


def write_book(run: Run, say: Callable[[str], None] = print) -> Path:
    """Write the book of a finished run atomically and return its folder. Raise UserError if there is no such run."""
    if not (ROOT / run.folder / "notebooks" / "08_tables.ipynb").exists():
        raise UserError(
            f"run '{run.name}' has no executed 08_tables yet: start ./run_all.sh {command_of(run.name)} first"
        )
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
    """Return the report, one page per executed notebook, and the index, by file name."""
    notebooks = {
        path.stem: nbformat.read(path, 4) for path in sorted((ROOT / run.folder / "notebooks").glob("*.ipynb"))
    }
    found = [(stem, *one) for stem in CARRIERS if stem in notebooks for one in marked_outputs(notebooks[stem])]
    cells = {
        target: f"notebooks/{stem}.html#cell-id={notebooks[stem].cells[number - 1]['id']}"
        for stem, number, target, _ in found
    }
    outputs = {target: data for *_, target, data in found}
    pages = {"report.html": report_page(parameters_of(notebooks["08_tables"]), outputs, cells)}
    titles = {stem: title_of(stem, nb) for stem, nb in notebooks.items()}
    for stem, nb in notebooks.items():
        pages[f"notebooks/{stem}.html"] = render(titles[stem], up="../", body=body_of(stem, nb, set(notebooks)))
    places = [(short, target, cells[target]) for target, (short, _) in CAPTIONS.items() if target in cells]
    pages["index.html"] = render(f"The book of run {run.name}", places=places, notebooks=titles)
    return pages


def render(title: str, **given: Any) -> str:
    """Return a page of the book."""
    env = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    light, dark = (
        Markup(HtmlFormatter(style=style).get_style_defs(".highlight"))  # noqa: S704  of Pygments
        for style in ("friendly", "github-dark")
    )
    template = env.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return visible(template.render(title=title, light=light, dark=dark, **given))


def title_of(stem: str, nb: nbformat.NotebookNode) -> str:
    """Return a notebook's heading without markup, followed by its model and dataset."""
    heading = re.sub(r"[`$\\*#]|\[([^\]]*)\]\([^)]*\)", r"\1", nb.cells[0].source.splitlines()[0]).strip()
    return ": ".join(filter(None, [heading, stem.partition("__")[2].replace("__", ", ")]))


def body_of(stem: str, nb: nbformat.NotebookNode, stems: set[str]) -> Markup:
    """Return a notebook as HTML, in which scrolling outputs can be focused by the keyboard."""
    body, _ = Notebooks(template_name="basic").from_notebook_node(nb)
    body = OUTPUT.sub(r'<div tabindex="0" class="scrolls \1"', body)
    body = HREF.sub(lambda match: link_to_page(match, stems), body)
    return Markup(PICTURE.sub(lambda match: keep_embedded_picture(match[0]), body))  # noqa: S704


def link_to_page(match: re.Match, stems: set[str]) -> str:
    """Return a link to another notebook's page, or its text alone if the run has no such page."""
    name = Path(html.unescape(match[1])).name.removesuffix(".ipynb")
    return f'<a href="{html.escape(name)}.html">{match[2]}</a>' if name in stems else match[2]


def keep_embedded_picture(tag: str) -> str:
    """Keep an `<img>` whose source is data; replace any other by its alt text, because pages load nothing."""
    if re.search(r'\ssrc="data:image/', tag):
        return tag
    return next((match[1] for match in re.finditer(r'\salt="([^"]*)"', tag)), "")


class FormulaRenderer(IPythonRenderer):
    """A Markdown renderer that writes formulas as MathML."""

    def inline_math(self, body: str) -> str:
        return self.block_math(body, "inline")

    def block_math(self, body: str, display: str = "block") -> str:
        return convert(body.replace(r"\arg", r"\operatorname{arg}"), display=display)  # convert has no \arg


class Notebooks(HTMLExporter):
    """An exporter of notebooks as the body of a page."""

    @jinja2.pass_context
    def markdown2html(self, context, source: str) -> str:
        pasted = context.get("cell", {}).get("attachments", {})
        return MarkdownWithMath(renderer=FormulaRenderer(escape=False, attachments=pasted)).render(source)
