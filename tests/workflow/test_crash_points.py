"""A kill between any two steps on the disk, while results are moved aside or back: no finished job's are lost."""

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from test_fresh import finish, made, numbers, run_of, walk  # noqa: F401

from workflow import fresh

STEPS = ("link", "replace", "rename", "unlink", "rmdir")  # what mkdir does, the next start does not see
FOLDERS = ("artifacts", "figures")


class Killed(BaseException):
    pass


@contextmanager
def killed(monkeypatch, at: int):
    """The step of this number and all that follow are not done; what is being written is half there. Without a step of
    this number all are done. Yields the names of those that were."""
    done: list[str] = []

    def step(name, real, half=None):
        def do(*words, **more):
            done.append(name)
            if len(done) == at and half:
                half(*words, **more)
            if len(done) >= at:
                raise Killed
            return real(*words, **more)

        return do

    write = Path.write_text
    with monkeypatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, step(name, getattr(os, name)))
        half = lambda path, text, **more: write(path, text[: len(text) // 2], **more)  # noqa: E731
        patch.setattr(Path, "write_text", step("write", write, half))
        with suppress(Killed):
            yield done


def kills(root, monkeypatch, act, first=1, every=1):
    """`act`, killed at each of its steps, each time in the project as it is now; and after some of these what goes on,
    killed too."""
    kept = root.parent / "kept"
    for name in FOLDERS:
        shutil.copytree(root / name, kept / name)
    with killed(monkeypatch, 10**9) as done:
        act()
    assert done.count("link") + done.count("write") > 0
    for at in range(first, len(done) + 1, every):
        for name in FOLDERS:
            shutil.rmtree(root / name)
            shutil.copytree(kept / name, root / name)
        with killed(monkeypatch, at):
            act()
        yield f"killed at step {at} of {len(done)}"
        if at % 7 == 0:
            with killed(monkeypatch, 3):
                walk(run_of())
            yield f"killed at step {at} of {len(done)}, then going on at step 3"


def left(root) -> dict[str, str]:
    """What the jobs of the run have left, by file."""
    paths = [path for job in run_of().jobs for path in fresh.read_record(root / job.record, job)["outputs"]]
    return {path: (root / path).read_text() for path in paths}


@pytest.fixture
def both(made):  # noqa: F811
    """The project with results of seed 1, those of seed 0 in stale; and what either left."""
    first = left(made.root)
    finish(run_of(seed=1), walk(run_of(seed=1)))
    return made.root, first, left(made.root)


@pytest.mark.parametrize("number", [1, *(pytest.param(number, marks=pytest.mark.slow) for number in range(2, 6))])
def test_bringing_back(both, monkeypatch, number):
    """At every fifth step, which are many."""
    root, first, second = both
    for when in kills(root, monkeypatch, lambda: walk(run_of()), number, every=5):
        assert numbers(run_of()) == "" and left(root) == first, when
        assert numbers(run_of(seed=1)) == "" and left(root) == second, when


def test_moving_aside_when_the_turn_has_come(made, monkeypatch):  # noqa: F811
    """In the job itself, which waited for what it reads: it may be tried again at once."""
    before, (first, second, *_) = left(made.root), run_of(seed=1).jobs
    finish(run_of(seed=1), [verdict for verdict in walk(run_of(seed=1)) if verdict.job == first])
    for when in kills(made.root, monkeypatch, lambda: fresh.decide_at_start(second)):
        if "going on" not in when:
            assert fresh.decide_at_start(second) == "" and not (made.root / second.outputs[0]).exists(), when
            finish(run_of(seed=1), [fresh.Verdict(second, "new")])
        assert numbers(run_of()) == "" and left(made.root) == before, when


def test_remaking(made, monkeypatch):  # noqa: F811
    """Before it is written down nothing has changed; after that it is gone on with, and the old result stays."""
    before, first = left(made.root), run_of().jobs[0]

    def act() -> None:
        fresh.decide_at_start(walk(run_of(), ["01"])[0].job)

    for when in kills(made.root, monkeypatch, act):
        begun = (made.root / "artifacts/demo/forced.json").exists()
        assert numbers(run_of()) == ("01 02 08 report" if begun else ""), when
        assert (made.root / first.record).exists() or begun, when
        for old in made.root.rglob(f"*/demo/{first.outputs[0].split('/', 2)[2]}"):
            assert old.read_text() == before[first.outputs[0]], when
