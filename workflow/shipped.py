"""Signals that are part of the project: one list of checksums a run, in git, against which all of them are held before
any is read. `cd artifacts/shipped/demo && sha256sum -c SHA256SUMS` says the same.
"""

from pathlib import Path

from lib.paths import ROOT, UserError
from workflow.checksums import of_bytes
from workflow.pipeline import SHIPPED

LIST = "SHA256SUMS"


def sums(folder: Path) -> dict[str, str]:
    """Checksum of each file below a folder, by its path from there; the list itself is left out."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / LIST]
    return {path.relative_to(folder).as_posix(): of_bytes(path) for path in files}


def write_list(folder: Path) -> None:
    lines = [f"{value}  {name}\n" for name, value in sums(folder).items()]
    (folder / LIST).write_text("".join(lines), encoding="utf-8")


def verify(run: str) -> None:
    """Raises UserError naming a file of the run's shipped signals that is not as the list says, and how to mend it. A
    folder without a list is taken as it is: signals of one's own."""
    folder = ROOT / SHIPPED / run
    if not (folder / LIST).is_file():
        return
    lines = (folder / LIST).read_text(encoding="utf-8", errors="replace").splitlines()
    listed = {name: value for value, _, name in (line.partition("  ") for line in lines)}
    there = sums(folder)
    wrong = sorted(name for name, value in listed.items() if there.get(name) != value)
    if wrong:
        what = "is not the file that was shipped" if wrong[0] in there else "was shipped and is missing"
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise UserError(f"{SHIPPED}/{run}/{wrong[0]} {what}{more}: `git checkout -- {SHIPPED}/{run}` brings it back")
    if added := sorted(there.keys() - listed.keys()):
        raise UserError(f"{SHIPPED}/{run}/{added[0]} is not in {SHIPPED}/{run}/{LIST}: move it away, or list it by "
                        f"`python -m workflow.ship {run}`")  # fmt: skip
