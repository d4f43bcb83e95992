"""`python docs/benchmarks/shipped_calibrators.py`: the shipped calibrators beside simpler ones.

Means over the six pairs of the two real models, of all evaluation responses. `plain` is the tables'
isotonic regression, `smoothed` that of the shipped calibrators. `responses` are those to which it
is fitted and applied; others, without an answer, get 0. `certain` counts the responses with an
answer, of all pairs, that get exactly 0 or 1. docs/extending.md quotes these figures.
"""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tables.calibrators import CHOICES, ESTIMATORS, load_scores, predict_all
from lib.calibrate.calibrator_base import Calibrator
from lib.calibrate.calibrators import Isotonic, SmoothedIsotonic
from lib.score.metrics import brier, ece, log_loss
from lib.store import PAIR, calibration_rows, evaluation_rows

METHODS = {"plain": Isotonic, "smoothed": SmoothedIsotonic}
RESPONSES = ("all", "with an answer")


def evaluate_pair(calibrator: Calibrator, rows: pd.DataFrame, responses: str) -> dict[str, float]:
    """Fit a calibrator to a pair's calibration rows; return its metrics on the evaluation rows."""
    calibration = calibration_rows(rows)
    evaluation = evaluation_rows(rows)
    if responses == "with an answer":
        calibration = calibration[calibration.parsed]
    calibrator.fit(calibration.confidence, calibration.correct)
    if responses == "with an answer":
        calibrated = predict_all(calibrator, evaluation)
    else:
        calibrated = calibrator.predict(evaluation.confidence)
    return {
        "log-loss": log_loss(calibrated, evaluation.correct),
        "Brier": brier(calibrated, evaluation.correct),
        "ECE": ece(calibrated, evaluation.correct, CHOICES.bins),
        "certain": np.isin(calibrated[evaluation.parsed], (0, 1)).sum(),
    }


def compare() -> pd.DataFrame:
    """A row for every estimator, method and choice of responses."""
    scores = load_scores()
    means = []
    for estimator, method, responses in product(ESTIMATORS, METHODS, RESPONSES):
        pairs = scores[scores.estimator == estimator].groupby(PAIR, sort=False)
        by_pair = [evaluate_pair(METHODS[method](), rows, responses) for _, rows in pairs]
        metrics = pd.DataFrame(by_pair)
        row = {"estimator": estimator, "method": method, "responses": responses}
        row |= metrics.mean().to_dict()
        row["certain"] = metrics.certain.sum()
        means.append(row)
    return pd.DataFrame(means)


if __name__ == "__main__":
    print(compare().round(4).to_string(index=False))
