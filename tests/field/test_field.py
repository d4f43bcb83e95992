"""What reports of other projects' users teach (cases.py): each case by a file, as a user has it."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from cases import cases_with, read_answers

from lib import params, store
from lib.errors import UserError
from lib.parameter_schemas import Dataset, Model
from lib.responses.formats import CUT, LOST, MARKED, UNFINISHED, Response, read_response_file
from lib.responses.imported import ImportedResponses
from lib.score.confidence import confidence_frame
from lib.score.interpretation import interpret_responses
from lib.tasks import datasets

REMARKS = {
    "cut": CUT,
    "lost": LOST,
    "unfinished": UNFINISHED,
    "marked": MARKED,
    "missing": "are missing: rows without an answer",
    "run on": "run on after",
}
STATED = ("example_id", "token_ids", "ended", "thought", "finish_reason")
PROFILE = "models: [tiny-llama]\ndatasets: [demo-easy]\n"
KINDS = {"profile": params.Profile, "model": Model, "dataset": Dataset}


def refusal(read, *words):
    """The one line that refuses what is read."""
    with pytest.raises(UserError) as error:
        read(*words)
    message = str(error.value)
    assert message.isprintable() and len(message) <= 500, message
    return message


def imported(tmp_path, log, questions, **more):
    """The responses of a log to some questions, as of a model that is named by its file."""
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in log))
    spec = Model(label="Mine", responses=str(path), **more)
    return ImportedResponses.read(spec, "d", questions)


def answers_of(frame):
    return frame.answer.astype(object).where(frame.answer.notna(), None).tolist()


# ---- answers


def test_answers(tmp_path):
    """By a file of responses: the number is read whole, or there is no answer; and no other number
    is right."""
    answers = read_answers()
    questions, log = [], []
    for number, answer in enumerate(answers):
        name = str(number)
        questions.append(datasets.Example(name, "evaluation", "?", answer.value or "none"))
        before = {"token": "So.\n", "logprob": -1}
        token = {"token": answer.text, "logprob": -0.5}
        log.append({"example_id": name, "logprobs": [before, token]})
    frame = imported(tmp_path, log, questions).to_frame("m")
    for answer, value in zip(answers, answers_of(frame), strict=True):
        assert value == answer.value, answer.text
    scores = confidence_frame(interpret_responses(frame), names=["seq_avg"])
    assert scores.correct.tolist() == [answer.value is not None for answer in answers]
    assert np.allclose(scores.confidence, np.exp([-1, -0.5]).mean())


# ---- logs of servers


def read_line(tmp_path, line):
    path = tmp_path / "r.jsonl"
    path.write_text("\n" * 6 + json.dumps(line))
    (response,) = read_response_file(path, "mine").values()
    return response


@cases_with("text", file="responses.jsonl")
def test_a_line_is_read_whole(tmp_path, case):
    """No token is left out, and nothing is made of one."""
    line, count = case["line"], case["tokens"]
    response = read_line(tmp_path, line)
    plain = Response("a")
    for name in STATED:
        assert getattr(response, name) == case.get(name, getattr(plain, name)), name
    assert response.remarks == [REMARKS[name] for name in case.get("remarks", [])]
    assert response.text == case["text"]
    assert len(response.pieces) == len(response.logprobs) == count
    if "pieces" in case:
        assert response.pieces == case["pieces"]
    if count:
        body = response.pieces[:-1] if response.ended else response.pieces
        assert "".join(body) == case["text"]
    stated = line.get("logprobs")
    if isinstance(stated, list):
        assert response.logprobs == [token["logprob"] for token in stated[:count]]
    assert response.empty == (case["text"] == "" and not response.token_ids)


@cases_with("refused", file="responses.jsonl")
def test_or_refused_with_its_number_and_the_remedy(tmp_path, case):
    message = refusal(read_line, tmp_path, case["line"])
    assert "r.jsonl, line 7" in message
    assert case["refused"] in message


QUESTIONS = [datasets.Example(name, "evaluation", "How many?", "17") for name in "ab"]


@cases_with("refused", file="logs.jsonl")
def test_a_log_is_refused(tmp_path, case):
    assert case["refused"] in refusal(imported, tmp_path, case["log"], QUESTIONS)
    if "with_model" in case:
        read = imported(tmp_path, case["log"], QUESTIONS, source="demo/models/tiny-llama")
        assert read.facts["responses"] == case["with_model"]


@cases_with("answers", file="logs.jsonl")
def test_or_all_that_it_lacks_is_counted_and_said(tmp_path, case):
    """A question without a response is a row without an answer, of the least confidence."""
    read = imported(tmp_path, case["log"], QUESTIONS)
    coverage, *remarks = read.describe_coverage()
    assert ("1 of the 2 questions" in coverage) == ("missing" in case["remarks"])
    for line, remark in zip(remarks, case["remarks"], strict=True):
        assert line.startswith("1 of 2 responses, the first to 'b', ")
        assert REMARKS[remark] in line
    path = tmp_path / "generations" / "m__d.parquet"
    frame = store.read_frame(store.write_frame(read.to_frame("m"), path))
    assert answers_of(frame) == case["answers"]
    scores = confidence_frame(interpret_responses(frame)).set_index("example_id")
    assert sorted(scores.estimator["b"]) == ["ans_avg", "ans_joint", "seq_avg", "seq_joint"]
    assert np.isfinite(scores.confidence).all()
    answer = case["answers"][1]
    assert scores.correct["b"].all() == (answer == "17")
    if not answer:
        assert (scores.confidence["b"] < 1e-9).all()


# ---- files of questions


def write(path, content):
    """A text, zipped or a table of parquet where the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, list):
        pd.DataFrame(content).to_parquet(path)
    else:
        data = content.encode("utf-8", "surrogateescape")
        path.write_bytes(gzip.compress(data) if path.suffix.lower() == ".gz" else data)
    return path


