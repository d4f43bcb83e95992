"""Statistics of tokens: where the signal is in a response, how many tokens each confidence costs,
and which response the notebooks follow.

Responses are from `interpret_responses`, on one split; curves are means over rows with 95%
intervals. Single-pass estimators come with the response; all others process additional tokens.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from lib.errors import UserError
from lib.score.estimators import ans_avg, validate_logprobs
from lib.score.metrics import auroc
from lib.store import KEYS, PAIR, SCORE_CELL, calibration_rows, evaluation_rows
from lib.tasks.answers import answer_span

RESPONSE_ITSELF = "response"  # instead of an estimator
EXTRA_TOKEN_ESTIMATORS = ("p_true", "p_true_insitu", "c_bald")  # estimators that read more tokens

# ---- the running example of the notebooks: one response, followed from 01 to 07


def choose_example(responses: pd.DataFrame, example: str, model: str, dataset: str) -> pd.Series:
    """Choose the running example among a model's evaluation rows: the one of this id.

    If there is none, the most confident wrong answer, of this dataset if it has any. Raise
    UserError if the choices leave no row of the model.
    """
    rows = evaluation_rows(responses[responses.model == model])
    if rows.empty:
        raise UserError(
            f"model '{model}': no evaluation row has an answer, and `missing: drop` leaves out all others; "
            "choose last_number or zero"
        )
    confidence = [0.0 if logprobs is None else ans_avg(logprobs) for logprobs in rows.answer]
    against = [
        rows.example_id != example,
        rows.dataset != dataset,
        rows.answer.isna(),
        rows.correct,
    ]
    return rows.iloc[np.lexsort([-np.array(confidence), *reversed(against)])[0]]


def rows_of_example(frame: pd.DataFrame, one: pd.Series) -> pd.DataFrame:
    """Return the rows of a per-example frame for the running example."""
    return frame[(frame[KEYS] == one[KEYS]).all(axis=1)]


# ---- positions


def running_mean(logprobs: Any, points: int = 101) -> np.ndarray:
    """Return Seq Avg over a growing window, (points,).

    The mean probability of the first i of n tokens is at i/n, interpolated on an even grid of [0,
    1]. It is constant before the first token, and the last point is Seq Avg.
    """
    probabilities = np.exp(validate_logprobs(logprobs))
    count = np.arange(1, probabilities.size + 1)
    return np.interp(np.linspace(0, 1, points), count / count[-1], np.cumsum(probabilities) / count)


def mean_with_interval(
    curves: np.ndarray, least: float = 0.0, most: float = np.inf
) -> pd.DataFrame:
    """Return the mean over the n rows of `curves` (n, points) and its 95% confidence interval:
    mean, low, high, n.

    The normal approximation is clipped to the possible range. There is a row per point.
    """
    mean, n = curves.mean(axis=0), len(curves)
    half = 1.96 * curves.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.zeros_like(mean)
    low, high = np.clip(mean - half, least, most), np.clip(mean + half, least, most)
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
        parts.append(
            mean_with_interval(curves, 0, 1).assign(
                correct=bool(correct), position=np.linspace(0, 1, points)
            )
        )
    return pd.concat(parts, ignore_index=True)


def right_minus_wrong(curves: pd.DataFrame) -> pd.DataFrame:
    """Return right minus wrong of `running_mean_curves` that have both: position, mean, low, high.

    The 95% interval is that of a difference of means of independent rows.
    """
    right, wrong = (curves[curves.correct == kind].reset_index(drop=True) for kind in (True, False))
    halves = [
        np.maximum(part["high"] - part["mean"], part["mean"] - part["low"])
        for part in (right, wrong)
    ]
    mean, half = right["mean"] - wrong["mean"], np.hypot(*halves)
    return pd.DataFrame(
        {"position": right.position, "mean": mean, "low": mean - half, "high": mean + half}
    )


def apply_by_pair(
    function: Callable[[pd.DataFrame], pd.DataFrame], rows: pd.DataFrame
) -> pd.DataFrame:
    """Apply a function to the evaluation rows of every pair, and add model and dataset; empty
    without rows."""
    pairs = evaluation_rows(rows).groupby(PAIR, sort=False)
    parts = [
        function(part).assign(model=model, dataset=dataset) for (model, dataset), part in pairs
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=PAIR)


def answer_token_logprobs(responses: pd.DataFrame) -> pd.DataFrame:
    """Return one row per answer token: model, dataset, example_id, correct, logprob."""
    answered = evaluation_rows(responses).dropna(subset="answer")
    tokens = answered[["model", "dataset", "example_id", "correct"]].assign(logprob=answered.answer)
    return tokens.explode("logprob", ignore_index=True).astype({"logprob": float, "correct": bool})


def probabilities_at_positions(logprobs: Any, points: int = 101) -> np.ndarray:
    """Return the probability of the token at each of an even grid of normalized positions,
    (points,)."""
    probabilities = np.exp(validate_logprobs(logprobs))
    return probabilities[np.rint(np.linspace(0, probabilities.size - 1, points)).astype(int)]


def trajectory_scores(responses: pd.DataFrame, points: int = 101) -> pd.DataFrame:
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
            scores["single_position"] = tokens_at_positions(rows, points)[:, position]
        for name, values in scores.items():
            columns = {"estimator": name, "confidence": values, "correct": rows.correct}
            parts.append(rows[KEYS].assign(**columns))
    return pd.concat(parts, ignore_index=True)


def tokens_at_positions(responses: pd.DataFrame, points: int = 101) -> np.ndarray:
    """Return `probabilities_at_positions` of each response, (responses, points)."""
    return np.stack(
        [probabilities_at_positions(logprobs, points) for logprobs in responses.response]
    )


def choose_position(calibration: pd.DataFrame, points: int = 101) -> int | None:
    """Return the index of the position whose tokens best tell right from wrong responses.

    None if the rows of one pair are all right, or all wrong. Ties go to the first position.
    """
    if calibration.correct.nunique() < 2:
        return None
    tokens = tokens_at_positions(calibration, points)
    return int(np.argmax([auroc(scores, calibration.correct) for scores in tokens.T]))


def summarize_answer_tokens(responses: pd.DataFrame) -> pd.DataFrame:
    """Return the `median` probability of the answers' tokens by pair."""
    medians = answer_token_logprobs(responses).groupby(PAIR, sort=False)["logprob"].median()
    return np.exp(medians).rename("median").reset_index()


