"""Responses of a model that is not at hand: what a server's log holds gives the single-pass estimators, and no more."""

import json
import re
import subprocess

import numpy as np
import pandas as pd
import pytest
import synthetic
from clone import ENV, copy_of_project, tables
from playing import SHIPPED_ONLY, play
from transformers import AutoTokenizer

from lib import params, store
from lib.analysis.results import Results
from lib.calibrate import fitting, sample_efficiency, transfer
from lib.generate import imported_responses
from lib.paper import footnotes
from lib.paper.claims import CLAIMS
from lib.paper.verdicts import judge
from lib.params import Model, Reading
from lib.paths import ROOT, SHIPPED, UserError
from lib.score.confidence import confidence_frame
from lib.score.interpretation import interpret_responses
from lib.tasks import datasets
from workflow import check, cli, pipeline, usable
from workflow.run import plan

ANSWERED = [("The", -0.5), (" answer", -0.25), (".\n", 0.0), ("####", -0.1), (" ", -0.2), ("1", -0.3), ("7", -0.4)]
SINGLE = ["seq_avg", "seq_joint", "ans_avg", "ans_joint"]


def entries(tokens, **more):
    return [{"token": token, "logprob": logprob} | more for token, logprob in tokens]


def response(logprobs, **more):
    return imported_responses.ImportedResponse.model_validate({"example_id": "a", "logprobs": logprobs} | more)


def row(found, thinking=False):
    spec = Model(label="x", responses="x.jsonl", thinking=thinking)
    return imported_responses.imported_row(spec, datasets.Example("a", "evaluation", "How many?", "17"), found)


