"""A calibrated number for one new response: `score(response, "qwen2.5-coder-1.5b__gsm8k__seq_avg__isotonic")`.

The calibrators of two real models are shipped, each with the data that it was fitted on and what it does elsewhere: on
other questions, or with another model, a calibrator may make the calibration worse. A run stores its own ones.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from lib.calibrate.fitting import load_calibrator, read_calibrator_record
from lib.generate.response_files import parse_response
from lib.params import EvaluationChoices
from lib.paths import UserError, nearest
from lib.score.estimators import ESTIMATORS
from lib.score.interpretation import interpret_row
from lib.tasks.answers import locate_answer

CALIBRATORS = Path(__file__).with_name("shipped")  # of an installed package, too


class CalibratedScore(NamedTuple):
    """A confidence before and after calibration.

    `raw` is the estimator's, `calibrated` the probability that the answer is right. `fitted_on` tells the calibrator's
    model, dataset and estimator, and of a shipped one also `n`, `ece`, `ece_calibrated` and `elsewhere`.
    """

    raw: float
    calibrated: float
    fitted_on: dict[str, Any]


def score(response: Any, calibrator: str | Path) -> CalibratedScore:
    """Return the confidence in a response, raw and calibrated.

    Parameters
    ----------
    response : a chat completion with `logprobs`, as its object or its JSON
    calibrator : name of a shipped one, or file of a run (`artifacts/<run>/calibrators/`), of a single-pass estimator

    Raises
    ------
    UserError
        If the response has no log-probabilities, or the calibrator is unknown or takes something else.
    """
    shipped = {path.stem: path for path in CALIBRATORS.glob("*.json")}
    path = shipped.get(str(calibrator), Path(calibrator))
    if not path.exists():
        raise UserError(f"there is no calibrator '{calibrator}'; {nearest(str(calibrator), shipped)}")
    record = read_calibrator_record(path)
    body = json.loads(response) if isinstance(response, str | bytes) else response
    line = json.dumps({"custom_id": "", "response": {"body": body}}, default=lambda one: one.model_dump())
    found = parse_response(line.encode(), "the response")
    if not found.pieces:
        raise UserError("the response has no log-probabilities: ask for it with `logprobs: true`")
    places = locate_answer(found.pieces[: len(found.pieces) - found.ended], found.thought)
    row = SimpleNamespace(**places, token_logprobs=np.minimum(found.logprobs, 0.0), eos=found.ended, reference="")
    _, _, *signals, _ = interpret_row(row, EvaluationChoices())
    estimator, signal = ESTIMATORS.get(record["estimator"]), dict(zip(("response", "answer"), signals, strict=True))
    if estimator is None or estimator.needs not in signal or record["input"] != "confidence":
        raise UserError(f"{path.name} does not calibrate a score of a response's tokens: choose an isotonic one")
    raw = estimator.function(signal[estimator.needs])
    told = {name: value for name, value in record.items() if name not in ("attributes", "sha256", "input")}
    return CalibratedScore(raw, float(load_calibrator(path).predict([raw])[0]), told)
