"""The results of a run: the frame of every table and claim, computed from its signals or stored by
04b to 09.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import pandas as pd

from lib import params, store
from lib.analysis import multi_pass_statistics, stages, token_statistics
from lib.analysis.prompt_ablation import summarize_arms
from lib.analysis.resampled_scores import ResampledScores, ResampleSettings, collect_scores
from lib.analysis.result_tables import Results, as_sentence
from lib.analysis.signals import Signals
from lib.analysis.token_statistics import apply_by_pair
from lib.calibrate import experiments
from lib.score.confidence import evaluate_rate_grid, rows_at_selected_rate
from lib.score.estimators import ESTIMATORS
from lib.score.evaluation import ablate_bins, evaluate
from lib.store import KEYS, PAIR, SCORE_CELL, evaluation_rows

# tables from one frame
CALIBRATED = ("result_calibration", "result_calibration_full", "result_isotonic")
TRANSFER_TABLES = ("calibration_transfer_full", "calibration_transfer_summary")
STORED_FRAMES = {  # stored frame of 05, 06, 07 or 09: its names in `Results`
    "calibration/results": ("result_estimation_full", *CALIBRATED), "calibration/confidence": ("calibrated",),
    "calibration/transfer": TRANSFER_TABLES, "calibration/curves": ("learning",),
    **{f"selective/{name}": (f"selective_{name}",) for name in ("scores", "thresholds", "curves")},
}  # fmt: skip
KINDS = ("verification", "dropout", *STORED_FRAMES)  # of frames, beside generations
Frames = dict[str, pd.DataFrame]

# ---- frames


def raw_frames(signals: Signals, n_bins_ablation: Sequence[int] = ()) -> Frames:
    """Return the frames of the tables of raw confidence, without intervals."""
    confidence, choices = signals.confidence, signals.choices
    raw = pd.concat(
        [evaluate(confidence, choices.bins), ece_on_shared_rows(confidence, choices.bins)]
    )
    saved = multi_pass_statistics.summarize_token_reduction(signals.verification)
    frames = {
        "result_estimation": raw,
        "dropout_grid_search": evaluate_rate_grid(signals.responses, signals.dropout, choices),
        "insitu_ptrue": pd.concat([raw, saved], ignore_index=True),
    }
    single_pass = confidence[
        confidence.estimator.map(lambda name: ESTIMATORS[name].group) == "single_pass"
    ]
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
    shared = rows[scores_of_row == rows.groupby(PAIR).estimator.transform("nunique")]
    errors = evaluate(shared, n_bins, names=["ece"]).assign(metric="ece_shared")
    had = rows.groupby(SCORE_CELL).size().reindex(pd.MultiIndex.from_frame(errors[SCORE_CELL]))
    return errors[errors.n < had.to_numpy()]


def calibration_frames(signals: Signals) -> Frames:
    """Return the frames of the tables of calibration and of transfer between all pairs, without
    intervals; 05 and 07 store a run's."""
    frames = dict.fromkeys(CALIBRATED, stages.evaluate_calibration(signals))
    return frames | dict.fromkeys(TRANSFER_TABLES, stages.transfer_calibrators(signals))


def statistics_frames(signals: Signals) -> Frames:
    """Return, for every pair, the statistics that the paper shows as pictures or in words.

    Those of passes are at the selected rate, on rows with a parsed answer; empty without any.
    """
    responses, evaluation = signals.responses, evaluation_rows(signals.confidence)
    passes = rows_at_selected_rate(
        multi_pass_statistics.keep_parsed_answers(signals.dropout, responses)
    )
    gaps = (evaluation.confidence - evaluation.correct).groupby(
        [evaluation[key] for key in SCORE_CELL]
    )
    return {
        "overconfidence": gaps.mean().rename("gap").reset_index(),
        "running_mean": apply_by_pair(token_statistics.running_mean_curves, responses),
        "tokens": token_statistics.summarize_answer_tokens(responses),
        "calibration_rows": experiments.describe_splits(signals.sets),
        "verification": multi_pass_statistics.verification_costs(
            signals.verification, signals.generations
        ),
        "entropies": apply_by_pair(multi_pass_statistics.entropy_curves, passes),
        "passes": apply_by_pair(multi_pass_statistics.summarize_passes, passes),
        "rates": multi_pass_statistics.compare_rates(responses, signals.dropout, signals.choices),
    }


