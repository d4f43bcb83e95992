"""From the executed 08_tables to files for the paper, through nbconvert and without pandoc or Inkscape.

    jupyter nbconvert --to workflow.export.PaperExporter artifacts/demo/notebooks/08_tables.ipynb \\
        --output-dir figures/demo

An output whose metadata says {"paper": "tab_x"} becomes tab_x.tex, {"paper": "fig_x"} fig_x.pdf and
fig_x.png. Each declared target must be there exactly once, and nothing else. preview.tex beside them shows all.
"""

import base64
import os
import re
import tempfile
from pathlib import Path

from nbconvert.exporters import Exporter
from traitlets import List, Unicode

from lib import UserError, nearest

TARGETS = (
    "tab_result_estimation",
    "tab_inference_settings",
    "tab_estimators",
    "tab_insitu_ptrue",
    "tab_dropout_grid_search",
    "tab_bin_ablation",
    "tab_result_estimation_full",
    "tab_result_calibration",
    "tab_result_calibration_full",
    "tab_result_isotonic",
    "tab_calibration_transfer_full",
    "tab_calibration_transfer_summary",
    "fig_main_analysis",
    "fig_calibration_analysis",
    "fig_prompt_example",
    "fig_prompt_comparison",
)
NAME = re.compile(r"(tab|fig)_[a-z0-9_]+")
SUFFIXES = {"tab": {"text/latex": ".tex"}, "fig": {"application/pdf": ".pdf", "image/png": ".png"}}


class ExportError(UserError):
    """A target that is missing, double, unknown, or without the form that the paper needs: one line."""


def marked(nb):
    """(number of the cell, target, data) of each output meant for the paper."""
    for number, cell in enumerate(nb.cells, 1):
        for output in cell.get("outputs", []):
            if "paper" in output.get("metadata", {}):
                yield number, output["metadata"]["paper"], output.get("data", {})


def exported(nb, targets=TARGETS) -> dict[str, bytes]:
    """Contents of the files by name. Raises ExportError unless each target is there exactly once."""
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    for number, target, data in marked(nb):
        if not isinstance(target, str) or not NAME.fullmatch(target):
            raise ExportError(f"cell {number}: target {target!r} is not of the form tab_name or fig_name")
        if target not in targets:
            raise ExportError(f"cell {number}: unknown target '{target}': {nearest(target, targets)}")
        if target in seen:
            raise ExportError(f"cell {number}: target '{target}' is there twice")
        seen.add(target)
        for mime, suffix in SUFFIXES[target[:3]].items():
            if mime not in data:
                raise ExportError(f"cell {number}: target '{target}' has no {mime}")
            text = "".join(data[mime])
            files[target + suffix] = text.encode() if mime.startswith("text/") else base64.b64decode(text)
    missing = [target for target in targets if target not in seen]
    if missing:
        raise ExportError(f"no output has the target {' or '.join(missing)}")
    return files


def preview(files: dict[str, bytes]) -> str:
    """A document that shows every table and figure: pdflatex preview.tex, in the folder itself."""
    lines = [
        r"\documentclass{article}",
        r"\usepackage[paperwidth=36cm,paperheight=26cm,margin=1.5cm]{geometry}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage{times,amsmath,amssymb,bm,booktabs,multirow,makecell,graphicx,xcolor}",
        r"\begin{document}",
    ]
    for name in sorted(files):
        stem, suffix = os.path.splitext(name)
        if suffix == ".tex":
            lines.append(rf"\section*{{\detokenize{{{stem}}}}} \input{{{stem}}} \clearpage")
        if suffix == ".pdf":
            figure = rf"\includegraphics[width=\linewidth,height=.8\textheight,keepaspectratio]{{{name}}}"
            lines.append(rf"\section*{{\detokenize{{{stem}}}}} \noindent{figure} \clearpage")
    return "\n".join([*lines, r"\end{document}", ""])


class PaperExporter(Exporter):
    """nbconvert exporter of the outputs marked for the paper."""

    targets = List(Unicode(), default_value=list(TARGETS), help="What must be there.").tag(config=True)

    def _file_extension_default(self) -> str:
        return ".tex"

    def from_notebook_node(self, nb, resources=None, **kw):
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        resources["outputs"] = exported(nb, self.targets)
        resources["unique_key"] = "preview"
        return preview(resources["outputs"]), resources


def export(notebook: Path, folder: Path) -> list[str]:
    """Write all files of an executed notebook to a folder, each whole or not at all; their names."""
    text, resources = PaperExporter().from_filename(str(notebook))
    files = {**resources["outputs"], "preview.tex": text.encode()}
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as scratch:
        for name, content in files.items():
            (Path(scratch) / name).write_bytes(content)
        for name in files:
            os.replace(Path(scratch) / name, folder / name)
    return sorted(files)
