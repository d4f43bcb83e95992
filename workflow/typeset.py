"""results.pdf from results.tex, where there is a LaTeX; a run does without one.

Apart from export.py, whose imports take a second: this is looked at in every run, and most have nothing to export.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from lib.paths import ROOT

PATIENCE = 180  # seconds
PDFLATEX = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape")


def typeset(folder: Path) -> str:
    """Make results.pdf if it is not there; one line for the user, empty where there is nothing to say."""
    if (folder / "results.pdf").exists() or not (folder / "results.tex").exists():
        return ""
    if not shutil.which("pdflatex"):
        return "results.pdf was not made, for there is no pdflatex here; results.tex sets every table and figure"
    with tempfile.TemporaryDirectory(prefix=f".typeset-{os.getpid()}-", dir=folder) as scratch:
        made, log = Path(scratch) / "results.pdf", Path(scratch) / "results.log"
        if pdflatex(folder, Path(scratch).name):
            os.replace(made, folder / made.name)
            (folder / log.name).unlink(missing_ok=True)
            return ""
        if log.exists():
            os.replace(log, folder / log.name)
    where = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    return f"results.pdf was not made: pdflatex failed, {where}/results.log says where"


def pdflatex(folder: Path, out: str) -> bool:
    """Whether LaTeX set results.tex, into a folder below its own."""
    command = [*PDFLATEX, f"-output-directory={out}", "results.tex"]
    env = {**os.environ, "SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE
        )
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
