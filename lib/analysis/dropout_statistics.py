"""Statistics of stochastic passes beyond c_BALD, by pair: spread, effects of their number, of the rate and of phi.

Inputs are dropout frames as stored. Rows that the choices omit, or without an answer under them, are excluded.
"""

from typing import Any

import numpy as np
import pandas as pd

from lib.analysis.token_statistics import mean_with_interval
from lib.params import EvaluationChoices
from lib.score.confidence import compute_bald, confidence_frame
from lib.score.estimators import c_bald
from lib.score.metrics import auroc, evaluate
from lib.store import KEYS, PAIR

BALD_TERMS = ("predictive", "conditional")  # of `eq:bald`: the entropy of the mean, the mean of the entropies


def entropy_curves(dropout: pd.DataFrame) -> pd.DataFrame:
    """Return both terms of `eq:bald` against the number of passes: mean and 95% interval over examples.

    An example's value is the mean over its answer tokens. Columns: term, passes, mean, low, high, n; empty without
    passes.
    """
    part = dropout[dropout.split == "evaluation"]
    if part.empty:
        return pd.DataFrame(columns=["mean", "low", "high", "n", "term", "passes"])
    curves = {term: np.stack([mean_over_tokens(entropies) for entropies in part[term]]) for term in BALD_TERMS}
    parts = [
        mean_with_interval(curve).assign(term=term, passes=np.arange(1, curve.shape[1] + 1))
        for term, curve in curves.items()
    ]
    return pd.concat(parts, ignore_index=True)


def mean_over_tokens(entropies: Any) -> np.ndarray:
    """Return the mean over an answer's tokens of entropies (T, m) after the first t passes, (T,)."""
    return np.array([np.mean(tokens) for tokens in entropies])


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
        bald = [compute_bald(row) for row in rows.itertuples()]
        scores = np.array([c_bald(values) for values in bald])
        predictive = np.mean([np.mean(entropies[-1]) for entropies in rows.predictive])
        unchanged = ~rows.top_changed.map(any).to_numpy()
        record: dict[str, Any] = dict(zip(PAIR, pair, strict=True)) | {
            "entropy_variation": float(np.mean([variation_over_passes(entropies) for entropies in rows.conditional])),
            "bald_share": np.mean([np.mean(values) for values in bald]) / predictive if predictive else np.nan,
            "unchanged": int(unchanged.sum()),
            "auroc_where_unchanged": auroc(scores[unchanged], rows.correct[unchanged]) if unchanged.any() else np.nan,
        }
        records.append(record)
    return pd.DataFrame(records)


def variation_over_passes(conditional: Any) -> float:
    """Return the SD over passes of an example's entropy relative to its mean; `conditional` has means of the first t
    passes."""
    means = mean_over_tokens(conditional)
    entropies = np.diff(means * np.arange(1, len(means) + 1), prepend=0)
    return float(entropies.std() / means[-1]) if means[-1] > 0 else 0.0


def ece_by_number_of_passes(responses: pd.DataFrame, dropout: pd.DataFrame, choices: EvaluationChoices) -> pd.DataFrame:
    """Return the ECE of c_BALD on the evaluation rows after 1..T passes at the selected rate.

    Columns: model, dataset, passes, ece.
    """
    chosen, parts = dropout[dropout.selected & (dropout.split == "evaluation")], []
    for count in range(1, max(map(len, chosen.predictive), default=1) + 1):
        first = {name: [values[:count] for values in chosen[name]] for name in (*BALD_TERMS, "top_k", "top_p")}
        scores = confidence_frame(responses, dropout=chosen.assign(**first), choices=choices, names=["c_bald"])
        parts.append(evaluate(scores, choices.bins, names=["ece"]).assign(passes=count))
    results = pd.concat(parts, ignore_index=True).rename(columns={"value": "ece"})
    return results[[*PAIR, "ece", "passes"]].astype({"ece": float})


def split_half_reliability(responses: pd.DataFrame, dropout: pd.DataFrame, choices: EvaluationChoices) -> pd.DataFrame:
    """Compare c_BALD from the two halves of the passes at the selected rate, by pair.

    Parameters
    ----------
    responses : from `interpret_responses`; rows without an answer are omitted
    dropout : a dropout frame; rows of a single pass have no halves and are omitted

    Returns
    -------
    model, dataset, rows; `correlation` r of both halves' c_BALD (Pearson's), and `expected` of two draws of all T
    passes, 2 r / (1 + r) (Spearman-Brown); `ece` and `auroc` of either half, ending in _1 and _2. With other phi than
    `clip`, both halves are divided by the support of all passes.
    """
    columns = [*PAIR, "rows", "correlation", "expected", "ece_1", "ece_2", "auroc_1", "auroc_2"]
    known, parts = responses[responses.answer.notna()], []
    chosen = dropout[dropout.selected & (dropout.split == "evaluation")].merge(known[KEYS], on=KEYS)
    chosen = chosen[chosen.half_predictive.map(len) == 2]
    if chosen.empty:
        return pd.DataFrame(columns=columns)
    for half in (0, 1):
        terms = {term: [[halves[half]] for halves in chosen[f"half_{term}"]] for term in BALD_TERMS}
        scores = confidence_frame(known, dropout=chosen.assign(**terms), choices=choices, names=["c_bald"])
        parts.append(scores.assign(estimator=f"{half + 1}"))
    scores = pd.concat(parts)
    results = evaluate(scores, choices.bins, names=["ece", "auroc"]).astype({"value": float})
    named = results.assign(metric=results.metric + "_" + results.estimator)
    table = named.pivot(index=PAIR, columns="metric", values="value").rename_axis(columns=None)
    pairs = scores.pivot(index=KEYS, columns="estimator", values="confidence").groupby(PAIR)
    r = pairs.apply(lambda part: part["1"].corr(part["2"]))
    return table.assign(rows=pairs.size(), correlation=r, expected=2 * r / (1 + r)).reset_index()[columns]
