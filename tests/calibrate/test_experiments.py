"""Calibration over frames: own rows, fewer rows, other pairs' rows."""

import pytest
from synthetic import responses, run, single_pass, with_margins

from lib.calibrate import experiments, fitting
from lib.calibrate.calibrators import Isotonic, Temperature
from lib.params import Subsampling
from lib.score.evaluation import RESAMPLED, evaluate
from lib.score.metrics import ece
from lib.store import PAIR


@pytest.fixture(scope="module")
def frame():
    return run(rows=60)


@pytest.fixture(scope="module")
def confidence(frame):
    return with_margins(single_pass(frame))


@pytest.fixture(scope="module")
def sets(frame):
    return fitting.calibration_data(frame, responses(frame))


@pytest.fixture(scope="module")
def calibrated(confidence, sets):
    return fitting.calibrate(confidence, sets)


# ---- own rows


def test_calibrators_see_calibration_rows_only(confidence, sets, calibrated):
    flipped = confidence.assign(correct=confidence.correct ^ (confidence.split == "evaluation"))
    assert (fitting.calibrate(flipped, sets)[0].confidence == calibrated[0].confidence).all()


# ---- fewer rows


def curves_of(sets, sizes, draws, sampling=("uniform",)):
    drawn = Subsampling(calibration_sizes=sizes, draws=draws, seed=5)
    return experiments.learning_curves(sets, drawn, sampling)


def test_curves_end_in_the_fit_on_all_rows(sets):
    curves = curves_of(sets, [10, 30, 1000], 3, experiments.SAMPLING)
    assert set(curves.n) == {10, 30, 60}
    ends = curves[curves.n == 60].set_index([*PAIR, "method"]).sort_index().ece
    for pair, (old, new) in sets.items():
        scores = {"": new.confidence, "isotonic": Isotonic().fit(old.confidence, old.correct).predict(new.confidence),
                  "platt": Temperature().fit(old.answers, old.correct).predict(new.answers)}  # fmt: skip
        for method, score in scores.items():
            assert ends[(*pair, method)].tolist() == pytest.approx([ece(score, new.correct)] * 3, abs=2e-3)


def test_draws_are_the_same_for_both_methods_and_for_any_other_sizes(sets):
    one, other = curves_of(sets, [10], 4), curves_of(dict(reversed(sets.items())), [5, 10], 4)
    both = one.merge(other, on=[*PAIR, "method", "n", "draw"])
    assert len(both) == len(one) and (both.ece_x == both.ece_y).all()
    assert (one.query("method != ''").groupby([*PAIR, "n", "draw"]).one_class.nunique() == 1).all()


# ---- other pairs' rows


def test_transfer_to_itself_is_calibration(sets, calibrated):
    keys = ["source_model", "source_dataset", *PAIR, "method", "metric"]
    moved = experiments.transfer(sets, calibrated[2]).set_index(keys).sort_index().value
    own = evaluate(calibrated[0], names=RESAMPLED).query("estimator == 'ans_avg'")
    for row in own.itertuples():
        source = (row.model, row.dataset) if row.method else ("", "")
        assert moved[*source, row.model, row.dataset, row.method, row.metric] == pytest.approx(row.value)
    raw, far = moved["", "", "n", "e", ""], moved["m", "d", "n", "e", "platt"]
    assert far["delta_ece"] == pytest.approx(far["ece"] - raw["ece"])
