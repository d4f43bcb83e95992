"""The results of a run: frames made from what the models left behind, and from those that 05 to 07 keep."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from lib import params, store
from lib.calibrate import experiments, fitting
from lib.paper import tables
from lib.paper.results import PAIR, Results
from lib.project import UserError
from lib.score import ablation, estimators, metrics, multi_pass
from lib.score.bootstrap import bootstrap

OWN_NAME = {"paper": ""}  # every other run says its name under its tables, if its title does not
KINDS = ("generations", "verification", "dropout")  # what models leave on disk


@dataclass(frozen=True)
class Signals:
    """What the models left on disk, and the choices that need no new run of a model (names as in the profile)."""

    frame: pd.DataFrame = field(repr=False)
    verified: pd.DataFrame = field(repr=False)
    passes: pd.DataFrame = field(repr=False)
    reading: Mapping[str, Any]  # the choices of `estimators.signals`
    options: str = "A/B"
    phi: str = "clip"
    bins: int = 10
    closed: str = "right"
    bin_counts: Sequence[int] = (10, 20, 30)

    @classmethod
    def of(cls, run: str, models: Sequence[str], datasets: Sequence[str], **choices: Any) -> "Signals":
        """Those of a run, or the shipped ones. Raises UserError where neither has them."""
        return cls(*(store.gather(run, kind, models, datasets)[0] for kind in KINDS), **choices)

    @cached_property
    def confidence(self) -> pd.DataFrame:
        chosen = self.passes[self.passes.selected]
        parts = [estimators.single_pass(self.frame, **self.reading),
                 multi_pass.p_true(self.frame, self.verified, self.options, **self.reading),
                 multi_pass.c_bald(self.frame, chosen, self.phi, **self.reading)]  # fmt: skip
        return pd.concat(parts, ignore_index=True)

    def estimation(self) -> dict[str, pd.DataFrame]:
        """Frames of the tables of raw confidence, but for the intervals."""
        results = metrics.evaluate(self.confidence, self.bins, self.closed)
        groups = {name: one.group for name, one in estimators.ESTIMATORS.items()}
        single = self.confidence[self.confidence.estimator.map(groups) == "single_pass"]
        at_right = {name: self.reading[name] for name in ("grader", "missing") if name in self.reading}
        return {"result_estimation": results,
                "insitu_ptrue": pd.concat([results, multi_pass.reduction(self.verified)], ignore_index=True),
                "dropout_grid_search": multi_pass.grid(self.frame, self.passes, self.bins, self.closed, self.phi,
                                                       **at_right),
                "bin_ablation": metrics.ablate_bins(single, self.bin_counts, self.closed)}  # fmt: skip

    def calibration(self, joint: bool = False) -> dict[str, pd.DataFrame]:
        """Frames of the tables of calibration and transfer, made anew (05 and 07 keep a run's)."""
        sets = fitting.rows_of(self.frame, **self.reading)
        calibrated, learned = fitting.calibrate(self.confidence, sets, joint)
        results = bootstrap(calibrated, self.bins, self.closed, resamples=1).results
        return _stored(pd.concat([results, learned], ignore_index=True),
                       experiments.transfer(sets, self.bins, self.closed, joint))  # fmt: skip

    def pictures(self) -> dict[str, pd.DataFrame]:
        """What of a run the paper shows as pictures, for every pair."""
        found: dict[str, list[pd.DataFrame]] = {"running_mean": [], "entropies": [], "answers": [], "top_tokens": []}
        for pair, part in self.frame.groupby(PAIR, sort=False):
            named = dict(zip(PAIR, pair, strict=True))
            own = (self.passes.model == pair[0]) & (self.passes.dataset == pair[1])
            passes = self.passes[own & self.passes.selected]
            here = passes[passes.split == "evaluation"]
            tokens = estimators.answer_tokens(part, **self.reading)
            found["running_mean"].append(estimators.running_mean_curves(part, **self.reading).assign(**named))
            found["entropies"].append(multi_pass.entropy_curves(passes).assign(**named))
            found["answers"].append(pd.DataFrame([named | {"median": float(tokens.logprob.median())}]))
            found["top_tokens"].append(pd.DataFrame([named | {
                "unchanged": float(1 - here.top_changed.map(any).mean()),
                "bald": float(pd.Series([multi_pass.bald(row).mean() for row in here.itertuples()
                                         if not any(row.top_changed)], dtype=float).mean())}]))  # fmt: skip
        return {name: pd.concat(parts, ignore_index=True) for name, parts in found.items()}


def _stored(results: pd.DataFrame, moved: pd.DataFrame) -> dict[str, pd.DataFrame]:
    names = ("result_estimation_full", "result_calibration", "result_calibration_full", "result_isotonic")
    both = ("calibration_transfer_full", "calibration_transfer_summary")
    return dict.fromkeys(names, results) | dict.fromkeys(both, moved)


def of_run(run: str, signals: Signals, title: str, models: Sequence[str], datasets: Sequence[str], *,
           bin_models: Sequence[str] = (), transfer_models: Sequence[str] = (),
           transfer_datasets: Sequence[str] = ()) -> Results:  # fmt: skip
    """All that a run has to show. Raises UserError where 05 to 07 have not left their frames."""
    loaded = [params.load_model(name) for name in models]
    labels = {name: spec.label for name, spec in zip(models, loaded, strict=True)}
    sets = {name: params.load_dataset(name).label for name in datasets}
    kept = {name: store.read(store.locate(run, "calibration", name)) for name in ("results", "transfer", "curves")}
    frames = signals.estimation() | _stored(kept["results"], kept["transfer"]) | signals.pictures()
    frames["learning"] = experiments.curve_bands(kept["curves"])
    with suppress(UserError):  # a run without it: the claims that rest on it say so
        asked_again = store.gather(run, "ablation", models, datasets)[0]
        paths = [store.locate(run, "ablation", name) for name in store.pairs(models, datasets)]
        frames["ablation"] = ablation.summary(asked_again, signals.reading.get("grader", "numeric"))
        frames["cost"] = ablation.costs([store.manifest(path) for path in paths])
    how = tables.made(store.manifest(store.locate(run, kind, pair)) for kind in KINDS
                      for pair in store.pairs(models, datasets))  # fmt: skip
    moved = ({name: labels[name] for name in transfer_models or models},
             {name: sets[name] for name in transfer_datasets or datasets})  # fmt: skip
    notes = tables.notes(title or OWN_NAME.get(run, f"Run {run}"), estimators.coverage(signals.frame), how)
    binned = {name: labels[name] for name in bin_models or models}
    return Results(labels, sets, binned, moved, loaded, frames, notes)
