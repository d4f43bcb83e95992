"""The results of a run: the frame of every table and claim, computed from its signals or stored by
04b to 09.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd

from lib import params, store
from lib.analysis import costs, multi_pass_statistics, stages, token_statistics
from lib.analysis.pair_frames import Frames, collect_pair_frames
from lib.analysis.prompt_ablation import summarize_arms
from lib.analysis.resampled_scores import ResampledScores, ResampleSettings
from lib.analysis.results import Results, as_sentence
from lib.analysis.scores_of_run import collect_scores
from lib.analysis.signals import AnySignals
from lib.calibrate import sample_efficiency, split_comparison
from lib.calibrate.calibration_sets import Pair
from lib.score.estimators import ESTIMATORS
from lib.score.evaluation import ablate_bins, evaluate
from lib.store import KEYS, PAIR, SCORE_CELL, evaluation_rows

# tables from one frame
CALIBRATED = ("result_calibration", "result_calibration_full", "result_isotonic")
TRANSFER_TABLES = ("calibration_transfer_full", "calibration_transfer_summary")
STORED_FRAMES = {  # stored frame of 05, 06, 07 or 09: its names in `Results`
    "calibration/results": ("result_estimation_full", *CALIBRATED),
    "calibration/confidence": ("calibrated",),
    "calibration/transfer": TRANSFER_TABLES,
    "calibration/curves": ("learning",),
    "selective/scores": ("selective_scores",),
    "selective/thresholds": ("selective_thresholds",),
    "selective/curves": ("selective_curves",),
}
KINDS = ("verification", "dropout", *STORED_FRAMES)  # of frames, beside generations

# ---- frames


def raw_frames(signals: AnySignals, n_bins_ablation: Sequence[int] = ()) -> Frames:
    """Return the frames of the tables of raw confidence, without intervals."""
    confidence = signals.confidence
    n_bins = signals.choices.bins
    errors = evaluate(confidence, n_bins)
    raw = pd.concat([errors, ece_on_shared_rows(confidence, n_bins)])
    frames = {
        "result_estimation": raw,
        "insitu_ptrue": pd.concat([raw, signals.token_reduction], ignore_index=True),
    }
    groups = confidence.estimator.map(lambda name: ESTIMATORS[name].group)
    single_pass = confidence[groups == "single_pass"]
    if n_bins_ablation and len(single_pass):
        frames["bin_ablation"] = ablate_bins(single_pass, n_bins_ablation, ("ece", "mce", "brier"))
    return frames


def ece_on_shared_rows(confidence: pd.DataFrame, n_bins: int) -> pd.DataFrame:
    """Return the raw ECE of estimators with more evaluation rows than another one of their pair, on
    the shared rows.

    The metric is `ece_shared`, with columns as in `evaluate`.
    """
    rows = evaluation_rows(confidence)
    scores_of_row = rows.groupby(KEYS).estimator.transform("size")
    scores_of_pair = rows.groupby(PAIR).estimator.transform("nunique")
    shared = rows[scores_of_row == scores_of_pair]
    errors = evaluate(shared, n_bins, names=["ece"]).assign(metric="ece_shared")
    counts = rows.groupby(SCORE_CELL).size()
    count_before = counts.reindex(pd.MultiIndex.from_frame(errors[SCORE_CELL]))
    return errors[errors.n < count_before.to_numpy()]


def calibration_frames(signals: AnySignals, all_transfers: bool = False) -> Frames:
    """Return the frames of the tables of calibration and of transfer between pairs, without
    intervals; 05 and 07 store a run's. `all_transfers` as for `transfer`."""
    frames = dict.fromkeys(CALIBRATED, stages.evaluate_calibration(signals))
    transferred = stages.transfer_calibrators(signals, all_transfers)
    return frames | dict.fromkeys(TRANSFER_TABLES, transferred)


def error_frames(signals: AnySignals) -> Frames:
    """Return the frames that claims on errors read beside the scores: accuracies, gains, and
    transfer."""
    raw = evaluate(signals.confidence, signals.choices.bins, names=["acc", "ece"])
    return {
        "result_estimation": raw,
        "insitu_ptrue": signals.token_reduction,
        "result_calibration": stages.evaluate_calibration(signals, ["acc", "ece"]),
        "calibration_transfer_summary": stages.transfer_calibrators(signals),
    }


def resample_scores(
    signals: AnySignals, settings: ResampleSettings, moved: Collection[Pair] = ()
) -> ResampledScores:
    """Return every score of a run on shared resamples: of the paper's estimators, raw and
    calibrated, and of parts of responses and of passes.

    `moved`: pairs among which calibrators are transferred, as for `collect_scores`.
    """
    choices = signals.choices
    parts = [signals.confidence]
    for pair in signals.by_pair():
        if len(evaluation_rows(pair.responses)):
            parts.append(token_statistics.score_parts(pair.responses))
        if len(pair.dropout):
            parts.append(multi_pass_statistics.pass_scores(pair.responses, pair.dropout, choices))
    scores = pd.concat(parts, ignore_index=True)
    return collect_scores(scores, signals.sets, signals.calibration.fits, settings, moved)


