"""What all calibrators share: weights, checks, and rows of a single class.

They follow scikit-learn's conventions: `fit` on calibration rows, `predict` on others, learned attributes with a
trailing underscore, optional sample weights. Rows of a single class do not determine a curve: isotonic regression and
Platt scaling then predict the class, and the temperature goes to its bound.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from lib.calibrate.answer_logits import AnswerLogits

Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]  # rows, their weights -> scores of the evaluation rows


def _rows(score: Any) -> Any:
    """Return scores as an array (n,), or answer tokens of n rows as they are. Raise ValueError for other dimensions."""
    if isinstance(score, AnswerLogits):
        return score
    scores = np.asarray(score, dtype=float)
    if scores.ndim != 1:
        raise ValueError(f"scores must have one dimension, not {scores.ndim}")
    return scores


def _counted_rows(score: Any, y: np.ndarray, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return scores, labels and weights of the rows with weight. Raise ValueError for rows that can't be fitted."""
    if y.ndim != 1 or len(score) != len(y) or not np.isin(y, (0, 1)).all():
        raise ValueError("fit needs as many scores (n,) as labels (n,), and labels that are only true and false")
    w = np.ones_like(y) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    if w.shape != y.shape or not ((w >= 0) & np.isfinite(w)).all():
        raise ValueError("fit needs as many weights (n,) as labels (n,), which are finite and not negative")
    if not w.all():
        counted = np.flatnonzero(w)
        score, y, w = score[counted], y[counted], w[counted]
    if not isinstance(score, AnswerLogits) and not np.isfinite(score).all():
        raise ValueError("fit needs finite scores, without NaN and infinity")
    return score, y, w


class Calibrator(BaseEstimator):
    """Base class: weights, and a constant prediction for single-class data that the method can't fit."""

    n_rows_: float  # number of rows that it was fitted to, each counted with its weight
    fits_one_class = True
    symbols: Mapping[str, str] = {}  # learned numbers by their symbol in the tables
    flags: Mapping[str, str] = {}  # notes by the learned flag that calls for them
    constant_: float | None

    def fit(self, score: Any, correct: Any, sample_weight: Any = None) -> Self:
        """Fit on calibration rows.

        Parameters
        ----------
        score : array of shape (n,), or AnswerLogits
            Confidence, margin or answer tokens, depending on the method.
        correct : array of shape (n,)
            True or false, or 1 and 0. Without rows, every prediction is .5.
        sample_weight : array of shape (n,), optional
            How many times each row counts, 0 or more: weight 0 is as if absent, weight 2 as if twice.

        Raises
        ------
        ValueError
            Other labels, negative weights, infinite scores, arrays of unequal lengths or of two dimensions.
        """
        score, y, w = _counted_rows(_rows(score), np.asarray(correct, dtype=float), sample_weight)
        self.n_rows_ = len(y) if sample_weight is None else float(w.sum())
        self.saw_one_class_ = len(set(y)) < 2
        self.constant_ = self._constant(y)
        if self.constant_ is None:
            self._fit(score, y, w)
        return self

    def predict(self, score: Any, joint: bool = False) -> np.ndarray:
        """Calibrate scores of other rows.

        Parameters
        ----------
        score
            As for `fit`.
        joint : bool
            Whether to calibrate Ans Joint instead of Ans Avg, for answer tokens.

        Returns
        -------
        array of shape (n,)
            Confidence in [0, 1].

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            An array of two dimensions.
        """
        check_is_fitted(self, "constant_")
        if self.constant_ is not None:
            return np.full(len(_rows(score)), self.constant_)
        return self._predict(_rows(score), joint)

    def on_subsets(self, score: Any, correct: np.ndarray, new: Any) -> Predict:
        """Return a function that fits on a subset of rows and predicts for `new`, for repeated calls."""

        own = clone(self)  # so that this calibrator stays as it is

        def predict(rows: np.ndarray, sample_weight: np.ndarray) -> np.ndarray:
            with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
                return own.fit(score[rows], correct[rows], sample_weight).predict(new)

        return predict

    def _constant(self, y: np.ndarray) -> float | None:
        """Return the prediction without rows, or the class of rows that the method can't fit; None if it fits them."""
        if not len(y):
            return 0.5
        return None if self.fits_one_class or len(set(y)) > 1 else float(y[0])

    @property
    def learned(self) -> dict[str, float | None]:
        """Learned numbers by their symbol in the tables: t, or a and b."""
        return {symbol: getattr(self, name) for symbol, name in self.symbols.items()}

    @property
    def note(self) -> str:
        """Anything unusual about the fit, for the column `reason`."""
        if self.saw_one_class_:
            return "one class only"
        return next((note for flag, note in self.flags.items() if getattr(self, flag)), "")
