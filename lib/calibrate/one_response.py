"""A calibrated number for one new response: `score(response, calibrator)`, by a calibrator of a run
or a shipped one, such as "qwen2.5-coder-1.5b__gsm8k__seq_avg__isotonic". It is 0 without an answer.
`score_confidence` takes a confidence of any kind instead.

The calibrators of two real models are shipped, each with the data that it was fitted on and what it
does elsewhere: on other questions, or with another model, it may make the calibration worse.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from lib.calibrate.calibrator_files import load_calibrator, read_calibrator_record
from lib.calibrate.calibrators import Calibrator, Isotonic
from lib.calibrate.from_confidence import FROM_CONFIDENCE
from lib.errors import UserError, nearest
from lib.files import parse_json
from lib.params import EvaluationChoices
from lib.responses.formats import parse_response
from lib.responses.responses_api import as_chat_completion
from lib.score.estimators import ESTIMATORS, Estimator
from lib.score.interpretation import InterpretedRow, interpret_row
from lib.tasks.answers import locate_answer

CALIBRATORS = Path(__file__).with_name("shipped")  # of an installed package, too
WITHHELD = {  # by finish reason: what is there in place of an answer
    "content_filter": "content filter",
    "tool_calls": "tool call",
    "function_call": "tool call",
}
NO_FACTS = ("attributes", "sha256", "input")  # of a calibrator's file: no facts about it


class CalibratedScore(NamedTuple):
    """A confidence before and after calibration.

    Attributes
    ----------
    raw : float
        The estimator's confidence; 0 without an answer, as `missing: zero` counts it.
    calibrated : float
        The probability that the answer is right; 0 without an answer.
    parsed : bool
        Whether the response has an answer, as grading reads it.
    reason : str
        Why it has none: `no answer`, `cut by length`, `content filter`, `refusal` or `tool call`;
        empty if it has one.
    outside_range : bool
        Whether `raw` lies outside the range of the scores that an isotonic calibrator was fitted
        to: `calibrated` is then that of the nearest one.
    fitted_on : dict
        The calibrator's model, dataset, estimator and number of rows (`n`), and how these were
        `asking`; of a shipped one also `ece`, `ece_calibrated`, `note` and `elsewhere`.
    model, calibrator_model : str
        What the response and the calibrator's file call their models; empty if they do not.
    same_model : bool
        Whether these names are equal. Servers rename models, so another name is not refused.
    """

    raw: float
    calibrated: float
    parsed: bool
    reason: str
    outside_range: bool
    fitted_on: dict[str, Any]
    model: str
    calibrator_model: str
    same_model: bool


class CalibratedConfidence(NamedTuple):
    """A confidence of any kind before and after calibration; the fields are as those of
    `CalibratedScore`."""

    raw: float
    calibrated: float
    outside_range: bool
    fitted_on: dict[str, Any]


def score_confidence(confidence: float, calibrator: str | Path) -> CalibratedConfidence:
    """Return a confidence in [0, 1], raw and calibrated, by a calibrator of the same kind.

    Parameters
    ----------
    confidence : such as a number that a model states, by a calibrator of its table (10_judge); or
        P(True), by one of a run
    calibrator : as for `score`, but of answer tokens

    Raises
    ------
    UserError
        If the confidence lies outside [0, 1], or the calibrator is unknown or takes answer tokens.

    Examples
    --------
    >>> made = score_confidence(0.95, "qwen2.5-coder-1.5b__gsm8k__seq_avg__isotonic")
    >>> round(made.calibrated, 2), made.outside_range
    (0.71, False)
    """
    path = find_calibrator(calibrator)
    record = read_calibrator_record(path)
    if record["input"] not in FROM_CONFIDENCE:
        raise UserError(f"{path.name} calibrates the tokens of an answer: choose an isotonic one")
    if not 0 <= confidence <= 1:
        raise UserError(f"a confidence lies in [0, 1], not {confidence}")
    value = FROM_CONFIDENCE[record["input"]]([confidence])
    fitted = load_calibrator(path)
    calibrated = float(fitted.predict(value)[0])
    return CalibratedConfidence(
        float(confidence), calibrated, _is_outside(fitted, confidence), _facts_of(record)
    )


def score(response: Any, calibrator: str | Path) -> CalibratedScore:
    """Return the confidence in a response, raw and calibrated.

    Parameters
    ----------
    response : a chat completion with `logprobs`, or a response of the Responses API with them, as
        its object, its dict or its JSON
    calibrator : name of a shipped one, or file of a run (`artifacts/<run>/calibrators/`), of a
        single-pass estimator

    Raises
    ------
    UserError
        If the response is not one chat completion, or its text has no log-probabilities, or the
        calibrator is unknown or takes something else.

    Examples
    --------
    >>> tokens = [{"token": "####", "logprob": -0.01}, {"token": " 18", "logprob": -0.02}]
    >>> choice = {"message": {"content": "#### 18"}, "logprobs": {"content": tokens}}
    >>> made = score({"choices": [choice]}, "qwen2.5-coder-1.5b__gsm8k__seq_avg__isotonic")
    >>> made.parsed, round(made.raw, 3)
    (True, 0.985)
    """
    path = find_calibrator(calibrator)
    record = read_calibrator_record(path)
    estimator = _find_estimator(record, path.name)
    completion = _decode_completion(response)
    row, reason = _interpret_completion(completion)
    raw = calibrated = 0.0
    outside_range = False
    if row is not None:
        raw = estimator.function(getattr(row, estimator.needs))
        fitted = load_calibrator(path)
        calibrated = float(fitted.predict([raw])[0])
        outside_range = _is_outside(fitted, raw)
    name = completion.get("model")
    model = name if isinstance(name, str) else ""
    fitted_model = record["asking"].get("model", record["model"])
    return CalibratedScore(
        raw=raw,
        calibrated=calibrated,
        parsed=row is not None,
        reason=reason,
        outside_range=outside_range,
        fitted_on=_facts_of(record),
        model=model,
        calibrator_model=fitted_model,
        same_model=model == fitted_model,
    )


def _is_outside(fitted: Calibrator, confidence: float) -> bool:
    """Whether a confidence lies outside those that an isotonic calibrator was fitted to."""
    return isinstance(fitted, Isotonic) and bool(fitted.is_outside([confidence])[0])


def _facts_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a calibrator's file says about its rows."""
    return {key: value for key, value in record.items() if key not in NO_FACTS}


