"""Estimators by hand and by property; the reading-time choices on a frame of known rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import passed, responses, single_pass

from lib.analysis.token_statistics import answer_token_logprobs, running_mean
from lib.params import Reading
from lib.paths import UserError
from lib.score import estimators
from lib.score.confidence import compute_bald, scale_bald
from lib.score.interpretation import answer_coverage

LOG = np.log
logprobs = st.lists(st.floats(-50, 0), min_size=1, max_size=60)


def row(example_id="a", probabilities=(0.5, 0.8, 0.9, 0.4), answer="7", span=(2, 3), **other):
    """A response of four tokens, the last of them the end token, whose third holds the (right) answer."""
    defaults = {
        "model": "m", "dataset": "d", "split": "evaluation", "example_id": example_id, "reference": "7",
        "answer": answer, "answer_start": span[0], "answer_end": span[1], "last_number_start": -1,
        "last_number_end": -1, "thinking_end": 0, "eos": 1, "finish_reason": "stop",
        "token_logprobs": LOG(probabilities).astype(np.float32),
        "token_logprobs_sampling": LOG(np.sqrt(probabilities)).astype(np.float32),
    }  # fmt: skip
    return defaults | other


def confidence(rows, **choices):
    frame = single_pass(pd.DataFrame(rows), **choices)
    return frame.set_index(["example_id", "estimator"]).confidence


def none(**other):
    return row(answer=None, span=(-1, -1), **other)


@pytest.mark.parametrize("support, divisor", [(1, 2), (2, 2), (3, 3), (50, 50)])
def test_bald_is_divided_by_the_logarithm_of_its_support_or_of_two(support, divisor):
    assert estimators.normalize_bald([0.5, 0.1], [support] * 2) == pytest.approx(np.array([0.5, 0.1]) / LOG(divisor))


# ---- functions


def test_by_hand():
    x = LOG([0.5, 0.8])
    assert estimators.seq_avg(x) == pytest.approx(0.65, abs=1e-15)
    assert estimators.seq_joint(x) == pytest.approx(0.4**0.5, abs=1e-15)
    assert estimators.ans_avg(x) == estimators.seq_avg(x)
    assert estimators.ans_joint(x) == estimators.seq_joint(x)
    assert estimators.seq_joint([0.0]) == estimators.seq_avg([0.0]) == 1.0
    assert estimators.seq_joint([0.0, -np.inf]) == 0.0
    assert estimators.seq_avg([0.0, -np.inf]) == 0.5


@given(logprobs)
def test_in_unit_interval_and_joint_at_most_average(x):
    joint, average = estimators.seq_joint(x), estimators.seq_avg(x)
    assert 0 <= joint <= average + 1e-12 <= 1 + 1e-12
    assert average <= 1


@pytest.mark.parametrize("bad", [[], [np.nan], [-1, np.nan], [0.1]])
def test_refuses_what_is_no_log_probability(bad):
    with pytest.raises(ValueError, match="log-probabilities"):
        estimators.seq_avg(bad)


def test_rounding_above_zero_is_one():
    """As far as float32 rounds, and no further."""
    assert estimators.seq_avg(np.array([3e-7], np.float32)) == estimators.seq_avg([1e-5]) == 1.0
    with pytest.raises(ValueError, match="none above 0"):
        estimators.seq_avg([1.01e-5])


def test_the_lowest_window_holds_sixteen_tokens():
    """Twenty sure tokens, then fifteen at .5, and more sure ones: one sure token stands in the window."""
    x = LOG([1.0] * 20 + [0.5] * 15 + [1.0] * 5)
    assert estimators.min_window_mean(x) == pytest.approx((15 * 0.5 + 1) / 16)
    assert all(0.99 < estimators.min_window_mean(np.zeros(n)) <= 1 for n in range(1, 20)), "9 * (1 / 9) is more"
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 60):
        p, width = rng.random(n), min(n, 16)
        least = min(np.mean(p[i : i + width]) for i in range(n - width + 1))
        assert estimators.min_window_mean(LOG(p)) == pytest.approx(least, abs=1e-12)


def test_the_least_lead_and_certainty_stay_in_the_unit_interval():
    assert estimators.min_top2_margin([0.4, 0.3]) == 0.3 and estimators.min_top2_margin([-1e-9, 0.3]) == 0.0
    assert estimators.exp_neg_entropy([0.1, 0.3]) == pytest.approx(np.exp(-0.2))
    assert estimators.exp_neg_entropy([-0.1]) == 1.0
    assert estimators.c_bald([-0.5, 0.25, 2.0]) == pytest.approx((1 + 0.75 + 0) / 3)


def test_bald_after_some_passes_and_after_all():
    row = next(passed().itertuples())
    assert compute_bald(row).tolist() == pytest.approx([0.2, 0.6])
    assert compute_bald(row, 2).tolist() == pytest.approx([0.1, 0.2])
    assert scale_bald(passed(), "top_k")[0].tolist() == pytest.approx([0.2 / LOG(12), 0.6 / LOG(20)])


def test_sums_are_float64():
    x = np.full(20_000, np.log(0.9), np.float32)
    assert estimators.seq_joint(x) == pytest.approx(np.exp(float(x[0])), abs=1e-14)


# ---- reading


THOUGHT = row(thinking_end=1)


@pytest.mark.parametrize("read, choices, seq_avg, ans_avg", [
    (row(), {}, 2.2 / 3, 0.9),  # without the end token
    (row(), {"include_eos": True}, 0.65, 0.9),
    (row(eos=0), {}, 0.65, 0.9),
    (row(), {"logprobs_from": "sampling"}, None, 0.9**0.5),
    (THOUGHT, {}, 2.2 / 3, 0.9),
    (THOUGHT, {"include_thinking": False}, 0.85, 0.9),
    (none(thinking_end=4, eos=0), {"include_thinking": False}, 0.65, 0.4),  # never closed: nothing is left
    (none(probabilities=(0.3,)), {}, 0.3, 0.3),  # nothing but the end token
    (none(last_number_start=0, last_number_end=2), {}, None, 0.65),
    (none(), {}, None, 0.9),  # last token before the end token
    (none(eos=0), {}, None, 0.4),
    (none(), {"missing": "zero"}, 2.2 / 3, 0.0),
])  # fmt: skip
def test_which_tokens_a_choice_reads(read, choices, seq_avg, ans_avg):
    values = confidence([read], **choices)["a"]
    assert values["ans_avg"] == pytest.approx(ans_avg, abs=1e-6)
    assert seq_avg is None or values["seq_avg"] == pytest.approx(seq_avg, abs=1e-6)


def test_one_row_a_response_and_estimator():
    frame = single_pass(pd.DataFrame([row("a"), row("b", answer="8", split="calibration")]))
    assert list(frame) == ["model", "dataset", "split", "example_id", "estimator", "confidence", "correct"]
    assert frame.confidence.dtype == float and frame.correct.dtype == bool
    assert len(frame) == 8 and set(frame[frame.example_id == "b"].split) == {"calibration"}
    assert frame.groupby("example_id").correct.mean().to_dict() == {"a": 1.0, "b": 0.0}


def test_missing_answers():
    assert not single_pass(pd.DataFrame([none(reference="")])).correct.any()
    assert set(single_pass(pd.DataFrame([row("a"), none(example_id="b")]), missing="drop").example_id) == {"a"}
    assert single_pass(pd.DataFrame([none()]), missing="drop").empty
    left = responses(pd.DataFrame([none(), row("a"), none(example_id="b"), row("c")]), missing="drop")
    assert left.index.tolist() == [0, 1] and left.example_id.tolist() == ["a", "c"] and "index" not in left
    back = pd.DataFrame([row("a"), none(example_id="b")]).astype({"answer": "str"})  # as parquet gives it
    assert single_pass(back).groupby("example_id").correct.all().to_dict() == {"a": True, "b": False}


def test_grader_is_the_one_asked_for():
    rows = [row(answer="7.0")]
    assert single_pass(pd.DataFrame(rows)).correct.all()
    for wrong in ({"grader": "numerc"}, {"missing": "dorp"}, {"logprobs_from": "modle"}):
        with pytest.raises(UserError, match="did you mean '(numeric|drop|model)'"):
            single_pass(pd.DataFrame(rows), **wrong)


def test_only_plain_answers_where_that_is_asked():
    """What is written otherwise is no answer: wrong, and its tokens are those of the last number."""
    words = row("a", plain=False, last_number_start=0, last_number_end=1)
    alone = row("b", plain=True)
    read = responses(pd.DataFrame([words, alone]), answer_format="plain")
    assert read.parsed.tolist() == read.correct.tolist() == [False, True] and read.span.tolist() == [(0, 1), (2, 3)]
    assert responses(pd.DataFrame([words, alone])).correct.all()
    assert responses(pd.DataFrame([words, alone]), answer_format="plain", missing="drop").example_id.tolist() == ["b"]


def test_coverage():
    rows = [
        row("a"),
        none(example_id="b", finish_reason="length"),
        row("c", split="calibration"),
        row("e", dataset="x"),
    ]
    same = {"relative": 0.0, "pal": 0.0, "exact": 0.0, "integer": 0.0}
    assert answer_coverage(pd.DataFrame(rows)).to_dict("records") == [
        {"model": "m", "dataset": "d", "rows": 2, "unparsed": 0.5, "cut": 0.5, "unclosed": 0.0} | same,
        {"model": "m", "dataset": "x", "rows": 1, "unparsed": 0.0, "cut": 0.0, "unclosed": 0.0} | same,
    ]
    endless = [none(example_id="f", thinking_end=4, eos=0), none(example_id="g", thinking_end=3),
               row("h", thinking_end=1)]  # fmt: skip
    assert answer_coverage(pd.DataFrame(endless)).unclosed.tolist() == [2 / 3]


def test_coverage_says_what_other_graders_would_grade_otherwise():
    rows = [row("a", answer="6277880", reference="6277881"), row("b", answer="3", reference="3.3"), row("c")]
    (shares,) = answer_coverage(pd.DataFrame(rows)).to_dict("records")
    assert {name: shares[name] for name in ("relative", "pal", "exact", "integer")} == {
        "relative": 1 / 3,
        "pal": 1 / 3,
        "exact": 1 / 3,
        "integer": 1 / 3,
    }
    (shares,) = answer_coverage(pd.DataFrame(rows), Reading(grader="exact")).to_dict("records")
    assert "exact" not in shares and shares["numeric"] == 1 / 3 and shares["relative"] == 2 / 3 and shares["pal"] == 0


# ---- running mean, answer tokens


def test_running_mean_by_hand():
    # means .5 at 1/2 and .65 at 1; flat before 1/2, straight in between
    assert running_mean(LOG([0.5, 0.8]), points=5) == pytest.approx([0.5, 0.5, 0.5, 0.575, 0.65])


@given(logprobs)
def test_running_mean_ends_at_seq_avg(x):
    curve = running_mean(x, points=11)
    assert curve[-1] == pytest.approx(estimators.seq_avg(x), abs=1e-12)
    assert curve[0] == pytest.approx(np.exp(x[0]))
    assert ((curve >= 0) & (curve <= 1 + 1e-12)).all()


def test_answer_tokens():
    rows = [row("a", span=(1, 3)), none(example_id="b"), row("c", split="calibration")]
    tokens = answer_token_logprobs(responses(pd.DataFrame(rows), missing="zero"))
    assert tokens.example_id.to_list() == ["a", "a"] and tokens.correct.all()
    assert np.exp(tokens.logprob).to_list() == pytest.approx([0.8, 0.9], abs=1e-6)
