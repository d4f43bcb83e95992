"""What a run says of a user's model: which score is best, as far as rows decide that did not choose
it; what calibration gives; and when to answer."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, binom

from lib.analysis.answer_thresholds import count_needed_answers
from lib.analysis.model_answers import (
    answer_for_pairs,
    choose_score,
    compare_scores,
    judge_choice,
    name_shortage,
)
from lib.analysis.resampled_scores import ResampledScores, ResampleSettings, Score, ScoredRows
from lib.analysis.run_thresholds import read_threshold, share_with_interval
from lib.analysis.signals import Signals, load_signals
from lib.params import EvaluationChoices, SelectivePrediction
from lib.row_order import first_rows
from lib.score.baselines import BASE
from lib.score.selective import selective_thresholds

PAIR = ("m", "d")


def score_rows(n, **signals):
    """Scores of the same n rows, half of which are right: each a share of the truth, and noise."""
    rng = np.random.default_rng(0)
    correct = np.arange(n) % 2
    ids = np.array([f"{row:04d}" for row in range(n)])
    columns = {Score(BASE): ScoredRows(ids, correct.astype(float), np.full(n, 0.5))}
    for name, share in signals.items():
        confidence = share * correct + (1 - share) * rng.random(n)
        columns[Score(name)] = ScoredRows(ids, correct.astype(float), confidence)
    return ResampledScores({PAIR: columns}, ResampleSettings(resamples=500))


@pytest.mark.parametrize("right, total, shortage", [
    (15, 29, "fewer than 30 evaluation questions (29)"),
    (9, 30, "fewer than 10 right answers (9 of 30)"),
    (21, 30, "fewer than 10 wrong answers (9 of 30)"),
    (0, 0, "fewer than 30 evaluation questions (0)"),
    (10, 30, ""),
    (20, 30, ""),
])  # fmt: skip
def test_too_few_rows_are_named(right, total, shortage):
    assert name_shortage(right, total) == shortage


def test_an_accuracy_has_the_exact_interval():
    """Clopper and Pearson's, by the beta distribution."""
    made = share_with_interval(37, 100)
    assert made.value == 0.37
    assert made.low == pytest.approx(beta.ppf(0.025, 37, 64))
    assert made.high == pytest.approx(beta.ppf(0.975, 38, 63))
    assert np.isnan(share_with_interval(0, 0)).all()


def test_the_rows_that_choose_take_the_best_of_each_metric():
    correct = np.array([False, True] * 20)
    frames = []
    for name, confidence in {
        "ans_avg": np.where(correct, 0.95, 0.9),  # ranks best, far too high
        "seq_avg": np.where(correct, 0.5, 0.5),  # the share of right ones, ranks nothing
    }.items():
        rows = pd.DataFrame({"confidence": confidence, "correct": correct})
        frames.append(rows.assign(estimator=name))
    rows = pd.concat(frames)
    assert choose_score(rows, "auroc") == "ans_avg"
    assert choose_score(rows, "ece") == "seq_avg"
    one_class = rows[rows.correct]
    assert choose_score(one_class, "auroc") == "seq_avg", "the paper's, where nothing can choose"


def test_a_score_is_best_if_the_rows_decide():
    scores = score_rows(400, seq_avg=0.8, ans_avg=0.1, p_true=0.0)
    best = judge_choice(scores, PAIR, "seq_avg", "auroc")
    assert best.is_best and best.worse == ("ans_avg", "p_true")
    assert best.chance == 0.5 and best.estimate.low <= best.estimate.value <= best.estimate.high
    wrong = judge_choice(scores, PAIR, "ans_avg", "auroc")
    assert wrong.better == ("seq_avg",) and not wrong.is_best


def test_rows_that_do_not_decide_leave_it_open():
    scores = score_rows(40, seq_avg=0.1, ans_avg=0.1)
    chosen = judge_choice(scores, PAIR, "seq_avg", "auroc")
    assert chosen.open_to == ("ans_avg",) and not chosen.is_best
    alone = judge_choice(score_rows(40, seq_avg=0.3), PAIR, "seq_avg", "auroc")
    assert not alone.is_best, "of one score alone nothing is the best"


def test_a_score_is_neither_better_nor_worse_than_its_copy():
    """All differences are 0, whichever counts as better."""
    scores = score_rows(40, seq_avg=0.3)
    by_score = scores.scores[PAIR]
    copied = {PAIR: {**by_score, Score("ans_avg"): by_score[Score("seq_avg")]}}
    of_both = ResampledScores(copied, scores.settings)
    for metric in ("ece", "auroc"):
        assert compare_scores(of_both, PAIR, "seq_avg", "ans_avg", metric) == "open_to"


def test_two_scores_that_chance_explains_are_not_told_apart():
    """Both are calibrated, though the error of one is lower in every resample."""
    n = 200
    correct = np.arange(n) % 2
    ids = np.array([f"{row:04d}" for row in range(n)])
    columns = {}
    for name, confidence in {"seq_avg": 0.5, "ans_avg": 0.54}.items():
        columns[Score(name)] = ScoredRows(ids, correct.astype(float), np.full(n, confidence))
    scores = ResampledScores({PAIR: columns}, ResampleSettings(resamples=500))
    assert compare_scores(scores, PAIR, "seq_avg", "ans_avg", "ece") == "open_to"


