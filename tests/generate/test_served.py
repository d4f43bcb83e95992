"""A model that only a server has: its requests, and both demo models behind llama.cpp's server against their weights."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from served import completion, faulty, llama_cpp

from lib import params, store
from lib.calibrate.calibrated import CALIBRATORS, score
from lib.generate import batch_requests, generation, models, p_true
from lib.generate.imported_responses import ImportedResponses, response_token_ids
from lib.generate.response_files import Response
from lib.generate.served_p_true import ServedVerification, parse_verdict
from lib.parameter_types import Model
from lib.paths import ROOT, UserError
from lib.score.confidence import confidence_frame, option_log_odds
from lib.score.interpretation import interpret_responses
from lib.tasks import datasets, prompts
from workflow import ask, cli, requests, run
from workflow.pipeline import Run

SETTINGS = params.Generation(demonstration="none", max_new_tokens=256)
DATASET = "demo-easy"


def served_spec(model, folder):
    """What its file says of a demo model, known from a server alone."""
    decoding = params.load_model_config(model).model_dump(include={"temperature", "top_p", "top_k", "thinking"})
    return Model(label="Served", responses=f"{folder}/", system_prompt=False, **decoding)


def some_examples(count):
    return datasets.select_examples(datasets.load_examples(params.load_dataset_config(DATASET)), count, 0, DATASET)


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Runs `requests` and `ask` for one model, of which nothing is known but this."""

    def prepare(spec, count):
        monkeypatch.setattr(params, "load_model_config", lambda _: spec)
        values = params.load_profile("demo").model_copy(update={"limit": count, "example": ""}).model_dump()
        run = Run("demo", values | {"models": ["served"], "datasets": [DATASET]})

        def command(verb, **options):
            main = {"requests": requests.main, "ask": ask.main}[verb]
            return main(run, SimpleNamespace(**{"model_name": "", "datasets": [], "concurrent": 4} | options))

        return command

    return prepare


def test_requests_are_the_papers_prompt_and_the_files_decoding(tmp_path, commands):
    """As a reader of OpenAI's documentation would check them, for a file in a folder that is still empty."""
    spec = Model(
        label="S", responses=f"{tmp_path}/", temperature=0.7, top_p=0.9, top_k=20, thinking=True, max_new_tokens=99
    )
    assert commands(spec, 3)("requests", model_name="org/name") == 0
    (path,) = tmp_path.iterdir()
    assert path.name == f"{DATASET}.requests.jsonl"
    lines, asked = list(map(json.loads, path.read_text().splitlines())), some_examples(3)
    assert [line["custom_id"] for line in lines] == [example.example_id for example in asked]
    for line, example in zip(lines, asked, strict=True):
        body = line["body"]
        assert (line["method"], line["url"], body["model"]) == ("POST", "/v1/chat/completions", "org/name")
        assert body["messages"] == prompts.question_messages(example.question, True, "none")
        told = {name: body[name] for name in ("temperature", "top_p", "top_k", "min_p", "max_tokens")}
        assert told == {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.0, "max_tokens": 99}
        assert body["logprobs"] is True and body["top_logprobs"] == 20 and 0 <= body["seed"] < 2**31
        assert body["chat_template_kwargs"] == {"enable_thinking": True}


def test_a_folder_of_git_does_not_take_the_questions_of_others(monkeypatch):
    spec = Model(label="S", responses="docs/served/")
    monkeypatch.setattr(params, "load_model_config", lambda _: spec)
    of_others = Run("demo", params.load_profile("demo").model_dump() | {"models": ["served"], "datasets": ["gsm8k"]})
    with pytest.raises(
        UserError, match="docs/served is not ignored by git, and the questions of 'gsm8k' belong to others"
    ):
        requests.main(of_others, SimpleNamespace(model_name="", datasets=[]))
    assert not (ROOT / "docs" / "served").exists()


def test_answers_to_other_requests_are_not_mixed(tmp_path, commands):
    """Decoding that changed after the first answers; a larger number of questions is asked beside the others."""
    spec = Model(label="S", responses=f"{tmp_path}/", system_prompt=False)
    command = commands(spec, 2)
    with faulty(lambda server, number, body: completion(body)) as server:
        command("requests")
        command("ask", url=server.url)
        assert len(server.asked) == 4
        command = commands(spec, 3)
        command("requests")
        command("ask", url=f"{server.url}/v1/")
        assert len(server.asked) == 6 + 4 + 6  # both forms of the first four, too: they had answers
    with pytest.raises(UserError, match="answers requests with another 'temperature': move it away"):
        commands(spec.model_copy(update={"temperature": 0.2}), 3)("requests")