def find_calibrator(name: str | Path) -> Path:
    """Return the file of a calibrator. Raise UserError if there is none.

    Examples
    --------
    >>> find_calibrator("qwen2.5-coder-1.5b__gsm8k__seq_avg__isotonic").suffix
    '.json'
    """
    shipped = {path.stem: path for path in CALIBRATORS.glob("*.json")}
    path = shipped.get(str(name), Path(name))
    if not path.exists():
        raise UserError(f"there is no calibrator '{name}'; {nearest(str(name), shipped)}")
    return path


def _find_estimator(record: dict[str, Any], file: str) -> Estimator:
    """Return a calibrator's estimator. Raise UserError if it needs more than log-probabilities."""
    estimator = ESTIMATORS.get(record["estimator"])
    of_tokens = estimator is not None and estimator.needs in ("response", "answer")
    if estimator is None or not of_tokens or record["input"] != "confidence":
        raise UserError(
            f"{file} does not calibrate a score of a response's tokens: choose an isotonic one, "
            "or give `score_confidence` your own"
        )
    return estimator


# ---- the response


def _decode_completion(response: Any) -> Any:
    """Return a chat completion as JSON has it, from the client's object or its JSON. One of the
    Responses API is brought into this form."""
    if hasattr(response, "model_dump"):
        response = response.model_dump()
    elif isinstance(response, str):
        response = parse_json(response.encode(errors="surrogatepass"), "the response")
    elif isinstance(response, bytes):
        response = parse_json(response, "the response")
    try:
        return as_chat_completion(response)
    except (LookupError, TypeError, AttributeError):
        return response  # which is refused as what it is


def _find_choice(completion: Any) -> dict[str, Any]:
    """Return the only choice of a chat completion. Raise UserError for anything else."""
    match completion:
        case {"choices": [{"message": dict()} as choice]}:
            return choice
    remedy = "give the client's object, its dict or its JSON, asked without `n` and `stream`"
    raise UserError(f"the response is not one chat completion: {remedy}")


def _find_withheld(choice: dict[str, Any]) -> str:
    """Return what a choice says is there in place of an answer; nothing if it does not say so."""
    message = choice["message"]
    if message.get("refusal"):
        return "refusal"
    if message.get("tool_calls") or message.get("function_call"):
        return "tool call"
    return WITHHELD.get(str(choice.get("finish_reason")), "")


def _interpret_completion(completion: Any) -> tuple[InterpretedRow | None, str]:
    """Return a completion as the responses of a run are interpreted, or None with the reason why
    it has no answer.

    Raises
    ------
    UserError
        If it is not one chat completion, or its text has no log-probabilities, or its fields do not
        tell the same.
    """
    choice = _find_choice(completion)
    withheld = _find_withheld(choice)
    if withheld:
        return None, withheld
    row = _interpret_text(completion)
    if row.parsed:
        return row, ""
    is_cut = choice.get("finish_reason") == "length"
    return None, "cut by length" if is_cut else "no answer"


def _interpret_text(completion: dict[str, Any]) -> InterpretedRow:
    """Return the text of a completion as the responses of a run are interpreted. Raise UserError as
    `_interpret_completion`."""
    line = {"custom_id": "", "response": {"body": completion}}
    response = parse_response(json.dumps(line, default=str).encode(), "the response")
    if response.text and not response.pieces:
        raise UserError(
            "the response has no log-probabilities: ask for it with `logprobs: true`, or from the "
            'Responses API with `include: ["message.output_text.logprobs"]`'
        )
    texts = response.pieces[:-1] if response.ended else response.pieces
    thinks = response.thought or response.text.lstrip().startswith("<think>")
    row = SimpleNamespace(
        **locate_answer(texts, thinks),
        token_logprobs=np.minimum(response.logprobs, 0.0),
        eos=response.ended,
        reference="",
    )
    return interpret_row(row, EvaluationChoices())
