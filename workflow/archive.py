"""`./run_all.sh archive`: the project at its last commit as one file for a repository of papers' artifacts, with a list
of checksums. The same commit gives the same bytes: names in order, the commit's time, no owner.

Unpacked, with no git and no network but an environment or the wheels at hand, `./run_all.sh replay` makes every table
and figure from the shipped signals. Standard library only, and Python 3.8 is enough.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"


class ArchiveError(ValueError):
    """Why there can be no archive: one line."""


def git(root: Path, *words: str) -> str:
    """What git says; ArchiveError where it can't."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise ArchiveError("an archive is made of the last commit: it needs git, and a clone of the project") from None
    return done.stdout


def name(root: Path) -> str:
    """The project's name and version, as pyproject.toml says them."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    return "-".join(re.search(rf'^{key} = "(.+)"$', text, flags=re.M)[1] for key in ("name", "version"))  # type: ignore[index]


def files(root: Path) -> list[tuple[str, int]]:
    """The names and modes of the files of the last commit. ArchiveError where the folder holds them otherwise."""
    if changed := git(root, "status", "--porcelain").splitlines():
        raise ArchiveError(f"an archive is made of the last commit, and {len(changed)} files are not as it has them, "
                           f"the first {changed[0][3:]}: commit them, or set them aside")  # fmt: skip
    lines = git(root, "ls-files", "-s", "-z").split("\0")
    return sorted((line.split("\t", 1)[1], int(line[:6], 8) & 0o777) for line in lines if line)


def make(root: Path, folder: Path) -> Path:
    """The archive, whole or not at all."""
    stem, time = name(root), int(git(root, "log", "-1", "--format=%ct"))
    contents = {path: ((root / path).read_bytes(), mode) for path, mode in files(root)}
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {path}\n" for path, (content, _) in contents.items())
    contents[SUMS] = (sums.encode(), 0o644)
    folder.mkdir(parents=True, exist_ok=True)
    target, scratch = folder / f"{stem}.tar.gz", folder / f".{stem}.tar.gz"
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, (content, mode) in sorted(contents.items()):
            entry = tarfile.TarInfo(f"{stem}/{path}")
            entry.size, entry.mode, entry.mtime = len(content), mode, time
            archive.addfile(entry, io.BytesIO(content))
    scratch.write_bytes(gzip.compress(tar.getvalue(), mtime=0))
    return scratch.replace(target) or target


def main() -> int:
    try:
        path = make(ROOT, ROOT / "artifacts")
    except ArchiveError as problem:
        print(f"run_all.sh: {problem}", file=sys.stderr)
        return 2
    size, digest = path.stat().st_size / 1e6, hashlib.sha256(path.read_bytes()).hexdigest()
    print(f"{path.relative_to(ROOT)}: {size:.1f} MB, sha256 {digest}")
    print(f"unpacked: `sha256sum -c {SUMS}` checks it, ./run_all.sh replay makes its tables and figures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
