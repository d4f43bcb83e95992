"""What is wrong with a file, as the command says it: exit code 2, one short line, on any terminal."""

import json
import os
import subprocess
import sys

import pytest

from lib import params
from lib.paths import ROOT
from workflow import check, cost, hub, run
from workflow.pipeline import Run


@pytest.fixture(autouse=True)
def no_clock(monkeypatch):
    monkeypatch.setattr(cost, "measure_device", lambda threads: cost.Device(False, "CPU", 8e9, 1e10, 1e11, 4))


@pytest.mark.parametrize(("make", "said"), [
    (lambda path: path.mkdir(), "Is a directory"),
    (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
])  # fmt: skip
def test_a_profile_that_cannot_be_read(inside, capsys, make, said):
    (inside.root / "params/demo.yaml").unlink()
    make(inside.root / "params/demo.yaml")
    assert run.main(["demo"]) == 2
    assert capsys.readouterr() == ("", f"run_all.sh: params/demo.yaml can't be read: {said}\n")


SOURCES = ["~nosuchuser/x", '"a\\0b"', "x" * 300, "x" * 300 + "/y", "weights/loop", "5", "/"]


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_is_no_folder(inside, capsys, source):
    (inside.root / "weights/loop").symlink_to("loop")
    (inside.root / "params/models/tiny.yaml").write_text(f"label: Tiny\nsource: {source}\n")
    assert run.main(["check"]) == 2
    text = capsys.readouterr()
    assert "Traceback" not in text.out + text.err and all(len(line) <= 300 for line in text.out.splitlines())


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"a/b": 5}', "\x00"])
def test_revisions_that_cannot_be_read_are_resolved_again(inside, monkeypatch, text):
    (inside.root / "artifacts/demo").mkdir(parents=True)
    (inside.root / "artifacts/demo/revisions.json").write_text(text)
    monkeypatch.setattr(hub, "resolve", lambda kind, source, revision=None: "c0ffee")
    (inside.root / "params/models/tiny.yaml").write_text("label: Tiny\nsource: a/b\n")
    hub.pin(Run("demo", params.load_profile("demo").model_dump(), 1, 0))
    assert params.REVISIONS == {"a/b": "c0ffee"}
    assert json.loads((inside.root / "artifacts/demo/revisions.json").read_text())["a/b"] == "c0ffee"


def test_a_terminal_of_ascii():
    """Letters that it lacks are spelled out."""
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    for code, said in (
        ("import sys; from workflow import run; sys.exit(run.main(['caf\\u00e9']))", rb"caf\xe9"),
        ("from workflow import run; run.main(['x']); run.say('caf\\u00e9 \\u2013')", rb"caf\xe9 \u2013"),
        ("import sys; from workflow import cli; cli.main(['x']); print('\\u2013')", rb"\u2013"),
    ):
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True)
        assert said in done.stdout + done.stderr and b"UnicodeEncodeError" not in done.stderr


def test_whatever_check_meets_is_a_line(inside, capsys, monkeypatch):
    def about(*given):
        yield "ok", "begun"
        raise ZeroDivisionError("nothing to\ndivide")

    monkeypatch.setattr(check, "about_dataset", about)
    assert run.main(["check"]) == 2
    assert "wrong  dataset easy: can't be looked at (ZeroDivisionError: nothing to)" in capsys.readouterr().out
