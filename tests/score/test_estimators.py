"""Estimators by property; the choices of a reading on responses of known tokens; the ablation of
the prompt."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from synthetic import keyed, passed, responses, single_pass

from lib.analysis import prompt_ablation
from lib.generate import prompt_arms
from lib.score import estimators
from lib.score.confidence import confidence_frame
from lib.store import KEYS

LOG = np.log
logprobs = st.lists(st.floats(-50, 0), min_size=1, max_size=60)


# ---- functions


@given(logprobs)
@example([0.0] * 9)  # 9 * (1 / 9) is more than 1
def test_in_unit_interval_and_joint_at_most_average(x):
    """As the means that they are: of all tokens, and of the window of sixteen with the lowest."""
    assert 0 <= estimators.seq_joint(x) <= estimators.seq_avg(x) + 1e-12 <= 1 + 1e-12
    least = np.lib.stride_tricks.sliding_window_view(np.exp(x), min(len(x), 16)).mean(axis=1).min()
    assert (
        estimators.min_window_mean(x) == pytest.approx(least, abs=1e-12)
        and estimators.min_window_mean(x) <= 1
    )


# ---- reading


def row(example_id="a", probabilities=(0.5, 0.8, 0.9, 0.4), answer="7", span=(2, 3), **other):
    """A response of four tokens, the last of them the end token, whose third holds the (right)
    answer."""
    keys = {
        "model": "m",
        "dataset": "d",
        "split": "evaluation",
        "example_id": example_id,
        "reference": "7",
    }
    places = {
        "answer_start": span[0],
        "answer_end": span[1],
        "last_number_start": -1,
        "last_number_end": -1,
    }
    logprobs = {
        "token_logprobs": LOG(probabilities).astype(np.float32),
        "token_logprobs_sampling": LOG(np.sqrt(probabilities)).astype(np.float32),
    }
    return (
        keys
        | places
        | logprobs
        | {"answer": answer, "thinking_end": 0, "eos": 1, "finish_reason": "stop"}
        | other
    )


def none(example_id="a", **other):
    """A response without an answer."""
    return row(example_id, answer=None, span=(-1, -1), **other)


def table(*rows):
    return pd.DataFrame(rows)


@pytest.mark.parametrize("read, choices, seq_avg, ans_avg", [
    (row(), {}, 2.2 / 3, 0.9),  # without the end token
    (row(eos=0), {}, 0.65, 0.9),
    (row(), {"logprobs_from": "sampling"}, None, 0.9**0.5),
    (row(thinking_end=1), {}, 2.2 / 3, 0.9),
    (row(thinking_end=1), {"include_thinking": False}, 0.85, 0.9),
    # never closed: nothing is left
    (none(thinking_end=4, eos=0), {"include_thinking": False}, 0.65, 0.4),
    (none(probabilities=(0.3,)), {}, 0.3, 0.3),  # nothing but the end token
    (none(last_number_start=0, last_number_end=2), {}, None, 0.65),
    (none(), {}, None, 0.9),  # last token before the end token
    (none(), {"missing": "zero"}, 0.0, 0.0),
])  # fmt: skip
def test_which_tokens_a_choice_reads(read, choices, seq_avg, ans_avg):
    values = single_pass(table(read), **choices).set_index("estimator").confidence
    assert values["ans_avg"] == pytest.approx(ans_avg, abs=1e-6)
    assert seq_avg is None or values["seq_avg"] == pytest.approx(seq_avg, abs=1e-6)


def test_a_response_without_an_answer_is_wrong_or_left_out():
    some = table(none(), row("b"), none("c"), row("d", answer="8", split="calibration"))
    frame = single_pass(some.astype({"answer": "str"}))  # as parquet gives it
    assert list(frame) == [*KEYS, "estimator", "confidence", "correct"] and len(frame) == 4 * 4
    assert frame.groupby("example_id").correct.all().to_dict() == {
        "a": False,
        "b": True,
        "c": False,
        "d": False,
    }
    left = responses(some, missing="drop")
    assert (
        left.index.tolist() == [0, 1]
        and left.example_id.tolist() == ["b", "d"]
        and "index" not in left
    )
    assert single_pass(table(none()), missing="drop").empty


def test_without_an_answer_zero_is_the_confidence_of_every_estimator():
    """Of P(True) and c_BALD, too, and of all that is calibrated; other rows keep theirs."""
    some = table(none(), row("b"))
    read = responses(some, missing="zero")
    rows = some[KEYS].assign(
        spellings=[["A", "B"]] * 2, standard_logits=[[1.0, 0.0]] * 2, standard_logz=2.0
    )
    rows = rows.assign(in_situ_logits=rows.standard_logits, in_situ_logz=2.0)
    passes = pd.concat([passed(example_id=[name]) for name in some.example_id]).drop(
        columns="correct"
    )
    keyed_as_rows = (
        passes.drop(columns=KEYS).reset_index(drop=True).join(some[KEYS].reset_index(drop=True))
    )
    scores = confidence_frame(read, rows, keyed_as_rows)
    unread = scores[scores.example_id == "a"].set_index("estimator")
    assert set(unread.index) == {
        "seq_joint",
        "seq_avg",
        "ans_joint",
        "ans_avg",
        "p_true",
        "p_true_insitu",
        "c_bald",
    }
    assert (unread.confidence == 0).all() and (
        scores[scores.example_id == "b"].confidence > 0.1
    ).all()
    margins = unread.margin.dropna()
    assert len(margins) == 2 and np.isfinite(margins).all() and (margins < -36).all(), (
        "Platt scaling takes them"
    )


# ---- the questions that are asked again after other prompts


def test_arms_by_hand():
    said = (
        [("7", 0.9), (None, 0.2), (None, 0.2), ("8", 0.9)],
        [("7", 1.0), (None, 1.0), ("7", 1.0), ("7", 1.0)],
    )
    ours, other = (
        table(*(row(probabilities=[0.1, 0.1, p, 0.1], answer=one) for one, p in arm))
        for arm in said
    )
    both = prompt_ablation.combine_arms(ours, "one", {"none": other})
    found = prompt_ablation.summarize_arms(both).set_index("demonstration")
    assert found.profile.to_dict() == {"one": True, "none": False} and (found["rows"] == 4).all()
    shares = found[["parsed", "accuracy", "ece"]].to_numpy().ravel()
    assert shares == pytest.approx([0.5, 0.25, (2 * 0.4 + 2 * 0.2) / 4, 0.75, 0.75, 0.25])
    assert np.isnan(prompt_ablation.summarize_arms(both.assign(ans_avg=np.nan)).ece).all()
    assert set(prompt_ablation.summarize_arms(both[:0])) == set(found.reset_index())


def test_every_model_is_asked_the_same_evaluation_questions_again():
    one = keyed(30).assign(split=["calibration", "evaluation", "evaluation"] * 10)
    other = one.assign(model="n").sample(frac=1, random_state=0)
    first, second = (
        prompt_arms.choose_ablation_rows(frame, 8).example_id.tolist() for frame in (one, other)
    )
    assert (
        set(first) == set(second) <= set(one.example_id[one.split == "evaluation"])
        and len(set(first)) == 8
    )
    assert second == [name for name in other.example_id if name in second], "in their own order"
