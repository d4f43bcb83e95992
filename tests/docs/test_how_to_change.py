"""docs/how-to-change.md names files and functions that exist, and its command plays a job."""

import re
import subprocess

import clone
import pytest

from lib.paths import ROOT

TEXT = (ROOT / "docs" / "how-to-change.md").read_text(encoding="utf-8")


def test_its_files_exist():
    files = re.findall(r"`((?:lib|workflow|tests|docs|notebooks|params|artifacts)/[\w./]+)`", TEXT)
    assert len(files) > 20
    for name in files:
        assert (ROOT / name).exists() or name == "notebooks/NN_name.ipynb", name


def test_its_names_are_defined_in_the_file_that_follows():
    """Where a sentence says `name` in `file`, or `name` ... in `file`."""
    pairs = re.findall(r"`(\w+)`[^`.]* in\s+`((?:lib|workflow|tests)/[\w./]+\.py)`", TEXT)
    assert len(pairs) > 8
    for name, file in pairs:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^\s*(def|class) {name}\b|^{name}\b.*=", source, re.M), (name, file)


@pytest.mark.slow
def test_its_command_plays_a_job(tmp_path):
    (command,) = re.findall(r"```\n(cd notebooks\n.*?)```", TEXT, re.S)
    folder = clone.copy_of_project(tmp_path / "copy")
    done = subprocess.run(["bash", "-ec", command], cwd=folder, env=clone.ENV, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert list(folder.glob("artifacts/replay/*/*.parquet"))
