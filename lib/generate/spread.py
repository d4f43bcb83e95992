"""What every stochastic pass makes of one response's answer tokens: the distributions themselves, of which the passes'
frame keeps what they add up to."""

import pandas as pd
import torch

from lib.generate import answer_dropout, dropout
from lib.generate.models import LanguageModel
from lib.params import Dropout, Scope


class Distributions:
    """Passes of one example, added in order, as they are: float64 probabilities (T, m, V)."""

    def __init__(self) -> None:
        self.parts: list[torch.Tensor] = []

    @property
    def count(self) -> int:
        return sum(map(len, self.parts))

    def add(self, logits: torch.Tensor) -> None:
        """The next b passes: float32 logits (b, m, V)."""
        self.parts.append(logits.double().softmax(-1).cpu())

    @property
    def all(self) -> torch.Tensor:
        return torch.cat(self.parts)


def distributions(scope: Scope, lm: LanguageModel, row: pd.Series, rate: float, settings: Dropout) -> torch.Tensor:
    """Probabilities (T, m, V) at the m answer tokens of a generations row in T passes with dropout in one scope: those
    whose entropies the passes' frames hold."""
    passes, state, kernel = dropout.passes_over(lm, row, 0, settings), Distributions(), settings.dropout_kernel
    if scope == "trajectory":
        dropout.run(lm, passes, [state], rate, settings)
    else:
        before = answer_dropout.encoded(lm, [passes[0].ids[: -passes[0].answer]])
        with dropout.enabled(lm.model, rate, kernel):
            answer_dropout.add_passes(lm, before, [passes], [state], kernel)  # type: ignore[list-item]
    return state.all


def table(lm: LanguageModel, p: torch.Tensor, top: int = 3) -> pd.DataFrame:
    """Of probabilities (T, m, V): a row per pass and one for their mean; a column for each answer token and each of its
    `top` most probable tokens by the mean."""
    columns = {}
    for j, mean in enumerate(p.mean(0)):
        for token in mean.topk(top).indices.tolist():
            columns[j, f"{lm.tokenizer.decode([token])!r}"] = [*p[:, j, token].tolist(), float(mean[token])]
    rows = pd.Index([*range(1, len(p) + 1), "mean"], name="pass")
    return pd.DataFrame(columns, rows).rename_axis(columns=["answer token", "it could be"])
