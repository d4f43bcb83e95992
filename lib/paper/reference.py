"""The paper's own numbers, as it prints them: `artifacts/reference.csv`, a printed number a row; and what it says in
words: `artifacts/paper.yaml`."""

from collections.abc import Iterable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pandas as pd
import yaml

from lib.analysis.results import Results
from lib.paper import footnotes
from lib.paths import ARTIFACTS

PRINTED, SAID = ARTIFACTS / "reference.csv", ARTIFACTS / "paper.yaml"
NAMES = {"lo": "low", "hi": "high", "relative_pct": "relative"}
REFERENCE_COLUMNS = [
    "table",
    "model",
    "dataset",
    "estimator",
    "method",
    "source_model",
    "source_dataset",
    "rate",
    "bins",
    "metric",
    "value",
    "low",
    "high",
    "relative",
    "text",
    "bold",
]


@cache
def paper_facts() -> dict[str, Any]:
    """What the paper says: what it says `twice`, its `models`, their `published_settings`, the `decoding_settings` and
    `questions` that it names."""
    return yaml.safe_load(SAID.read_text(encoding="utf-8"))


def printed_numbers(table: str = "") -> pd.DataFrame:
    """The numbers of one table (label without `tab:`), or of all, in COLUMNS, keyed as the frames of a run are.

    What the file calls variant is told apart: method ("" for the raw score) with the source of a transfer, dropout
    rate, or number of bins. `text` is the number as printed; value, low, high are missing where it is none, `relative`
    (a share: +66% is 0.66) where the paper prints none. Raises KeyError for a table without numbers.
    """
    raw = pd.read_csv(PRINTED, dtype=str, keep_default_na=False).rename(columns=NAMES)
    if table and table not in set(raw.table):
        raise KeyError(table)
    raw = raw[raw.table == table] if table else raw
    parts = raw.variant.str.extract(r"^([a-z]+)(?: from (.+)/(.+))?$").fillna("")
    frame = raw.assign(
        estimator=raw.estimator.replace("bald", "c_bald"), method=parts[0].replace("uncalibrated", ""),
        source_model=parts[1], source_dataset=parts[2], text=raw.value, bold=raw.bold == "1",
        rate=pd.to_numeric(raw.variant.where(raw.table == "dropout_grid_search"), errors="coerce"),
        bins=pd.to_numeric(raw.variant.where(raw.table == "bin_ablation"), errors="coerce").astype("Int64"),
    )  # fmt: skip
    numbers = {name: pd.to_numeric(frame[name], errors="coerce") for name in ("value", "low", "high", "relative")}
    return frame.assign(**numbers | {"relative": numbers["relative"] / 100})[REFERENCE_COLUMNS].reset_index(drop=True)


def published(title: str = "") -> Results:
    """The paper's own numbers."""
    frames = {str(name): part.assign(reason="") for name, part in printed_numbers().groupby("table", sort=False)}
    facts = paper_facts()
    rows = [(name, asked["evaluation"]) for name, asked in facts["questions"].items()]
    frames["rows"] = pd.DataFrame(rows, columns=["dataset", "rows"])
    settings = []
    for label, part in frames["inference_settings"].groupby("model", sort=False):
        text = part.set_index("metric").text
        numbers = {name: float(text[heading]) for heading, name in facts["decoding_settings"].items()}
        settings.append(SimpleNamespace(label=label, system_prompt=text["System prompt"] == "Yes", **numbers))
    main, moved = frames["result_estimation"], frames["calibration_transfer_full"]
    return Results(
        models=_labels(main.model), datasets=_labels(main.dataset), binned=_labels(frames["bin_ablation"].model),
        moved=(_labels(moved.model), _labels(moved.dataset)), settings=settings, frames=frames,
        notes=footnotes.notes(title))  # fmt: skip


def _labels(names: Iterable[str]) -> dict[str, str]:
    return {name: name for name in dict.fromkeys(names)}
