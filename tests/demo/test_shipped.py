"""The shipped demo signals: whole, small, and showing the phenomena that demo/README.md states."""

import pytest

from lib import params, store
from lib.analysis import dropout_statistics, verification_statistics
from lib.generate import p_true
from lib.params import Reading
from lib.score import confidence, interpretation, metrics
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


# ---- several passes


@pytest.fixture(scope="module")
def verified():
    return store.load_frames("shipped", "verification", DEMO.models, DEMO.datasets)[0]


@pytest.fixture(scope="module")
def passes():
    return store.load_frames("shipped", "dropout", DEMO.models, DEMO.datasets)[0]


def test_the_models_answer_a_or_b_and_know_something(responses, verified):
    mass = confidence.option_log_odds(verified)[["standard_mass", "in_situ_mass"]]
    assert (mass > 0.9).all(axis=None)
    scores = confidence_frame(responses, verified, names=["p_true", "p_true_insitu"])
    found = metrics.evaluate(scores, DEMO.bins, DEMO.closed)
    medium = found[(found.dataset == "demo-medium") & (found.metric == "auroc")]
    assert len(medium) == 4 and (medium.value >= 0.60).all()


def test_in_situ_was_taken_live_and_saves_tokens_and_time(verified):
    assert verified.live.all() and (verification_statistics.token_reduction(verified).value >= 65).all()
    seconds = verified.groupby(["model", "dataset"])[["in_situ_seconds", "standard_seconds"]].sum()
    assert (seconds.in_situ_seconds <= seconds.standard_seconds / 2).all()
    for pair in store.pair_names(DEMO.models, DEMO.datasets):
        sha = store.read_manifest(store.find_frame("shipped", "generations", pair))["sha256"]
        assert len(p_true.read_in_situ("shipped", pair, sha))


def test_every_row_has_its_passes_at_the_selected_rate(responses, passes):
    chosen = passes[passes.selected]
    assert len(chosen) == len(responses) and not chosen.duplicated(store.KEYS).any()
    assert (passes[passes.tuning].groupby(["model", "dataset", "rate"]).size() == DEMO.n_tuning_examples).all()
    assert (chosen.predictive.map(len) == DEMO.dropout_passes).all()
    grid = confidence.evaluate_rate_grid(responses, passes, Reading.of(DEMO.model_dump()))
    for pair, part in grid.groupby(["model", "dataset"]):
        rates = chosen[(chosen.model == pair[0]) & (chosen.dataset == pair[1])].rate.unique()
        assert rates.tolist() == [confidence.select_dropout_rate(part)]


def test_passes_disagree_more_the_more_there_are(passes):
    for _, part in passes[passes.selected].groupby(["model", "dataset"]):
        mean = dropout_statistics.entropy_curves(part).pivot(index="passes", columns="term", values="mean")
        assert (mean.predictive.diff().dropna() > -0.01).all()
        assert mean.predictive.iloc[-1] > 1.8 * mean.predictive.iloc[0]
        assert mean.conditional.iloc[-1] < mean.predictive.iloc[-1] / 2
