"""Calibrators of a confidence alone, whatever gave it; its log-odds are what Platt scaling takes.

P(True) is the sigmoid of the margin of its options, so a calibrator of that margin is one of it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import logit

from lib.calibrate.calibrators import METHODS, Calibrator, Method

LEAST_DISTANCE = 1e-6  # of a confidence from 0 and 1, whose log-odds are infinite


def log_odds(confidence: Any) -> np.ndarray:
    """Return the log-odds of a confidence (n,).

    Examples
    --------
    >>> log_odds([0.5, 1.0]).round(1)
    array([ 0. , 13.8])
    """
    scores = np.asarray(confidence, dtype=float)
    return logit(np.clip(scores, LEAST_DISTANCE, 1 - LEAST_DISTANCE))


# what a kind of input is of a confidence; answer tokens are nothing of it
FROM_CONFIDENCE: dict[str, Callable[[Any], np.ndarray]] = {
    "confidence": np.asarray,
    "margin": log_odds,
}


def list_calibrators() -> Iterator[tuple[Method, str, Calibrator]]:
    """Yield the methods that a confidence is enough for: method, kind of input, a new calibrator.

    Examples
    --------
    >>> [(method.name, kind) for method, kind, _ in list_calibrators()]
    [('isotonic', 'confidence'), ('platt', 'margin')]
    """
    for method in METHODS.values():
        for kind, calibrator in method.inputs.items():
            if kind in FROM_CONFIDENCE:
                yield method, kind, calibrator()
