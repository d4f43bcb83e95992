"""Responses of a model that is not at hand: what a server's log holds gives the single-pass estimators, and no more."""

import json
import re
import subprocess

import numpy as np
import pandas as pd
import pytest
import synthetic
from architectures import examples
from clone import ENV, copy_of_project, tables
from transformers import AutoTokenizer

from lib import params, store
from lib.analysis.results import Results
from lib.calibrate import fitting, sample_efficiency, transfer
from lib.generate import imported_responses
from lib.paper.claims import CLAIMS
from lib.paper.verdicts import judge
from lib.params import Model, Reading
from lib.paths import ROOT, SHIPPED, UserError
from lib.score.confidence import confidence_frame
from lib.score.interpretation import interpret_responses
from lib.tasks import datasets
from workflow import check, cli
from workflow.run import plan

ANSWERED = [("The", -0.5), (" answer", -0.25), (".\n", 0.0), ("####", -0.1), (" ", -0.2), ("1", -0.3), ("7", -0.4)]
TEXT = "The answer.\n#### 17"
SINGLE = ["seq_avg", "seq_joint", "ans_avg", "ans_joint"]
ASKED = [datasets.Example(name, "evaluation", "How many?", "17") for name in "ab"]


def entries(tokens, **more):
    return [{"token": token, "logprob": logprob} | more for token, logprob in tokens]


def ended(mark):
    return entries([*ANSWERED, (mark, -0.9)])


def row(response, thinking=False):
    spec = Model(label="x", responses="x.jsonl", thinking=thinking)
    return imported_responses.imported_row(spec, ASKED[0], response)


def read(folder, *lines, **more):
    """What a file of these lines says of the questions a and b."""
    path = folder / "demo-easy.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    spec = Model(label="x", responses=str(folder / "{dataset}.jsonl"), **more)
    return imported_responses.ImportedResponses.read(spec, "demo-easy", ASKED)


# ---- what servers write


EURO = [{"token": "", "logprob": -1, "bytes": list(some)} for some in (b"\xe2\x82", b"\xac")]
THOUGHT = entries([("<think>", -1), ("#### 3", -1), ("</think>", -1), *ANSWERED])
WRITTEN = {  # a line; its text, the tokens of its answer, how many there are, whether the last ends it
    "a list": ({"logprobs": entries(ANSWERED)}, (TEXT, 5, 7, 7, 0)),
    "a chat's": ({"logprobs": {"content": entries(ANSWERED, bytes=None, id=5), "refusal": None}}, (TEXT, 5, 7, 7, 0)),
    "an end token": ({"logprobs": ended("</s>")}, (TEXT, 5, 7, 8, 1)),
    "a nameless one": ({"logprobs": ended("")}, (TEXT, 5, 7, 8, 1)),
    "beside the text": ({"logprobs": ended("</s>"), "text": TEXT}, (TEXT, 5, 7, 8, 1)),
    "of a cut response": ({"logprobs": ended("</s>"), "finish_reason": "length"}, (f"{TEXT}</s>", 5, 7, 8, 0)),
    "a mark in the text": ({"logprobs": ended("<b>"), "text": f"{TEXT}<b>"}, (f"{TEXT}<b>", 5, 7, 8, 0)),
    "a character in two tokens": ({"logprobs": EURO + entries(ANSWERED)}, (f"\u20ac{TEXT}", 7, 9, 9, 0)),
    "thinking": ({"logprobs": THOUGHT}, (f"<think>#### 3</think>{TEXT}", 8, 10, 10, 0)),
}  # fmt: skip


@pytest.mark.parametrize("line, expected", WRITTEN.values(), ids=WRITTEN.keys())
def test_tokens_as_servers_write_them(line, expected):
    response = imported_responses.ImportedResponse.model_validate({"example_id": "a"} | line)
    found = row(response, thinking=line["logprobs"] is THOUGHT)
    columns = found["text"], found["answer_start"], found["answer_end"], len(found["token_logprobs"]), found["eos"]
    assert columns == expected and found["answer"] == "17"


