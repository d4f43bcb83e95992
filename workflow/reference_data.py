"""The shipped signals in artifacts/shipped/<run>/: which datasets they cover, and whether they are undamaged.

A replay builds every table from them without a model, and a larger run can reuse them (shipped_rows.py). Every run's
list of checksums is in git; all files are checked before any is read. `cd artifacts/shipped/demo && sha256sum -c
SHA256SUMS` does the same.
"""

from collections.abc import Callable
from pathlib import Path

from lib.files import sha256
from lib.paths import ROOT, UserError
from workflow.pipeline import SHIPPED
from workflow.rules import shippable

LIST = "SHA256SUMS"


def shipped_datasets(profile: str, models: list[str], datasets: list[str], say: Callable[[str], None]) -> list[str]:
    """Return the datasets with shipped signals of all models; print the others. Raise UserError if there are none."""
    paths = [f"{SHIPPED}/{profile}/{path}" for path in shippable(optional=False)]
    there = [
        dataset
        for dataset in datasets
        if all((ROOT / path.format(model=model, dataset=dataset)).exists() for path in paths for model in models)
    ]
    if not there:
        raise UserError(
            f"no signals of {', '.join(models)} are shipped in {SHIPPED}/{profile}/: "
            f"./run_all.sh {profile} computes them"
        )
    if absent := [dataset for dataset in datasets if dataset not in there]:
        say(f"{', '.join(absent)}: not shipped yet, left out")
    return there


def file_checksums(folder: Path) -> dict[str, str]:
    """Return the checksum of each file below a folder by its relative path, without the list itself."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / LIST]
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def check_shipped_files(run: str) -> None:
    """Raise UserError for a shipped file that differs from the list. A folder without a list (a user's) is accepted."""
    where = f"{SHIPPED}/{run}"
    folder = ROOT / where
    if not (folder / LIST).is_file():
        return
    lines = (folder / LIST).read_text(encoding="utf-8", errors="replace").splitlines()
    listed = {name: value for value, _, name in (line.partition("  ") for line in lines)}
    there = file_checksums(folder)
    if wrong := sorted(name for name, value in listed.items() if there.get(name) != value):
        raise UserError(f"{where}/{wrong[0]} is damaged or missing: `git checkout -- {where}` restores it")
    if added := sorted(there.keys() - listed.keys()):
        raise UserError(f"{where}/{added[0]} is not in {where}/{LIST}: move it away, or add its line")
