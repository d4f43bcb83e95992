"""The claims of Finding 4: calibration, the rows that it needs, and its transfer."""

import numpy as np
import pandas as pd

from lib.analysis.resampled_scores import Measure, Score, draws_of
from lib.analysis.results import MissingFrameError, Results
from lib.calibrate.calibrators import METHODS
from lib.paper.cases import Margin, as_frame, compare, hard_dataset, make_case, table_rows
from lib.paper.claim import OPEN, claim, decide, decide_by_number, format_cases
from lib.paper.claims.abstract import WITH_SECOND_METHOD
from lib.score.bootstrap import percentile_interval
from lib.score.estimators import PAPER_ESTIMATORS
from lib.store import PAIR, SCORE_CELL

ARROW = ["source_model", "source_dataset", *PAIR, "method"]
CURVE = [*PAIR, "method"]
HIGH_ERROR, LOW_ERROR = 0.3, 0.15  # what "high" and "effective correction" mean

# ---- calibration


def compare_cells(
    results: Results, margin: Margin, estimators: tuple[str, ...], **methods: str
) -> pd.DataFrame:
    """Return a case for each pair and estimator, as `compare`; `methods` names the errors."""
    parts = []
    for estimator in estimators:
        measures = {name: Measure(Score(estimator, method)) for name, method in methods.items()}
        parts.append(compare(results, margin, measures).assign(estimator=estimator))
    return pd.concat(parts, ignore_index=True)


@claim(
    "Finding 4",
    "both methods generally reduce calibration error",
    "generally",
    counted="isotonic regression lowers the ECE",
    place="tab_result_isotonic",
    unit="cells",
)
def isotonic_reduces(results: Results) -> pd.DataFrame:
    def margin(ece):
        return ece.raw - ece.isotonic

    return compare_cells(results, margin, tuple(PAPER_ESTIMATORS), raw="", isotonic="isotonic")


@claim(
    "Finding 4",
    "both methods generally reduce calibration error, including the strongly overconfident",
    "generally",
    counted="temperature scaling, or Platt scaling of P(True), lowers the ECE",
    place="tab_result_calibration",
    unit="cells",
)
def platt_reduces(results: Results) -> pd.DataFrame:
    def margin(ece):
        return ece.raw - ece.platt

    return compare_cells(results, margin, WITH_SECOND_METHOD, raw="", platt="platt")


@claim(
    "Finding 4",
    "isotonic regression often produces the largest reductions",
    "often",
    counted="isotonic regression leaves a lower ECE than temperature or Platt scaling",
    place="tab_result_calibration",
    unit="cells",
)
def isotonic_below_temperature(results: Results) -> pd.DataFrame:
    def margin(ece):
        return ece.platt - ece.isotonic

    return compare_cells(results, margin, WITH_SECOND_METHOD, isotonic="isotonic", platt="platt")


@claim(
    "Finding 4",
    "high raw ECE does not necessarily preclude effective post-hoc correction",
    "can",
    counted="a raw ECE above .3 is below .15 after calibration",
    place="tab_result_calibration",
    unit="cells",
)
def high_raw_mends(results: Results) -> pd.DataFrame:
    def margin(error):
        return LOW_ERROR - error.ece

    raw = compare_cells(results, lambda error: error.raw, WITH_SECOND_METHOD, raw="")
    parts = []
    for method in METHODS:
        after = compare_cells(results, margin, WITH_SECOND_METHOD, ece=method)
        cases = after.merge(raw[[*SCORE_CELL, "raw"]], on=SCORE_CELL)
        parts.append(cases[cases.raw > HIGH_ERROR].assign(method=method))
    return pd.concat(parts, ignore_index=True)


# ---- calibration rows


def errors_by_rows(results: Results) -> pd.DataFrame:
    """Return the ECE of Ans Avg after calibration with n rows, and that of the `raw` score."""
    rows = results.frame("learning", sampling="uniform").astype({"n": float})
    raw = rows[rows.method == ""].set_index(PAIR)["mean"].rename("raw")
    return rows[rows.method != ""].join(raw, on=PAIR).sort_values("n", kind="stable")


