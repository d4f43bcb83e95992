"""The numbers that are shipped with the demo, made again from its shipped signals by what the notebooks call."""

import pandas as pd
import pytest

from lib import params, store
from lib.calibrate import experiments, fitting
from lib.score import evaluation, selective
from lib.score.confidence import confidence_frame, rows_at_selected_rate
from lib.score.estimators import ESTIMATORS

DEMO = params.load_profile("demo")
VALUES = DEMO.model_dump()
DRAWN = params.Subsampling.of(VALUES)
MEASURED = [
    "value",
    "low",
    "high",
    "relative",
    "confidence",
    "ece",
    "answered",
    "accuracy",
    "threshold",
    "precision",
]


def check_as_shipped(frame: pd.DataFrame, kind: str, name: str, rtol: float = 1e-6) -> None:
    kept = store.read_frame(store.find_frame("shipped", kind, name))
    keys = [column for column in kept if column not in MEASURED]
    near = {"check_dtype": False, "check_like": True, "rtol": rtol, "atol": 1e-9}
    ours, theirs = (some.fillna(pd.NA).sort_values(keys, ignore_index=True) for some in (frame, kept))
    pd.testing.assert_frame_equal(ours, theirs, **near)


@pytest.fixture(scope="module")
def calibrated(shipped):
    return fitting.calibrate(shipped.confidence, shipped.sets)


def test_confidence(shipped):
    check_as_shipped(confidence_frame(shipped.responses), "confidence", "single_pass")


def test_calibrated_confidence_and_its_intervals(calibrated):
    scores, learned, _ = calibrated
    check_as_shipped(scores, "calibration", "confidence")
    drawn = {"names": evaluation.RESAMPLED, "resamples": DEMO.resamples, "seed": DEMO.seed}
    results = evaluation.evaluate(scores, DEMO.bins, **drawn)
    check_as_shipped(pd.concat([results, learned], ignore_index=True), "calibration", "results")


def test_sample_efficiency(shipped):
    of_model = {pair: one for pair, one in shipped.sets.items() if pair[0] == DEMO.figure_model}
    curves = experiments.learning_curves(of_model, DRAWN, list(experiments.SAMPLING), DEMO.bins)
    # The best temperature of few rows, between nearly equal losses, depends on their last digits.
    check_as_shipped(curves, "calibration", "curves", rtol=1e-5)


def test_transfer(shipped, calibrated):
    check_as_shipped(experiments.transfer(shipped.sets, calibrated[2], DEMO.bins), "calibration", "transfer")


def test_what_the_confidence_is_good_for(shipped):
    """Of the estimators that the project adds, too."""
    passes = shipped.dropout
    chosen = rows_at_selected_rate(passes, shipped.choices)
    read, tokens = (shipped.responses, shipped.verification), fitting.token_signals(shipped.sets)
    raw = confidence_frame(*read, chosen, shipped.choices, ESTIMATORS, tokens)
    scores = evaluation.add_base_rate(raw, fitting.calibrate(raw, shipped.sets)[0])
    compared = evaluation.compare_with_base_rate(scores, DEMO.bins, seed=DEMO.seed)
    check_as_shipped(compared, "selective", "scores")
    check_as_shipped(selective.risk_coverage_curves(scores), "selective", "curves")
    tuned = {"c_bald": passes[passes.tuning.astype(bool)]}
    promised = DEMO.target_precisions, DEMO.precision_confidence, DEMO.seed
    check_as_shipped(selective.selective_thresholds(raw, *promised, tuned), "selective", "thresholds")
