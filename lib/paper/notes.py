"""What a reader of the tables must know, once for all of them: who wrote the responses, how many there are, and why a
cell is empty."""

from collections.abc import Mapping

import pandas as pd

from lib import run_names, store
from lib.analysis.results import Results
from lib.analysis.run_signals import RunSignals, read_manifests
from lib.paper.report_records import ReportRecords
from lib.score.estimators import in_columns
from lib.score.interpretation import answer_coverage

SHARES = {"unparsed": "without a parsable answer", "cut": "cut by length", "unclosed": "in thought that never closed"}
NOT_AVAILABLE = "from a file, the model not at hand: nothing is known of P(True), passes with dropout and temperature"


def list_notes(run: str, signals: RunSignals, results: Results) -> ReportRecords:
    """List the notes on a run's tables, a row each."""
    covered = answer_coverage(signals.generations)
    lines = [
        *describe_sources(run, results),
        describe_shares(covered.replace({"model": dict(results.models), "dataset": dict(results.datasets)})),
        *describe_row_counts(results),
        *missing_passes_notes(run, results.models, results.datasets),
        *explain_empty_cells(results),
    ]
    frame = pd.DataFrame({"note": lines})
    return ReportRecords(frame, frame)


def describe_sources(run: str, results: Results) -> list[str]:
    """Return a line for each model: its source and revision, and the device and precision, from its manifests."""
    lines: dict[str, None] = {}
    for model, label in results.models.items():
        for _, facts in read_manifests(run, "generations", store.pair_names([model], list(results.datasets))):
            if loaded := facts.get("loaded"):
                revision = f"@{loaded['revision'][:12]}" if loaded["revision"] else ""
                lines[f"{label}: {loaded['source']}{revision}, on {loaded['device']}, {loaded['dtype']}."] = None
            else:
                lines[f"{label}: {NOT_AVAILABLE}."] = None
    return list(lines)


def describe_shares(coverage: pd.DataFrame) -> str:
    """Return the shares of responses that were not read to their end, from `answer_coverage` with labels."""
    total, parts = coverage["rows"].sum(), []
    for column, what in SHARES.items():
        share = (coverage[column] * coverage["rows"]).sum() / total
        worst = coverage.loc[coverage[column].idxmax()]
        most = f" (at most {worst[column]:.1%}, {worst['model']} on {worst['dataset']})" if share else ""
        parts += [f"{share:.1%} {what}{most}"] if share or column != "unclosed" else []
    return f"Of {total} responses to evaluation questions are {', '.join(parts)}."


def describe_row_counts(results: Results) -> list[str]:
    """Return the number of evaluation rows, and a line for each pair in which some estimators have fewer."""
    rows = results.frames["result_estimation"].query("metric == 'ece'")
    most = rows.groupby("dataset", sort=False).n.max().astype(int).rename(dict(results.datasets))
    counts = (
        [f"{most.iloc[0]} of each dataset"] if most.nunique() == 1 else [f"{n} of {name}" for name, n in most.items()]
    )
    lines = [f"Evaluation rows: {', '.join(counts)}."]
    for (model, dataset), part in rows.groupby(["model", "dataset"], sort=False):
        for n, some in part[part.n < part.n.max()].groupby("n"):
            names = ", ".join(e.plain for e in in_columns(some.estimator))
            pair = f"{results.models[model]} on {results.datasets[dataset]}"
            lines.append(f"{names} on {pair}: {int(n)} of {int(part.n.max())} rows.")
    return lines


def missing_passes_notes(run: str, models: Mapping[str, str], datasets: Mapping[str, str]) -> list[str]:
    """Return a line with the pairs whose dropout passes are not made, and one for each model that can't have any."""
    there = set(store.find_pairs(run, "dropout", store.pair_names(list(models), list(datasets))))
    absent = [
        f"{models[model]} on {label}"
        for model in run_names.models_at_hand(list(models))
        for dataset, label in datasets.items()
        if f"{model}__{dataset}" not in there
    ]
    lines = [f"No dropout passes over the whole response yet: {', '.join(absent)}."] if absent else []
    for pair, facts in read_manifests(run, "dropout", sorted(there)):
        if "missing" in facts:
            lines.append(f"No dropout passes of {models[pair.split('__')[0]]}: {facts['missing']}.")
    return list(dict.fromkeys(lines))


def explain_empty_cells(results: Results) -> list[str]:
    """Return the reasons of missing numbers, each once."""
    told = [frame for frame in results.frames.values() if "reason" in frame]
    reasons = pd.concat([frame.reason[frame.filter(["value", "answered"]).isna().any(axis=1)] for frame in told])
    reasons = reasons[reasons.notna() & (reasons != "")]
    return [f"--: {', '.join(reasons.unique())}."] if len(reasons) else []