@pytest.fixture(scope="module")
def of_demo():
    """The answer for a demo pair with the shipped signals, at a low target precision."""
    signals = load_signals("shipped", ["tiny-llama"], ["demo-medium"], EvaluationChoices())
    settings = SelectivePrediction(resamples=300, target_precisions=[0.5])
    thresholds = selective_thresholds(signals.confidence, [0.5], 0.9, settings.seed)
    (answer,) = answer_for_pairs(signals, thresholds, settings)
    return signals, answer


def test_the_numbers_of_a_pair_are_those_of_its_rows(of_demo):
    signals, answer = of_demo
    rows = signals.confidence[signals.confidence.split == "evaluation"]
    chosen = rows[rows.estimator == answer.estimator]
    assert (answer.evaluated, answer.right) == (len(chosen), chosen.correct.sum())
    assert answer.accuracy.value == pytest.approx(chosen.correct.mean())
    made = answer.threshold
    given = chosen[chosen.confidence >= made.threshold]
    assert made.answered == pytest.approx(len(given) / len(chosen))
    assert made.precision.value == pytest.approx(given.correct.mean())
    others = {*answer.ranking.worse, *answer.ranking.better, *answer.ranking.open_to}
    assert others == set(rows.estimator) - {answer.estimator}


def test_rows_that_test_and_judge_do_not_choose(of_demo):
    """Half of the other answers turn wrong, and the same scores are chosen."""
    signals, answer = of_demo
    assert answer.choosing == answer.calibrating // 3 == 100
    rows = signals.generations.reset_index(drop=True)
    choosing = first_rows(rows[rows.split == "calibration"], answer.choosing, 0)
    others = rows.index[~rows.example_id.isin(choosing.example_id)][::2]
    changed = rows.assign(reference=rows.reference.where(~rows.index.isin(others), "-1"))
    turned = Signals(changed, signals.verification, signals.dropout, signals.choices)
    settings = SelectivePrediction(resamples=100)
    thresholds = selective_thresholds(turned.confidence, [0.8], 0.9, 0)
    (again,) = answer_for_pairs(turned, thresholds, settings)
    assert again.right < answer.right
    assert again.ranking.estimator == answer.ranking.estimator
    assert again.raw.estimator == answer.raw.estimator


def test_calibration_lowers_the_error_that_the_picture_shows(of_demo):
    _, answer = of_demo
    raw = answer.diagrams["raw"]["product"].sum()
    assert answer.calibrated.estimate.value < 0.2 < raw
    made = answer.diagrams["isotonic"]["product"].sum()
    assert made == pytest.approx(answer.calibrated.estimate.value)


# ---- a run without a guarantee


def calibration_scores(**scores):
    """Twenty calibration rows whose second half is right, scored by each column."""
    frames = []
    for name, confidence in scores.items():
        rows = pd.DataFrame({"confidence": confidence, "correct": np.arange(20) >= 10})
        frames.append(rows.assign(estimator=name))
    return pd.concat(frames)


def without_guarantee(*names):
    rows = {"estimator": names, "target": 0.8, "threshold": np.nan, "reason": "too few"}
    return pd.DataFrame(rows)


def probability_of_guarantee(rows):
    """That of a precision of .8 by rows of which two thirds test, and half of these are answered;
    one of eleven answers is wrong."""
    answered = round(rows * 2 / 3 / 2)
    wrong = np.arange(answered + 1)
    passes = binom.cdf(wrong, answered, 0.2) <= 1 - 0.9
    return binom.pmf(wrong, answered, 1 / 11)[passes].sum()


def test_without_a_guarantee_a_run_tells_how_many_more_rows_probably_give_one():
    """The ten most confident answers are right; with a wrong one added, ten of eleven."""
    rows = calibration_scores(seq_avg=[0.2] * 10 + [0.9] * 10, ans_avg=[0.5] * 20)
    settings = SelectivePrediction(target_precisions=[0.8], precision_confidence=0.9)
    made = read_threshold(without_guarantee("seq_avg", "ans_avg"), rows, "seq_avg", settings)
    assert made.threshold is None and made.answered == 0 and made.reason == "too few"
    needed = 20 + made.more
    assert probability_of_guarantee(needed) > 0.79
    assert probability_of_guarantee(0.9 * needed) < 0.79


def test_no_number_of_rows_guarantees_what_a_score_cannot_tell():
    """Half of the answers are right at each value of the score."""
    rows = calibration_scores(seq_avg=[0.2] * 10 + [0.9] * 10, ans_avg=[0.5] * 20)
    settings = SelectivePrediction(target_precisions=[0.8], precision_confidence=0.9)
    made = read_threshold(without_guarantee("seq_avg", "ans_avg"), rows, "ans_avg", settings)
    assert made.threshold is None and made.more is None
    assert read_threshold(without_guarantee("seq_avg"), rows, "p_true", settings) is None


def test_nor_does_a_test_that_mostly_passes_by_chance():
    """At a certainty of .05 it often passes where one answer in three is wrong."""
    assert count_needed_answers(0.3, target=0.8, certainty=0.05) == 0