# ---- results


def results_without_frames(
    models: Sequence[str],
    datasets: Sequence[str],
    bin_models: Sequence[str] = (),
    transfer_models: Sequence[str] = (),
    transfer_datasets: Sequence[str] = (),
) -> Results:
    """Return the results of a run without frames: its models and datasets, and those of single
    tables, which are all if empty."""
    model_labels = params.labels_by_name("model", models)
    dataset_labels = params.labels_by_name("dataset", datasets)
    return Results(
        models=model_labels,
        datasets=dataset_labels,
        bin_labels=select_labels("model", bin_models, model_labels),
        transfer_labels=(
            select_labels("model", transfer_models, model_labels),
            select_labels("dataset", transfer_datasets, dataset_labels),
        ),
        settings=[params.load_model_config(name) for name in models],
        frames={},
    )


def select_labels(kind: str, wanted: Sequence[str], labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of the wanted models or datasets (`kind`), or all if none is wanted."""
    names = params.select_names(kind, wanted, list(labels))
    return {name: labels[name] for name in names}


def results_of_run(
    run: str,
    signals: AnySignals,
    models: Sequence[str],
    datasets: Sequence[str],
    *,
    kinds: Collection[str] = KINDS,
    n_bins_ablation: Sequence[int] = (10, 20, 30),
    title: str = "",
    resamples: int = 5000,
    seed: int = 0,
    **selected: Sequence[str],
) -> Results:
    """Return the results of a run; `selected`: as `results_without_frames`.

    `kinds`: which stored frames to read, all by default. The title is by default the run's name.
    `resamples` and `seed`: of the scores that claims compare.

    Raise UserError if stored frames are missing, other than those of 04b.
    """
    frames = raw_frames(signals, n_bins_ablation) | collect_pair_frames(signals)
    frames["calibration_rows"] = split_comparison.describe_splits(signals.sets)
    frames["cost_quality"] = costs.cost_and_quality(frames["costs"], frames["result_estimation"])
    frames |= read_stored_frames(run, models, datasets, kinds)
    answers, _ = store.load_frames(run, "ablation", models, datasets, may_lack=True)
    choices = signals.choices
    frames["ablation"] = summarize_arms(answers, choices.grader, choices.bins)
    if not title and run != "paper":
        title = f"Run {run}"
    empty = results_without_frames(models, datasets, **selected)
    moved = list(product(*empty.transfer_labels))
    resampling = ResampleSettings(choices.bins, resamples, seed)
    return replace(
        empty,
        frames=frames,
        questions=count_questions(frames.pop("questions"), datasets),
        title=as_sentence(title),
        scores=resample_scores(signals, resampling, moved),
        shared_masks=questions_share_masks(run, models, datasets),
    )


def read_stored_frames(
    run: str, models: Sequence[str], datasets: Sequence[str], kinds: Collection[str]
) -> Frames:
    """Return the rows of these models and datasets of what 05 to 07 and 09 stored, by table."""
    frames: Frames = {}
    for kind, tables in STORED_FRAMES.items():
        if kind not in kinds:
            continue
        folder, name = kind.split("/")
        frame = store.read_pairs(run, folder, name, models, datasets)
        frame = frame[frame["model"].isin(list(models))]
        frame = frame[frame["dataset"].isin(list(datasets))]
        frames |= dict.fromkeys(tables, frame)
    if "learning" in frames:
        frames["learning"] = sample_efficiency.summarize_curves(frames["learning"])
    return frames


def count_questions(
    questions: pd.DataFrame, datasets: Sequence[str]
) -> dict[str, tuple[Any, int, int]]:
    """Return by dataset its source and the numbers of its calibration and evaluation rows.

    `questions` has the KEYS of every response.
    """
    counts = questions.groupby(["dataset", "split"])["example_id"].nunique()
    counted = {}
    for name in datasets:
        source = params.load_dataset_config(name).source
        rows = counts[name]
        counted[name] = (source, int(rows["calibration"]), int(rows.get("evaluation", 0)))
    return counted


def questions_share_masks(run: str, models: Sequence[str], datasets: Sequence[str]) -> bool:
    """Return whether the passes of some pair share dropout masks among questions (`dropout_prefix:
    shared`)."""
    pairs = store.pair_names(models, datasets)
    for _, facts in store.read_manifests(run, "dropout", pairs):
        if facts.get("parameters", {}).get("dropout_prefix") == "shared":
            return True
    return False
