"""The paper's own numbers (`artifacts/reference.csv`, one row per printed number) and facts from
its text (`artifacts/paper.yaml`)."""

from collections.abc import Iterable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pandas as pd
import yaml

from lib.analysis.results import NUMBER_KEY, QUANTITIES, Results, as_sentence
from lib.paths import ARTIFACTS, of_project

REFERENCE, FACTS = ARTIFACTS / "reference.csv", ARTIFACTS / "paper.yaml"
# a dropout rate, a number of bins, or a method, with the source of a transfer
VARIANT_PATTERN = (
    r"^(?:uncalibrated|(?P<method>[a-z]+))?(?: from (?P<source_model>.+)/(?P<source_dataset>.+))?"
    r"(?P<rate>0\.\d+)?(?P<bins>\d+)?$"
)
DECODING_SETTINGS = {
    "Temperature": "temperature",
    "Top-$p$": "top_p",
    "Top-$k$": "top_k",
    "Min-$p$": "min_p",
}


@cache
def paper_facts() -> dict[str, Any]:
    """Return facts from the paper's text: numbers stated `twice`, the boxed `findings`, `models`
    and `questions`."""
    return yaml.safe_load(of_project(FACTS).read_text(encoding="utf-8"))


def reference_numbers() -> pd.DataFrame:
    """Return the numbers of all tables (labels without `tab:`), keyed like the frames of a run.

    The file's column variant is split into method ("" for the raw score) with the source of a
    transfer, dropout rate, or number of bins. `text` is the number as printed. value, low, high are
    missing for text, and `relative` (a share: +66% is 0.66) if the paper prints none.
    """
    raw = pd.read_csv(of_project(REFERENCE), dtype=str, keep_default_na=False)
    raw = raw.rename(columns={"lo": "low", "hi": "high", "relative_pct": "relative"})
    numbers = raw[QUANTITIES].apply(pd.to_numeric, errors="coerce")
    numbers["relative"] /= 100
    numbers["text"] = raw.value
    variant = raw.variant.str.extract(VARIANT_PATTERN).astype({"rate": float, "bins": "Int64"})
    variant = variant.fillna(dict.fromkeys(["method", "source_model", "source_dataset"], ""))
    key = raw[NUMBER_KEY[:5]].replace({"estimator": {"bald": "c_bald"}})
    return key.join(variant).join(numbers)


def published(title: str = "") -> Results:
    """Return the paper's own numbers."""
    frames = {}
    for name, part in reference_numbers().groupby("table", sort=False):
        frames[str(name)] = part.assign(reason="")
    settings = []
    for label, part in frames["inference_settings"].groupby("model", sort=False):
        text = part.set_index("metric").text
        numbers = {name: float(text[heading]) for heading, name in DECODING_SETTINGS.items()}
        has_prompt = text["System prompt"] == "Yes"
        settings.append(SimpleNamespace(label=label, system_prompt=has_prompt, **numbers))
    main = frames["result_estimation"]
    moved = frames["calibration_transfer_full"]
    return Results(
        models=_labels(main.model),
        datasets=_labels(main.dataset),
        bin_labels=_labels(frames["bin_ablation"].model),
        transfer_labels=(_labels(moved.model), _labels(moved.dataset)),
        settings=settings,
        frames=frames,
        title=as_sentence(title),
    )


def _labels(names: Iterable[str]) -> dict[str, str]:
    return {name: name for name in dict.fromkeys(names)}
