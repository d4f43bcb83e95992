"""Notes on all tables of a run: sources, rows, unread answers, and why cells are empty."""

from collections.abc import Iterator

import pandas as pd

from lib import params, store
from lib.analysis.results import Results
from lib.paper.cells import DASH, label_rows
from lib.paper.report_records import ReportRecords
from lib.score.interpretation import describe_unread_lines
from lib.store import PAIR

NOT_AT_HAND = (
    "from a file, the model not at hand: nothing is known of passes with dropout and temperature"
)


def list_notes(run: str, results: Results) -> ReportRecords:
    """List the notes on a run's tables, a row each."""
    notes = [
        *describe_sources(run, results),
        describe_unanswered(results.frames["coverage"]),
        describe_unread_lines(results.frames["unread_lines"]),
        *describe_row_counts(results),
        *explain_missing_passes(run, results),
        *list_served_remarks(run, results),
        explain_dashes(results),
    ]
    frame = pd.DataFrame({"note": [note for note in notes if note]})
    return ReportRecords(frame, frame)


def describe_unanswered(coverage: pd.DataFrame) -> str:
    """Return the shares of responses without an answer, and of those cut by length, of
    `answer_coverage`."""
    rows = coverage["rows"].sum()
    unparsed = (coverage["unparsed"] * coverage["rows"]).sum() / rows
    cut = (coverage["cut"] * coverage["rows"]).sum() / rows
    return (
        f"Of {rows} responses to evaluation questions are {unparsed:.1%} without a parsable "
        f"answer, {cut:.1%} cut by length."
    )


def label_pairs(results: Results) -> dict[str, str]:
    """Return the label of each pair by the name of its files: "Model on Dataset"."""
    names = store.pair_names(list(results.models), list(results.datasets))
    labels = []
    for model in results.models.values():
        labels += [f"{model} on {dataset}" for dataset in results.datasets.values()]
    return dict(zip(names, labels, strict=True))


def describe_sources(run: str, results: Results) -> list[str]:
    """Return a line for each model: its source and revision, and the device and precision, from its
    manifests."""
    notes = []
    for pair, facts in store.read_manifests(run, "generations", list(label_pairs(results))):
        source = NOT_AT_HAND
        loaded = facts.get("loaded")
        if loaded:
            revision = ""
            if loaded["revision"]:
                revision = "@" + loaded["revision"][:12]
            source = f"{loaded['source']}{revision}, on {loaded['device']}, {loaded['dtype']}"
        model, _, _ = pair.partition("__")
        notes.append(f"{results.models[model]}: {source}.")
    return list(dict.fromkeys(notes))


def describe_row_counts(results: Results) -> Iterator[str]:
    """Yield the number of evaluation rows, and a line for each pair in which some estimators have
    fewer."""
    rows = results.frames["result_estimation"].query("metric == 'ece'")
    most = rows.groupby(PAIR).n.transform("max")
    rows = label_rows(rows.assign(most=most), results.models, results.datasets)
    largest = rows.groupby("dataset", observed=True).n.max()
    counts = [f"{n} of {dataset}" for dataset, n in largest.items()]
    yield f"Evaluation rows: {', '.join(counts)}."
    fewer = rows[rows.n < rows.most]
    for key, part in fewer.groupby([*PAIR, "n", "most"], observed=True):
        model, dataset, n, total = key
        names = ", ".join(part.estimator)
        yield f"{names} on {model} on {dataset}: {n} of {total} rows."


# ---- empty cells


def explain_missing_passes(run: str, results: Results) -> Iterator[str]:
    """Yield why a pair of a model at hand has no passes with dropout."""
    labels = label_pairs(results)
    at_hand = params.models_at_hand(list(results.models))
    made = dict(store.read_manifests(run, "dropout", list(labels)))
    for pair, label in labels.items():
        reason: str | None = "not made yet"
        if pair in made:
            reason = made[pair].get("missing")
        if reason and pair.split("__")[0] in at_hand:
            yield f"No dropout passes of {label}: {reason}."


def list_served_remarks(run: str, results: Results) -> Iterator[str]:
    """Yield what a server did not tell of P(True)."""
    labels = label_pairs(results)
    for pair, facts in store.read_manifests(run, "verification", list(labels)):
        for remark in facts.get("remarks", ()):
            yield f"P(True) of {labels[pair]}: {remark}."


def explain_dashes(results: Results) -> str:
    """Return all other reasons for numbers that are missing, each once; empty without any."""
    reasons: dict[str, None] = {}
    for frame in results.frames.values():
        if "reason" in frame:
            is_missing = frame.filter(["value", "answered"]).isna().any(axis=1)
            reasons |= dict.fromkeys(frame.reason[is_missing].dropna())
    texts = [reason for reason in reasons if reason]
    if not texts:
        return ""
    return f"{DASH}: {', '.join(texts)}."
