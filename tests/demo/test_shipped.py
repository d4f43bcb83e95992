"""The shipped demo signals: whole, small, and showing the phenomena that demo/README.md states."""

import pytest

from lib import params, store
from lib.params import Reading
from lib.score import interpretation, metrics
from lib.score.confidence import confidence_frame

DEMO = params.load_profile("demo")
ACCURACY = {"demo-easy": (0.80, 0.95), "demo-medium": (0.55, 0.85), "demo-hard": (0.15, 0.50)}


@pytest.fixture(scope="module")
def frame():
    return store.load_frames("shipped", "generations", DEMO.models, DEMO.datasets)[0]


@pytest.fixture(scope="module")
def responses(frame):
    return interpretation.interpret_responses(frame, Reading.of(DEMO.model_dump()))


@pytest.fixture(scope="module")
def results(responses):
    found = metrics.evaluate(confidence_frame(responses), DEMO.bins, DEMO.closed)
    return found.set_index(["model", "dataset", "estimator", "metric"]).value.astype(float)


def test_accuracy_lies_in_its_band_and_falls_with_difficulty(results):
    for model in DEMO.models:
        reached = [results[model, dataset, "", "acc"] for dataset in DEMO.datasets]
        assert reached == sorted(reached, reverse=True)
        for value, (low, high) in zip(reached, ACCURACY.values(), strict=True):
            assert low <= value <= high


def test_answers_are_overconfident_and_can_be_doubted(responses, results):
    """The bands of demo/README.md: sure of wrong answers, not certain, and less sure of these than of right ones."""
    scores = confidence_frame(responses, names=["ans_avg", "ans_joint"])
    keys = ["model", "dataset"]
    wrong = scores[~scores.correct & (scores.split == "evaluation")].set_index([*keys, "example_id", "estimator"])
    means = wrong.confidence.unstack("estimator").groupby(keys).mean()
    assert len(means) == 6 and means.ans_avg.between(0.90, 0.99).all()
    assert (means.ans_avg - means.ans_joint >= 0.005).all()
    told = [results[model, dataset, "ans_avg", "auroc"] for model in DEMO.models for dataset in DEMO.datasets]
    assert sum(0.60 <= value <= 0.85 for value in told) >= 4 and min(told) > 0.55


def test_the_sequence_tells_right_from_wrong_better_than_the_answer(results):
    for model in DEMO.models:
        assert results[model, "demo-medium", "seq_avg", "auroc"] >= 0.70
        assert results[model, "demo-medium", "seq_avg", "auroc"] > results[model, "demo-medium", "ans_avg", "auroc"]
    pairs = [(m, d) for m in DEMO.models for d in DEMO.datasets]
    assert sum(results[*p, "seq_avg", "ece"] < results[*p, "ans_avg", "ece"] for p in pairs) > len(pairs) / 2
