"""From the executed 08_tables to files for the paper, through nbconvert and without pandoc or Inkscape.

    jupyter nbconvert --to workflow.export.PaperExporter artifacts/demo/notebooks/08_tables.ipynb \\
        --output-dir figures/demo

An output whose metadata says {"paper": "tab_x"} becomes tab_x.tex, {"paper": "fig_x"} fig_x.pdf and fig_x.png,
{"paper": "numbers"} numbers.tex; one that says "rep_x" is for the report alone. Each target that the run declares must
be there exactly once, and nothing else. Beside them come results.tex, which sets them all, and report.html, with what
09_robustness says where it lies beside it.
"""

import os
import re
import tempfile
from pathlib import Path

import nbformat
from nbconvert.exporters import Exporter
from traitlets import List, Unicode

from lib.paper.exhibits import EXHIBITS, captions
from lib.paper.latex import escape
from lib.paths import UserError, nearest
from workflow.marked import SUFFIXES, contents, marked
from workflow.pipeline import PUBLISHED
from workflow.report import page, robustness_beside

TARGETS = tuple(exhibit.name for exhibit in EXHIBITS if exhibit.notebook == "08_tables")
# The paper's own numbers have no rows behind them: no figures, and nothing to be held against the paper.
OF_PUBLISHED = tuple(exhibit.name for exhibit in EXHIBITS if exhibit.published)
NAME = re.compile(r"(?:tab|fig|rep)_[a-z0-9_]+|numbers")


def declared(nb) -> tuple[str, ...]:
    """The targets of the run that an executed notebook says it belongs to."""
    given = nb.metadata.get("papermill", {}).get("parameters", {})
    return OF_PUBLISHED if given.get("run") == PUBLISHED else TARGETS


class ExportError(UserError):
    """A target that is missing, double, unknown, or without the form that the paper needs: one line."""


def exported(nb, targets=()) -> dict[str, bytes]:
    """Contents of the files by name. Raises ExportError unless each target is there exactly once."""
    targets = tuple(targets) or declared(nb)
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    for number, target, data in marked(nb.cells):
        if not isinstance(target, str) or not NAME.fullmatch(target):
            raise ExportError(f"cell {number}: target {target!r} is not of the form tab_name, fig_name or rep_name")
        if target not in targets:
            raise ExportError(f"cell {number}: unknown target '{target}': {nearest(target, targets)}")
        if target in seen:
            raise ExportError(f"cell {number}: target '{target}' is there twice")
        seen.add(target)
        for mime in SUFFIXES[target[:3]]:
            if mime not in data:
                raise ExportError(f"cell {number}: target '{target}' has no {mime}")
        files |= contents(target, data)
    missing = [target for target in targets if target not in seen]
    if missing:
        raise ExportError(f"no output has the target {' or '.join(missing)}")
    return files


HEAD = r"""\documentclass[10pt]{article}
\usepackage[a4paper,landscape,margin=1.5cm]{geometry}
\usepackage[T1]{fontenc}
\usepackage{times,amsmath,amssymb,bm,booktabs,multirow,graphicx,adjustbox,caption}
\captionsetup{labelfont=bf,font=small}
\pdfinfoomitdate=1 \pdftrailerid{} \pdfsuppressptexinfo=-1 % the same file from the same tables
\setlength{\parindent}{0pt}
\begin{document}
"""


def results(nb, files: dict[str, bytes]) -> str:
    """A document that sets every table and figure, a page each, in the order of the paper: pdflatex results.tex, in
    the folder itself."""
    given = nb.metadata.get("papermill", {}).get("parameters", {})
    title = escape(given.get("title") or "Tables and figures")
    numbers = r"\input{numbers}" if "numbers.tex" in files else ""
    lines = [HEAD + numbers, rf"\section*{{{title}}}", quoted(files)]
    for name, caption in captions().items():
        if f"{name}.tex" in files:
            lines.append(panel("table", rf"\input{{{name}}}", *caption))
        elif f"{name}.pdf" in files:
            size = r"width=.62\linewidth,height=.8\textheight,keepaspectratio"
            lines.append(panel("figure", rf"\includegraphics[{size}]{{{name}.pdf}}", *caption))
    return "\n".join([*lines, r"\end{document}", ""])


def panel(kind: str, body: str, short: str, long: str) -> str:
    """A table or figure on one page with its caption."""
    limits = r"{max width=\linewidth,max totalheight=.82\textheight,center}"
    caption = rf"\captionof{{{kind}}}[{escape(short)}]{{{escape(f'{short}. {long}')}}}"
    return "\n".join(
        [
            r"\begin{minipage}{\linewidth}",
            rf"\begin{{adjustbox}}{limits}{body}\end{{adjustbox}}",
            caption,
            r"\end{minipage}\par\vspace{9mm}",
        ]
    )


def quoted(files: dict[str, bytes]) -> str:
    """The findings and their counts, from the macros and comments of numbers.tex."""
    text = files.get("numbers.tex", b"").decode()
    macros = re.findall(r"% (.*) \(\w+\)\n\\newcommand\{(\\\w+)\}", text)
    if not macros:
        return ""
    items = [rf"\item[{macro}] {escape(statement)}" for statement, macro in macros]
    begin = r"\begin{description}\small\setlength{\itemsep}{0pt}\setlength{\parskip}{0pt}"
    return "\n".join([begin, *items, r"\end{description}\clearpage"])


class PaperExporter(Exporter):
    """nbconvert exporter of the outputs marked for the paper."""

    targets = List(Unicode(), help="What must be there; by default what the run declares.").tag(config=True)

    def _file_extension_default(self) -> str:
        return ".tex"

    def from_notebook_node(self, nb, resources=None, **kw):
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        files = exported(nb, self.targets)
        shown = {name: data for _, name, data in marked(nb.cells)}
        report = page(nb, shown | robustness_beside(resources["metadata"].get("path", "")))
        resources["outputs"] = files | {"report.html": report.encode()}
        resources["unique_key"] = "results"
        return results(nb, files), resources


def export(notebook: Path, folder: Path) -> list[str]:
    """Write all files of an executed notebook to a folder, each whole or not at all; their names."""
    nb = nbformat.read(notebook, 4)
    files = exported(nb)
    files["results.tex"] = results(nb, files).encode()  # the report waits for 09: workflow/report_file.py
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".export-{os.getpid()}-", dir=folder) as scratch:
        for name, content in files.items():
            (Path(scratch) / name).write_bytes(content)
        for name in files:
            os.replace(Path(scratch) / name, folder / name)
    return sorted(files)
