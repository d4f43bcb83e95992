"""Calibrators fitted again to resamples of their calibration rows.

The paper resamples evaluation rows and keeps every calibrator as it is. An interval of a calibrated
score then leaves out that another calibration set would have given another calibrator. The scores
of `refit_scores` have both kinds of chance, once their evaluation rows are resampled, too.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lib.calibrate.calibrators import Calibrator
from lib.random_streams import stream_seed
from lib.score.evaluation import draw_resample_counts

REFITS = 500  # resamples of the calibration rows


def draw_calibration_counts(
    n: int, seed: int, pair: Sequence[str], refits: int = REFITS
) -> np.ndarray:
    """Return how often each of a pair's n calibration rows is in each resample, (refits, n).

    All calibrators of a pair share these draws, which evaluation rows do not use.
    """
    blocks = draw_resample_counts(n, refits, stream_seed(seed, "calibration rows", *pair))
    return np.concatenate(blocks)


def refit_scores(
    calibrator: Calibrator,
    score: Any,
    correct: np.ndarray,
    new: Any,
    counts: np.ndarray,
    joint: bool,
) -> np.ndarray:
    """Return the scores of k other rows, calibrated anew for each resample, (refits, k).

    Parameters
    ----------
    calibrator : an unfitted calibrator
    score, correct : input (n,) of its calibration rows, and whether they are right (n,)
    new : input of the other rows
    counts : (refits, n), from `draw_calibration_counts`
    joint : whether to calibrate Ans Joint instead of Ans Avg, for answer tokens
    """
    predict = calibrator.fit_many(score, correct, new, joint)
    every_row = np.arange(len(correct))
    return np.stack([predict(every_row, weights) for weights in counts.astype(float)])
