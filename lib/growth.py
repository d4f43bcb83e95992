"""Rows that a smaller run of the same pair has made: a run of more rows keeps them, and makes the others.

They lie among the shipped signals of the run, or where what the run left before was set aside. A row is kept if it was
made by the same model under the same parameters, whatever the machine, and, where it is about a response, about the
very same tokens. Where whoever runs a notebook names its `code`, that code must have made it, too.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lib import frames, store
from lib.params import BUDGETS
from lib.project import ARTIFACTS, SHIPPED, UserError

SAME_MODEL = ("architecture", "parameters", "chat_template", "tokenizer")  # of what a manifest says was loaded
code = ""  # names the code that runs, where rows that other code made are not kept: `growth.code = ...`
# what a manifest says of model and parameters that changes no row, but for the last digits
OF_NO_ROW = {*BUDGETS, "dropout_tuning", "dropout_rates", "dtype", "attention", "label", "mirror", "size"}


def earlier(run: str, kind: str, pair: str) -> Iterator[Path]:
    """Frames of a pair that are not the run's own now: shipped, or set aside. Damaged ones are passed over. None of the
    demo, whose models really run, on every machine and after every change."""
    if store.shipped(run) == SHIPPED:
        return
    below = f"{kind}/{pair}.parquet"
    for path in [store.shipped(run) / below, *sorted((ARTIFACTS / run / "stale").glob(f"*/artifacts/{run}/{below}"))]:
        if path.exists() and path.with_suffix(".json").exists() and described(path):
            yield path


def described(path: Path) -> bool:
    try:
        return bool(store.manifest(path))
    except UserError:
        return False


def agrees(path: Path, facts: Mapping[str, Any]) -> bool:
    """Whether the frame at `path` was made by the model, and under the parameters, of a manifest's `facts`; and by the
    code that runs, where that is named."""
    was, now = store.manifest(path), json.loads(json.dumps(facts))
    if code and was.get("code") != code:
        return False
    same = all(was.get("loaded", {}).get(name) == now["loaded"][name] for name in SAME_MODEL)
    return same and all(telling(was[name]) == telling(now[name]) for name in ("model", "parameters"))


def telling(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a row hangs on. What is off counts like what an older manifest does not know."""
    return {name: value for name, value in facts.items() if name not in OF_NO_ROW and value is not None}


def responses(run: str, pair: str, facts: Mapping[str, Any]) -> pd.DataFrame:
    """The most responses that an earlier run left of a pair, with their in-situ verdicts, by example_id; no row where
    there are none. Its `attrs` are for the manifest of what is made of them."""
    best = frames.empty("generations").set_index("example_id", drop=False)
    best.attrs = made_by()
    for path in earlier(run, "generations", pair):
        verdicts = path.parent.parent / "in_situ" / path.name
        try:
            if not agrees(path, facts) or store.manifest(verdicts)["generations"] != store.manifest(path)["sha256"]:
                continue
            frame = store.read(path).merge(store.read(verdicts), on=store.KEYS, validate="one_to_one")
        except (UserError, OSError):
            continue
        if len(frame) > len(best):
            best = frame.set_index("example_id", drop=False)
            best.attrs = made_by() | {"kept_from": source(path, len(frame))}
    return best


def about_responses(run: str, kind: str, pair: str, facts: Mapping[str, Any], generations: pd.DataFrame
                    ) -> pd.DataFrame:  # fmt: skip
    """The most rows of a kind (verification, dropout) that an earlier run left about the very responses of
    `generations`; `attrs` as in `responses`."""
    best = frames.empty(kind)
    best.attrs = made_by()
    tokens = {row.example_id: tuple(row.token_ids) for row in generations.itertuples()}
    sources = {store.manifest(path)["sha256"]: path for path in earlier(run, "generations", pair)}
    for path in earlier(run, kind, pair):
        (made_from,) = store.manifest(path)["inputs"].values()
        try:
            if not agrees(path, facts) or made_from not in sources:
                continue
            old, frame = store.read(sources[made_from]), store.read(path)
        except UserError:
            continue
        same = {row.example_id for row in old.itertuples() if tokens.get(row.example_id) == tuple(row.token_ids)}
        frame = frame[frame.example_id.isin(same)]
        if len(frame) > len(best):
            best = frame
            best.attrs = made_by() | {"kept_from": source(path, len(frame))}
    return best


def made_by() -> dict[str, str]:
    """What a manifest says of the code, where that is named: all of its rows, kept ones too, are of this code."""
    return {"code": code} if code else {}


def source(path: Path, rows: int) -> dict[str, Any]:
    """What a manifest says of the `rows` that were kept from the frame at `path`: its checksum, on what they were made,
    and where they are known the seconds that they took."""
    facts = store.manifest(path)
    told, seconds = {"rows": rows, "sha256": facts["sha256"], "made_on": made_on(facts)}, whole_seconds(facts)
    return told if seconds is None else told | {"seconds": round(seconds * rows / facts["rows"], 1)}


def made_on(facts: Mapping[str, Any]) -> list[str]:
    """The devices and precisions, by a manifest, in which its rows were made: those that it kept first."""
    kept, loaded = facts.get("kept_from"), facts["loaded"]
    places: list[str] = []
    if kept:
        places += kept.get("made_on") or [f"{kept['device']}, {kept['dtype']}"]  # as older manifests say it
    if not kept or facts["rows"] > kept["rows"]:
        places.append(f"{loaded['device']}, {loaded['dtype']}")
    return list(dict.fromkeys(places))


def own_seconds(facts: Mapping[str, Any]) -> float:
    """Seconds, by a manifest, of the rows of a frame that the run itself made."""
    return facts.get("seconds", 0.0) + facts.get("grid_seconds", 0.0)


def whole_seconds(facts: Mapping[str, Any]) -> float | None:
    """The same of all its rows; None where it kept some of which that is not known. Of a larger run's it may have taken
    a part."""
    kept = facts.get("kept_from")
    if not kept:
        return own_seconds(facts)
    if "seconds" not in kept:
        return None
    return own_seconds(facts) + kept["seconds"] * min(1.0, facts["rows"] / kept["rows"])


def seconds_a_row(facts: Mapping[str, Any]) -> float | None:
    """The same of a row, by those of which it is known; None where there are none."""
    whole, rows = whole_seconds(facts), facts["rows"]
    if whole is None:
        whole, rows = own_seconds(facts), rows - facts["kept_from"]["rows"]
    return whole / rows if rows > 0 else None
