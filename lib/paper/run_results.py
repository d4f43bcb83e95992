"""The results of a run: frames made from what the models left behind, and from those that 05 to 07 keep."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib import params, store
from lib.analysis import (
    ablation_statistics,
    answer_dropout,
    costs,
    dropout_statistics,
    token_statistics,
    verification_statistics,
)
from lib.analysis.calibration_statistics import curve_bands, describe_calibration_split
from lib.analysis.dropout_statistics import entropy_curves
from lib.analysis.token_statistics import running_mean_curves_by_pair
from lib.calibrate.calibrators import Calibrator
from lib.calibrate.fitting import DataByPair, Pair, calibrate, calibration_data
from lib.calibrate.sample_efficiency import learning_curves
from lib.calibrate.transfer import transfer
from lib.paper import footnotes
from lib.paper.results import Results
from lib.params import Calibration, Reading
from lib.paths import UserError
from lib.schemas import empty_frame
from lib.score.bootstrap import bootstrap, estimate_metrics
from lib.score.confidence import (
    MARGINS,
    confidence_frame,
    evaluate_rate_grid,
    rows_at_selected_rate,
)
from lib.score.estimators import ESTIMATORS, SIGNALS
from lib.score.interpretation import answer_coverage, interpret_responses
from lib.score.metrics import METRICS, ablate_bins, evaluate
from lib.store import KEYS, PAIR

OWN_NAME = {"paper": ""}  # every other run says its name under its tables, if its title does not
SIGNAL_KINDS = ("generations", "verification", "dropout")  # what models leave on disk
METRIC_CHOICES = ("bins", "closed")  # choices that change how scores are measured, and no score
OF_SIGNALS = {
    "options": set(MARGINS.values()),
    "phi": {"bald"},
    "fit_on_tuning_rows": {"bald"},
}  # choices of no response
CONTRASTS = (  # what the paper says is lower, and than what: (estimator, method)
    (("seq_avg", ""), ("ans_avg", "")), (("c_bald", ""), ("p_true", "")),
    (("ans_avg", "isotonic"), ("ans_avg", "")), (("ans_avg", "platt"), ("ans_avg", "")),
)  # fmt: skip
CALIBRATED = ("result_estimation_full", "result_calibration", "result_calibration_full", "result_isotonic")
TRANSFER_TABLES = ("calibration_transfer_full", "calibration_transfer_summary")
NOT_ASKED = "(not asked: the model is not at hand)"
SELECTIVE_KINDS = ("scores", "thresholds", "curves")
Frames = dict[str, pd.DataFrame]
Fits = Mapping[Pair, Mapping[str, Calibrator]]  # as `fit_answers` returns them


@dataclass(frozen=True)
class RunSignals:
    """What the models left on disk, and what a run's choices read in it: `responses` as `interpret_responses` returns
    them, and the confidence of every estimator. `changed`: the signals that read otherwise than those it was made
    from."""

    generations: pd.DataFrame = field(repr=False)
    verification: pd.DataFrame = field(repr=False)
    dropout: pd.DataFrame = field(repr=False)
    reading: Reading
    responses: pd.DataFrame = field(repr=False)
    confidence: pd.DataFrame = field(repr=False)
    changed: frozenset[str] = frozenset(SIGNALS)

    @classmethod
    def of(cls, run: str, models: Sequence[str], datasets: Sequence[str], reading: Reading) -> "RunSignals":
        """Those of a run, or the shipped ones; of models that are not at hand the responses alone. Raises UserError
        where neither has them."""
        asked = {"generations": models}
        generations, verification, dropout = (
            store.load_frames(run, kind, asked.get(kind, params.models_at_hand(models)), datasets, kind == "dropout")[0]
            for kind in SIGNAL_KINDS
        )
        return cls.from_frames(generations, verification, dropout, reading)

    @classmethod
    def from_frames(cls, generations: pd.DataFrame, verification: pd.DataFrame, dropout: pd.DataFrame,
                    reading: Reading) -> "RunSignals":  # fmt: skip
        """What the choices read in these frames."""
        responses = interpret_responses(generations, reading)
        confidence = scores(responses, verification, dropout, reading)
        return cls(generations, verification, dropout, reading, responses, confidence)

    def under(self, **choice: Any) -> "RunSignals":
        """What other choices read otherwise: the pairs in which they change a signal, read again."""
        reading = self.reading.model_copy(update=choice)
        if set(choice) <= set(METRIC_CHOICES):
            return replace(self, reading=reading, changed=frozenset())
        responses, changed = self.responses, set().union(*(OF_SIGNALS.get(name, set()) for name in choice))
        if not set(choice) <= set(OF_SIGNALS):
            responses = interpret_responses(self.generations, reading)
            by_pair = changed_signals(self.responses, responses)
            changed, pairs = set().union(*by_pair.values()), {pair for pair, signals in by_pair.items() if signals}
            if len(pairs) < len(by_pair):
                kept = {name: rows_of_pairs(getattr(self, name), pairs) for name in (*SIGNAL_KINDS, "confidence")}
                return replace(self, reading=reading, responses=rows_of_pairs(responses, pairs), **kept)._scored(
                    changed
                )
        return replace(self, reading=reading, responses=responses)._scored(changed)

    def _scored(self, changed: set[str]) -> "RunSignals":
        """With the estimators of these signals scored again."""
        names, confidence = estimators_of(changed), self.confidence
        if names and len(self.responses):
            new = scores(self.responses, self.verification, self.dropout, self.reading, names)
            confidence = pd.concat([confidence[~confidence.estimator.isin(names)], new], ignore_index=True)
        return replace(self, confidence=confidence, changed=frozenset(changed))

    @cached_property
    def sets(self) -> DataByPair:
        return calibration_data(self.generations, self.responses) if len(self.responses) else {}

    def estimation(self, n_bins_ablation: Sequence[int], metrics: Sequence[str] = tuple(METRICS),
                   names: Collection[str] | None = None) -> Frames:  # fmt: skip
        """Frames of the tables of raw confidence, but for the intervals, of every estimator (or those of `names`)."""
        names = ESTIMATORS if names is None else names
        n_bins, closed, chosen = self.reading.bins, self.reading.closed, self.confidence.estimator.isin(names)
        single_pass = self.confidence.estimator.map(lambda name: ESTIMATORS[name].group) == "single_pass"
        shared = on_shared_rows(self.confidence, n_bins, closed)
        raw = [evaluate(self.confidence[chosen], n_bins, closed, names=metrics), shared[shared.estimator.isin(names)]]
        frames = {"result_estimation": pd.concat(raw if len(raw[1]) else raw[:1], ignore_index=True)}
        if (chosen & single_pass).any():
            measured = ("ece", "mce", "brier")
            frames["bin_ablation"] = ablate_bins(
                self.confidence[chosen & single_pass], n_bins_ablation, closed, measured
            )
        if "c_bald" in names:
            frames["dropout_grid_search"] = evaluate_rate_grid(self.responses, self.dropout, self.reading, metrics)
        return frames

    def in_situ(self, results: pd.DataFrame) -> Frames:
        """The frame of `tab:insitu_ptrue`, from that of raw confidence."""
        parts = [
            results,
            verification_statistics.token_reduction(self.verification),
            verification_statistics.option_mass(self.verification, self.reading.options),
        ]
        return {"insitu_ptrue": pd.concat(parts, ignore_index=True)}

    def calibration(self, fitted: Fits, choices: Calibration, names: Collection[str] | None = None) -> Frames:
        """Frames of the tables of calibration, made anew for every estimator (or those of `names`), without intervals;
        05 keeps a run's. `fitted` as `fit_answers` returns it."""
        names = ESTIMATORS if names is None else names
        chosen, of_answers = self.confidence.estimator.isin(names), {"ans_avg", "ans_joint"} & set(names)
        calibrated, learned, _ = calibrate(self.confidence[chosen], self.sets if of_answers else {}, fitted, choices)
        results = estimate_metrics(calibrated, self.reading.bins, self.reading.closed, ["ece"])
        frames = dict.fromkeys(CALIBRATED, pd.concat([results, learned], ignore_index=True))
        return frames | ({"calibration_rows": describe_calibration_split(self.sets)} if of_answers else {})

    def moved(self, sets: DataByPair, fitted: Fits) -> Frames:
        """Frames of the tables of transfer between all pairs, made anew; 07 keeps a run's."""
        return dict.fromkeys(TRANSFER_TABLES, transfer(sets, fitted, self.reading.bins, self.reading.closed))

    def learning(self, curves: pd.DataFrame, choices: Calibration, seed: int = 0, every: bool = False) -> Frames:
        """The learning curves of rows drawn by chance: those of `curves`, made anew where draws of one class are among
        them, or at `every` size."""
        uniform = curves[curves.sampling == "uniform"]
        sizes = sorted(uniform.n[uniform.one_class | every].unique())
        sets = {pair: part for pair, part in self.sets.items() if pair[0] in set(curves.model)}
        how = (sizes, int(curves.draw.max()) + 1, seed, ("uniform",), 0.5)
        anew = learning_curves(sets, *how, self.reading.bins, self.reading.closed, choices)
        anew = anew.merge(uniform[[*PAIR, "n"]].drop_duplicates())  # all rows of one dataset are some of another's
        both = [uniform[~uniform.n.isin(sizes)], anew[anew.n.isin(sizes)]]
        return {"learning": curve_bands(pd.concat(both, ignore_index=True))}

    def of_responses(self) -> Frames:
        """What the paper shows of responses as pictures or says in words, for every pair."""
        evaluation = self.confidence[self.confidence.split == "evaluation"]
        gaps = (evaluation.confidence - evaluation.correct).groupby([evaluation[key] for key in (*PAIR, "estimator")])
        return {
            "running_mean": running_mean_curves_by_pair(self.responses),
            "tokens": token_statistics.summarize_tokens(self.responses),
            "positions": token_statistics.position_curves(self.responses),
            "unread": token_statistics.count_missed_answers(self.generations, self.reading),
            "answered": split_answered(self.responses),
            "overconfidence": gaps.mean().rename("gap").reset_index(),
        }

    def of_passes(self, counts: Sequence[int] = ()) -> Frames:
        """What it shows or says of the passes, on the rows whose answer was read; `counts`: as
        `dropout_statistics.by_passes`."""
        kept = dropout_statistics.answered(self.dropout, self.responses)
        selected = kept[kept.selected]
        if selected.empty:  # no answer was read anywhere: nothing to say of any pass
            return dict.fromkeys(("entropies", "passes", "by_passes", "by_rate"), selected)
        entropies = [entropy_curves(part).assign(**dict(zip(PAIR, pair, strict=True)))
                     for pair, part in selected.groupby(PAIR, sort=False)]  # fmt: skip
        return {"entropies": pd.concat(entropies, ignore_index=True), "passes": dropout_statistics.summary(selected),
                "by_passes": dropout_statistics.by_passes(self.responses, self.dropout, self.reading, counts),
                "by_rate": dropout_statistics.by_rate(kept)}  # fmt: skip

    def set_up(self) -> Frames:
        """Evaluation questions and tokens of verification, which no choice of reading changes, and what the calibration
        rows show."""
        evaluation = self.generations[self.generations.split == "evaluation"]
        rows = evaluation.groupby("dataset", sort=False).example_id.nunique().rename("rows").reset_index()
        costs_of_pairs = verification_statistics.verification_costs(self.verification, self.generations)
        return {"rows": rows, "verification": costs_of_pairs, "calibration_rows": describe_calibration_split(self.sets)}

    def of_phi(self) -> Frames:
        """c_BALD on the tuning examples under each phi."""
        return {"by_phi": dropout_statistics.by_phi(self.responses, self.dropout, self.reading)}


