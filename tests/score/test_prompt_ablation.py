"""The ablation of the demonstration: boxed answers, arms, summaries, and what a pass costs."""

import pandas as pd
import pytest
from synthetic import keyed

from lib import store
from lib.analysis import ablation_statistics
from lib.score import ablation
from lib.tasks import answers


@pytest.mark.parametrize("text, number", [
    (r"so \boxed{42}", "42"),
    (r"\boxed{1} then \boxed{ 1,234 }.", "1234"),
    (r"$\boxed{\text{\$18}}$", "18"),
    (r"\boxed {-3.50}", "-3.5"),
    (r"\boxed{}", None),
])  # fmt: skip
def test_boxed(text, number):
    assert answers.find_boxed_answer(text) == number


def arm(name, answer, boxed=None, profile=False):
    """Answers to questions e0, e1, ... whose answer is 7."""
    n = len(answer)
    frame = keyed(n, answer=answer, boxed=boxed or [None] * n, reference=["7"] * n)
    return frame.assign(finish_reason="stop", demonstration=name, profile=profile)


def arms(**right):
    """Questions answered rightly (1) or not, by arm."""
    return pd.concat([arm(name, ["7" if one else "8" for one in values]) for name, values in right.items()])


@pytest.mark.parametrize("one, none, with_one, without, p", [
    ([1, 0, 0, 0, 0, 1], [0, 1, 1, 1, 1, 1], 1, 4, 2 * (1 + 5) / 2**5),
    ([1, 1, 1], [0, 0, 0], 3, 0, 2 / 2**3),
])  # fmt: skip
def test_mcnemars_exact_test_by_hand(one, none, with_one, without, p):
    found = ablation_statistics.compare_demonstrations(arms(one=one, none=none, few=[1] * len(one)))
    found = found.set_index("outcome")
    expected = [len(one), with_one, without, p]
    assert found.loc["accuracy", ["rows", "with", "without", "p"]].tolist() == pytest.approx(expected)
    assert found.p["extracted"] == 1, "no question turned is no evidence"


def test_the_question_that_another_beginning_turns():
    find = ablation_statistics.find_changed_answer
    assert find(arms(one=[1, 1, 0], few=[1, 1, 0], none=[1, 0, 0]), "one") == ("e1", "none")
    assert find(arms(one=[1, 1], few=[1, 1], none=[1, 1]), "few") == ("e0", "one")
    assert find(arms(one=[1, 1]), "one") == ("e0", "one")
    assert ablation_statistics.grade_by_arm(arms(one=[1, 1], none=[1, 0])).loc["e1"].tolist() == [False, True]
    kept = {name: pd.DataFrame({"example_id": ["e1"], "text": [name]}) for name in ("one", "none")}
    assert ablation_statistics.select_responses("e1", kept, ["none"]) == {"none": "none"}


def test_summary_by_hand():
    ours, other = arm("one", ["7", None, None, "8"], [None, "7", "6", "7"]), arm("none", ["7", "7", None, "7"])
    both = ablation.combine_arms(ours, "one", {"none": other})
    found = ablation_statistics.summarize_ablation(both).set_index("demonstration")
    assert found.profile.to_dict() == {"one": True, "none": False} and (found["rows"] == 4).all()
    assert found.loc["one", ["accuracy", "extracted", "accuracy_boxed"]].tolist() == [0.25, 0.5, 0.5]
    assert found.loc["none", ["accuracy", "extracted"]].tolist() == [0.75, 0.75]


def test_a_model_that_can_be_asked_in_one_way_has_no_demonstration_to_compare():
    for names, count in ((["none"], 0), (["none", "few"], 0), (["none", "one"], 2)):
        frame = arms(**dict.fromkeys(names, [1, 0]))
        assert ablation_statistics.summarize_ablation(frame).demonstration.tolist() == names
        assert len(ablation_statistics.compare_demonstrations(frame)) == count


def test_the_same_evaluation_questions_are_asked_again():
    frame = store.read_frame(store.find_frame("shipped", "generations", "tiny-llama__demo-easy"))
    rows = ablation.choose_ablation_rows(frame, 5)
    assert len(rows) == 5 and set(rows.split) == {"evaluation"}
    asked = [(example.example_id, example.reference) for example in ablation.examples_of_rows(rows)]
    assert asked == list(zip(rows.example_id, rows.reference, strict=True))
