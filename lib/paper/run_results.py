"""The results of a run: frames made from what the models left behind, and from those that 05 to 07 keep."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from lib import params, store
from lib.calibrate.fitting import calibrate, fit_answers, splits
from lib.calibrate.sample_efficiency import curve_bands
from lib.calibrate.transfer import transfer
from lib.paper import tables
from lib.paper.results import PAIR, Results
from lib.params import Calibration, Reading
from lib.project import UserError
from lib.score import ablation
from lib.score.bootstrap import estimates
from lib.score.confidence import bald, confidence_frame, grid, reduction, selected
from lib.score.curves import answer_tokens, entropy_curves, running_mean_curves
from lib.score.estimators import ESTIMATORS
from lib.score.metrics import METRICS, ablate_bins, evaluate
from lib.score.reading import coverage, read

OWN_NAME = {"paper": ""}  # every other run says its name under its tables, if its title does not
KINDS = ("generations", "verification", "dropout")  # what models leave on disk
MEASURED = ("bins", "closed")  # choices that change how scores are measured, and no score


@dataclass(frozen=True)
class RunSignals:
    """What the models left on disk, and what a run's choices read in it: `responses` as `reading.read` returns them,
    and the confidence of every estimator."""

    generations: pd.DataFrame = field(repr=False)
    verification: pd.DataFrame = field(repr=False)
    dropout: pd.DataFrame = field(repr=False)
    reading: Reading
    responses: pd.DataFrame = field(repr=False)
    confidence: pd.DataFrame = field(repr=False)

    @classmethod
    def of(cls, run: str, models: Sequence[str], datasets: Sequence[str], reading: Reading) -> "RunSignals":
        """Those of a run, or the shipped ones. Raises UserError where neither has them."""
        return cls._read(reading, *(store.gather(run, kind, models, datasets)[0] for kind in KINDS))

    @classmethod
    def _read(cls, reading: Reading, generations: pd.DataFrame, verification: pd.DataFrame,
              dropout: pd.DataFrame) -> "RunSignals":  # fmt: skip
        responses = read(generations, reading)
        confidence = confidence_frame(responses, verification, selected(dropout, reading), reading)
        return cls(generations, verification, dropout, reading, responses, confidence)

    def under(self, **choice: Any) -> "RunSignals":
        """The same read under other choices; nothing is read again for those of MEASURED."""
        reading = self.reading.model_copy(update=choice)
        if set(choice) <= set(MEASURED):
            return replace(self, reading=reading)
        return self._read(reading, self.generations, self.verification, self.dropout)

    def alike(self, other: "RunSignals") -> bool:
        """Whether both read and measure every response alike, whatever their choices are called."""
        measured = all(getattr(self.reading, name) == getattr(other.reading, name) for name in MEASURED)
        return (measured and self.confidence.equals(other.confidence)
                and self.responses.span.equals(other.responses.span))  # fmt: skip

    def estimation(self, bin_counts: Sequence[int], names: Sequence[str] = tuple(METRICS)) -> dict[str, pd.DataFrame]:
        """Frames of the tables of raw confidence, but for the intervals; `names` are the metrics."""
        n_bins, closed = self.reading.bins, self.reading.closed
        results = evaluate(self.confidence, n_bins, closed, names=names)
        single_pass = self.confidence.estimator.map(lambda name: ESTIMATORS[name].group) == "single_pass"
        return {
            "result_estimation": results,
            "insitu_ptrue": pd.concat([results, reduction(self.verification)], ignore_index=True),
            "dropout_grid_search": grid(self.responses, self.dropout, self.reading, names),
            "bin_ablation": ablate_bins(self.confidence[single_pass], bin_counts, closed, ("ece", "mce", "brier")),
        }

    def calibration(self, choices: Calibration = Calibration()) -> dict[str, pd.DataFrame]:  # noqa: B008  frozen
        """Frames of the tables of calibration and transfer, made anew, without intervals; 05 and 07 keep a run's."""
        n_bins, closed = self.reading.bins, self.reading.closed
        sets = splits(self.generations, self.responses)
        fitted = fit_answers(sets, choices)
        calibrated, learned = calibrate(self.confidence, sets, fitted, choices)
        results = pd.concat([estimates(calibrated, n_bins, closed, ["ece"]), learned], ignore_index=True)
        return _stored(results, transfer(sets, fitted, n_bins, closed))

    def pictures(self) -> dict[str, pd.DataFrame]:
        """What the paper shows of responses as pictures, for every pair."""
        running_means, medians = [], []
        pairs = self.generations[PAIR].drop_duplicates()
        for pair in pairs.itertuples(index=False, name=None):  # of some a choice may leave no response
            named = dict(zip(PAIR, pair, strict=True))
            responses = self.responses[(self.responses[PAIR] == list(pair)).all(axis=1)]
            running_means.append(running_mean_curves(responses).assign(**named))
            medians.append(named | {"median": float(answer_tokens(responses).logprob.median())})
        return {"running_mean": pd.concat(running_means, ignore_index=True), "answers": pd.DataFrame(medians)}

    def dropout_pictures(self) -> dict[str, pd.DataFrame]:
        """What the paper shows of the passes as pictures, for every pair; no choice of reading changes it."""
        entropies, unchanged = [], []
        for pair, passes in self.dropout[self.dropout.selected].groupby(PAIR, sort=False):
            named = dict(zip(PAIR, pair, strict=True))
            entropies.append(entropy_curves(passes).assign(**named))
            unchanged.append(named | top_tokens(passes))
        return {"entropies": pd.concat(entropies, ignore_index=True), "top_tokens": pd.DataFrame(unchanged)}


