"""Reuse a run's shipped rows: `python -m workflow.shipped_rows small` copies them to where its notebooks look for
finished rows, so that the run makes only the others.

They serve on the processor, in the precision in which they were made. Their seconds are unknown. The keys of rows cover
the questions, which are not shipped: DATA_FOLDER names the folder that has them, as `--data-dir` does.
"""

import sys
from pathlib import Path

import pandas as pd

from lib import params, store
from lib.paths import UserError, nearest
from lib.row_cache import RowCache, digest_responses, row_key
from lib.tasks import datasets

GIVEN = ("model", "loaded", "data", "parameters", "options", "sites")  # what notebooks give their caches


def main(words: list[str]) -> int:
    try:
        folder, there = store.SHIPPED.parent, [path.name for path in store.SHIPPED.parent.iterdir()]
        if len(words) != 1 or words[0] not in there:
            raise UserError(f"name one run whose rows are shipped; {nearest(''.join(words[:1]), there)}")
        for path in sorted((folder / words[0] / "generations").glob("*.parquet")):
            print(f"{path.stem}: {', '.join(copy_pair(words[0], path))}")
    except UserError as problem:
        print(f"shipped_rows: {problem}", file=sys.stderr)
        return 2
    return 0


def copy_pair(run: str, path: Path) -> list[str]:
    """Copy the rows of a pair, given the path of its responses; return what was copied."""
    responses, facts = store.read_frame(path), store.read_manifest(path)
    taken = store.read_frame(path.parents[1] / "in_situ" / path.name)
    dataset = path.stem.split("__")[1]
    spec = params.load_dataset_config(dataset)
    asked = {example.example_id: example for example in datasets.load_examples(spec)}
    if unknown := set(responses.example_id) - asked.keys():
        raise UserError(f"dataset '{dataset}' has no row '{min(unknown)}'; {nearest(min(unknown), asked)}")
    rows = responses.merge(taken, on=store.KEYS, validate="one_to_one")
    keys = [row_key(asked[name], {}) for name in rows.example_id]
    copied = [copy_rows(run, path, rows, keys, engine=facts["drawn"]["engine"], dataset=spec.model_dump())]
    restored = responses.assign(question=[asked[name].question for name in responses.example_id])
    about = {
        "verification": digest_responses(restored.merge(taken, on=store.KEYS)),
        "dropout": digest_responses(restored),
    }
    for kind, digests in about.items():
        place = path.parents[1] / kind / path.name
        if place.exists():
            store.check_made_from(place, f"replay-{run}", [path.stem])
            rows = store.read_frame(place).drop(columns=["tuning", "selected"], errors="ignore")
            items = rows.example_id if kind == "verification" else zip(rows.example_id, rows.rate, strict=True)
            more = {"save_texts": bool(responses.text.notna().all())} if kind == "verification" else {}
            copied.append(copy_rows(run, place, rows, [row_key(item, digests) for item in items], **more))
    return copied


def copy_rows(run: str, path: Path, rows: pd.DataFrame, keys: list[str], **more: object) -> str:
    """Write rows as a shard of the notebook that made the frame at `path`."""
    facts = store.read_manifest(path)
    cache = RowCache(run, path.parent.name, path.stem, {name: facts[name] for name in GIVEN if name in facts} | more)
    cache.save_shard(rows, keys, float("nan"))
    return f"{len(rows)} rows of {path.parent.name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
