"""The files for the paper: what the executed 08_tables shows, and a document with all of it.

An output with metadata {"paper": "tab_x"} becomes tab_x.tex, and {"paper": "fig_x"} fig_x.pdf and
fig_x.png. "rep_x" is for the report only (SECTIONS). Each declared target must appear exactly once,
and no other. results.tex includes all.

A run writes what its notebooks show for the paper to artifacts/<run>/exported/, too, one JSON file
each. Only these are read later: an executed notebook may be opened and saved by its reader.
"""

import base64
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from lib.errors import UserError, nearest
from lib.files import write_atomically
from lib.paper.booktabs import CAPTIONS, PAPER_CAPTIONS, TABLE_CAPTIONS, escape
from lib.run_names import PUBLISHED
from workflow.engine.fingerprint import write_json

if TYPE_CHECKING:  # slow to import
    from nbformat import NotebookNode

TABLES = "08_tables"  # the notebook with what goes into the paper
SUFFIXES = {"text/latex": ".tex", "application/pdf": ".pdf", "image/png": ".png"}
FORMS = {
    "tab": ["text/latex"],
    "fig_prompt": ["text/latex"],
    "fig": ["application/pdf", "image/png"],
    "rep": [],
}


@dataclass(frozen=True)
class Section:
    """What the report shows beside tables and figures: the output of a notebook with the target
    `rep_<name>`."""

    name: str
    notebook: str = TABLES
    form: str = "application/json"

    @property
    def target(self) -> str:
        return f"rep_{self.name}"


FINDINGS = Section("findings")
SECTIONS = (
    FINDINGS,
    Section("overview"),
    Section("pooled"),
    Section("splits"),
    Section("numbers"),
    Section("ablation"),
    Section("sensitivity", notebook="09_beyond"),
    Section("explorer"),
    Section("notes"),
)
TARGETS = (*CAPTIONS, *(section.target for section in SECTIONS if section.notebook == TABLES))
# The paper's printed numbers have no rows, so there are no figures and no comparison with the
# paper.
OF_PUBLISHED = (*(name for name in PAPER_CAPTIONS if name.startswith("tab_")), FINDINGS.target)
# of a table of scores: what 10_judge shows
OF_TABLE = (*TABLE_CAPTIONS, "rep_answer", "rep_calibrators")
IN_REPORT = ("application/json", "image/png", "text/html")  # the forms that the report shows


def parameters_of(nb: "NotebookNode") -> dict:
    """Return the parameters with which papermill executed a notebook."""
    return nb.metadata.get("papermill", {}).get("parameters", {})


def marked_outputs(nb: "NotebookNode") -> Iterator[tuple[str, dict]]:
    """Yield (target, data) of each output that is marked for the paper."""
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            if "paper" in output.get("metadata", {}):
                yield output["metadata"]["paper"], output.get("data", {})


def declared_targets(nb: "NotebookNode") -> tuple[str, ...]:
    """Return the targets of a notebook that exports."""
    parameters = parameters_of(nb)
    if "table" in parameters:
        return OF_TABLE
    return OF_PUBLISHED if parameters.get("run") == PUBLISHED else TARGETS


def exported_files(nb: "NotebookNode") -> dict[str, bytes]:
    """Return the files' contents by name. Raise UserError unless each target appears exactly
    once."""
    declared = declared_targets(nb)
    files = {}
    counts: Counter[str] = Counter()
    for target, data in marked_outputs(nb):
        if target not in declared:
            raise UserError(f"unknown target '{target}': {nearest(target, declared)}")
        counts[target] += 1
        for mime in forms_of(target):
            if mime not in data:
                raise UserError(f"target '{target}' has no {mime}")
            files[target + SUFFIXES[mime]] = content_of(mime, data[mime])
    for target in declared:
        if counts[target] != 1:
            raise UserError(
                f"one output must have the target '{target}', and there are {counts[target]}"
            )
    return files


def forms_of(target: str) -> list[str]:
    """Return the forms of the files of a target."""
    return next(forms for kind, forms in FORMS.items() if target.startswith(kind))


def content_of(mime: str, text: str) -> bytes:
    """Return the bytes of an output; all but LaTeX is base64."""
    return text.encode() if mime == "text/latex" else base64.b64decode(text)


def export(nb: "NotebookNode", folder: Path) -> list[str]:
    """Write all files of an executed notebook to a folder, each atomically, and return their
    names."""
    files = exported_files(nb)
    if "table" not in parameters_of(nb):
        title = parameters_of(nb).get("title", "")
        files["results.tex"] = results_document(title, files).encode()
    for name, content in files.items():
        write_atomically(folder / name, partial(Path.write_bytes, data=content))
    return sorted(files)


def export_for_report(nb: "NotebookNode", path: Path) -> None:
    """Write to one file what the report shows of an executed notebook's marked outputs."""
    parameters = {name: parameters_of(nb).get(name, "") for name in ("run", "title")}
    outputs = {}
    for target, data in marked_outputs(nb):
        outputs[target] = {mime: data[mime] for mime in IN_REPORT if mime in data}
    write_json(path, {"parameters": parameters, "outputs": outputs})


# ---- one document with all of them


def results_document(title: str, files: Mapping[str, bytes]) -> str:
    """Return a document with one page per table and figure, in the paper's order, and several per
    long table. Run pdflatex in its folder."""
    env = jinja2.Environment(  # noqa: S701  LaTeX has an escape of its own
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters["latex"] = escape
    template = env.get_template("results.tex.jinja")
    long = [name for name, content in files.items() if rb"\begin{longtable}" in content]
    return template.render(title=title, captions=CAPTIONS, files=files, long=long)