def top_tokens(passes: pd.DataFrame) -> dict[str, float]:
    """Of one pair's evaluation rows: the share whose most probable answer tokens no pass changes, and their mean
    BALD."""
    evaluation = passes[passes.split == "evaluation"]
    changed = evaluation.top_changed.map(any)
    disagreement = [bald(row).mean() for row in evaluation[~changed].itertuples()]
    return {"unchanged": float(1 - changed.mean()), "bald": float(pd.Series(disagreement, dtype=float).mean())}


def _stored(results: pd.DataFrame, moved: pd.DataFrame) -> dict[str, pd.DataFrame]:
    names = ("result_estimation_full", "result_calibration", "result_calibration_full", "result_isotonic")
    both = ("calibration_transfer_full", "calibration_transfer_summary")
    return dict.fromkeys(names, results) | dict.fromkeys(both, moved)


def of_run(run: str, signals: RunSignals, title: str, models: Sequence[str], datasets: Sequence[str], *,
           bin_counts: Sequence[int] = (10, 20, 30), bin_models: Sequence[str] = (),
           transfer_models: Sequence[str] = (), transfer_datasets: Sequence[str] = ()) -> Results:  # fmt: skip
    """All that a run has to show. Raises UserError where 05 to 07 have not left their frames."""
    specs = [params.load_model(name) for name in models]
    labels = {name: spec.label for name, spec in zip(models, specs, strict=True)}
    dataset_specs = {name: params.load_dataset(name) for name in datasets}
    sets = {name: spec.label for name, spec in dataset_specs.items()}
    kept = {name: store.kept(run, "calibration", name, models, datasets) for name in ("results", "transfer", "curves")}
    frames = signals.estimation(bin_counts) | _stored(kept["results"], kept["transfer"])
    frames |= signals.pictures() | signals.dropout_pictures() | {"learning": curve_bands(kept["curves"])}
    frames |= asked_again(run, models, datasets, signals.reading)
    moved = ({name: labels[name] for name in transfer_models or models},
             {name: sets[name] for name in transfer_datasets or datasets})  # fmt: skip
    notes = tables.notes(title or OWN_NAME.get(run, f"Run {run}"), coverage(signals.generations, signals.reading),
                         how_made(run, models, datasets))  # fmt: skip
    binned = {name: labels[name] for name in bin_models or models}
    rows = signals.generations.groupby(["dataset", "split"])["example_id"].nunique()
    questions = {name: (spec.source, int(rows[name, "calibration"]), int(rows[name, "evaluation"]))
                 for name, spec in dataset_specs.items()}  # fmt: skip
    return Results(labels, sets, binned, moved, specs, frames, notes, questions)


def asked_again(run: str, models: Sequence[str], datasets: Sequence[str], reading: Reading
                ) -> dict[str, pd.DataFrame]:  # fmt: skip
    """What 04b left: `ablation` and `cost`. A run without it has neither, and the claims that rest on them say so."""
    with suppress(UserError):
        frame = store.gather(run, "ablation", models, datasets)[0]
        paths = [store.locate(run, "ablation", name) for name in store.pairs(models, datasets)]
        costs = ablation.costs([store.manifest(path) for path in paths])
        return {"ablation": ablation.summary(frame, reading.grader), "cost": costs}
    return {}


def how_made(run: str, models: Sequence[str], datasets: Sequence[str]) -> list[str]:
    """How a run's signals were made, from their manifests."""
    pairs = store.pairs(models, datasets)
    return tables.made(store.manifest(store.locate(run, kind, pair)) for kind in KINDS for pair in pairs)