LOGGED = {"example_id": "a", "logprobs": entries(ANSWERED)}


def beside(**fields):
    """A right line, and another."""
    return [LOGGED, {"example_id": "b"} | fields]


REFUSED = [
    (beside(logprobs=entries(ANSWERED), token_ids=[1]), "demo-easy.jsonl, line 2.*given as 'text' or as 'token_ids'"),
    (beside(logprobs=entries(ANSWERED), text="#### 18"), "do not make up its 'text'"),
    (beside(logprobs=entries([("a", 0.7)])), "logprobs.0.logprob"),
    (beside(logprobs=entries([("a\ud800", -1)])), "its text holds half of a character"),
    ([LOGGED | {"example_id": "c"}], "no response to 2 of 2 questions, the first 'a'"),
    ([LOGGED, LOGGED], "line 2: 'a' has been answered before"),
    ([{"example_id": "a", "text": "1", "logprobs": None}], "2 of 2 responses, the first to 'a', have no `logprobs`"),
    (beside(text="#### 17"), "1 of 2 responses, the first to 'b', have no `logprobs`, and .* no `source`"),
]


@pytest.mark.parametrize("lines, said", REFUSED)
def test_a_file_that_is_wrong_or_answers_nothing_or_twice_or_needs_the_model_is_refused(tmp_path, lines, said):
    with pytest.raises(UserError, match=said):
        read(tmp_path, *lines)
    if "have no `logprobs`" in said:
        assert len(read(tmp_path, *lines, source="demo/models/tiny-llama").responses) == 2


EMPTY = {
    "of another dataset": {"dataset": "demo-hard", "text": "7"},
    "null": {"logprobs": None},
    "no content": {"logprobs": {"content": []}, "finish_reason": "length"},
    "a text alone": {"text": "#### 17", "logprobs": None},
    "withheld": {"finish_reason": "content_filter", "logprobs": entries(ANSWERED), "text": "The"},
}


@pytest.mark.parametrize("line", EMPTY.values(), ids=EMPTY.keys())
def test_a_question_without_a_response_is_a_row_without_an_answer(tmp_path, line):
    found = read(tmp_path, LOGGED, {"example_id": "b"} | line)
    answered, lost = found.describe_coverage()
    assert "1 of the 2 questions of demo-easy" in answered
    assert "1 without a response, the first 'b': rows without an answer" in lost
    assert found.facts == {"engine": "file", "responses": 1, "model at hand": False, "unanswered": 1}
    kept = store.read_frame(store.write_frame(found.to_frame("m"), tmp_path / "generations" / "m__demo-easy.parquet"))
    scores = confidence_frame(interpret_responses(kept)).set_index("example_id")
    assert sorted(scores.estimator["b"]) == sorted(SINGLE)
    assert scores.correct["a"].all() and not scores.correct["b"].any()
    assert (scores.confidence["b"] < 1e-9).all()


# ---- what becomes of it


def test_single_pass_columns_are_those_of_the_model_itself(tmp_path):
    """Responses of a demo model, and the same from the file that they make, as of a model that is not at hand."""
    shipped = store.read_frame(SHIPPED / "generations" / "tiny-llama__demo-medium.parquet")
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "demo" / "models" / "tiny-llama")
    spec = Model(label="x", responses=str(synthetic.write_responses(shipped, tmp_path / "r.jsonl", tokenizer)))
    found = imported_responses.ImportedResponses.read(spec, "demo-medium", examples("demo-medium"))
    served, keys = found.to_frame("tiny-llama"), [*store.KEYS, "estimator"]
    for choice in {}, {"include_eos": True}, {"grader": "exact"}, {"missing": "drop"}:
        reading = Reading(**choice)
        a, b = (confidence_frame(interpret_responses(frame, reading), reading=reading) for frame in (shipped, served))
        a, b = (frame.sort_values(keys, ignore_index=True) for frame in (a, b))
        assert sorted(set(b.estimator)) == sorted(SINGLE) and len(b) == 4 * 500
        assert a[[*keys, "correct"]].equals(b[[*keys, "correct"]])
        np.testing.assert_allclose(a.confidence, b.confidence, atol=1e-6)


