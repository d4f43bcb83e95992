"""Metrics on shared resamples against plain loops over rows drawn by hand, and against scipy."""

import numpy as np
import pytest
from scipy.stats import bootstrap as scipy_bootstrap
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import roc_auc_score
from synthetic import run, scored, single_pass, with_margins

from lib.analysis.resampled_scores import (
    Measure,
    ResampledScores,
    ResampleSettings,
    Score,
    ScoredRows,
    draws_of,
)
from lib.analysis.score_differences import compare_contrasts, pool_difference
from lib.analysis.scores_of_run import collect_scores
from lib.calibrate import calibration_sets, fit_methods
from lib.calibrate.calibrators import Calibrator, Isotonic, Platt
from lib.score.reading import interpret_responses

PAIR = ("m", "d")
SEQ, ANS, ISOTONIC = Score("seq_avg"), Score("ans_avg"), Score("ans_avg", "isotonic")


def binned_error(confidence, correct):
    """The ECE by a loop over ten bins that hold their right edge."""
    total = 0
    for number in range(10):
        low = -1 if number == 0 else number / 10
        inside = (confidence > low) & (confidence <= (number + 1) / 10)
        total += abs(correct[inside].sum() - confidence[inside].sum())
    return total / len(confidence)


def rows_of(confidence, correct, names=None):
    ids = np.array(names or [f"{i:04d}" for i in range(len(correct))])
    return ScoredRows(ids, np.asarray(correct, float), np.asarray(confidence, float))


def two_scores(n=300):
    """A score that is a little too high, and one that is far too high, of the same rows."""
    c, y = scored(n)
    return ResampledScores({PAIR: {SEQ: rows_of(c, y), ANS: rows_of(c**0.3, y)}})


# ---- raw scores


def test_a_difference_is_paired_and_its_interval_scipys():
    scores = two_scores()
    found = compare_contrasts(scores, [(ANS, SEQ)]).iloc[0]
    seq, ans = (scores.scores[PAIR][one] for one in (SEQ, ANS))

    def difference(c, other, y):
        return binned_error(other, y) - binned_error(c, y)

    options = {"paired": True, "vectorized": False, "method": "percentile", "n_resamples": 2000}
    sample = (seq.confidence, ans.confidence, seq.correct)
    theirs = scipy_bootstrap(sample, difference, rng=np.random.default_rng(1), **options)
    ends = theirs.confidence_interval
    assert found.difference == pytest.approx(difference(*sample), abs=1e-12)
    assert [found.low, found.high] == pytest.approx([*ends], abs=0.3 * theirs.standard_error)


def test_auroc_of_resamples_is_scikit_learns():
    scores = two_scores()
    number = scores.measure_all_rows(PAIR, Measure(SEQ, "auroc"))
    rows = scores.scores[PAIR][SEQ]
    assert number.value == pytest.approx(roc_auc_score(rows.correct, rows.confidence))
    rng = np.random.default_rng(3)
    drawn = []
    for _ in range(1000):
        places = rng.integers(0, len(rows.correct), len(rows.correct))
        drawn.append(roc_auc_score(rows.correct[places], rows.confidence[places]))
    assert np.percentile(number.draws, [2.5, 97.5]) == pytest.approx(
        np.percentile(drawn, [2.5, 97.5]), abs=0.01
    )


def test_scores_are_compared_on_the_rows_that_both_have():
    """As c_BALD, of which fewer rows have passes; of scores without a common row nothing is
    told."""
    c, y = scored(100)
    few = rows_of(c[10:60] ** 2, y[10:60], [f"{i:04d}" for i in range(10, 60)])
    other = rows_of(c, y, [f"other {i:04d}" for i in range(100)])
    scores = ResampledScores({PAIR: {SEQ: rows_of(c, y), ANS: few, Score("p_true"): other}})
    numbers = scores.compare(PAIR, {"seq": Measure(SEQ), "few": Measure(ANS)})
    assert numbers["seq"].value == pytest.approx(binned_error(c[10:60], y[10:60]))
    assert scores.compare(PAIR, {"seq": Measure(SEQ), "other": Measure(Score("p_true"))}) is None
    assert scores.compare(PAIR, {"absent": Measure(Score("c_bald"))}) is None


def test_errors_within_chance_are_told():
    """Outcomes are drawn from the first score, so its ECE is what chance gives; the other is far
    too high."""
    c, y = scored(2000, power=1)
    scores = ResampledScores({PAIR: {SEQ: rows_of(c, y), ANS: rows_of(np.full(2000, 0.99), y)}})
    numbers = scores.compare(PAIR, {"seq": Measure(SEQ), "ans": Measure(ANS)})
    assert [numbers[name].within_chance for name in ("seq", "ans")] == [True, False]


# ---- calibrated scores


@pytest.fixture(scope="module")
def collected():
    generations = run(rows=60)
    sets = calibration_sets.calibration_data(generations, interpret_responses(generations))
    confidence = with_margins(single_pass(generations))
    fits = fit_methods.calibrate(confidence, sets)
    return confidence, fits, collect_scores(confidence, sets, fits[2], ResampleSettings(refits=300))


