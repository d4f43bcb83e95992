"""What reports of other projects' users teach (cases.py): each case by a file, as a user has it."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from cases import read_answers, read_cases

from lib import params, store
from lib.errors import UserError
from lib.parameter_schemas import Dataset, Model
from lib.responses.formats import CUT, LOST, MARKED, UNFINISHED, Response, read_response_file
from lib.responses.imported import ImportedResponses
from lib.score.confidence import confidence_frame
from lib.score.reading import interpret_responses
from lib.tasks import datasets

REMARKS = {"cut": CUT, "lost": LOST, "unfinished": UNFINISHED, "marked": MARKED,
           "missing": "are missing: rows without an answer", "run on": "run on after"}  # fmt: skip
STATED = ("example_id", "token_ids", "ended", "thought", "finish_reason", "remarks")
PROFILE = "models: [tiny-llama]\ndatasets: [demo-easy]\n"
KINDS = {"profile": params.Profile, "model": Model, "dataset": Dataset}


def refusal(read, *words):
    """The one line that refuses what is read."""
    with pytest.raises(UserError) as error:
        read(*words)
    said = str(error.value)
    assert said.isprintable() and len(said) <= 500, said
    return said


def imported(tmp_path, log, asked, **more):
    """The responses of a log to some questions, as of a model that is named by its file."""
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in log))
    return ImportedResponses.read(Model(label="Mine", responses=str(path), **more), "d", asked)


def answers_of(frame):
    return frame.answer.astype(object).where(frame.answer.notna(), None).tolist()


# ---- answers


def test_answers(tmp_path):
    """By a file of responses: the number is read whole, or there is no answer; and no other number
    is right."""
    told, texts, _ = zip(*read_answers(), strict=True)
    tokens = [
        [{"token": "So.\n", "logprob": -1}, {"token": text, "logprob": -0.5}] for text in texts
    ]
    asked = [
        datasets.Example(str(i), "evaluation", "?", value or "none") for i, value in enumerate(told)
    ]
    log = [{"example_id": str(i), "logprobs": entries} for i, entries in enumerate(tokens)]
    frame = imported(tmp_path, log, asked).to_frame("m")
    found = zip(texts, answers_of(frame), told, strict=True)
    assert [(text, answer, value) for text, answer, value in found if answer != value] == []
    scores = confidence_frame(interpret_responses(frame), names=["seq_avg"])
    assert scores.correct.tolist() == [value is not None for value in told]
    assert np.allclose(scores.confidence, np.exp([-1, -0.5]).mean())


# ---- logs of servers


def read_line(tmp_path, line):
    path = tmp_path / "r.jsonl"
    path.write_text("\n" * 6 + json.dumps(line))
    (found,) = read_response_file(path, "mine").values()
    return found


@pytest.mark.parametrize("case", read_cases("responses.jsonl", "text"))
def test_a_line_is_read_whole(tmp_path, case):
    """No token is left out, and nothing is made of one."""
    line, count, plain = case["line"], case["tokens"], Response("a")
    found = read_line(tmp_path, line)
    expected = {name: case.get(name, getattr(plain, name)) for name in STATED}
    expected["remarks"] = [REMARKS[name] for name in expected["remarks"]]
    assert {name: getattr(found, name) for name in STATED} == expected
    assert (found.text, len(found.pieces), len(found.logprobs)) == (case["text"], count, count)
    assert found.pieces == case.get("pieces", found.pieces)
    assert "".join(found.pieces[: count - found.ended]) == (case["text"] if count else "")
    if isinstance(stated := line.get("logprobs"), list):
        assert found.logprobs == [one["logprob"] for one in stated[:count]]
    assert found.empty == (case["text"] == "" and not found.token_ids)


@pytest.mark.parametrize("case", read_cases("responses.jsonl", "refused"))
def test_or_refused_with_its_number_and_the_remedy(tmp_path, case):
    said = refusal(read_line, tmp_path, case["line"])
    assert "r.jsonl, line 7" in said and case["refused"] in said


ASKED = [datasets.Example(name, "evaluation", "How many?", "17") for name in "ab"]


@pytest.mark.parametrize("case", read_cases("logs.jsonl", "log"))
def test_a_log_is_refused_or_all_that_it_lacks_is_counted_and_said(tmp_path, case):
    """A question without a response is a row without an answer, of the least confidence."""
    if "refused" in case:
        assert case["refused"] in refusal(imported, tmp_path, case["log"], ASKED)
        if "with_model" in case:
            found = imported(tmp_path, case["log"], ASKED, source="demo/models/tiny-llama")
            assert found.facts["responses"] == case["with_model"]
        return
    found = imported(tmp_path, case["log"], ASKED)
    answered, *told = found.describe_coverage()
    assert ("1 of the 2 questions" in answered) == ("missing" in case["remarks"])
    for line, remark in zip(told, case["remarks"], strict=True):
        assert line.startswith("1 of 2 responses, the first to 'b', ") and REMARKS[remark] in line
    path = store.write_frame(found.to_frame("m"), tmp_path / "generations" / "m__d.parquet")
    assert answers_of(kept := store.read_frame(path)) == case["answers"]
    scores = confidence_frame(interpret_responses(kept)).set_index("example_id")
    assert sorted(scores.estimator["b"]) == ["ans_avg", "ans_joint", "seq_avg", "seq_joint"]
    assert np.isfinite(scores.confidence).all() and scores.correct["b"].all() == (
        case["answers"][1] == "17"
    )
    assert case["answers"][1] or (scores.confidence["b"] < 1e-9).all()


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


@pytest.mark.parametrize("case", read_cases("questions.jsonl", "files", "folder"))
def test_files_of_questions(tmp_path, monkeypatch, case):
    """Every row is asked as it stands there, or the file is refused with the row. Paths start from
    the project's folder."""
    monkeypatch.setattr("lib.paths.ROOT", tmp_path)
    paths = case.get("files") or case["folder"]
    for name, content in paths.items():
        write(tmp_path / name, content)
    source = {"all": case.get("named", next(iter(paths)))} if "files" in case else str(tmp_path)
    given = {"label": "Mine", "source": source, "calibration": 1, "evaluation": 1}
    mine = Dataset(**given | case.get("data", {}))
    if "refused" in case:
        assert case["refused"] in refusal(datasets.load_examples, mine)
        return
    found = datasets.load_examples(mine)
    assert [one.example_id for one in found] == case.get("ids") or [
        list(one) for one in found
    ] == case.get("asks")


# ---- parameters


@pytest.mark.parametrize("case", read_cases("parameters.jsonl", "refused", "value"))
def test_a_value_is_what_it_looks_like_or_is_refused(tmp_path, case):
    path, kind = tmp_path / "mine.yaml", KINDS[case.get("kind", "profile")]
    path.write_text(case.get("text", f"{PROFILE}{case.get('line')}\n"), encoding="latin-1")
    if "refused" in case:
        said = refusal(params.read_parameter_file, path, kind)
        assert said.startswith(str(path)) and case["refused"] in said
        return
    found = getattr(params.read_parameter_file(path, kind), case["line"].partition(":")[0])
    assert (found, type(found)) == (case["value"], type(case["value"]))
