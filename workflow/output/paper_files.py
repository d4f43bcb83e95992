"""The files for the paper: what the executed 08_tables shows, and one LaTeX document with all of
it.

An output with metadata {"paper": "tab_x"} becomes tab_x.tex, and {"paper": "fig_x"} fig_x.pdf and
fig_x.png. "rep_x" is for the report only (SECTIONS). Each declared target must appear exactly once,
and no other. results.tex includes all.

A run writes what its notebooks show for the paper to artifacts/<run>/exported/, too, one JSON file
each. Only these are read later: an executed notebook may be opened and saved by its reader.
"""

import base64
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jinja2

from lib.errors import UserError, nearest
from lib.files import write_atomically
from lib.paper.booktabs import CAPTIONS, PAPER_CAPTIONS, escape
from lib.run_names import PUBLISHED
from workflow.engine.fingerprint import write_json

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
    Section("tokens", form="text/html"),
    Section("notes"),
)
TARGETS = (*CAPTIONS, *(section.target for section in SECTIONS if section.notebook == TABLES))
# The paper's printed numbers have no rows, so there are no figures and no comparison with the
# paper.
OF_PUBLISHED = (*(name for name in PAPER_CAPTIONS if name.startswith("tab_")), FINDINGS.target)
IN_REPORT = ("application/json", "image/png", "text/html")  # the forms that the report shows


def parameters_of(nb: Any) -> dict:
    """Return the parameters with which papermill executed a notebook."""
    return nb.metadata.get("papermill", {}).get("parameters", {})


def marked_outputs(nb: Any) -> Iterator[tuple[str, dict]]:
    """Yield (target, data) of each output that is marked for the paper."""
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            if "paper" in output.get("metadata", {}):
                yield output["metadata"]["paper"], output.get("data", {})


def exported_files(nb: Any) -> dict[str, bytes]:
    """Return the files' contents by name. Raise UserError unless each target appears exactly
    once."""
    declared = OF_PUBLISHED if parameters_of(nb).get("run") == PUBLISHED else TARGETS
    files, shown = {}, Counter(target for target, _ in marked_outputs(nb))
    for target, data in marked_outputs(nb):
        if target not in declared:
            raise UserError(f"unknown target '{target}': {nearest(target, declared)}")
        for mime in next(forms for kind, forms in FORMS.items() if target.startswith(kind)):
            if mime not in data:
                raise UserError(f"target '{target}' has no {mime}")
            text = data[mime]
            files[target + SUFFIXES[mime]] = (
                text.encode() if mime == "text/latex" else base64.b64decode(text)
            )
    if wrong := [target for target in declared if shown[target] != 1]:
        raise UserError(
            f"one output must have the target '{wrong[0]}', and there are {shown[wrong[0]]}"
        )
    return files


def export(nb: Any, folder: Path) -> list[str]:
    """Write all files of an executed notebook to a folder, each atomically, and return their
    names."""
    files = exported_files(nb)
    files["results.tex"] = results_document(parameters_of(nb).get("title", ""), files).encode()
    for name, content in files.items():
        write_atomically(folder / name, partial(Path.write_bytes, data=content))
    return sorted(files)


def export_for_report(nb: Any, path: Path) -> None:
    """Write to one file what the report shows of an executed notebook's marked outputs."""
    parameters = {name: parameters_of(nb).get(name, "") for name in ("run", "title")}
    shown = {
        target: {mime: data[mime] for mime in IN_REPORT if mime in data}
        for target, data in marked_outputs(nb)
    }
    write_json(path, {"parameters": parameters, "outputs": shown})


# ---- one document with all of them

DELIMITERS = {"block_start_string": "<%", "block_end_string": "%>", "variable_start_string": "<<",
              "variable_end_string": ">>", "comment_start_string": "<#", "comment_end_string": "#>"}  # fmt: skip


def results_document(title: str, files: Iterable[str]) -> str:
    """Return a document with one page per table and figure, in the paper's order. Run pdflatex in
    its folder."""
    folder = jinja2.FileSystemLoader(Path(__file__).parent)
    env = jinja2.Environment(
        **DELIMITERS, loader=folder, trim_blocks=True, keep_trailing_newline=True
    )  # noqa: S701
    env.filters["latex"] = escape
    return env.get_template("results.tex.jinja").render(title=title, captions=CAPTIONS, files=files)