def test_a_calibrated_score_is_that_of_the_tables(collected):
    """Of every estimator and method, and of the calibrator of another pair."""
    _, (calibrated, _, _), scores = collected
    rows = calibrated[calibrated["method"] != ""]
    for (model, dataset, estimator, method), part in rows.groupby(
        ["model", "dataset", "estimator", "method"]
    ):
        part = part.sort_values("example_id")
        found = scores.scores[model, dataset][Score(estimator, method)]
        assert found.confidence == pytest.approx(part.confidence.to_numpy(), abs=1e-12)
        assert found.example_id.tolist() == part.example_id.tolist()
    sources = {score.source for score in scores.scores["m", "d"] if score.method == "isotonic"}
    assert sources == {("", ""), ("n", "d"), ("m", "e")}, "one of model and dataset changes"


def test_calibrators_are_fitted_again_in_each_draw(collected):
    """The spread over draws of both splits, by scikit-learn and rows drawn by hand."""
    confidence, _, scores = collected
    number = scores.measure_all_rows(PAIR, Measure(ISOTONIC))
    rows = confidence[
        (confidence.model == "m")
        & (confidence.dataset == "d")
        & (confidence.estimator == "ans_avg")
    ]
    old, new = (rows[rows.split == split] for split in ("calibration", "evaluation"))
    rng, drawn = np.random.default_rng(0), []
    for _ in range(600):
        some, others = (part.iloc[rng.integers(0, len(part), len(part))] for part in (old, new))
        fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(
            some.confidence, some.correct
        )
        drawn.append(
            binned_error(fitted.predict(others.confidence), others.correct.to_numpy(float))
        )
    assert number.draws.size == 300
    assert number.draws.mean() == pytest.approx(np.mean(drawn), abs=0.01)
    assert number.draws.std() == pytest.approx(np.std(drawn), rel=0.2)
    fixed = collect_scores(
        confidence, {}, collected[1][2], ResampleSettings(resamples=300, refits=0)
    )
    assert fixed.measure_all_rows(PAIR, Measure(ISOTONIC)).draws.std() < number.draws.std()


def test_a_constant_is_learned_again(collected):
    confidence, _, scores = collected
    column = scores.scores[PAIR][Score("base")]
    rows = confidence[
        (confidence.model == "m")
        & (confidence.dataset == "d")
        & (confidence.estimator == "ans_avg")
    ]
    right = rows[rows.split == "calibration"].correct.sum()
    assert set(column.confidence) == {(right + 1) / 62}
    assert column.refitted.shape == (300, 60) and column.refitted.std() == pytest.approx(
        np.sqrt(right * (60 - right) / 60) / 62, rel=0.15
    )


# ---- over pairs


def test_a_mean_over_pairs_and_its_two_intervals():
    """Two models that differ much, rows that differ little: the interval of these models is
    narrow."""
    columns = {}
    for model, gap in (("m", 0.3), ("n", -0.1)):
        for dataset in ("d", "e"):
            correct = np.arange(200) % 2
            columns[model, dataset] = {
                SEQ: rows_of(np.full(200, 0.5 + max(gap, 0)), correct),
                ANS: rows_of(np.full(200, 0.5 + max(-gap, 0)), correct),
            }
    scores = ResampledScores(columns, ResampleSettings(resamples=500))
    pooled = pool_difference(scores, SEQ, ANS)
    assert pooled.value == pytest.approx(0.1) and (pooled.lower, pooled.pairs) == (2, 4)
    assert 0.05 < pooled.low < 0.1 < pooled.high < 0.2
    assert pooled.wide_low < -0.05 and pooled.wide_high > 0.25
    assert pool_difference(scores, SEQ, Score("p_true")) is None


def test_draws_are_those_of_the_seed():
    scores = two_scores()
    same = ResampledScores(scores.scores, ResampleSettings(seed=0))
    other = ResampledScores(scores.scores, ResampleSettings(seed=1))
    measures = {"seq": Measure(SEQ), "ans": Measure(ANS)}
    first, again, else_ = (
        draws_of(one.compare(PAIR, measures))["seq"] for one in (scores, same, other)
    )
    assert (first == again).all() and (first != else_).any()


def test_fast_refits_are_the_calibrators_own():
    """`fit_many` of each calibrator against its `fit`, over resamples."""
    c, y = scored(80)
    counts = np.random.default_rng(1).multinomial(80, np.full(80, 1 / 80), 30).astype(float)
    for calibrator, taken in ((Isotonic(), c), (Platt(), 4 * c - 2)):
        fast = calibrator.fit_many(taken, y)
        slow = Calibrator.fit_many(calibrator, taken, y)
        every = np.arange(80)
        for weights in counts:
            expected = slow(every, weights)(taken, False)
            assert fast(every, weights)(taken, False) == pytest.approx(expected, abs=1e-7)
    separable = Platt().fit_many(np.array([-1.0, 1.0]), np.array([False, True]))
    assert separable(np.arange(2), np.ones(2))(np.zeros(1), False) == pytest.approx([0.5])
