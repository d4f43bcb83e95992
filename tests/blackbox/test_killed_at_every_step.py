"""A run that dies at any step on the disk, in whichever of its processes takes it: the same command ends with the same
bytes, makes nothing twice that was finished, and leaves nothing half written behind.

The steps are counted in the small project by a hook in the first module that every process imports. At the chosen one
the process stops where it stands, and all of the run's processes are killed.
"""

import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pandas as pd
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workflow"))

from small_project import Project, build  # noqa: E402

HOOK = """
import os, shutil, time
from pathlib import Path

if "CRASH_STEPS" in os.environ:
    steps, wanted = Path(os.environ["CRASH_STEPS"]), int(os.environ["CRASH_AT"])

    def counted(name, real):
        def step(*words, **more):
            if not any(f"/{folder}/" in str(Path(words[0]).absolute()) for folder in ("artifacts", "figures")):
                return real(*words, **more)
            with open(steps, "ab", buffering=0) as file:
                file.write(f"{name} {words[0]}".encode()[-299:].ljust(299) + b"\\n")
                number = file.tell() // 300
            if number == wanted:
                steps.with_name("here").write_text(f"{name} {words[0]}")
                time.sleep(600)
            return real(*words, **more)

        return step

    for name in ("replace", "rename", "unlink", "remove", "rmdir"):
        setattr(os, name, counted(name, getattr(os, name)))
    shutil.rmtree = counted("rmtree", shutil.rmtree)
"""
KINDS = "figures/**/*.tex", "figures/**/*.png", "artifacts/demo/*/*.parquet"  # what a user reads of a run
# leaves shards that wait for the record of their job, as a notebook that asks a model does
SHARDS = "os.makedirs(at := folder.parent / 'shards/1', exist_ok=True); (at / 'written').write_text(RowCache.record)"


def killed_at(project: Project, scratch: Path, number: int) -> str:
    """Starts a run and kills all of it at the step of this number. Which step that was; nothing where the run ended."""
    scratch.mkdir()
    process = project.start(CRASH_STEPS=str(scratch / "steps"), CRASH_AT=str(number))
    while process.poll() is None and not (scratch / "here").exists():
        time.sleep(0.01)
    top = psutil.Process(process.pid) if process.poll() is None else None
    for one in [*top.children(recursive=True), top] if top else []:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    said = process.communicate(timeout=60)[0]
    assert "Traceback" not in said, said
    return (scratch / "here").read_text() if (scratch / "here").exists() else ""


def results(root: Path) -> dict[str, bytes]:
    """What a user reads of a run: its frames, and what it exports."""
    paths = [path for kind in KINDS for path in root.glob(kind)]
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(paths)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The small project with the hook, what a run left alone leaves, and how many steps it takes."""
    folder = tmp_path_factory.mktemp("crash")
    project = Project(build(folder / "a project"))
    with open(project.root / "lib" / "__init__.py", "a") as file:
        file.write(HOOK)
    project.replace("notebooks/01_generate.ipynb", "print('shard 1/1: done')", SHARDS)
    shutil.copytree(project.root, folder / "untouched")
    assert killed_at(project, folder / "counted", 10**9) == ""
    return folder, results(project.root), (folder / "counted" / "steps").read_text().splitlines()


def finished(root: Path) -> dict[str, int]:
    """Outputs of the jobs whose records are there, with the time at which each was written."""
    demo, found = root / "artifacts" / "demo", {}
    for frames, job in (("generations", "01_generate__tiny__easy"), ("confidence", "02_single_pass")):
        if (demo / "jobs" / f"{job}.json").exists():
            found |= {str(path): path.stat().st_mtime_ns for path in (demo / frames).glob("*.parquet")}
    return found


def dies_at(whole, tmp_path, number):
    folder, expected, _ = whole
    shutil.copytree(folder / "untouched", tmp_path / "a project")
    project = Project(tmp_path / "a project")
    step = killed_at(project, tmp_path / "first", number).replace(f"{project.root}/", "")
    where = f"killed at step {number}: {step}"
    before = finished(project.root)
    code, said = project.run()
    assert code == 0, f"{where}\n{said}"
    found = results(project.root)
    changed = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    assert not changed, f"{where}: missing, or other than without a kill: {', '.join(changed)}"
    after = finished(project.root)
    assert before.items() <= after.items(), f"{where}: made twice"
    unfinished = ".*.partial", "*.partial", "written", ".*.json.[0-9]*", "shards/*", ".typeset-*"
    folders = project.root / "artifacts", project.root / "figures"
    left = [path.name for pattern in unfinished for folder in folders for path in folder.rglob(pattern)]
    assert not left, f"{where}: left {', '.join(left)}"


def test_a_sample_of_crash_points(whole, tmp_path):
    """A record is about to be there, a job has just begun, tables are about to be there."""
    for kind in (r"replace .*/jobs/\.01_", r"unlink .*/notebooks/02_", r"replace .*/figures/.*\.tex"):
        numbers = [number for number, step in enumerate(whole[2], 1) if re.search(kind, step)]
        assert numbers, f"a run takes no step like {kind}"
        dies_at(whole, tmp_path / str(numbers[-1]), numbers[-1])


def telling(steps: list[str]) -> list[int]:
    """Numbers of the last step of each kind: what is done to which file, of whatever job or figure."""
    kinds = pd.Series([re.sub(r"(tab|fig|\d\d)_\w+|-\d+-\w+|\d+", "", step.rstrip()) for step in steps])
    return list(kinds.index[~kinds.duplicated(keep="last")] + 1)


@pytest.mark.slow
def test_a_crash_point_of_every_kind(whole, tmp_path):
    def at(number):
        dies_at(whole, tmp_path / str(number), number)
        shutil.rmtree(tmp_path / str(number))

    with ThreadPoolExecutor(2) as pool:  # a run that starts waits for the disk most of the time
        list(pool.map(at, telling(whole[2])))
