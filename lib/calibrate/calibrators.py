"""Post-hoc calibration: isotonic regression, temperature on the answer tokens, Platt scaling on the
option margin.

They are used as lib.calibrate.calibrator_base says. Rows of a single class do not determine a
curve: isotonic regression and Platt scaling then predict the class, and the temperature goes to its
bound.

To add a calibrator, write its class and add a row to METHODS: tables, curves, transfer and figures
include it. Its learned attributes must be numbers or arrays, so that
`calibrator_files.save_calibrators` can keep it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression, minimize_scalar
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.calibrator_base import Calibrator, Predict, Refit, as_rows
from lib.calibrate.optima import maximize_likelihood, parabolic_argmin
from lib.stored_columns import COLDEST, HOTTEST, temperatures

ANSWER_ESTIMATORS = {"ans_avg": False, "ans_joint": True}  # value: argument `joint` of `predict`


class Isotonic(Calibrator):
    """scikit-learn's isotonic regression on confidence scores (n,), clipped outside the fitted
    range.

    It depends only on the order of scores. The order of nearly equal ones may differ between
    processors.

    Examples
    --------
    >>> isotonic = Isotonic().fit([0.2, 0.4, 0.6, 0.8], [False, True, False, True])
    >>> isotonic.predict([0.1, 0.5, 0.9])
    array([0. , 0.5, 1. ])
    >>> isotonic.is_outside([0.1, 0.5])
    array([ True, False])
    """

    def _fit(self, score: Any, y: np.ndarray, w: np.ndarray) -> None:
        fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        fitted.fit(score, y, sample_weight=w)
        self.x_ = fitted.X_thresholds_
        self.y_ = fitted.y_thresholds_

    def _predict(self, score: Any, joint: bool) -> np.ndarray:
        return np.interp(score, self.x_, self.y_)

    def fit_many(self, score: np.ndarray, correct: np.ndarray) -> Refit:
        """Do as the base method, ten times faster: scores are sorted once."""
        values, place = np.unique(score, return_inverse=True)

        def fit(rows: np.ndarray, sample_weight: np.ndarray) -> Predict:
            level = place[rows]
            weight_if_right = sample_weight * correct[rows]
            right = np.bincount(level, weight_if_right, minlength=len(values))
            weight = np.bincount(level, sample_weight, minlength=len(values))
            used = np.flatnonzero(weight)
            fitted = Isotonic()
            fitted.constant_ = self._constant(used)
            if fitted.constant_ is not None:
                return fitted.predict
            rates = right[used] / weight[used]
            y = isotonic_regression(rates, weights=weight[used]).x
            # the ends of each block say as much as all its scores
            steps = y[1:] != y[:-1]
            is_end = np.ones(len(y), bool)
            is_end[1:-1] = steps[:-1] | steps[1:]
            fitted.x_ = values[used][is_end]
            fitted.y_ = y[is_end]
            return fitted._predict

        return fit

    def is_outside(self, score: Any) -> np.ndarray:
        """Whether each score (n,) lies outside the range of those fitted; without rows, all do."""
        score = as_rows(score)
        if self.constant_ is not None:
            return np.ones(len(score), bool)
        lowest = self.x_[0]
        highest = self.x_[-1]
        return (score < lowest) | (score > highest)


class SmoothedIsotonic(Isotonic):
    """Isotonic regression that promises no exact 0 or 1: for shipped calibrators, in no table.

    Each block of rows to which isotonic regression gives one value gets one more row, right by the
    base rate, which is the accuracy of all rows: its value becomes (right + base rate) / (rows +
    1). Small blocks move most, so a value may fall below that of the block before. Isotonic
    regression of these values, weighted by rows + 1, then pools the blocks again, so that none
    falls.

    Rows of one class have the base rate (right + 1) / (rows + 2), as the constant of the tables.

    Examples
    --------
    >>> smoothed = SmoothedIsotonic().fit([0.2, 0.4, 0.6, 0.8], [False, True, False, True])
    >>> smoothed.predict([0.1, 0.5, 0.9])
    array([0.25, 0.5 , 0.75])
    """

    def _fit(self, score: Any, y: np.ndarray, w: np.ndarray) -> None:
        super()._fit(score, y, w)
        _, knot_block = np.unique(self.y_, return_inverse=True)  # a block has 1 or 2 knots
        knot = np.searchsorted(self.x_, score, side="right") - 1
        row_block = knot_block[knot]
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

    Examples
    --------
    Four answers of one token, as probable as a sigmoid of 2, of which three are right, which is
    that of 2 / 1.82:

    >>> answers = AnswerLogits(4, np.arange(4), np.zeros(4), np.tile([0.0, -2.0], (4, 1)),
    ...                        np.full((4, 33), -1e6))
    >>> temperature = Temperature().fit(answers, [True, True, True, False])
    >>> round(temperature.temperature_, 2)
    1.82
    >>> temperature.predict(answers).round(3)
    array([0.75, 0.75, 0.75, 0.75])
    """

    symbols = {"t": "temperature_"}
    temperature_: float | None = None
    at_bound_: bool = False

    def _fit(self, score: AnswerLogits, y: np.ndarray, w: np.ndarray) -> None:
        def loss(log_t: float) -> float:
            losses = score.loss(np.exp(log_t), y > 0)
            return float(w @ losses)

        # the loss may have several minima: search a grid, then its best bracket
        grid = np.log(temperatures(41))
        last = len(grid) - 1
        best = int(np.argmin([loss(x) for x in grid]))
        lowest = grid[max(best - 1, 0)]
        highest = grid[min(best + 1, last)]
        bracket = (lowest, highest)
        optimum = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-9})
        x = optimum.x
        to_bound = min(x - grid[0], grid[last] - x)
        self.at_bound_ = bool(to_bound < 1e-6)
        if self.at_bound_:
            self.note_ = self.note_ or "at the bound"
        temperature = np.exp(x)
        self.temperature_ = float(np.clip(temperature, COLDEST, HOTTEST))

    def _predict(self, score: AnswerLogits, joint: bool) -> np.ndarray:
        return score.confidence(float(self.temperature_ or 1), joint)[0]

    def fit_many(self, score: AnswerLogits, correct: np.ndarray) -> Refit:
        """Approximate the base method, thousands of times faster: losses and confidence are
        computed once on a grid of temperatures. A subset's optimum is `parabolic_argmin`; its
        confidence is interpolated."""
        losses = score.loss_on_grid(correct)

        def fit(rows: np.ndarray, sample_weight: np.ndarray) -> Predict:
            fitted = Temperature()
            fitted.constant_ = self._constant(correct[rows][sample_weight > 0])
            if fitted.constant_ is not None:
                return fitted.predict
            place = parabolic_argmin(sample_weight @ losses[rows])
            return partial(_confidence_between, place)

        return fit


