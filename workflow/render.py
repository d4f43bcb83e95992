"""Render a run's report.html and, if LaTeX is installed, results.pdf.

Every run checks whether they are up to date, and usually they are. So slow modules are imported only where needed.
"""

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import ModuleType

from lib.paths import ROOT, write_atomically
from workflow import preload
from workflow.files import read_json, write_json
from workflow.fingerprint import checksum
from workflow.pipeline import Run

CARRIERS = ("08_tables", "09_robustness")  # the notebooks whose outputs the report shows
CODE = ("workflow/report.py", "workflow/report.html.jinja", "workflow/export.py")
PDFLATEX = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape")


def import_libraries() -> list[ModuleType]:
    """Import what `renew_report` needs."""
    preload.skip_unused_import()
    return [import_module(name) for name in ("nbformat", "workflow.report")]


def import_early() -> None:
    """Begin to import it, which takes two seconds, while jobs run."""

    def import_them() -> None:
        with suppress(Exception):  # `renew_report` reports it
            import_libraries()

    Thread(target=import_them, daemon=True).start()


def renew_report(run: Run) -> None:
    """Write the report if it is missing or does not belong to the current notebooks."""
    tables, robustness = (f"{run.folder}/notebooks/{name}.ipynb" for name in CARRIERS)
    place, note = f"{run.figures}/report.html", ROOT / run.folder / "report.json"

    def checksums() -> dict[str, str | None]:
        return {path: checksum(path) for path in (tables, robustness, *CODE, place)}

    if not (ROOT / tables).is_file() or read_json(note) == checksums():
        return
    nbformat, report = import_libraries()
    page = report.report_of(nbformat.read(ROOT / tables, 4), (ROOT / tables).parent)
    write_atomically(ROOT / place, lambda scratch: scratch.write_text(page, encoding="utf-8"))
    write_json(note, checksums())


def typeset(folder: Path) -> str:
    """Create results.pdf if it is missing. Return one line for the user if that is not possible, else an empty one."""
    made = folder / "results.pdf"
    if made.exists() or not (folder / "results.tex").exists():
        return ""
    if not shutil.which("pdflatex"):
        return "results.pdf was not created, because pdflatex is missing; results.tex includes every table and figure"
    with tempfile.TemporaryDirectory(prefix=f".typeset-{os.getpid()}-", dir=folder) as scratch:
        command = [*PDFLATEX, f"-output-directory={Path(scratch).name}", "results.tex"]
        env = {**os.environ, "SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1"}
        done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True)
        log = folder / "results.log"
        if done.returncode == 0:
            os.replace(Path(scratch, made.name), made)
            log.unlink(missing_ok=True)
            return ""
        if Path(scratch, log.name).exists():
            os.replace(Path(scratch, log.name), log)
    where = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    return f"results.pdf was not created: pdflatex failed, see {where}/results.log"
