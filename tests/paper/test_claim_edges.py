"""Claims at their edges: equal errors, a distance of just so much, a transfer that costs a fifth."""

import pandas as pd
import pytest

from lib.analysis.results import Results
from lib.paper.claims import CLAIMS
from lib.paper.verdicts import QUANTIFIERS, judge

MODELS, DATASETS = {"a": "A", "b": "B"}, {"d": "D", "h": "H"}


def judged(name, **frames):
    results = Results(MODELS, DATASETS, MODELS, (MODELS, DATASETS), [], frames)
    return judge(next(claim for claim in CLAIMS if claim.name == name), results)


@pytest.mark.parametrize("word, fewest, total", [
    ("all", 4, 4), ("most", 3, 4), ("most", 8, 10), ("often", 3, 5), ("generally", 3, 4), ("several", 1, 4),
    ("several", 2, 5), ("some", 1, 4), ("can", 1, 9), ("figure", 1, 1)])  # fmt: skip
def test_words_for_how_many(word, fewest, total):
    assert [QUANTIFIERS[word][1](count, total) for count in (fewest - 1, fewest, total)] == [False, True, True]


@pytest.mark.parametrize("name, one, other, held", [
    ("SeqAvgBelowAnswer", 0.125, 0.125, False), ("SeqAvgBelowAnswer", 0.125, 0.126, True),
    ("SubstantiallyBetter", 0.12, 0.15, True), ("SubstantiallyBetter", 0.121, 0.15, False),
    ("InSituMatches", 0.125, 0.125, True), ("InSituMatches", 0.126, 0.125, False),
    ("InSituComparable", 0.25, 0.2, True), ("InSituComparable", 0.15, 0.2, True),
    ("InSituComparable", 0.251, 0.2, False),
    ("BaldBelowPTrue", 0.2, 0.2, False), ("BaldBelowPTrue", 0.199, 0.2, True)])  # fmt: skip
def test_edges_of_what_is_counted(name, one, other, held):
    values = dict.fromkeys(("seq_avg", "seq_joint", "p_true_insitu", "c_bald"), one)
    values |= dict.fromkeys(("ans_avg", "ans_joint", "p_true"), other)
    frame = pd.DataFrame(values.items(), columns=["estimator", "value"]).assign(model="a", dataset="d", metric="ece")
    assert judged(name, result_estimation=frame, insitu_ptrue=frame).held is held


@pytest.mark.parametrize("largest, held", [(0.2, False), (0.201, True)])
def test_a_transfer_is_severe_above_a_fifth(largest, held):
    """Between models, on one dataset."""
    ends = [("a", "d", "b", "d", -0.5), ("b", "d", "a", "d", largest), ("a", "h", "a", "d", 0.9)]
    moved = pd.DataFrame(ends, columns=["source_model", "source_dataset", "model", "dataset", "value"])
    accuracy = pd.DataFrame([("a", "d", 0.9), ("a", "h", 0.5)], columns=["model", "dataset", "value"])
    frames = {
        "calibration_transfer_summary": moved.assign(metric="delta_ece", method="isotonic"),
        "result_estimation": accuracy.assign(metric="acc", estimator=""),
    }
    found = judged("TransferSevere", **frames)
    assert found.held is held and found.rows.largest.tolist() == [largest]
