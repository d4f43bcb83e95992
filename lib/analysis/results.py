"""The input of tables and claims: a tidy frame per table, from a run or, in the same columns, from the paper.

A run also has frames that the paper shows only as pictures (`running_mean`, `entropies`, `learning`) or in words
(`tokens`, `passes`, `ablation`, `cost`...); the paper's results lack them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from lib.store import PAIR

# Frames that also describe models without a parsed answer.
ANYWAY = ("answered", "unread", "ablation", "demonstration", "verification", "cost")
TABLES_OF_NUMBERS = (
    "result_estimation", "result_estimation_full", "result_calibration", "result_calibration_full", "result_isotonic",
    "dropout_grid_search", "calibration_transfer_summary", "calibration_transfer_full", "insitu_ptrue", "bin_ablation",
)  # fmt: skip
QUANTITIES = ["value", "low", "high", "relative"]
NUMBER_KEY = ["table", *PAIR, "estimator", "metric", "method", "source_model", "source_dataset", "rate", "bins"]
NUMBER_COLUMNS = [*NUMBER_KEY, *QUANTITIES, "n", "reason"]
CURVES = {  # frame: the x axis of its curves, and the column that separates a pair's curves, or their columns
    "running_mean": ("position", "correct"),
    "positions": ("position", ["single", "running"]),
    "entropies": ("passes", "term"),
    "by_passes": ("passes", ["ece"]),
    "cost": ("passes", ["operations"]),
    "by_rate": ("rate", ["predictive", "conditional"]),
    "by_phi": ("rate", "phi"),
    "learning": ("n", "method"),
}
CURVE_COLUMNS = ["curve", *PAIR, "group", "x", "mean", "low", "high", "n"]


class NotThere(KeyError):
    """Results lack the frame of this name."""


@dataclass(frozen=True)
class Results:
    """All results of a run or of the paper.

    `models` and `datasets` are {name: label}, also for `tab:bin_ablation` (`binned`) and the transfer tables (`moved`).
    `frames` are by the label of the table (without `tab:`); `settings` has a record per model.
    """

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
        """Return a value shared by several claims, computed once."""
        if what not in self.known:
            self.known[what] = make()
        return self.known[what]

    def frame(self, name: str, **equal: str) -> pd.DataFrame:
        """Return the rows of a frame whose columns equal the given values. Raise NotThere if it is missing or empty."""
        if name not in self.frames or self.frames[name].empty:
            raise NotThere(name)
        frame = self.frames[name]
        for column, value in equal.items():
            frame = frame[frame[column] == value]
        return frame

    @property
    def numbers(self) -> pd.DataFrame:
        """Every number of the paper's tables, a row each, in NUMBER_COLUMNS.

        If they do not apply (`method` of a raw score), words are "" and numbers NaN. `relative` is a share, `n` the
        number of rows.
        """
        frames = {name: self.frames[name] for name in TABLES_OF_NUMBERS if name in self.frames}
        return self.once(("numbers",), lambda: tidy_numbers(frames))

    @property
    def curves(self) -> pd.DataFrame:
        """Every point of the CURVES, a row each, in CURVE_COLUMNS; empty for the paper, which prints pictures."""
        return self.once(("curves",), lambda: tidy_curves(self.frames))

    @property
    def silent(self) -> set[str]:
        """The models without any parsed answer."""
        if "answered" not in self.frames:
            return set()
        counts = self.frames["answered"].groupby("model").parsed.sum()
        return set(counts.index[counts == 0])

    def heard(self) -> "Results":
        """Return results without the rows of silent models: claims about confidence in answers would hold or fail by
        chance.

        Frames about costs and responses without an answer keep them.
        """
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
        """The dataset with the lowest accuracy."""
        return self.once(("hard",), lambda: hardest(self.frame("result_estimation")))


def tidy_numbers(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of these frames, by table, as one frame in NUMBER_COLUMNS."""
    words = [name for name in (*NUMBER_KEY, "reason") if name not in ("rate", "bins")]
    types = {name: object if name in words else float for name in NUMBER_COLUMNS}
    parts = [frames[name].reindex(columns=NUMBER_COLUMNS).assign(table=name).astype(types)
             for name in frames if len(frames[name])]  # fmt: skip
    tidy = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=NUMBER_COLUMNS).astype(types)
    return tidy.fillna(dict.fromkeys(words, ""))


def tidy_curves(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the points of all available CURVES as one frame in CURVE_COLUMNS.

    `learning` is limited to uniform sampling, `by_phi` to ECE.
    """
    types = dict.fromkeys(("x", "mean", "low", "high", "n"), float)
    parts = [pd.DataFrame(columns=CURVE_COLUMNS).astype(types)]
    for name, (x, group) in CURVES.items():
        frame = frames.get(name, pd.DataFrame())
        if frame.empty:
            continue
        if isinstance(group, list):
            frame, group = frame.melt([*PAIR, x], group, var_name="group", value_name="mean"), "group"
        if name == "learning":
            frame = frame[frame.sampling == "uniform"]
        if name == "by_phi":
            frame = frame[frame.metric == "ece"].rename(columns={"value": "mean"})
        frame = frame.assign(curve=name, group=frame[group].astype(str), x=frame[x].astype(float))
        parts.append(frame.reindex(columns=CURVE_COLUMNS).astype(types))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def hardest(frame: pd.DataFrame) -> str:
    """Return the dataset with the lowest accuracy, averaged over models, from `bootstrap` or `metrics.evaluate`."""
    accuracy = frame[frame["metric"] == "acc"].astype({"value": float})
    return str(accuracy.groupby("dataset", sort=False)["value"].mean().idxmin())
