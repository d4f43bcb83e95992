"""The archive: the last commit as one file, the same bytes every time, which replays without git."""

import subprocess
import sys
import tarfile

import pytest
from small_project import ROOT

from workflow import archive

NAMED = ["-c", "user.name=someone", "-c", "user.email=someone@example.org", "-c", "commit.gpgsign=false"]


def git(folder, *words):
    subprocess.run(["git", "-C", str(folder), *NAMED, *words], check=True, capture_output=True)


@pytest.fixture
def committed(tmp_path):
    """A small project of three files in a repository of its own."""
    root = tmp_path / "a project"
    (root / "deep").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "small"\nversion = "2.1"\n')
    (root / "deep" / "ünlike.bin").write_bytes(bytes(range(256)))
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def test_the_same_commit_gives_the_same_bytes(committed, tmp_path):
    first = archive.make(committed, tmp_path / "one").read_bytes()
    for path in committed.rglob("*"):
        if ".git" not in path.parts and path.is_file():
            path.touch()
    second = archive.make(committed, tmp_path / "two").read_bytes()
    assert first == second
    git(committed, "commit", "-q", "--allow-empty", "-m", "second", "--date", "2001-01-01T00:00:00")
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["small-2.1.tar.gz"]


def test_it_holds_every_file_with_its_mode_and_a_list_that_checks_it(committed, tmp_path):
    with tarfile.open(archive.make(committed, tmp_path)) as packed:
        members = {member.name: member for member in packed}
        packed.extractall(tmp_path, filter="data")
    assert list(members) == sorted(members)
    names = ("SHA256SUMS", "deep/ünlike.bin", "pyproject.toml", "run.sh")
    assert set(members) == {f"small-2.1/{name}" for name in names}
    assert members["small-2.1/run.sh"].mode == 0o755 and {m.uid for m in members.values()} == {0}
    assert {member.uname for member in members.values()} == {""}
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path / "small-2.1", capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count(": OK") == 3


def test_what_is_not_committed_is_refused(committed, tmp_path):
    (committed / "run.sh").write_text("#!/bin/sh\nrm x\n")
    with pytest.raises(archive.ArchiveError, match="1 files are not as it has them, the first run.sh"):
        archive.make(committed, tmp_path / "one")
    assert not (tmp_path / "one").exists()


def test_without_git_it_says_so(tmp_path):
    (tmp_path / "pyproject.toml").write_text('name = "small"\nversion = "1"\n')
    with pytest.raises(archive.ArchiveError, match="needs git, and a clone"):
        archive.make(tmp_path, tmp_path)


@pytest.mark.slow
def test_the_projects_own_replays_without_git(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    with tarfile.open(archive.make(clone, tmp_path)) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    folder = tmp_path / "unpacked" / archive.name(clone)
    done = subprocess.run([folder / "run_all.sh", "replay"], capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "VIRTUAL_ENV": sys.prefix})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list((folder / "figures" / "replay").glob("tab_*.tex"))) >= 12
