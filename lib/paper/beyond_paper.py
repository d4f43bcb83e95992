"""Tables beyond the paper: dropout at the answer only, costs, and selective prediction. They do not count in any table,
finding or number of the paper."""

from typing import Any

import numpy as np
import pandas as pd

from lib.analysis.answer_dropout import SCOPES
from lib.analysis.costs import ALL_JOBS, EXTRA_TOKEN_ESTIMATORS, RESPONSE_ITSELF
from lib.analysis.results import Results
from lib.paper.booktabs import Cell, Table
from lib.paper.comparison import ReportRecords
from lib.paper.layout import Frame, Header, Labels, Layout, Notes, estimator_column, estimator_heading, is_lowest
from lib.paper.number_cells import format_3dp, number_cell
from lib.paper.reference import reference_numbers
from lib.paper.tables import mark_lowest_ece, score_interval
from lib.score.estimators import ESTIMATORS, EXTRAS, Estimator, in_declared_order
from lib.score.proper_scores import BASE
from lib.store import PAIR

ALL_ESTIMATORS = ESTIMATORS | EXTRAS
DROPOUT_LABELS = {"rate": "Rate", "ece": "ECE", "auroc": "AUROC", "tokens": "Tokens"}
RAW_LABELS = {"ece": "ECE", "ece_mass": "Equal mass", "brier": "Brier", "skill": "Skill", "log_loss": "Log-loss",
              "auroc": "AUROC", "augrc": "AUGRC"}  # fmt: skip
WITH_INTERVALS = ("skill", "auroc", "augrc")  # shown with intervals
ISOTONIC_LABELS = {"ece": "ECE", "skill": "Skill"}

# ---- dropout at the answer only


def dropout_in_situ_table(frame: Frame, models: Labels, datasets: Labels, notes: Notes = ()) -> Table:
    """Build the table of both forms of c_BALD, with the paired difference of their ECE.

    Columns of each: selected rate, ECE with interval, AUROC, and mean tokens that the passes over a response read.
    """
    layout = Layout(frame, models, datasets, notes)
    columns = [
        Header((estimator_heading(ALL_ESTIMATORS[name]), head), {"estimator": name, "metric": metric})
        for name in SCOPES.values()
        for metric, head in DROPOUT_LABELS.items()
    ]
    columns.append(Header(("Difference", "ECE"), {"estimator": "", "metric": "difference"}))
    shows = {"rate": "{:.2f}".format, "tokens": "{:.0f}".format}

    def cell(one: Any) -> Cell:
        return score_interval(one, shows.get(one.metric, format_3dp))

    return layout.by_pair(columns, bold=mark_lowest_ece, cell=cell, notes=encoded_once_note(frame))


def encoded_once_note(frame: Frame) -> list[str]:
    """Return a note on the tokens that the table omits."""
    rows = frame[(frame["metric"] == "once") & (frame["estimator"] == "c_bald_insitu")]
    if rows.empty:
        return []
    least, most = rows["value"].min(), rows["value"].max()
    return [
        "Tokens: what all passes over a response read, a mean. In situ its trajectory is encoded once before them "
        f"({least:.0f} to {most:.0f} tokens), unless its cache is still at hand."
    ]


# ---- costs


def costs_table(frame: Frame, models: Labels, datasets: Labels, notes: Notes = ()) -> Table:
    """Build the table of tokens, a row per pair: those of the response, and the extra tokens of every estimator.

    Seconds differ between runs, so only the report shows them.
    """
    columns = [Header(("Response",), {"estimator": RESPONSE_ITSELF, "metric": "tokens"})]
    columns += [estimator_column(ALL_ESTIMATORS[name], "tokens") for name in EXTRA_TOKEN_ESTIMATORS]
    layout = Layout(frame, models, datasets, notes)
    return layout.by_pair(columns, cell=lambda one: number_cell(one, "{:,.0f}".format), notes=saved_tokens_note(frame))


def saved_tokens_note(frame: Frame) -> list[str]:
    """Return a note on the savings of in-situ verification, in this run and in the paper."""
    tokens = frame[frame["metric"] == "tokens"].pivot_table(index=PAIR, columns="estimator", values="value")
    if not {"p_true", "p_true_insitu"} <= set(tokens):
        return []
    paper = reference_numbers().query("metric == 'token_reduction_pct'")["value"].astype(float).mean()
    ours = 100 * (1 - tokens["p_true_insitu"] / tokens["p_true"]).mean()
    return [f"In situ saves {ours:.0f}% of the tokens of P(True) here, {paper:.0f}% in the paper."]


