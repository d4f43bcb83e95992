"""The paper's own numbers, as it prints them: `artifacts/reference.csv`, a printed number a row; and what it says in
words: `artifacts/paper.yaml`."""

from functools import cache
from typing import Any

import pandas as pd
import yaml

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
