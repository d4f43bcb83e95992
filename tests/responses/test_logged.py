"""Responses of a model that is not at hand: what a server's log holds gives the single-pass
estimators, and no more."""

import dataclasses
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

from lib import store
from lib.errors import UserError
from lib.generate import generation, p_true
from lib.generate.engines.file_engine import FileEngine
from lib.params import EvaluationChoices, Model
from lib.paths import ROOT, SHIPPED
from lib.responses import formats, imported
from lib.score.confidence import confidence_frame
from lib.score.interpretation import interpret_responses
from lib.tasks import answers, datasets
from workflow import check, cli
from workflow.run import plan

ANSWERED = [
    ("The", -0.5),
    (" answer", -0.25),
    (".\n", 0.0),
    ("####", -0.1),
    (" ", -0.2),
    ("1", -0.3),
    ("7", -0.4),
]
ASKED = [datasets.Example(name, "evaluation", "How many?", "17") for name in "ab"]


def entries(tokens):
    return [{"token": token, "logprob": logprob} for token, logprob in tokens]


def write(folder, questions, responses):
    """A file of responses, one to each question."""
    lines = []
    for example, line in zip(questions, responses, strict=True):
        lines.append(json.dumps({"example_id": example.example_id} | line) + "\n")
    (folder / "demo-easy.jsonl").write_text("".join(lines))
    return str(folder / "{dataset}.jsonl")


def read(folder, *responses, **facts):
    """What a file of these responses says of the questions a and b."""
    spec = Model(label="x", responses=write(folder, ASKED, responses), **facts)
    return imported.ImportedResponses.read(spec, "demo-easy", ASKED)


LOGGED = {"logprobs": entries(ANSWERED)}


def test_a_file_without_any_answer_is_said(tmp_path):
    """Such as one that holds the ids of tokens as their texts."""
    numbers, none = (
        {"logprobs": entries([("2132", -0.2), (" 820", -0.1)])},
        "no response holds an answer",
    )
    assert none in read(tmp_path, numbers, numbers).describe_coverage()[-1]
    assert none not in str(read(tmp_path, LOGGED, numbers).describe_coverage())


# ---- thinking

THOUGHT = entries([("#### 3", -1), ("!", -2)])
APART = {"logprobs": {"reasoning_content": THOUGHT, "content": entries(ANSWERED)}}
MARKED = [("<think>", -1), ("#### 3", -1), ("</think>", -1)]
INSIDE = {"logprobs": entries(MARKED + ANSWERED)}
TAKEN = INSIDE | {"text": "The answer.\n#### 17"}


@pytest.mark.parametrize(
    "line, thinking, first",
    [(APART, False, 2), (APART, True, 2), (INSIDE, True, 3), (TAKEN, False, 3)],
)
def test_thinking_counts_in_the_sequence_and_holds_no_answer(tmp_path, line, thinking, first):
    imported = read(tmp_path, LOGGED, line, thinking=thinking)
    row = imported.to_frame("m").iloc[1]
    assert len(imported.describe_coverage()) == 1
    assert (row.answer, row.thinking_end) == ("17", first)
    assert len(row.token_logprobs) == first + 7
    frame = pd.DataFrame([row])
    whole = interpret_responses(frame).iloc[0]
    assert len(whole.response) == first + 7
    assert whole.answer.tolist() == pytest.approx([-0.3, -0.4])
    alone = interpret_responses(frame, EvaluationChoices(include_thinking=False)).iloc[0]
    assert alone.response.tolist() == pytest.approx([logprob for _, logprob in ANSWERED])


def test_thinking_that_no_response_ends_is_a_wrong_setting(tmp_path):
    with pytest.raises(UserError, match="no response holds `</think>`, .* remove `thinking: true`"):
        read(tmp_path, LOGGED, LOGGED, thinking=True)
    read(tmp_path, *[LOGGED | {"finish_reason": "length"}] * 2, thinking=True)


# ---- what becomes of it


def test_single_pass_columns_are_those_of_the_model_itself(tmp_path):
    """Responses of a demo model, and the same from the file that they make, as of a model that is
    not at hand."""
    shipped = store.read_frame(SHIPPED / "generations" / "tiny-llama__demo-medium.parquet")
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "demo" / "models" / "tiny-llama")
    path = synthetic.write_responses(shipped, tmp_path / "r.jsonl", tokenizer)
    spec = Model(label="x", responses=str(path))
    responses = imported.ImportedResponses.read(spec, "demo-medium", examples("demo-medium"))
    served = responses.to_frame("tiny-llama")
    keys = [*store.KEYS, "estimator"]

    def scores_of(frame):
        scores = confidence_frame(interpret_responses(frame))
        return scores.sort_values(keys, ignore_index=True)

    a = scores_of(shipped)
    b = scores_of(served)
    assert set(b.estimator) == {"seq_avg", "seq_joint", "ans_avg", "ans_joint"}
    assert len(b) == 4 * 500
    assert a[[*keys, "correct"]].equals(b[[*keys, "correct"]])
    np.testing.assert_allclose(a.confidence, b.confidence, atol=1e-6)


