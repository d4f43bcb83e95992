"""A copy of the project in a folder of its own, and `./run_all.sh` in it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from lib.project import ROOT

ENV = os.environ | {"VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}


def spaced(folder: Path) -> str:
    """The environment of the tests, at a path that holds a space."""
    link = folder / "an environment"
    link.symlink_to(sys.prefix)
    return str(link)


def copy_of_project(to: Path) -> Path:
    """What a clone would hold, with today's edits."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def edit(path: Path, **values: object) -> None:
    """Set values in a parameter file."""
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | values))


def start(folder: Path, *words: str, **env: str) -> subprocess.Popen:
    return subprocess.Popen([folder / "run_all.sh", *words], cwd="/", env=ENV | env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip


def run(folder: Path, *words: str, **env: str) -> str:
    process = start(folder, *words, **env)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    return said


def refusal(folder: Path, *words: str) -> str:
    """The one line that `./run_all.sh` answers to what it can't do."""
    process = start(folder, *words)
    said = process.communicate()[0].strip()
    assert process.returncode == 2 and len(said.splitlines()) == 1, said
    return said


def counts(said: str) -> tuple[int, int]:
    """Jobs made and kept, as a run says at its end."""
    made, kept = re.search(r"(\d+) made, (\d+) kept", said).groups()
    return int(made), int(kept)


def tables(folder: Path, name: str = "demo") -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((folder / "figures" / name).iterdir()) if p.suffix == ".tex"}
