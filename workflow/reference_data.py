"""Copy signals into artifacts/shipped/<run>/, part of the project: `python -m workflow.reference_data RUN [PAIR...]`.

It copies the model outputs of each finished pair (<model>__<dataset>). A replay builds every table from them without a
model, and a larger run can reuse them (shipped_rows.py). Every run's list of checksums is in git; all files are checked
before any is read. `cd artifacts/shipped/demo && sha256sum -c SHA256SUMS` does the same.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from lib.files import sha256
from lib.paths import ARTIFACTS, ROOT, UserError, nearest, relative_path
from workflow.pipeline import SHIPPED
from workflow.rules import shippable

LIST = "SHA256SUMS"
REQUIRED = [path.split("/")[0] for path in shippable(may_lack=False)]  # a replay needs these
OPTIONAL = [path.split("/")[0] for path in shippable(may_lack=True)]
MOST = 25e6  # largest size of a run's signals in the repository, in bytes


def main(words: list[str]) -> int:
    try:
        for pair in finished_pairs(*words):
            copy_pair(words[0], pair)
    except UserError as problem:
        print(f"reference_data: {problem}", file=sys.stderr)
        return 2
    return 0


def shipped_datasets(profile: str, models: list[str], datasets: list[str], say: Callable[[str], None]) -> list[str]:
    """Return the datasets with shipped signals of all models; print the others. Raise UserError if there are none."""
    paths = [f"{SHIPPED}/{profile}/{path}" for path in shippable(may_lack=False)]
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


def finished_pairs(run: str = "", *wanted: str) -> list[str]:
    """Return a run's pairs with all frames that a replay needs. Raise UserError if there are none."""
    finished = [path.stem for path in sorted((ARTIFACTS / run / REQUIRED[-1]).glob("*.parquet"))]
    unknown = set(wanted) - set(finished)
    if not run or not finished or unknown:
        what = f"pair '{min(unknown)}'" if unknown else "pair"
        raise UserError(f"run '{run}' has no finished {what}; {nearest(min(unknown, default=''), finished)}")
    return list(wanted) or finished


def copy_pair(run: str, pair: str) -> None:
    """Check and copy a pair's frames. Raise UserError for questions of other authors, or above MOST bytes."""
    from lib import store  # slow to import; a run only checks the list and does not need it

    frames = [ARTIFACTS / run / kind / f"{pair}.parquet" for kind in REQUIRED + OPTIONAL]
    frames = [path for path in frames if path.parent.name in REQUIRED or path.exists()]
    generations = store.read_frame(frames[0])
    if generations.text.notna().any() and not (ROOT / "demo" / "questions" / f"{pair.split('__')[1]}.jsonl").exists():
        where = relative_path(frames[0])
        raise UserError(f"{where} contains questions of other authors: write `save_texts: false`")
    target = ROOT / SHIPPED / run
    for path in frames:
        store.read_frame(path)  # checks the file against its manifest
        if path.parent.name not in ("generations", "in_situ"):
            store.check_made_from(path, run, [pair])
        (target / path.parent.name).mkdir(parents=True, exist_ok=True)
        for file in (path, path.with_suffix(".json")):
            shutil.copyfile(file, target / path.parent.name / file.name)
    write_checksums(target)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > MOST:
        raise UserError(f"{relative_path(target)} would take {size / 1e6:.0f} MB, more than {MOST / 1e6:.0f}")
    kinds = ", ".join(path.parent.name for path in frames)
    print(f"{pair}: {len(generations)} rows ({kinds}); {size / 1e6:.1f} MB of {run} in all")


def file_checksums(folder: Path) -> dict[str, str]:
    """Return the checksum of each file below a folder by its relative path, without the list itself."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / LIST]
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def write_checksums(folder: Path) -> None:
    lines = [f"{value}  {name}\n" for name, value in file_checksums(folder).items()]
    (folder / LIST).write_text("".join(lines), encoding="utf-8")


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
        remedy = f"move it away, or add it with `python -m workflow.reference_data {run}`"
        raise UserError(f"{where}/{added[0]} is not in {where}/{LIST}: {remedy}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