def scores(responses: pd.DataFrame, verification: pd.DataFrame, dropout: pd.DataFrame, reading: Reading,
           names: Collection[str] | None = None) -> pd.DataFrame:  # fmt: skip
    """The confidence of every estimator (or of `names`) at the selected dropout rate."""
    return confidence_frame(responses, verification, rows_at_selected_rate(dropout, reading), reading, names)


def on_shared_rows(confidence: pd.DataFrame, n_bins: int, closed: str) -> pd.DataFrame:
    """Raw ECE of those estimators that have more evaluation rows than another of their pair, on the rows that all of it
    have: metric `ece_shared`, otherwise as `metrics.evaluate`."""
    rows = confidence[confidence.split == "evaluation"]
    by_pair = rows.groupby(PAIR).estimator.transform("nunique")
    everywhere = rows.groupby(KEYS).estimator.transform("size") == by_pair
    fewer = evaluate(rows[everywhere], n_bins, closed, names=["ece"]).assign(metric="ece_shared")
    had = rows.groupby([*PAIR, "estimator"]).size()
    return fewer[fewer.n < had.reindex(pd.MultiIndex.from_frame(fewer[[*PAIR, "estimator"]])).to_numpy()]


def split_answered(responses: pd.DataFrame, split: str = "evaluation") -> pd.DataFrame:
    """By pair: rows, and how many of them hold an answer that could be read (`parsed`)."""
    by_pair = responses[responses.split == split].groupby(PAIR, sort=False).parsed
    return by_pair.agg(rows="size", parsed="sum").reset_index()


