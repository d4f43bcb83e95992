"""The results of a run: frames computed from stored model outputs, and the stored frames of 04b to 07 and 09."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from lib import params, store
from lib.analysis import costs
from lib.analysis.calibration_statistics import summarize_curves
from lib.analysis.results import Results, as_sentence
from lib.analysis.run_signals import CALIBRATED, SIGNAL_KINDS, TRANSFER_TABLES, Frames, RunSignals
from lib.params import EvaluationChoices
from lib.paths import UserError
from lib.score.prompt_ablation import summarize_arms
from lib.stored_columns import empty_frame

STORED_FRAMES = {  # stored frame of 05, 06, 07 or 09: its names in `Results`
    "calibration/results": ("result_estimation_full", *CALIBRATED), "calibration/confidence": ("calibrated",),
    "calibration/transfer": TRANSFER_TABLES, "calibration/curves": ("learning",),
    **{f"selective/{name}": (f"selective_{name}",) for name in ("scores", "thresholds", "curves")},
}  # fmt: skip


def results_without_frames(
    models: Sequence[str],
    datasets: Sequence[str],
    *,
    bin_models: Sequence[str] = (),
    transfer_models: Sequence[str] = (),
    transfer_datasets: Sequence[str] = (),
) -> Results:
    """Return the results of a run without frames: its models and datasets, and those of single tables."""
    specs = [params.load_model_config(name) for name in models]
    labels = {name: spec.label for name, spec in zip(models, specs, strict=True)}
    sets = {name: params.load_dataset_config(name).label for name in datasets}
    moved = select_labels(labels, "model", transfer_models), select_labels(sets, "dataset", transfer_datasets)
    return Results(labels, sets, select_labels(labels, "model", bin_models), moved, specs, {})


def select_labels(labels: Mapping[str, str], kind: str, names: Sequence[str]) -> dict[str, str]:
    """Return the {name: label} of the models (or datasets) that a table shows; all if none is named."""
    return {name: labels[name] for name in params.select_names(kind, names, list(labels))}


def results_of_run(
    run: str,
    signals: RunSignals,
    models: Sequence[str],
    datasets: Sequence[str],
    *,
    n_bins_ablation: Sequence[int] = (10, 20, 30),
    title: str = "",
    **shown: Sequence[str],
) -> Results:
    """Return all results of a run; `shown`: as `results_without_frames`.

    The title is by default the run's name.

    Raise UserError if frames of 05 to 07 or 09 are missing.
    """
    pairs = run, models, datasets
    frames = load_stored_frames(*pairs) | signals.response_frames() | signals.score_frames(n_bins_ablation)
    frames |= load_ablation(*pairs, signals.choices)
    frames |= costs.costs_of_run(signals, frames)
    rows = signals.generations.groupby(["dataset", "split"])["example_id"].nunique()
    questions = {
        name: (params.load_dataset_config(name).source, int(rows[name, "calibration"]), int(rows[name, "evaluation"]))
        for name in datasets
    }
    title = as_sentence(title or ("" if run == "paper" else f"Run {run}"))
    return replace(results_without_frames(models, datasets, **shown), frames=frames, questions=questions, title=title)


def partial_results(
    run: str,
    models: Sequence[str],
    datasets: Sequence[str],
    choices: EvaluationChoices,
    kinds: Collection[str],
    **shown: Sequence[str],
) -> Results:
    """Return the results of some of a run's notebooks, for findings that need only these `kinds` of frames.

    The kinds are those of `lib.stored_columns`; all but `generations` may be missing.
    """
    generations, verification, dropout = (
        store.load_frames(run, kind, models, datasets, kind != "generations")[0] if kind in kinds else empty_frame(kind)
        for kind in SIGNAL_KINDS
    )
    signals = RunSignals.from_frames(generations, verification, dropout, choices)
    frames = signals.response_frames() | signals.score_frames()
    if "ablation" in kinds:
        frames |= load_ablation(run, models, datasets, choices)
    frames |= load_stored_frames(run, models, datasets, [kind for kind in STORED_FRAMES if kind in kinds])
    return replace(results_without_frames(models, datasets, **shown), frames=frames)


def load_stored_frames(
    run: str, models: Sequence[str], datasets: Sequence[str], kinds: Collection[str] = tuple(STORED_FRAMES)
) -> Frames:
    """Return the frames of STORED_FRAMES for these pairs. Raise UserError if they are missing."""
    frames: Frames = {}
    for kind in kinds:
        folder, name = kind.split("/")
        frame = store.read_pairs(run, folder, name, models, datasets)
        frame = frame[frame["model"].isin(list(models)) & frame["dataset"].isin(list(datasets))]
        frames |= dict.fromkeys(STORED_FRAMES[kind], summarize_curves(frame) if kind == "calibration/curves" else frame)
    return frames


def load_ablation(run: str, models: Sequence[str], datasets: Sequence[str], choices: EvaluationChoices) -> Frames:
    """Return the results of 04b, `ablation`; nothing without 04b."""
    with suppress(UserError):
        frame = store.load_frames(run, "ablation", models, datasets, may_lack=True)[0]
        return {"ablation": summarize_arms(frame, choices.grader, choices.bins)}
    return {}