# ---- costs


def count_tokens(
    generations: pd.DataFrame, verification: pd.DataFrame, dropout: pd.DataFrame
) -> pd.DataFrame:
    """Return the mean tokens of an evaluation question by pair and estimator, beyond the response.

    The row of the response has its own tokens and its prompt's. Each pass with dropout reads prompt
    and response up to the answer's end. Columns: SCORE_CELL, value, metric (`tokens`).
    """
    passes = dropout.loc[dropout["selected"], [*KEYS, "predictive"]].merge(generations, on=KEYS)
    read = [row.prompt_tokens + answer_span(row)[1] - 1 for row in passes.itertuples()]
    values = (
        (
            generations,
            RESPONSE_ITSELF,
            generations["prompt_tokens"] + generations["token_ids"].map(len),
        ),
        (verification, "p_true", verification["standard_tokens"]),
        (verification, "p_true_insitu", verification["in_situ_tokens"]),
        (passes, "c_bald", passes["predictive"].map(len) * pd.Series(read, dtype=float)),
    )
    rows = pd.concat(
        [frame[KEYS].assign(estimator=name, value=tokens) for frame, name, tokens in values]
    )
    means = (
        evaluation_rows(rows)
        .astype({"value": float})
        .groupby(SCORE_CELL, sort=False)["value"]
        .mean()
    )
    return means.reset_index().assign(metric="tokens")


def cost_and_quality(costs: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """Return by pair and estimator: all tokens of a question with its response, ECE and AUROC of
    the raw score.

    `costs` are from `count_tokens`, `results` from `evaluate`.
    """
    measured = (
        results[results["metric"].isin(["ece", "auroc"])]
        .astype({"value": float})
        .dropna(subset="value")
    )
    table = measured.pivot(index=SCORE_CELL, columns="metric", values="value")
    table = table.reindex(columns=["ece", "auroc"]).reset_index()
    tokens = costs.set_index(SCORE_CELL)["value"]
    response = tokens.xs(RESPONSE_ITSELF, level="estimator").rename("response")
    table = table.join(response, on=PAIR).join(tokens.rename("further"), on=SCORE_CELL)
    return table.assign(tokens=table.pop("response") + table.pop("further").fillna(0.0))
