"""A calibrated number for one response: 0 and the reason without an answer, and its range."""

import hashlib
import json
import re

import numpy as np
import pytest
from served import completion

from docs.benchmarks.shipped_calibrators import compare
from docs.tables.calibrators import load_scores
from lib.calibrate.calibrator_files import calibrator_record
from lib.calibrate.calibrators import METHODS, Isotonic, Platt
from lib.calibrate.fit_methods import Fit
from lib.calibrate.one_response import CALIBRATORS, score, score_confidence
from lib.errors import UserError
from lib.paths import ROOT
from lib.tasks.prompts import question_messages

SHIPPED = (
    "qwen2.5-coder-1.5b__gsm8k__seq_avg__isotonic",
    "qwen2.5-coder-1.5b__gsmhard__ans_avg__isotonic",
)
CALL = [{"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]


def respond(text, finish_reason="stop", logprob=-1e-6, **message):
    """A chat completion whose tokens all have this log-probability; `message` has further
    fields."""
    body = completion(text)
    (choice,) = body["choices"]
    for token in choice["logprobs"]["content"]:
        token["logprob"] = logprob
    choice["finish_reason"] = finish_reason
    choice["message"] |= message
    return body


WITHOUT_ANSWER = {
    "a refusal as text": (respond("I cannot help with that."), "no answer"),
    "a refusal as field": (respond("", content=None, refusal="I cannot help."), "refusal"),
    "a refusal beside an answer": (respond("#### 7", refusal="I cannot help."), "refusal"),
    "nothing": (respond(""), "no answer"),
    "cut by length": (respond("We add 3 and 4, that is", "length"), "cut by length"),
    "nothing, cut": (respond("", "length"), "cut by length"),
    "content filter": (respond("We add", "content_filter"), "content filter"),
    "content filter after an answer": (respond("#### 7 and", "content_filter"), "content filter"),
    "tool call": (respond("", "tool_calls", content=None, tool_calls=CALL), "tool call"),
    "tool call that stops": (respond("#### 7", tool_calls=CALL), "tool call"),
    "tool call whose tokens are no text": (
        respond('{"a": 7}', content="", tool_calls=CALL),
        "tool call",
    ),
    "an older function call": (
        respond("", "function_call", function_call={"name": "add"}),
        "tool call",
    ),
    "two numbers": (respond("The answer is #### 5 or 6"), "no answer"),
    "the mark alone": (respond("We add. ####"), "no answer"),
    "words after the mark": (respond("We add. #### I do not know"), "no answer"),
    "a number without the mark": (respond("The answer is 7."), "no answer"),
    "thinking that never ends": (respond("<think> 3 and 4 #### 7", "length"), "cut by length"),
    "thinking that never ends and stops": (respond("<think> 3 and 4 #### 7"), "no answer"),
    "thinking alone": (respond("3 and 4", content="", reasoning_content="3 and 4"), "no answer"),
    "words after the thinking": (respond("<think> #### 7 </think> It is seven."), "no answer"),
}


@pytest.mark.parametrize("kind", WITHOUT_ANSWER)
@pytest.mark.parametrize("calibrator", SHIPPED)
def test_a_response_without_an_answer_is_not_right(kind, calibrator):
    body, reason = WITHOUT_ANSWER[kind]
    for response in body, json.dumps(body):
        scored = score(response, calibrator)
        assert scored[:5] == (0, 0, False, reason, False)
        assert scored.fitted_on["model"] == "qwen2.5-coder-1.5b"


@pytest.mark.parametrize(
    "text, message",
    [
        ("We add. #### 7", {}),
        ("We add. #### 7", {"refusal": None, "tool_calls": [], "function_call": None}),
        ("<think> 5 or 6 </think> #### 7", {}),
    ],
)
@pytest.mark.parametrize("finish_reason", ["stop", "length", None])
def test_a_response_with_an_answer_gets_a_number(text, message, finish_reason):
    """However it ends, as in the data: an answer that a cut response has already given counts."""
    scored = score(respond(text, finish_reason, logprob=-0.2, **message), SHIPPED[0])
    assert scored.raw == pytest.approx(np.exp(-0.2))
    assert 0 < scored.calibrated < 1 and scored.parsed and scored.reason == ""


@pytest.mark.parametrize(
    "response, message",
    [
        ({}, "is not one chat completion"),
        (None, "is not one chat completion"),
        ([respond("#### 7")], "is not one chat completion"),
        ({"error": {"message": "busy"}}, "is not one chat completion"),
        ({"choices": respond("#### 7")["choices"] * 2}, "is not one chat completion"),
        ({"choices": [{"delta": {"content": "####"}}]}, "is not one chat completion"),
        (json.dumps(respond("#### 7"))[:99], "not JSON"),
        (respond("#### 7", content="#### 8"), "do not make up its 'text'"),
        (
            {"choices": [{"message": {"content": "No."}, "finish_reason": "stop"}]},
            "has no log-probabilities",
        ),
    ],
)
def test_what_is_no_response_is_one_line(response, message):
    with pytest.raises(UserError, match=f"^[^\n]*{message}[^\n]*$"):
        score(response, SHIPPED[0])


# ---- the model, and how it was asked


def test_both_models_are_named_and_none_is_refused():
    (path,) = CALIBRATORS.glob(f"{SHIPPED[0]}.json")
    fitted = json.loads(path.read_text())["asking"]["model"]
    assert fitted == "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"
    for body in respond("#### 7", logprob=-0.2), respond("No."):
        for model, same in {fitted: True, "renamed": False, "": False}.items():
            scored = score(body | {"model": model}, SHIPPED[0])
            assert (scored.model, scored.calibrator_model) == (model, fitted)
            assert scored.same_model is same
    assert score({"choices": body["choices"]}, SHIPPED[0]).model == ""


def test_a_calibrator_tells_how_its_rows_were_asked():
    """As the manifest of its responses does; the digest is that of the messages."""
    record = json.loads((CALIBRATORS / f"{SHIPPED[0]}.json").read_text())
    folder = ROOT / "artifacts" / "shipped" / "small" / "generations"
    manifest = json.loads((folder / "qwen2.5-coder-1.5b__gsm8k.json").read_text())
    asking = record["asking"]
    assert asking["decoding"] == {
        "temperature": 0.6, "top_p": 1.0, "top_k": -1, "min_p": 0.0,
        "thinking": False, "max_new_tokens": manifest["parameters"]["max_new_tokens"],
    }  # fmt: skip
    assert asking["revision"] == manifest["model"]["revision"]
    assert asking["demonstration"] == "few"
    messages = json.dumps(question_messages("", False, "few"), sort_keys=True)
    assert asking["prompt_sha256"] == hashlib.sha256(messages.encode()).hexdigest()
    assert 200 < record["n"] <= 300
    assert score(respond("#### 7"), SHIPPED[0]).fitted_on["asking"] == asking


# ---- a confidence of any kind


def test_a_confidence_is_calibrated_alone(tmp_path):
    """By hand: isotonic regression as above; Platt scaling by a = 1 and b = 0 changes nothing."""
    isotonic = Isotonic().fit([0.5, 0.6, 0.7, 0.8], [0, 0, 1, 1])
    platt = Platt().fit([-1.0, 1.0, -1.0, 1.0], [0, 1, 1, 0])
    platt.a_, platt.b_ = 1.0, 0.0
    scores = {"isotonic": {0.45: 0, 0.65: 0.5, 0.8: 1}, "platt": {0.25: 0.25, 0.9: 0.9, 1.0: 1}}
    for kind, fitted in {"confidence": isotonic, "margin": platt}.items():
        method = METHODS[type(fitted).__name__.lower()]
        record = calibrator_record(Fit(("", "table"), "stated, %", method, kind, fitted))
        path = tmp_path / f"{method.name}.json"
        path.write_text(json.dumps(record))
        for raw, calibrated in scores[method.name].items():
            scored = score_confidence(raw, path)
            assert scored.raw == raw
            assert scored.calibrated == pytest.approx(calibrated, abs=1e-5)
            assert scored.outside_range is (raw == 0.45)
            assert scored.fitted_on["estimator"] == "stated, %"
        for outside in (-0.01, 1.01, float("nan")):
            with pytest.raises(UserError, match="a confidence lies in"):
                score_confidence(outside, path)
    with pytest.raises(UserError, match="or give `score_confidence` your own"):
        score(respond("#### 7"), path)


# ---- the range of the fitted scores


def test_a_score_outside_the_fitted_ones_is_told(tmp_path):
    """By hand, of a run's own calibrator: scores from .5 to .8, right from .7 on; .65 is half."""
    fitted = Isotonic().fit([0.5, 0.6, 0.7, 0.8], [0, 0, 1, 1])
    record = calibrator_record(
        Fit(("m", "d"), "seq_avg", METHODS["isotonic"], "confidence", fitted)
    )
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(record))
    for raw, calibrated, outside in [
        (0.45, 0, True),
        (0.55, 0, False),
        (0.65, 0.5, False),
        (0.75, 1, False),
        (0.85, 1, True),
    ]:
        scored = score(respond("We add. #### 7", logprob=np.log(raw)), path)
        assert scored.raw == pytest.approx(raw)
        assert scored.calibrated == pytest.approx(calibrated)
        assert scored.outside_range is outside
    assert score(respond("No."), path).reason == "no answer"


def test_the_ends_of_the_range_are_inside():
    fitted = Isotonic().fit([0.8, 0.5, 0.6], [1, 0, 1])
    assert fitted.is_outside([0.49, 0.81]).tolist() == [True, True]
    assert fitted.is_outside([0.5, 0.6, 0.8]).tolist() == [False] * 3
    assert Isotonic().fit([], []).is_outside([0.5]).tolist() == [True]


def test_a_shipped_calibrator_tells_the_range_too():
    """Seq Avg of the 1.5B on GSM8K is never below .3."""
    assert score(respond("We add. #### 7", logprob=np.log(0.3)), SHIPPED[0]).outside_range
    assert not score(respond("We add. #### 7", logprob=np.log(0.9)), SHIPPED[0]).outside_range


# ---- the shipped calibrators


def test_shipped_calibrators_promise_nothing_for_certain():
    for path in CALIBRATORS.glob("*.json"):
        values = np.array(json.loads(path.read_text())["attributes"]["y_"])
        assert (values > 0).all(), path.name
        assert (values < 1).all(), path.name
        assert (np.diff(values) >= 0).all(), path.name


def ece_by_a_loop(scores, correct):
    """Ten bins, which hold their right edge."""
    gaps = np.zeros(10)
    for value, right in zip(scores, correct, strict=True):
        number = max(int(np.ceil(10 * value)) - 1, 0)
        gaps[number] += right - value
    return np.abs(gaps).sum() / len(scores)


def test_the_facts_of_a_shipped_calibrator_are_of_all_responses():
    """Evaluation rows without an answer are at 0, and wrong."""
    path = CALIBRATORS / "qwen2.5-coder-0.5b__svamp__ans_avg__isotonic.json"
    record = json.loads(path.read_text())
    rows = load_scores()
    rows = rows[
        (rows.model == "qwen2.5-coder-0.5b")
        & (rows.dataset == "svamp")
        & (rows.estimator == "ans_avg")
    ]
    fitted = rows[(rows.split == "calibration") & rows.parsed]
    evaluation = rows[rows.split == "evaluation"]
    assert record["n"] == len(fitted) < 300
    knots = record["attributes"]["x_"]
    assert knots[0] == fitted.confidence.min()
    assert knots[-1] == fitted.confidence.max()

    assert len(evaluation) == 300
    assert not evaluation.correct[~evaluation.parsed].any()
    calibrated = np.interp(evaluation.confidence, knots, record["attributes"]["y_"])
    calibrated[~evaluation.parsed] = 0
    correct = evaluation.correct.to_numpy(float)
    raw_error = ece_by_a_loop(evaluation.confidence, correct)
    assert record["ece"] == pytest.approx(raw_error, abs=1e-4)
    assert record["ece_calibrated"] == pytest.approx(ece_by_a_loop(calibrated, correct), abs=1e-4)


def test_the_guide_quotes_the_benchmark():
    guide = (ROOT / "docs" / "extending.md").read_text()
    row = r"^\|[^|]+\| (\.\d+) \| (\.\d+) \| (\.\d+) \| (\d+) \|$"
    quoted = re.findall(row, guide, re.M)
    rows = compare()
    rows = rows[rows.estimator == "ans_avg"].set_index(["method", "responses"])
    row_keys = [("plain", "all"), ("smoothed", "all"), ("smoothed", "with an answer")]
    figures = rows.loc[row_keys, ["log-loss", "Brier", "ECE", "certain"]].to_numpy()
    assert np.array(quoted, float) == pytest.approx(figures, abs=0.0005)
