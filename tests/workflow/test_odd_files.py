"""What is wrong with a file, as the command says it: exit code 2, one short line, on any terminal."""

import json
import os
import subprocess
import sys

import pytest

from lib import params
from lib.paths import ROOT
from workflow import check, hub, run
from workflow.pipeline import Run

DEMO = "models: [tiny]\ndatasets: [easy]\n"


def complaint(capsys):
    """The one line that a refused command says."""
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert said.out == "" and line.startswith("run_all.sh: ") and len(line) <= 300 and line.isprintable()
    return line


def folder(path):
    path.mkdir()


def dangling(path):
    path.symlink_to("nowhere")


@pytest.mark.parametrize(("make", "said"), [
    (folder, "params/demo.yaml can't be read: Is a directory"),
    (dangling, "params/demo.yaml can't be read: No such file or directory"),
    (lambda path: path.write_text(f"{DEMO}bins: yes\n"), "params/demo.yaml: 'bins' is True"),
    (lambda path: path.write_text(f"{DEMO}bins: 5\nbins: 6\n"), "demo.yaml is not YAML, line 4: the key 'bins' again"),
    (lambda path: path.write_text("models: [tiny, tiny]\ndatasets: [easy]\n"), "'models' holds 'tiny' twice"),
    (lambda path: path.write_text(f"{DEMO}{'x' * 400}: 1\n"), "there is no parameter 'xxx"),
])  # fmt: skip
def test_a_profile_that_cannot_be_read(inside, capsys, make, said):
    (inside.root / "params/demo.yaml").unlink()
    make(inside.root / "params/demo.yaml")
    assert run.main(["demo"]) == 2
    assert said in complaint(capsys)


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
    """Letters that it lacks are spelt out."""
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
