"""Tables beyond the paper: tokens, and selective prediction. They do not count in any
table, finding or number of the paper."""

import pandas as pd

from lib.analysis.costs import EXTRA_TOKEN_ESTIMATORS, RESPONSE_ITSELF
from lib.analysis.results import Results
from lib.paper import cells
from lib.paper.booktabs import Table
from lib.paper.cells import Frame
from lib.score.estimators import ESTIMATORS, Estimator, in_declared_order
from lib.score.proper_scores import BASE
from lib.store import PAIR

RAW_LABELS = {"ece": "ECE", "ece_mass": "Equal mass", "brier": "Brier", "skill": "Skill", "log_loss": "Log-loss",
              "auroc": "AUROC", "augrc": "AUGRC"}  # fmt: skip
WITH_INTERVALS = ["skill", "auroc", "augrc"]  # raw, shown with intervals


def costs(results: Results) -> Table:
    """Return the table of tokens: those of the response, and the extra tokens of every estimator."""
    extra = {name: ESTIMATORS[name].label for name in EXTRA_TOKEN_ESTIMATORS}
    columns = cells.lines({"metric": "tokens"}, estimator={RESPONSE_ITSELF: "Response"} | extra)
    rows = cells.pair_lines(results)
    numbers = cells.place(results.frames["costs"], rows, columns)
    numbers["text"] = cells.format_values(numbers.value, "{:,.0f}".format)
    return cells.set_table(numbers, rows, columns, title=results.title)


# ---- beside a constant at the base rate


def estimators_shown(frame: Frame) -> list[Estimator]:
    """Return the estimators of a frame, the paper's first."""
    there = in_declared_order(ESTIMATORS[name] for name in set(frame["estimator"]) & ESTIMATORS.keys())
    return sorted(there, key=lambda estimator: estimator.own)


def selective(results: Results) -> Table:
    """Return the table of a pair's base rate and estimators, a row each: scores raw, after isotonic regression, and the
    share answered at each guaranteed precision.

    Bold is a pair's highest skill, raw and isotonic, its highest share answered and its lowest AUGRC.
    """
    scores, thresholds = results.frames["selective_scores"], results.frames["selective_thresholds"]
    answered = thresholds.assign(metric=thresholds.target.map(precision_metric), value=thresholds.answered, method="")
    measured = set(scores.query("metric == 'ece' and method == ''").set_index([*PAIR, "estimator"]).index)
    labels = {BASE: "Base rate"} | {e.name: e.label for e in estimators_shown(scores)}
    rows = cells.lines(model=results.models, dataset=results.datasets, estimator=labels)
    rows = [row for row in rows if tuple(row[1].values()) in measured]
    precisions = {precision_metric(t): cells.format_3dp(t).rstrip("0") for t in sorted(thresholds.target.unique())}
    columns = [
        *cells.lines(method={"": "Raw"}, metric=RAW_LABELS),
        *cells.lines(method={"isotonic": "Isotonic"}, metric={"ece": "ECE", "skill": "Skill"}),
        *cells.lines(method={"": "Answered at"}, metric=precisions),
    ]
    numbers = cells.place(pd.concat([scores, answered], ignore_index=True), rows, columns)
    numbers = numbers[(numbers.estimator != BASE) | (numbers.column < len(RAW_LABELS))]
    with_intervals = numbers.metric.isin(WITH_INTERVALS) & (numbers["method"] == "")
    intervals, values = (
        cells.format_intervals(numbers, r"\scoreci", cells.format_3dp),
        cells.format_values(numbers.value, cells.format_3dp),
    )
    cost, gain = numbers.metric == "augrc", numbers.metric.isin(["skill", *precisions])
    signed = numbers.assign(value=numbers.value.where(cost, -numbers.value))
    bold = cells.lowest(signed, cost | gain, *PAIR, "column")
    numbers = numbers.assign(text=intervals.where(with_intervals, values), bold=bold)
    return cells.set_table(numbers, rows, columns, (*cells.PAIR_NAMES, "Estimator"), title=results.title)


def precision_metric(precision: float) -> str:
    """Return the metric name of the share answered at a guaranteed precision."""
    return f"answered_{precision:g}"