def changed_signals(before: pd.DataFrame, after: pd.DataFrame) -> dict[tuple, set[str]]:
    """By pair: the signals of estimators in which two readings of the same responses differ; all, where rows or grades
    do."""
    known, new = [*KEYS, "correct"], dict(list(after.groupby(PAIR, sort=False)))
    changed: dict[tuple, set[str]] = {}
    for pair, old in before.groupby(PAIR, sort=False):
        part, signals = new.get(pair, after.head(0)), set(SIGNALS)
        if np.array_equal(old[known].to_numpy(), part[known].to_numpy()):
            signals = {name for name in ("response", "answer")
                       if not all(map(np.array_equal, old[name], part[name]))}  # fmt: skip
            if not np.array_equal(old.answer.isna(), part.answer.isna()):
                signals.add("bald")
        changed[pair] = signals
    return changed


def rows_of_pairs(frame: pd.DataFrame, pairs: Collection[tuple]) -> pd.DataFrame:
    return frame[np.array([pair in pairs for pair in zip(frame.model, frame.dataset, strict=True)], dtype=bool)]


def estimators_of(signals: Collection[str]) -> set[str]:
    """The estimators that take one of these signals."""
    return {name for name, estimator in ESTIMATORS.items() if estimator.needs in signals}


def results_of_run(run: str, signals: RunSignals, title: str, models: Sequence[str], datasets: Sequence[str], *,
           n_bins_ablation: Sequence[int] = (10, 20, 30), bin_models: Sequence[str] = (),
           transfer_models: Sequence[str] = (), transfer_datasets: Sequence[str] = (),
           resamples: int = 5000, seed: int = 0) -> Results:  # fmt: skip
    """All that a run has to show, with intervals over as many `resamples` as in 05. Raises UserError where 05 to 07 or
    10 have not left their frames."""
    specs = [params.load_model_config(name) for name in models]
    labels = {name: spec.label for name, spec in zip(models, specs, strict=True)}
    dataset_specs = {name: params.load_dataset_config(name) for name in datasets}
    sets = {name: spec.label for name, spec in dataset_specs.items()}
    frames = of_calibration(run, models, datasets) | of_signals(signals, n_bins_ablation)
    frames |= signals.in_situ(frames["result_estimation"])  # without a verdict, where no model is at hand
    frames |= asked_again(run, models, datasets, signals.reading)
    frames |= answer_dropout.in_situ(run, models, datasets, signals.generations, signals.responses, signals.dropout,
                             signals.reading, resamples, seed)  # fmt: skip
    frames |= costs.costs_of_run(run, models, datasets, signals.generations, signals.verification, frames)
    frames |= load_selective(run, models, datasets)
    frames["paired"] = paired(frames["calibrated"], signals.reading, resamples, seed)
    moved = labels_of(labels, "model", transfer_models), labels_of(sets, "dataset", transfer_datasets)
    covered = answer_coverage(signals.generations, signals.reading)
    covered = covered.assign(model=covered.model.map(labels), dataset=covered.dataset.map(sets))
    how = [*how_made(run, labels, datasets), *missing_signals(run, labels, sets)]
    notes = footnotes.notes(title or OWN_NAME.get(run, f"Run {run}"), covered, how)
    binned = labels_of(labels, "model", bin_models)
    rows = signals.generations.groupby(["dataset", "split"])["example_id"].nunique()
    questions = {name: (spec.source, int(rows[name, "calibration"]), int(rows[name, "evaluation"]))
                 for name, spec in dataset_specs.items()}  # fmt: skip
    return Results(labels, sets, binned, moved, specs, frames, notes, questions)


