"""The paper's claims on P(True) (Finding 3), and on calibration and transfer (Finding 4, and of its
abstract)."""

from functools import partial

import numpy as np
import pandas as pd

from lib.analysis.resampled_scores import Measure, Score, draws_of
from lib.analysis.result_tables import MissingFrame, Results
from lib.calibrate.calibrators import METHODS
from lib.paper import claim
from lib.paper.claim import (
    COMPARABLE,
    TIE,
    abstract,
    by_number,
    compare,
    counted,
    error_of,
    finding_3,
    finding_4,
    in_situ_table,
    main_table,
)
from lib.score.estimators import PAPER_ESTIMATORS
from lib.store import PAIR, SCORE_CELL

ARROW = ["source_model", "source_dataset", *PAIR, "method"]
CURVE = [*PAIR, "method"]
# of the paper: temperature or Platt scaling
WITH_SECOND_METHOD = ("ans_avg", "ans_joint", "p_true")
HIGH_ERROR, LOW_ERROR = 0.3, 0.15  # what "high" and "effective correction" mean
cells = partial(counted, place="tab_result_calibration", unit="cells")
curves = partial(counted, place="fig_calibration_analysis", unit="curves")
arrows = partial(counted, place="tab_calibration_transfer_summary", unit="arrows")

# ---- Finding 3


@finding_3("why is it often better calibrated than Ans Avg", "often")
@main_table("P(True) has a lower ECE than Ans Avg")
def p_true_below_ans_avg(results: Results) -> pd.DataFrame:
    return compare(results, lambda ece: ece.ans_avg - ece.p_true, error_of("p_true", "ans_avg"))


@finding_3("in-situ verification achieves ECE comparable to standard P(True)", "generally")
@in_situ_table(
    "the ECE of P(True) in situ is higher than by a prompt of its own by at most a quarter (this threshold decides)"
)
def in_situ_comparable(results: Results) -> pd.DataFrame:
    def margin(ece):
        return COMPARABLE * ece.p_true - ece.p_true_insitu + TIE

    return compare(results, margin, error_of("p_true_insitu", "p_true"))


@finding_3("reduces token-processing overhead by 88% on average across all settings", "figure")
@in_situ_table(
    "in situ, P(True) reads at least 85% fewer tokens",
    numbers=claim.format_cases("{mean_reduction:.0f}%"),
)
def token_reduction(results: Results) -> pd.DataFrame:
    mean = claim.table_rows(results, "insitu_ptrue", "token_reduction_pct").value.mean()
    return by_number(pd.DataFrame([{"mean_reduction": mean}]), mean >= 85)


@finding_3("particularly relevant for long outputs", "generally")
@in_situ_table("the share of tokens saved grows with the length of the response (rank correlation)")
def saving_grows(results: Results) -> pd.DataFrame:
    costs = results.frame("verification")[[*PAIR, "saving_with_length"]]
    return by_number(costs, costs.saving_with_length > 0)


# ---- calibration


def median_gains(results: Results) -> pd.Series:
    """Return the median share by which each method lowers the raw ECE, over pairs and
    estimators."""
    rows = claim.table_rows(results, "result_calibration").dropna(subset="relative")
    rows = rows[rows.estimator.isin(WITH_SECOND_METHOD) & (rows.method != "")]
    return rows.groupby("method").relative.median().reindex(["isotonic", "platt"])


def compare_cells(
    results: Results, margin: claim.Margin, estimators: tuple[str, ...], **methods: str
) -> pd.DataFrame:
    """Return a case for each pair and estimator, as `claim.compare`; `methods` names the
    errors."""
    parts = []
    for estimator in estimators:
        measures = {name: Measure(Score(estimator, method)) for name, method in methods.items()}
        parts.append(compare(results, margin, measures).assign(estimator=estimator))
    return pd.concat(parts, ignore_index=True)


@abstract("both of which substantially reduce in-domain calibration error", "all")
@cells(
    "the median gain is at least half",
    unit="methods",
    numbers=claim.format_cases("{method} {median_gain:.0%}"),
)
def calibration_substantial(results: Results) -> pd.DataFrame:
    medians = median_gains(results)
    cases = medians.rename("median_gain").reset_index()
    cases = by_number(cases, cases.median_gain >= 0.5)
    return cases if medians.notna().all() else cases.head(0)


@finding_4("both methods generally reduce calibration error", "generally")
@counted("isotonic regression lowers the ECE", "tab_result_isotonic", unit="cells")
def isotonic_reduces(results: Results) -> pd.DataFrame:
    def margin(ece):
        return ece.raw - ece.isotonic

    estimators = tuple(PAPER_ESTIMATORS)
    return compare_cells(results, margin, estimators, raw="", isotonic="isotonic")


@finding_4(
    "both methods generally reduce calibration error, including the strongly overconfident",
    "generally",
)
@cells("temperature scaling, or Platt scaling of P(True), lowers the ECE")
def platt_reduces(results: Results) -> pd.DataFrame:
    def margin(ece):
        return ece.raw - ece.platt

    return compare_cells(results, margin, WITH_SECOND_METHOD, raw="", platt="platt")


