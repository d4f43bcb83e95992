"""Reuse rows of earlier frames, shipped or set aside, that were generated with the same settings."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib import schemas, store
from lib.params import BUDGETS
from lib.paths import ARTIFACTS, UserError

SAME_MODEL = ("architecture", "parameters", "chat_template", "tokenizer")  # entries of the manifest's `loaded`
# facts of model and parameters that change no row, or only its last digits
NOT_OF_ROWS = {*BUDGETS, "n_tuning_examples", "dropout_rates", "label", "mirror", "size"}
OF_MACHINES = ("dtype", "attention")  # facts that change only the last digits, between machines


def earlier_frames(run: str, kind: str, pair: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the earlier frames of a pair with their manifests.

    The demo has none: its models run on every machine and after every change.
    """
    if store.shipped_folder(run) == store.SHIPPED:
        return
    below = f"{kind}/{pair}.parquet"
    aside = sorted((ARTIFACTS / run / "stale").glob(f"*/artifacts/{run}/{below}"))
    for path in [store.shipped_folder(run) / below, *aside]:
        with suppress(UserError, OSError):
            yield path, store.read_manifest(path)


def row_facts(facts: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """Return the facts of a model or of parameters on which a row depends, without `more`. None counts as absent."""
    return {name: fact for name, fact in facts.items() if fact is not None and name not in {*NOT_OF_ROWS, *more}}


def facts_on_any_machine(facts: Mapping[str, Any]) -> list:
    """Return the facts of model and parameters that do not depend on the machine."""
    parts = [row_facts(facts[part], *OF_MACHINES) for part in ("model", "parameters")]
    return [*map(facts.get("loaded", {}).get, SAME_MODEL), *parts]


def made_alike(manifest: Mapping[str, Any], facts: Mapping[str, Any], code: str = "") -> bool:
    """Whether a manifest describes rows of the same model and parameters, and of the same `code` if one is given."""
    same_code = not code or manifest.get("code") == code
    return same_code and facts_on_any_machine(manifest) == facts_on_any_machine(json.loads(json.dumps(facts)))


def find_earlier_rows(
    run: str, kind: str, pair: str, facts: Mapping[str, Any], generations: pd.DataFrame | None = None, code: str = ""
) -> pd.DataFrame:
    """Return the largest earlier frame with the same facts. Damaged frames are skipped.

    Parameters
    ----------
    kind : generations, which come with their in-situ verdicts, verification, dropout, ...
    generations : the responses that rows of other kinds refer to; only rows about identical tokens are kept
    code : digest of the current code, if only rows of this code are kept

    Returns
    -------
    DataFrame whose `attrs` go into the manifest
    """
    found = [schemas.empty_frame(kind)]
    for path, manifest in earlier_frames(run, kind, pair):
        with suppress(UserError, OSError):
            if made_alike(manifest, facts, code):
                rows = with_verdicts(path) if generations is None else about_responses(path, run, pair, generations)
                source = {"rows": len(rows), "sha256": manifest["sha256"], "made_on": devices_of(manifest)}
                rows.attrs = {"kept_from": source}
                found.append(rows)
    return max(found, key=len)  # if none was found: the empty first frame


def with_verdicts(path: Path) -> pd.DataFrame:
    """Return the responses at `path` with their in-situ verdicts; empty if the verdicts belong to other responses."""
    verdicts = path.parent.parent / "in_situ" / path.name
    if store.read_manifest(verdicts)["generations"] != store.read_manifest(path)["sha256"]:
        return schemas.empty_frame("generations")
    return store.read_frame(path).merge(store.read_frame(verdicts), on=store.KEYS, validate="one_to_one")


def about_responses(path: Path, run: str, pair: str, generations: pd.DataFrame) -> pd.DataFrame:
    """Return the rows at `path` about the same tokens as `generations`; empty if their own responses are gone."""
    rows, tokens, old = store.read_frame(path), tokens_by_example(generations), {}
    for responses, manifest in earlier_frames(run, "generations", pair):
        if manifest["sha256"] in store.read_manifest(path)["inputs"].values():
            old = tokens_by_example(store.read_frame(responses))
    return rows[[name in old and old[name] == tokens.get(name) for name in rows.example_id]]


def tokens_by_example(generations: pd.DataFrame) -> dict[str, str]:
    """Return a digest of each response's tokens and prompt length, by example_id."""
    rows = zip(generations.example_id, generations.prompt_tokens, generations.token_ids, strict=True)
    return {
        name: hashlib.sha256(np.array([prompt, *tokens], dtype="<i8").tobytes()).hexdigest()[:16]
        for name, prompt, tokens in rows
    }


def devices_of(manifest: Mapping[str, Any]) -> list[str]:
    """Return the devices and precisions of a frame's rows from its manifest, those of reused rows first."""
    kept, loaded = manifest.get("kept_from"), manifest["loaded"]
    places: list[str] = []
    if kept:
        places += kept.get("made_on") or [f"{kept['device']}, {kept['dtype']}"]  # format of older manifests
    if not kept or manifest["rows"] > kept["rows"]:
        places.append(f"{loaded['device']}, {loaded['dtype']}")
    return list(dict.fromkeys(places))
