"""Post-hoc calibration: isotonic regression, temperature on the answer tokens, Platt scaling on the option margin.

scikit-learn's conventions: `fit` on calibration rows, `predict` on others, what was learned in attributes with a
trailing underscore. Each takes a weight per row. Rows of one class only (so any single row) teach none of them a
shape: the prediction is then the constant (n_right + 1) / (n + 2), kept in `constant_`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit, logsumexp
from sklearn.base import BaseEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from lib.generate.temperatures import COLDEST, HOTTEST, temperatures
from lib.project import UserError

TINY = 1e-12  # a confidence of exactly 0 or 1 that is wrong would cost an infinite log-loss

# ---- answer tokens at any temperature


@dataclass(frozen=True)
class Answers:
    """The answer tokens of n rows: all that is needed to re-softmax them (DESIGN: temperature without vocabulary).

    Logits are relative to the largest at their position; `rest` is the log-partition function of the vocabulary
    outside the kept ones, a spline over log(1/t) through `tail`. A row without tokens has confidence 0 at any t.
    """

    rows: int
    row: np.ndarray  # (m,) which row a token belongs to
    chosen: np.ndarray  # (m,)
    top: np.ndarray  # (m, k)
    tail: np.ndarray  # (m, nodes)

    @cached_property
    def rest(self) -> CubicSpline:
        nodes = -np.log(temperatures(self.tail.shape[1]))
        return CubicSpline(nodes[::-1], self.tail[:, ::-1], axis=1)

    @classmethod
    def of(cls, frame: pd.DataFrame) -> "Answers":
        """From rows of the generations frame with column `span` (half-open token positions, or None)."""
        row, chosen, top, tail = [], [], [], []
        for i, r in enumerate(frame.itertuples(index=False)):
            at = {int(position): k for k, position in enumerate(r.kept_positions)}
            for position in range(*(r.span or (0, 0))):
                if position not in at:
                    where = f"{r.model}/{r.dataset}/{r.example_id}"
                    raise UserError(f"{where}: no logits were kept at answer token {position}; generate it again")
                k, largest = at[position], r.top_logits[at[position]][0]
                row.append(i)
                chosen.append(np.float64(r.chosen_logit[k]) - largest)
                top.append(np.float64(r.top_logits[k]) - largest)
                tail.append(np.float64(r.tail_curve[k]))
        if not row:
            return cls(len(frame), np.zeros(0, int), np.zeros(0), np.zeros((0, 1)), np.zeros((0, 4)))
        return cls(len(frame), np.array(row), np.array(chosen), np.stack(top), np.maximum(tail, -1e6))

    def logprobs(self, t: float) -> np.ndarray:
        """log softmax(z / t) of the chosen tokens, (m,)."""
        partition = np.logaddexp(logsumexp(self.top / t, axis=1), self.rest(-np.log(t)))
        return np.minimum(self.chosen / t - partition, 0.0)

    def confidence(self, t: float = 1.0, joint: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Ans Avg (or Ans Joint) at temperature t, and 1 minus it without cancellation; (n,) each."""
        count, values = np.bincount(self.row, minlength=self.rows), self.logprobs(t)
        mean = np.bincount(self.row, values if joint else -np.expm1(values), self.rows) / np.maximum(count, 1)
        complement = np.where(count == 0, 1.0, -np.expm1(mean) if joint else mean)
        return 1 - complement, complement

    def loss(self, t: float, correct: np.ndarray, joint: bool = False) -> np.ndarray:
        """Log-loss of correctness, (n,)."""
        right, wrong = self.confidence(t, joint)
        return -np.log(np.maximum(np.where(correct, right, wrong), TINY))


# ---- calibrators


class _Calibrator(BaseEstimator):
    """What the three share: checks, weights, and the constant where only one class was seen."""

    constant_: float | None

    def fit(self, score: Any, correct: Any, weight: Any = None) -> Any:
        y = np.asarray(correct, dtype=float)
        w = np.ones_like(y) if weight is None else np.asarray(weight, dtype=float)
        right = float(w @ y * len(y) / w.sum()) if len(y) else 0.0
        self.constant_ = (right + 1) / (len(y) + 2) if len(set(y)) < 2 else None
        if self.constant_ is None:
            self._fit(score, y, w)
        return self

    def predict(self, score: Any, **options: Any) -> np.ndarray:
        """Calibrated confidence, (n,). Temperature takes `joint=True` for Ans Joint at the same t."""
        if self.constant_ is not None:
            return np.full(getattr(score, "rows", None) or len(np.atleast_1d(score)), self.constant_)
        return self._predict(score, **options)


