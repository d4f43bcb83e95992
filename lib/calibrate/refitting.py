"""Calibrators fitted again to resamples of their calibration rows.

The paper resamples evaluation rows and keeps every calibrator as it is. An interval of a calibrated
score then leaves out that another calibration set would have given another calibrator. Scores of
refitted calibrators have both kinds of chance, once their evaluation rows are resampled, too.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lib.calibrate.calibrator_base import Calibrator, Predict
from lib.random_streams import stream_seed
from lib.score.bootstrap import draw_resample_counts

REFITS = 500  # resamples of the calibration rows


def draw_calibration_counts(
    n: int, seed: int, pair: Sequence[str], refits: int = REFITS
) -> np.ndarray:
    """Return how often each of a pair's n calibration rows is in each resample, (refits, n).

    All calibrators of a pair share these draws, which evaluation rows do not use.

    Examples
    --------
    >>> draw_calibration_counts(4, seed=0, pair=("model", "dataset"), refits=3).sum(axis=1)
    array([4, 4, 4])
    """
    blocks = draw_resample_counts(n, refits, stream_seed(seed, "calibration rows", *pair))
    return np.concatenate(blocks).astype(int)


def refit(
    calibrator: Calibrator, score: Any, correct: np.ndarray, counts: np.ndarray
) -> list[Predict]:
    """Fit a calibrator again to resamples of its calibration rows.

    `score` is its input of n rows, `correct` whether they are right (n,), and `counts` how often
    each is in a resample, (refits, n).

    Examples
    --------
    >>> from lib.calibrate.calibrators import Isotonic
    >>> refits = refit(Isotonic(), np.array([0.4, 0.8]), np.array([0.0, 1.0]),
    ...                np.array([[1, 1], [2, 0]]))
    >>> predict_by_each(refits, np.array([0.5, 0.9]))
    array([[0.25, 1.  ],
           [0.  , 0.  ]])
    """
    fit = calibrator.fit_many(score, correct)
    every_row = np.arange(len(correct))
    return [fit(every_row, weights) for weights in counts.astype(float)]


def predict_by_each(refits: Iterable[Predict], new: Any, joint: bool = False) -> np.ndarray:
    """Return the scores of k other rows, calibrated by each refit, (refits, k).

    `joint`: whether to calibrate Ans Joint instead of Ans Avg, for answer tokens.

    Examples
    --------
    >>> halve = lambda scores, joint: scores / 2
    >>> predict_by_each([halve, halve], np.array([0.5, 1.0]))
    array([[0.25, 0.5 ],
           [0.25, 0.5 ]])
    """
    return np.stack([predict(new, joint) for predict in refits])
