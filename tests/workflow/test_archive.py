"""The archive: the last commit as one file, the same bytes every time. What was unpacked from it is
replayed by the tests that ask for `replayed` (tests/conftest.py)."""

import hashlib
import os
import shutil
import subprocess

import clone
import pytest

FILES = (
    "run_all.sh",
    "workflow/cli.py",
    "lib/__init__.py",
    "lib/errors.py",
    "lib/paths.py",
    "lib/run_names.py",
    "params/demo.yaml",
    ".gitignore",
    "requirements.lock",
    "pyproject.toml",
)


@pytest.mark.skipif(
    not shutil.which("git"), reason="an archive is made by git, which is not installed"
)
def test_one_command_makes_one_file_and_from_the_same_commit_the_same_bytes(tmp_path):
    root = tmp_path / "a project"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(clone.ROOT / name, root / name)
    (root / "ünlike.bin").write_bytes(bytes(range(256)))
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*clone.GIT, *words], cwd=root, check=True)
    output = clone.run(root, "archive")
    (archive,) = (root / "artifacts").iterdir()
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert output.startswith(f"artifacts/calibrated-confidence-1.2.0.tar.gz: sha256 {digest};")
    assert output.count("\n") == 1
    subprocess.run(["git", "config", "tar.umask", "0077"], cwd=root, check=True)
    os.chmod(root / "pyproject.toml", 0o600)
    assert clone.run(root, "archive") == output
    (root / "pyproject.toml").write_text("")
    assert "commit what 'git status' lists" in clone.refusal(root, "archive")
