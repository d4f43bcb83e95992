"""Table `tab:estimators`: one small pure function per row, and what applies them to the stored generations.

Log-probabilities (natural, one per token) go in, a probability in [0, 1] comes out; sums are float64. Every
choice that the paper leaves open and that needs no new generation (which log-probabilities, end token,
thinking text, responses without an answer, grader) is made here, when reading.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lib.project import UserError, nearest
from lib.store import KEYS
from lib.tasks.answers import answer_span, grade, parsed

MISSING = ("last_number", "drop", "zero")
SOURCES = {"model": "token_logprobs", "sampling": "token_logprobs_sampling"}
ROUNDING = 1e-5  # a float32 log-softmax may come out this much above 0


def _log(logprobs: Any) -> np.ndarray:
    """float64 log-probabilities, at most 0; ValueError when there are none, or one is NaN or above 0."""
    values = np.asarray(logprobs, dtype=np.float64)
    if values.size == 0 or not (values <= ROUNDING).all():  # NaN fails the comparison too
        raise ValueError("log-probabilities must be at least one number, none above 0")
    return np.minimum(values, 0.0)


def seq_joint(logprobs: Any) -> float:
    """Length-normalised joint probability (geometric mean) of the response's n tokens; `logprobs` is (n,)."""
    return float(np.exp(_log(logprobs).mean()))


def seq_avg(logprobs: Any) -> float:
    """Arithmetic mean of the probabilities of the response's n tokens; `logprobs` is (n,)."""
    return float(np.exp(_log(logprobs)).mean())


def ans_joint(logprobs: Any) -> float:
    """As `seq_joint`, on the answer's tokens alone."""
    return seq_joint(logprobs)


def ans_avg(logprobs: Any) -> float:
    """As `seq_avg`, on the answer's tokens alone."""
    return seq_avg(logprobs)


def p_true(margin: float) -> float:
    """Mass of the option for True over the mass of both, from the difference of their log-masses."""
    return float(np.exp(-np.logaddexp(0.0, -margin)))


def c_bald(bald: Any, support: Any = None) -> float:
    """Mean over the answer's tokens of phi(BALD_j), BALD_j (m,) in nats (`eq:bald`): phi = clip(1 - BALD, 0, 1), or,
    given the sizes of an effective `support` (m,), clip(1 - BALD / log support, 0, 1) (appendix `app:bald`)."""
    scale = 1.0 if support is None else np.log(np.maximum(np.asarray(support, dtype=np.float64), 2))
    return float(np.clip(1 - np.asarray(bald, dtype=np.float64) / scale, 0, 1).mean())


@dataclass(frozen=True)
class Estimator:
    """One row of `tab:estimators`. `needs` names the signal that `function` takes."""

    name: str
    label: str  # LaTeX
    plain: str
    definition: str  # LaTeX
    group: str  # "single_pass" | "multi_pass"
    needs: str  # "response" | "answer" (log-probabilities) | "verification" | "in situ" | "dropout"
    function: Callable[..., float] | None = None


def _joint(index: str, length: str, token: str) -> str:
    return rf"$\left(\prod_{{{index}=1}}^{{{length}}} {token}\right)^{{1/{length}}}$"


def _avg(index: str, length: str, token: str) -> str:
    return rf"$\frac{{1}}{{{length}}}\sum_{{{index}=1}}^{{{length}}}{token}$"


_SEQ = ("i", r"|\hat{\bm{y}}|", r"\mathbb{P}(y_i \mid \bm{x}, \hat{\bm{y}}_{<i})")
_ANS = ("j", r"|\yans|", r"\mathbb{P}(y^{\mathrm{ans}}_j \mid \bm{x}, \yreason, \yans_{<j})")
_BALD = ("j", r"|\yans|", r"\phi(\mathrm{BALD}_j)")
_TRUE = r"\mathbb{P}(y_{\mathtt{True}}\mid \bm{x}^{\mathrm{ver}})"
_PTRUE = rf"$\frac{{{_TRUE}}}{{{_TRUE}+{_TRUE.replace('True', 'False')}}}$"
_ONE, _MORE = "single_pass", "multi_pass"
_DECLARED = (
    Estimator("seq_joint", r"\textsc{Seq Joint}", "Seq Joint", _joint(*_SEQ), _ONE, "response", seq_joint),
    Estimator("seq_avg", r"\textsc{Seq Avg}", "Seq Avg", _avg(*_SEQ), _ONE, "response", seq_avg),
    Estimator("ans_joint", r"\textsc{Ans Joint}", "Ans Joint", _joint(*_ANS), _ONE, "answer", ans_joint),
    Estimator("ans_avg", r"\textsc{Ans Avg}", "Ans Avg", _avg(*_ANS), _ONE, "answer", ans_avg),
    Estimator("p_true", r"$\ptrue$", "P(True)", _PTRUE, _MORE, "verification", p_true),
    Estimator("c_bald", r"$c_{\mathrm{BALD}}$", "c_BALD", _avg(*_BALD), _MORE, "dropout", c_bald),
    # of `tab:insitu_ptrue` alone: no definition of its own, and no column of the result tables
    Estimator("p_true_insitu", r"In-situ $\ptrue$", "In-situ P(True)", "", _MORE, "in situ", p_true),
)
ESTIMATORS: dict[str, Estimator] = {estimator.name: estimator for estimator in _DECLARED}


def in_columns(names: Iterable[str]) -> list[Estimator]:
    """The defined ones among `names` in the order of the result tables: by signal, then Avg before Joint."""
    signals = list(dict.fromkeys(e.needs for e in ESTIMATORS.values()))
    chosen = [e for name, e in ESTIMATORS.items() if name in set(names) and e.definition]
    return sorted(chosen, key=lambda e: (signals.index(e.needs), e.name))


