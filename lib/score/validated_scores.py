"""Scores and outcomes as arrays, checked, and means of them over rows with weights.

`sample_weight` of shape (..., n), such as the counts of bootstrap resamples, gives results of shape
(...).
"""

from typing import Any

import numpy as np


def validate_scores(confidence: Any, correct: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and 0/1 outcomes, (n,) float64. ValueError: no rows, unequal lengths, NaN,
    outside [0, 1].

    Examples
    --------
    >>> validate_scores([0.5, 1], [True, False])
    (array([0.5, 1. ]), array([1., 0.]))
    """
    c = np.asarray(confidence, dtype=np.float64)
    y = np.asarray(correct, dtype=np.float64)
    if c.ndim != 1 or c.shape != y.shape or c.size == 0:
        raise ValueError(
            f"confidence {c.shape} and correct {y.shape} must be equally long and not empty"
        )
    bad = ~((c >= 0) & (c <= 1))  # true for NaN, too
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(f"confidence must lie in [0, 1]: {c[first]} at row {first}")
    if not np.isin(y, (0, 1)).all():
        raise ValueError("correct must hold only true and false")
    return c, y


def row_weights(sample_weight: Any, n: int) -> np.ndarray:
    """Return weights of n rows, (..., n) float64: ones by default.

    Examples
    --------
    >>> row_weights(None, 3)
    array([1., 1., 1.])
    """
    if sample_weight is None:
        return np.ones(n)
    return np.asarray(sample_weight, dtype=np.float64)


def weighted_mean(values: np.ndarray, sample_weight: Any = None) -> Any:
    """Return the weighted mean of n values.

    Examples
    --------
    >>> weighted_mean(np.array([0.0, 1.0]), [[1, 1], [1, 3]])
    array([0.5 , 0.75])
    """
    if sample_weight is None:
        return values.mean()
    w = row_weights(sample_weight, values.size)
    return w @ values / w.sum(axis=-1)
