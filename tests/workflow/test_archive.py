"""The archive: the last commit as one file, the same bytes every time. What was unpacked from it is
replayed by the tests that ask for `replayed` (tests/conftest.py)."""

import hashlib
import os
import shutil
import subprocess

import clone
import pytest

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="an archive is made by git, which is not installed")
FILES = ("run_all.sh", "workflow/cli.py", "workflow/verbs.json", "lib/paths.py", "params/demo.yaml", "requirements.lock",
         ".gitignore", "pyproject.toml")  # fmt: skip


def git(folder, *words):
    subprocess.run([*clone.GIT, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def committed(tmp_path):
    """The command, in a repository of a few files."""
    root = tmp_path / "a project"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(clone.ROOT / name, root / name)
    (root / "ünlike.bin").write_bytes(bytes(range(256)))
    (root / "link").symlink_to("ünlike.bin")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def test_one_command_makes_one_file_and_from_the_same_commit_the_same_bytes(committed):
    said = clone.run(committed, "archive")
    (made,) = (committed / "artifacts").iterdir()
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    assert said.startswith(f"artifacts/calibrated-confidence-1.1.0.tar.gz: sha256 {digest};") and said.count("\n") == 1
    git(committed, "config", "tar.umask", "0077")
    os.chmod(committed / "pyproject.toml", 0o600)
    assert clone.run(committed, "archive") == said
    (committed / "pyproject.toml").write_text("")
    assert "commit what 'git status' lists" in clone.refusal(committed, "archive")
