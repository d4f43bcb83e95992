"""The shipped signals in artifacts/shipped/<run>/.

A replay builds every table from them without a model. Every run's list of checksums is in git; all files are checked
before any is read. `cd artifacts/shipped/demo && sha256sum -c SHA256SUMS` does the same.
"""

from collections.abc import Callable

from lib.files import sha256
from lib.paths import ROOT, UserError
from workflow.pipeline import SHIPPED
from workflow.rules import NOTEBOOKS

LIST = "SHA256SUMS"


def shipped_datasets(profile: str, models: list[str], datasets: list[str], say: Callable[[str], None]) -> list[str]:
    """Return the datasets with shipped signals of all models; print the others. Raise UserError if there are none."""
    where = f"{SHIPPED}/{profile}"
    paths = [path for row in NOTEBOOKS if row.runs_model and not row.optional for path in row.writes]
    there = [
        dataset
        for dataset in datasets
        if all(
            (ROOT / where / path.format(model=model, dataset=dataset)).exists() for path in paths for model in models
        )
    ]
    if not there:
        names = ", ".join(models)
        raise UserError(f"no signals of {names} are shipped in {where}/: ./run_all.sh {profile} computes them")
    if absent := [dataset for dataset in datasets if dataset not in there]:
        say(f"{', '.join(absent)}: not shipped yet, left out")
    return there


def check_shipped_files(run: str) -> None:
    """Raise UserError for a shipped file that differs from the list. A folder without a list (a user's) is accepted."""
    where = f"{SHIPPED}/{run}"
    folder = ROOT / where
    if not (folder / LIST).is_file():
        return
    listed = (folder / LIST).read_text(encoding="utf-8", errors="replace").splitlines()
    files = [path for path in folder.rglob("*") if path.is_file() and path != folder / LIST]
    there = [f"{sha256(path)}  {path.relative_to(folder).as_posix()}" for path in files]
    if differing := sorted(line.partition("  ")[2] for line in {*listed} ^ {*there}):
        remedy = f"`git checkout -- {where}` restores what is shipped; move a file of your own away"
        raise UserError(f"{where}/{differing[0]} is not as {LIST} lists it: {remedy}")
