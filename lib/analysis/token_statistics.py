"""Statistics of tokens: where the signal is in a response.

Responses are from `interpret_responses`, on one split; curves are means over rows with 95%
intervals.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from lib.score.estimators import validate_logprobs
from lib.score.metrics import auroc
from lib.store import KEYS, PAIR, calibration_rows, evaluation_rows


def running_mean(logprobs: Any, points: int = 101) -> np.ndarray:
    """Return Seq Avg over a growing window, (points,).

    The mean probability of the first i of n tokens is at i/n, interpolated on an even grid of [0,
    1]. It is constant before the first token, and the last point is Seq Avg.
    """
    probabilities = np.exp(validate_logprobs(logprobs))
    count = np.arange(1, probabilities.size + 1)
    means = np.cumsum(probabilities) / count
    grid = np.linspace(0, 1, points)
    position = count / count[-1]
    return np.interp(grid, position, means)


def mean_with_interval(
    curves: np.ndarray, least: float = 0.0, most: float = np.inf
) -> pd.DataFrame:
    """Return the mean over the n rows of `curves` (n, points) and its 95% confidence interval:
    mean, low, high, n.

    The normal approximation is clipped to the possible range. There is a row per point.
    """
    n = len(curves)
    mean = curves.mean(axis=0)
    half = np.zeros_like(mean)
    if n > 1:
        deviation = curves.std(axis=0, ddof=1)
        half = 1.96 * deviation / np.sqrt(n)
    low = np.clip(mean - half, least, most)
    high = np.clip(mean + half, least, most)
    return pd.DataFrame({"mean": mean, "low": low, "high": high, "n": n})


def running_mean_curves(responses: pd.DataFrame, points: int = 101) -> pd.DataFrame:
    """Return curves of one pair's right and wrong responses: correct, position and the columns of
    `mean_with_interval`.

    A class without responses has no rows.
    """
    parts = []
    for correct, group in responses.groupby("correct"):
        # (responses, points)
        curves = np.stack([running_mean(logprobs, points) for logprobs in group.response])
        means = mean_with_interval(curves, 0, 1)
        position = np.linspace(0, 1, points)
        parts.append(means.assign(correct=bool(correct), position=position))
    return pd.concat(parts, ignore_index=True)


def right_minus_wrong(curves: pd.DataFrame) -> pd.DataFrame:
    """Return right minus wrong of `running_mean_curves` that have both: position, mean, low, high.

    The 95% interval is that of a difference of means of independent rows.
    """
    right = curves[curves.correct].reset_index(drop=True)
    wrong = curves[~curves.correct].reset_index(drop=True)
    mean = right["mean"] - wrong["mean"]
    half = np.hypot(half_width(right), half_width(wrong))
    differences = pd.DataFrame({"position": right.position, "mean": mean})
    differences["low"] = mean - half
    differences["high"] = mean + half
    return differences


def half_width(curves: pd.DataFrame) -> pd.Series:
    """Return half the width of intervals, of which one end may have been clipped."""
    above = curves["high"] - curves["mean"]
    below = curves["mean"] - curves["low"]
    return np.maximum(above, below)


def apply_by_pair(
    function: Callable[[pd.DataFrame], pd.DataFrame], rows: pd.DataFrame
) -> pd.DataFrame:
    """Apply a function to the evaluation rows of every pair, and add model and dataset; empty
    without rows."""
    parts = [pd.DataFrame(columns=PAIR)]
    for (model, dataset), part in evaluation_rows(rows).groupby(PAIR, sort=False):
        parts.append(function(part).assign(model=model, dataset=dataset))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def answer_token_logprobs(responses: pd.DataFrame) -> pd.DataFrame:
    """Return one row per answer token: model, dataset, example_id, correct, logprob."""
    answered = evaluation_rows(responses).dropna(subset="answer")
    columns = ["model", "dataset", "example_id", "correct"]
    tokens = answered[columns].assign(logprob=answered.answer)
    tokens = tokens.explode("logprob", ignore_index=True)
    return tokens.astype({"logprob": float, "correct": bool})


def probabilities_at_positions(logprobs: Any, points: int = 101) -> np.ndarray:
    """Return the probability of the token at each of an even grid of normalized positions,
    (points,)."""
    probabilities = np.exp(validate_logprobs(logprobs))
    positions = np.linspace(0, probabilities.size - 1, points)
    return probabilities[np.rint(positions).astype(int)]


def score_parts(responses: pd.DataFrame, points: int = 101) -> pd.DataFrame:
    """Return scores of parts of a response, as rows of a confidence frame (evaluation rows).

    Estimators, all in [0, 1]: the running mean averaged over the first and over the last tenth of
    the positions (`first_tenth`, `last_tenth`), the running mean at a tenth (`after_a_tenth`), and
    the probability of the token at one position (`single_position`). That position is the one with
    the highest AUROC on the calibration rows, which judge nothing; without both classes there it
    has no rows.
    """
    grid = np.linspace(0, 1, points)
    parts = []
    for _, pair in responses.groupby(PAIR, sort=False):
        rows = evaluation_rows(pair)
        if rows.empty:
            continue
        means = np.stack([running_mean(logprobs, points) for logprobs in rows.response])
        scores = {
            "first_tenth": means[:, grid <= 0.1].mean(axis=1),
            "last_tenth": means[:, grid >= 0.9].mean(axis=1),
            "after_a_tenth": means[:, np.searchsorted(grid, 0.1)],
        }
        position = choose_position(calibration_rows(pair), points)
        if position is not None:
            tokens = tokens_at_positions(rows, points)
            scores["single_position"] = tokens[:, position]
        for name, values in scores.items():
            columns = {"estimator": name, "confidence": values, "correct": rows.correct}
            parts.append(rows[KEYS].assign(**columns))
    return pd.concat(parts, ignore_index=True)


def tokens_at_positions(responses: pd.DataFrame, points: int = 101) -> np.ndarray:
    """Return `probabilities_at_positions` of each response, (responses, points)."""
    rows = [probabilities_at_positions(logprobs, points) for logprobs in responses.response]
    return np.stack(rows)


def choose_position(calibration: pd.DataFrame, points: int = 101) -> int | None:
    """Return the index of the position whose tokens best tell right from wrong responses.

    None if the rows of one pair are all right, or all wrong. Ties go to the first position.
    """
    if calibration.correct.nunique() < 2:
        return None
    tokens = tokens_at_positions(calibration, points)
    by_position = [auroc(scores, calibration.correct) for scores in tokens.T]
    return int(np.argmax(by_position))


def summarize_answer_tokens(responses: pd.DataFrame) -> pd.DataFrame:
    """Return the `median` probability of the answers' tokens by pair."""
    tokens = answer_token_logprobs(responses)
    medians = tokens.groupby(PAIR, sort=False)["logprob"].median()
    return np.exp(medians).rename("median").reset_index()
