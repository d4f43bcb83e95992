"""Statistics of stochastic passes beyond c_BALD, by pair: spread, effects of their number, of the rate and of phi.

Inputs are dropout frames as stored. Rows that the choices omit, or without an answer under them, are excluded.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.analysis.token_statistics import mean_with_interval
from lib.params import EvaluationChoices
from lib.score import confidence
from lib.score.estimators import c_bald
from lib.score.metrics import auroc, evaluate
from lib.store import KEYS, PAIR

BALD_TERMS = ("predictive", "conditional")  # of `eq:bald`: the entropy of the mean, the mean of the entropies


def entropy_curves(dropout: pd.DataFrame) -> pd.DataFrame:
    """Return both terms of `eq:bald` against the number of passes: mean and 95% interval over examples.

    An example's value is the mean over its answer tokens. Columns: term, passes, mean, low, high, n; empty without
    passes.
    """
    part, parts = dropout[dropout.split == "evaluation"], []
    if part.empty:
        return pd.DataFrame(columns=["mean", "low", "high", "n", "term", "passes"])
    for term in BALD_TERMS:
        curves = np.array([[np.mean(tokens) for tokens in passes] for passes in part[term]])  # (examples, T)
        parts.append(mean_with_interval(curves).assign(term=term, passes=np.arange(1, curves.shape[1] + 1)))
    return pd.concat(parts, ignore_index=True)


def keep_parsed_answers(dropout: pd.DataFrame, responses: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose response has an answer under the choices, with their correctness."""
    known = responses.loc[responses.answer.notna(), [*KEYS, "correct"]]
    return dropout.merge(known, on=KEYS, validate="many_to_one")


def summarize_passes(passes: pd.DataFrame) -> pd.DataFrame:
    """Return statistics by pair at one rate, from rows of `keep_parsed_answers`.

    `entropy_variation`: SD over passes of an example's entropy relative to its mean. `bald_share`: BALD relative to the
    predictive entropy. `unchanged`: number of rows whose most probable tokens no pass changes;
    `auroc_where_unchanged`: their AUROC of c_BALD.
    """
    records = []
    for pair, rows in passes[passes.split == "evaluation"].groupby(PAIR, sort=False):
        values = [confidence.compute_bald(row) for row in rows.itertuples()]
        means, scores = (np.array([of(value) for value in values]) for of in (np.mean, c_bald))
        alike = ~rows.top_changed.map(any).to_numpy()
        predictive = np.mean([np.mean(entropies[-1]) for entropies in rows.predictive])
        record: dict[str, Any] = dict(zip(PAIR, pair, strict=True)) | {
            "entropy_variation": float(np.mean([_spread(entropies) for entropies in rows.conditional])),
            "bald_share": float(means.mean() / predictive) if predictive else np.nan,
            "unchanged": int(alike.sum()),
            "auroc_where_unchanged": auroc(scores[alike], rows.correct[alike]) if alike.any() else np.nan,
        }
        records.append(record)
    return pd.DataFrame(records)


def _spread(conditional: Any) -> float:
    """Return the SD over passes of an example's entropy relative to its mean; `conditional` has means of the first t
    passes."""
    means = np.array([np.mean(tokens) for tokens in conditional])
    count = np.arange(1, len(means) + 1)
    entropies = np.diff(means * count, prepend=0)
    return float(entropies.std() / means[-1]) if means[-1] > 0 else 0.0


def evaluate_c_bald(
    responses: pd.DataFrame, passes: pd.DataFrame, choices: EvaluationChoices, metrics: Sequence[str] = ("ece", "auroc")
) -> pd.DataFrame:
    """Evaluate c_BALD of these passes, one row per example, on the evaluation split."""
    scores = confidence.confidence_frame(responses, dropout=passes, choices=choices, names=["c_bald"])
    return evaluate(scores, choices.bins, names=metrics)


def ece_by_number_of_passes(
    responses: pd.DataFrame, dropout: pd.DataFrame, choices: EvaluationChoices, counts: Sequence[int] = ()
) -> pd.DataFrame:
    """Return the ECE of c_BALD on the evaluation rows after 1..T passes (or `counts`) at the selected rate.

    Columns: model, dataset, passes, ece.
    """
    chosen, parts = dropout[dropout.selected & (dropout.split == "evaluation")], []
    stacked = [*BALD_TERMS, "top_k", "top_p"]
    most = max(map(len, chosen.predictive), default=1)
    for count in [n for n in counts if n < most] + [most] if counts else range(1, most + 1):
        first = chosen.assign(**{name: [values[:count] for values in chosen[name]] for name in stacked})
        parts.append(evaluate_c_bald(responses, first, choices, ["ece"]).assign(passes=count))
    results = pd.concat(parts, ignore_index=True).rename(columns={"value": "ece"})
    return results[[*PAIR, "ece", "passes"]].astype({"ece": float})


HALVES = ("half_predictive", "half_conditional")


def split_half_reliability(responses: pd.DataFrame, dropout: pd.DataFrame, choices: EvaluationChoices) -> pd.DataFrame:
    """Compare c_BALD from the two halves of the passes at the selected rate, by pair.

    Parameters
    ----------
    responses : from `interpret_responses`; rows without an answer are omitted
    dropout : a dropout frame; rows without HALVES are omitted

    Returns
    -------
    model, dataset, rows; `correlation` r of both halves' c_BALD (Pearson's), and `expected` of two draws of all T
    passes, 2 r / (1 + r) (Spearman-Brown); `ece` and `auroc` of either half, ending in _1 and _2. With other phi than
    `clip`, both halves are divided by the support of all passes. No rows without stored halves.
    """
    columns = [*PAIR, "rows", "correlation", "expected", "ece_1", "ece_2", "auroc_1", "auroc_2"]
    known, chosen = responses[responses.answer.notna()], dropout[dropout.selected & (dropout.split == "evaluation")]
    halves = chosen.get(HALVES[0], pd.Series(None, chosen.index, dtype=object))
    there = [isinstance(both, list | np.ndarray) and len(both) == 2 for both in halves]
    chosen = chosen[there].merge(known[KEYS], on=KEYS)
    if chosen.empty:
        return pd.DataFrame(columns=columns)
    parts = []
    for half in (0, 1):
        alone = {term: [[both[half]] for both in chosen[name]] for term, name in zip(BALD_TERMS, HALVES, strict=True)}
        score = confidence.confidence_frame(known, dropout=chosen.assign(**alone), choices=choices, names=["c_bald"])
        parts.append(score.assign(estimator=f"{half + 1}"))
    scores = pd.concat(parts)
    results = evaluate(scores, choices.bins, names=["ece", "auroc"]).astype({"value": float})
    named = results.assign(metric=results.metric + "_" + results.estimator)
    table = named.pivot(index=PAIR, columns="metric", values="value").rename_axis(columns=None)
    pairs = scores.pivot(index=KEYS, columns="estimator", values="confidence").groupby(PAIR)
    r = pairs.apply(lambda part: part["1"].corr(part["2"]))
    return table.assign(rows=pairs.size(), correlation=r, expected=2 * r / (1 + r)).reset_index()[columns]
