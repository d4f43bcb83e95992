"""Files of a run written, read and moved such that a kill in the midst loses none.

A move is written down before its first file moves, and struck out after its last. Whoever finds one written down goes
on with it: a file that is no longer at its old place has been moved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lib.paths import ROOT, commit, sync

if TYPE_CHECKING:
    from workflow.pipeline import Job


def read_json(path: Path) -> object:
    """What a file holds; None where it is not there, or not JSON. Raises PermissionError for one that may not be read:
    what it says still holds, and what it vouches for is not to be made again."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except PermissionError:
        raise
    except (OSError, ValueError, RecursionError):
        return None


def write_json(path: Path, content: object) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_text(json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
        commit(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def move(job: Job, pairs: Iterable[tuple[str, str]]) -> None:
    """Files or folders, each from the one path to the other, which is free."""
    write_json(ROOT / job.moving, list(pairs))
    finish_move(job)


def finish_move(job: Job) -> None:
    """Finish the move of a job's files that was begun, if one was."""
    journal = ROOT / job.moving
    if not journal.exists():
        return
    pairs = [(ROOT / source, ROOT / target) for source, target in read_json(journal) or ()]
    for source, target in pairs:
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, target)
    for folder in {path.parent for pair in pairs for path in pair if path.parent.is_dir()}:
        sync(folder)
    journal.unlink()
    sync(journal.parent)  # a move that came back to mind would take what is made next


def prune(folder: Path) -> None:
    """Remove a folder, as far as it holds nothing but folders."""
    for path in [*sorted(folder.rglob("*"), reverse=True), folder]:
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
