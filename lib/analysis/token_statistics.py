"""Where in a response the signal is: answer tokens, single positions, growing windows, length, and what is lost when no
answer can be read. Responses as `interpret_responses` returns them, on one split; curves as a mean over rows with its
95% interval."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from lib.params import Reading
from lib.score.estimators import seq_joint, validate_logprobs
from lib.score.metrics import auroc
from lib.store import PAIR
from lib.tasks.answers import grade, has_answer


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


def probabilities_at_positions(logprobs: Any, points: int = 101) -> np.ndarray:
    """Probability of the single token that stands at each of an even grid of normalised positions, (points,)."""
    probabilities = np.exp(validate_logprobs(logprobs))
    return probabilities[np.rint(np.linspace(0, probabilities.size - 1, points)).astype(int)]


def position_curves(responses: pd.DataFrame, points: int = 101, split: str = "evaluation") -> pd.DataFrame:
    """How well right and wrong are told apart at each normalised position, by pair: position, `single` (AUROC of the
    token there) and `running` (AUROC of the mean up to there; at 1 that of Seq Avg)."""
    parts = []
    for pair, rows in responses[responses.split == split].groupby(PAIR, sort=False):
        tokens = np.stack([probabilities_at_positions(logprobs, points) for logprobs in rows.response])
        means = np.stack([running_mean(logprobs, points) for logprobs in rows.response])  # (responses, points)
        single, running = ([auroc(scores, rows.correct) for scores in table.T] for table in (tokens, means))
        curves = {"position": np.linspace(0, 1, points), "single": single, "running": running}
        parts.append(pd.DataFrame(dict(zip(PAIR, pair, strict=True)) | curves))
    return pd.concat(parts, ignore_index=True)


def summarize_tokens(responses: pd.DataFrame, split: str = "evaluation") -> pd.DataFrame:
    """By pair: `median` probability of answer tokens, of all responses and of the `wrong` ones; AUROC of the `smallest`
    token probability; rank correlation with the length of Seq Joint (`joint`) and of the plain `product`."""
    parts = []
    for pair, rows in responses[responses.split == split].groupby(PAIR, sort=False):
        answered = rows.dropna(subset="answer")
        wrong = answered.answer[~answered.correct.astype(bool)]
        smallest = [np.exp(validate_logprobs(logprobs).min()) for logprobs in rows.response]
        length = [len(logprobs) for logprobs in rows.response]
        joint = [seq_joint(logprobs) for logprobs in rows.response]
        product = [
            float(validate_logprobs(logprobs).sum()) for logprobs in rows.response
        ]  # its logarithm: the same ranks
        parts.append(dict(zip(PAIR, pair, strict=True)) | {
            "median": _median(answered.answer), "wrong": _median(wrong),
            "smallest": auroc(smallest, rows.correct),
            "joint": rank_correlation(joint, length), "product": rank_correlation(product, length)})  # fmt: skip
    return pd.DataFrame(parts)


def _median(answers: pd.Series) -> float:
    return float(np.exp(np.median(np.concatenate(list(answers))))) if len(answers) else np.nan


def rank_correlation(values: Any, others: Any) -> float:
    """Spearman's; NaN where one of both is constant."""
    if len(set(values)) < 2 or len(set(others)) < 2:
        return np.nan
    return float(spearmanr(values, others).statistic)


def count_missed_answers(generations: pd.DataFrame, reading: Reading, split: str = "evaluation") -> pd.DataFrame:
    """By pair: rows, those without a parsed answer (`unparsed`), and those among them whose last number is right
    (`lost`): answers that the extraction misses."""
    part, records = generations[generations.split == split], []
    for row in part.itertuples(index=False):
        missed = not has_answer(row)
        right = missed and grade(row.last_number, row.reference, reading.grader)
        records.append((row.model, row.dataset, 1, missed, right))
    frame = pd.DataFrame(records, columns=[*PAIR, "rows", "unparsed", "lost"])
    return frame.groupby(PAIR, sort=False).sum().reset_index()
