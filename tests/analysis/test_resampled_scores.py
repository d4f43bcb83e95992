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
from lib.calibrate.calibration_sets import calibration_data
from lib.calibrate.calibrator_base import Calibrator
from lib.calibrate.calibrators import Isotonic, Platt
from lib.calibrate.fit_methods import calibrate
from lib.score.interpretation import interpret_responses

PAIR = ("m", "d")
SEQ = Score("seq_avg")
ANS = Score("ans_avg")
ISOTONIC = Score("ans_avg", "isotonic")
P_TRUE = Score("p_true")


def binned_error(confidence, correct):
    """The ECE by a loop over ten bins that hold their right edge."""
    total = 0
    for number in range(10):
        low = -1 if number == 0 else number / 10
        inside = (confidence > low) & (confidence <= (number + 1) / 10)
        total += abs(correct[inside].sum() - confidence[inside].sum())
    return total / len(confidence)


def rows_of(confidence, correct, prefix="", first=0):
    """Rows with these scores, whose ids are numbers from `first` on."""
    ids = [f"{prefix}{first + i:04d}" for i in range(len(correct))]
    return ScoredRows(np.array(ids), np.asarray(correct, float), np.asarray(confidence, float))


def two_scores(n=300):
    """A score that is a little too high, and one that is far too high, of the same rows."""
    c, y = scored(n)
    return ResampledScores({PAIR: {SEQ: rows_of(c, y), ANS: rows_of(c**0.3, y)}})


# ---- raw scores


def test_a_difference_is_paired_and_its_interval_scipys():
    scores = two_scores()
    seq = scores.scores[PAIR][SEQ]
    ans = scores.scores[PAIR][ANS]

    def difference(low, high, correct):
        return binned_error(high, correct) - binned_error(low, correct)

    sample = (seq.confidence, ans.confidence, seq.correct)
    theirs = scipy_bootstrap(
        sample,
        difference,
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=2000,
        rng=np.random.default_rng(1),
    )
    (row,) = compare_contrasts(scores, [(ANS, SEQ)]).itertuples()
    assert (row.estimator, row.than, row.than_method) == ("ans_avg", "seq_avg", "")
    assert row.difference == pytest.approx(difference(*sample), abs=1e-12)
    ends = theirs.confidence_interval
    assert (row.low, row.high) == pytest.approx(ends, abs=0.3 * theirs.standard_error)


def test_auroc_of_resamples_is_scikit_learns():
    scores = two_scores()
    number = scores.measure_all_rows(PAIR, Measure(SEQ, "auroc"))
    rows = scores.scores[PAIR][SEQ]
    n = len(rows.correct)
    assert number.value == pytest.approx(roc_auc_score(rows.correct, rows.confidence))
    rng = np.random.default_rng(3)
    areas = []
    for _ in range(1000):
        places = rng.integers(0, n, n)
        areas.append(roc_auc_score(rows.correct[places], rows.confidence[places]))
    ends = np.percentile(areas, [2.5, 97.5])
    assert np.percentile(number.draws, [2.5, 97.5]) == pytest.approx(ends, abs=0.01)


def test_scores_are_compared_on_the_rows_that_both_have():
    """As c_BALD, of which fewer rows have passes."""
    c, y = scored(100)
    fewer = rows_of(c[10:60] ** 2, y[10:60], first=10)
    scores = ResampledScores({PAIR: {SEQ: rows_of(c, y), ANS: fewer}})
    numbers = scores.compare(PAIR, {"seq": Measure(SEQ), "few": Measure(ANS)})
    error = binned_error(c[10:60], y[10:60])
    assert numbers["seq"].value == pytest.approx(error)


def test_scores_without_a_common_row_are_not_compared():
    c, y = scored(100)
    others = rows_of(c, y, prefix="other ")
    scores = ResampledScores({PAIR: {SEQ: rows_of(c, y), P_TRUE: others}})
    assert scores.compare(PAIR, {"seq": Measure(SEQ), "other": Measure(P_TRUE)}) is None
    assert scores.compare(PAIR, {"absent": Measure(Score("c_bald"))}) is None


def test_errors_within_chance_are_told():
    """Outcomes are drawn from the first score, so its ECE is what chance gives; the other is far
    too high."""
    c, y = scored(2000, power=1)
    too_high = np.full(2000, 0.99)
    scores = ResampledScores({PAIR: {SEQ: rows_of(c, y), ANS: rows_of(too_high, y)}})
    numbers = scores.compare(PAIR, {"seq": Measure(SEQ), "ans": Measure(ANS)})
    assert numbers["seq"].within_chance
    assert not numbers["ans"].within_chance


# ---- calibrated scores


@pytest.fixture(scope="module")
def sets():
    generations = run(rows=60)
    return calibration_data(generations, interpret_responses(generations))


@pytest.fixture(scope="module")
def confidence():
    return with_margins(single_pass(run(rows=60)))


@pytest.fixture(scope="module")
def calibration(confidence, sets):
    """The calibrated scores, what was learned, and the calibrators."""
    return calibrate(confidence, sets)


@pytest.fixture(scope="module")
def scores(confidence, sets, calibration):
    _, _, fits = calibration
    return collect_scores(confidence, sets, fits, ResampleSettings(refits=300))