def _confidence_between(place: float, new: AnswerLogits, joint: bool = False) -> np.ndarray:
    """Return the confidence of rows at a place on the grid of temperatures, (n,)."""
    scores = 1 - new.on_grid[joint]
    last = scores.shape[1] - 1
    left = min(int(place), last - 1)
    at_left = scores[:, left]
    at_right = scores[:, left + 1]
    return at_left + (place - left) * (at_right - at_left)


class Platt(Calibrator):
    """Platt scaling: sigmoid(a m + b) on margins m (n,) by maximum likelihood; a may be negative.

    If a threshold separates the classes, the likelihood has no maximum. Then (`separable_`) it fits
    Platt's smoothed targets: (n_right + 1) / (n_right + 2) for correct and 1 / (n_wrong + 2) for
    incorrect rows.

    Examples
    --------
    >>> platt = Platt().fit([-2.0, -1.0, 1.0, 2.0], [False, True, False, True])
    >>> platt.predict([0.0]).round(3)
    array([0.5])
    >>> Platt().fit([-1.0, 1.0], [False, True]).separable_
    True
    """

    fits_one_class = False
    symbols = {"a": "a_", "b": "b_"}
    a_: float | None = None  # None without rows of both classes
    b_: float | None = None
    separable_: bool = False

    def _fit(self, score: np.ndarray, y: np.ndarray, w: np.ndarray) -> None:
        center = np.average(score, weights=w)
        variance = np.average((score - center) ** 2, weights=w)
        scale = np.sqrt(variance)
        if not scale:
            accuracy = w @ y / w.sum()
            self.a_ = 0.0
            self.b_ = float(logit(accuracy))
            self.separable_ = False
            return
        is_right = y > 0
        right = score[is_right]
        wrong = score[~is_right]
        right_above = right.min() >= wrong.max()
        wrong_above = wrong.min() >= right.max()
        self.separable_ = bool(right_above or wrong_above)
        target = y
        if self.separable_:
            self.note_ = "separable"
            target = _smoothed_targets(is_right, w)
        # each row as right and as wrong, weighted by its target
        standardized = (score - center) / scale
        x = np.tile(standardized, 2)[:, None]
        label = np.repeat([1, 0], len(score))
        weight = np.append(w * target, w * (1 - target))
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=1000)
        model.fit(x, label, sample_weight=weight)
        self.a_ = float(model.coef_[0, 0] / scale)
        self.b_ = float(model.intercept_[0] - self.a_ * center)

    def _predict(self, score: np.ndarray, joint: bool) -> np.ndarray:
        a = self.a_ or 0.0
        b = self.b_ or 0.0
        return expit(score * a + b)

    def fit_many(self, score: np.ndarray, correct: np.ndarray) -> Refit:
        """Do as the base method, ten times faster: Newton's steps on two numbers. Rows for which
        these do not converge (such as separable ones) take the base method."""
        fit_slowly = super().fit_many(score, correct)
        y = np.asarray(correct, dtype=float)

        def fit(rows: np.ndarray, sample_weight: np.ndarray) -> Predict:
            optimum = maximize_likelihood(score[rows], y[rows], sample_weight)
            if optimum is None:
                return fit_slowly(rows, sample_weight)
            fitted = Platt()
            fitted.a_, fitted.b_ = optimum
            return fitted._predict

        return fit


def _smoothed_targets(is_right: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return Platt's target of each row, (n,), which lies between those of the classes."""
    n_right = w[is_right].sum()
    n_wrong = w[~is_right].sum()
    of_right = (n_right + 1) / (n_right + 2)
    of_wrong = 1 / (n_wrong + 2)
    return np.where(is_right, of_right, of_wrong)


# ---- registry of methods, used by tables and figures


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
