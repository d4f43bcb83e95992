"""The shipped demo signals show the phenomena that demo/README.md states."""

import pytest

from lib import params
from lib.score.confidence import confidence_frame

DEMO = params.load_profile("demo")
ACCURACY = {"demo-easy": (0.80, 0.95), "demo-medium": (0.55, 0.85), "demo-hard": (0.15, 0.50)}


@pytest.fixture(scope="module")
def results(demo):
    """A row per pair, a column per estimator and metric."""
    frame = demo.frames["result_estimation"]
    return frame.pivot(index=["model", "dataset"], columns=["estimator", "metric"], values="value").astype(float)


def test_accuracy_lies_in_its_band_and_falls_with_difficulty(results):
    accuracy = results["", "acc"].unstack()
    for dataset, (low, high) in ACCURACY.items():
        assert accuracy[dataset].between(low, high).all()
    assert (accuracy[DEMO.datasets].diff(axis=1).iloc[:, 1:] < 0).all(axis=None)


def test_answers_are_overconfident_and_can_be_doubted(shipped, results):
    """Sure of wrong answers, not certain, and less sure of these than of right ones."""
    scores = confidence_frame(shipped.responses, names=["ans_avg", "ans_joint"])
    wrong = scores[~scores.correct & (scores.split == "evaluation")]
    means = wrong.groupby(["model", "dataset", "estimator"]).confidence.mean().unstack()
    assert len(means) == 6 and means.ans_avg.between(0.90, 0.99).all()
    assert (means.ans_avg - means.ans_joint >= 0.005).all()
    told = results["ans_avg", "auroc"]
    assert told.between(0.60, 0.85).sum() >= 4 and told.min() > 0.55


def test_the_sequence_tells_right_from_wrong_better_than_the_answer(results):
    medium = results.xs("demo-medium", level="dataset")
    assert (medium["seq_avg", "auroc"] >= 0.70).all()
    assert (medium["seq_avg", "auroc"] > medium["ans_avg", "auroc"]).all()
    assert (results["seq_avg", "ece"] < results["ans_avg", "ece"]).mean() > 0.5
