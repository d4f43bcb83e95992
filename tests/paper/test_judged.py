"""The tables and sentences of `./run_all.sh judge`, of numbers made by hand."""

import pandas as pd
import pytest

from lib.analysis.judged_scores import RawNumbers
from lib.paper import judged, judged_sentences


@pytest.mark.parametrize(
    "low, high, decided",
    [
        (0.1, 0.2, True),
        (-0.2, -0.1, True),
        (-0.1, 0.1, False),
        (0.0, 0.2, False),
        (-0.2, 0.0, False),
    ],
)
def test_a_difference_is_decided_if_its_interval_lies_beside_zero(low, high, decided):
    assert judged.excludes_zero(low, high) is decided


# ---- on all rows


def raw_numbers(rows, pairs=()):
    """Numbers from (column, metric, value), with intervals .1 wide, and differences of pairs."""
    results = pd.DataFrame(rows, columns=["column", "metric", "value"])
    results["low"] = results.value - 0.05
    results["high"] = results.value + 0.05
    results["chance_high"] = 0.03
    names = ["column", "than", "metric", "low", "high"]
    return RawNumbers(results, pd.DataFrame(pairs, columns=names))


THREE = [
    ("a", "ece", 0.3),
    ("b", "ece", 0.1),
    ("c", "ece", 0.12),
    ("a", "auroc", 0.7),
    ("b", "auroc", 0.6),
    ("c", "auroc", 0.5),
]
DIFFERENCES = [
    ("a", "b", "ece", 0.1, 0.3),
    ("a", "c", "ece", 0.1, 0.2),
    ("b", "c", "ece", -0.1, 0.05),
    ("a", "b", "auroc", -0.1, 0.3),
    ("a", "c", "auroc", 0.1, 0.3),
    ("b", "c", "auroc", -0.1, 0.2),
]


def test_the_lowest_error_is_named_with_those_that_cannot_be_told_from_it():
    sentence = judged_sentences.describe_best(raw_numbers(THREE, DIFFERENCES), "ece")
    assert sentence == (
        "b has the lowest ECE, .100 [.050, .150]; "
        "chance alone gives calibrated scores up to .030; c cannot be told from it."
    )


def test_the_highest_auroc_is_named_and_chance_gives_none():
    sentence = judged_sentences.describe_best(raw_numbers(THREE, DIFFERENCES), "auroc")
    assert sentence == "a has the highest AUROC, .700 [.650, .750]; b cannot be told from it."


def test_of_one_column_nothing_is_the_best():
    sentence = judged_sentences.describe_best(raw_numbers([("a", "auroc", 0.7)]), "auroc")
    assert sentence == "The AUROC of a is .700 [.650, .750]."


# ---- on the second half


def calibrated_numbers(rows):
    """Numbers from (column, method, metric, value, difference to raw), whose intervals are .1
    wide."""
    names = ["column", "method", "metric", "value", "difference"]
    frame = pd.DataFrame(rows, columns=names)
    for name in ("value", "difference"):
        ends = ("low", "high") if name == "value" else ("difference_low", "difference_high")
        frame[ends[0]] = frame[name] - 0.05
        frame[ends[1]] = frame[name] + 0.05
    return frame.assign(chance=0.01, chance_high=0.02, calibrated=False)


HALVES = calibrated_numbers(
    [
        ("a", "", "ece", 0.3, None),
        ("a", "", "brier", 0.4, None),
        ("a", "", "auroc", 0.7, None),
        ("a", "isotonic", "ece", 0.1, -0.2),
        ("a", "isotonic", "brier", 0.2, -0.2),
        ("a", "isotonic", "auroc", 0.7, 0.0),
        ("b", "", "ece", 0.2, None),
        ("b", "", "brier", 0.3, None),
        ("b", "", "auroc", 0.6, None),
        ("b", "isotonic", "ece", 0.1, -0.1),
        ("b", "isotonic", "brier", 0.28, -0.02),
        ("b", "isotonic", "auroc", 0.6, 0.0),
    ]
)


def test_each_method_has_the_difference_of_its_brier_score_to_raw_bold_if_decided():
    cells = judged.calibrated_table(HALVES).cells
    differences = cells["Brier minus raw"]
    assert differences["a", "raw"] == differences["b", "raw"] == ""
    decided = judged.interval_cell(-0.2, -0.25, -0.15, "+")
    assert differences["a", "isotonic"] == judged.embolden(decided)
    assert differences["b", "isotonic"] == judged.interval_cell(-0.02, -0.07, 0.03, "+")


def test_a_method_lowers_the_brier_score_of_columns_whose_interval_says_so():
    (sentence,) = judged_sentences.describe_methods(HALVES)
    assert sentence.endswith(" lowers the Brier score of a.")
    (sentence,) = judged_sentences.describe_methods(HALVES[HALVES.column == "b"])
    assert sentence.endswith(" lowers the Brier score of no column.")
