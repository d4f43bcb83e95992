"""Calibrators that are fitted again to resamples of their calibration rows."""

import numpy as np

from lib.calibrate.calibrators import Isotonic
from lib.calibrate.refitting import draw_calibration_counts, predict_by_each, refit


def test_each_pair_has_draws_of_its_own():
    """As many rows in each draw as there are; the same for all calibrators of a pair."""
    counts = draw_calibration_counts(40, 0, ("m", "d"), refits=7)
    assert counts.shape == (7, 40)
    assert (counts.sum(axis=1) == 40).all()
    assert np.array_equal(counts, draw_calibration_counts(40, 0, ("m", "d"), refits=7))
    assert not np.array_equal(counts, draw_calibration_counts(40, 0, ("m", "e"), refits=7))


def test_a_refit_is_a_fit_to_the_rows_as_often_as_they_were_drawn():
    rng = np.random.default_rng(0)
    score, new = rng.random(30), rng.random(5)
    correct = (rng.random(30) < score).astype(float)
    counts = draw_calibration_counts(30, 0, ("m", "d"), refits=4)
    scores = predict_by_each(refit(Isotonic(), score, correct, counts), new)
    for refitted, times in zip(scores, counts, strict=True):
        rows = np.repeat(np.arange(30), times.astype(int))
        fitted = Isotonic().fit(score[rows], correct[rows])
        np.testing.assert_allclose(refitted, fitted.predict(new), atol=1e-12)
