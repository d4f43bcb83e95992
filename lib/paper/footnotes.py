"""Notes below a table: how rows were generated, how many there are, and why a cell is empty."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from lib import run_names, store
from lib.analysis.results import Results
from lib.analysis.run_signals import SIGNAL_KINDS, RunSignals, read_manifests
from lib.score.estimators import in_columns
from lib.score.interpretation import answer_coverage

MIN_BIN_COUNT = 5  # gaps of bins with fewer rows are marked
MODEL_NOT_AVAILABLE = (
    "Responses and log-probabilities from a file, the model not at hand, so that nothing is known of "
    "P(True), passes with dropout and temperature"
)
SHARES = {"unparsed": "No parsable answer", "cut": "Cut by length", "unclosed": "Thinking never closed"}

# ---- of a run


def provenance_notes(manifests: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return notes on how rows were generated, from manifests of generations, verification and dropout.

    Each manifest comes with its model's current label. There is a line per device and precision, with models, sources
    and revisions. Other lines name unavailable models, and models without passes, and explain their empty cells.
    """
    models: dict[str, dict[str, None]] = {}
    absent: dict[str, None] = {}
    missing: dict[str, None] = {}
    for label, facts in manifests:
        if reason := facts.get("missing"):
            missing[f"No dropout passes of {label}: {reason}."] = None
        if (loaded := facts.get("loaded")) is None:
            absent[label] = None
            continue
        revision = f"@{loaded['revision'][:12]}" if loaded["revision"] else ""
        how = f"{loaded['device']}, {loaded['dtype']}"
        models.setdefault(how, {})[f"{label} ({loaded['source']}{revision})"] = None
    lines = [f"Made on {how}: {', '.join(names)}." for how, names in models.items()]
    return [*lines, *missing] + ([f"{MODEL_NOT_AVAILABLE}: {', '.join(absent)}."] if absent else [])


def table_notes(title: str = "", coverage: pd.DataFrame | None = None, how: Sequence[str] = ()) -> list[str]:
    """Return the notes under a result table.

    They contain the run's `title` (say "Demo models"), `how` it was generated, and the shares of `coverage`
    (`answer_coverage`, with the labels of models and datasets). These are responses without a parsable answer, cut by
    length, or with unclosed thinking.
    """
    lines = [title.strip().rstrip(".") + ".", *how] if title.strip() else list(how)
    if coverage is None or not len(coverage):
        return lines
    total = coverage["rows"].sum()
    for column, what in SHARES.items():
        if column not in coverage or (column == "unclosed" and not coverage[column].any()):
            continue
        share = (coverage[column] * coverage["rows"]).sum() / total
        worst = coverage.loc[coverage[column].idxmax()]
        most = f" (at most {worst[column]:.1%}, {worst['model']} on {worst['dataset']})" if share else ""
        lines.append(f"{what}: {share:.1%} of {total} responses{most}.")
    least = coverage.groupby("model", sort=False)["unparsed"].min()
    if silent := list(least.index[least == 1]):
        lines.append(f"No answer of {' and '.join(silent)} could be read: the findings leave that out.")
    return lines


def notes_of_run(run: str, title: str, signals: RunSignals, labels: Results) -> list[str]:
    """Return the notes under a run's result tables.

    They contain its title (or its name), how its signals were generated, which are still missing, and how many
    responses were unparsable. `labels`: its results, with or without frames.
    """
    covered = answer_coverage(signals.generations)
    covered = covered.assign(model=covered.model.map(labels.models), dataset=covered.dataset.map(labels.datasets))
    pairs = store.pair_names(list(labels.models), list(labels.datasets))
    manifests = (one for kind in SIGNAL_KINDS for one in read_manifests(run, kind, pairs))
    how = provenance_notes((labels.models[pair.split("__")[0]], facts) for pair, facts in manifests)
    how += missing_passes_note(run, labels.models, labels.datasets)
    return table_notes(title or ("" if run == "paper" else f"Run {run}"), covered, how)


def missing_passes_note(run: str, models: Mapping[str, str], datasets: Mapping[str, str]) -> list[str]:
    """Return a line with the pairs whose dropout passes are missing, if any."""
    there = set(store.find_pairs(run, "dropout", store.pair_names(list(models), list(datasets))))
    asked = {model: models[model] for model in run_names.models_at_hand(list(models))}
    absent = [
        f"{label} on {name}"
        for model, label in asked.items()
        for dataset, name in datasets.items()
        if f"{model}__{dataset}" not in there
    ]
    return [f"No dropout passes over the whole response yet: {', '.join(absent)}."] if absent else []


# ---- of a table


def row_count_notes(frame: pd.DataFrame, datasets: Mapping[str, str], counted: str) -> list[str]:
    """Return how many rows each dataset has, if the frame contains this; `counted` names them."""
    if "n" not in frame:
        return []
    raw = frame[(frame["metric"] == "ece") & frame["dataset"].isin(list(datasets))]
    most = raw.groupby("dataset", sort=False)["n"].max().dropna().astype(int)
    if most.nunique() == 1:
        return [f"n = {most.iloc[0]} {counted} of each model and dataset."]
    counts = ", ".join(f"{most[name]} on {label}" for name, label in datasets.items() if name in most)
    return [f"n, {counted}: {counts}."] if counts else []


def fewer_rows_notes(frame: pd.DataFrame, models: Mapping[str, str], datasets: Mapping[str, str]) -> list[str]:
    """Return a line for each pair in which some estimators have fewer rows."""
    if "n" not in frame or "source_model" in frame:
        return []
    lines = []
    for _, part in frame[frame["metric"] == "ece"].groupby(["model", "dataset"], sort=False):
        counts = {count: in_columns(rows["estimator"].unique()) for count, rows in part.groupby("n")}
        for count in sorted(counts)[:-1]:
            names = ", ".join(e.plain for e in counts[count])
            pair = pair_label(part.iloc[0], models, datasets)
            lines.append(f"{names} on {pair}: {int(count)} of {int(max(counts))} rows.")
    return lines


def pair_label(row: Any, models: Mapping[str, str], datasets: Mapping[str, str]) -> str:
    """Return the label of a row's pair: "Llama-3.1-8B on GSM8K"."""
    model, dataset = row["model"], row["dataset"]
    return f"{models.get(model, model)} on {datasets.get(dataset, dataset)}"


def thin_bins_note(frame: pd.DataFrame) -> list[str]:
    """Return how many MCEs come from a bin of fewer than MIN_BIN_COUNT rows, if the frame contains this."""
    if "of_bin" not in frame:
        return []
    rows = frame.loc[frame["metric"] == "mce", "of_bin"].dropna()
    thin = int((rows < MIN_BIN_COUNT).sum())
    return [f"MCE from a bin of fewer than {MIN_BIN_COUNT} rows: {thin} of {len(rows)} (* on screen)."] if thin else []


def empty_cells_note(shown: pd.DataFrame) -> list[str]:
    """Return the reasons of missing numbers (from `Layout.place`), each once."""
    reasons = shown.loc[shown["value"].isna(), "reason"]
    reasons = reasons.where(reasons.notna() & (reasons != ""), "not computed")
    return [f"--: {', '.join(dict.fromkeys(reasons))}."] if len(reasons) else []
