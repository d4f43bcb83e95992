"""A run of two models on two datasets, and its calibrators."""

import pytest
from synthetic import responses, run, single_pass, with_margins

from lib.calibrate.calibration_sets import calibration_data
from lib.calibrate.fit_methods import calibrate


@pytest.fixture(scope="session")
def generations():
    return run(rows=60)


@pytest.fixture(scope="session")
def sets(generations):
    return calibration_data(generations, responses(generations))


@pytest.fixture(scope="session")
def confidence(generations):
    return with_margins(single_pass(generations))


@pytest.fixture(scope="session")
def calibration(confidence, sets):
    """The calibrated scores, what was learned, and the calibrators."""
    return calibrate(confidence, sets)


@pytest.fixture(scope="session")
def calibrated(calibration):
    scores, _, _ = calibration
    return scores


@pytest.fixture(scope="session")
def fits(calibration):
    _, _, calibrators = calibration
    return calibrators
