"""Write, read and move a run's files so that a kill in between loses none.

A move is recorded in a journal before the first file and removed from it after the last. The next process finishes a
recorded move: a file that is missing at its old path has been moved already.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lib.files import write_atomically
from lib.paths import ROOT

if TYPE_CHECKING:
    from workflow.pipeline import Job, Run


def read_json(path: Path) -> object:
    """Return a file's content, or None if it is missing or not JSON.

    Raise PermissionError if it may not be read: the outputs that it records must not be generated again.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except PermissionError:
        raise
    except (OSError, ValueError, RecursionError):
        return None


def write_json(path: Path, content: object) -> None:
    """Write a JSON file atomically."""
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_atomically(path, lambda scratch: scratch.write_text(text, encoding="utf-8"))


def move_files(job: Job | Run, pairs: Iterable[tuple[str, str]]) -> None:
    """Move files or folders, each to a path that does not exist yet."""
    write_json(ROOT / job.moving, list(pairs))
    finish_move(job)


def finish_move(job: Job | Run) -> None:
    """Finish an interrupted move of a job's files, if there is one."""
    journal = ROOT / job.moving
    if not journal.exists():
        return
    pairs = [(ROOT / source, ROOT / target) for source, target in read_json(journal) or ()]
    for source, target in pairs:
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, target)
    journal.unlink()


def remove_empty_folders(folder: Path) -> None:
    """Remove the empty folders in a folder, and the folder itself if it is empty."""
    for path in [*sorted(folder.rglob("*"), reverse=True), folder]:
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