def test_a_calibrated_score_is_that_of_the_tables(calibration, scores):
    """Of every estimator and method."""
    calibrated, _, _ = calibration
    calibrated = calibrated[calibrated["method"] != ""]
    keys = ["model", "dataset", "estimator", "method"]
    for (model, dataset, estimator, method), part in calibrated.groupby(keys):
        part = part.sort_values("example_id")
        column = scores.scores[model, dataset][Score(estimator, method)]
        assert column.confidence == pytest.approx(part.confidence.to_numpy(), abs=1e-12)
        assert column.example_id.tolist() == part.example_id.tolist()


def test_calibrators_of_another_model_or_dataset_have_a_score_too(scores):
    sources = {score.source for score in scores.scores[PAIR] if score.method == "isotonic"}
    assert sources == {("", ""), ("n", "d"), ("m", "e")}, "one of model and dataset changes"


def split_rows(confidence):
    """Ans Avg of the pair, its calibration and its evaluation rows."""
    rows = confidence[
        (confidence.model == "m")
        & (confidence.dataset == "d")
        & (confidence.estimator == "ans_avg")
    ]
    return rows[rows.split == "calibration"], rows[rows.split == "evaluation"]


def test_calibrators_are_fitted_again_in_each_draw(confidence, scores):
    """The spread over draws of both splits, by scikit-learn and rows drawn by hand."""
    calibration_rows, evaluation_rows = split_rows(confidence)
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(600):
        old = calibration_rows.sample(frac=1, replace=True, random_state=rng)
        new = evaluation_rows.sample(frac=1, replace=True, random_state=rng)
        regression = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        fitted = regression.fit(old.confidence, old.correct)
        predicted = fitted.predict(new.confidence)
        errors.append(binned_error(predicted, new.correct.to_numpy(float)))
    number = scores.measure_all_rows(PAIR, Measure(ISOTONIC))
    assert number.draws.size == 300
    assert number.draws.mean() == pytest.approx(np.mean(errors), abs=0.01)
    assert number.draws.std() == pytest.approx(np.std(errors), rel=0.2)


def test_without_new_fits_the_spread_is_smaller(confidence, calibration, scores):
    _, _, fits = calibration
    settings = ResampleSettings(resamples=300, refits=0)
    fixed = collect_scores(confidence, {}, fits, settings)
    spread = fixed.measure_all_rows(PAIR, Measure(ISOTONIC)).draws.std()
    assert spread < scores.measure_all_rows(PAIR, Measure(ISOTONIC)).draws.std()


def test_a_constant_is_learned_again(confidence, scores):
    """Its spread is that of a binomial number among 60 rows."""
    calibration_rows, _ = split_rows(confidence)
    right = calibration_rows.correct.sum()
    constant = scores.scores[PAIR][Score("base")]
    assert set(constant.confidence) == {(right + 1) / 62}
    assert constant.refit().shape == (300, 60)
    variance = right * (60 - right) / 60
    assert constant.refit().std() == pytest.approx(np.sqrt(variance) / 62, rel=0.15)


# ---- over pairs


def test_a_mean_over_pairs_and_its_two_intervals():
    """Two models that differ much, rows that differ little: the interval of these models is
    narrow."""
    half_right = np.arange(200) % 2
    columns = {}
    for model, seq, ans in [("m", 0.8, 0.5), ("n", 0.5, 0.6)]:
        for dataset in ("d", "e"):
            columns[model, dataset] = {
                SEQ: rows_of(np.full(200, seq), half_right),
                ANS: rows_of(np.full(200, ans), half_right),
            }
    scores = ResampledScores(columns, ResampleSettings(resamples=500))
    pooled = pool_difference(scores, SEQ, ANS)
    assert pooled.value == pytest.approx((0.3 - 0.1) / 2)
    assert pooled.pairs == 4
    assert pooled.lower == 2
    assert 0.05 < pooled.low < 0.1 < pooled.high < 0.2
    assert pooled.wide_low < -0.05
    assert pooled.wide_high > 0.25
    assert pool_difference(scores, SEQ, P_TRUE) is None


def test_draws_are_those_of_the_seed():
    scores = two_scores()
    measures = {"seq": Measure(SEQ), "ans": Measure(ANS)}

    def draw(settings):
        resampled = ResampledScores(scores.scores, settings)
        return draws_of(resampled.compare(PAIR, measures))["seq"]

    first = draw(ResampleSettings(seed=0))
    assert (first == draw(ResampleSettings())).all()
    assert (first != draw(ResampleSettings(seed=1))).any()


# ---- fast refits


@pytest.mark.parametrize("calibrator", [Isotonic(), Platt()])
def test_fast_refits_are_the_calibrators_own(calibrator):
    """`fit_many` of each calibrator against its `fit`, over resamples."""
    c, y = scored(80)
    values = c if isinstance(calibrator, Isotonic) else 4 * c - 2
    fast = calibrator.fit_many(values, y)
    slow = Calibrator.fit_many(calibrator, values, y)
    rng = np.random.default_rng(1)
    every_row = np.arange(80)
    for _ in range(30):
        places = rng.integers(0, 80, 80)
        weights = np.bincount(places, minlength=80).astype(float)
        expected = slow(every_row, weights)(values, False)
        assert fast(every_row, weights)(values, False) == pytest.approx(expected, abs=1e-7)


def test_a_fast_refit_of_separable_rows_is_smoothed():
    margins = np.array([-1.0, 1.0])
    correct = np.array([False, True])
    fit = Platt().fit_many(margins, correct)
    predict = fit(np.arange(2), np.ones(2))
    assert predict(np.zeros(1), False) == pytest.approx([0.5])
