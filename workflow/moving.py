"""Moves a job's files to another place such that a kill in the midst loses none.

A move is written down before its first file moves, and struck out after its last. Whoever finds one written down goes
on with it: a file that is no longer at its old place has been moved.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from lib.paths import ROOT, sync
from workflow.pipeline import Job, read_json, write_json


def move(job: Job, pairs: Iterable[tuple[str, str]]) -> None:
    """Files or folders, each from the one path to the other, which is free."""
    write_json(ROOT / job.moving, list(pairs))
    go_on(job)


def go_on(job: Job) -> None:
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
