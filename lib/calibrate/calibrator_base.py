"""What all calibrators have in common: rows are checked, weighted and counted, and rows of a single
class may give a constant.

Calibrators follow scikit-learn's conventions: `fit` on calibration rows, `predict` on others,
learned attributes with a trailing underscore, optional sample weights.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from lib.calibrate.answer_logits import AnswerLogits
from lib.score.validated_scores import row_weights

# other rows, and whether to calibrate Ans Joint -> their scores
Predict = Callable[[Any, bool], np.ndarray]
# rows of a subset, their weights -> its calibrator
Refit = Callable[[np.ndarray, np.ndarray], Predict]


def as_rows(score: Any) -> Any:
    """Return scores as an array (n,), or answer tokens of n rows as they are. Raise ValueError for
    other dimensions.

    Examples
    --------
    >>> as_rows([0.5, 1])
    array([0.5, 1. ])
    """
    if not isinstance(score, AnswerLogits):
        score = np.asarray(score, dtype=float)
        if score.ndim != 1:
            raise ValueError(f"scores must be a 1d array, not of shape {score.shape}")
    return score


class Calibrator(BaseEstimator):
    """Base class: weights, and a constant prediction for single-class data that the method can't
    fit."""

    fits_one_class = True
    symbols: Mapping[str, str] = {}  # learned numbers by their symbol in the tables
    n_rows_: float  # number of rows that it was fitted to, each counted with its weight
    note_: str  # anything unusual about the fit, for the column `reason`
    constant_: float | None

    def fit(self, score: Any, correct: Any, sample_weight: Any = None) -> Self:
        """Fit on calibration rows.

        Parameters
        ----------
        score : confidence or margin (n,), or the AnswerLogits of n rows, depending on the method
        correct : (n,), true or false, or 1 and 0; without rows, every prediction is .5
        sample_weight : (n,), how many times each row counts: weight 0 is as if absent, weight 2 as
            if twice

        Raise ValueError for other labels, negative weights, infinite scores, unequal lengths or two
        dimensions.
        """
        score = as_rows(score)
        y = np.asarray(correct, dtype=float)
        w = row_weights(sample_weight, len(y))
        equally_long = len(score) == len(y) == len(w)
        valid_labels = np.isin(y, (0, 1)).all()
        valid_weights = ((w >= 0) & np.isfinite(w)).all()
        if not (equally_long and valid_labels and valid_weights):
            raise ValueError(
                "fit needs equally many scores, labels (true or false) and weights "
                "(finite, 0 or more)"
            )
        counted = np.flatnonzero(w)
        score = score[counted]
        y = y[counted]
        w = w[counted]
        if not isinstance(score, AnswerLogits) and not np.isfinite(score).all():
            raise ValueError("fit needs finite scores, without NaN and infinity")
        self.n_rows_ = len(y) if sample_weight is None else float(w.sum())
        self.note_ = "one class only" if len(set(y)) < 2 else ""
        self.constant_ = self._constant(y)
        if self.constant_ is None:
            # all is checked by now
            with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
                self._fit(score, y, w)
        return self

    def predict(self, score: Any, joint: bool = False) -> np.ndarray:
        """Return the calibrated confidence of other rows, (n,) in [0, 1].

        Parameters
        ----------
        score : as for `fit`
        joint : whether to calibrate Ans Joint instead of Ans Avg, for answer tokens

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            An array of two dimensions, or NaN.
        """
        check_is_fitted(self, "constant_")
        score = as_rows(score)
        if not isinstance(score, AnswerLogits) and np.isnan(score).any():
            raise ValueError("predict needs scores without NaN")
        if self.constant_ is None:
            return self._predict(score, joint)
        return np.full(len(score), self.constant_)

    def fit_many(self, score: Any, correct: np.ndarray) -> Refit:
        """Return a function that fits on a subset of rows, for repeated calls.

        It takes the indices of the rows and their weights, and returns the subset's `predict`.
        """

        def fit(rows: np.ndarray, sample_weight: np.ndarray) -> Predict:
            fitted = clone(self)  # so that this calibrator stays as it is
            fitted.fit(score[rows], correct[rows], sample_weight)
            return fitted.predict

        return fit

    def _constant(self, y: np.ndarray) -> float | None:
        """Return the prediction without rows, or the class of rows that the method can't fit; None
        if it fits them."""
        if not len(y):
            return 0.5
        if self.fits_one_class or len(set(y)) > 1:
            return None
        return float(y[0])

    @property
    def learned(self) -> dict[str, float | None]:
        """Learned numbers by their symbol in the tables: t, or a and b."""
        return {symbol: getattr(self, name) for symbol, name in self.symbols.items()}