@claim(
    "Finding 4",
    "50 examples already yielding substantial improvements across datasets",
    "all",
    counted="50 rows (or the nearest number) lower the ECE of Ans Avg at least half as much as all "
    "rows; every model",
    place="fig_calibration_analysis",
    unit="curves",
)
def fifty_suffice(results: Results) -> pd.DataFrame:
    bands = errors_by_rows(results)
    bands["distance"] = np.log(bands.n / 50).abs()
    nearest = bands.sort_values("distance", kind="stable").groupby(CURVE).first()
    cases = nearest[["n", "raw", "mean"]].set_axis(["rows", "raw", "few"], axis=1)
    cases = cases.join(bands.groupby(CURVE)["mean"].last().rename("every"))
    gain = cases.raw - cases.few
    half = (cases.raw - cases.every) / 2
    return decide_by_number(cases, (gain > 0) & (gain >= half))


@claim(
    "Finding 4",
    "GSM8K and SVAMP require larger calibration sets for stable improvement",
    "generally",
    counted="nine draws in ten improve the ECE with fewer rows on the hardest dataset than on "
    "another; every model, without those for which the smallest number of rows is enough on both",
    place="fig_calibration_analysis",
    unit="curves",
)
def hard_needs_fewer(results: Results) -> pd.DataFrame:
    bands = errors_by_rows(results)
    bands["needed"] = bands.n.where(bands.high < bands.raw, np.inf)
    needed = bands.groupby(CURVE, sort=False).needed.min().reset_index()
    is_hard = needed.dataset == hard_dataset(results)
    hard = needed[is_hard].set_index(["model", "method"]).needed.rename("needed_on_hardest")
    cases = needed[~is_hard].join(hard, on=["model", "method"])
    most = cases[["needed", "needed_on_hardest"]].max(axis=1)
    cases = cases[most > bands.n.min()]
    return decide_by_number(cases, cases.needed_on_hardest < cases.needed)


@claim(
    "Finding 4",
    "harder datasets expose high-confidence errors more frequently",
    "generally",
    counted="of 50 calibration rows, more are wrong above .9 on the hardest dataset than on any "
    "other",
    place="fig_calibration_analysis",
    unit="models",
)
def errors_on_hard(results: Results) -> pd.DataFrame:
    rows = results.frame("calibration_rows")
    errors = rows.pivot(index="model", columns="dataset", values="confident_errors").astype(float)
    errors = errors.reindex(columns=list(results.datasets))
    hard = errors.pop(hard_dataset(results))
    cases = pd.DataFrame({"hard": hard, "elsewhere": errors.max(axis=1)})
    return decide_by_number(cases, cases.hard > cases.elsewhere)


# ---- transfer


def transfers(results: Results, changed: str) -> pd.DataFrame:
    """Return the change of ECE by the arrows of `tab:calibration_transfer_summary` that change only
    the dataset, or only the model.

    Columns: ARROW, and those of `measure_arrow`.
    """
    models, datasets = map(list, results.transfer_labels)
    rows = table_rows(results, "calibration_transfer_summary", "delta_ece")
    rows = rows[rows.method != ""]
    rows = rows[rows.model.isin(models) & rows.dataset.isin(datasets)]
    rows = rows[rows.source_model.isin(models) & rows.source_dataset.isin(datasets)]
    same_model = rows.source_model == rows.model
    same_dataset = rows.source_dataset == rows.dataset
    changes = {"model": ~same_model & same_dataset, "dataset": same_model & ~same_dataset}
    records = []
    for row in rows[changes[changed]].to_dict("records"):
        arrow = {name: row[name] for name in ARROW}
        records.append(arrow | measure_arrow(results, **arrow, printed=row["value"]))
    columns = [*ARROW, "delta_ece", "low", "high", "draws", "within_chance"]
    return pd.DataFrame(records, columns=columns)


def measure_arrow(
    results: Results,
    source_model: str,
    source_dataset: str,
    model: str,
    dataset: str,
    method: str,
    printed: float,
) -> dict:
    """Return the change of the target's ECE by a calibrator of the source: from its rows, or as
    `printed`.

    Keys: `delta_ece` and, where rows are at hand, the ends of its interval (`low`, `high`), its
    `draws`, and whether both errors lie within chance (`within_chance`).
    """
    if results.scores is None:
        return {"delta_ece": printed, "low": np.nan, "high": np.nan, "within_chance": False}
    moved_score = Score("ans_avg", method, (source_model, source_dataset))
    measures = {"raw": Measure(Score("ans_avg")), "moved": Measure(moved_score)}
    numbers = results.scores.compare((model, dataset), measures)
    if numbers is None:
        raise MissingFrameError("scores")
    raw, moved = numbers["raw"], numbers["moved"]
    draws_by_name = draws_of(numbers)
    draws = draws_by_name["moved"] - draws_by_name["raw"]
    low, high = percentile_interval(draws)
    return {
        "delta_ece": moved.value - raw.value,
        "low": low,
        "high": high,
        "draws": draws,
        "within_chance": raw.within_chance and moved.within_chance,
    }


