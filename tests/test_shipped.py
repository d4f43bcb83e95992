"""The shipped demo signals: whole, small, and showing the phenomena that demo/README.md states."""

import numpy as np
import pytest

from lib import SHIPPED, estimators, metrics, params, store

DEMO = params.load_profile("demo")
ACCURACY = {"demo-easy": (0.80, 0.95), "demo-medium": (0.55, 0.85), "demo-hard": (0.15, 0.50)}


@pytest.fixture(scope="module")
def frame():
    return store.gather("shipped", "generations", DEMO.models, DEMO.datasets)[0]


@pytest.fixture(scope="module")
def results(frame):
    found = metrics.evaluate(estimators.single_pass(frame), DEMO.bins, DEMO.closed)
    return found.set_index(["model", "dataset", "estimator", "metric"]).value.astype(float)


def test_at_most_ten_megabytes():
    assert sum(p.stat().st_size for p in SHIPPED.rglob("*") if p.is_file()) <= 10e6


def test_accuracy_lies_in_its_band_and_falls_with_difficulty(results):
    for model in DEMO.models:
        reached = [results[model, dataset, "", "acc"] for dataset in DEMO.datasets]
        assert reached == sorted(reached, reverse=True)
        for value, (low, high) in zip(reached, ACCURACY.values(), strict=True):
            assert low <= value <= high


def test_responses_can_be_parsed(frame):
    assert (estimators.coverage(frame).unparsed <= 0.05).all()


def test_answer_tokens_saturate_even_on_wrong_answers(frame):
    tokens = estimators.answer_tokens(frame[frame.dataset == "demo-medium"])
    assert (np.exp(tokens[~tokens.correct].logprob).groupby(tokens.model).mean() > 0.95).all()


def test_the_sequence_tells_right_from_wrong_where_the_answer_does_not(results):
    for model in DEMO.models:
        assert results[model, "demo-medium", "seq_avg", "auroc"] >= 0.70
        assert results[model, "demo-medium", "seq_avg", "auroc"] > results[model, "demo-medium", "ans_avg", "auroc"]
    pairs = [(m, d) for m in DEMO.models for d in DEMO.datasets]
    assert sum(results[*p, "seq_avg", "ece"] < results[*p, "ans_avg", "ece"] for p in pairs) > len(pairs) / 2


def test_the_shipped_confidence_is_that_of_the_shipped_generations(frame):
    kept = store.read(store.locate("shipped", "confidence", "single_pass"))
    again = estimators.single_pass(frame)
    assert kept.drop(columns="confidence").equals(again.drop(columns="confidence"))
    np.testing.assert_allclose(kept.confidence, again.confidence, atol=1e-12)
