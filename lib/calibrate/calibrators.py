"""Post-hoc calibration: isotonic regression, temperature on the answer tokens, Platt scaling on the
option margin.

Calibrators follow scikit-learn's conventions: `fit` on calibration rows, `predict` on others,
learned attributes with a trailing underscore, optional sample weights. Rows of a single class do
not determine a curve: isotonic regression and Platt scaling then predict the class, and the
temperature goes to its bound.

To add a calibrator, write its class and add a row to METHODS: tables, curves, transfer and figures
include it. Its learned attributes must be numbers or arrays, so that `calibrator_files.save_calibrators` can
keep it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import sklearn
from scipy.optimize import isotonic_regression, minimize_scalar
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from lib.calibrate.answer_logits import AnswerLogits
from lib.stored_columns import COLDEST, HOTTEST, temperatures

ANSWER_ESTIMATORS = {"ans_avg": False, "ans_joint": True}  # value: argument `joint` of `predict`
NEWTON_STEPS = 30
LEAST_DETERMINANT = 1e-10  # of the two curvatures: below it, float64 cannot tell slope from offset
# rows, their weights -> scores of the evaluation rows
Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]


def as_rows(score: Any) -> Any:
    """Return scores as an array (n,), or answer tokens of n rows as they are. Raise ValueError for
    other dimensions."""
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
        score, y = as_rows(score), np.asarray(correct, dtype=float)
        w = np.ones_like(y) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        if (
            not len(score) == len(y) == len(w)
            or not np.isin(y, (0, 1)).all()
            or not ((w >= 0) & np.isfinite(w)).all()
        ):
            raise ValueError(
                "fit needs equally many scores, labels (true or false) and weights (finite, 0 or more)"
            )
        counted = np.flatnonzero(w)
        score, y, w = score[counted], y[counted], w[counted]
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
        return (
            self._predict(score, joint)
            if self.constant_ is None
            else np.full(len(score), self.constant_)
        )

    def fit_many(self, score: Any, correct: np.ndarray, new: Any, joint: bool = False) -> Predict:
        """Return a function that fits on a subset of rows and predicts for `new`, for repeated
        calls; `joint` as for `predict`."""
        own = clone(self)  # so that this calibrator stays as it is
        return lambda rows, weights: own.fit(score[rows], correct[rows], weights).predict(
            new, joint
        )

    def _constant(self, y: np.ndarray) -> float | None:
        """Return the prediction without rows, or the class of rows that the method can't fit; None
        if it fits them."""
        if not len(y):
            return 0.5
        return None if self.fits_one_class or len(set(y)) > 1 else float(y[0])

    @property
    def learned(self) -> dict[str, float | None]:
        """Learned numbers by their symbol in the tables: t, or a and b."""
        return {symbol: getattr(self, name) for symbol, name in self.symbols.items()}


class Isotonic(Calibrator):
    """scikit-learn's isotonic regression on confidence scores (n,), clipped outside the fitted
    range.

    It depends only on the order of scores. The order of nearly equal ones may differ between
    processors.
    """

    def _fit(self, score: Any, y: np.ndarray, w: np.ndarray) -> None:
        fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        fitted.fit(score, y, sample_weight=w)
        self.x_, self.y_ = fitted.X_thresholds_, fitted.y_thresholds_

    def _predict(self, score: Any, joint: bool) -> np.ndarray:
        return np.interp(score, self.x_, self.y_)

    def fit_many(
        self, score: np.ndarray, correct: np.ndarray, new: np.ndarray, joint: bool = False
    ) -> Predict:
        """Do as the base method, ten times faster: scores are sorted once."""
        values, place = np.unique(score, return_inverse=True)

        def predict(rows: np.ndarray, sample_weight: np.ndarray) -> np.ndarray:
            right = np.bincount(place[rows], sample_weight * correct[rows], minlength=len(values))
            weight = np.bincount(place[rows], sample_weight, minlength=len(values))
            drawn = weight > 0
            if not drawn.any():
                return np.full(len(new), 0.5)
            rate = right[drawn] / weight[drawn]
            fitted = isotonic_regression(rate, weights=weight[drawn]).x
            return np.interp(new, values[drawn], fitted)

        return predict

    def is_outside(self, score: Any) -> np.ndarray:
        """Whether each score (n,) lies outside the range of those fitted; without rows, all do."""
        score = as_rows(score)
        if self.constant_ is not None:
            return np.ones(len(score), bool)
        return (score < self.x_[0]) | (score > self.x_[-1])


class SmoothedIsotonic(Isotonic):
    """Isotonic regression that promises no exact 0 or 1: for shipped calibrators, in no table.

    Each block of rows to which isotonic regression gives one value gets one more row, right by the
    base rate, which is the accuracy of all rows: its value becomes (right + base rate) / (rows +
    1). Small blocks move most, so a value may fall below that of the block before. Isotonic
    regression of these values, weighted by rows + 1, then pools the blocks again, so that none
    falls.

    Rows of one class have the base rate (right + 1) / (rows + 2), as the constant of the tables.
    """

    def _fit(self, score: Any, y: np.ndarray, w: np.ndarray) -> None:
        super()._fit(score, y, w)
        knot_block = np.unique(self.y_, return_inverse=True)[1]  # a block has 1 or 2 knots
        row_block = knot_block[np.searchsorted(self.x_, score, side="right") - 1]
        rows = np.bincount(row_block, w)
        right = np.bincount(row_block, w * y)
        base_rate = right.sum() / rows.sum()
        if base_rate in (0, 1):
            base_rate = (right.sum() + 1) / (rows.sum() + 2)
        smoothed = (right + base_rate) / (rows + 1)
        place = np.arange(len(smoothed))
        pooled = IsotonicRegression().fit_transform(place, smoothed, sample_weight=rows + 1)
        self.y_ = pooled[knot_block]

    fit_many = Calibrator.fit_many  # not that of the plain regression


class Temperature(Calibrator):
    """Temperature scaling of the answer tokens: the t with the lowest log-loss of correctness.

    The log-loss is that of Ans Avg. Scores are `AnswerLogits`. The search covers [0.1, 20];
    `at_bound_` is set if it ends at a bound.
    """

    symbols = {"t": "temperature_"}
    temperature_: float | None = None
    at_bound_: bool = False

    def _fit(self, score: AnswerLogits, y: np.ndarray, w: np.ndarray) -> None:
        def loss(log_t: float) -> float:
            return float(w @ score.loss(np.exp(log_t), y > 0))

        # the loss may have several minima: search a grid, then its best bracket
        grid = np.log(temperatures(41))
        best = int(np.argmin([loss(x) for x in grid]))
        bracket = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        x = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-9}).x
        self.at_bound_ = bool(min(x - grid[0], grid[-1] - x) < 1e-6)
        if self.at_bound_:
            self.note_ = self.note_ or "at the bound"
        self.temperature_ = float(np.clip(np.exp(x), COLDEST, HOTTEST))

    def _predict(self, score: AnswerLogits, joint: bool) -> np.ndarray:
        return score.confidence(float(self.temperature_ or 1), joint)[0]

    def fit_many(
        self, score: AnswerLogits, correct: np.ndarray, new: AnswerLogits, joint: bool = False
    ) -> Predict:
        """Approximate the base method, thousands of times faster: losses and confidence are
        computed once at 161 temperatures. A subset's optimum is `parabolic_argmin`; its confidence
        is interpolated."""
        grid = temperatures(161)
        losses = np.stack([score.loss(t, correct) for t in grid], axis=1)
        scores = np.stack([new.confidence(t, joint)[0] for t in grid], axis=1)

        def predict(rows: np.ndarray, sample_weight: np.ndarray) -> np.ndarray:
            constant = self._constant(correct[rows][sample_weight > 0])
            if constant is not None:
                return np.full(len(new), constant)
            place = parabolic_argmin(sample_weight @ losses[rows])
            below = min(int(place), len(grid) - 2)
            return scores[:, below] + (place - below) * (scores[:, below + 1] - scores[:, below])

        return predict


def parabolic_argmin(loss: np.ndarray) -> float:
    """Return where a loss on an even grid is lowest, in steps: the vertex of the parabola through
    its lowest points."""
    k = int(np.clip(loss.argmin(), 1, len(loss) - 2))
    left, middle, right = loss[k - 1 : k + 2]
    bend = left - 2 * middle + right
    shift = 0.5 * (left - right) / bend if bend > 0 else 0
    return float(np.clip(k + shift, 0, len(loss) - 1))


class Platt(Calibrator):
    """Platt scaling: sigmoid(a m + b) on margins m (n,) by maximum likelihood; a may be negative.

    If a threshold separates the classes, the likelihood has no maximum. Then (`separable_`) it fits
    Platt's smoothed targets: (n_right + 1) / (n_right + 2) for correct and 1 / (n_wrong + 2) for
    incorrect rows.
    """

    fits_one_class = False
    symbols = {"a": "a_", "b": "b_"}
    a_: float | None = None
    b_: float | None = None
    separable_: bool = False

    def _fit(self, score: np.ndarray, y: np.ndarray, w: np.ndarray) -> None:
        right, wrong = score[y > 0], score[y == 0]
        n_right, n_wrong = w[y > 0].sum(), w[y == 0].sum()
        center = np.average(score, weights=w)
        scale = np.sqrt(np.average((score - center) ** 2, weights=w))
        if not scale:
            self.a_, self.b_, self.separable_ = 0.0, float(logit(w @ y / w.sum())), False
            return
        self.separable_ = bool(right.min() >= wrong.max() or wrong.min() >= right.max())
        target = y
        if self.separable_:
            self.note_ = "separable"
            target = np.where(y > 0, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))
        # each row as right and as wrong, weighted by its target
        x = np.tile((score - center) / scale, 2)[:, None]
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=1000)
        model.fit(
            x, np.repeat([1, 0], len(score)), sample_weight=np.append(w * target, w * (1 - target))
        )
        self.a_ = float(model.coef_[0, 0] / scale)
        self.b_ = float(model.intercept_[0] - self.a_ * center)

    def _predict(self, score: np.ndarray, joint: bool) -> np.ndarray:
        return expit(score * float(self.a_ or 0) + float(self.b_ or 0))

    def fit_many(
        self, score: np.ndarray, correct: np.ndarray, new: np.ndarray, joint: bool = False
    ) -> Predict:
        """Do as the base method, ten times faster: Newton's steps on two numbers. Rows for which
        these do not converge (such as separable ones) take the base method."""
        slowly = super().fit_many(score, correct, new, joint)
        y = np.asarray(correct, dtype=float)

        def predict(rows: np.ndarray, sample_weight: np.ndarray) -> np.ndarray:
            found = maximize_likelihood(score[rows], y[rows], sample_weight)
            if found is None:
                return slowly(rows, sample_weight)
            a, b = found
            return expit(a * new + b)

        return predict


def maximize_likelihood(
    score: np.ndarray, correct: np.ndarray, weight: np.ndarray
) -> tuple[float, float] | None:
    """Return the slope a and the offset b of sigmoid(a m + b) with the highest weighted likelihood,
    for margins m (n,); None if Newton's method does not converge."""
    a, b = 0.0, 0.0
    for _ in range(NEWTON_STEPS):
        p = expit(a * score + b)
        gap = weight * (correct - p)
        curvature = weight * p * (1 - p)
        of_a, of_b, cross = curvature @ score**2, curvature.sum(), curvature @ score
        determinant = of_a * of_b - cross**2
        if determinant <= LEAST_DETERMINANT * of_a * of_b:
            return None
        gap_a, gap_b = gap @ score, gap.sum()
        step_a = (of_b * gap_a - cross * gap_b) / determinant
        step_b = (of_a * gap_b - cross * gap_a) / determinant
        a, b = a + step_a, b + step_b
        if abs(step_a) + abs(step_b) < 1e-9:
            return a, b
    return None


# ---- registry of methods, used by tables, figures and experiments


@dataclass(frozen=True)
class Method:
    """A calibration method.

    `inputs` maps a kind of input (`confidence` (n,), `margin` (n,), or the tokens of `answers`) to
    its class. A method that takes confidence is fitted for every estimator.
    """

    name: str  # in the column `method`
    label: str  # in tables
    inputs: Mapping[str, type[Calibrator]]

    @property
    def answer_input(self) -> str:
        """Its input for the answer estimators: the answer tokens, or their confidence."""
        return "answers" if "answers" in self.inputs else "confidence"

    @property
    def answer_label(self) -> str:
        """Its name when only answer tokens are calibrated: isotonic, temperature."""
        return self.inputs[self.answer_input].__name__.lower()


METHODS = {
    "isotonic": Method("isotonic", "Isotonic", {"confidence": Isotonic}),
    # the paper reports both as Platt
    "platt": Method("platt", "Platt", {"answers": Temperature, "margin": Platt}),
}
