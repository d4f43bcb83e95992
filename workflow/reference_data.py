"""Signals that are part of the project, in artifacts/shipped/<run>/: `python -m workflow.reference_data RUN [PAIR...]`.

Copies what the models left of each finished pair (<model>__<dataset>), from where a replay makes every table without a
model, and a larger run goes on. One list of checksums a run is in git, against which all files are held before any is
read; `cd artifacts/shipped/demo && sha256sum -c SHA256SUMS` says the same.
"""

import shutil
import sys
from pathlib import Path

from lib.paths import ARTIFACTS, ROOT, UserError, nearest
from workflow.fingerprint import file_sha256
from workflow.pipeline import SHIPPED, shippable

LIST = "SHA256SUMS"
REQUIRED = [path.split("/")[0] for path in shippable(may_lack=False)]  # without these there is nothing to replay
OPTIONAL = [path.split("/")[0] for path in shippable(may_lack=True)]
MOST = 25e6  # bytes that a run's signals may take in the repository


def main(words: list[str]) -> int:
    try:
        for pair in finished_pairs(*words):
            copy_pair(words[0], pair)
    except UserError as problem:
        print(f"reference_data: {problem}", file=sys.stderr)
        return 2
    return 0


def finished_pairs(run: str = "", *wanted: str) -> list[str]:
    """The pairs of a run that are finished as far as a replay needs them. Raises UserError where none is."""
    finished = [path.stem for path in sorted((ARTIFACTS / run / REQUIRED[-1]).glob("*.parquet"))]
    unknown = set(wanted) - set(finished)
    if not run or not finished or unknown:
        what = f"pair '{min(unknown)}'" if unknown else "pair"
        raise UserError(f"run '{run}' has no finished {what}; {nearest(min(unknown, default=''), finished)}")
    return list(wanted) or finished


def copy_pair(run: str, pair: str) -> None:
    """Copy a pair's frames, if they are whole, and say so. Raises UserError for texts of others' questions, and for
    more bytes than the repository should hold."""
    from lib import store  # slow to load, and of no use to a run, which checks the list alone

    frames = [ARTIFACTS / run / kind / f"{pair}.parquet" for kind in REQUIRED + OPTIONAL]
    frames = [path for path in frames if path.parent.name in REQUIRED or path.exists()]
    generations = store.read_frame(frames[0])
    if generations.text.notna().any() and not (ROOT / "demo" / "questions" / f"{pair.split('__')[1]}.jsonl").exists():
        where = store.relative_path(frames[0])
        raise UserError(f"{where} holds questions that are not ours: write `save_texts: false`")
    target = store.shipped_folder(run)
    for path in frames:
        store.read_frame(path)  # whole, and as described
        if path.parent.name not in ("generations", "in_situ"):
            store.check_made_from(path, run, [pair])
        (target / path.parent.name).mkdir(parents=True, exist_ok=True)
        for file in (path, path.with_suffix(".json")):
            shutil.copyfile(file, target / path.parent.name / file.name)
    write_checksums(target)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > MOST:
        raise UserError(f"{store.relative_path(target)} would hold {size / 1e6:.0f} MB, more than {MOST / 1e6:.0f}")
    kinds = ", ".join(path.parent.name for path in frames)
    print(f"{pair}: {len(generations)} rows ({kinds}); {size / 1e6:.1f} MB of {run} in all")


def file_checksums(folder: Path) -> dict[str, str]:
    """Checksum of each file below a folder, by its path from there; the list itself is left out."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / LIST]
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in files}


def write_checksums(folder: Path) -> None:
    lines = [f"{value}  {name}\n" for name, value in file_checksums(folder).items()]
    (folder / LIST).write_text("".join(lines), encoding="utf-8")


def check_files(run: str) -> None:
    """Raises UserError naming a file of the run's shipped signals that is not as the list says, and how to mend it. A
    folder without a list is taken as it is: signals of one's own."""
    folder = ROOT / SHIPPED / run
    if not (folder / LIST).is_file():
        return
    lines = (folder / LIST).read_text(encoding="utf-8", errors="replace").splitlines()
    listed = {name: value for value, _, name in (line.partition("  ") for line in lines)}
    there = file_checksums(folder)
    wrong = sorted(name for name, value in listed.items() if there.get(name) != value)
    if wrong:
        what = "is not the file that was shipped" if wrong[0] in there else "was shipped and is missing"
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise UserError(f"{SHIPPED}/{run}/{wrong[0]} {what}{more}: `git checkout -- {SHIPPED}/{run}` brings it back")
    if added := sorted(there.keys() - listed.keys()):
        raise UserError(f"{SHIPPED}/{run}/{added[0]} is not in {SHIPPED}/{run}/{LIST}: move it away, or list it by "
                        f"`python -m workflow.reference_data {run}`")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
