"""The lines that a run prints of its jobs."""

import os
import re
import sys
import tempfile
from collections.abc import Iterable

from lib.errors import escape_unprintable, one_line
from lib.paths import ROOT
from workflow.engine.jobs_of_run import Job


def say(text: str, end: str = "\n") -> None:
    clear = "\r\033[K" if sys.stdout.isatty() else ""
    print(clear + printable(text), end=end, flush=True)


def printable(text: str) -> str:
    return "".join(escape_unprintable(character) for character in text)


PLACES = {
    str(ROOT): ".",
    sys.prefix: "(environment)",
    os.path.expanduser("~"): "~",
    tempfile.gettempdir(): "(temporary)",
    sys.base_prefix: "(Python)",
}


def redact_paths(line: str) -> str:
    """Return a line for the log without this machine's paths and without unprintable characters."""
    for place, name in PLACES.items():
        if len(place) > 1:
            line = re.sub(rf"{re.escape(place)}(?![\w.-])", name, line)
    return printable(line.rstrip("\r\n")) + "\n"


def describe_system_error(problem: OSError) -> str:
    """Return the system's reason (full disk, no permission) and the file, without this machine's
    paths."""
    reason = problem.strerror or str(problem)
    if not problem.filename:
        return reason
    return f"{reason} {redact_paths(f'({problem.filename})').rstrip()}"


class Board:
    """The progress display of some jobs. `failed`: exit code and text of each."""

    def __init__(self, jobs: Iterable[Job]):
        self.jobs = list(jobs)
        self.ended: set[Job] = set()
        self.failed: dict[Job, tuple[int, str]] = {}
        self.ran = 0
        self.width = max((len(job.title) for job in self.jobs), default=0)

    def upstream(self, job: Job) -> set[Job]:
        """Return the jobs upstream of one that are among these."""
        return set(job.upstream) & set(self.jobs)

    def show(self, job: Job, event: str, text: str = "started", code: int = 1, **_: str) -> None:
        """Print the line of an event: start, progress, kept, end or fail."""
        if event == "fail":
            self.failed[job] = (code, text)
            text = f"failed: {one_line(text, most=600)}"
        elif event == "kept":
            self.ended.add(job)
            text = f"kept: {text}"
        elif event == "end":
            self.ended.add(job)
            self.ran += 1
        count = f"[{len(self.ended)}/{len(self.jobs)}]"
        if job not in self.ended:
            count = " " * len(count)
        line = f"{count} {job.title.ljust(self.width)}  {text}"
        is_transient = event == "progress" and sys.stdout.isatty()
        say(line, end="" if is_transient else "\n")
