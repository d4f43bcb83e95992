"""What tables and findings are made of: a tidy frame per table, of a run or, in the same columns, of the paper.

A run also has frames of which the paper shows pictures only (`running_mean`, `entropies`, `learning`, `answers`,
`top_tokens`) or words (`ablation`, `cost`); the paper's results lack them. `lib.paper.run_results` makes a run's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pandas as pd

from lib.paper import tables
from lib.paper.reference import printed

PAIR = ["model", "dataset"]
SETTINGS = {"Temperature": "temperature", "Top-$p$": "top_p", "Top-$k$": "top_k", "Min-$p$": "min_p"}


@dataclass(frozen=True)
class Evidence:
    """`models` and `datasets` are {name: label}, all of them, and those of `tab:bin_ablation` and of the transfer
    tables; `frames` by the label of the table (without `tab:`); `settings` a record per model."""

    models: Mapping[str, str]
    datasets: Mapping[str, str]
    binned: Mapping[str, str]
    moved: tuple[Mapping[str, str], Mapping[str, str]]
    settings: Sequence[Any]
    frames: Mapping[str, pd.DataFrame] = field(repr=False)
    notes: Sequence[str] = ()

    @property
    def hard(self) -> str:
        """The dataset of least accuracy."""
        return tables.hardest(self.frames["result_estimation"])


def _same(names: Any) -> dict[str, str]:
    return {str(name): str(name) for name in names}


def published(title: str = "") -> Evidence:
    """The paper's own numbers."""
    frames = {str(name): part.assign(reason="") for name, part in printed().groupby("table", sort=False)}
    main, moved = frames["result_estimation"], frames["calibration_transfer_full"]
    settings = []
    for label, part in frames["inference_settings"].groupby("model", sort=False):
        text = part.set_index("metric").text
        numbers = {name: float(text[heading]) for heading, name in SETTINGS.items()}
        settings.append(SimpleNamespace(label=label, system_prompt=text["System prompt"] == "Yes", **numbers))
    return Evidence(_same(main.model.unique()), _same(main.dataset.unique()),
                    _same(frames["bin_ablation"].model.unique()),
                    (_same(moved.model.unique()), _same(moved.dataset.unique())),
                    settings, frames, tables.notes(title))  # fmt: skip