def load_selective(run: str, models: Sequence[str], datasets: Sequence[str]) -> Frames:
    """What 10 left of these pairs, by `selective_` and SELECTIVE_KINDS."""
    frames = {
        f"selective_{kind}": store.read_pairs(run, "selective", kind, models, datasets) for kind in SELECTIVE_KINDS
    }
    return {name: frame[frame["model"].isin(list(models)) & frame["dataset"].isin(list(datasets))]
            for name, frame in frames.items()}  # fmt: skip


def of_signals(signals: RunSignals, n_bins_ablation: Sequence[int] = (10, 20, 30)) -> Frames:
    """What the models' signals show without any calibrator; of a kind that is not there, no frame, or an empty one."""
    frames = signals.estimation(n_bins_ablation) | signals.of_responses() | signals.of_passes() | signals.of_phi()
    if len(signals.verification):
        frames |= signals.in_situ(frames["result_estimation"])
    return frames | signals.set_up()


def of_calibration(run: str, models: Sequence[str], datasets: Sequence[str],
                   names: Collection[str] = ("results", "confidence", "transfer", "curves")) -> Frames:  # fmt: skip
    """What 05 (results, confidence), 06 (curves) and 07 (transfer) keep. Raises UserError where they have not left
    it."""
    kept = {name: store.read_pairs(run, "calibration", name, models, datasets) for name in names}
    frames: Frames = {}
    if "results" in kept:
        frames |= dict.fromkeys(CALIBRATED, kept["results"])
    if "transfer" in kept:
        frames |= dict.fromkeys(TRANSFER_TABLES, kept["transfer"])
    if "curves" in kept:
        frames |= {"learning": curve_bands(kept["curves"]), "curves": kept["curves"]}
    if "confidence" in kept:
        frames["calibrated"] = kept["confidence"]
    return frames