def list_seconds(here: Results) -> ReportRecords:
    """Return the report's listing of time by pair, with a last row for all pairs.

    Columns: seconds per question of the response, extra seconds of each estimator, and hours of all jobs.
    """
    frame = here.frames["costs"]
    timed = frame[frame["metric"] != "tokens"]
    wide = timed.pivot_table(index=PAIR, columns="estimator", values="value", sort=False)
    wide = wide.reindex(
        columns=[name for name in (RESPONSE_ITSELF, *EXTRA_TOKEN_ESTIMATORS, ALL_JOBS) if name in wide]
    ).reset_index()
    wide["model"], wide["dataset"] = wide["model"].map(dict(here.models)), wide["dataset"].map(dict(here.datasets))
    hours = wide.get(ALL_JOBS, pd.Series([np.nan]))
    last = pd.DataFrame([{"model": "all", "dataset": "", ALL_JOBS: hours.sum()}] if hours.notna().all() else [])
    heads = {name: f"{ALL_ESTIMATORS[name].plain}, s" for name in EXTRA_TOKEN_ESTIMATORS}
    heads |= {RESPONSE_ITSELF: "response, s", ALL_JOBS: "all jobs, hours"}
    records = pd.concat([wide, last], ignore_index=True).rename(columns=heads)
    return ReportRecords(records, records.round(3))


# ---- beside a constant at the base rate


def estimators_shown(frame: Frame) -> list[Estimator]:
    """Return the estimators of a frame, the paper's first."""
    there = set(frame["estimator"])
    return [e for declared in (ESTIMATORS, EXTRAS) for e in in_declared_order(declared.values()) if e.name in there]


def selective_table(scores: Frame, thresholds: Frame, models: Labels, datasets: Labels, notes: Notes = ()) -> Table:
    """Build the table of a pair's base rate and estimators, a row each.

    `scores` are from `compare_with_base_rate`, `thresholds` from `selective_thresholds`.
    """
    targets = sorted(thresholds["target"].unique())
    wanted = thresholds.assign(
        metric=[precision_metric(t) for t in thresholds["target"]], value=thresholds["answered"], method=""
    )
    layout = Layout(pd.concat([scores, wanted], ignore_index=True), models, datasets, notes)
    measured = scores.query("metric == 'ece' and method == ''").set_index([*PAIR, "estimator"]).index
    labels = {BASE: "Base rate"} | {e.name: estimator_heading(e) for e in estimators_shown(scores)}
    rows = [row for row in layout.by_value("estimator", labels) if tuple(row.key.values()) in measured]
    groups = {
        ("Raw", ""): RAW_LABELS,
        ("Isotonic", "isotonic"): ISOTONIC_LABELS,
        ("Answered at", ""): {precision_metric(t): format_3dp(t).rstrip("0") for t in targets},
    }
    columns = [
        Header((group, head), {"method": method, "metric": metric})
        for (group, method), heads in groups.items()
        for metric, head in heads.items()
    ]

    def beside_base(shown: Frame) -> pd.Series:
        return (shown["estimator"] != BASE) | (shown["column"] < len(RAW_LABELS))

    names = ("Model", "Dataset", "Estimator")
    return layout.build(
        rows, columns, names, "", selective_cell, mark_best_of_pair, beside_base, guarantee_notes(thresholds)
    )


def precision_metric(precision: float) -> str:
    """Return the metric name of the share answered at a guaranteed precision."""
    return f"answered_{precision:g}"


def selective_cell(one: Any) -> Cell:
    return score_interval(one) if one.metric in WITH_INTERVALS and not one.method else number_cell(one, format_3dp)


def mark_best_of_pair(shown: Frame) -> pd.Series:
    """Mark a pair's highest skill, raw and isotonic, its highest share answered at each precision and its lowest
    AUGRC."""
    lower = shown["metric"] == "augrc"
    higher = (shown["metric"] == "skill") | shown["metric"].str.startswith("answered_")
    signed = shown.assign(value=shown["value"].where(lower, -shown["value"]))
    return is_lowest(signed, lower | higher, *PAIR, "column")


def guarantee_notes(thresholds: Frame) -> list[str]:
    """Return notes on the intervals and on how many guarantees the evaluation rows contradict."""
    found = thresholds[thresholds["threshold"].notna()]
    held = found["held"].dropna()
    said = "None could be guaranteed."
    if len(held):
        broken = int((~held.astype(bool)).sum())
        said = f"On the evaluation rows {broken} of {len(held)} come out below by more than chance (5%)."
    return [
        "Intervals: 95% bootstrap percentile, over draws of the other tables. Equal mass: ECE of bins with equally "
        "many rows. Log-loss: a score of exactly 0 or 1 that is wrong costs 36.",
        f"Answered at: by a threshold on the raw score, fitted on calibration rows. {said}",
    ]
