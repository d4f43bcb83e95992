"""The paper's claims on P(True) (Finding 3), and on calibration and transfer (Finding 4, and of its abstract)."""

from functools import partial

import numpy as np
import pandas as pd

from lib.analysis.results import Results
from lib.paper import claims
from lib.paper.claims import abstract, counted, finding_3, finding_4, in_situ_table, main_table
from lib.score.estimators import PAPER_ESTIMATORS
from lib.store import PAIR

ERROR_CELL = [*PAIR, "estimator"]
ARROW = ["source_model", "source_dataset", *PAIR, "method"]
CURVE = [*PAIR, "method"]
cells = partial(counted, place="tab_result_calibration", unit="cells")
curves = partial(counted, place="fig_calibration_analysis", unit="curves")
arrows = partial(counted, place="tab_calibration_transfer_summary", unit="arrows")

# ---- Finding 3


@finding_3("why is it often better calibrated than Ans Avg", "often")
@main_table("P(True) has a lower ECE than Ans Avg")
def p_true_below_ans_avg(results: Results) -> pd.DataFrame:
    return claims.paired_errors(results, "p_true", "ans_avg").assign(agrees=lambda ece: ece.p_true < ece.ans_avg)


@finding_3("in-situ verification achieves ECE comparable to standard P(True)", "generally")
@in_situ_table("the ECE of P(True) in situ and by a prompt of its own differ by at most .05")
def in_situ_comparable(results: Results) -> pd.DataFrame:
    ece = claims.paired_errors(results, "p_true_insitu", "p_true", table="insitu_ptrue")
    return ece.assign(agrees=(ece.p_true_insitu - ece.p_true).abs() <= 0.05 + 1e-9)


@finding_3("reduces token-processing overhead by 88% on average across all settings", "figure")
@in_situ_table("in situ, P(True) reads at least 85% fewer tokens", numbers=claims.format_cases("{mean_reduction:.0f}%"))
def token_reduction(results: Results) -> pd.DataFrame:
    mean = claims.table_rows(results, "insitu_ptrue", "token_reduction_pct").value.mean()
    return pd.DataFrame([{"mean_reduction": mean, "agrees": mean >= 85}])


@finding_3("particularly relevant for long outputs", "generally")
@in_situ_table("the share of tokens saved grows with the length of the response (rank correlation)")
def saving_grows(results: Results) -> pd.DataFrame:
    costs = results.frame("verification")[[*PAIR, "saving_with_length"]]
    return costs.assign(agrees=costs.saving_with_length > 0)


# ---- calibration


def calibrated_errors(results: Results, table: str = "result_calibration") -> pd.DataFrame:
    """Return the ECE after each method, with its gain, a share of the raw ECE, by pair and estimator."""
    estimators = PAPER_ESTIMATORS if table == "result_isotonic" else ["ans_avg", "ans_joint", "p_true"]
    rows = claims.table_rows(results, table).dropna(subset="relative")
    rows = rows[rows.estimator.isin(estimators) & (rows.method != "")]
    return rows[[*ERROR_CELL, "method", "value", "relative"]].rename(columns={"value": "ece", "relative": "gain"})


@abstract("both of which substantially reduce in-domain calibration error", "all")
@cells("the median gain is at least half", unit="methods", numbers=claims.format_cases("{method} {median_gain:.0%}"))
def calibration_substantial(results: Results) -> pd.DataFrame:
    medians = calibrated_errors(results).groupby("method").gain.median().reindex(["isotonic", "platt"])
    cases = medians.rename("median_gain").reset_index().assign(agrees=(medians >= 0.5).to_numpy())
    return cases if medians.notna().all() else cases.head(0)


@finding_4("both methods generally reduce calibration error", "generally")
@counted("isotonic regression lowers the ECE", "tab_result_isotonic", unit="cells")
def isotonic_reduces(results: Results) -> pd.DataFrame:
    cases = calibrated_errors(results, "result_isotonic").query("method == 'isotonic'")
    return cases.assign(agrees=cases.gain > 0)


