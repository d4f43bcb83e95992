"""From verification and dropout frames to confidence: what the multi-pass choices make of what was kept.

Like the choices of `estimators.signals`, these need no model: which options count, which phi, how many passes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.project import UserError, nearest
from lib.score import estimators
from lib.score.estimators import band, signals
from lib.score.metrics import evaluate
from lib.store import KEYS

VARIANTS = {"standard": "p_true", "in_situ": "p_true_insitu"}


# ---- P(True)


def log_mass(spellings: Sequence[str], logits: Any, option: str) -> float:
    """log sum exp over the logits of an option's spellings. Raises UserError where it is no single token."""
    found = [float(z) for spelling, z in zip(spellings, logits, strict=True) if spelling.strip() == option]
    if not found:
        raise UserError(f"options: '{option}' is no single token of the model; {nearest(option, spellings)}")
    return float(np.logaddexp.reduce(found))


def margins(verification: pd.DataFrame, options: str = "A/B") -> pd.DataFrame:
    """Per row and variant (columns `<variant>_margin`, `_mass`): log-mass of the option for True less that of the
    other (what Platt scaling is fitted on), and the probability that both hold together."""
    out = verification[KEYS].copy()
    for variant in VARIANTS:
        columns = zip(verification.spellings, verification[f"{variant}_logits"], strict=True)
        pairs = np.array([[log_mass(*row, option) for option in options.split("/")] for row in columns])
        out[f"{variant}_margin"] = pairs[:, 0] - pairs[:, 1]
        out[f"{variant}_mass"] = np.exp(np.logaddexp(*pairs.T) - verification[f"{variant}_logz"].to_numpy())
    return out


def _scored(read: pd.DataFrame, estimator: str, values: Iterable[float]) -> pd.DataFrame:
    confidence = np.array(list(values), dtype=float)
    return read[KEYS].assign(estimator=estimator, confidence=confidence, correct=read.correct)


def p_true(generations: pd.DataFrame, verification: pd.DataFrame, options: str = "A/B", **choices: Any) -> pd.DataFrame:
    """The tidy confidence frame of both variants, with their `margin`; `choices` are those of `estimators.signals`."""
    read = signals(generations, **choices).merge(margins(verification, options), on=KEYS, validate="one_to_one")
    parts = (_scored(read, name, map(estimators.p_true, read[f"{v}_margin"])).assign(margin=read[f"{v}_margin"])
             for v, name in VARIANTS.items())  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def reduction(verification: pd.DataFrame, split: str = "evaluation") -> pd.DataFrame:
    """Tokens saved in situ, rows beside those of `metrics.evaluate`: mean of 1 - query / standard prompt, percent."""
    part = verification[verification.split == split]
    saved = 100 * (1 - part.in_situ_tokens / part.standard_tokens)
    saved = saved.groupby([part.model, part.dataset], sort=False).mean()
    rows = saved.rename("value").reset_index()
    return rows.assign(estimator="p_true_insitu", metric="token_reduction_pct", reason="")


def in_situ_errors(results: pd.DataFrame, model: str, datasets: Mapping[str, str]) -> pd.DataFrame:
    """What `fig:main_analysis` (c) is drawn from: dataset (its label), standard, in situ (both ECE) of one model."""
    part = results[(results.metric == "ece") & (results.model == model)].set_index(["estimator", "dataset"]).value
    bars = {bar: [float(part[name, dataset]) for dataset in datasets]
            for bar, name in (("standard", "p_true"), ("in situ", "p_true_insitu"))}  # fmt: skip
    return pd.DataFrame({"dataset": list(datasets.values()), **bars})


# ---- MC dropout


def bald(row: Any, passes: int | None = None) -> np.ndarray:
    """BALD_j of an example's answer tokens (m,) after so many passes (all of them by default), `eq:bald`, in nats."""
    at = (passes or len(row.predictive)) - 1
    return np.asarray(row.predictive[at]) - np.asarray(row.conditional[at])


def support(frame: pd.DataFrame, phi: str) -> str | None:
    """The column of support sizes that phi divides by (the first of its kind, or that one), None for `clip`."""
    columns = [name for name in frame if name.startswith("top_") and name != "top_changed"]
    found = next((name for name in columns if name == phi or name.startswith(phi + "_")), None)
    if phi != "clip" and not found:
        raise UserError(f"phi: '{phi}' is not a choice; {nearest(phi, ['clip', *columns])}")
    return found


def c_bald(generations: pd.DataFrame, dropout: pd.DataFrame, phi: str = "clip", **choices: Any) -> pd.DataFrame:
    """The tidy confidence frame of c_BALD, a row per row of `dropout` (one rate per example); a response without an
    answer has confidence 0 where the choice `missing` says so."""
    read, column = signals(generations, **choices).merge(dropout, on=KEYS, validate="one_to_one"), support(dropout, phi)
    sizes = [None] * len(read) if column is None else [passes[-1] for passes in read[column]]
    rows = zip(read.itertuples(index=False), sizes, strict=True)
    values = (0.0 if row.answer is None else estimators.c_bald(bald(row), size) for row, size in rows)
    return _scored(read, "c_bald", values)


def grid(generations: pd.DataFrame, dropout: pd.DataFrame, bins: int = 10, closed: str = "right", phi: str = "clip",
         **choices: Any) -> pd.DataFrame:  # fmt: skip
    """`metrics.evaluate` on the tuning examples for every rate (column `rate`), `tab:dropout_grid_search`."""
    parts = []
    for rate, part in dropout[dropout.tuning].groupby("rate"):
        confidence = c_bald(generations, part, phi, **choices)
        parts.append(evaluate(confidence, bins, closed, split="calibration").assign(rate=float(rate)))
    return pd.concat(parts, ignore_index=True)


def best_rate(results: pd.DataFrame) -> float:
    """The rate of lowest ECE of one pair's grid, the lower one where two are equal."""
    errors = results[results.metric == "ece"].sort_values(["value", "rate"])
    return float(errors.rate.iloc[0])


def entropy_curves(dropout: pd.DataFrame, split: str = "evaluation") -> pd.DataFrame:
    """Both terms of `eq:bald` against the number of passes: an example's mean over its answer tokens, then mean and 95%
    interval over examples. Columns: term, passes, mean, low, high, n."""
    part, curves = dropout[dropout.split == split], []
    for term in ("predictive", "conditional"):
        values = np.array([[np.mean(tokens) for tokens in passes] for passes in part[term]])  # (examples, T)
        curves.append(band(values).assign(term=term, passes=np.arange(1, values.shape[1] + 1)))
    return pd.concat(curves, ignore_index=True)
