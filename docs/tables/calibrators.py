"""The shipped calibrators of the two real models, fitted on their shipped signals.

`python docs/tables/calibrators.py` renews lib/calibrate/shipped/: smoothed isotonic
regression on Seq Avg and Ans Avg of the calibration responses with an answer. Each file tells what
a user of `score` gets over all evaluation responses, where those without an answer get 0: the ECE
before and after, and what the calibrator does to other pairs.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lib.analysis.generation_settings import describe_generation_settings
from lib.analysis.signals import load_signals
from lib.calibrate.calibration_sets import Pair
from lib.calibrate.calibrator_base import Calibrator
from lib.calibrate.calibrator_files import calibrator_record
from lib.calibrate.calibrators import METHODS, SmoothedIsotonic
from lib.calibrate.fit_methods import Fit
from lib.calibrate.one_response import CALIBRATORS
from lib.params import EvaluationChoices, load_dataset_config, load_model_config, load_profile
from lib.score.metrics import ece
from lib.store import KEYS, PAIR, evaluation_rows

SMALL = load_profile("small")
CHOICES = EvaluationChoices.of(SMALL.model_dump())
ESTIMATORS = ("seq_avg", "ans_avg")
NOTE = (
    "Fitted on responses with an answer, with one more row at their base rate in each block. "
    "The ECE is of all evaluation responses; after calibration, those without an answer have 0."
)


def load_scores() -> pd.DataFrame:
    """Return the scores of both models' responses, and whether each response has an answer."""
    signals = load_signals("replay-small", SMALL.models, SMALL.datasets, CHOICES, kinds=())
    return signals.confidence.merge(signals.responses[[*KEYS, "parsed"]], on=KEYS)


def fit_shipped(rows: pd.DataFrame) -> SmoothedIsotonic:
    """Fit a calibrator to a pair's calibration responses with an answer."""
    rows = rows[(rows.split == "calibration") & rows.parsed]
    return SmoothedIsotonic().fit(rows.confidence, rows.correct)


def predict_all(calibrator: Calibrator, rows: pd.DataFrame) -> np.ndarray:
    """Return what `score` gives for rows, (n,): 0 without an answer."""
    return np.where(rows.parsed, calibrator.predict(rows.confidence), 0)


def describe_elsewhere(
    calibrator: Calibrator, own: Pair, evaluation: dict[Pair, pd.DataFrame]
) -> str:
    """Return a sentence on the ECE of other pairs that differ in the model or the dataset alone."""
    changes = []
    for (model, dataset), rows in evaluation.items():
        if (model == own[0]) != (dataset == own[1]):
            before = ece(rows.confidence, rows.correct, CHOICES.bins)
            after = ece(predict_all(calibrator, rows), rows.correct, CHOICES.bins)
            other = load_dataset_config(dataset) if model == own[0] else load_model_config(model)
            changes.append(f"{before:.3f} to {after:.3f} on {other.label}")
    return (
        f"Elsewhere it changes the ECE: {', '.join(changes)}. Where the ECE rises, do not use it."
    )


def main() -> None:
    scores = load_scores()
    asking = describe_generation_settings("replay-small", SMALL.models, SMALL.datasets)
    for estimator in ESTIMATORS:
        by_pair = dict(list(scores[scores.estimator == estimator].groupby(PAIR, sort=False)))
        evaluation = {pair: evaluation_rows(rows) for pair, rows in by_pair.items()}
        for pair, rows in by_pair.items():
            calibrator = fit_shipped(rows)
            fit = Fit(pair, estimator, METHODS["isotonic"], "confidence", calibrator)
            new = evaluation[pair]
            before = ece(new.confidence, new.correct, CHOICES.bins)
            after = ece(predict_all(calibrator, new), new.correct, CHOICES.bins)
            facts = {
                "ece": round(float(before), 4),
                "ece_calibrated": round(float(after), 4),
                "note": NOTE,
                "elsewhere": describe_elsewhere(calibrator, pair, evaluation),
            }
            model, dataset = pair
            path = CALIBRATORS / f"{model}__{dataset}__{estimator}__isotonic.json"
            path.parent.mkdir(exist_ok=True)
            record = calibrator_record(fit, asking[pair], **facts)
            path.write_text(json.dumps(record, sort_keys=True) + "\n", encoding="utf-8")
            print(path.name, facts)


if __name__ == "__main__":
    main()
