"""What the claims rest on beyond errors: positions, lengths, passes, calibration rows, the demonstration."""

import numpy as np
import pandas as pd
import pytest

from lib import params, store
from lib.analysis import (
    ablation_statistics,
    calibration_statistics,
    dropout_statistics,
    token_statistics,
    verification_statistics,
)
from lib.analysis.run_signals import SIGNAL_KINDS
from lib.score.confidence import confidence_frame
from lib.score.interpretation import interpret_responses
from lib.score.metrics import evaluate

READING = params.Reading()


@pytest.fixture(scope="module")
def stored():
    return [store.load_frames("shipped", kind, ["tiny-qwen"], ["demo-hard"])[0] for kind in SIGNAL_KINDS]


def rows(logprobs, correct):
    """Responses of one pair, as `interpret_responses` returns them."""
    frame = pd.DataFrame({"model": "m", "dataset": "d", "split": "evaluation", "correct": correct,
                          "example_id": [str(i) for i in range(len(correct))]})  # fmt: skip
    response = pd.Series([np.log(np.array(values)) for values in logprobs], dtype=object)
    return frame.assign(response=response, answer=response.map(lambda values: values[-1:]))


def test_a_position_is_a_token_and_the_running_mean_ends_in_seq_avg():
    assert list(token_statistics.probabilities_at_positions(np.log([0.1, 0.2, 0.3]), 5)) == pytest.approx(
        [0.1, 0.1, 0.2, 0.3, 0.3]
    )
    told = rows([[0.5, 0.9, 0.9], [0.5, 0.9, 0.8], [0.5, 0.2, 0.1], [0.5, 0.2, 0.3]], [True, True, False, False])
    curves = token_statistics.position_curves(told, points=3)
    assert list(curves.single) == [0.5, 1, 1] and list(curves.running)[-1] == 1


def test_lengths_and_saturation():
    told = rows([[0.9], [0.9, 0.9], [0.9, 0.9, 0.8], [0.9, 0.9, 0.9, 0.8]], [True, False, True, False])
    facts = token_statistics.summarize_tokens(told).iloc[0]
    assert facts["product"] == -1 and abs(facts.joint) < 1 and facts.wrong == pytest.approx(np.sqrt(0.9 * 0.8))
    assert facts.smallest == pytest.approx((0.5 + 1 + 0 + 0.5) / 4)
    silent = token_statistics.summarize_tokens(told.assign(answer=None)).iloc[0]
    assert np.isnan(silent["median"]) and np.isnan(silent.wrong)


def test_an_answer_that_the_extraction_misses(stored):
    generations = stored[0].head(3).assign(split="evaluation", thinking_end=0, answer=None, reference="12")
    generations["last_number"] = ["12", "13", None]  # of texts without ####
    facts = token_statistics.count_missed_answers(generations, READING).iloc[0]
    assert (facts.rows, facts.unparsed, facts.lost) == (3, 3, 1)


def test_costs_of_verification(stored):
    generations, verification, _ = stored
    length = generations.token_ids.map(len)
    generations = generations.assign(prompt_tokens=np.random.default_rng(1).integers(40, 400, len(length)))
    generations["thinking_end"] = np.random.default_rng(2).integers(0, 60, len(length))
    again = generations.prompt_tokens + length - generations.thinking_end
    straight = verification.assign(standard_tokens=again + 30, in_situ_tokens=30)
    facts = verification_statistics.verification_costs(straight, generations).iloc[0]
    assert facts.r2 == pytest.approx(1), "question and answer together"
    straight = verification.assign(standard_tokens=2 * length + 30, in_situ_tokens=30)
    facts = verification_statistics.verification_costs(straight, generations).iloc[0]
    assert facts.r2 < 0.5 and facts.saving == pytest.approx(1), "what is saved is held against the response alone"
    noise = verification.assign(standard_tokens=np.random.default_rng(0).permutation(length) + 30, in_situ_tokens=30)
    assert verification_statistics.verification_costs(noise, generations).iloc[0].r2 < 0.1
    alike = generations.assign(token_ids=[[1, 2]] * len(generations), prompt_tokens=7, thinking_end=0)
    assert np.isnan(
        verification_statistics.verification_costs(noise, alike).iloc[0][["r2", "saving"]].astype(float)
    ).all()