def labels_of(labels: Mapping[str, str], kind: str, names: Sequence[str]) -> dict[str, str]:
    """The {name: label} of those models (or datasets) that a table shows; of all where none is named."""
    return {name: labels[name] for name in params.choose_some(kind, names, list(labels))}


def so_far(run: str, models: Sequence[str], datasets: Sequence[str], reading: Reading, kinds: Collection[str],
           transfer_models: Sequence[str] = (), transfer_datasets: Sequence[str] = ()) -> Results:  # fmt: skip
    """What some of a run's notebooks show, for findings that need no more: those that leave these `kinds` of frames
    (`lib.schemas`), of which any but `generations` may lack."""
    generations, verification, dropout = (
        store.load_frames(run, kind, models, datasets, kind != "generations")[0] if kind in kinds else empty_frame(kind)
        for kind in SIGNAL_KINDS
    )
    shown = of_signals(RunSignals.from_frames(generations, verification, dropout, reading))
    if "ablation" in kinds:
        shown |= asked_again(run, models, datasets, reading)
    folder = "calibration/"
    shown |= of_calibration(run, models, datasets, [k.removeprefix(folder) for k in kinds if k.startswith(folder)])
    labels = {name: params.load_model_config(name).label for name in models}
    sets = {name: params.load_dataset_config(name).label for name in datasets}
    moved = labels_of(labels, "model", transfer_models), labels_of(sets, "dataset", transfer_datasets)
    return Results(labels, sets, labels, moved, (), shown)


