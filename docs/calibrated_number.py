"""A calibrated number for a chat completion, in one file to copy: standard library alone.

    from calibrated_number import score
    raw, calibrated = score(response, "mine__demo-medium__seq_avg__isotonic.json", parsed=True)

The calibrator is a file that this project fitted for Seq Avg or Seq Joint: one of a run
(artifacts/<run>/calibrators/) or a shipped one (lib/calibrate/shipped/). The numbers are those of
`lib.calibrate.one_response.score`, which also finds the answer and says why there is none.
"""

import bisect
import json
import math
import re
from pathlib import Path

END_TOKEN = re.compile(r"(<[^<>\s]+>)?")  # <|im_end|>, </s>, or no text at all


def score(response, calibrator, parsed):
    """Return the confidence in a response: raw, and calibrated.

    Parameters
    ----------
    response : a chat completion, asked with `logprobs=True`: the client's object, a dict or JSON
    calibrator : path of a calibrator's file (isotonic regression of Seq Avg or Seq Joint)
    parsed : whether your program found an answer in it; without one both numbers are 0

    Raises
    ------
    ValueError
        If the response has no log-probabilities, or the calibrator is of another kind.
    """
    if not parsed:
        return 0.0, 0.0
    record = json.loads(Path(calibrator).read_text(encoding="utf-8"))
    if record["method"] != "isotonic" or record["estimator"] not in ESTIMATORS:
        raise ValueError(f"{calibrator} is not an isotonic calibrator of seq_avg or seq_joint")
    raw = ESTIMATORS[record["estimator"]](token_logprobs(response))
    learned = record["attributes"]
    if learned["constant_"] is not None:  # it was fitted on rows of one class
        return raw, learned["constant_"]
    return raw, interpolate(raw, learned["x_"], learned["y_"])


def token_logprobs(response):
    """Return the natural log-probabilities of a response's tokens, without its end token."""
    if isinstance(response, (str, bytes)):
        response = json.loads(response)
    if hasattr(response, "model_dump"):
        response = response.model_dump()
    choice = response["choices"][0]
    text = choice["message"].get("content") or ""
    tokens = (choice.get("logprobs") or {}).get("content") or []
    if not tokens:
        raise ValueError("the response has no log-probabilities: ask for it with logprobs=True")
    if choice["message"].get("reasoning_content") or choice["message"].get("reasoning"):
        raise ValueError("a thinking that the server took out needs the project's own `score`")
    last = tokens[-1]["token"]
    listed_apart = END_TOKEN.fullmatch(last) and not (last and text.endswith(last))
    if choice.get("finish_reason") == "stop" and listed_apart:
        tokens = tokens[:-1] or tokens
    return [min(token["logprob"], 0.0) for token in tokens]


def seq_avg(logprobs):
    """Return the mean probability of the tokens."""
    return math.fsum(math.exp(logprob) for logprob in logprobs) / len(logprobs)


def seq_joint(logprobs):
    """Return the geometric mean of the probabilities of the tokens."""
    return math.exp(math.fsum(logprobs) / len(logprobs))


ESTIMATORS = {"seq_avg": seq_avg, "seq_joint": seq_joint}


def interpolate(x, xs, ys):
    """Return y at x on the line through the points (xs, ys), xs increasing; the end's beyond."""
    right = bisect.bisect_right(xs, x)
    if right == 0:
        return ys[0]
    if right == len(xs):
        return ys[-1]
    x0, x1 = xs[right - 1 : right + 1]
    y0, y1 = ys[right - 1 : right + 1]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
