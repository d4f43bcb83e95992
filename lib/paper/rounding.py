"""What rounding moves: every printed number again under noise as large as between two processors.

The order in which a processor sums is its own, so two of them give log-probabilities that differ in the last digits.
The noise drawn here is what was measured on the demo models in float32, between AVX-512 and SSE4.1 kernels;
`./run_all.sh verify` measures it between any two machines. bfloat16 rounds much more, and is not what is drawn. Which
tokens were sampled stays as it is, and so do the selected dropout rates and the ends of intervals.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from lib.analysis.results import Results
from lib.analysis.run_signals import CALIBRATED, Frames, RunSignals
from lib.analysis.run_signals import scores as confidence_of
from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.fitting import CalibrationData, DataByPair, ScoredSplit, calibrate, fit_answers
from lib.paper.exhibits import shown_numbers
from lib.params import Calibration
from lib.score.bootstrap import RESAMPLED, estimate_metrics
from lib.score.metrics import METRICS
from lib.store import KEYS

DRAWS = 10
# Standard deviations of the noise.
LOGPROB = 1.5e-7  # of a token's log-probability, nats; and for all that the token is not sure,
DOUBT = 2e-6  # so much more
LOGIT = 1.5e-6  # of a logit
BALD = 1e-5  # of BALD, as a share of it
ROUNDING_COLUMNS = ["table", "key", "value", "text", "moves", "moved", "draws"]

# ---- noise


def shaken(signals: RunSignals, rng: np.random.Generator) -> tuple[RunSignals, DataByPair]:
    """The signals with noise, and both splits of every pair made of them."""
    responses = signals.responses.assign(
        response=_shaken(signals.responses.response, _logprobs, rng),
        answer=_shaken(signals.responses.answer, _logprobs, rng))  # fmt: skip
    logits = {name: _shaken(signals.verification[name], _logits, rng) for name in ("standard_logits", "in_situ_logits")}
    verification, dropout = signals.verification.assign(**logits), _disagreeing(signals.dropout, rng)
    confidence = confidence_of(responses, verification, dropout, signals.reading)
    parts = {"responses": responses, "verification": verification, "dropout": dropout, "confidence": confidence}
    answers = confidence[confidence.estimator == "ans_avg"].set_index(KEYS).confidence
    sets = {
        pair: CalibrationData(*(_add_noise_to_rows(rows, answers, rng) for rows in splits))
        for pair, splits in signals.sets.items()
    }
    return replace(signals, **parts), sets


def _shaken(arrays: pd.Series, noise: Callable[..., np.ndarray], rng: np.random.Generator) -> pd.Series:
    """Arrays (any length, or None) with noise on each of their numbers."""
    there = [np.asarray(array, dtype=float) for array in arrays if array is not None]
    if not there:
        return arrays
    ends = np.cumsum([len(array) for array in there])
    new = iter(np.split(noise(np.concatenate(there), rng), ends[:-1]))
    return pd.Series([None if array is None else next(new) for array in arrays], arrays.index, dtype=object)


def _logprobs(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    size = LOGPROB - DOUBT * np.expm1(values)
    return np.minimum(values + size * rng.standard_normal(values.shape), 0)


def _logits(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return values + LOGIT * rng.standard_normal(values.shape)


def _disagreeing(dropout: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Passes of which the last alone counts, with noise on BALD."""
    last = [np.asarray(passes[-1], dtype=float) for passes in dropout.predictive]
    mean = [np.asarray(passes[-1], dtype=float) for passes in dropout.conditional]
    noisy = [some + BALD * (some - other) * rng.standard_normal(some.shape)
             for some, other in zip(last, mean, strict=True)]  # fmt: skip
    columns = {"predictive": noisy, "conditional": mean}
    lists = {name: pd.Series([[v] for v in values], dropout.index, dtype=object) for name, values in columns.items()}
    return dropout.assign(**lists)


def _add_noise_to_rows(rows: ScoredSplit, answers: pd.Series, rng: np.random.Generator) -> ScoredSplit:
    confidence = answers.loc[pd.MultiIndex.from_frame(rows.keys)].to_numpy()
    answers_kept = None if rows.answers is None else _add_noise_to_answers(rows.answers, rng)
    return replace(rows, confidence=confidence, answers=answers_kept)


def _add_noise_to_answers(answers: AnswerLogits, rng: np.random.Generator) -> AnswerLogits:
    """The kept logits with noise, relative to the largest as before; a token that is the largest stays it."""
    top = _logits(answers.top, rng)
    lead = top[:, :1].copy()
    largest = answers.chosen == answers.top[:, 0]
    chosen = np.where(largest, lead[:, 0], _logits(answers.chosen, rng))
    return replace(answers, top=top - lead, chosen=chosen - lead[:, 0], tail=_logits(answers.tail, rng))


# ---- what it moves


def frames_of(signals: RunSignals, sets: DataByPair, choices: Calibration, n_bins_ablation: Sequence[int]) -> Frames:
    """The frames of every table that hangs on log-probabilities, without intervals."""
    fitted, n_bins, closed = fit_answers(sets, choices), signals.reading.bins, signals.reading.closed
    calibrated, learned, _ = calibrate(signals.confidence, sets, fitted, choices)
    results = pd.concat([estimate_metrics(calibrated, n_bins, closed), learned], ignore_index=True)
    frames = signals.estimation(n_bins_ablation, [name for name in METRICS if name in RESAMPLED])
    frames |= signals.in_situ(frames["result_estimation"]) | signals.moved(sets, fitted)
    return frames | dict.fromkeys(("result_estimation_full", *CALIBRATED), results)


def draw_with_noise(
    here: Results, signals: RunSignals, choices: Calibration, n_bins_ablation: Sequence[int], draws: int, seed: int
) -> Iterator[pd.DataFrame]:
    """`shown_numbers` as they are, then of every draw of noise."""

    def again(some: RunSignals, sets: DataByPair) -> pd.DataFrame:
        return shown_numbers(replace(here, frames={**here.frames, **frames_of(some, sets, choices, n_bins_ablation)}))

    yield again(signals, signals.sets)
    for draw in range(draws):
        yield again(*shaken(signals, np.random.default_rng([seed, draw])))


def moves(
    here: Results,
    signals: RunSignals,
    choices: Calibration = Calibration(),  # noqa: B008  frozen
    n_bins_ablation: Sequence[int] = (10, 20, 30),
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """A row per printed number (COLUMNS): its value and its cell's text without noise, the largest change over the
    draws (`moves`), and in how many of the `draws` its cell reads otherwise (`moved`)."""
    before, *others = draw_with_noise(here, signals, choices, n_bins_ablation, draws, seed)
    before = before.set_index(["table", "key"])
    changes = pd.Series(0.0, before.index)
    moved = pd.Series(0, before.index)
    for other in others:
        other = other.set_index(["table", "key"]).reindex(before.index)
        changes = np.maximum(changes, (other.value - before.value).abs().fillna(np.inf))
        moved += other.text != before.text
    return before.assign(moves=changes, moved=moved, draws=draws).reset_index()[ROUNDING_COLUMNS]