def paired(calibrated: pd.DataFrame, reading: Reading, resamples: int = 5000, seed: int = 0) -> pd.DataFrame:
    """Paired differences of ECE with their intervals for CONTRASTS, as `Bootstrap.differences` returns them, each on
    the rows that both have."""
    who, parts = list(zip(calibrated.estimator, calibrated["method"], strict=True)), []
    for contrast in CONTRASTS:
        chosen = calibrated[[one in contrast for one in who]]
        chosen = chosen[chosen.duplicated(KEYS, keep=False)]
        if len(chosen):
            drawn = bootstrap(chosen, reading.bins, reading.closed, resamples, seed)
            parts.append(drawn.differences([contrast]))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*PAIR, "estimator", "method"])


def asked_again(run: str, models: Sequence[str], datasets: Sequence[str], reading: Reading
                ) -> dict[str, pd.DataFrame]:  # fmt: skip
    """What 04b left: `ablation`, `demonstration` and `cost`. A run without it has none, and the claims that rest on
    them say so."""
    with suppress(UserError):
        there = store.find_pairs(run, "ablation", store.pair_names(models, datasets))
        paths = [store.find_frame(run, "ablation", name) for name in there]
        frame = store.load_frames(run, "ablation", models, datasets, may_lack=True)[0]
        costs = ablation_statistics.pass_costs([store.read_manifest(path) for path in paths])
        return {"ablation": ablation_statistics.summarize_ablation(frame, reading.grader), "cost": costs,
                "demonstration": ablation_statistics.compare_demonstrations(frame, reading.grader)}  # fmt: skip
    return {}


class Exchange(NamedTuple):
    """A question asked and verified, as texts: what `fig:prompt_example` and `fig:prompt_comparison` show."""

    prompt: str
    text: str
    standard_prompt: str  # empty where the model is not at hand, and was not asked

    def ways(self, query: str) -> tuple[str, str, str]:
        """The verification prompt, the trajectory with the query, and the query; what to say where none was asked."""
        if not self.standard_prompt:
            return NOT_ASKED, NOT_ASKED, ""
        return self.standard_prompt, self.prompt + self.text + query, query


def load_exchange(run: str, signals: RunSignals, model: str, dataset: str) -> Exchange:
    """The first evaluation row of a pair; of a run that keeps no texts, the exchange on a question of ours that 03 left
    in its manifest. Of a model that is not at hand the question stands for its prompt, which nobody knows."""
    chosen = "model == @model and dataset == @dataset and split == 'evaluation'"
    one, asked = signals.generations.query(chosen).iloc[0], signals.verification.query(chosen)
    if asked.empty:  # the model is not at hand
        question, text = (one.question, one.text) if isinstance(one.text, str) else ("(not kept)", "(not kept)")
        return Exchange(question, text, "")
    if isinstance(one.text, str):
        return Exchange(one.prompt, one.text, asked.standard_prompt.iloc[0])
    return Exchange(**store.read_manifest(store.find_frame(run, "verification", f"{model}__{dataset}"))["exchange"])


def missing_signals(run: str, models: Mapping[str, str], datasets: Mapping[str, str]) -> list[str]:
    """The line that says for which pairs dropout passes are still to come, by their labels; none where none are."""
    there = set(store.find_pairs(run, "dropout", store.pair_names(list(models), list(datasets))))
    asked = {model: models[model] for model in params.models_at_hand(list(models))}
    absent = [f"{label} on {name}" for model, label in asked.items() for dataset, name in datasets.items()
              if f"{model}__{dataset}" not in there]  # fmt: skip
    return [f"No dropout passes over the whole response yet: {', '.join(absent)}."] if absent else []


def how_made(run: str, labels: Mapping[str, str], datasets: Sequence[str]) -> list[str]:
    """How the signals of a run's models ({name: label}) were made, from their manifests."""
    pairs = store.pair_names(list(labels), datasets)
    return footnotes.made((labels[pair.split("__")[0]], store.read_manifest(store.find_frame(run, kind, pair)))
                       for kind in SIGNAL_KINDS for pair in store.find_pairs(run, kind, pairs))  # fmt: skip
