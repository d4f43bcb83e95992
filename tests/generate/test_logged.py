"""Responses of a model that is not at hand: what a server's log holds gives the single-pass estimators, and no more."""

import json
import re
import subprocess

import architectures
import numpy as np
import pandas as pd
import pytest
import synthetic
from architectures import SETTINGS, examples
from clone import ENV, copy_of_project, tables
from transformers import AutoTokenizer

from lib import params, store
from lib.analysis.results import Results
from lib.calibrate import experiments, fitting
from lib.generate import generation, imported_responses, p_true, response_files
from lib.paper.verdicts import CLAIMS, judge
from lib.params import EvaluationChoices, Model
from lib.paths import ROOT, SHIPPED, UserError
from lib.score.confidence import confidence_frame
from lib.score.interpretation import interpret_responses
from lib.tasks import answers, datasets
from workflow import check, cli
from workflow.run import plan

ANSWERED = [("The", -0.5), (" answer", -0.25), (".\n", 0.0), ("####", -0.1), (" ", -0.2), ("1", -0.3), ("7", -0.4)]
TEXT = "The answer.\n#### 17"
SINGLE = ["seq_avg", "seq_joint", "ans_avg", "ans_joint"]
ASKED = [datasets.Example(name, "evaluation", "How many?", "17") for name in "ab"]


def entries(tokens, **more):
    return [{"token": token, "logprob": logprob} | more for token, logprob in tokens]


def write(folder, *lines):
    path = folder / "demo-easy.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(folder, *lines, **more):
    """What a file of these lines says of the questions a and b."""
    write(folder, *lines)
    spec = Model(label="x", responses=str(folder / "{dataset}.jsonl"), **more)
    return imported_responses.ImportedResponses.read(spec, "demo-easy", ASKED)


# ---- what a file says


LOGGED = {"example_id": "a", "logprobs": entries(ANSWERED)}


def beside(**fields):
    """A right line, and another."""
    return [LOGGED, {"example_id": "b"} | fields]


TEXT_ALONE = "1 of 2 responses, the first to 'b', have no `logprobs`, and .* no `source`.*: leave them out"
REFUSED = [
    ([LOGGED | {"example_id": "c"}], "no response to 2 of 2 questions, the first 'a'"),
    (
        [{"example_id": "a", "finish_reason": "failed"}],
        "no response to 2 of 2 questions, the first 'a'; there is: nothing",
    ),
    ([LOGGED, LOGGED], "line 2: 'a' has been answered before"),
    (beside(text="#### 17"), TEXT_ALONE),
    (beside(text="#### 17", logprobs=None), TEXT_ALONE),
    (beside(text="#### 17", logprobs={"content": []}), TEXT_ALONE),
    (beside(token_ids=[5]), TEXT_ALONE),
]


@pytest.mark.parametrize("lines, said", REFUSED)
def test_a_file_that_answers_nothing_or_twice_or_needs_the_model_is_refused(tmp_path, lines, said):
    with pytest.raises(UserError, match=said):
        read(tmp_path, *lines)
    if said.endswith(TEXT_ALONE):
        assert read(tmp_path, *lines, source="demo/models/tiny-llama").facts["responses"] == 2


def batch(**answer):
    return {"custom_id": "b", "example_id": None, "error": None, "response": answer}


MISSING = "are missing: rows without an answer, which count as wrong"
EMPTY = {  # a line of b; whether it tells why there is no response
    "of another dataset": ({"dataset": "demo-hard", "text": "7"}, False),
    "null": ({"logprobs": None}, False),
    "no content": ({"logprobs": {"content": []}, "finish_reason": "length"}, False),
    "an empty text": ({"text": "", "logprobs": None}, False),
    "withheld": ({"finish_reason": "content_filter", "logprobs": entries(ANSWERED), "text": "The"}, True),
    "a tool": ({"finish_reason": "tool_calls", "logprobs": entries(ANSWERED)}, True),
    "failed": (batch(status_code=500, body={"error": {"message": "overloaded"}}), True),
}