def resample_scores(signals: Signals, settings: ResampleSettings | None = None) -> ResampledScores:
    """Return every score of a run on shared resamples: of the paper's estimators, raw and
    calibrated, and of parts of responses and of passes."""
    parts = [
        signals.confidence,
        token_statistics.trajectory_scores(signals.responses),
        multi_pass_statistics.pass_scores(signals.responses, signals.dropout, signals.choices),
    ]
    settings = settings or ResampleSettings(signals.choices.bins)
    fits = signals.calibration.fits
    return collect_scores(pd.concat(parts, ignore_index=True), signals.sets, fits, settings)


# ---- results


def results_without_frames(
    models: Sequence[str], datasets: Sequence[str], **shown: Sequence[str]
) -> Results:
    """Return the results of a run without frames: its models and datasets, and those of single
    tables.

    `shown`: `bin_models`, `transfer_models` and `transfer_datasets`; all if absent or empty.
    """
    labels = {
        "model": params.labels_by_name("model", models),
        "dataset": params.labels_by_name("dataset", datasets),
    }
    in_bins, moved_models, moved_datasets = (
        {
            name: labels[kind][name]
            for name in params.select_names(kind, shown.get(key, ()), list(labels[kind]))
        }
        for key, kind in (
            ("bin_models", "model"),
            ("transfer_models", "model"),
            ("transfer_datasets", "dataset"),
        )
    )
    settings = [params.load_model_config(name) for name in models]
    return Results(
        labels["model"], labels["dataset"], in_bins, (moved_models, moved_datasets), settings, {}
    )


def results_of_run(
    run: str,
    signals: Signals,
    models: Sequence[str],
    datasets: Sequence[str],
    *,
    kinds: Collection[str] = KINDS,
    n_bins_ablation: Sequence[int] = (10, 20, 30),
    title: str = "",
    resamples: int = 5000,
    seed: int = 0,
    **shown: Sequence[str],
) -> Results:
    """Return the results of a run; `shown`: as `results_without_frames`.

    `kinds`: which stored frames to read, all by default. The title is by default the run's name.
    `resamples` and `seed`: of the scores that claims compare.

    Raise UserError if stored frames are missing, other than those of 04b.
    """
    frames = raw_frames(signals, n_bins_ablation) | statistics_frames(signals)
    frames["costs"] = token_statistics.count_tokens(
        signals.generations, signals.verification, signals.dropout
    )
    frames["cost_quality"] = token_statistics.cost_and_quality(
        frames["costs"], frames["result_estimation"]
    )
    for kind in [kind for kind in STORED_FRAMES if kind in kinds]:
        folder, name = kind.split("/")
        frame = store.read_pairs(run, folder, name, models, datasets)
        frame = frame[frame["model"].isin(list(models)) & frame["dataset"].isin(list(datasets))]
        frames |= dict.fromkeys(STORED_FRAMES[kind], frame)
    if "learning" in frames:
        frames["learning"] = experiments.summarize_curves(frames["learning"])
    answers = store.load_frames(run, "ablation", models, datasets, may_lack=True)[0]
    frames["ablation"] = summarize_arms(answers, signals.choices.grader, signals.choices.bins)
    rows = signals.generations.groupby(["dataset", "split"])["example_id"].nunique()
    questions = {
        name: (
            params.load_dataset_config(name).source,
            int(rows[name, "calibration"]),
            int(rows[name, "evaluation"]),
        )
        for name in datasets
    }
    title = as_sentence(title or ("" if run == "paper" else f"Run {run}"))
    return replace(
        results_without_frames(models, datasets, **shown),
        frames=frames,
        questions=questions,
        title=title,
        scores=resample_scores(signals, ResampleSettings(signals.choices.bins, resamples, seed)),
        shared_masks=has_shared_masks(run, models, datasets),
    )


def has_shared_masks(run: str, models: Sequence[str], datasets: Sequence[str]) -> bool:
    """Return whether the passes of some pair share dropout masks among questions (`dropout_prefix:
    shared`)."""
    manifests = store.read_manifests(run, "dropout", store.pair_names(list(models), list(datasets)))
    return any(
        facts["parameters"].get("dropout_prefix") == "shared"
        for _, facts in manifests
        if "parameters" in facts
    )
