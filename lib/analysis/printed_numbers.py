"""The numbers of all results that the paper's tables print, as one tidy frame. Numbers of a run, of the paper and of
noisy draws are compared by key."""

import math
from typing import Any

import pandas as pd

from lib.analysis.results import NUMBER_KEY, Results, tidy_numbers
from lib.score.estimators import ESTIMATORS
from lib.score.metrics import METRICS
from lib.store import PAIR

PAPER_ESTIMATORS = [name for name, estimator in ESTIMATORS.items() if estimator.definition]
SINGLE_PASS = [name for name in PAPER_ESTIMATORS if ESTIMATORS[name].group == "single_pass"]
FITTED = ["ans", *(name for name in PAPER_ESTIMATORS if ESTIMATORS[name].needs in ("answer", "standard_margin"))]
ERRORS = ["ece", "mce", "brier"]
# Tables after calibration show estimators with logits, or all if no calibrator of logits was fitted.
CALIBRATED_ROWS = (
    f"method != '' and (metric == 'ece' or metric not in {['', *METRICS]})"
    f" and (estimator in {FITTED} or estimator in {PAPER_ESTIMATORS} and not method.isin(['platt']).any())"
)
PRINTED = {  # table: its frame, and the query for the rows that it prints
    "result_estimation": ("result_estimation", "metric in ['acc', 'ece', 'mce']"
                         f" and estimator in {['', *PAPER_ESTIMATORS]}"),
    "insitu_ptrue": ("insitu_ptrue", "metric == 'token_reduction_pct'"
                    " or metric == 'ece' and estimator in ['ans_avg', 'p_true_insitu', 'p_true']"),
    "result_calibration": ("result_calibration", CALIBRATED_ROWS),
    "calibration_transfer_summary": ("calibration_transfer_summary", "metric == 'delta_ece' and method != ''"
                                    " and (model != source_model) != (dataset != source_dataset)"),
    "dropout_grid_search": ("dropout_grid_search", f"metric in {ERRORS} and estimator == 'c_bald'"),
    "bin_ablation": ("bin_ablation", f"metric in {ERRORS} and estimator in {SINGLE_PASS}"),
    "result_estimation_full": ("result_estimation_full", f"metric in {['acc', *ERRORS]} and method == ''"
                               f" and estimator in {['', *PAPER_ESTIMATORS]}"),
    "result_calibration_full": ("result_calibration_full", CALIBRATED_ROWS),
    "result_isotonic": ("result_isotonic", "metric == 'ece' and method == 'isotonic'"
                       f" and estimator in {PAPER_ESTIMATORS}"),
    "calibration_transfer_full": ("calibration_transfer_full", f"metric in {ERRORS}"),
}  # fmt: skip


def printed_numbers(results: Results) -> pd.DataFrame:
    """Return the numbers that the paper's tables print, in the columns of `tidy_numbers`.

    Further columns: labels of models and datasets (`..._label`), the `key` of each within its table in one word, as in
    cells, and its `text`.
    """
    frames = {}
    for name, (source, rows) in PRINTED.items():
        frame = results.frames[source].query(rows, engine="python")
        for column, labels in zip(PAIR, results.labels(name), strict=True):
            frame = frame[frame[column].isin(list(labels))]
            if name.startswith("calibration_transfer"):
                frame = frame[frame[f"source_{column}"].isin(["", *labels])].assign(estimator="")
        frames[name] = frame
    numbers = tidy_numbers(frames).dropna(subset="value").drop_duplicates(NUMBER_KEY, keep="last")
    words = {
        f"{end}{name}_label": numbers[end + name].replace(dict(labels))
        for name, labels in zip(PAIR, (results.models, results.datasets), strict=True)
        for end in ("", "source_")
    }
    more = {"table": "tab_" + numbers.table, "key": number_keys(numbers), "text": format_numbers(numbers), **words}
    return numbers.assign(**more).reset_index(drop=True)


def number_keys(numbers: pd.DataFrame) -> list[str]:
    """Return the key of each number within its table in one word: "tiny/easy/ans_avg/ece/isotonic"."""
    keys = numbers.reindex(columns=NUMBER_KEY[1:]).map(format_key_part).to_numpy()
    return ["/".join([*key[:4], *filter(None, key[4:])]) for key in keys]


def format_key_part(part: Any) -> str:
    """Return a part of a key: empty if it does not apply, 10 for 10.0."""
    return "" if pd.isna(part) else part if isinstance(part, str) else f"{part:g}"


def format_numbers(numbers: pd.DataFrame) -> pd.Series:
    """Return the digits that a table prints of each number, with its relative improvement."""
    learned = ~numbers.metric.isin([*METRICS, "delta_ece", "token_reduction_pct"])
    values = numbers.value.map("{:.3f}".format).mask(learned, numbers.value.map(format_two_digits))
    return values.str.cat(numbers.relative.map("{:.0%}".format, na_action="ignore"), " ", na_rep="")


def format_two_digits(value: float) -> str:
    """Return two decimals, or more if needed for two significant digits: 0.53, 0.054."""
    places = 2 if value == 0 else max(2, min(6, 1 - math.floor(math.log10(abs(value)))))
    return f"{value:.{places}f}"
