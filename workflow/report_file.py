"""report.html of a run, from the executed notebooks that carry its parts: 08 sets it, 09 adds to it when it is there.

Apart from report.py, whose imports take a second: this is looked at in every run, and most have nothing to change.
"""

import os

from lib.paths import ROOT, commit
from workflow.files import read_json, write_json
from workflow.fingerprint import checksum
from workflow.pipeline import Run

CARRIERS = ("08_tables", "09_robustness")
CODE = ("workflow/report.py", "workflow/report.html.jinja", "workflow/marked.py")


def renew_report(run: Run) -> None:
    """Make the report where it is not there, or not what the notebooks that are there now make of it."""
    sources = [f"{run.folder}/notebooks/{name}.ipynb" for name in CARRIERS]
    place, note = f"{run.figures}/report.html", ROOT / run.folder / "report.json"
    if not (ROOT / sources[0]).is_file():
        return
    if read_json(note) == {path: checksum(path) for path in (*sources, *CODE, place)}:
        return
    import nbformat

    from workflow.marked import marked
    from workflow.report import page, robustness_beside

    tables = nbformat.read(ROOT / sources[0], 4)
    shown = {name: data for _, name, data in marked(tables.cells)}
    scratch = ROOT / run.figures / f".report.html.{os.getpid()}.partial"
    scratch.write_text(page(tables, shown | robustness_beside(ROOT / run.folder / "notebooks")), encoding="utf-8")
    commit(scratch, ROOT / place)
    write_json(note, {path: checksum(path) for path in (*sources, *CODE, place)})