def decide_arrows(rows: pd.DataFrame, rises: bool) -> pd.DataFrame:
    """Return the cases of arrows whose ECE rises, or falls."""
    sign = 1 if rises else -1
    outcomes = []
    for row in rows.itertuples():
        low, high = sorted([sign * row.low, sign * row.high])
        outcome = decide(sign * row.delta_ece, low, high)
        outcomes.append(OPEN if row.within_chance else outcome)
    return rows.drop(columns=["draws", "within_chance"]).assign(outcome=outcomes)


def transfers_between_models(results: Results, hard: bool) -> pd.DataFrame:
    """Return the change of ECE between models on the hardest dataset, or on the others."""
    rows = transfers(results, "model")
    return rows[(rows.dataset == hard_dataset(results)) == hard]


@claim(
    "Finding 4",
    "mappings learned on GSM8K consistently improve calibration on GSMHard",
    "all",
    counted="a calibrator of another dataset lowers the ECE on the hardest",
    place="tab_calibration_transfer_summary",
    unit="arrows",
)
def easy_to_hard(results: Results) -> pd.DataFrame:
    rows = transfers(results, "dataset")
    return decide_arrows(rows[rows.dataset == hard_dataset(results)], rises=False)


@claim(
    "Finding 4",
    "whereas the reverse direction generally worsens it",
    "generally",
    counted="a calibrator of the hardest dataset raises the ECE on another",
    place="tab_calibration_transfer_summary",
    unit="arrows",
)
def hard_to_easy(results: Results) -> pd.DataFrame:
    rows = transfers(results, "dataset")
    return decide_arrows(rows[rows.source_dataset == hard_dataset(results)], rises=True)


@claim(
    "Finding 4",
    "both directions improve calibration on GSMHard",
    "all",
    counted="a calibrator of another model lowers the ECE on the hardest dataset",
    place="tab_calibration_transfer_summary",
    unit="arrows",
)
def models_on_hard(results: Results) -> pd.DataFrame:
    return decide_arrows(transfers_between_models(results, hard=True), rises=False)


@claim(
    "Finding 4",
    "transfer on GSM8K is asymmetric",
    "generally",
    counted="off the hardest dataset, one of both directions raises the ECE and the other lowers "
    "it",
    place="tab_calibration_transfer_summary",
    unit="cases",
)
def models_on_easy(results: Results) -> pd.DataFrame:
    forth = transfers_between_models(results, hard=False)
    back = forth.rename(columns={"source_model": "model", "model": "source_model"})
    forth = forth[forth.source_model < forth.model]
    cases = []
    for row in forth.merge(back, on=ARROW, suffixes=("", "_back")).to_dict("records"):
        arrow = {name: row[name] for name in ARROW}
        changes = {"delta_ece": row["delta_ece"], "back": row["delta_ece_back"]}
        margin = least_of_rise_and_fall(row["delta_ece"], row["delta_ece_back"])
        low, high = np.nan, np.nan
        if results.scores is not None:
            draws = least_of_rise_and_fall(row["draws"], row["draws_back"])
            low, high = percentile_interval(draws)
        case = make_case(arrow | changes, margin, low, high)
        if row["within_chance"] and row["within_chance_back"]:
            case["outcome"] = OPEN
        cases.append(case)
    return as_frame(cases, [*ARROW, "delta_ece", "back"])


def least_of_rise_and_fall(forth, back):
    """Return the smaller of a rise one way and a fall the other: above 0 only if the two have
    different signs."""
    return np.minimum(np.maximum(forth, back), -np.minimum(forth, back))


@claim(
    "Finding 4",
    "can severely degrade calibration",
    "figure",
    counted="off the hardest dataset, the largest rise is above .2",
    place="tab_calibration_transfer_summary",
    unit="arrows",
    numbers=format_cases("largest {largest:.3f}"),
)
def transfer_severe(results: Results) -> pd.DataFrame:
    largest = transfers_between_models(results, hard=False).delta_ece.max()
    return decide_by_number(pd.DataFrame([{"largest": largest}]), largest > 0.2)
