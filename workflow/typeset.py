"""results.pdf from results.tex, where there is a LaTeX; a run does without one."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from lib.project import ROOT

LIMIT = 180  # seconds


def typeset(folder: Path) -> str:
    """Make results.pdf if it is not there; one line for the user, empty where there is nothing to say."""
    source, made = folder / "results.tex", folder / "results.pdf"
    if made.exists() or not source.exists():
        return ""
    if not shutil.which("pdflatex"):
        return "results.pdf was not made, for there is no pdflatex here; results.tex sets every table and figure"
    with tempfile.TemporaryDirectory(prefix=".typeset-", dir=folder) as scratch:
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape",
                   f"-output-directory={Path(scratch).name}", source.name]  # fmt: skip
        env = {**os.environ, "SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1"}
        try:
            done = subprocess.run(
                command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT
            )
            failed = done.returncode != 0
        except subprocess.TimeoutExpired:
            failed = True
        if not failed:
            os.replace(Path(scratch) / "results.pdf", made)
            (folder / "results.log").unlink(missing_ok=True)
            return ""
        if (Path(scratch) / "results.log").exists():
            os.replace(Path(scratch) / "results.log", folder / "results.log")
    where = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    return f"results.pdf was not made: pdflatex failed, {where}/results.log says where"
