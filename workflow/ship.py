"""Make the signals of a run part of the project: `python -m workflow.ship RUN [PAIR...]`.

Copies what the models left of each finished pair (<model>__<dataset>) to artifacts/shipped/<run>/, from where a replay
makes every table without a model, and a larger run goes on. A pair is shipped as soon as it is finished, and committed
by itself; what is longer in coming (dropout, ablation) follows later.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from lib import store
from lib.paths import ARTIFACTS, ROOT, UserError, nearest
from workflow.pipeline import shippable
from workflow.shipped import write_list

FIRST = [path.split("/")[0] for path in shippable(may_lack=False)]  # without these there is nothing to replay
LATER = [path.split("/")[0] for path in shippable(may_lack=True)]
MOST = 25e6  # bytes that a run's signals may take in the repository


def main(words: list[str]) -> int:
    try:
        for pair in pairs(*words):
            ship(words[0], pair)
    except (UserError, subprocess.CalledProcessError) as problem:
        print(f"ship: {problem}", file=sys.stderr)
        return 2
    return 0


def pairs(run: str = "", *wanted: str) -> list[str]:
    """The pairs of a run that are finished as far as a replay needs them. Raises UserError where none is."""
    finished = [path.stem for path in sorted((ARTIFACTS / run / FIRST[-1]).glob("*.parquet"))]
    unknown = set(wanted) - set(finished)
    if not run or not finished or unknown:
        what = f"pair '{min(unknown)}'" if unknown else "pair"
        raise UserError(f"run '{run}' has no finished {what}; {nearest(min(unknown, default=''), finished)}")
    return list(wanted) or finished


def ship(run: str, pair: str) -> None:
    """Copy a pair's frames, if they are whole, say so, and commit them. Raises UserError for texts of others'
    questions, and for more bytes than the repository should hold."""
    frames = [ARTIFACTS / run / kind / f"{pair}.parquet" for kind in FIRST + LATER]
    frames = [path for path in frames if path.parent.name in FIRST or path.exists()]
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
    write_list(target)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > MOST:
        raise UserError(f"{store.relative_path(target)} would hold {size / 1e6:.0f} MB, more than {MOST / 1e6:.0f}")
    kinds = ", ".join(path.parent.name for path in frames)
    print(f"{pair}: {len(generations)} rows ({kinds}); {size / 1e6:.1f} MB of {run} in all")
    commit(target, f"Ship the signals of {pair.replace('__', ' on ')}: {len(generations)} questions ({kinds})")


def commit(folder: Path, message: str) -> None:
    """One commit of what changed in a folder; none where nothing did."""
    place = str(folder.relative_to(ROOT))
    subprocess.run(["git", "add", place], cwd=ROOT, check=True)
    if subprocess.run(["git", "diff", "--cached", "--quiet", "--", place], cwd=ROOT).returncode:
        subprocess.run(["git", "commit", "-q", "-m", message, "--", place], cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
