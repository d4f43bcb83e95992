"""Where in a response the signal is, by pair: answer tokens, single positions, growing windows, length, and what is
lost when no answer can be read. Responses as `interpret_responses` returns them, on one split."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import linregress, spearmanr

from lib.params import Reading
from lib.score.curves import running_mean
from lib.score.estimators import seq_joint, validate_logprobs
from lib.score.metrics import auroc
from lib.store import PAIR
from lib.tasks.answers import grade, has_answer


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


def verification_costs(verification: pd.DataFrame, generations: pd.DataFrame, split: str = "evaluation"
                       ) -> pd.DataFrame:  # fmt: skip
    """By pair: R squared of the tokens of P(True)'s own prompt on those of what it encodes again, the question (in its
    prompt) and the answer without its thinking (`r2`), and rank correlation of the share that is saved in situ with
    those of the response (`saving`)."""
    keys, parts = [*PAIR, "split", "example_id"], []
    length = generations[keys].assign(length=generations.token_ids.map(len))
    length["again"] = generations.prompt_tokens + length["length"] - generations.thinking_end
    rows = verification[verification.split == split].merge(length, on=keys)
    for pair, part in rows.groupby(PAIR, sort=False):
        saved = 1 - part.in_situ_tokens / part.standard_tokens
        varied = part.again.nunique() > 1
        r2 = float(linregress(part.again, part.standard_tokens).rvalue ** 2) if varied else np.nan
        parts.append((*pair, r2, rank_correlation(list(saved), list(part.length))))
    return pd.DataFrame(parts, columns=[*PAIR, "r2", "saving"])
