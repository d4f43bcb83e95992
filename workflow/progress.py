"""What the user sees while jobs run: a line per event, what remains, and everything else in a log."""

import json
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lib.paths import ROOT, escape_unprintable, one_line
from workflow.pipeline import MARK


def say(text: str, end: str = "\n") -> None:
    clear = "\r\033[K" if sys.stdout.isatty() else ""
    print(clear + "".join(map(escape_unprintable, text)), end=end, flush=True)


def parse(line: str) -> dict | None:
    """The event on a marked line; None for chatter, and for a mark that other output has run into."""
    try:
        return json.loads(line[len(MARK) :]) if line.startswith(MARK) else None
    except ValueError:
        return None


PLACES = {str(ROOT): ".", sys.prefix: "(environment)", os.path.expanduser("~"): "~",
          tempfile.gettempdir(): "(temporary)"}  # fmt: skip
PLACES.setdefault(sys.base_prefix, "(Python)")  # whose own files warnings name


def private(line: str) -> str:
    """A line for the log without where on this machine things lie, and without signs that are none."""
    for place, name in PLACES.items():
        if len(place) > 1:
            line = re.sub(rf"{re.escape(place)}(?![\w.-])", name, line)
    return "".join(map(escape_unprintable, line.rstrip("\r\n"))) + "\n"


class Board:
    """What the user sees of some jobs, by name their `titles`, on so many `cores`; `known`: seconds that jobs took when
    they were last run."""

    def __init__(self, titles: dict[str, str], cores: int = 1, known: Mapping[str, float] | None = None):
        self.titles, self.cores, self.known = titles, cores, dict(known or {})
        self.done, self.failures, self.ended = 0, [], set()
        self.going: dict[str, str] = {}  # titles of jobs that have begun, and not ended
        self.seconds: dict[str, float] = {}  # of jobs that were run
        self.width = max(map(len, titles.values()), default=0)

    @property
    def remaining(self) -> str:
        """About how many minutes remain, as jobs of the same notebook took in this run, or these in the last one; empty
        under a minute, and while any is left of which neither is known."""
        taken = defaultdict(list)
        for name, seconds in self.seconds.items():
            taken[name.split("__")[0]].append(seconds)
        left = []
        for name in self.titles.keys() - self.ended:
            alike = taken[name.split("__")[0]]
            if not alike and name not in self.known:
                return ""
            left.append(sum(alike) / len(alike) if alike else self.known[name])
        minutes = max([sum(left) / self.cores, *left], default=0) / 60
        return f", about {minutes:.0f} min left" if minutes >= 1 else ""

    def hear(self, log: Path, line: str) -> None:
        """Marked lines are shown, chatter is logged, where there is room for it."""
        if event := parse(line):
            self.show(event)
        elif line.strip() and not re.match(r"\s*(host|user):", line, flags=re.I):
            with suppress(OSError), log.open("a", encoding="utf-8") as file:
                file.write(private(line))

    def show(self, event: dict) -> None:
        kind, text, count = event["event"], "started", ""
        self.going.pop(event["job"], None)
        if kind in ("start", "progress"):
            self.going[event["job"]] = self.titles[event["job"]]
        if kind == "end":
            self.seconds[event["job"]] = event["seconds"]
            self.ended.add(event["job"])
            text = f"{event['seconds']:.1f} s{self.remaining}"
        elif kind == "kept":
            self.ended.add(event["job"])
            text = f"kept: {event['text']}"
        elif kind == "fail":
            self.failures.append((event["code"], event["text"]))
            text = f"failed: {one_line(event['text'], most=600)}"
        elif kind == "progress":
            text = event["text"]
        if kind in ("end", "kept"):
            self.done = len(self.ended)
            count = f"[{self.done}/{len(self.titles)}]"
        margin = len(f"[{self.done}/{len(self.titles)}]")
        transient = kind == "progress" and sys.stdout.isatty()
        title = self.titles[event["job"]].ljust(self.width)
        say(f"{count:{margin}} {title}  {text}", end="" if transient else "\n")
