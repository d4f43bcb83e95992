"""From which score up a run answers at a guaranteed precision, read from what 09 stored; and what a
guarantee would take where there is none."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from lib.analysis.answer_thresholds import TESTING_SHARE, count_more_labels
from lib.params import SelectivePrediction

TESTED_SHARE = 2 / 3  # of the calibration rows, for thresholds


class Estimate(NamedTuple):
    """A number with the ends of its 95% interval."""

    value: float
    low: float
    high: float


class AnsweringThreshold(NamedTuple):
    """When to answer: from which raw score up a precision is guaranteed.

    `threshold` is None where no threshold is, for a `reason`; `more` is then about how many more
    calibration rows one takes (None: unknown). `precision` is that of the `answered` evaluation
    rows.
    """

    target: float
    certainty: float
    threshold: float | None
    answered: float
    precision: Estimate
    reason: str
    more: int | None


def share_with_interval(count: int, total: int) -> Estimate:
    """Return a share with its exact binomial interval; NaN of nothing.

    Examples
    --------
    >>> share_with_interval(5, 10).value, round(share_with_interval(5, 10).low, 3)
    (0.5, 0.187)
    """
    if not total:
        return Estimate(np.nan, np.nan, np.nan)
    ends = binomtest(count, total).proportion_ci()
    return Estimate(count / total, float(ends.low), float(ends.high))


def read_threshold(
    thresholds: pd.DataFrame,
    calibrating: pd.DataFrame,
    estimator: str,
    settings: SelectivePrediction,
) -> AnsweringThreshold | None:
    """Return the threshold of a score for the first target precision, from what 09 stored."""
    target = settings.target_precisions[0]
    chosen = thresholds[(thresholds.estimator == estimator) & (thresholds.target == target)]
    if chosen.empty:
        return None
    row = chosen.iloc[0]
    certainty = settings.precision_confidence
    if pd.isna(row.threshold):
        rows = calibrating[calibrating.estimator == estimator]
        more = count_more_rows(rows, target, certainty)
        nothing = Estimate(np.nan, np.nan, np.nan)
        return AnsweringThreshold(target, certainty, None, 0.0, nothing, row.reason, more)
    answered = round(row.answered * row.n)
    right = 0 if pd.isna(row.precision) else round(row.precision * answered)
    precision = share_with_interval(right, answered)
    return AnsweringThreshold(
        target, certainty, float(row.threshold), float(row.answered), precision, "", None
    )


def count_more_rows(rows: pd.DataFrame, target: float, certainty: float) -> int | None:
    """Return about how many more calibration rows would guarantee a precision, if answers stay as
    good as in these; None if no threshold has so many right."""
    confidence = rows.confidence.to_numpy()
    more = count_more_labels(confidence, rows.correct.to_numpy(bool), target, certainty)
    if pd.isna(more):
        return None
    needed = (len(rows) + int(more)) * TESTING_SHARE / TESTED_SHARE
    return max(1, int(np.ceil(needed)) - len(rows))