@pytest.mark.parametrize("line, told", EMPTY.values(), ids=EMPTY.keys())
def test_a_question_without_a_response_is_a_row_without_an_answer(tmp_path, line, told):
    found, why = read(tmp_path, LOGGED, {"example_id": "b"} | line), [response_files.LOST] * told
    answered, *lost = found.describe_coverage()
    assert "1 of the 2 questions of demo-easy" in answered
    assert lost == [f"1 of 2 responses, the first to 'b', {reason}" for reason in [MISSING, *why]]
    counted = dict.fromkeys([MISSING, *why], 1)
    assert found.facts == {"engine": "file", "responses": 1, "model at hand": False} | counted
    kept = store.read_frame(store.write_frame(found.to_frame("m"), tmp_path / "generations" / "m__demo-easy.parquet"))
    scores = confidence_frame(interpret_responses(kept)).set_index("example_id")
    assert sorted(scores.estimator["b"]) == sorted(SINGLE)
    assert scores.correct["a"].all() and not scores.correct["b"].any()
    assert (scores.confidence["b"] < 1e-9).all()


CUT = entries([*ANSWERED, ("\n\nQ", -1)])
COUNTED = [
    ({"logprobs": entries([*ANSWERED[:-1], ("7", -9999)])}, response_files.MARKED, "below -87, a server's mark"),
    ({"logprobs": entries([*ANSWERED[:-1], ("7", -100.0)])}, response_files.MARKED, "below -87, a server's mark"),
    ({"logprobs": entries([*ANSWERED[:-1], ("7", -1.7e308)])}, response_files.MARKED, "below -87, a server's mark"),
    ({"logprobs": entries(ANSWERED), "finish_reason": None}, response_files.UNFINISHED, "count as cut by length"),
    ({"logprobs": CUT, "text": TEXT}, response_files.CUT, "the tokens after it do not count"),
]


@pytest.mark.parametrize("line, kind, said", COUNTED)
def test_a_response_that_is_read_with_a_reservation_is_counted_and_said(tmp_path, line, kind, said):
    found = read(tmp_path, LOGGED, {"example_id": "b"} | line)
    _, told = found.describe_coverage()
    assert told == f"1 of 2 responses, the first to 'b', {kind}" and said in told
    assert found.facts[kind] == 1 and found.facts["responses"] == 2
    frame = found.to_frame("m")
    assert frame.answer.tolist() == ["17", "17"] and np.isfinite(frame.token_logprobs[1]).all()
    plain = read(tmp_path, LOGGED, LOGGED | {"example_id": "b"})
    assert len(plain.describe_coverage()) == 1 and kind not in plain.facts


def test_a_file_without_any_answer_is_said(tmp_path):
    """Such as one that holds the ids of tokens as their texts."""
    numbers = {"example_id": "b", "logprobs": entries([("2132", -0.2), (" 820", -0.1)])}
    assert "no response holds an answer" in read(tmp_path, numbers).describe_coverage()[-1]
    assert "answer, a number" not in str(read(tmp_path, LOGGED, numbers).describe_coverage())


# ---- thinking

APART = {"logprobs": {"reasoning_content": entries([("#### 3", -1), ("!", -2)]), "content": entries(ANSWERED)}}
INSIDE = {"logprobs": entries([("<think>", -1), ("#### 3", -1), ("</think>", -1), *ANSWERED])}
TAKEN = INSIDE | {"text": TEXT}


@pytest.mark.parametrize(
    "line, thinking, first", [(APART, False, 2), (APART, True, 2), (INSIDE, True, 3), (TAKEN, False, 3)]
)
def test_thinking_counts_in_the_sequence_and_holds_no_answer(tmp_path, line, thinking, first):
    imported = read(tmp_path, LOGGED, {"example_id": "b"} | line, thinking=thinking)
    row = imported.to_frame("m").iloc[1]
    assert len(imported.describe_coverage()) == 1
    assert (row.answer, row.thinking_end, len(row.token_logprobs)) == ("17", first, first + 7)
    shown = interpret_responses(pd.DataFrame([row])).iloc[0]
    assert len(shown.response) == first + 7 and shown.answer.tolist() == pytest.approx([-0.3, -0.4])
    alone = interpret_responses(pd.DataFrame([row]), EvaluationChoices(include_thinking=False)).iloc[0]
    assert alone.response.tolist() == pytest.approx([logprob for _, logprob in ANSWERED])


