"""Answer-token probabilities of stored responses at any temperature, without the full vocabulary.

For every answer token, generation stores the top logits. The rest of the vocabulary is stored as
its log-partition function at a few temperatures (`lib.generate.teacher_forcing`). Together they
suffice to recompute the softmax.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline

from lib.stored_columns import temperatures

TINY = 1e-12  # avoids an infinite log-loss for a wrong confidence of exactly 0 or 1
GRID_SIZE = 161  # temperatures of `on_grid`


@dataclass(frozen=True)
class AnswerLogits:
    """The m answer tokens of n rows, with logits relative to the largest at their position.

    `rest` is the log-partition function of the vocabulary outside the top logits: a spline over
    log(1/t) through `tail`. A row without tokens has confidence 0 at any t.

    Examples
    --------
    Two tokens of logits 2 and 0 (the rest of the vocabulary has no weight), the first generated:

    >>> answer = AnswerLogits(1, np.array([0]), np.array([0.0]), np.array([[0.0, -2.0]]),
    ...                       np.full((1, 33), -1e6))
    >>> answer.confidence()[0].round(3)
    array([0.881])
    >>> answer.confidence(t=2)[0].round(3)
    array([0.731])
    """

    n_rows: int
    row: np.ndarray  # (m,) row of each token
    chosen: np.ndarray  # (m,) logit of the generated token
    top: np.ndarray  # (m, k) the largest logits
    tail: np.ndarray  # (m, nodes)

    @classmethod
    def of(cls, generations: pd.DataFrame, spans: pd.Series) -> "AnswerLogits":
        """Create from rows of a generations frame and the answer span of each (half-open, or
        None)."""
        row_of_token = []
        chosen = []
        top = []
        tail = []
        for i, (row, span) in enumerate(
            zip(generations.itertuples(index=False), spans, strict=True)
        ):
            if span is None:
                continue
            kept = list(row.kept_positions)
            for position in range(*span):
                k = kept.index(position)
                row_of_token.append(i)
                chosen.append(row.chosen_logit[k])
                top.append(row.top_logits[k])
                tail.append(row.tail_curve[k])
        n = len(generations)
        if not row_of_token:
            return cls(
                n,
                row=np.zeros(0, int),
                chosen=np.zeros(0),
                top=np.zeros((0, 1)),
                tail=np.zeros((0, 4)),
            )
        logits = np.array(top)
        largest = logits[:, 0].astype(float)
        return cls(
            n,
            row=np.array(row_of_token),
            chosen=np.array(chosen) - largest,
            top=logits - largest[:, None],
            tail=np.maximum(np.array(tail), -1e6),
        )

    def __len__(self) -> int:
        return self.n_rows

    def without_caches(self) -> "AnswerLogits":
        """Return the same tokens. What is computed from them, several times their size, is freed
        with what this returns."""
        return replace(self)

    def __getitem__(self, rows: np.ndarray) -> "AnswerLogits":
        """Select rows by index, in this order."""
        places = [np.flatnonzero(self.row == row) for row in rows]
        tokens = np.concatenate(places) if places else np.zeros(0, int)
        counts = [len(place) for place in places]
        return AnswerLogits(
            len(rows),
            np.repeat(np.arange(len(rows)), counts),
            self.chosen[tokens],
            self.top[tokens],
            self.tail[tokens],
        )

    @cached_property
    def rest(self) -> CubicSpline:
        nodes = -np.log(temperatures(self.tail.shape[1]))
        # a spline takes nodes in increasing order
        increasing = nodes[::-1]
        tail = self.tail[:, ::-1]
        return CubicSpline(increasing, tail, axis=1)

    def logprobs(self, t: float) -> np.ndarray:
        """Return log softmax(z / t) of the chosen tokens, (m,)."""
        logprobs = self.chosen / t - self._partition(t)
        return np.minimum(logprobs, 0.0)  # rounding can leave 1e-17

    def _partition(self, t: float = 1.0) -> np.ndarray:
        """Return log Z(t), (m,); no term overflows, since the largest logit is 0."""
        largest = np.exp(self.top / t).sum(axis=1)
        rest = np.exp(self.rest(-np.log(t)))
        return np.log(largest + rest)

    def confidence(self, t: float = 1.0, joint: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return Ans Avg (or Ans Joint) at temperature t, and 1 minus it without cancellation; (n,)
        each."""
        complement = self._complement(self.logprobs(t), joint)
        return 1 - complement, complement

    def _complement(self, logprobs: np.ndarray, joint: bool) -> np.ndarray:
        """Return 1 minus the confidence, (n,), from the tokens' log-probabilities (m,)."""
        count = np.bincount(self.row, minlength=self.n_rows)
        at_least_one = np.maximum(count, 1)
        if joint:
            mean_logprob = self._sum_by_row(logprobs) / at_least_one
            complement = -np.expm1(mean_logprob)
        else:
            complement_of_token = -np.expm1(logprobs)
            complement = self._sum_by_row(complement_of_token) / at_least_one
        complement[count == 0] = 1.0
        return complement

    def _sum_by_row(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.row, values, self.n_rows)

    @cached_property
    def on_grid(self) -> dict[bool, np.ndarray]:
        """1 minus Ans Joint (True) and 1 minus Ans Avg (False) at GRID_SIZE temperatures, (n,
        GRID_SIZE) each."""
        average = np.zeros((self.n_rows, GRID_SIZE))
        joint = np.zeros((self.n_rows, GRID_SIZE))
        for k, t in enumerate(temperatures(GRID_SIZE)):
            logprobs = self.logprobs(t)
            average[:, k] = self._complement(logprobs, joint=False)
            joint[:, k] = self._complement(logprobs, joint=True)
        return {False: average, True: joint}

    def margins(self) -> np.ndarray:
        """Return the margin between the two most probable tokens, (m,).

        With a single stored logit, all other tokens together count as the second.
        """
        descending = np.sort(self.top, axis=1)[:, ::-1]
        partition = self._partition()
        probabilities = np.exp(descending - partition[:, None])
        first = probabilities[:, 0]
        second = 1 - first
        if probabilities.shape[1] > 1:
            second = probabilities[:, 1]
        return np.maximum(first - second, 0.0)

    def entropies(self) -> np.ndarray:
        """Return the entropy of the next-token distribution, log Z - E[z], (m,), nats.

        The vocabulary outside the top logits contributes to E[z] its mass times the slope of
        `rest`.
        """
        partition = self._partition()
        probabilities = np.exp(self.top - partition[:, None])
        top = (probabilities * self.top).sum(axis=1)
        rest_probability = np.exp(self.rest(0.0) - partition)
        rest = rest_probability * self.rest(0.0, 1)
        return np.maximum(partition - top - rest, 0.0)

    def by_row(self, values: np.ndarray) -> list[np.ndarray | None]:
        """Split token values (m,) into an array per row; None for a row without tokens."""
        count = np.bincount(self.row, minlength=self.n_rows)
        ends = np.cumsum(count)
        parts = np.split(values, ends[:-1])
        return [part if part.size else None for part in parts]

    def loss(self, t: float, correct: np.ndarray) -> np.ndarray:
        """Return the log-loss of correctness under Ans Avg, (n,)."""
        _, complement = self.confidence(t)
        return _log_loss(complement, correct)

    def loss_on_grid(self, correct: np.ndarray) -> np.ndarray:
        """Return the log-loss of correctness under Ans Avg at GRID_SIZE temperatures, (n,
        GRID_SIZE)."""
        outcome = np.asarray(correct)[:, None]
        return _log_loss(self.on_grid[False], outcome)


def _log_loss(complement: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Return the log-loss of scores by 1 minus the score, in the same shape."""
    likelihood = np.where(correct, 1 - complement, complement)
    return -np.log(np.maximum(likelihood, TINY))
