"""Progress of the jobs: a line per event; other output goes to a log."""

import json
import os
import re
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from lib.paths import ROOT, escape_unprintable, one_line
from workflow.pipeline import MARK


def say(text: str, end: str = "\n") -> None:
    clear = "\r\033[K" if sys.stdout.isatty() else ""
    print(clear + "".join(map(escape_unprintable, text)), end=end, flush=True)


def parse_event(line: str) -> dict | None:
    """Return the event on a marked line; None for other output, or if other output has damaged the line."""
    try:
        return json.loads(line[len(MARK) :]) if line.startswith(MARK) else None
    except ValueError:
        return None


PLACES = {str(ROOT): ".", sys.prefix: "(environment)", os.path.expanduser("~"): "~",
          tempfile.gettempdir(): "(temporary)"}  # fmt: skip
PLACES.setdefault(sys.base_prefix, "(Python)")  # warnings name its files


def redact_paths(line: str) -> str:
    """Return a line for the log without this machine's paths and without unprintable characters."""
    for place, name in PLACES.items():
        if len(place) > 1:
            line = re.sub(rf"{re.escape(place)}(?![\w.-])", name, line)
    return "".join(map(escape_unprintable, line.rstrip("\r\n"))) + "\n"


def describe_system_error(problem: OSError) -> str:
    """Return the system's reason (full disk, no permission) and the file, without this machine's paths."""
    where = redact_paths(f" ({problem.filename})").rstrip() if problem.filename else ""
    return f"{problem.strerror or problem}{where}"


class Board:
    """The progress display of some jobs, whose `titles` are given by name."""

    def __init__(self, titles: dict[str, str]):
        self.titles = titles
        self.failures, self.ended, self.ran = [], set(), 0
        self.going: dict[str, str] = {}  # titles of running jobs
        self.width = max(map(len, titles.values()), default=0)

    @property
    def unfinished(self) -> set[str]:
        """Jobs that have not ended."""
        return self.titles.keys() - self.ended

    def handle_line(self, log: Path, line: str) -> None:
        """Show a marked line; write other output to the log unless the disk is full."""
        if event := parse_event(line):
            self.show_event(event)
        elif line.strip() and not re.match(r"\s*(host|user):", line, flags=re.I):
            with suppress(OSError), log.open("a", encoding="utf-8") as file:
                file.write(redact_paths(line))

    def show_event(self, event: dict) -> None:
        job, kind, text = event["job"], event["event"], event.get("text", "started")
        self.going.pop(job, None)
        if kind in ("start", "progress"):
            self.going[job] = self.titles[job]
        elif kind == "fail":
            self.failures.append((event["code"], text))
            text = f"failed: {one_line(text, most=600)}"
        else:
            self.ended.add(job)
            text = f"kept: {text}"
        if kind == "end":
            self.ran += 1
            text = f"{event['seconds']:.1f} s"
        count = f"[{len(self.ended)}/{len(self.titles)}]"
        margin = count if job in self.ended else " " * len(count)
        transient = kind == "progress" and sys.stdout.isatty()
        say(f"{margin} {self.titles[job].ljust(self.width)}  {text}", end="" if transient else "\n")
