"""Claims on the rows of a run: for each, rows by hand whose case agrees, disagrees, and is open.

A pair has 400 evaluation rows, of which the first 240 are right. Scores are constants, whose ECE is
the distance to the accuracy of .6, or rank answers by hand.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lib.analysis.resampled_scores import ResampledScores, ResampleSettings, Score, ScoredRows
from lib.analysis.results import Results
from lib.analysis.token_statistics import choose_position, score_parts
from lib.paper.verdicts import CLAIMS, judge, show_claims

PAIR = ("llama", "easy")
MODELS = {"llama": "Llama-3"}
DATASETS = {"easy": "Easy"}
NOTHING = Results(MODELS, DATASETS, MODELS, (MODELS, DATASETS), (), {})
CLAIM_BY_NAME = {claim.name: claim for claim in CLAIMS}
N = 400
RIGHT = np.arange(N) < 240
RANKS = np.where(RIGHT, 0.7, 0.5)  # AUROC 1
MISRANKS = np.where(RIGHT, 0.5, 0.7)  # AUROC 0
# AUROC about .5: the same eight scores in turn, for right and for wrong answers
RANKS_NOTHING = 0.5 + 0.01 * (np.arange(400) % 8)
NOISY = 0.5 + 0.01 * ((np.arange(400) * 3) % 8)  # likewise, in another order

# Of each claim: scores for which its case agrees, disagrees and is open. A number is a constant
# score.
BY_ROWS = {
    "multi_pass_calibrated": (
        {"p_true": np.where(RIGHT, 0.599, 0.591), "c_bald": 0.9},
        # it ranks, but lies far above the accuracy
        {"p_true": np.where(RIGHT, 0.9, 0.8), "c_bald": 0.99},
        {"p_true": 0.1 + RANKS_NOTHING, "c_bald": 0.99},  # near the accuracy, and ranks nothing
    ),
    "overconfidence_of_answers": (
        {"ans_avg": 0.9, "ans_joint": 0.9, "seq_avg": 0.8, "seq_joint": 0.8},
        {"ans_avg": 0.9, "ans_joint": 0.8, "seq_avg": 0.8, "seq_joint": 0.7},
        {"ans_avg": 0.54 + 0.1 * RIGHT, "ans_joint": 0.9, "seq_avg": 0.6, "seq_joint": 0.5},
    ),
    "seq_discriminates": ({"seq_avg": RANKS}, {"seq_avg": MISRANKS}, {"seq_avg": RANKS_NOTHING}),
    "seq_ranks_above_answer": (
        {"seq_avg": RANKS, "ans_avg": RANKS_NOTHING},
        {"seq_avg": RANKS_NOTHING, "ans_avg": RANKS},
        {"seq_avg": RANKS_NOTHING, "ans_avg": NOISY},
    ),
    "top_token_unchanged": (
        {"c_bald_unchanged": RANKS},
        {"c_bald_unchanged": MISRANKS},
        {"c_bald_unchanged": RANKS_NOTHING},
    ),
    "seq_avg_below_answer": (
        {"seq_avg": 0.7, "ans_avg": 0.8, "ans_joint": 0.9},
        {"seq_avg": 0.85, "ans_avg": 0.8, "ans_joint": 0.9},
        {"seq_avg": 0.5, "ans_avg": 0.7, "ans_joint": 0.9},  # as far below the accuracy as above it
    ),
    "seq_joint_below_answer": (
        {"seq_joint": 0.7, "ans_avg": 0.9, "ans_joint": 0.8},
        {"seq_joint": 0.85, "ans_avg": 0.9, "ans_joint": 0.8},
        {"seq_joint": 0.601, "ans_avg": 0.9, "ans_joint": 0.605},  # both within chance
    ),
    "substantially_better": (
        {"seq_avg": 0.7, "ans_avg": 0.9},
        {"seq_avg": 0.88, "ans_avg": 0.9},
        {"seq_avg": 0.84, "ans_avg": 0.9},  # .24 against .8 * .3
    ),
    "seq_below_multi_pass": (
        {"seq_avg": 0.9, "seq_joint": 0.7, "p_true": 0.8, "c_bald": 0.85},
        {"seq_avg": 0.9, "seq_joint": 0.9, "p_true": 0.95, "c_bald": 0.85},
        {"seq_avg": 0.9, "seq_joint": 0.5, "p_true": 0.7, "c_bald": 0.85},
    ),
    "means_overlap_first": (
        {"first_tenth": RANKS_NOTHING},
        {"first_tenth": RANKS_NOTHING + 0.1 * RIGHT},
        None,
    ),
    "means_part_later": (
        {"last_tenth": RANKS_NOTHING + 0.1 * RIGHT},
        {"last_tenth": RANKS_NOTHING - 0.1 * RIGHT},
        {"last_tenth": RANKS_NOTHING},
    ),
    "means_diverge": (
        {"after_a_tenth": np.full(N, 0.5), "seq_avg": RANKS_NOTHING + np.where(RIGHT, 0.1, -0.2)},
        {"after_a_tenth": np.full(N, 0.5), "seq_avg": RANKS_NOTHING + 0.1},  # both rise
        {"after_a_tenth": RANKS_NOTHING, "seq_avg": NOISY},
    ),
    "no_single_token": (
        {"seq_avg": RANKS, "single_position": RANKS_NOTHING},
        {"seq_avg": RANKS_NOTHING, "single_position": RANKS},
        {"seq_avg": RANKS_NOTHING, "single_position": NOISY},
    ),
    "signal_accumulates": (
        {"seq_avg": RANKS, "after_a_tenth": RANKS_NOTHING},
        {"seq_avg": RANKS_NOTHING, "after_a_tenth": RANKS},
        {"seq_avg": RANKS_NOTHING, "after_a_tenth": NOISY},
    ),
    "five_reliable": (
        {"c_bald_after_five": 0.7, "c_bald": 0.7},
        {"c_bald_after_five": 0.9, "c_bald": 0.7},
        {"c_bald_after_five": 0.85, "c_bald": 0.8},  # .25 against 1.25 * .2
    ),
    "bald_below_p_true": (
        {"c_bald": 0.7, "p_true": 0.8},
        {"c_bald": 0.8, "p_true": 0.7},
        {"c_bald": 0.5, "p_true": 0.7},
    ),
    "p_true_below_ans_avg": (
        {"p_true": 0.7, "ans_avg": 0.8},
        {"p_true": 0.8, "ans_avg": 0.7},
        {"p_true": 0.5, "ans_avg": 0.7},
    ),
    "in_situ_comparable": (
        {"p_true_insitu": 0.8, "p_true": 0.8},
        {"p_true_insitu": 0.9, "p_true": 0.8},
        {"p_true_insitu": 0.85, "p_true": 0.8},
    ),
}  # fmt: skip


def rows_of(values, keep=slice(None)):
    confidence = np.broadcast_to(np.asarray(values, float), N)
    ids = np.array([f"{i:04d}" for i in range(N)])
    return ScoredRows(ids[keep], RIGHT[keep].astype(float), confidence[keep])


def results_of(scores, **frames):
    columns = {Score(name): rows_of(values) for name, values in scores.items()}
    resampled = ResampledScores({PAIR: columns}, ResampleSettings(resamples=1000))
    return replace(NOTHING, scores=resampled, frames=frames)


CASES = []
for claim, (agreeing, disagreeing, undecided) in BY_ROWS.items():
    CASES.append(pytest.param(claim, agreeing, "agrees", "holds", id=f"{claim} holds"))
    CASES.append(pytest.param(claim, disagreeing, "disagrees", "fails", id=f"{claim} fails"))
    if undecided is not None:
        CASES.append(pytest.param(claim, undecided, "open", "open", id=f"{claim} is open"))


@pytest.mark.parametrize("claim, scores, outcome, kind", CASES)
def test_the_interval_of_these_rows_decides_the_case(claim, scores, outcome, kind):
    verdict = judge(CLAIM_BY_NAME[claim], results_of(scores))
    assert verdict.rows.outcome.tolist() == [outcome]
    assert verdict.kind == kind
    has_interval = bool(verdict.open_cases)
    assert has_interval == (outcome == "open"), "an open case is shown with its interval"


def test_an_open_case_is_named_with_its_interval():
    verdict = judge(CLAIM_BY_NAME["seq_discriminates"], results_of({"seq_avg": RANKS_NOTHING}))
    (case,) = verdict.rows.itertuples()
    assert case.low < 0 < case.high
    interval = f"[{case.low:.3f}, {case.high:.3f}]"
    assert verdict.open_cases == f"llama easy {case.margin:.3f} {interval}"
    assert verdict.in_words("") == "open: 1 pair open"


@pytest.mark.parametrize("first_right, is_case", [(391, False), (390, True)])
def test_nineteen_unchanged_responses_are_no_case_and_twenty_are_one(first_right, is_case):
    chosen = [*range(10), *range(first_right, 400)]
    few = {Score("c_bald_unchanged"): rows_of(RANKS, chosen)}
    results = replace(NOTHING, scores=ResampledScores({PAIR: few}))
    kind = judge(CLAIM_BY_NAME["top_token_unchanged"], results).kind
    assert (kind != "not judged") == is_case


def one_row(**columns):
    return pd.DataFrame([{"model": "llama", "dataset": "easy", **columns}])


@pytest.mark.parametrize("ece_range, kind", [(0.051, "holds"), (0.05, "open")])
def test_rates_differ_by_more_than_exchanged_ones_or_the_case_is_open(ece_range, kind):
    rates = one_row(ece_range=ece_range, chance_high=0.05)
    assert judge(CLAIM_BY_NAME["rate_matters"], results_of({}, rates=rates)).kind == kind


def test_what_a_run_counts_by_number_says_so():
    tokens = one_row(median=0.999)
    results = results_of({}, tokens=tokens)
    verdict = judge(CLAIM_BY_NAME["answers_saturate"], results)
    assert verdict.summary == "1 pair agrees; by number"
    table = show_claims("answers_saturate", MODELS, DATASETS, results.scores, tokens=tokens).shown
    assert table.here.tolist() == ["holds: 1 pair agrees; by number"]


# ---- the single position


def responses_of(correct, tokens, split):
    ids = [f"{split} {i}" for i in range(len(correct))]
    keys = {"model": "llama", "dataset": "easy", "split": split, "example_id": ids}
    return pd.DataFrame({**keys, "correct": correct, "response": list(np.log(tokens))})


@pytest.fixture
def telling_tokens():
    """On calibration rows the third token tells right from wrong, on evaluation rows the second."""
    correct = np.array([True, False] * 10)
    old = np.full((20, 5), 0.5)
    new = np.full((20, 5), 0.5)
    old[correct, 2] = 0.8
    new[correct, 1] = 0.8
    return responses_of(correct, old, "calibration"), responses_of(correct, new, "evaluation")


def test_the_position_is_chosen_on_calibration_rows(telling_tokens):
    calibration, evaluation = telling_tokens
    assert choose_position(calibration, 5) == 2
    scores = score_parts(pd.concat([calibration, evaluation]), points=5)
    single = scores[scores.estimator == "single_position"]
    assert single.confidence.tolist() == pytest.approx([0.5] * 20)


def test_no_position_is_chosen_where_all_calibration_rows_are_right(telling_tokens):
    calibration, evaluation = telling_tokens
    all_right = calibration.assign(correct=True)
    scores = score_parts(pd.concat([all_right, evaluation]), points=5)
    assert "single_position" not in set(scores.estimator)


def auroc_by_hand(scores, correct):
    """The share of pairs of a right and a wrong row in which the right one is higher; ties count
    half."""
    right = scores[correct][:, None]
    wrong = scores[~correct]
    return (right > wrong).mean() + (right == wrong).mean() / 2


def test_no_position_beats_chance_if_labels_are_permuted():
    """The chosen one has an AUROC of .5 on other rows, on average; the best of all on these rows
    does not."""
    rng = np.random.default_rng(0)
    chosen = []
    best = []
    for _ in range(40):
        old_tokens = rng.uniform(0.1, 1, (60, 20))
        new_tokens = rng.uniform(0.1, 1, (60, 20))
        correct = rng.permutation(np.arange(60) < 30)
        old = responses_of(correct, old_tokens, "calibration")
        new = responses_of(correct, new_tokens, "evaluation")
        scores = score_parts(pd.concat([old, new]), points=20)
        single = scores[scores.estimator == "single_position"].confidence.to_numpy()

        ranks = [auroc_by_hand(column, correct) for column in new_tokens.T]
        position = choose_position(old, 20)
        assert auroc_by_hand(single, correct) == pytest.approx(ranks[position])
        chosen.append(ranks[position])
        best.append(max(ranks))
    assert np.mean(chosen) == pytest.approx(0.5, abs=0.04)
    assert np.mean(best) > 0.6