class Isotonic(_Calibrator):
    """scikit-learn's isotonic regression on confidence scores (n,), clipped outside the range it was fitted on."""

    def _fit(self, score: Any, y: np.ndarray, w: np.ndarray) -> None:
        fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        self.isotonic_ = fitted.fit(np.asarray(score, dtype=float), y, sample_weight=w)

    def _predict(self, score: Any) -> np.ndarray:
        return self.isotonic_.predict(np.asarray(score, dtype=float))


class Temperature(_Calibrator):
    """One t for the answer tokens, of least log-loss of correctness under Ans Avg (or, `joint`, under Ans Joint).

    Scores are `Answers`. The search covers [0.1, 20]; `at_bound_` says that it ended there.
    """

    temperature_: float | None = None
    at_bound_: bool = False

    def __init__(self, joint: bool = False):
        self.joint = joint

    def _fit(self, score: Answers, y: np.ndarray, w: np.ndarray) -> None:
        def loss(log_t: float) -> float:
            return float(w @ score.loss(np.exp(log_t), y > 0, self.joint))

        grid = np.log(temperatures(41))  # the loss may have several minima: first a grid, then the best bracket
        best = int(np.argmin([loss(x) for x in grid]))
        bracket = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        x = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-9}).x
        self.at_bound_ = bool(min(x - grid[0], grid[-1] - x) < 1e-6)
        self.temperature_ = float(np.clip(np.exp(x), COLDEST, HOTTEST))

    def _predict(self, score: Answers, joint: bool = False) -> np.ndarray:
        return score.confidence(float(self.temperature_ or 1), joint)[0]


class Platt(_Calibrator):
    """sigmoid(a m + b) on margins m (n,), plain maximum likelihood; a may be negative.

    Where a threshold separates right from wrong, the likelihood has no maximum. Then (`separable_`) Platt's own
    smoothed targets are fitted, (n_right + 1) / (n_right + 2) for right and 1 / (n_wrong + 2) for wrong.
    """

    a_: float | None = None
    b_: float | None = None
    separable_: bool = False

    def _fit(self, score: Any, y: np.ndarray, w: np.ndarray) -> None:
        m = np.asarray(score, dtype=float)
        right, wrong = m[y > 0], m[y == 0]
        center, scale = m.mean(), m.std()
        if not scale:
            self.a_, self.b_, self.separable_ = 0.0, float(logit(w @ y / w.sum())), False
            return
        self.separable_ = bool(right.min() >= wrong.max() or wrong.min() >= right.max())
        target = y
        if self.separable_:
            target = np.where(y > 0, (len(right) + 1) / (len(right) + 2), 1 / (len(wrong) + 2))
        x = np.tile((m - center) / scale, 2)[:, None]  # each row as right and as wrong, weighted by its target
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=1000)
        model.fit(x, np.repeat([1, 0], len(m)), sample_weight=np.append(w * target, w * (1 - target)))
        self.a_ = float(model.coef_[0, 0] / scale)
        self.b_ = float(model.intercept_[0] - self.a_ * center)

    def _predict(self, score: Any) -> np.ndarray:
        return expit(np.asarray(score, dtype=float) * float(self.a_ or 0) + float(self.b_ or 0))


# ---- the methods, declared once: tables, figures and experiments derive from here


@dataclass(frozen=True)
class Method:
    """A way to calibrate. `takes` maps what it is fitted on (`confidence` (n,), `margin` (n,), the `answers`' tokens)
    to the class that does it; one that takes confidence is fitted for every estimator."""

    name: str  # in the column `method`
    label: str  # in tables
    takes: Mapping[str, type[_Calibrator]]

    @property
    def of_answers(self) -> str:
        """What the method is fitted on for the answer's tokens: they themselves, or their confidence."""
        return "answers" if "answers" in self.takes else "confidence"

    def make(self, kind: str, joint: bool = False) -> _Calibrator:
        return self.takes[kind](joint) if self.takes[kind] is Temperature else self.takes[kind]()

    @property
    def plain(self) -> str:
        """Its name where only answer tokens are calibrated: isotonic, temperature."""
        return self.takes[self.of_answers].__name__.lower()


METHODS = {method.name: method for method in (
    Method("isotonic", "Isotonic", {"confidence": Isotonic}),
    Method("platt", "Platt", {"answers": Temperature, "margin": Platt}),  # the paper prints both under Platt
)}  # fmt: skip