@finding_4("isotonic regression often produces the largest reductions", "often")
@cells("isotonic regression leaves a lower ECE than temperature or Platt scaling")
def isotonic_below_temperature(results: Results) -> pd.DataFrame:
    def margin(ece):
        return ece.platt - ece.isotonic

    return compare_cells(results, margin, WITH_SECOND_METHOD, isotonic="isotonic", platt="platt")


@finding_4("high raw ECE does not necessarily preclude effective post-hoc correction", "can")
@cells("a raw ECE above .3 is below .15 after calibration")
def high_raw_mends(results: Results) -> pd.DataFrame:
    parts = []
    for method in METHODS:
        raw = compare_cells(results, lambda ece: ece.raw, WITH_SECOND_METHOD, raw="")
        after = compare_cells(
            results, lambda ece: LOW_ERROR - ece.ece, WITH_SECOND_METHOD, ece=method
        )
        cases = after.merge(raw[[*SCORE_CELL, "raw"]], on=SCORE_CELL)
        parts.append(cases[cases.raw > HIGH_ERROR].assign(method=method))
    return pd.concat(parts, ignore_index=True)


# ---- calibration rows


def errors_by_rows(results: Results) -> pd.DataFrame:
    """Return the ECE of Ans Avg after calibration with n rows, and that of the `raw` score."""
    rows = results.frame("learning", sampling="uniform").astype({"n": float})
    raw = rows[rows.method == ""].set_index(PAIR)["mean"].rename("raw")
    return rows[rows.method != ""].join(raw, on=PAIR).sort_values("n", kind="stable")


@finding_4("50 examples already yielding substantial improvements across datasets", "all")
@curves(
    "50 rows (or the nearest number) lower the ECE of Ans Avg at least half as much as all rows; every model"
)
def fifty_suffice(results: Results) -> pd.DataFrame:
    bands = errors_by_rows(results)
    nearest = bands.assign(distance=np.log(bands.n / 50).abs()).sort_values(
        "distance", kind="stable"
    )
    few = (
        nearest.groupby(CURVE)[["n", "raw", "mean"]]
        .first()
        .set_axis(["rows", "raw", "few"], axis=1)
    )
    cases = few.join(bands.groupby(CURVE)["mean"].last().rename("every"))
    half_of_it = cases.raw - cases.few >= (cases.raw - cases.every) / 2
    return by_number(cases, (cases.few < cases.raw) & half_of_it)


@finding_4("GSM8K and SVAMP require larger calibration sets for stable improvement", "generally")
@curves(
    "nine draws in ten improve the ECE with fewer rows on the hardest dataset than on another; every model, without "
    "those for which the smallest number of rows is enough on both"
)
def hard_needs_fewer(results: Results) -> pd.DataFrame:
    bands, hardest = errors_by_rows(results), claim.hard_dataset(results)
    stable = bands.assign(needed=bands.n.where(bands.high < bands.raw, np.inf))
    needed = stable.groupby(CURVE, sort=False).needed.min().reset_index()
    hard = (
        needed[needed.dataset == hardest]
        .set_index(["model", "method"])
        .needed.rename("needed_on_hardest")
    )
    cases = needed[needed.dataset != hardest].join(hard, on=["model", "method"])
    told = cases[cases[["needed", "needed_on_hardest"]].max(axis=1) > bands.n.min()]
    return by_number(told, told.needed_on_hardest < told.needed)


@finding_4("harder datasets expose high-confidence errors more frequently", "generally")
@curves(
    "of 50 calibration rows, more are wrong above .9 on the hardest dataset than on any other",
    unit="models",
)
def errors_on_hard(results: Results) -> pd.DataFrame:
    errors = claim.pivot(
        results.frame("calibration_rows"), "dataset", "confident_errors", ["model"]
    )
    errors = errors.reindex(columns=list(results.datasets))
    hard = errors.pop(claim.hard_dataset(results))
    cases = pd.DataFrame({"hard": hard, "elsewhere": errors.max(axis=1)})
    return by_number(cases, cases.hard > cases.elsewhere)


# ---- transfer


def transfers(results: Results, changed: str) -> pd.DataFrame:
    """Return the change of ECE by the arrows of `tab:calibration_transfer_summary` that change only
    the dataset, or only the model.

    Columns: ARROW, `delta_ece` and, where rows are at hand, the ends of its interval (`low`,
    `high`), its `draws`, and whether both errors lie within chance.
    """
    models, datasets = results.transfer_labels
    rows = claim.table_rows(results, "calibration_transfer_summary", "delta_ece").query(
        "method != ''"
    )
    records = []
    for row in rows.itertuples():
        source, target = (row.source_model, row.source_dataset), (row.model, row.dataset)
        shown = {row.source_model, row.model} <= set(models) and {
            row.source_dataset,
            row.dataset,
        } <= set(datasets)
        same = {
            "model": row.source_model == row.model,
            "dataset": row.source_dataset == row.dataset,
        }
        if shown and not same.pop(changed) and all(same.values()):
            arrow = dict(zip(ARROW, (*source, *target, row.method), strict=True))
            records.append(arrow | measure_arrow(results, source, target, row.method, row.value))
    return pd.DataFrame(
        records, columns=[*ARROW, "delta_ece", "low", "high", "draws", "within_chance"]
    )


