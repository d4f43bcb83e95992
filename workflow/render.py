"""Render a run's report.html and, if LaTeX is installed, results.pdf.

Every run checks whether they are up to date, and usually they are. So slow modules are imported only where needed.
"""

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread

from lib.files import write_atomically
from lib.paths import ROOT
from workflow import keys, preload
from workflow.files import read_json, write_json
from workflow.fingerprint import checksum, import_closure
from workflow.pipeline import Run
from workflow.rules import PAPER

CODE = ("workflow/report.py", "workflow/report.html.jinja", "workflow/export.py")
PDFLATEX = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape")


def import_early() -> None:
    """Begin to import what `renew_report` needs, which takes two seconds, while jobs run."""
    preload.skip_unused_import()

    def import_them() -> None:
        with suppress(Exception):  # `renew_report` reports it
            import_module("workflow.report")

    Thread(target=import_them, daemon=True).start()


def renew_report(run: Run) -> None:
    """Write the report if it is missing, or not of what the notebooks export and the code that shows it now."""
    folder, place, note = (
        ROOT / run.folder / "exported",
        f"{run.figures}/report.html",
        ROOT / run.folder / "report.json",
    )
    exported = [path.relative_to(ROOT).as_posix() for path in sorted(folder.glob("*.json"))]
    code = keys.digest_files({*CODE, *import_closure(map(keys.read_source, CODE[:1]))})

    def state() -> dict[str, str | None]:
        return {**{path: checksum(path) for path in (*exported, *PAPER, place)}, **code}

    if not (folder / "08_tables.json").is_file() or read_json(note) == state():
        return
    from workflow.export import read_exported
    from workflow.report import report_page

    page = report_page(*read_exported(folder))
    write_atomically(ROOT / place, lambda scratch: scratch.write_text(page, encoding="utf-8"))
    write_json(note, state())


def typeset(folder: Path) -> str:
    """Create results.pdf if it is missing. Return one line for the user if that is not possible, else an empty one."""
    made = folder / "results.pdf"
    if made.exists() or not (folder / "results.tex").exists():
        return ""
    if not shutil.which("pdflatex"):
        return "results.pdf was not created, because pdflatex is missing; results.tex includes every table and figure"
    with tempfile.TemporaryDirectory() as scratch:
        command = [*PDFLATEX, f"-output-directory={scratch}", "results.tex"]
        env = {**os.environ, "SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1"}
        done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True)
        log = folder / "results.log"
        if done.returncode == 0:
            write_atomically(made, partial(shutil.copyfile, Path(scratch, made.name)))
            log.unlink(missing_ok=True)
            return ""
        if Path(scratch, log.name).exists():
            shutil.copyfile(Path(scratch, log.name), log)
    where = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    return f"results.pdf was not created: pdflatex failed, see {where}/results.log"