def spec_with(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Model(label="x", responses=str(path))


# ---- what servers write


@pytest.mark.parametrize(
    "logprobs",
    [
        entries(ANSWERED),
        {"content": entries(ANSWERED, bytes=None, top_logprobs=[])},  # a chat completion's
        {"content": entries(ANSWERED), "refusal": None},
        [
            entry | {"id": 5, "bytes": list(entry["token"].encode())} for entry in entries(ANSWERED)
        ],  # with ids and bytes
    ],
    ids=["a list", "chat completions", "with more", "bytes"],
)
def test_lists_of_tokens_as_servers_write_them(logprobs):
    found = row(response(logprobs))
    assert (found["text"], found["answer"], found["answer_start"], found["answer_end"]) == (
        "The answer.\n#### 17",
        "17",
        5,
        7,
    )
    np.testing.assert_allclose(found["token_logprobs"], [logprob for _, logprob in ANSWERED])
    assert (found["eos"], found["finish_reason"], found["plain"]) == (0, "stop", True)


@pytest.mark.parametrize("mark", ["</s>", "<|im_end|>", ""])
def test_an_end_token_is_no_part_of_the_response(mark):
    for more in {}, {"text": "The answer.\n#### 17"}:
        found = row(response(entries([*ANSWERED, (mark, -0.9)]), **more))
        assert found["eos"] == 1 and found["text"].endswith("17") and len(found["token_logprobs"]) == 8
    cut = row(response(entries([*ANSWERED, (mark, -0.9)]), finish_reason="length"))
    assert cut["eos"] == 0 and cut["text"].endswith(f"17{mark}")


def test_a_mark_that_the_text_ends_in_is_text():
    assert row(response(entries([*ANSWERED, ("<b>", -0.9)]), text="The answer.\n#### 17<b>"))["eos"] == 0


def test_a_character_in_several_tokens():
    parts = [{"token": "\\xe2\\x82", "logprob": -1, "bytes": [0xE2, 0x82]},
             {"token": "\\xac", "logprob": -2, "bytes": [0xAC]}]  # fmt: skip
    found = response([*parts, *entries(ANSWERED)])
    assert found.pieces[:2] == ["", "\u20ac"] and row(found)["text"] == "\u20acThe answer.\n#### 17"


def test_thinking_is_told_from_the_answer():
    thought = [("<think>", -1), ("#### 3", -1), ("</think>", -1), *ANSWERED]
    found = row(response(entries(thought)), thinking=True)
    assert (found["answer"], found["thinking_end"]) == ("17", 3)


WRONG = {
    "no tokens but others": ({"logprobs": {"tokens": ["a"]}}, "logprobs"),
    "ids too": ({"logprobs": entries(ANSWERED), "token_ids": [1]}, "given as 'text' or as 'token_ids'"),
    "another text": ({"logprobs": entries(ANSWERED), "text": "#### 18"}, "do not make up its 'text'"),
    "no probability": ({"logprobs": entries([("a", 0.7)])}, "logprobs.0.logprob"),
    "not a number": ({"logprobs": entries([("a", None)])}, "logprobs.0.logprob"),
    "a misspelt entry": ({"logprobs": [{"text": "a", "logprob": 0}]}, "'logprobs.0.token' is missing"),
    "half a character": ({"logprobs": entries([("a\ud800", -1)])}, "its text holds half of a character"),
    "half in its text": ({"text": "\udfff"}, "its text holds half of a character"),
    "a misspelt key": ({"example": "a", "text": "7"}, "there is no parameter 'example'; did you mean 'exam"),
    "a reason of its own": ({"text": "7", "finish_reason": "stopped"}, "did you mean 'stop'"),
}


@pytest.mark.parametrize("line, said", WRONG.values(), ids=WRONG.keys())
def test_a_malformed_line_is_named(tmp_path, line, said):
    right = {"example_id": "b", "logprobs": entries(ANSWERED)}
    spec = spec_with(tmp_path / "r.jsonl", right, {"example_id": "a"} | line)
    with pytest.raises(UserError, match=f"r.jsonl, line 2.*{said}"):
        imported_responses.ImportedResponses.read(spec, "demo-easy", [])


def test_responses_without_log_probabilities_need_the_model(tmp_path):
    examples = [datasets.Example(name, "evaluation", "How many?", "17") for name in "ab"]
    lines = [{"example_id": "a", "logprobs": entries(ANSWERED)}, {"example_id": "b", "text": "#### 17"}]
    spec = spec_with(tmp_path / "r.jsonl", *lines)
    with pytest.raises(UserError, match="1 of 2 responses, the first to 'b', have no `logprobs`, and .* no `source`"):
        imported_responses.ImportedResponses.read(spec, "demo-easy", examples)
    here = spec.model_copy(update={"source": "demo/models/tiny-llama"})
    assert len(imported_responses.ImportedResponses.read(here, "demo-easy", examples).responses) == 2


EMPTY = {
    "no line": None,
    "neither": {},
    "null": {"logprobs": None},
    "no content": {"logprobs": {"content": []}, "finish_reason": "length"},
    "refused": {"logprobs": {"content": None, "refusal": []}},
    "an empty text": {"text": "", "logprobs": None},
    "a text alone": {"text": "#### 17", "logprobs": None},
    "withheld": {"finish_reason": "content_filter", "logprobs": {"content": None}},
    "withheld in the midst": {"finish_reason": "content_filter", "logprobs": entries(ANSWERED), "text": "The"},
}


@pytest.mark.parametrize("line", EMPTY.values(), ids=EMPTY.keys())
def test_a_question_without_a_response_is_a_row_without_an_answer(tmp_path, line):
    examples = [datasets.Example(name, "evaluation", "How many?", "17") for name in "ab"]
    lines = [] if line is None else [{"example_id": "b"} | line]
    spec = spec_with(tmp_path / "r.jsonl", {"example_id": "a", "logprobs": entries(ANSWERED)}, *lines)
    found = imported_responses.ImportedResponses.read(spec, "demo-easy", examples)
    said = ["1 of the 2 questions of demo-easy", "1 without a response, the first 'b': rows without an answer"]
    told = found.describe_coverage()
    assert all(part in text for part, text in zip(said, told, strict=True))
    frame = found.to_frame("m")
    lost = frame.iloc[1]
    assert (lost.text, lost.finish_reason, lost.eos, len(lost.token_logprobs)) == ("", "stop", 1, 1)
    assert pd.isna(lost[["answer", "boxed", "last_number"]]).all()
    kept = store.read_frame(store.write_frame(frame, tmp_path / "generations" / "m__demo-easy.parquet"))
    scores = confidence_frame(interpret_responses(kept))
    assert not scores[scores.example_id == "b"].correct.any() and scores[scores.example_id == "a"].correct.all()
    assert (scores[scores.example_id == "b"].confidence < 1e-9).all() and len(scores) == 2 * len(SINGLE)
    facts = {"engine": "file", "responses": 1, "model at hand": False, "unanswered": 1}
    assert found.facts == facts


@pytest.mark.parametrize(
    "lines, said",
    [
        ([{"example_id": "c", "logprobs": entries(ANSWERED)}], "no response to 2 of 2 questions, the first 'a'"),
        ([{"example_id": name, "logprobs": None} for name in "ab"], "no response to 2 of 2 questions, the first 'a'"),
        (
            [{"example_id": "a", "text": "1", "logprobs": None}],
            "2 of 2 responses, the first to 'a', have no `logprobs`",
        ),
    ],
    ids=["others", "all empty", "no log-probabilities"],
)
def test_a_file_that_answers_nothing_is_refused(tmp_path, lines, said):
    examples = [datasets.Example(name, "evaluation", "How many?", "17") for name in "ab"]
    with pytest.raises(UserError, match=said):
        imported_responses.ImportedResponses.read(spec_with(tmp_path / "r.jsonl", *lines), "demo-easy", examples)


def test_a_model_needs_a_source_or_responses():
    assert not Model(label="x", responses="mine.jsonl").at_hand and Model(label="x", source="a/b").at_hand
    given = {"responses": "r.jsonl"}
    for wrong in {}, given | {"gguf": "a.gguf", "sha256": "0" * 64}, given | {"revision": "1"}:
        with pytest.raises(ValueError, match="'source' is missing"):
            Model(label="x", **wrong)
    assert Model(label="x", responses="mine.jsonl").model_dump()["source"] == ""


# ---- what becomes of it


@pytest.fixture(scope="module")
def shipped():
    """Responses of a demo model, and the same from the file that they make, as of a model that is not at hand."""
    return store.read_frame(SHIPPED / "generations" / "tiny-llama__demo-medium.parquet")


@pytest.fixture(scope="module")
def served(shipped, tmp_path_factory):
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "demo" / "models" / "tiny-llama")
    path = synthetic.write_responses(shipped, tmp_path_factory.mktemp("served") / "demo-medium.jsonl", tokenizer)
    spec, examples = (
        Model(label="x", responses=str(path)),
        datasets.load_examples(params.load_dataset_config("demo-medium")),
    )
    found = imported_responses.ImportedResponses.read(spec, "demo-medium", examples)
    return found.to_frame("tiny-llama")