def measure_arrow(
    results: Results, source: tuple, target: tuple, method: str, printed: float
) -> dict:
    """Return the change of the target's ECE by a calibrator of the source: from its rows, or as
    printed."""
    if results.scores is None:
        return {
            "delta_ece": printed,
            "low": np.nan,
            "high": np.nan,
            "draws": None,
            "within_chance": False,
        }
    measures = {
        "raw": Measure(Score("ans_avg")),
        "moved": Measure(Score("ans_avg", method, source)),
    }
    numbers = results.scores.compare(target, measures)
    if numbers is None:
        raise MissingFrame("scores")
    drawn = draws_of(numbers)
    draws = drawn["moved"] - drawn["raw"]
    low, high = np.percentile(draws, [2.5, 97.5])
    within_chance = numbers["raw"].within_chance and numbers["moved"].within_chance
    delta = numbers["moved"].value - numbers["raw"].value
    return {
        "delta_ece": delta,
        "low": low,
        "high": high,
        "draws": draws,
        "within_chance": within_chance,
    }


def decide_arrows(rows: pd.DataFrame, rises: bool) -> pd.DataFrame:
    """Return the cases of arrows whose ECE rises, or falls."""
    outcomes = []
    for row in rows.itertuples():
        ends = (row.low, row.high) if rises else (-row.high, -row.low)
        outcome = claim.decide(row.delta_ece if rises else -row.delta_ece, *ends)
        outcomes.append(claim.OPEN if row.within_chance else outcome)
    return rows.drop(columns=["draws", "within_chance"]).assign(outcome=outcomes)


def transfers_between_models(results: Results, hard: bool) -> pd.DataFrame:
    """Return the change of ECE between models on the hardest dataset, or on the others."""
    rows = transfers(results, "model")
    return rows[(rows.dataset == claim.hard_dataset(results)) == hard]


@finding_4("mappings learned on GSM8K consistently improve calibration on GSMHard", "all")
@arrows("a calibrator of another dataset lowers the ECE on the hardest")
def easy_to_hard(results: Results) -> pd.DataFrame:
    rows = transfers(results, "dataset")
    return decide_arrows(rows[rows.dataset == claim.hard_dataset(results)], rises=False)


@finding_4("whereas the reverse direction generally worsens it", "generally")
@arrows("a calibrator of the hardest dataset raises the ECE on another")
def hard_to_easy(results: Results) -> pd.DataFrame:
    rows = transfers(results, "dataset")
    return decide_arrows(rows[rows.source_dataset == claim.hard_dataset(results)], rises=True)


@finding_4("both directions improve calibration on GSMHard", "all")
@arrows("a calibrator of another model lowers the ECE on the hardest dataset")
def models_on_hard(results: Results) -> pd.DataFrame:
    return decide_arrows(transfers_between_models(results, hard=True), rises=False)


@finding_4("transfer on GSM8K is asymmetric", "generally")
@arrows(
    "off the hardest dataset, one of both directions raises the ECE and the other lowers it",
    unit="cases",
)
def models_on_easy(results: Results) -> pd.DataFrame:
    there = transfers_between_models(results, hard=False)
    back = there.rename(columns={"source_model": "model", "model": "source_model"})
    both = there[there.source_model < there.model].merge(back, on=ARROW, suffixes=("", "_back"))
    cases = []
    for row in both.itertuples():
        case = dict(
            zip(
                ARROW,
                (row.source_model, row.source_dataset, row.model, row.dataset, row.method),
                strict=True,
            )
        )
        margin = least_of_rise_and_fall(row.delta_ece, row.delta_ece_back)
        low, high = np.nan, np.nan
        if row.draws is not None:
            low, high = np.percentile(
                least_of_rise_and_fall(row.draws, row.draws_back), [2.5, 97.5]
            )
        outcome = (
            claim.OPEN
            if row.within_chance and row.within_chance_back
            else claim.decide(margin, low, high)
        )
        numbers = {"delta_ece": row.delta_ece, "back": row.delta_ece_back, "margin": margin}
        cases.append(case | numbers | {"low": low, "high": high, "outcome": outcome})
    return claim.as_cases(cases, [*ARROW, "delta_ece", "back"])


def least_of_rise_and_fall(there, back):
    """Return the smaller of a rise one way and a fall the other: above 0 only if the two have
    different signs."""
    return np.minimum(np.maximum(there, back), -np.minimum(there, back))


@finding_4("can severely degrade calibration", "figure")
@arrows(
    "off the hardest dataset, the largest rise is above .2",
    numbers=claim.format_cases("largest {largest:.3f}"),
)
def transfer_severe(results: Results) -> pd.DataFrame:
    largest = transfers_between_models(results, hard=False).delta_ece.max()
    return by_number(pd.DataFrame([{"largest": largest}]), largest > 0.2)