@finding_4("both methods generally reduce calibration error, including the strongly overconfident", "generally")
@cells("temperature scaling, or Platt scaling of P(True), lowers the ECE")
def platt_reduces(results: Results) -> pd.DataFrame:
    return calibrated_errors(results).query("method == 'platt'").assign(agrees=lambda cases: cases.gain > 0)


@finding_4("isotonic regression often produces the largest reductions", "often")
@cells("isotonic regression leaves a lower ECE than temperature or Platt scaling, or the same from more")
def isotonic_below_temperature(results: Results) -> pd.DataFrame:
    rows = calibrated_errors(results)
    wide = rows.pivot(index=ERROR_CELL, columns="method", values=["ece", "gain"]).astype(float)
    ece, gain = (wide[name].reindex(columns=["isotonic", "platt"]) for name in ("ece", "gain"))
    cases = ece.join(gain.add_suffix("_gain"))
    tie = (cases.isotonic == cases.platt) & (cases.isotonic_gain > cases.platt_gain)
    return cases.assign(agrees=(cases.isotonic < cases.platt) | tie)


@finding_4("can correct nonlinear curves that cannot be captured by global logit rescaling", "can")
@curves("where a quadratic term in the logit has p < .05, isotonic regression beats temperature scaling", unit="pairs")
def isotonic_mends_curves(results: Results) -> pd.DataFrame:
    curved = results.frame("calibration_rows").set_index(PAIR).curved.rename("p_quadratic")
    rows = claims.table_rows(results, "result_calibration").query("estimator == 'ans_avg' and method != ''")
    ece = claims.pivot(rows, "method").reindex(columns=["isotonic", "platt"])
    return ece.join(curved[curved < 0.05], how="inner").assign(agrees=ece.isotonic < ece.platt)


@finding_4("high raw ECE does not necessarily preclude effective post-hoc correction", "can")
@cells("a raw ECE above .3 is below .15 after calibration")
def high_raw_mends(results: Results) -> pd.DataFrame:
    raw = claims.raw_errors(results, *PAPER_ESTIMATORS).stack().rename_axis(ERROR_CELL).rename("raw")
    cases = calibrated_errors(results).join(raw, on=ERROR_CELL).query("raw > 0.3")
    return cases[[*ERROR_CELL, "method", "raw", "ece"]].assign(agrees=cases.ece < 0.15)


# ---- calibration rows


def errors_by_rows(results: Results) -> pd.DataFrame:
    """Return the ECE of Ans Avg after calibration with n rows, and that of the `raw` score."""
    rows = results.frame("learning", sampling="uniform").astype({"n": float})
    raw = rows[rows.method == ""].set_index(PAIR)["mean"].rename("raw")
    return rows[rows.method != ""].join(raw, on=PAIR).sort_values("n", kind="stable")


@finding_4("50 examples already yielding substantial improvements across datasets", "all")
@curves("50 rows (or the nearest number) lower the ECE of Ans Avg at least half as much as all rows")
def fifty_suffice(results: Results) -> pd.DataFrame:
    bands = errors_by_rows(results)
    nearest = bands.assign(distance=np.log(bands.n / 50).abs()).sort_values("distance", kind="stable")
    few = nearest.groupby(CURVE)[["n", "raw", "mean"]].first().set_axis(["rows", "raw", "few"], axis=1)
    cases = few.join(bands.groupby(CURVE)["mean"].last().rename("every"))
    return cases.assign(agrees=(cases.few < cases.raw) & (cases.raw - cases.few >= (cases.raw - cases.every) / 2))