def test_thinking_that_no_response_ends_is_a_wrong_setting(tmp_path):
    lines = [LOGGED, LOGGED | {"example_id": "b"}]
    with pytest.raises(UserError, match="no response holds `</think>`, .* remove `thinking: true`"):
        read(tmp_path, *lines, thinking=True)
    read(tmp_path, LOGGED, {"example_id": "b"} | INSIDE, thinking=True)
    read(tmp_path, *[line | {"finish_reason": "length"} for line in lines], thinking=True)


# ---- what becomes of it


def test_single_pass_columns_are_those_of_the_model_itself(tmp_path):
    """Responses of a demo model, and the same from the file that they make, as of a model that is not at hand."""
    shipped = store.read_frame(SHIPPED / "generations" / "tiny-llama__demo-medium.parquet")
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "demo" / "models" / "tiny-llama")
    spec = Model(label="x", responses=str(synthetic.write_responses(shipped, tmp_path / "r.jsonl", tokenizer)))
    found = imported_responses.ImportedResponses.read(spec, "demo-medium", examples("demo-medium"))
    served, keys = found.to_frame("tiny-llama"), [*store.KEYS, "estimator"]
    for choice in {}, {"include_thinking": False}, {"grader": "exact"}, {"missing": "drop"}:
        choices = EvaluationChoices(**choice)
        a, b = (confidence_frame(interpret_responses(frame, choices), choices=choices) for frame in (shipped, served))
        a, b = (frame.sort_values(keys, ignore_index=True) for frame in (a, b))
        assert sorted(set(b.estimator)) == sorted(SINGLE) and len(b) == 4 * 500
        assert a[[*keys, "correct"]].equals(b[[*keys, "correct"]])
        np.testing.assert_allclose(a.confidence, b.confidence, atol=1e-6)


@pytest.mark.parametrize("name", ["tiny-llama", "gpt2"])  # rotary positions, and learned ones, which end
def test_a_response_longer_than_the_context_is_cut_there(tmp_path, monkeypatch, capsys, name):
    """With prompt and query, one token more than fits; the same without that token is scored whole."""
    lm, asked = architectures.load(name), examples("demo-easy", 2)
    requests = generation.build_requests(lm, "demo-easy", asked, SETTINGS)
    room = lm.context - len(requests[0].prompt_ids) - len(p_true.query_ids(lm))
    for more in 0, 1:
        lines = [{"token_ids": [5] * (room + more)}, {"text": "#### 7"}]
        lines = [line | {"example_id": one.example_id} for line, one in zip(lines, asked, strict=True)]
        monkeypatch.setattr(lm, "spec", lm.spec.model_copy(update={"responses": str(write(tmp_path, *lines))}))
        engine = generation.choose_engine(lm, "demo-easy", SETTINGS, "transformers", asked, tmp_path)
        assert engine.facts == {"engine": "file", "responses": 2}
        frame = generation.generate_responses(lm, "demo-easy", asked, SETTINGS, engine)
        assert frame.token_ids.map(len).tolist()[0] == room + 1 - more and frame.answer[1] == "7"
        assert frame.finish_reason.tolist() == ["length" if more else "stop", "stop"]
        assert generation.count_cut_by_context(lm, frame) == more
        said = f"1 of 2 responses, the first to '{asked[0].example_id}', do not fit the context"
        assert (said in capsys.readouterr().out) == bool(more)


@pytest.mark.parametrize("finish_reason, ends", [("stop", 1), ("length", 0)])
def test_end_tokens_and_padding_are_one_end_token(tmp_path, monkeypatch, finish_reason, ends):
    """As text or as ids, which transformers' `generate` fills with padding or further end tokens."""
    lm, asked = architectures.load("tiny-llama"), examples("demo-easy", 7)
    ids, end, pad = lm.tokenizer("#### 7").input_ids[-3:], lm.eos[0], lm.tokenizer.pad_token_id
    mark = lm.tokenizer.convert_ids_to_tokens(end)
    given = [{"text": "#### 7"}, {"token_ids": [*ids, pad]}, {"text": f"#### 7{mark}"}, {"text": f"#### 7{mark}{mark}"},
             {"token_ids": [*ids, end, end]}, {"token_ids": [*ids, end, pad, pad]},
             {"logprobs": entries([("#### 7", -1), (mark, -1)])}]  # fmt: skip
    lines = [
        line | {"example_id": one.example_id, "finish_reason": finish_reason}
        for line, one in zip(given, asked, strict=True)
    ]
    monkeypatch.setattr(lm, "spec", lm.spec.model_copy(update={"responses": str(write(tmp_path, *lines))}))
    drawn = imported_responses.FileEngine(lm, "demo-easy", asked).sample(
        generation.build_requests(lm, "demo-easy", asked, SETTINGS)
    )
    assert drawn == [[*ids, end][: len(ids) + ends]] * 2 + [[*ids, end]] * 5