def test_claims_on_temperature_are_not_judged_without_it():
    """Of one pair, whose reliability is no sigmoid: isotonic regression alone."""
    pair = {"model": ["a"], "dataset": ["b"]}
    isotonic = pd.DataFrame(pair | {"method": "isotonic", "estimator": "ans_avg", "metric": "ece", "relative": 0.5})
    rows = pd.DataFrame(pair | {"confident_errors": 1, "curved": 0.01})
    frames = {"calibration_rows": rows, "result_calibration": isotonic}
    results = Results({"a": "A"}, {"b": "B"}, {}, ({}, {}), [], frames, [], {})
    reasons = {claim.name: judge(claim, results).reason for claim in CLAIMS}
    assert reasons["IsotonicMendsCurves"] == "temperature was not fitted: no logits are there"
    assert reasons["CalibrationSubstantial"] == "one of both methods was not fitted"


def test_beside_a_model_that_is_at_hand():
    """One of two models without logits: the other's temperature is fitted as before."""
    here, logged = synthetic.generations(rows=20), synthetic.generations("logged", rows=20)
    for name in ("kept_positions", "chosen_logit", "top_logits", "tail_curve"):
        logged[name] = [[]] * len(logged)
    frame = pd.concat([here, logged], ignore_index=True)
    sets = fitting.calibration_data(frame, synthetic.responses(frame))
    fitted = fitting.fit_answers(sets)
    curves = sample_efficiency.learning_curves(sets, params.Subsampling(calibration_sizes=[10], draws=2))
    calibrated, learned, _ = fitting.calibrate(synthetic.single_pass(frame), sets, fitted)
    for made in (curves, calibrated, transfer.transfer(sets, fitted)):
        assert set(made[made.model == "logged"]["method"]) == {"", "isotonic"}
        assert set(made[made.model != "logged"]["method"]) == {"", "isotonic", "platt"}
    assert "logged" not in {*learned.model, *fitting.token_signals(sets).model}


# ---- the workflow


def test_check_says_it_before_any_work(capsys):
    """A notebook of its own stands for the four that ask the model."""
    planned = plan(cli.check(["check", "demo", "--models", "logged", "--datasets", "demo-logged"]))
    assert planned.absent == ("logged",) and {job.notebook.number for job in planned.jobs if job.model} == {"01b"}
    assert check.main(planned, print) == 0
    said = capsys.readouterr().out
    assert "answers the 40 questions of demo-logged, 40 with log-probabilities" in said
    assert "its weights are not available (its file names no `source`)" in said and "hours" not in said


# ---- the page, and whole runs

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
LINES, SERVED = re.findall("^```jsonl\n(.*?)^```", PAGE, flags=re.M | re.S)
COMMANDS = re.search("^```\n(mkdir.*?)^```", PAGE, flags=re.M | re.S).group(1)


def test_every_line_of_the_page_is_a_response():
    found = [imported_responses.parse_response(line.encode(), "page", 1) for line in (LINES + SERVED).splitlines()]
    assert [bool(one.token_ids) for one in found[:3]] == [False, True, True]
    assert [row(one)["answer"] for one in found[3:]] == ["9", "4", "5", "6"]


@pytest.mark.slow
def test_the_pages_example_as_it_stands_there(tmp_path):
    folder = copy_of_project(tmp_path / "project")
    (folder / "mine").mkdir()
    (folder / "mine" / "responses.jsonl").write_text(SERVED)
    done = subprocess.run(["bash", "-e"], input=COMMANDS, cwd=folder, env=ENV, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mine/responses.jsonl answers the 4 questions of mine, 4 with log-probabilities" in done.stdout
    made = {name: " ".join(text.decode().split()) for name, text in tables(folder).items()}
    assert "My-Model & My-Questions & 0.500" in made["tab_result_estimation.tex"]
    for name in ("tab_result_estimation", "tab_insitu_ptrue", "tab_dropout_grid_search", "tab_result_isotonic"):
        assert "Responses and log-probabilities from a file" in made[f"{name}.tex"], name