@finding_4("GSM8K and SVAMP require larger calibration sets for stable improvement", "generally")
@curves("nine draws in ten improve the ECE with fewer rows on the hardest dataset than on another")
def hard_needs_fewer(results: Results) -> pd.DataFrame:
    bands, hardest = errors_by_rows(results), claims.hard_dataset(results)
    stable = bands.assign(needed=bands.n.where(bands.high < bands.raw, np.inf))
    needed = stable.groupby(CURVE, sort=False).needed.min().reset_index()
    hard = needed[needed.dataset == hardest].set_index(["model", "method"]).needed.rename("needed_on_hardest")
    cases = needed[needed.dataset != hardest].join(hard, on=["model", "method"])
    told = cases[cases[["needed", "needed_on_hardest"]].max(axis=1) > bands.n.min()]
    return told.assign(agrees=told.needed_on_hardest < told.needed)


@finding_4("harder datasets expose high-confidence errors more frequently", "generally")
@curves("of 50 calibration rows, more are wrong above .9 on the hardest dataset than on any other", unit="models")
def errors_on_hard(results: Results) -> pd.DataFrame:
    errors = claims.pivot(results.frame("calibration_rows"), "dataset", "confident_errors", ["model"])
    errors = errors.reindex(columns=list(results.datasets))
    hard = errors.pop(claims.hard_dataset(results))
    return pd.DataFrame({"hard": hard, "elsewhere": errors.max(axis=1), "agrees": hard > errors.max(axis=1)})


# ---- transfer


def transfers(results: Results, changed: str) -> pd.DataFrame:
    """Return the change of ECE by the arrows of `tab:calibration_transfer_summary` that change only the dataset, or
    only the model."""
    rows = claims.table_rows(results, "calibration_transfer_summary", "delta_ece").query("method != ''")
    for labels, kind in zip(results.transfer_labels, PAIR, strict=True):
        shown = rows[[kind, f"source_{kind}"]].isin(list(labels)).all(axis=1)
        rows = rows[shown & ((rows[kind] != rows[f"source_{kind}"]) == (kind == changed))]
    return rows[[*ARROW, "value"]].rename(columns={"value": "delta_ece"})


def transfers_between_models(results: Results, hard: bool) -> pd.DataFrame:
    """Return the change of ECE between models on the hardest dataset, or on the others."""
    rows = transfers(results, "model")
    return rows[(rows.dataset == claims.hard_dataset(results)) == hard]


@finding_4("mappings learned on GSM8K consistently improve calibration on GSMHard", "all")
@arrows("a calibrator of another dataset lowers the ECE on the hardest")
def easy_to_hard(results: Results) -> pd.DataFrame:
    rows = transfers(results, "dataset")
    return rows[rows.dataset == claims.hard_dataset(results)].assign(agrees=rows.delta_ece < 0)


@finding_4("whereas the reverse direction generally worsens it", "generally")
@arrows("a calibrator of the hardest dataset raises the ECE on another")
def hard_to_easy(results: Results) -> pd.DataFrame:
    rows = transfers(results, "dataset")
    return rows[rows.source_dataset == claims.hard_dataset(results)].assign(agrees=rows.delta_ece > 0)


@finding_4("both directions improve calibration on GSMHard", "all")
@arrows("a calibrator of another model lowers the ECE on the hardest dataset")
def models_on_hard(results: Results) -> pd.DataFrame:
    return transfers_between_models(results, hard=True).assign(agrees=lambda cases: cases.delta_ece < 0)


@finding_4("transfer on GSM8K is asymmetric", "generally")
@arrows("off the hardest dataset, only one of both directions raises the ECE by more than .005", unit="cases")
def models_on_easy(results: Results) -> pd.DataFrame:
    there = transfers_between_models(results, hard=False)
    back = there.rename(columns={"source_model": "model", "model": "source_model", "delta_ece": "back"})
    cases = there[there.source_model < there.model].merge(back, on=ARROW)
    return cases.assign(agrees=(cases.delta_ece > 0.005) != (cases.back > 0.005))


@finding_4("can severely degrade calibration", "figure")
@arrows("off the hardest dataset, the largest rise is above .2", numbers=claims.format_cases("largest {largest:.3f}"))
def transfer_severe(results: Results) -> pd.DataFrame:
    largest = transfers_between_models(results, hard=False).delta_ece.max()
    return pd.DataFrame([{"largest": largest, "agrees": largest > 0.2}])
