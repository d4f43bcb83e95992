"""Finish or remove what a killed run left incomplete."""

import re
import shutil
import time
from pathlib import Path

from lib.paths import ROOT
from workflow import files
from workflow.locks import is_running
from workflow.pipeline import Run

# files of write_atomically, and folders of typeset; each name has the id of the process that writes it
SCRATCH = re.compile(r"\..+\.(\d{1,7})(?:\.partial)?|\.typeset-(\d{1,7})-\w+")
YOUNG = 600  # seconds: a process on another machine may still write younger files


def clear_leftovers(run: Run) -> None:
    """Finish incomplete moves, and remove temporary files whose process has ended. The caller must have the lock of the
    run."""
    files.finish_move(run)
    for job in run.jobs:
        files.finish_move(job)
    age = YOUNG if run.cluster else 0
    ages = {run.folder: age, run.figures: age, "artifacts/.checksums": YOUNG}  # which all runs share
    for folder, spared in ages.items():
        for path in list((ROOT / folder).rglob(".*")):
            if is_abandoned(path, spared):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def is_abandoned(path: Path, age: float) -> bool:
    """Whether a path is temporary, its process has ended, and it is at least `age` seconds old."""
    found = SCRATCH.fullmatch(path.name)
    if not found or not path.exists() or is_running(int(found[1] or found[2])):
        return False
    return time.time() - path.stat().st_mtime >= age