@SHIPPED_ONLY
@pytest.mark.parametrize("choice", [{}, {"include_eos": True}, {"grader": "exact"}, {"missing": "drop"}], ids=str)
def test_single_pass_columns_are_those_of_the_model_itself(shipped, served, choice):
    reading = Reading(**choice)
    a, b = (confidence_frame(interpret_responses(frame, reading), reading=reading) for frame in (shipped, served))
    keys = [*store.KEYS, "estimator"]
    a, b = (frame.sort_values(keys, ignore_index=True) for frame in (a, b))
    assert sorted(set(b.estimator)) == sorted(SINGLE) and len(b) == 4 * 500
    assert a[[*keys, "correct"]].equals(b[[*keys, "correct"]])
    np.testing.assert_allclose(a.confidence, b.confidence, atol=1e-6)


@pytest.mark.parametrize("name, said", [
    ("IsotonicMendsCurves", "temperature was not fitted: no logits are there"),
    ("CalibrationSubstantial", "one of both methods was not fitted")])  # fmt: skip
def test_claims_on_temperature_are_not_judged_without_it(name, said):
    """Of one pair, whose reliability is no sigmoid: isotonic regression alone."""
    known = {"model": "a", "dataset": "b"}
    one = known | {"method": "isotonic", "estimator": "ans_avg", "metric": "ece", "value": 0.1, "relative": 0.5}
    frames = {"calibration_rows": pd.DataFrame([known | {"confident_errors": 1, "curved": 0.01}]),
              "result_calibration": pd.DataFrame([one])}  # fmt: skip
    claim = next(claim for claim in CLAIMS if claim.name == name)
    assert judge(claim, Results({"a": "A"}, {"b": "B"}, {}, ({}, {}), [], frames, [], {})).reason == said


