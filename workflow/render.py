"""results.pdf, a run's tables and figures as one document, if LaTeX is installed."""

import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from lib.files import write_atomically
from lib.paths import ROOT

PDFLATEX = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape")


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
