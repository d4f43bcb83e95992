"""What the frames of a run's tables hold beside the scores themselves."""

import pandas as pd
import pytest

from lib.analysis.results import Results
from lib.analysis.run_results import ece_on_shared_rows


def test_only_a_score_with_more_rows_than_another_is_measured_on_the_shared_ones():
    """Ans Avg has a third row, which c_BALD lacks: its error there, .9, does not count."""
    of_answers = pd.DataFrame(
        {"example_id": ["a", "b", "c"], "confidence": [0.75, 0.75, 0.9], "correct": [1, 0, 0]}
    )
    of_passes = pd.DataFrame(
        {"example_id": ["a", "b"], "confidence": [0.5, 0.5], "correct": [1, 0]}
    )
    parts = [of_answers.assign(estimator="ans_avg"), of_passes.assign(estimator="c_bald")]
    scores = pd.concat(parts).assign(model="m", dataset="d", split="evaluation")
    (shared,) = ece_on_shared_rows(scores, 10).itertuples()
    assert (shared.estimator, shared.metric, shared.n) == ("ans_avg", "ece_shared", 2)
    assert shared.value == pytest.approx(0.75 - 1 / 2)


def test_scores_of_the_same_rows_share_all_and_have_no_second_error():
    rows = pd.DataFrame({"example_id": ["a", "b"], "confidence": [0.5, 0.9], "correct": [1, 0]})
    parts = [rows.assign(estimator="ans_avg"), rows.assign(estimator="seq_avg")]
    scores = pd.concat(parts).assign(model="m", dataset="d", split="evaluation")
    assert ece_on_shared_rows(scores, 10).empty


def test_results_that_a_notebook_prints_are_a_line_without_their_numbers():
    frame = pd.DataFrame({"value": [0.123456]})
    results = Results({"m": "M"}, {"d": "D"}, {}, ({}, {}), [], {"result_estimation": frame})
    assert "M" in repr(results) and "0.123456" not in repr(results)
    assert len(repr(results).splitlines()) == 1
