"""What `fig:main_analysis` (a, b) and the density of answer tokens are drawn from. Responses as `interpret_responses`
returns them; curves as a mean over rows with its 95% interval."""

from typing import Any

import numpy as np
import pandas as pd

from lib.score.estimators import validate_logprobs

BALD_TERMS = ("predictive", "conditional")  # of `eq:bald`: the entropy of the mean, the mean of the entropies


def running_mean(logprobs: Any, points: int = 101) -> np.ndarray:
    """Seq Avg with a growing window, (points,): the mean probability of the first i of n tokens stands at
    i/n, interpolated on an even grid of [0, 1]; flat before the first token; the last point is Seq Avg."""
    probabilities = np.exp(validate_logprobs(logprobs))
    count = np.arange(1, probabilities.size + 1)
    return np.interp(np.linspace(0, 1, points), count / count[-1], np.cumsum(probabilities) / count)


def mean_with_interval(curves: np.ndarray, least: float = 0.0, most: float = np.inf) -> pd.DataFrame:
    """Mean over the n rows of `curves` (n, points) and its 95% confidence interval (normal approximation, cut to what
    is possible), a row per point: mean, low, high, n."""
    mean, n = curves.mean(axis=0), len(curves)
    half = 1.96 * curves.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.zeros_like(mean)
    low, high = np.clip(mean - half, least, most), np.clip(mean + half, least, most)
    return pd.DataFrame({"mean": mean, "low": low, "high": high, "n": n})


def running_mean_curves(responses: pd.DataFrame, points: int = 101, split: str = "evaluation") -> pd.DataFrame:
    """Right and wrong responses apart: correct, position and the columns of `mean_with_interval`. A kind that does not
    occur has no rows."""
    parts = [pd.DataFrame(columns=["mean", "low", "high", "n", "correct", "position"])]
    for correct, group in responses[responses.split == split].groupby("correct"):
        curves = np.stack([running_mean(logprobs, points) for logprobs in group.response])  # (responses, points)
        parts.append(mean_with_interval(curves, 0, 1).assign(correct=bool(correct), position=np.linspace(0, 1, points)))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def right_minus_wrong(curves: pd.DataFrame) -> pd.DataFrame:
    """Right less wrong of `running_mean_curves` that hold both, with the 95% interval of a difference of two means of
    different rows: position, mean, low, high."""
    right, wrong = (curves[curves.correct == kind].reset_index(drop=True) for kind in (True, False))
    halves = [np.maximum(part["high"] - part["mean"], part["mean"] - part["low"]) for part in (right, wrong)]  # uncut
    mean, half = right["mean"] - wrong["mean"], np.hypot(*halves)
    return pd.DataFrame({"position": right.position, "mean": mean, "low": mean - half, "high": mean + half})


def running_mean_curves_by_pair(responses: pd.DataFrame) -> pd.DataFrame:
    """`running_mean_curves` of every pair: model, dataset and its columns."""
    parts = [running_mean_curves(part).assign(model=model, dataset=dataset)
             for (model, dataset), part in responses.groupby(["model", "dataset"], sort=False)]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def answer_token_logprobs(responses: pd.DataFrame, split: str = "evaluation") -> pd.DataFrame:
    """One row per answer token: model, dataset, example_id, correct, logprob."""
    answered = responses[responses.split == split].dropna(subset="answer")
    tokens = answered[["model", "dataset", "example_id", "correct"]].assign(logprob=answered.answer)
    return tokens.explode("logprob", ignore_index=True).astype({"logprob": float, "correct": bool})


def entropy_curves(dropout: pd.DataFrame, split: str = "evaluation") -> pd.DataFrame:
    """Both terms of `eq:bald` against the number of passes: an example's mean over its answer tokens, then mean and 95%
    interval over examples. Columns: term, passes, mean, low, high, n; no rows of no passes."""
    part, parts = dropout[dropout.split == split], []
    if part.empty:
        return pd.DataFrame(columns=["mean", "low", "high", "n", "term", "passes"])
    for term in BALD_TERMS:
        curves = np.array([[np.mean(tokens) for tokens in passes] for passes in part[term]])  # (examples, T)
        parts.append(mean_with_interval(curves).assign(term=term, passes=np.arange(1, curves.shape[1] + 1)))
    return pd.concat(parts, ignore_index=True)
