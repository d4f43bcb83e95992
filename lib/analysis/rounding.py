"""Numerical stability: recompute every printed number with noise as large as the difference between two CPUs.

CPUs differ in their summation order, so log-probabilities differ in the last digits. The noise was measured on the demo
models in float32, between AVX-512 and SSE4.1 kernels; `./run_all.sh verify` measures it between any two machines.
bfloat16 rounds much more and is not simulated. The sampled tokens, the selected dropout rates and the ends of intervals
are fixed.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from lib.analysis.dropout_statistics import BALD_TERMS
from lib.analysis.printed_numbers import printed_numbers
from lib.analysis.results import Results
from lib.analysis.run_signals import Frames, RunSignals, score_at_selected_rate
from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.fitting import CalibrationData, ScoredSplit
from lib.score.bootstrap import RESAMPLED
from lib.score.metrics import METRICS
from lib.store import KEYS

NOISE_DRAWS = 10
# Standard deviations of the noise.
LOGPROB_NOISE = 1.5e-7  # of a token's log-probability, nats; it increases with the token's uncertainty
UNCERTAINTY_FACTOR = 2e-6  # by this factor
LOGIT_NOISE = 1.5e-6  # of a logit
BALD_NOISE = 1e-5  # relative noise of BALD

# ---- noise


def add_noise_to_signals(signals: RunSignals, rng: np.random.Generator) -> RunSignals:
    """Return the signals with noise."""
    responses = signals.responses.assign(
        response=_add_noise_to_arrays(signals.responses.response, _noisy_logprobs, rng),
        answer=_add_noise_to_arrays(signals.responses.answer, _noisy_logprobs, rng),
    )
    logits = {
        name: _add_noise_to_arrays(signals.verification[name], _noisy_logits, rng)
        for name in ("standard_logits", "in_situ_logits")
    }
    verification, dropout = signals.verification.assign(**logits), _add_noise_to_bald(signals.dropout, rng)
    confidence = score_at_selected_rate(responses, verification, dropout, signals.reading)
    parts = {"responses": responses, "verification": verification, "dropout": dropout, "confidence": confidence}
    answers = confidence[confidence.estimator == "ans_avg"].set_index(KEYS).confidence
    sets = {
        pair: CalibrationData(*(_add_noise_to_rows(rows, answers, rng) for rows in splits))
        for pair, splits in signals.sets.items()
    }
    return replace(signals, **parts, sets=sets)


def _add_noise_to_arrays(arrays: pd.Series, noise: Callable[..., np.ndarray], rng: np.random.Generator) -> pd.Series:
    """Return arrays (any length, or None) with noise on each of their numbers."""
    return arrays.map(lambda array: None if array is None else noise(np.asarray(array, dtype=float), rng))


def _noisy_logprobs(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    size = LOGPROB_NOISE - UNCERTAINTY_FACTOR * np.expm1(values)
    return np.minimum(values + size * rng.standard_normal(values.shape), 0)


def _noisy_logits(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return values + LOGIT_NOISE * rng.standard_normal(values.shape)


def _add_noise_to_bald(dropout: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return passes with only the last value, with noise on BALD."""
    last, mean = ([np.asarray(passes[-1], dtype=float) for passes in dropout[name]] for name in BALD_TERMS)
    noisy = [
        some + BALD_NOISE * (some - other) * rng.standard_normal(some.shape)
        for some, other in zip(last, mean, strict=True)
    ]
    only_last = ([[entropies] for entropies in values] for values in (noisy, mean))
    return dropout.assign(**dict(zip(BALD_TERMS, only_last, strict=True)))


def _add_noise_to_rows(rows: ScoredSplit, answers: pd.Series, rng: np.random.Generator) -> ScoredSplit:
    confidence = answers.loc[pd.MultiIndex.from_frame(rows.keys)].to_numpy()
    answers_kept = None if rows.answers is None else _add_noise_to_answers(rows.answers, rng)
    return replace(rows, confidence=confidence, answers=answers_kept)


def _add_noise_to_answers(answers: AnswerLogits, rng: np.random.Generator) -> AnswerLogits:
    """Return the stored logits with noise, relative to the largest as before; the largest token stays the largest."""
    top = _noisy_logits(answers.top, rng)
    lead = top[:, :1].copy()
    largest = answers.chosen == answers.top[:, 0]
    chosen = np.where(largest, lead[:, 0], _noisy_logits(answers.chosen, rng))
    return replace(answers, top=top - lead, chosen=chosen - lead[:, 0], tail=_noisy_logits(answers.tail, rng))


# ---- the effect of noise


def recompute_frames(signals: RunSignals, n_bins_ablation: Sequence[int]) -> Frames:
    """Return the frames of every table that depends on log-probabilities, without intervals."""
    frames = signals.raw_frames(n_bins_ablation, [name for name in METRICS if name in RESAMPLED])
    frames |= signals.calibration_frames(RESAMPLED)
    return frames | {"result_estimation_full": frames["result_calibration"]}


def draw_with_noise(
    here: Results, signals: RunSignals, n_bins_ablation: Sequence[int], draws: int
) -> Iterator[pd.DataFrame]:
    """Yield the `printed_numbers` without noise, then those of every draw of noise."""
    noisy = (add_noise_to_signals(signals, np.random.default_rng([0, n])) for n in range(draws))
    for some in itertools.chain([signals], noisy):
        yield printed_numbers(replace(here, frames={**here.frames, **recompute_frames(some, n_bins_ablation)}))


def measure_noise_effect(
    here: Results,
    signals: RunSignals,
    n_bins_ablation: Sequence[int] = (10, 20, 30),
    draws: int = NOISE_DRAWS,
) -> pd.DataFrame:
    """Return the `printed_numbers` without noise, with the effect of noise on each.

    `moves` is the largest change over the draws, and `moved` the number of `draws` in which its cell changes.
    """
    before, *others = draw_with_noise(here, signals, n_bins_ablation, draws)
    before = before.set_index(["table", "key"])
    others = [other.set_index(["table", "key"]).reindex(before.index) for other in others]
    changes = pd.concat([(other.value - before.value).abs().fillna(np.inf) for other in others], axis=1).max(axis=1)
    moved = sum((other.text != before.text).astype(int) for other in others)
    return before.assign(moves=changes, moved=moved, draws=draws).reset_index()
