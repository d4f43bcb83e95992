"""Rows of frames that an earlier run left, shipped or set aside: those that were made under the same facts are kept."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from lib import schemas, store
from lib.paths import ARTIFACTS, UserError
from lib.row_cache import RowCache, row_facts, tokens_by_example

SAME_MODEL = ("architecture", "parameters", "chat_template", "tokenizer")  # of what a manifest says was loaded
OF_MACHINES = ("dtype", "attention")  # facts by which rows of another machine differ in their last digits


def earlier_frames(run: str, kind: str, pair: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Frames of a pair, with their manifests, that are not the run's own now. None of the demo, whose models really
    run, on every machine and after every change."""
    if store.shipped_folder(run) == store.SHIPPED:
        return
    below = f"{kind}/{pair}.parquet"
    aside = sorted((ARTIFACTS / run / "stale").glob(f"*/artifacts/{run}/{below}"))
    for path in [store.shipped_folder(run) / below, *aside]:
        with suppress(UserError, OSError):
            yield path, store.read_manifest(path)


def made_alike(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether a manifest is of rows of the same model, under the same parameters, whatever the machine; and of the code
    that runs, where that is named."""

    def told(facts: Mapping[str, Any]) -> list:
        loaded = facts.get("loaded", {})
        return [
            *map(loaded.get, SAME_MODEL),
            *(row_facts(facts[part], *OF_MACHINES) for part in ("model", "parameters")),
        ]

    other_code = RowCache.code and manifest.get("code") != RowCache.code
    return not other_code and told(manifest) == told(json.loads(json.dumps(facts)))


def find_earlier_rows(
    run: str, kind: str, pair: str, facts: Mapping[str, Any], generations: pd.DataFrame | None = None
) -> pd.DataFrame:
    """The most rows of a kind that an earlier run left under the same facts. Damaged frames are passed over.

    Parameters
    ----------
    kind : generations, which come with their in-situ verdicts, verification, dropout, ...
    generations : the responses that rows of other kinds are about: those about the very same tokens are kept

    Returns
    -------
    DataFrame whose `attrs` are for the manifest
    """
    found = [schemas.empty_frame(kind)]
    for path, manifest in earlier_frames(run, kind, pair):
        with suppress(UserError, OSError):
            if made_alike(manifest, facts):
                rows = with_verdicts(path) if generations is None else about_responses(path, run, pair, generations)
                source = {"rows": len(rows), "sha256": manifest["sha256"], "made_on": devices_of(manifest)}
                rows.attrs = {"kept_from": source} if len(rows) else {}
                found.append(rows)
    return max(found, key=len)


def with_verdicts(path: Path) -> pd.DataFrame:
    """The responses at `path` with their in-situ verdicts; none where the verdicts are of others."""
    verdicts = path.parent.parent / "in_situ" / path.name
    if store.read_manifest(verdicts)["generations"] != store.read_manifest(path)["sha256"]:
        return schemas.empty_frame("generations")
    return store.read_frame(path).merge(store.read_frame(verdicts), on=store.KEYS, validate="one_to_one")


def about_responses(path: Path, run: str, pair: str, generations: pd.DataFrame) -> pd.DataFrame:
    """The rows at `path` about the very tokens of `generations`; none where the responses that they were made from are
    no more."""
    rows, tokens, old = store.read_frame(path), tokens_by_example(generations), {}
    for responses, manifest in earlier_frames(run, "generations", pair):
        if manifest["sha256"] in store.read_manifest(path)["inputs"].values():
            old = tokens_by_example(store.read_frame(responses))
    return rows[[name in old and old[name] == tokens.get(name) for name in rows.example_id]]


def devices_of(manifest: Mapping[str, Any]) -> list[str]:
    """The devices and precisions in which the rows of a frame were made, by its manifest: those that it kept first."""
    kept, loaded = manifest.get("kept_from"), manifest["loaded"]
    places: list[str] = []
    if kept:
        places += kept.get("made_on") or [f"{kept['device']}, {kept['dtype']}"]  # as older manifests say it
    if not kept or manifest["rows"] > kept["rows"]:
        places.append(f"{loaded['device']}, {loaded['dtype']}")
    return list(dict.fromkeys(places))
