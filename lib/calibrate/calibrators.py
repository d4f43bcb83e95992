"""Post-hoc calibration: isotonic regression, temperature on the answer tokens, Platt scaling on the option margin.

To add a calibrator, write its class and add a row to METHODS: tables, curves, transfer and figures include it. Its
learned attributes must be numbers or arrays, so that `calibrator_files` can save it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from lib.calibrate.answer_logits import AnswerLogits
from lib.calibrate.base_calibrator import Calibrator, Predict
from lib.paths import check_choice
from lib.stored_columns import COLDEST, HOTTEST, temperatures

ANSWER_ESTIMATORS = {"ans_avg": False, "ans_joint": True}  # value: argument `joint` of `predict`


class Isotonic(Calibrator):
    """scikit-learn's isotonic regression on confidence scores (n,), clipped outside the fitted range.

    It depends only on the order of scores. The order of nearly equal ones may differ between processors.
    """

    def _fit(self, score: Any, y: np.ndarray, w: np.ndarray) -> None:
        fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        fitted.fit(score, y, sample_weight=w)
        self.x_, self.y_ = fitted.X_thresholds_, fitted.y_thresholds_

    def _predict(self, score: Any, joint: bool) -> np.ndarray:
        return np.interp(score, self.x_, self.y_)


class Temperature(Calibrator):
    """Temperature scaling of the answer tokens: the t with the lowest log-loss of correctness.

    The log-loss is that of Ans Avg, or of the estimator `target`. Scores are `AnswerLogits`. The search covers
    [0.1, 20]; `at_bound_` is set if it ends at a bound.
    """

    symbols = {"t": "temperature_"}
    flags = {"at_bound_": "at the bound"}
    temperature_: float | None = None
    at_bound_: bool = False

    def __init__(self, target: str = "ans_avg"):
        self.target = check_choice("target", target, ANSWER_ESTIMATORS)

    @property
    def _joint(self) -> bool:
        return ANSWER_ESTIMATORS[check_choice("target", self.target, ANSWER_ESTIMATORS)]  # `set_params` sets it, too

    def _fit(self, score: AnswerLogits, y: np.ndarray, w: np.ndarray) -> None:
        def loss(log_t: float) -> float:
            return float(w @ score.loss(np.exp(log_t), y > 0, self._joint))

        grid = np.log(temperatures(41))  # the loss may have several minima: search a grid, then its best bracket
        best = int(np.argmin([loss(x) for x in grid]))
        bracket = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        x = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-9}).x
        self.at_bound_ = bool(min(x - grid[0], grid[-1] - x) < 1e-6)
        self.temperature_ = float(np.clip(np.exp(x), COLDEST, HOTTEST))

    def _predict(self, score: AnswerLogits, joint: bool) -> np.ndarray:
        return score.confidence(float(self.temperature_ or 1), joint)[0]

    def on_subsets(self, score: AnswerLogits, correct: np.ndarray, new: AnswerLogits) -> Predict:
        """Approximate the base method, thousands of times faster.

        Losses and confidence (Ans Avg) are computed once at 161 temperatures. A subset's optimum is the vertex of the
        parabola through the three lowest points; its confidence is interpolated.
        """
        grid = temperatures(161)
        losses = np.stack([score.loss(t, correct, self._joint) for t in grid], axis=1)
        scores = np.stack([new.confidence(t)[0] for t in grid], axis=1)

        def predict(rows: np.ndarray, sample_weight: np.ndarray) -> np.ndarray:
            constant = self._constant(correct[rows][sample_weight > 0])
            if constant is not None:
                return np.full(len(new), constant)
            place = parabolic_argmin(sample_weight @ losses[rows])
            below = min(int(place), len(grid) - 2)
            return scores[:, below] + (place - below) * (scores[:, below + 1] - scores[:, below])

        return predict


def parabolic_argmin(loss: np.ndarray) -> float:
    """Return the minimum of a loss on an even grid, in grid steps.

    It is the vertex of the parabola through the three lowest points.
    """
    k = int(np.clip(loss.argmin(), 1, len(loss) - 2))
    left, middle, right = loss[k - 1 : k + 2]
    bend = left - 2 * middle + right
    shift = 0.5 * (left - right) / bend if bend > 0 else 0
    return float(np.clip(k + shift, 0, len(loss) - 1))


class Platt(Calibrator):
    """Platt scaling: sigmoid(a m + b) on margins m (n,) by maximum likelihood; a may be negative.

    If a threshold separates the classes, the likelihood has no maximum. Then (`separable_`) it fits Platt's smoothed
    targets: (n_right + 1) / (n_right + 2) for correct and 1 / (n_wrong + 2) for incorrect rows.
    """

    fits_one_class = False
    symbols = {"a": "a_", "b": "b_"}
    flags = {"separable_": "separable"}
    a_: float | None = None
    b_: float | None = None
    separable_: bool = False

    def _fit(self, score: Any, y: np.ndarray, w: np.ndarray) -> None:
        m = np.asarray(score, dtype=float)
        right, wrong = m[y > 0], m[y == 0]
        n_right, n_wrong = w[y > 0].sum(), w[y == 0].sum()
        center = np.average(m, weights=w)
        scale = np.sqrt(np.average((m - center) ** 2, weights=w))
        if not scale:
            self.a_, self.b_, self.separable_ = 0.0, float(logit(w @ y / w.sum())), False
            return
        self.separable_ = bool(right.min() >= wrong.max() or wrong.min() >= right.max())
        target = y
        if self.separable_:
            target = np.where(y > 0, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))
        x = np.tile((m - center) / scale, 2)[:, None]  # each row as correct and as incorrect, weighted by its target
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=1000)
        model.fit(x, np.repeat([1, 0], len(m)), sample_weight=np.append(w * target, w * (1 - target)))
        self.a_ = float(model.coef_[0, 0] / scale)
        self.b_ = float(model.intercept_[0] - self.a_ * center)

    def _predict(self, score: Any, joint: bool) -> np.ndarray:
        return expit(np.asarray(score, dtype=float) * float(self.a_ or 0) + float(self.b_ or 0))


# ---- registry of methods, used by tables, figures and experiments


@dataclass(frozen=True)
class Method:
    """A calibration method.

    `takes` maps a kind of input (`confidence` (n,), `margin` (n,), or the tokens of `answers`) to its class. A method
    that takes confidence is fitted for every estimator.
    """

    name: str  # in the column `method`
    label: str  # in tables
    takes: Mapping[str, type[Calibrator]]

    @property
    def of_answers(self) -> str:
        """Its input for the answer estimators: the answer tokens, or their confidence."""
        return "answers" if "answers" in self.takes else "confidence"

    @property
    def plain(self) -> str:
        """Its name when only answer tokens are calibrated: isotonic, temperature."""
        return self.takes[self.of_answers].__name__.lower()


METHODS = {
    "isotonic": Method("isotonic", "Isotonic", {"confidence": Isotonic}),
    "platt": Method("platt", "Platt", {"answers": Temperature, "margin": Platt}),  # the paper reports both as Platt
}
