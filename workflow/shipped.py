"""The shipped signals in artifacts/shipped/<run>/.

A replay builds every table from them without a model. Every run's list of checksums is in git; all files are checked
before any is read. `cd artifacts/shipped/demo && sha256sum -c SHA256SUMS` does the same.

`python -m workflow.shipped small` lets a larger run reuse them: it copies the rows to where the run's notebooks look
for finished rows, so that they make only the others. They serve on the processor, in the precision in which they were
made. Their seconds are unknown. The keys of rows cover the questions, which are not shipped: DATA_FOLDER names the
folder that has them, as `--data-dir` does.
"""

import sys
from collections.abc import Callable

from lib import params
from lib.files import sha256
from lib.paths import ROOT, UserError, nearest
from workflow.pipeline import SHIPPED
from workflow.rules import NOTEBOOKS

LIST = "SHA256SUMS"
KINDS = ("generations", "in_situ", "verification", "dropout")  # of frames whose rows are reused
FACTS = ("model", "loaded", "data", "parameters", "options", "sites")  # of a manifest, on which rows depend


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


# ---- reuse of shipped rows


def copy_rows(run: str) -> None:
    """Write a run's shipped rows as the shards that its 01, 03 and 04 look for."""
    from lib import store  # these are slow to import, and no run needs them
    from lib.row_cache import RowCache, digest_responses, row_key
    from lib.tasks.datasets import load_examples

    folder = store.SHIPPED.parent / run
    if not folder.is_dir():
        raise UserError(f"no run '{run}' is shipped; {nearest(run, [path.name for path in folder.parent.iterdir()])}")

    def save(kind, rows, items, about, **more):
        facts = {name: fact for name, fact in manifests[kind].items() if name in FACTS} | more
        RowCache(run, kind, pair, facts).save_shard(rows, [row_key(item, about) for item in items], float("nan"))
        print(f"{pair}: {len(rows)} rows of {kind}")

    for pair in sorted(path.stem for path in folder.glob("generations/*.parquet")):
        paths = {kind: folder / kind / f"{pair}.parquet" for kind in KINDS}
        manifests = {kind: store.read_manifest(path) for kind, path in paths.items()}
        responses, in_situ, verified, passes = map(store.read_frame, paths.values())
        dataset = params.load_dataset_config(pair.split("__")[1])
        asked = {example.example_id: example for example in load_examples(dataset)}
        examples = [asked[name] for name in responses.example_id]
        engine, has_texts = manifests["generations"]["drawn"]["engine"], bool(responses.text.notna().all())
        rows = responses.merge(in_situ, on=store.KEYS)
        save("generations", rows, examples, {}, engine=engine, dataset=dataset.model_dump())
        responses = responses.assign(question=[example.question for example in examples])
        digests = digest_responses(responses.merge(in_situ, on=store.KEYS))
        save("verification", verified, verified.example_id, digests, save_texts=has_texts)
        items = zip(passes.example_id, passes.rate, strict=True)
        save("dropout", passes.drop(columns=["tuning", "selected"]), items, digest_responses(responses))


if __name__ == "__main__":
    try:
        copy_rows(sys.argv[-1])
    except UserError as problem:
        sys.exit(f"shipped: {problem}")
