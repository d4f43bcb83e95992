"""Answer-token probabilities of stored responses at any temperature, without the full vocabulary.

For every answer token, generation stores the top logits. The rest of the vocabulary is stored as
its log-partition function at a few temperatures (`lib.generate.teacher_forcing`). Together they
suffice to recompute the softmax.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline

from lib.stored_columns import temperatures

TINY = 1e-12  # avoids an infinite log-loss for a wrong confidence of exactly 0 or 1


@dataclass(frozen=True)
class AnswerLogits:
    """The m answer tokens of n rows, with logits relative to the largest at their position.

    `rest` is the log-partition function of the vocabulary outside the top logits: a spline over
    log(1/t) through `tail`. A row without tokens has confidence 0 at any t.
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
        tokens = []
        for i, (row, span) in enumerate(
            zip(generations.itertuples(index=False), spans, strict=True)
        ):
            kept = {int(position): k for k, position in enumerate(row.kept_positions)}
            for position in range(*(span or (0, 0))):
                k = kept[position]
                tokens.append((i, row.chosen_logit[k], row.top_logits[k], row.tail_curve[k]))
        if not tokens:
            return cls(
                len(generations), np.zeros(0, int), np.zeros(0), np.zeros((0, 1)), np.zeros((0, 4))
            )
        rows, chosen, top, tail = (np.array(column) for column in zip(*tokens, strict=True))
        largest = top[:, 0].astype(float)
        return cls(
            len(generations), rows, chosen - largest, top - largest[:, None], np.maximum(tail, -1e6)
        )

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, rows: np.ndarray) -> "AnswerLogits":
        """Select rows by index, in this order."""
        places = [np.flatnonzero(self.row == row) for row in rows]
        tokens = np.concatenate(places) if places else np.zeros(0, int)
        new = np.repeat(np.arange(len(rows)), [len(place) for place in places])
        return AnswerLogits(
            len(rows), new, self.chosen[tokens], self.top[tokens], self.tail[tokens]
        )

    @cached_property
    def rest(self) -> CubicSpline:
        nodes = -np.log(temperatures(self.tail.shape[1]))
        return CubicSpline(nodes[::-1], self.tail[:, ::-1], axis=1)

    def logprobs(self, t: float) -> np.ndarray:
        """Return log softmax(z / t) of the chosen tokens, (m,)."""
        return np.minimum(self.chosen / t - self._partition(t), 0.0)

    def _partition(self, t: float = 1.0) -> np.ndarray:
        """Return log Z(t), (m,); no term overflows, since the largest logit is 0."""
        return np.log(np.exp(self.top / t).sum(axis=1) + np.exp(self.rest(-np.log(t))))

    def confidence(self, t: float = 1.0, joint: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return Ans Avg (or Ans Joint) at temperature t, and 1 minus it without cancellation; (n,)
        each."""
        count, logprobs = np.bincount(self.row, minlength=self.n_rows), self.logprobs(t)
        if joint:
            complement = -np.expm1(self._sum_by_row(logprobs) / np.maximum(count, 1))
        else:
            complement = self._sum_by_row(-np.expm1(logprobs)) / np.maximum(count, 1)
        complement[count == 0] = 1.0
        return 1 - complement, complement

    def _sum_by_row(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.row, values, self.n_rows)

    def margins(self) -> np.ndarray:
        """Return the margin between the two most probable tokens, (m,).

        With a single stored logit, all other tokens together count as the second.
        """
        most = np.exp(np.sort(self.top, axis=1)[:, ::-1] - self._partition()[:, None])
        second = most[:, 1] if most.shape[1] > 1 else 1 - most[:, 0]
        return np.maximum(most[:, 0] - second, 0.0)

    def entropies(self) -> np.ndarray:
        """Return the entropy of the next-token distribution, log Z - E[z], (m,), nats.

        The vocabulary outside the top logits contributes to E[z] its mass times the slope of
        `rest`.
        """
        partition = self._partition()
        kept = (np.exp(self.top - partition[:, None]) * self.top).sum(axis=1)
        rest = np.exp(self.rest(0.0) - partition) * self.rest(0.0, 1)
        return np.maximum(partition - kept - rest, 0.0)

    def by_row(self, values: np.ndarray) -> list[np.ndarray | None]:
        """Split token values (m,) into an array per row; None for a row without tokens."""
        ends = np.cumsum(np.bincount(self.row, minlength=self.n_rows))
        return [part if part.size else None for part in np.split(values, ends[:-1])]

    def loss(self, t: float, correct: np.ndarray) -> np.ndarray:
        """Return the log-loss of correctness under Ans Avg, (n,)."""
        right, wrong = self.confidence(t)
        return -np.log(np.maximum(np.where(correct, right, wrong), TINY))
