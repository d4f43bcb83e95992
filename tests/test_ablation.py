"""The ablations: boxed answers, arms, summaries, and what a pass costs."""

import pandas as pd
import pytest

from lib import params, store
from lib.analysis import ablation_statistics
from lib.generate import mc_dropout
from lib.params import Dropout
from lib.paths import SHIPPED
from lib.score import ablation
from lib.tasks import answers

DEMO = params.load_profile("demo")


@pytest.mark.parametrize("text, number", [
    (r"so \boxed{42}", "42"),
    (r"\boxed{1} then \boxed{ 1,234 }.", "1234"),
    (r"$\boxed{\$18}$", "18"),
    (r"\boxed{\text{18}}", "18"),
    (r"\boxed {-3.50}", "-3.5"),
    (r"\boxed{x}", None),
    (r"\boxed{}", None),
    (r"boxed{3}", None),
    ("#### 7", None),
])  # fmt: skip
def test_boxed(text, number):
    assert answers.find_boxed_answer(text) == number


def responses(**rows):
    frame = pd.DataFrame(
        {"answer": rows["answer"], "boxed": [answers.find_boxed_answer(text) for text in rows["text"]]}
    )
    fixed = {"model": "m", "dataset": "d", "split": "evaluation", "finish_reason": "stop", "reference": "7"}
    return frame.assign(example_id=[f"e{i}" for i in range(len(frame))], **fixed)


@pytest.mark.parametrize("ours", ["one", "few", "none"])
def test_a_run_asks_again_in_the_two_ways_that_it_did_not_use(ours):
    assert set(ablation.other_demonstrations(ours)) == {"one", "few", "none"} - {ours}


def test_mcnemars_exact_test_by_hand():
    """Right with the example alone: one question; without it alone: four. 2 (1 + 5) / 2^5."""
    right, wrong = ["7", "8", "8", "8", "8", "7"], ["8", "7", "7", "7", "7", "7"]
    ours, other = (responses(answer=answer, text=[""] * 6) for answer in (right, wrong))
    frame = ablation.combine_arms(ours, "one", {"none": other})
    found = ablation_statistics.compare_demonstrations(frame).set_index("outcome").loc["accuracy"]
    assert found[["rows", "with", "without"]].tolist() == [6, 1, 4] and found.p == pytest.approx(12 / 32)


def test_summary_by_hand():
    ours = responses(answer=["7", None, None, "8"], text=["#### 7", r"\boxed{7}", r"\boxed{6}", r"#### 8 \boxed{7}"])
    other = responses(answer=["7", "7", None, "7"], text=["#### 7"] * 4)
    found = ablation_statistics.summarize_ablation(ablation.combine_arms(ours, "one", {"none": other})).set_index(
        "demonstration"
    )
    assert found.profile.to_dict() == {"one": True, "none": False} and (found["rows"] == 4).all()
    assert found.loc["one", ["accuracy", "extracted", "accuracy_boxed"]].tolist() == [0.25, 0.5, 0.5]
    assert found.loc["none", ["accuracy", "extracted"]].tolist() == [0.75, 0.75]


def test_a_model_that_can_be_asked_in_one_way_has_no_demonstration_to_compare():
    ours = responses(answer=["7", None], text=["#### 7", ""])
    assert ablation_statistics.summarize_ablation(ablation.combine_arms(ours, "none", {})).demonstration.tolist() == [
        "none"
    ]
    assert ablation_statistics.compare_demonstrations(ablation.combine_arms(ours, "none", {"few": ours})).empty
    assert len(ablation_statistics.compare_demonstrations(ablation.combine_arms(ours, "none", {"one": ours}))) == 2


def test_the_same_evaluation_questions_are_asked_again():
    frame = store.read_frame(store.find_frame("shipped", "generations", "tiny-llama__demo-easy"))
    rows = ablation.choose_ablation_rows(frame, 5)
    assert len(rows) == 5 and set(rows.split) == {"evaluation"}
    assert [e.example_id for e in ablation.examples_of_rows(rows)] == rows.example_id.tolist()
    assert [e.reference for e in ablation.examples_of_rows(rows)] == rows.reference.tolist()


def test_operations_are_counted_and_grow_with_the_passes(lm):
    frame = store.read_frame(store.find_frame("shipped", "generations", f"{lm.name}__demo-easy")).head(1)
    found = mc_dropout.count_operations(lm, frame, Dropout(), 0.1, passes=(1, 3))
    assert found["3"] == 3 * found["1"] > 1e6
    costs = ablation_statistics.pass_costs([{"pair": ["m", "d"], "operations": found}])
    assert costs.passes.tolist() == [1, 3] and costs.operations.tolist() == list(found.values())


@pytest.mark.parametrize("pair", store.pair_names(DEMO.models, DEMO.datasets))
def test_the_shipped_ablations(pair):
    path = SHIPPED / "ablation" / f"{pair}.parquet"
    frame = store.read_frame(path)
    assert frame.groupby(["demonstration", "profile"]).size().to_dict() == {
        ("none", True): DEMO.ablation_limit,
        ("one", False): DEMO.ablation_limit,
        ("few", False): DEMO.ablation_limit,
    }
    generated = store.read_frame(SHIPPED / "generations" / f"{pair}.parquet").set_index("example_id").answer
    ours = frame[frame.profile]
    assert ours.answer.tolist() == generated[ours.example_id].tolist()
    assert set(store.read_manifest(path)["operations"]) == {"1", "2", "4", "8"}