@pytest.mark.filterwarnings("error")  # scipy's, for a constant
@pytest.mark.parametrize("one, other", [([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [1, 1, 1])])
def test_a_constant_has_no_rank_correlation(one, other):
    assert np.isnan(token_statistics.rank_correlation(one, other))
    assert token_statistics.rank_correlation([1, 2, 3], [1, 3, 5]) == pytest.approx(1)
    assert token_statistics.rank_correlation([1, 2], [5, 3]) == pytest.approx(-1), "two are enough"


def test_after_all_passes_c_bald_is_itself(stored):
    generations, _, dropout = stored
    responses = interpret_responses(generations, READING)
    scores = confidence_frame(responses, dropout=dropout[dropout.selected], names=["c_bald"])
    of_all = evaluate(scores, names=["ece"]).value.iloc[0]
    curve = dropout_statistics.by_passes(responses, dropout, READING).set_index("passes").ece
    assert len(curve) == 10 and curve[10] == pytest.approx(of_all)
    early = dropout_statistics.by_passes(responses, dropout, READING, counts=(5,)).set_index("passes").ece
    assert dict(early) == pytest.approx({5: curve[5], 10: curve[10]})
    one = dropout.assign(conditional=dropout.predictive)  # no disagreement: every confidence is 1
    flat = dropout_statistics.by_passes(responses, one, READING).ece
    assert flat.to_numpy() == pytest.approx(1 - evaluate(scores, names=["acc"]).value.iloc[0])


def test_how_alike_passes_are(stored):
    generations, _, dropout = stored
    kept = dropout_statistics.answered(dropout[dropout.selected], interpret_responses(generations, READING))
    entropies = np.array([0.2, 0.4, 0.2, 0.4])
    means = list((np.cumsum(entropies) / np.arange(1, 5))[:, None])
    same = kept.head(60).assign(split="evaluation", conditional=[means] * 60)
    same["predictive"] = [[x + 0.1 for x in means]] * 60
    facts = dropout_statistics.summary(same).iloc[0]
    assert facts.sharp == pytest.approx(0.1 / 0.3) and facts.share == pytest.approx(0.1 / 0.4)
    assert facts.largest == pytest.approx(0.1) and facts.top_p >= 0
    calm = dropout_statistics.summary(same.assign(top_changed=[[False]] * 60)).iloc[0]
    assert calm.unchanged == 60 and calm.auroc == 0.5, "one confidence for all tells nothing"


def test_a_row_without_answer_is_no_row_of_the_passes(stored):
    generations, _, dropout = stored
    generations = generations.assign(answer=generations.answer.where(generations.index % 50 != 7, None))
    unread = interpret_responses(generations, params.Reading(missing="zero"))
    gone = (
        dropout_statistics.answered(dropout, interpret_responses(generations, READING)),
        dropout_statistics.answered(dropout, unread),
    )
    missing = set(unread[unread.answer.isna()].example_id)
    assert missing and set(gone[0].example_id) - set(gone[1].example_id) == missing


def test_a_curve_that_is_no_sigmoid():
    rng = np.random.default_rng(0)
    x = rng.normal(0, 2, 2000)
    confidence = 1 / (1 + np.exp(-x))
    straight = rng.random(2000) < 1 / (1 + np.exp(-(0.5 * x + 0.3)))
    bent = rng.random(2000) < np.where(np.abs(x) < 1.5, 0.9, 0.2)
    assert (
        calibration_statistics.test_curvature(confidence, straight)
        > 0.05
        > calibration_statistics.test_curvature(confidence, bent)
    )
    assert np.isnan(calibration_statistics.test_curvature(confidence, np.ones(2000, bool)))
    assert np.isnan(calibration_statistics.test_curvature(np.full(2000, 0.9), bent))


def test_mcnemar():
    frame = pd.DataFrame([(str(i), arm, "1" if right else "2") for i in range(20)
                          for arm, right in (("one", i < 15), ("none", i < 5 or i == 19), ("few", True))],
                         columns=["example_id", "demonstration", "answer"])  # fmt: skip
    facts = ablation_statistics.compare_demonstrations(
        frame.assign(model="m", dataset="d", reference="1", boxed=None)
    ).set_index("outcome")
    found = facts.loc["accuracy"]
    assert (found.rows, found["with"], found.without) == (20, 10, 1) and found.p == pytest.approx(24 / 2048)
    assert facts.loc["extracted", "p"] == 1
