"""The shipped calibrators of the two real models, fitted on their shipped signals.

`python docs/tables/calibrators.py` renews lib/calibrate/shipped/: isotonic regression on Seq Avg and Ans Avg of
the calibration rows, each with its ECE before and after on the evaluation rows, and what it does to other pairs."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lib.analysis.run_results import load_signals  # noqa: E402
from lib.calibrate.calibrated import CALIBRATORS  # noqa: E402
from lib.calibrate.fitting import Fit, calibrate, calibrator_record  # noqa: E402
from lib.params import EvaluationChoices, load_dataset_config, load_model_config, load_profile  # noqa: E402
from lib.score.metrics import ece  # noqa: E402
from lib.store import PAIR  # noqa: E402

SMALL = load_profile("small")
ESTIMATORS = ("seq_avg", "ans_avg")


def describe_elsewhere(fit: Fit, rows, raw: dict, bins: int) -> str:
    """Return a sentence on the ECE of other pairs that differ in the model or the dataset alone."""
    said = []
    for (model, dataset), part in rows.groupby(PAIR, sort=False):
        if (model == fit.pair[0]) + (dataset == fit.pair[1]) == 1:
            after = ece(fit.calibrator.predict(part.confidence), part.correct, bins)
            other = load_dataset_config(dataset).label if model == fit.pair[0] else load_model_config(model).label
            said.append(f"{raw[model, dataset]:.3f} to {after:.3f} on {other}")
    return f"Elsewhere it changes the ECE: {', '.join(said)}. Where the ECE rises, do not use it."


def main() -> None:
    choices = EvaluationChoices.of(SMALL.model_dump())
    signals = load_signals("replay-small", SMALL.models, SMALL.datasets, choices, kinds=())
    for estimator in ESTIMATORS:
        scores = signals.confidence[signals.confidence.estimator == estimator]
        rows = scores[scores.split == "evaluation"]
        raw = {pair: ece(part.confidence, part.correct, choices.bins) for pair, part in rows.groupby(PAIR)}
        for fit in calibrate(scores, {})[2]:
            own = rows[(rows.model == fit.pair[0]) & (rows.dataset == fit.pair[1])]
            after = ece(fit.calibrator.predict(own.confidence), own.correct, choices.bins)
            facts = {"n": fit.calibrator.n_rows_, "demonstration": SMALL.demonstration,
                     "ece": round(float(raw[fit.pair]), 4), "ece_calibrated": round(float(after), 4),
                     "elsewhere": describe_elsewhere(fit, rows, raw, choices.bins)}  # fmt: skip
            path = CALIBRATORS / f"{'__'.join([*fit.pair, estimator, 'isotonic'])}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(calibrator_record(fit, **facts), sort_keys=True) + "\n", encoding="utf-8")
            print(path.name, facts)


if __name__ == "__main__":
    main()