def read_questions(folder, monkeypatch, case):
    """The questions of a case's files. Paths start from the project's folder."""
    monkeypatch.setattr("lib.paths.ROOT", folder)
    files = case.get("files") or case["folder"]
    for name, content in files.items():
        write(folder / name, content)
    source = str(folder)
    if "files" in case:
        source = {"all": case.get("named", next(iter(files)))}
    facts = {"label": "Mine", "source": source, "calibration": 1, "evaluation": 1}
    return datasets.load_examples(Dataset(**facts | case.get("data", {})))


@cases_with("ids", "asks", file="questions.jsonl")
def test_every_row_of_a_file_of_questions_is_asked_as_it_stands_there(tmp_path, monkeypatch, case):
    examples = read_questions(tmp_path, monkeypatch, case)
    if "ids" in case:
        assert [example.example_id for example in examples] == case["ids"]
    else:
        assert [list(example) for example in examples] == case["asks"]


@cases_with("refused", file="questions.jsonl")
def test_or_the_file_is_refused_with_the_row(tmp_path, monkeypatch, case):
    assert case["refused"] in refusal(read_questions, tmp_path, monkeypatch, case)


# ---- parameters


def write_parameters(tmp_path, case):
    path = tmp_path / "mine.yaml"
    path.write_text(case.get("text", f"{PROFILE}{case.get('line')}\n"), encoding="latin-1")
    return path


@cases_with("value", file="parameters.jsonl")
def test_a_value_is_what_it_looks_like(tmp_path, case):
    profile = params.read_parameter_file(write_parameters(tmp_path, case), params.Profile)
    value = getattr(profile, case["line"].partition(":")[0])
    assert value == case["value"]
    assert type(value) is type(case["value"])


@cases_with("refused", file="parameters.jsonl")
def test_or_it_is_refused(tmp_path, case):
    path = write_parameters(tmp_path, case)
    message = refusal(params.read_parameter_file, path, KINDS[case.get("kind", "profile")])
    assert message.startswith(str(path))
    assert case["refused"] in message
