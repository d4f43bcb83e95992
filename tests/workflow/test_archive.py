"""The archive: the last commit as one file, the same bytes every time. What was unpacked from it is
replayed by the tests that ask for `replayed` (tests/conftest.py)."""

import hashlib
import os
import shutil
import subprocess

import pytest
from clone import GIT, ROOT


def git(folder, *words):
    subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True)


def archive(root):
    """Exit code, what is said, and what is said of a mistake, of `./run_all.sh archive`."""
    done = subprocess.run([root / "run_all.sh", "archive"], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def committed(tmp_path):
    """The command, in a repository of a few files."""
    root = tmp_path / "a project"
    for name in (
        "run_all.sh",
        "workflow/cli.py",
        "params/demo.yaml",
        "requirements.lock",
        ".gitignore",
        "pyproject.toml",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "ünlike.bin").write_bytes(bytes(range(256)))
    (root / "link").symlink_to("ünlike.bin")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def test_one_command_makes_one_file_and_says_its_name_and_sha256(committed):
    code, said, wrong = archive(committed)
    (made,) = (committed / "artifacts").iterdir()
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    assert (code, wrong) == (0, "") and said.count("\n") == 1
    assert said.startswith(f"artifacts/calibrated-confidence-1.0.0.tar.gz: sha256 {digest};")


def test_the_same_commit_gives_the_same_bytes(committed, tmp_path):
    says = archive(committed)
    for path in committed.rglob("*"):
        if ".git" not in path.parts and path.is_file():
            path.touch()
    git(committed, "config", "tar.umask", "0077")
    os.chmod(committed / "pyproject.toml", 0o600)
    assert archive(committed) == says and says[0] == 0


def test_what_is_not_committed_is_refused(committed):
    (committed / "pyproject.toml").write_text("")
    code, said, wrong = archive(committed)
    assert (code, said) == (2, "") and wrong.count("\n") == 1 and "commit what 'git status' lists" in wrong
    assert not (committed / "artifacts").exists()
