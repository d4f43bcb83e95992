"""How stored responses are read: which tokens count under each choice, and what was not read."""

import numpy as np
import pandas as pd
import pytest
from responses_by_hand import respond, respond_without_answer
from synthetic import keyed, passed, responses, single_pass

from lib.score.confidence import confidence_frame
from lib.score.interpretation import answer_coverage, describe_unread_lines, find_unread_lines
from lib.store import KEYS

# ---- choices: the probabilities are .5, .8, .9 (of the answer) and .4 (of the end token)


def read(response, **choices):
    """Return Seq Avg and Ans Avg of a response."""
    values = single_pass(pd.DataFrame([response]), **choices).set_index("estimator").confidence
    return values["seq_avg"], values["ans_avg"]


def test_the_end_token_is_no_part_of_the_sequence():
    of_three = (0.5 + 0.8 + 0.9) / 3
    of_four = (0.5 + 0.8 + 0.9 + 0.4) / 4
    assert read(respond(eos=1)) == pytest.approx((of_three, 0.9), abs=1e-6)
    assert read(respond(eos=0)) == pytest.approx((of_four, 0.9), abs=1e-6)


def test_probabilities_of_sampling_are_read_if_chosen():
    """They are the roots of the others here."""
    _, ans_avg = read(respond(), logprobs_from="sampling")
    assert ans_avg == pytest.approx(0.9**0.5, abs=1e-6)


def test_thinking_is_a_part_of_the_sequence_unless_it_is_left_out():
    thought = respond(thinking_end=1)
    assert read(thought) == pytest.approx((2.2 / 3, 0.9), abs=1e-6)
    assert read(thought, include_thinking=False) == pytest.approx((0.85, 0.9), abs=1e-6)


def test_thinking_that_never_ends_counts_as_nothing_else_is_left():
    endless = respond_without_answer(thinking_end=4, eos=0)
    assert read(endless, include_thinking=False) == pytest.approx((0.65, 0.4), abs=1e-6)


def test_the_end_token_counts_if_it_is_alone():
    alone = respond_without_answer(probabilities=(0.3,))
    assert read(alone) == pytest.approx((0.3, 0.3), abs=1e-6)


def test_without_an_answer_the_last_number_counts():
    _, ans_avg = read(respond_without_answer(last_number_start=0, last_number_end=2))
    assert ans_avg == pytest.approx((0.5 + 0.8) / 2, abs=1e-6)


def test_without_a_number_the_last_token_before_the_end_counts():
    _, ans_avg = read(respond_without_answer())
    assert ans_avg == pytest.approx(0.9, abs=1e-6)


def test_without_an_answer_both_are_zero_if_chosen():
    assert read(respond_without_answer(), missing="zero") == (0, 0)


# ---- responses without an answer


def test_a_response_without_an_answer_is_wrong():
    rows = [
        respond_without_answer("a"),
        respond("b"),
        respond_without_answer("c"),
        respond("d", answer="8", split="calibration"),
    ]
    frame = single_pass(pd.DataFrame(rows).astype({"answer": "str"}))  # as parquet gives it
    assert list(frame) == [*KEYS, "estimator", "confidence", "correct"]
    assert len(frame) == 4 * 4
    correct = frame.groupby("example_id").correct.all()
    assert correct.to_dict() == {"a": False, "b": True, "c": False, "d": False}


def test_a_response_without_an_answer_is_left_out_if_chosen():
    rows = pd.DataFrame([respond_without_answer("a"), respond("b"), respond("c")])
    left = responses(rows, missing="drop")
    assert left.example_id.tolist() == ["b", "c"]
    assert left.index.tolist() == [0, 1]
    assert "index" not in left
    assert single_pass(rows[:1], missing="drop").empty


def test_without_an_answer_zero_is_the_confidence_of_every_estimator():
    """Of P(True) and c_BALD, too, and of all that is calibrated; other rows keep theirs."""
    generations = pd.DataFrame([respond_without_answer("a"), respond("b")])
    verification = generations[KEYS].assign(
        spellings=[["A", "B"]] * 2,
        standard_logits=[[1.0, 0.0]] * 2,
        standard_logz=2.0,
        in_situ_logits=[[1.0, 0.0]] * 2,
        in_situ_logz=2.0,
    )
    dropout = pd.concat([passed(), passed()], ignore_index=True).drop(columns="correct")
    dropout[KEYS] = generations[KEYS]
    scores = confidence_frame(responses(generations, missing="zero"), verification, dropout)

    unread = scores[scores.example_id == "a"].set_index("estimator")
    single = ["seq_joint", "seq_avg", "ans_joint", "ans_avg"]
    multi = ["p_true", "p_true_insitu", "c_bald"]
    assert set(unread.index) == {*single, *multi}
    assert (unread.confidence == 0).all()
    assert (scores[scores.example_id == "b"].confidence > 0.1).all()
    margins = unread.margin.dropna()
    assert len(margins) == 2
    assert np.isfinite(margins).all(), "Platt scaling takes them"
    assert (margins < -36).all()


# ---- what was not read


def test_coverage_counts_evaluation_rows_without_an_answer_or_an_end():
    """Of dataset e, three responses of four tokens have no answer; of two the thinking never
    ended, where it ends after all tokens but the end token."""
    parts = []
    for dataset, answer, finish_reason, eos, thinking_end in [
        ("d", "7", "stop", 1, 0),
        ("d", None, "length", 1, 0),
        ("e", None, "stop", 0, 5),
        ("e", None, "stop", 1, 4),
        ("e", "7.0005", "stop", 1, 1),
        ("e", None, "stop", 1, 3),
    ]:
        row = respond if answer else respond_without_answer
        ending = {"finish_reason": finish_reason, "eos": eos, "thinking_end": thinking_end}
        parts.append(row(dataset=dataset, **ending) | {"answer": answer})
    calibration = respond_without_answer(dataset="d", split="calibration", finish_reason="length")
    coverage = answer_coverage(pd.DataFrame([*parts, calibration]))
    assert coverage.dataset.tolist() == ["d", "e"]
    assert coverage["rows"].tolist() == [2, 4]
    assert coverage.unparsed.tolist() == [0.5, 0.75]
    assert coverage.cut.tolist() == [0.5, 0]
    assert coverage.unclosed.tolist() == [0, 0.5]


def test_lines_that_were_not_read_are_counted_and_three_are_shown():
    """A thought is not read, nor is a row without a text."""
    texts = [
        "#### 7",
        "#### 2*9",
        "none",
        "#### <think> 2*9 </think> 7",
        "#### 5 or 6\n",
        "#### Step 2",
        "#### 8\n#### N",
        None,
    ]
    rows = keyed(8, text=texts, thinking_end=[0, 0, 0, 3, 0, 0, 0, 0])
    assert describe_unread_lines(find_unread_lines(rows)) == (
        "In 4 of 7 responses, what follows `####` is not read as a number, "
        "as in '2*9', '5 or 6', 'Step 2'."
    )


def test_if_every_line_was_read_none_is_shown():
    rows = keyed(2, text=["#### 7", "none"], thinking_end=[0, 0])
    assert describe_unread_lines(find_unread_lines(rows)) == (
        "In 0 of 2 responses, what follows `####` is not read as a number."
    )


def test_without_texts_nothing_is_said_of_lines():
    lines = find_unread_lines(keyed(1, text=[None], thinking_end=[0]))
    assert describe_unread_lines(lines) == ""
