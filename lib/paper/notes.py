"""What a reader of the tables must know, once for all of them: who wrote the responses, how many there are, and why a
cell is empty."""

from collections.abc import Iterator

import pandas as pd

from lib import params, store
from lib.analysis.results import Results
from lib.analysis.run_results import Signals
from lib.paper.frame_labels import label_rows
from lib.paper.report_records import ReportRecords
from lib.score.interpretation import answer_coverage
from lib.store import PAIR

NOT_AT_HAND = "from a file, the model not at hand: nothing is known of P(True), passes with dropout and temperature"


def list_notes(run: str, signals: Signals, results: Results) -> ReportRecords:
    """List the notes on a run's tables, a row each."""
    counted = answer_coverage(signals.generations)
    rows = counted["rows"].sum()
    unparsed, cut = ((counted[name] * counted["rows"]).sum() / rows for name in ("unparsed", "cut"))
    shares = f"Of {rows} responses to evaluation questions are {unparsed:.1%} without a parsable answer"
    lines = [
        *describe_sources(run, results),
        f"{shares}, {cut:.1%} cut by length.",
        *describe_row_counts(results),
        *explain_empty_cells(run, results),
    ]
    frame = pd.DataFrame({"note": lines})
    return ReportRecords(frame, frame)


def describe_sources(run: str, results: Results) -> list[str]:
    """Return a line for each model: its source and revision, and the device and precision, from its manifests."""
    pairs, lines = store.pair_names(list(results.models), list(results.datasets)), []
    for pair, facts in store.read_manifests(run, "generations", pairs):
        said = NOT_AT_HAND
        if loaded := facts.get("loaded"):
            revision = f"@{loaded['revision'][:12]}" if loaded["revision"] else ""
            said = f"{loaded['source']}{revision}, on {loaded['device']}, {loaded['dtype']}"
        lines.append(f"{results.models[pair.split('__')[0]]}: {said}.")
    return list(dict.fromkeys(lines))


def describe_row_counts(results: Results) -> Iterator[str]:
    """Yield the number of evaluation rows, and a line for each pair in which some estimators have fewer."""
    rows = results.frames["result_estimation"].query("metric == 'ece'")
    rows = label_rows(rows, results.models, results.datasets).assign(most=rows.groupby(PAIR).n.transform("max"))
    counts = (f"{n} of {dataset}" for dataset, n in rows.groupby("dataset", observed=True).n.max().items())
    yield f"Evaluation rows: {', '.join(counts)}."
    fewer = rows[rows.n < rows.most].groupby([*PAIR, "n", "most"], observed=True)
    for (model, dataset, n, most), part in fewer:
        yield f"{', '.join(part.estimator)} on {model} on {dataset}: {n} of {most} rows."


def explain_empty_cells(run: str, results: Results) -> Iterator[str]:
    """Yield why a pair has no passes with dropout, and the reasons of other missing numbers, each once."""
    models = params.models_at_hand(list(results.models))
    pairs = store.pair_names(models, list(results.datasets))
    made = dict(store.read_manifests(run, "dropout", pairs))
    for pair in pairs:
        model, dataset = pair.split("__")
        if reason := made[pair].get("missing") if pair in made else "not made yet":
            yield f"No dropout passes of {results.models[model]} on {results.datasets[dataset]}: {reason}."
    told = [frame for frame in results.frames.values() if "reason" in frame]
    reasons = pd.concat([frame.reason[frame.filter(["value", "answered"]).isna().any(axis=1)] for frame in told])
    if said := ", ".join(filter(None, reasons.dropna().unique())):
        yield f"--: {said}."
