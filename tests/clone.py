"""A copy of the project in a folder of its own, and `./run_all.sh` in it."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pathspec
import psutil
import yaml
from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent

# of a demo of one model on one dataset
SMALL = {"models": ["tiny-llama"], "datasets": ["demo-easy"], "limit": 12, "rows_per_shard": 4, "n_tuning_examples": 5,
         "dropout_passes": 3, "resamples": 100, "draws": 2, "calibration_sizes": [5], "ablation_limit": 2}  # fmt: skip
JOBS = 12
GIT = (
    "git",
    "-c",
    "user.name=someone",
    "-c",
    "user.email=someone@example.org",
    "-c",
    "commit.gpgsign=false",
)
ENV = os.environ | {"VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}


def copy_of_project(to: Path) -> Path:
    """A folder of what a clone would hold, with today's edits: without what .gitignore names."""
    made = pathspec.GitIgnoreSpec.from_lines((ROOT / ".gitignore").read_text().splitlines())

    def ignored(folder: str, names: list[str]) -> list[str]:
        paths = [Path(folder, name) for name in names]
        places = [f"{path.relative_to(ROOT)}{'/' * path.is_dir()}" for path in paths]
        return [
            name
            for name, place in zip(names, places, strict=True)
            if name == ".git" or made.match_file(place)
        ]

    return Path(shutil.copytree(ROOT, to, ignore=ignored, dirs_exist_ok=True))


def edit(path: Path, **values: object) -> None:
    """Set values in a parameter file."""
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | values))


def start(folder: Path, *words: str, **env: str) -> subprocess.Popen:
    command, said = [folder / "run_all.sh", *words], subprocess.PIPE
    return subprocess.Popen(
        command, cwd="/", env=ENV | env, text=True, stdout=said, stderr=subprocess.STDOUT
    )


def run(folder: Path, *words: str, **env: str) -> str:
    process = start(folder, *words, **env)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    return said


def until(
    happened: Callable[[], Any], seconds: float = 60, process: subprocess.Popen | None = None
) -> Any:
    """Wait for something, perhaps while a command runs, and return it."""
    end = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < end, "it takes too long"
        assert process is None or process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    return found


def kill(process: subprocess.Popen) -> None:
    """Kill a command and all its processes."""
    top = psutil.Process(process.pid)
    for one in [*top.children(recursive=True), top]:
        with suppress(psutil.NoSuchProcess):
            one.kill()


def refusal(folder: Path, *words: str) -> str:
    """The one line that `./run_all.sh` answers to what it can't do."""
    process = start(folder, *words)
    said = process.communicate()[0].strip()
    assert process.returncode == 2 and len(said.splitlines()) == 1, said
    return said


def counts(said: str) -> tuple[int, int]:
    """Jobs made and kept, as a run says at its end."""
    made, kept = re.search(r"(\d+) of \d+ jobs ran, (\d+) up to date", said).groups()
    return int(made), int(kept)


def made_once(base: Path, make: Callable[[Path], str]) -> tuple[Path, str]:
    """A folder that `make` fills, and what was said then: once for all workers of pytest-xdist,
    each of which has a folder in `base`, so none may change it."""
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / make.__name__.replace(
        "_", " "
    )
    told = folder.with_suffix(".txt")
    with FileLock(folder.with_suffix(".lock")):
        if not told.exists():
            told.write_text(make(folder))
    return folder, told.read_text()


def left_alone(folder: Path) -> str:
    """A small demo that nobody stops, on one core."""
    edit(copy_of_project(folder) / "params" / "demo.yaml", **SMALL)
    return run(folder, "--cores", "1", TZ="UTC", LC_ALL="C")


def archive_replayed(folder: Path) -> str:
    """The archive of the project with today's edits, unpacked, and the replay of the whole demo in
    it, without git. Where git is missing, a copy."""
    if not shutil.which("git"):
        return run(copy_of_project(folder), "replay")
    project, scratch = copy_of_project(folder.with_name("archived")), folder.with_name("unpacked")
    for words in (("init", "-q"), ("add", "--force", "."), ("commit", "-qm", "today")):
        subprocess.run([*GIT, *words], cwd=project, check=True)
    with tarfile.open(project / run(project, "archive").partition(":")[0]) as packed:
        packed.extractall(scratch, filter="data")
    (unpacked,) = scratch.iterdir()
    unpacked.rename(folder)
    return run(folder, "replay")


def tables(folder: Path, name: str = "demo") -> dict[str, bytes]:
    return {
        p.name: p.read_bytes()
        for p in sorted((folder / "figures" / name).iterdir())
        if p.suffix == ".tex"
    }


def played(project: Path, *words: str) -> str:
    """What tests/playing.py prints in a copy of the project, without the hub."""
    env = ENV | {
        "PYTHONPATH": str(project),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
    }
    command = [sys.executable, "tests/playing.py", *words]
    done = subprocess.run(command, cwd=project, env=env, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
