"""What tables and findings are made of: a tidy frame per table, of a run or, in the same columns, of the paper.

A run also has frames of which the paper shows pictures only (`running_mean`, `entropies`, `learning`) or words
(`tokens`, `passes`, `ablation`, `cost`...); the paper's results lack them. `lib.paper.run_results` makes a run's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pandas as pd

from lib.paper import tables
from lib.paper.reference import printed_numbers

DECODING_SETTINGS = {"Temperature": "temperature", "Top-$p$": "top_p", "Top-$k$": "top_k", "Min-$p$": "min_p"}
QUESTIONS = {  # source (our reading: the paper names none), calibration and evaluation rows, as its appendix says
    "GSM8K": ("openai/gsm8k", 7473, 1319),
    "GSMHard": ("reasoning-machines/gsm-hard", 919, 400),
    "SVAMP": ("ChilleD/SVAMP", 700, 300),
}
# Frames that say something of a model without a parsed answer, too.
ANYWAY = ("answered", "unread", "ablation", "demonstration", "verification", "cost")


class NotThere(KeyError):
    """Results without the frame of this name."""


@dataclass(frozen=True)
class Results:
    """`models` and `datasets` are {name: label}, all of them, and those of `tab:bin_ablation` and of the transfer
    tables; `frames` by the label of the table (without `tab:`); `settings` a record per model."""

    models: Mapping[str, str]
    datasets: Mapping[str, str]
    binned: Mapping[str, str]
    moved: tuple[Mapping[str, str], Mapping[str, str]]
    settings: Sequence[Any]
    frames: Mapping[str, pd.DataFrame] = field(repr=False)
    notes: Sequence[str] = ()
    questions: Mapping[str, tuple[Any, int, int]] = field(default_factory=dict)  # by dataset: source, rows by split
    known: dict[tuple, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # see `once`

    def once(self, what: tuple, make: Callable[[], Any]) -> Any:
        """What several findings make of the same frames, made once."""
        if what not in self.known:
            self.known[what] = make()
        return self.known[what]

    def frame(self, name: str, **equal: str) -> pd.DataFrame:
        """The rows of a frame whose columns equal what is given. Raises NotThere where there is no such frame, or it is
        empty."""
        if name not in self.frames or self.frames[name].empty:
            raise NotThere(name)
        frame = self.frames[name]
        for column, value in equal.items():
            frame = frame[frame[column] == value]
        return frame

    @property
    def silent(self) -> set[str]:
        """The models of which no response holds an answer that could be read."""
        if "answered" not in self.frames:
            return set()
        counts = self.frames["answered"].groupby("model").parsed.sum()
        return set(counts.index[counts == 0])

    def heard(self) -> "Results":
        """Without the rows of silent models, on which a claim about confidence in answers would hold or fail by
        chance; what is said of responses without an answer, and of costs, keeps them."""
        silent = self.silent
        if not silent:
            return self
        frames = dict(self.frames)
        for name in frames.keys() - set(ANYWAY):
            for column in {"model", "source_model"} & set(frames[name]):
                frames[name] = frames[name][~frames[name][column].isin(silent)]
        return replace(self, frames=frames)

    @property
    def hard(self) -> str:
        """The dataset of least accuracy."""
        return hardest(self.frame("result_estimation"))


def hardest(frame: pd.DataFrame) -> str:
    """The dataset of least accuracy, averaged over models, from what `bootstrap` or `metrics.evaluate` returns."""
    accuracy = frame[frame["metric"] == "acc"].astype({"value": float})
    return str(accuracy.groupby("dataset", sort=False)["value"].mean().idxmin())


def published(title: str = "") -> Results:
    """The paper's own numbers."""
    frames = {str(name): part.assign(reason="") for name, part in printed_numbers().groupby("table", sort=False)}
    frames["rows"] = pd.DataFrame([(name, rows[2]) for name, rows in QUESTIONS.items()], columns=["dataset", "rows"])
    settings = []
    for label, part in frames["inference_settings"].groupby("model", sort=False):
        text = part.set_index("metric").text
        numbers = {name: float(text[heading]) for heading, name in DECODING_SETTINGS.items()}
        settings.append(SimpleNamespace(label=label, system_prompt=text["System prompt"] == "Yes", **numbers))
    main, moved = frames["result_estimation"], frames["calibration_transfer_full"]
    return Results(
        models=_labels(main.model), datasets=_labels(main.dataset), binned=_labels(frames["bin_ablation"].model),
        moved=(_labels(moved.model), _labels(moved.dataset)), settings=settings, frames=frames,
        notes=tables.notes(title))  # fmt: skip


def _labels(names: Iterable[str]) -> dict[str, str]:
    return {name: name for name in dict.fromkeys(names)}