# ---- from the generations frame to confidence


def _response(row: Any, logprobs: np.ndarray, include_eos: bool, include_thinking: bool) -> np.ndarray:
    """What the sequence estimators see; where a choice would leave nothing, it is not applied."""
    end = len(logprobs) - (0 if include_eos else int(row.eos))
    start = 0 if include_thinking else int(row.thinking_end)
    return next((part for part in (logprobs[start:end], logprobs[:end]) if part.size), logprobs)


def signals(
    frame: pd.DataFrame,
    *,
    grader: str = "numeric",
    missing: str = "last_number",
    token_source: str = "model",
    include_eos: bool = False,
    include_thinking: bool = True,
) -> pd.DataFrame:
    """The generations as the reading-time choices see them, one row each: KEYS, parsed, correct, and the
    log-probabilities that estimators need: `response` (n,), `answer` (m,) or None where `missing` is zero;
    and `span`, the positions of the answer's tokens."""
    for name, value, options in (("missing", missing, MISSING), ("token_source", token_source, SOURCES)):
        if value not in options:
            raise UserError(f"{name}: '{value}' is not a choice; {nearest(value, options)}")
    rows = list(frame.itertuples(index=False))
    pairs = [(row, np.asarray(getattr(row, SOURCES[token_source]), dtype=np.float64)) for row in rows]
    spans = [None if missing == "zero" and not parsed(row) else answer_span(row) for row in rows]
    columns: dict[str, tuple[list, type]] = {
        "parsed": ([parsed(row) for row in rows], bool),
        "correct": ([parsed(row) and grade(row.answer, row.reference, grader) for row in rows], bool),
        "response": ([_response(*pair, include_eos, include_thinking) for pair in pairs], object),
        "answer": ([None if s is None else p[slice(*s)] for (_, p), s in zip(pairs, spans, strict=True)], object),
        "span": (spans, object),
    }
    read = frame[KEYS].reset_index(drop=True)
    read = read.assign(**{name: pd.Series(values, dtype=kind) for name, (values, kind) in columns.items()})
    return read[read.parsed].reset_index(drop=True) if missing == "drop" else read


def single_pass(frame: pd.DataFrame, **choices: Any) -> pd.DataFrame:
    """The tidy confidence frame of all single-pass estimators: KEYS, estimator, confidence, correct;
    `choices` are those of `signals`."""
    read, parts = signals(frame, **choices), []
    for e in in_columns(ESTIMATORS):
        if e.group == "single_pass" and (function := e.function):
            values = np.array([0.0 if x is None else function(x) for x in read[e.needs]], dtype=float)
            parts.append(read[KEYS].assign(estimator=e.name, confidence=values, correct=read.correct))
    return pd.concat(parts, ignore_index=True)


def coverage(frame: pd.DataFrame, split: str = "evaluation") -> pd.DataFrame:
    """Per model and dataset: rows, shares without parsable answer (`unparsed`) and cut by length (`cut`)."""
    part = frame[frame.split == split]
    unparsed = [not parsed(row) for row in part.itertuples(index=False)]
    flags = part[["model", "dataset"]].assign(rows=1, unparsed=unparsed, cut=part.finish_reason == "length")
    shares = flags.groupby(["model", "dataset"], sort=False)
    return shares.agg({"rows": "sum", "unparsed": "mean", "cut": "mean"}).reset_index()


# ---- what `fig:main_analysis` (a) and the density of answer tokens are drawn from


def running_mean(logprobs: Any, points: int = 101) -> np.ndarray:
    """Seq Avg with a growing window, (points,): the mean probability of the first i of n tokens stands at
    i/n, interpolated on an even grid of [0, 1]; flat before the first token; the last point is Seq Avg."""
    probabilities = np.exp(_log(logprobs))
    count = np.arange(1, probabilities.size + 1)
    return np.interp(np.linspace(0, 1, points), count / count[-1], np.cumsum(probabilities) / count)


def band(curves: np.ndarray, least: float = 0.0, most: float = np.inf) -> pd.DataFrame:
    """Mean over the n rows of `curves` (n, points) and its 95% confidence interval (normal approximation, cut to what
    is possible), a row per point: mean, low, high, n."""
    mean, n = curves.mean(axis=0), len(curves)
    half = 1.96 * curves.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.zeros_like(mean)
    low, high = np.clip(mean - half, least, most), np.clip(mean + half, least, most)
    return pd.DataFrame({"mean": mean, "low": low, "high": high, "n": n})


def running_mean_curves(
    frame: pd.DataFrame, points: int = 101, split: str = "evaluation", **choices: Any
) -> pd.DataFrame:
    """Right and wrong responses apart: correct, position and the columns of `band`. A kind that does not occur has no
    rows."""
    parts = [pd.DataFrame(columns=["mean", "low", "high", "n", "correct", "position"])]
    for correct, group in signals(frame[frame.split == split], **choices).groupby("correct"):
        curves = np.stack([running_mean(x, points) for x in group.response])  # (responses, points)
        parts.append(band(curves, 0, 1).assign(correct=bool(correct), position=np.linspace(0, 1, points)))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def answer_tokens(frame: pd.DataFrame, split: str = "evaluation", **choices: Any) -> pd.DataFrame:
    """One row per answer token: model, dataset, example_id, correct, logprob."""
    read = signals(frame[frame.split == split], **choices).dropna(subset="answer")
    tokens = read[["model", "dataset", "example_id", "correct"]].assign(logprob=read.answer)
    return tokens.explode("logprob", ignore_index=True).astype({"logprob": float, "correct": bool})
