"""Tables beyond the paper: tokens, selective prediction, 04b. They count in no finding or number of the paper."""

import pandas as pd

from lib.analysis.results import Results
from lib.analysis.token_statistics import EXTRA_TOKEN_ESTIMATORS, RESPONSE_ITSELF
from lib.paper import cells
from lib.paper.booktabs import ReportRecords, Table
from lib.paper.cells import estimators_shown, label_rows, lines, pair_lines, place, set_table
from lib.score.estimators import ESTIMATORS
from lib.score.evaluation import BASE
from lib.store import PAIR

RAW_LABELS = {"ece": "ECE", "ece_mass": "Equal mass", "brier": "Brier", "mcb": "MCB", "dsc": "DSC", "unc": "UNC",
              "log_loss": "Log-loss", "auroc": "AUROC", "augrc": "AUGRC"}  # fmt: skip
AFTER_ISOTONIC = ["ece", "brier", "mcb", "dsc"]
WITH_INTERVALS = ["auroc", "augrc"]  # raw, shown with intervals


def costs(results: Results) -> Table:
    """Return the table of tokens: those of the response, and the extra tokens of every estimator."""
    extra = {name: ESTIMATORS[name].label for name in EXTRA_TOKEN_ESTIMATORS}
    columns = lines({"estimator": {RESPONSE_ITSELF: "Response"} | extra}, metric="tokens")
    rows = pair_lines(results.models, results.datasets)
    numbers = place(results.frames["costs"], rows, columns)
    numbers["text"] = cells.format_values(numbers.value, "{:,.0f}".format)
    return set_table(numbers, rows, columns, "ll" + "c" * len(columns), results.title)


def selective(results: Results) -> Table:
    """Return the table of a pair's base rate and estimators, a row each: scores raw, after isotonic regression, and the
    share answered at each guaranteed precision.

    Bold is a pair's lowest Brier score, raw and isotonic, its highest share answered and its lowest AUGRC.
    """
    scores, thresholds = results.frames["selective_scores"], results.frames["selective_thresholds"]
    precisions = {f"answered_{t:g}": cells.format_3dp(t).rstrip("0") for t in sorted(thresholds.target.unique())}
    metric = thresholds.target.map("answered_{:g}".format)
    answered = thresholds.assign(metric=metric, value=thresholds.answered, method="")
    labels = {BASE: "Base rate"} | {e.name: e.label for e in estimators_shown(scores)}
    rows = pair_lines(results.models, results.datasets, estimator=labels)
    rows = rows[
        pd.MultiIndex.from_frame(rows).isin(scores.query("metric == 'ece'").set_index([*PAIR, "estimator"]).index)
    ]
    columns = pd.concat([
        lines({"method": {"": "Raw"}, "metric": RAW_LABELS}),
        lines({"method": {"isotonic": "Isotonic"}, "metric": {name: RAW_LABELS[name] for name in AFTER_ISOTONIC}}),
        lines({"method": {"": "Answered at"}, "metric": precisions}),
    ])  # fmt: skip
    numbers = place(pd.concat([scores, answered], ignore_index=True), rows, columns)
    numbers = numbers[(numbers.estimator != BASE) | (numbers.column < len(RAW_LABELS))]
    has_interval = numbers.metric.isin(WITH_INTERVALS) & (numbers["method"] == "")
    intervals = cells.format_intervals(numbers, r"\scoreci", cells.format_3dp)
    texts = intervals.where(has_interval, cells.format_values(numbers.value, cells.format_3dp))
    best_is_low = numbers.assign(value=numbers.value.where(~numbers.metric.isin([*precisions]), -numbers.value))
    bold = cells.lowest(best_is_low, numbers.metric.isin(["augrc", "brier", *precisions]), *PAIR, "column")
    spec = " ".join(["lll", "c" * len(RAW_LABELS), "c" * len(AFTER_ISOTONIC), "c" * len(precisions)])
    return set_table(numbers.assign(text=texts, bold=bold), rows, columns, spec, results.title)


def list_ablation(here: Results) -> ReportRecords:
    """List the results of 04b by pair and arm, with the run's labels; empty if it was not run."""
    frame = label_rows(here.frames.get("ablation", pd.DataFrame()), here.models, here.datasets)
    return ReportRecords(frame, frame.round(3))