def test_claims_on_temperature_are_not_judged_without_it():
    """Of one pair, whose reliability is no sigmoid: isotonic regression alone."""
    pair = {"model": ["a"], "dataset": ["b"]}
    isotonic = pd.DataFrame(pair | {"method": "isotonic", "estimator": "ans_avg", "metric": "ece", "relative": 0.5})
    rows = pd.DataFrame(pair | {"confident_errors": 1, "curved": 0.01})
    frames = {"calibration_rows": rows, "result_calibration": isotonic}
    results = Results({"a": "A"}, {"b": "B"}, {}, ({}, {}), [], frames, [], {})
    verdicts = {claim.name: judge(claim, results) for claim in CLAIMS}
    for name in ("IsotonicMendsCurves", "CalibrationSubstantial", "PlattReduces"):
        assert (verdicts[name].held, verdicts[name].said) == (None, "no case has all the numbers")


def test_beside_a_model_that_is_at_hand():
    """One of two models without logits: the other's temperature is fitted as before."""
    here, logged = synthetic.generations(rows=20), synthetic.generations("logged", rows=20)
    for name in ("kept_positions", "chosen_logit", "top_logits", "tail_curve"):
        logged[name] = [[]] * len(logged)
    frame = pd.concat([here, logged], ignore_index=True)
    sets = fitting.calibration_data(frame, synthetic.responses(frame))
    curves = experiments.learning_curves(sets, params.Subsampling(calibration_sizes=[10], draws=2))
    calibrated, learned, fits = fitting.calibrate(synthetic.single_pass(frame), sets)
    for made in (curves, calibrated, experiments.transfer(sets, fits)):
        assert set(made[made.model == "logged"]["method"]) == {"", "isotonic"}
        assert set(made[made.model != "logged"]["method"]) == {"", "isotonic", "platt"}
    assert "logged" not in {*learned.model, *fitting.token_signals(sets).model}


# ---- the workflow


def test_check_says_it_before_any_work(capsys):
    """A notebook of its own stands for the four that ask the model."""
    planned = plan(cli.parse_and_check(["check", "demo", "--models", "logged", "--datasets", "demo-logged"]))
    assert {job.notebook.number for job in planned.jobs if job.model} == {"01b"}
    assert check.main(planned) == 0
    said = capsys.readouterr().out
    assert "answers the 40 questions of demo-logged, 40 with log-probabilities" in said
    assert "its weights are not available (its file names no `source`)" in said and "hours" not in said


# ---- the page, and whole runs

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
LINES, SERVED = re.findall("^```jsonl\n(.*?)^```", PAGE, flags=re.M | re.S)
COMMANDS = re.search("^```\n(mkdir.*?)^```", PAGE, flags=re.M | re.S).group(1)


def test_every_line_of_the_page_is_a_response():
    found = [response_files.parse_response(line.encode(), "page", 1) for line in (LINES + SERVED).splitlines()]
    assert [bool(one.token_ids) for one in found[:3]] == [False, True, True]
    assert [answers.locate_answer(one.pieces, False)["answer"] for one in found[3:]] == ["9", "4", "5", "6"]
    assert [one.finish_reason for one in found] == ["stop", "stop", "length", "stop", "stop", "stop", "length"]


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
    report = (folder / "figures" / "demo" / "report.html").read_text("utf-8")
    assert "My-Model: from a file, the model not at hand: nothing is known of passes with dropout" in report
    assert "P(True) of My-Model on My-Questions: its server was not asked, see docs/extending.md." in report


def test_responses_that_run_on_are_counted(tmp_path):
    found = read(tmp_path, LOGGED, {"example_id": "b", "logprobs": entries([("#### 9\n\nQ: 1+1?\nA: #### 2", -0.1)])})
    assert found.describe_coverage()[1:] == [
        "1 of 2 responses, the first to 'b', run on after an answer: the last line with `####` and a number counts"
    ]
