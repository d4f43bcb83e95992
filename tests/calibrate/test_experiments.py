"""Calibration over frames: own rows, fewer rows, other pairs' rows, other splits."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, norm
from synthetic import keyed

from lib.calibrate.calibration_sets import CalibrationData, ScoredSplit, calibration_data
from lib.calibrate.fit_methods import calibrate
from lib.calibrate.sample_efficiency import SAMPLING, learning_curves, summarize_curves
from lib.calibrate.split_comparison import compare_on_resplits, compare_shares, describe_splits
from lib.calibrate.transfer import scores_by_source, transfer
from lib.paper.booktabs import PAPER_CAPTIONS
from lib.params import Subsampling
from lib.score.evaluation import RESAMPLED, evaluate
from lib.store import PAIR


@pytest.fixture(scope="module")
def own_metrics(calibrated):
    """The metrics of Ans Avg of each pair, raw and after its own calibrators."""
    results = evaluate(calibrated, names=RESAMPLED)
    of_answer = results[results.estimator == "ans_avg"]
    return of_answer.set_index([*PAIR, "method", "metric"]).value


def test_calibrators_see_calibration_rows_only(confidence, sets, calibrated):
    is_new = confidence.split == "evaluation"
    flipped = confidence.assign(correct=confidence.correct ^ is_new)
    flipped_sets = {}
    for pair, data in sets.items():
        new = replace(data.evaluation, correct=~data.evaluation.correct)
        flipped_sets[pair] = data._replace(evaluation=new)
    scores, *_ = calibrate(flipped, flipped_sets)
    assert (scores.confidence == calibrated.confidence).all()


# ---- fewer rows


def curves_of(sets, sizes, draws, sampling=("uniform",), seed=5):
    subsampling = Subsampling(calibration_sizes=sizes, draws=draws, seed=seed)
    return learning_curves(sets, subsampling, sampling)


def test_curves_end_in_the_fit_on_all_rows(sets, own_metrics):
    curves = curves_of(sets, [10, 30, 1000], 3, SAMPLING)
    assert set(curves.n) == {10, 30, 60}
    ends = curves[curves.n == 60].set_index([*PAIR, "method"])
    for key, of_each_way in ends.groupby(level=[0, 1, 2]):
        assert of_each_way.sampling.tolist() == list(SAMPLING)
        on_all_rows = own_metrics[*key, "ece"]
        assert of_each_way.ece.to_numpy() == pytest.approx(on_all_rows, abs=2e-3)


def test_draws_are_the_same_for_both_methods_and_for_any_other_sizes(sets):
    curves = curves_of(sets, [10], 4)
    reversed_sets = dict(reversed(sets.items()))
    with_more_sizes = curves_of(reversed_sets, [5, 10], 4)
    both = curves.merge(with_more_sizes, on=[*PAIR, "method", "n", "draw"])
    assert len(both) == len(curves)
    assert (both.ece_x == both.ece_y).all()
    calibrated = curves[curves["method"] != ""]
    assert (calibrated.groupby([*PAIR, "n", "draw"]).one_class.nunique() == 1).all()


def test_draws_depend_on_the_seed(sets):
    first = curves_of(sets, [10], 4, seed=1)
    other = curves_of(sets, [10], 4, seed=2)
    pd.testing.assert_frame_equal(first, curves_of(sets, [10], 4, seed=1))
    is_drawn = (first.n == 10) & (first["method"] != "")
    assert (first.ece[is_drawn] != other.ece[is_drawn]).mean() > 0.5


def test_a_curve_has_the_mean_and_the_middle_eighty_percent_of_the_draws():
    errors = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]
    draws = keyed(11, ece=errors, one_class=[True] + [False] * 10)
    draws = draws.assign(sampling="uniform", method="isotonic", n=5)
    (band,) = summarize_curves(draws).itertuples()
    assert band.mean == pytest.approx(0.5)
    assert (band.low, band.high) == pytest.approx((0.1, 0.9))
    assert band.one_class == 1
    _, caption = PAPER_CAPTIONS["fig_calibration_analysis"]
    assert "with the middle 80% of the draws" in caption


# ---- other pairs' rows


def test_transfer_to_itself_is_calibration(sets, fits, own_metrics):
    keys = ["source_model", "source_dataset", *PAIR, "method", "metric"]
    moved = transfer(sets, fits).set_index(keys).sort_index().value
    for (*pair, method, metric), value in own_metrics.items():
        if metric != "acc":
            source = pair if method else ("", "")
            assert moved[*source, *pair, method, metric] == pytest.approx(value)


def test_what_transfer_changes_is_held_against_the_raw_score(sets, fits):
    keys = ["source_model", "source_dataset", *PAIR, "method", "metric"]
    moved = transfer(sets, fits).set_index(keys).sort_index().value
    raw = moved["", "", "n", "e", ""]
    far = moved["m", "d", "n", "e", "platt"]
    assert far["delta_ece"] == pytest.approx(far["ece"] - raw["ece"])


def test_only_calibrators_of_ans_avg_move_whatever_the_order_of_fits(sets, fits):
    """Those of other scores lie before and after them in the list."""
    of_ans_avg = [fit for fit in fits if fit.estimator in ("ans", "ans_avg")]
    assert len(of_ans_avg) < len(fits)
    target = sets["n", "e"].evaluation
    expected = scores_by_source(target, of_ans_avg)
    for order in (fits, fits[::-1]):
        made = scores_by_source(target, order)
        pd.testing.assert_frame_equal(made[expected.columns], expected)
        assert made.shape == expected.shape


# ---- both splits


def test_shares_are_compared_by_the_chi_squared_test():
    """40 of 80 against 20 of 80: (30 - 40)^2 / 30 of four cells' expectations, twice, and of 50,
    twice: 10.667."""
    half = np.arange(80) < 40
    quarter = np.arange(80) < 20
    statistic = 2 * 10**2 / 30 + 2 * 10**2 / 50
    assert compare_shares(half, quarter) == pytest.approx(chi2.sf(statistic, 1))


def test_shares_of_one_class_are_not_compared():
    all_right = np.full(80, True)
    assert np.isnan(compare_shares(all_right, all_right))


def test_splits_of_unequal_accuracy_are_told_by_a_z_test(sets):
    splits = describe_splits(sets).set_index(PAIR)
    for pair, (old, new) in sets.items():
        first = old.correct.mean()
        second = new.correct.mean()
        pooled = (first + second) / 2
        variance = 2 * pooled * (1 - pooled) / len(old.correct)
        z = (first - second) / np.sqrt(variance)
        row = splits.loc[pair]
        assert (row.calibration, row.evaluation) == pytest.approx((first, second))
        assert row.p == pytest.approx(2 * norm.sf(abs(z)))


def test_wrong_calibration_rows_above_nine_tenths_are_confident_errors(sets):
    """Of ten rows, two wrong ones and a right one are above .9; two wrong ones are at .9."""
    confidence = np.array([0.9, 0.9, 0.9, 0.91, 0.99, 1.0, 0.5, 0.5, 0.2, 0.1])
    correct = np.array([0, 0, 1, 0, 0, 1, 1, 0, 0, 1], dtype=bool)
    data = sets["m", "d"]
    old = replace(data.calibration, confidence=confidence, correct=correct)
    splits = describe_splits({("m", "d"): data._replace(calibration=old)})
    assert splits.confident_errors.tolist() == [50 * 2 / 10]


CORRECT = np.arange(200) % 2 == 0


def pair_of(scores):
    """Both splits have these scores of 200 answers, of which half is right."""
    keys = pd.DataFrame({"example_id": [f"{i}" for i in range(200)]})
    split = ScoredSplit(keys, scores, None, CORRECT)
    return {("m", "d"): CalibrationData(split, split)}


def test_on_resplits_an_informative_score_beats_a_constant_on_every_one():
    knowing = np.where(CORRECT, 0.9, 0.2)
    (row,) = compare_on_resplits(pair_of(knowing), splits=50).itertuples()
    assert row.isotonic == 0
    assert row.constant_lower_ece == 0
    assert row.isotonic_lower_brier == 1


def test_on_resplits_a_constant_mostly_beats_a_score_that_knows_nothing():
    noise = np.random.default_rng(0).random(200)
    (row,) = compare_on_resplits(pair_of(noise), splits=50).itertuples()
    assert row.constant_lower_ece > 0.9
    assert row.isotonic_lower_brier < 0.9


def test_on_resplits_isotonic_regression_of_one_equal_score_is_never_better_than_a_constant():
    """Of two rows to learn from, one right: both predict .5. None right, or both: it predicts 0
    or 1, the constant .25 or .75, and the two other rows are the opposite."""
    keys = pd.DataFrame({"example_id": ["a", "b"]})
    split = ScoredSplit(keys, np.array([0.7, 0.7]), None, np.array([True, False]))
    sets = {("m", "d"): CalibrationData(split, split)}
    (row,) = compare_on_resplits(sets, splits=50).itertuples()
    assert row.isotonic_lower_brier == 0
    assert row.constant_lower_ece == pytest.approx(1 / 3, abs=0.25), "equal on two of three splits"


# ---- transfer between many pairs


def many_sets(sets, pairs):
    """The first pair of the sets, under the names of this many models on two datasets."""
    data = next(iter(sets.values()))
    models = [f"m{number}" for number in range(pairs // 2)]
    return dict.fromkeys(product(models, ["d", "e"]), data)


@pytest.mark.parametrize("asked_for_all", [False, True])
def test_calibrators_of_many_pairs_move_to_their_neighbors_unless_all_are_asked_for(
    sets, fits, asked_for_all
):
    """Sixteen pairs are one more than the paper has."""
    many = many_sets(sets, 16)
    isotonic = next(fit for fit in fits if fit.estimator == "ans_avg")
    moved = transfer(many, [isotonic._replace(pair=pair) for pair in many], 10, asked_for_all)
    moved = moved[(moved["method"] != "") & (moved.metric == "ece")]
    same_model = moved.source_model == moved.model
    same_dataset = moved.source_dataset == moved.dataset
    if asked_for_all:
        assert len(moved) == 16 * 16
    else:
        assert (same_model | same_dataset).all()
        assert len(moved) == 16 * (1 + 1 + 7), "itself, the other dataset, seven other models"


def test_calibrators_of_few_pairs_move_to_all(sets, fits):
    few = many_sets(sets, 14)
    isotonic = next(fit for fit in fits if fit.estimator == "ans_avg")
    moved = transfer(few, [isotonic._replace(pair=pair) for pair in few])
    assert (moved[moved.metric == "ece"]["method"] != "").sum() == 14 * 14


@pytest.mark.parametrize("splits, has_both", [
    (["calibration", "evaluation"], True),
    (["calibration", "calibration"], False),
    (["evaluation", "evaluation"], False),
])  # fmt: skip
def test_a_pair_is_calibrated_only_if_it_has_rows_of_both_splits(splits, has_both):
    keys = {"model": "m", "dataset": "d", "split": splits, "example_id": ["a", "b"]}
    logits = ["kept_positions", "chosen_logit", "top_logits", "tail_curve"]
    generations = pd.DataFrame(keys | {name: [[], []] for name in logits})
    responses = pd.DataFrame(keys | {"correct": [True, False], "span": [(0, 1)] * 2})
    responses["answer"] = [np.log([0.5]), np.log([0.25])]
    assert list(calibration_data(generations, responses)) == [("m", "d")] * has_both
