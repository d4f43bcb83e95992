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
import pytest
import yaml
from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent

# of a demo of one model on one dataset
SMALL = {
    "models": ["tiny-llama"], "datasets": ["demo-easy"], "limit": 12, "rows_per_shard": 4,
    "n_tuning_examples": 5, "dropout_passes": 3, "resamples": 100, "draws": 2,
    "calibration_sizes": [5], "ablation_limit": 2,
}  # fmt: skip
JOBS = 12
GIT = [
    "git", "-c", "user.name=someone", "-c", "user.email=someone@example.org",
    "-c", "commit.gpgsign=false",
]  # fmt: skip
SEARCHED = os.environ["PATH"]
ENV = os.environ | {"VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin:{SEARCHED}"}


def copy_of_project(to: Path) -> Path:
    """A folder of what a clone would hold, with today's edits: without what .gitignore names."""
    spec = pathspec.GitIgnoreSpec.from_lines((ROOT / ".gitignore").read_text().splitlines())

    def ignored(folder: str, names: list[str]) -> list[str]:
        left_out = []
        for name in names:
            path = Path(folder, name)
            place = str(path.relative_to(ROOT))
            if path.is_dir():
                place += "/"
            if name == ".git" or spec.match_file(place):
                left_out.append(name)
        return left_out

    return Path(shutil.copytree(ROOT, to, ignore=ignored, dirs_exist_ok=True))


def edit(path: Path, **values: object) -> None:
    """Set values in a parameter file."""
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | values))


def start(folder: Path, *words: str, **env: str) -> subprocess.Popen:
    return subprocess.Popen(
        [folder / "run_all.sh", *words],
        cwd="/",
        env=ENV | env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def run(folder: Path, *words: str, **env: str) -> str:
    process = start(folder, *words, **env)
    output = process.communicate()[0]
    assert process.returncode == 0, output
    return output


def until(
    happened: Callable[[], Any], seconds: float = 60, process: subprocess.Popen | None = None
) -> Any:
    """Wait for something, perhaps while a command runs, and return it."""
    end = time.monotonic() + seconds
    while True:
        result = happened()
        if result:
            return result
        assert time.monotonic() < end, "it takes too long"
        assert process is None or process.poll() is None, process.stdout.read()
        time.sleep(0.05)


def kill(process: subprocess.Popen) -> None:
    """Kill a command and all its processes."""
    top = psutil.Process(process.pid)
    for each in [*top.children(recursive=True), top]:
        with suppress(psutil.NoSuchProcess):
            each.kill()


def refusal(folder: Path, *words: str) -> str:
    """The one line that `./run_all.sh` answers to what it can't do."""
    process = start(folder, *words)
    output = process.communicate()[0].strip()
    assert process.returncode == 2, output
    assert len(output.splitlines()) == 1, output
    return output


def counts(output: str) -> tuple[int, int]:
    """Jobs made and kept, as a run says at its end."""
    ran, up_to_date = re.search(r"(\d+) of \d+ jobs ran, (\d+) up to date", output).groups()
    return int(ran), int(up_to_date)


def make_once(base: Path, make: Callable[[Path], str]) -> tuple[Path, str]:
    """A folder that `make` fills, and what was said then: once for all workers of pytest-xdist,
    each of which has a folder in `base`, so none may change it."""
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / make.__name__.replace("_", " ")
    output = folder.with_suffix(".txt")
    with FileLock(folder.with_suffix(".lock")):
        if not output.exists():
            output.write_text(make(folder))
    return folder, output.read_text()


def left_alone(folder: Path) -> str:
    """A small demo that nobody stops, on one core."""
    edit(copy_of_project(folder) / "params" / "demo.yaml", **SMALL)
    return run(folder, "--cores", "1", TZ="UTC", LC_ALL="C")


def archive_replayed(folder: Path) -> str:
    """The archive of the project with today's edits, unpacked, and the replay of the whole demo in
    it, without git. Where git is missing, a copy."""
    if not shutil.which("git"):
        return run(copy_of_project(folder), "replay")
    project = copy_of_project(folder.with_name("archived"))
    scratch = folder.with_name("unpacked")
    for words in (("init", "-q"), ("add", "--force", "."), ("commit", "-qm", "today")):
        subprocess.run([*GIT, *words], cwd=project, check=True)
    with tarfile.open(project / run(project, "archive").partition(":")[0]) as packed:
        packed.extractall(scratch, filter="data")
    (unpacked,) = scratch.iterdir()
    unpacked.rename(folder)
    return run(folder, "replay")


def papers_numbers(folder: Path) -> str:
    """The paper's own numbers as tables, for which neither models nor questions are needed."""
    copy_of_project(folder)
    shutil.rmtree(folder / "demo")
    shutil.rmtree(folder / "artifacts" / "shipped")
    return run(folder, "published")


def tables(folder: Path, name: str = "demo") -> dict[str, bytes]:
    paths = sorted((folder / "figures" / name).glob("*.tex"))
    return {path.name: path.read_bytes() for path in paths}


def play_in(project: Path, *words: str) -> str:
    """What tests/playing.py prints in a copy of the project, without the hub."""
    fixed = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    env = ENV | fixed | {"PYTHONPATH": str(project)}
    command = [sys.executable, "tests/playing.py", *words]
    done = subprocess.run(command, cwd=project, env=env, text=True, capture_output=True)
    if done.returncode != 0:
        pytest.fail(done.stdout[-2000:] + done.stderr[-4000:])
    return done.stdout
