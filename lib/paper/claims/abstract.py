"""The claims of the paper's abstract."""

import pandas as pd

from lib.analysis.resampled_scores import Measure, ResampledNumber, Score
from lib.analysis.results import MissingFrameError, Results
from lib.calibrate.calibration_sets import Pair
from lib.paper.cases import Case, collect_pair_cases, compare_on_pair, error_of, pivot, table_rows
from lib.paper.claim import DISAGREES, claim, decide_by_number, format_cases

MULTI_PASS = ("p_true", "c_bald")
# of the paper: temperature or Platt scaling
WITH_SECOND_METHOD = ("ans_avg", "ans_joint", "p_true")


@claim(
    "Abstract",
    "multi-pass methods can yield calibrated confidence estimates",
    "can",
    counted="the lower ECE of P(True) and c_BALD is within what chance gives, and the interval of "
    "that score's AUROC lies above .5 (on printed numbers: that ECE is at most .05)",
    place="tab_result_estimation",
)
def multi_pass_calibrated(results: Results) -> pd.DataFrame:
    if results.scores is None:
        rows = table_rows(results, "result_estimation")
        errors = pivot(rows[rows.method == ""], "estimator").reindex(columns=MULTI_PASS)
        lower = errors.min(axis=1)
        return decide_by_number(lower.rename("best_multi_pass").to_frame(), lower <= 0.05)

    def case_of(pair: Pair) -> Case | None:
        return calibrated_and_ranking(results, pair)

    return collect_pair_cases(results, case_of, ["estimator", "ece", "auroc"])


def calibrated_and_ranking(results: Results, pair: Pair) -> Case | None:
    """Return the case of the estimator of several passes with the lower ECE, on a pair."""
    if results.scores is None:
        raise MissingFrameError("scores")
    errors: dict[str, ResampledNumber] = {}
    for name in MULTI_PASS:
        numbers = results.scores.compare(pair, error_of(name))
        if numbers is not None:
            errors |= numbers
    if not errors:
        return None
    best = min(errors, key=lambda name: errors[name].value)
    measures = {"auroc": Measure(Score(best), "auroc")}
    case = compare_on_pair(results, pair, lambda number: number.auroc - 0.5, measures)
    if case is None:
        return None
    if not errors[best].within_chance:
        case["outcome"] = DISAGREES
    return {"estimator": best, "ece": errors[best].value, **case}


@claim(
    "Abstract",
    "both of which substantially reduce in-domain calibration error",
    "all",
    counted="the median gain is at least half",
    place="tab_result_calibration",
    unit="methods",
    numbers=format_cases("{method} {median_gain:.0%}"),
)
def calibration_substantial(results: Results) -> pd.DataFrame:
    rows = table_rows(results, "result_calibration").dropna(subset="relative")
    rows = rows[rows.estimator.isin(WITH_SECOND_METHOD) & (rows.method != "")]
    medians = rows.groupby("method").relative.median().reindex(["isotonic", "platt"])
    cases = medians.rename("median_gain").reset_index()
    cases = decide_by_number(cases, cases.median_gain >= 0.5)
    return cases if medians.notna().all() else cases.head(0)
