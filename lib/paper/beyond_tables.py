"""Tables beyond the paper: what a confidence costs, and what it is good for."""

import pandas as pd

from lib.analysis.costs import EXTRA_TOKEN_ESTIMATORS, RESPONSE_ITSELF
from lib.analysis.results import Results
from lib.paper.booktabs import Table
from lib.paper.cells import (
    estimators_shown,
    format_3dp,
    format_intervals,
    format_values,
    lines,
    lowest,
    pair_lines,
    place_numbers,
    set_table,
)
from lib.score.baselines import BASE
from lib.score.estimators import ESTIMATORS
from lib.store import PAIR, SCORE_CELL

RAW_LABELS = {
    "ece": "ECE",
    "ece_mass": "Equal mass",
    "brier": "Brier",
    "mcb": "MCB",
    "dsc": "DSC",
    "unc": "UNC",
    "log_loss": "Log-loss",
    "auroc": "AUROC",
    "augrc": "AUGRC",
}
ISOTONIC_LABELS = {name: RAW_LABELS[name] for name in ("ece", "brier", "mcb", "dsc")}
WITH_INTERVALS = ["auroc", "augrc"]  # raw, shown with intervals


def costs(results: Results) -> Table:
    """Return the table of tokens: those of the response, and the extra tokens of every
    estimator."""
    extra = {name: ESTIMATORS[name].label for name in EXTRA_TOKEN_ESTIMATORS}
    labels = {RESPONSE_ITSELF: "Response"} | mark_shared_masks(extra, results)
    rows = pair_lines(results.models, results.datasets)
    columns = lines({"estimator": labels}, metric="tokens")
    numbers = place_numbers(results.frames["costs"], rows, columns)
    numbers["text"] = format_values(numbers.value, "{:,.0f}".format)
    title = results.title + note_on_masks(labels, results)
    return set_table(numbers, rows, columns, "ll" + "c" * len(columns), title)


def selective(results: Results) -> Table:
    """Return the table of a pair's base rate and estimators, a row each: scores raw, after isotonic
    regression, and the share answered at each guaranteed precision.

    Bold is a pair's lowest Brier score, raw and isotonic, and its lowest AUGRC. No share answered
    is bold: a guarantee holds for each estimator, not for the best of ten.
    """
    scores = results.frames["selective_scores"]
    thresholds = results.frames["selective_thresholds"]
    labels = {BASE: "Base rate"} | {e.name: e.label for e in estimators_shown(scores)}
    labels = mark_shared_masks(labels, results)
    rows = pair_lines(results.models, results.datasets, estimator=labels)
    rows = rows[pd.MultiIndex.from_frame(rows).isin(scores.set_index(SCORE_CELL).index)]
    groups = selective_columns(thresholds)
    columns = pd.concat(groups)
    frame = pd.concat([scores, shares_answered(thresholds)], ignore_index=True)
    numbers = place_numbers(frame, rows, columns)
    numbers = numbers[(numbers.estimator != BASE) | (numbers.column < len(RAW_LABELS))]
    has_interval = numbers.metric.isin(WITH_INTERVALS) & (numbers["method"] == "")
    intervals = format_intervals(numbers, r"\scoreci", format_3dp)
    texts = intervals.where(has_interval, format_values(numbers.value, format_3dp))
    bold = lowest(numbers, numbers.metric.isin(["augrc", "brier"]), *PAIR, "column")
    numbers = numbers.assign(text=texts, bold=bold)
    spec = " ".join(["lll"] + ["c" * len(group) for group in groups])
    return set_table(numbers, rows, columns, spec, results.title + note_on_masks(labels, results))


def selective_columns(thresholds: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the columns of `selective`, by group."""
    return [
        lines({"method": {"": "Raw"}, "metric": RAW_LABELS}),
        lines({"method": {"isotonic": "Isotonic"}, "metric": ISOTONIC_LABELS}),
        lines({"method": {"": "Answered at"}, "metric": label_precisions(thresholds)}),
    ]


def label_precisions(thresholds: pd.DataFrame) -> dict[str, str]:
    """Return the label of each guaranteed precision, by the metric of `shares_answered`."""
    labels = {}
    for target in sorted(thresholds.target.unique()):
        labels[f"answered_{target:g}"] = format_3dp(target).rstrip("0")
    return labels


def shares_answered(thresholds: pd.DataFrame) -> pd.DataFrame:
    """Return the share answered at each guaranteed precision as a metric of the raw score."""
    metric = thresholds.target.map("answered_{:g}".format)
    return thresholds.assign(metric=metric, value=thresholds.answered, method="")


# ---- masks that all questions share


def mark_shared_masks(labels: dict[str, str], results: Results) -> dict[str, str]:
    """Return the labels of estimators, c_BALD marked if all questions share dropout masks."""
    if not note_on_masks(labels, results):
        return labels
    return labels | {"c_bald": labels["c_bald"] + r"$^{*}$"}


def note_on_masks(labels: dict[str, str], results: Results) -> str:
    """Return the note below a table that explains the mark; empty if c_BALD has none."""
    is_marked = results.shared_masks and "c_bald" in labels
    return " * All questions share dropout masks." if is_marked else ""