def test_beside_a_model_that_is_at_hand():
    """One of two models without logits: the other's temperature is fitted as before."""
    frame = pd.concat([synthetic.generations(rows=20), synthetic.generations(rows=20).assign(model="logged")])
    without = {"kept_positions": np.zeros(0, int), "chosen_logit": [], "top_logits": [], "tail_curve": []}
    for name, value in without.items():
        frame[name] = [value if model == "logged" else old for model, old in zip(frame.model, frame[name], strict=True)]
    frame = frame.reset_index(drop=True)
    sets = fitting.calibration_data(frame, synthetic.responses(frame))
    fitted = fitting.fit_answers(sets)
    has = {pair[0]: set(methods) for pair, methods in fitted.items()}
    assert has.pop("logged") == {"isotonic"} and set.union(*has.values()) == {"isotonic", "platt"}
    curves = sample_efficiency.learning_curves(sets, params.Subsampling(calibration_sizes=[10], draws=2))
    calibrated, learned, _ = fitting.calibrate(synthetic.single_pass(frame), sets, fitted)
    moved = transfer.transfer(sets, fitted)
    for made in (curves, calibrated, moved):
        assert set(made[made.model == "logged"]["method"]) == {"", "isotonic"}
    assert "logged" not in {*learned.model, *fitting.token_signals(sets).model}
    assert "platt" in set(moved[moved.model != "logged"]["method"])


def test_a_line_says_what_stays_empty():
    loaded = {"revision": None, "device": "cpu", "dtype": "float32", "source": "a/b"}
    lines = footnotes.made([("Here", {"loaded": loaded, "rows": 2}), ("Logged", {"drawn": {"engine": "file"}})])
    assert lines[0] == "Made on cpu, float32: Here (a/b)."
    assert "P(True), passes with dropout and temperature" in lines[1] and lines[1].endswith("Logged.")


# ---- the workflow


def test_a_notebook_of_its_own_stands_for_the_four_that_ask_the_model():
    run = pipeline.Run("x", {"models": ["a", "b"], "datasets": ["c"]}, absent=("b",))
    numbers = {model: [job.notebook.number for job in run.jobs if job.model == model] for model in ("a", "b")}
    assert numbers == {"a": ["01", "03", "04", "04b"], "b": ["01b"]}
    read = run.job("08_tables").inputs
    assert "artifacts/x/generations/b__c.parquet" in read and "artifacts/x/verification/b__c.parquet" not in read


def test_check_says_it_before_any_work(capsys):
    planned = plan(cli.check(["check", "demo", "--models", "logged", "--datasets", "demo-logged"]))
    assert planned.absent == ("logged",)
    assert check.main(planned, print) == 0
    said = capsys.readouterr().out
    assert "answers the 40 questions of demo-logged, 40 with log-probabilities" in said
    assert "its weights are not available (its file names no `source`)" in said and "hours" not in said
    other = plan(cli.check(["check", "demo", "--models", "logged", "--datasets", "demo-easy"]))
    (reason,) = usable.find_unusable(other, ["logged"])
    assert "no response to 500 of 500 questions" in reason


def test_the_notebook_by_itself(monkeypatch, tmp_path):
    space, shown = play("01b", monkeypatch, tmp_path)
    assert len(space["frame"]) == 40 and "engine" in str(shown[-1])
    with pytest.raises(UserError, match="no response to 500 of 500"):
        play("01b", monkeypatch, tmp_path, dataset="demo-medium")


# ---- the page, and whole runs

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
LINES, SERVED = re.findall("^```jsonl\n(.*?)^```", PAGE, flags=re.M | re.S)
COMMANDS = re.search("^```\n(mkdir.*?)^```", PAGE, flags=re.M | re.S).group(1)


def test_every_line_of_the_page_is_a_response():
    found = [imported_responses.parse_response(line.encode(), "page", 1) for line in (LINES + SERVED).splitlines()]
    assert [bool(one.token_ids) for one in found[:3]] == [False, True, True]
    rows = [row(one) for one in found[3:]]
    assert [one["answer"] for one in rows] == ["9", "4", "5", "6"] and [one["eos"] for one in rows] == [0, 0, 1, 0]
    assert rows[3]["finish_reason"] == "length"


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
