"""The numbers that are shipped with the demo, made again from its shipped signals by what the notebooks call."""

import pandas as pd
import pytest

from lib import params, store
from lib.calibrate import experiments, fitting
from lib.score import evaluation, selective
from lib.score.confidence import confidence_frame, rows_at_selected_rate
from lib.score.estimators import ESTIMATORS

DEMO = params.load_profile("demo")


@pytest.fixture(scope="module")
def made(shipped):
    """Every frame of 02 and 05 to 09, by its name."""
    scores, learned, calibrators = fitting.calibrate(shipped.confidence, shipped.sets)
    resampling = {"names": evaluation.RESAMPLED, "resamples": DEMO.resamples, "seed": DEMO.seed}
    resampled = evaluation.evaluate(scores, DEMO.bins, **resampling)
    of_model = {pair: one for pair, one in shipped.sets.items() if pair[0] == DEMO.figure_model}
    drawn = params.Subsampling.of(DEMO.model_dump())
    passes, choices = shipped.dropout, shipped.choices
    read = shipped.responses, shipped.verification, rows_at_selected_rate(passes, choices), choices
    raw = confidence_frame(*read, ESTIMATORS, fitting.token_signals(shipped.sets))
    rated = evaluation.add_base_rate(raw, fitting.calibrate(raw, shipped.sets)[0])
    promised = DEMO.target_precisions, DEMO.precision_confidence, DEMO.seed
    tuned = {"c_bald": passes[passes.tuning.astype(bool)]}
    return {
        "confidence/single_pass": confidence_frame(shipped.responses),
        "calibration/confidence": scores,
        "calibration/results": pd.concat([resampled, learned], ignore_index=True),
        "calibration/curves": experiments.learning_curves(of_model, drawn, list(experiments.SAMPLING), DEMO.bins),
        "calibration/transfer": experiments.transfer(shipped.sets, calibrators, DEMO.bins),
        "selective/scores": evaluation.compare_with_base_rate(rated, DEMO.bins, seed=DEMO.seed),
        "selective/curves": selective.risk_coverage_curves(rated),
        "selective/thresholds": selective.selective_thresholds(raw, *promised, tuned),
    }


@pytest.mark.parametrize("name", ["confidence/single_pass", *(f"calibration/{name}" for name in (
    "confidence", "results", "curves", "transfer")), *(f"selective/{name}" for name in (
    "scores", "curves", "thresholds"))])  # fmt: skip
def test_they_are_as_shipped(made, name):
    kept = store.read_frame(store.find_frame("shipped", *name.split("/")))
    keys = list(kept.select_dtypes(exclude="float"))
    # The best temperature of few rows, between nearly equal losses, depends on their last digits.
    near = {"check_dtype": False, "check_like": True, "rtol": 1e-5 if "curves" in name else 1e-6, "atol": 1e-9}
    ours, theirs = (some.fillna(pd.NA).sort_values(keys, ignore_index=True) for some in (made[name], kept))
    pd.testing.assert_frame_equal(ours, theirs, **near)