def file_engine(lm, folder, questions, *responses):
    """The engine that takes these responses, one to each question, for the model's own."""
    spec = lm.spec.model_copy(update={"responses": write(folder, questions, responses)})
    return FileEngine(dataclasses.replace(lm, spec=spec), "demo-easy", questions)


# rotary positions, and learned ones, which end
@pytest.mark.parametrize("name", ["tiny-llama", "gpt2"])
def test_a_response_longer_than_the_context_is_cut_there(tmp_path, capsys, name):
    """With prompt and query, one token more than fits; the same without that token is scored
    whole."""
    lm = architectures.load(name)
    questions = examples("demo-easy", 2)
    requests = generation.build_requests(lm, "demo-easy", questions, SETTINGS)
    prompt = requests[0].prompt_ids
    query = p_true.query_ids(lm)
    room = lm.context - len(prompt) - len(query)
    for more in 0, 1:
        first = {"token_ids": [0] * (room + more)}
        engine = file_engine(lm, tmp_path, questions, first, {"text": "#### 7"})
        frame = generation.generate_responses(lm, "demo-easy", questions, SETTINGS, engine)
        assert len(frame.token_ids[0]) == (room if more else room + 1)
        assert frame.answer[1] == "7"
        assert frame.finish_reason.tolist() == ["length" if more else "stop", "stop"]
        assert generation.count_cut_by_context(lm, frame) == more
        cut = questions[0].example_id
        remark = f"1 of 2 responses, the first to '{cut}', do not fit the context"
        assert (remark in capsys.readouterr().out) == bool(more)


@pytest.mark.parametrize("finish_reason", ["stop", "length"])
def test_end_tokens_and_padding_are_one_end_token(llama, tmp_path, finish_reason):
    """As text or as ids, which transformers' `generate` fills with padding or further end
    tokens."""
    ids = llama.tokenizer("#### 7").input_ids[-3:]
    end, pad = llama.eos[0], llama.tokenizer.pad_token_id
    mark = llama.tokenizer.convert_ids_to_tokens(end)
    without_end = [{"text": "#### 7"}, {"token_ids": [*ids, pad]}]
    with_end = [
        {"text": f"#### 7{mark}"},
        {"text": f"#### 7{mark}{mark}"},
        {"token_ids": [*ids, end, end]},
        {"token_ids": [*ids, end, pad, pad]},
        {"logprobs": entries([("#### 7", -1), (mark, -1)])},
    ]
    lines = [line | {"finish_reason": finish_reason} for line in without_end + with_end]
    questions = examples("demo-easy", 7)
    engine = file_engine(llama, tmp_path, questions, *lines)
    responses = engine.sample(generation.build_requests(llama, "demo-easy", questions, SETTINGS))
    # one that ended has an end token, whether it is written or not
    expected = [*ids, end] if finish_reason == "stop" else ids
    assert responses[:2] == [expected] * 2
    assert responses[2:] == [[*ids, end]] * 5


# ---- the workflow


def test_check_says_it_before_any_work(capsys):
    """A notebook of its own stands for the four that ask the model."""
    planned = plan(
        cli.parse_and_check(["check", "demo", "--models", "logged", "--datasets", "demo-logged"])
    )
    assert {job.notebook.number for job in planned.jobs if job.model} == {"01b"}
    assert check.main(planned) == 0
    output = capsys.readouterr().out
    assert "answers the 40 questions of demo-logged" in output
    assert "its weights are not available (its file names no `source`)" in output
    assert "hours" not in output


# ---- the page, and whole runs

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
LINES, SERVED = re.findall("^```jsonl\n(.*?)^```", PAGE, flags=re.M | re.S)
COMMANDS = re.search("^```\n(mkdir.*?)^```", PAGE, flags=re.M | re.S).group(1)


def test_every_line_of_the_page_is_a_response():
    responses = []
    for line in (LINES + SERVED).splitlines():
        responses.append(formats.parse_response(line.encode(), "page", 1))
    assert [bool(response.token_ids) for response in responses[:3]] == [False, True, True]
    located = [answers.locate_answer(response.pieces, False) for response in responses[3:]]
    assert [answer["answer"] for answer in located] == ["9", "4", "5", "6"]


@pytest.mark.slow
def test_the_pages_example_as_it_stands_there(tmp_path):
    folder = copy_of_project(tmp_path / "project")
    (folder / "mine").mkdir()
    (folder / "mine" / "responses.jsonl").write_text(SERVED)
    done = subprocess.run(
        ["bash", "-e"], input=COMMANDS, cwd=folder, env=ENV, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mine/responses.jsonl answers the 4 questions of mine" in done.stdout
    table = tables(folder, "mine")["tab_result_estimation.tex"].decode()
    assert "My-Model & My-Questions & 0.500" in " ".join(table.split())
    report = (folder / "figures" / "mine" / "report.html").read_text("utf-8")
    for note in (
        "My-Model: from a file, the model not at hand: nothing is known of passes with dropout",
        "P(True) of My-Model on My-Questions: its server was not asked, see docs/extending.md.",
    ):
        assert note in report
