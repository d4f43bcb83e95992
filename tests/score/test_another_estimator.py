"""An estimator of one's own is a function and a row in the table of estimators: everything else follows."""

import numpy as np
import pytest
from scipy.special import expit
from synthetic import results_of

from lib import params
from lib.analysis import run_results
from lib.calibrate import fitting
from lib.paper import tables
from lib.score.bootstrap import bootstrap
from lib.score.estimators import ESTIMATORS, Estimator

DEMO = params.load_profile("demo")
MINE = (
    Estimator("seq_mean", "Seq Mean", "Seq Mean", "$y$", "single_pass", "response", lambda y: np.exp(y).mean()),
    Estimator("ans_min", "Ans Min", "Ans Min", r"$\min y_j$", "single_pass", "answer", lambda y: np.exp(y).min()),
    Estimator("p_half", "P Half", "P Half", "$m/2$", "multi_pass", "standard_margin", lambda m: expit(m / 2)),
    Estimator("c_worst", "c Worst", "c Worst", r"$\max_j$", "multi_pass", "bald", lambda bald: max(0, 1 - bald.max())),
)
NAMES = [estimator.name for estimator in MINE]


@pytest.fixture(scope="module")
def signals():
    with pytest.MonkeyPatch.context() as patch:
        for estimator in MINE:
            patch.setitem(ESTIMATORS, estimator.name, estimator)
        yield run_results.load_signals(
            "shipped", DEMO.models[:1], DEMO.datasets, params.EvaluationChoices.of(DEMO.model_dump())
        )


def test_every_kind_is_computed_through_its_row(signals):
    scores = signals.confidence.set_index("example_id").groupby("estimator").confidence
    rows = len(signals.responses)
    assert {name: len(scores.get_group(name)) for name in NAMES} == dict.fromkeys(NAMES, rows)
    assert (scores.get_group("ans_min").to_numpy() <= scores.get_group("ans_joint").to_numpy() + 1e-12).all()
    assert (scores.get_group("c_worst").to_numpy() <= scores.get_group("c_bald").to_numpy() + 1e-12).all()
    assert np.allclose(scores.get_group("seq_mean"), scores.get_group("seq_avg"))


def test_it_has_its_column_in_every_table(signals):
    results = results_of(**run_results.raw_frames(signals, DEMO.n_bins_ablation))
    shown = tables.result_estimation(results).latex
    assert all(estimator.label in shown for estimator in MINE)
    single, defined = [e.label for e in MINE if e.group == "single_pass"], tables.estimators().latex
    assert all(label in tables.bin_ablation(results).latex for label in single)
    assert all(f"{e.label} & {e.definition}" in defined for e in MINE)


def test_every_calibrator_is_fitted_on_it(signals):
    sets = fitting.calibration_data(signals.generations, signals.responses)
    calibrated, learned, _ = fitting.calibrate(signals.confidence, sets)
    methods = calibrated.groupby("estimator").method.unique().map(set)
    assert all({"", "isotonic"} <= methods[name] for name in NAMES)
    assert "platt" in methods["p_half"] and "p_half" in set(learned.estimator), "it has a margin"
    results = bootstrap(calibrated, resamples=20).results
    results = results_of(result_isotonic=results, result_estimation_full=results)
    isotonic = tables.result_isotonic(results).latex
    full = tables.result_estimation_full(results).latex
    assert all(estimator.label in isotonic for estimator in MINE)
    assert all(estimator.label in full for estimator in MINE)
