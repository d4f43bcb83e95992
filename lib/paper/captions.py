"""Captions of the tables and figures that are exported, in the order of the paper, with the functions of the tables.

`tab_...` is a table, `fig_...` a figure. The functions are here for what goes through all tables: the numbers compared
with the paper, and `verify`.
"""

from collections.abc import Callable
from typing import NamedTuple

from lib.analysis.results import Results
from lib.paper import beyond_paper, calibration_tables, tables
from lib.paper.booktabs import Table


class Caption(NamedTuple):
    """The two parts of a caption, and the function that makes the table of all results of a run, or of the paper."""

    short: str
    long: str
    build: Callable[[Results], Table] | None = None


CAPTIONS = {
    "tab_estimators": Caption(
        "Estimators",
        "How each estimator turns probabilities into one confidence for a response.",
        tables.estimators),
    "tab_result_estimation": Caption(
        "Raw confidence",
        "Accuracy, and ECE and MCE of each estimator before any calibration; the lowest ECE of a row is bold.",
        tables.result_estimation),
    "fig_main_analysis": Caption(
        "What the signals look like",
        "(a) Running mean of token probabilities against position, correct and incorrect responses apart, and the "
        "difference with its interval. (b) Predictive and conditional entropy against the number of dropout "
        "passes; the gap is BALD. (c) ECE of verification in situ and by a prompt, with 95% intervals."),
    "tab_result_calibration": Caption(
        "After calibration",
        "ECE after isotonic regression and after temperature (answer estimators) or Platt scaling (P(True)), "
        "change against the raw score in parentheses, and the learned parameters.",
        calibration_tables.result_calibration),
    "fig_calibration_analysis": Caption(
        "Calibration",
        "(a, b) Reliability before and after, with the ECE of either, 95% binomial intervals, the gap to the "
        "diagonal, and the number of rows in each bin; hollow where these are fewer than five. (c) ECE against "
        "the number of calibration rows, with the middle 80% of the draws; dotted the raw score's. In parentheses "
        "how many draws hold correct responses alone, or incorrect ones alone."),
    "tab_calibration_transfer_summary": Caption(
        "Transfer in short",
        "Change of ECE on the target when the calibrator was learned on the source; improvements on the hard "
        "dataset are bold.",
        calibration_tables.calibration_transfer_summary),
    "tab_dropout_grid_search": Caption(
        "Dropout rates",
        "c_BALD on the tuning examples for each rate of the grid; the rate of lowest ECE is bold.",
        tables.dropout_grid_search),
    "tab_inference_settings": Caption("Decoding settings", "How each model was sampled.", tables.inference_settings),
    "fig_prompt_example": Caption(
        "One exchange",
        "A prompt as the model reads it, special tokens and all, and its response."),
    "tab_result_estimation_full": Caption(
        "Raw confidence with intervals",
        "Every metric with its 95% bootstrap percentile interval over evaluation rows.",
        tables.result_estimation_full),
    "tab_result_calibration_full": Caption(
        "After calibration, with intervals",
        "ECE after calibration with its 95% interval; the lower of the two methods is bold.",
        calibration_tables.result_calibration_full),
    "tab_result_isotonic": Caption(
        "Isotonic regression on every estimator",
        "ECE after isotonic regression, 95% interval, and change against the raw score.",
        calibration_tables.result_isotonic),
    "tab_calibration_transfer_full": Caption(
        "Transfer in full",
        "Every calibrator on every target; bold where it was learned on the target itself.",
        calibration_tables.calibration_transfer_full),
    "tab_insitu_ptrue": Caption(
        "In-situ verification",
        "ECE of P(True) on the live trajectory and by a prompt of its own, beside Ans Avg, and the tokens saved.",
        tables.insitu_ptrue),
    "tab_bin_ablation": Caption(
        "Number of bins",
        "The single-pass estimators measured with other numbers of bins.",
        tables.bin_ablation),
    "fig_prompt_comparison": Caption(
        "Two ways to ask",
        "The same response verified by a prompt of its own, and in situ, where the query follows the trajectory."),
}  # fmt: skip
BEYOND = {  # not in the paper
    "fig_costs": Caption(
        "What the tokens buy (not in the paper)",
        "ECE (the lower the better) and AUROC (the higher) of raw scores against the tokens that a question "
        "takes, response and prompt included: a small mark for each pair, a large one for the mean of the pairs "
        "that have every estimator, and a line along the means that no cheaper estimator betters."),
    "fig_selective": Caption(
        "When to answer (not in the paper)",
        "Accuracy of the answers given against the share of questions answered, the surest first: raw scores "
        "above, after isotonic regression below. A ring is a threshold that guarantees the precision of the gray "
        "line."),
    "tab_costs": Caption(
        "What a confidence costs (not in the paper)",
        "Tokens read for a question: for the response with its prompt, which every single-pass estimator has for "
        "nothing, and for what the others read beyond it.",
        beyond_paper.costs),
    "tab_selective": Caption(
        "What the confidence is good for (not in the paper)",
        "Each estimator beside a constant at the base rate of the calibration rows, which knows nothing and is "
        "nearly calibrated: Skill is the share of its Brier score that an estimator saves. Then the same after "
        "isotonic regression, and the share of questions answered where a precision is guaranteed. Bold is the "
        "best of a pair.",
        beyond_paper.selective),
}  # fmt: skip

TABLES = {name: caption.build for name, caption in (CAPTIONS | BEYOND).items() if caption.build}


def captions() -> dict[str, tuple[str, str]]:
    """Return the two parts of each caption by name, in the order of the paper."""
    return {name: (caption.short, caption.long) for name, caption in (CAPTIONS | BEYOND).items()}
