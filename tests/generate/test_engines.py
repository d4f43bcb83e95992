"""Responses from a file, and from an engine in an environment of its own: the same frames as drawn
here."""

import dataclasses
import json
import re
import sys
import textwrap
import types
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
from architectures import SETTINGS, assert_alike, examples
from clone import until

from lib import store
from lib.analysis import prompt_ablation
from lib.errors import UserError
from lib.files import try_lock
from lib.generate import generation, prompt_arms
from lib.generate.engines import vllm_launch
from lib.models import loading
from lib.params import AblationStep, Generation, GenerationStep
from lib.paths import ROOT

RECORDED = json.loads((ROOT / "tests" / "vllm_demo.json").read_text(encoding="utf-8"))
DATASET = "demo-medium"
ASKED = examples(DATASET, 6)


def respond(lm, engine=None, questions=ASKED):
    return generation.generate_responses(lm, DATASET, questions, SETTINGS, engine)


# ---- a file


def file_engine(lm, path):
    spec = lm.spec.model_copy(update={"responses": str(path)})
    return generation.choose_engine(
        dataclasses.replace(lm, spec=spec), DATASET, SETTINGS, "transformers", ASKED, Path
    )


def test_what_one_run_wrote_is_another_runs_file(llama, tmp_path):
    """The last question has no response in it."""
    transformers = generation.choose_engine(llama, DATASET, SETTINGS, "transformers", ASKED, Path)
    sampled = respond(llama, transformers)
    path = synthetic.write_responses(sampled[:5], tmp_path / "responses.jsonl")
    engine = file_engine(llama, path)
    frame = respond(llama, engine)
    assert_alike(frame[:5], sampled[:5])
    missing = "are missing: rows without an answer, which count as wrong"
    assert engine.facts == {"engine": "file", "responses": 5, missing: 1}
    last = frame.iloc[5]
    assert last.text == ""
    assert pd.isna(last.answer)
    assert len(last.token_ids) == 1


# ---- vLLM


def test_what_vllm_wrote_is_rescored(llama):
    """Ids and log-probabilities that vLLM (float32) gave for demo prompts, recorded in
    tests/vllm_demo.json."""
    settings = Generation.of(RECORDED["settings"])
    by_id = {line["example_id"]: line for line in RECORDED["answers"]}
    questions = [example for example in examples(DATASET) if example.example_id in by_id]

    def sample(requests):
        return [by_id[request.example.example_id]["token_ids"] for request in requests]

    engine = types.SimpleNamespace(sample=sample)
    frame = generation.generate_responses(llama, DATASET, questions, settings, engine)
    assert len(frame) == len(by_id) > 10
    assert frame.answer.notna().mean() > 0.9
    for row in frame.itertuples():
        recorded = by_id[row.example_id]["token_logprobs"]
        np.testing.assert_allclose(row.token_logprobs, recorded, atol=1e-4)


STUB = """
    import os, subprocess, sys
    from pathlib import Path
    from types import SimpleNamespace as Object
    core = Path(__file__).with_name("core")
    fails = not core.exists()  # the first time
    finds_ours = any(path.endswith("generate") for path in sys.path)
    print("sockets in", os.environ["VLLM_RPC_BASE_PATH"], "ours" if finds_ours else "")
    class LLM:
        def __init__(self, **engine):
            self.llm_engine, self.waiting, self.drawn = self, [], 0
            core.write_text(str(subprocess.Popen(["sleep", "60"]).pid))
        def add_request(self, name, prompt, sampling):
            self.waiting.append((name, prompt["prompt_token_ids"], sampling))
        def has_unfinished_requests(self):
            return bool(self.waiting)
        def step(self):
            if fails and self.drawn == 4:
                print("(Worker) ERROR [x.py:9] ValueError: too little memory")
                raise RuntimeError("See above.")
            self.drawn += 1
            name, prompt, sampling = self.waiting.pop()
            ids = [5 + sampling["seed"] % 40 + len(prompt) % 2, sampling["stop_token_ids"][0]]
            ids, reason = (ids, "stop") if sampling["seed"] % 2 else (ids[:1], "length")
            going = Object(request_id=name, finished=False)
            output = Object(token_ids=ids, finish_reason=reason)
            return [going, Object(request_id=name, finished=True, outputs=[output])]
    SamplingParams, __version__ = dict, "9.9"
"""


def python_with(module, folder):
    """A Python with a module in vLLM's place."""
    (folder / "vllm.py").write_text(textwrap.dedent(module))
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{folder}" exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    return python


def vllm(lm, folder):
    return generation.choose_engine(lm, DATASET, SETTINGS, "vllm", ASKED, folder)


def test_all_are_drawn_at_once_into_a_file_which_a_failed_engine_leaves(
    llama, tmp_path, monkeypatch
):
    """By a Python with a module in vLLM's place, which draws nonsense. A failure is one line, the
    first of its errors; what the engine started ends, or it would keep the GPU's memory; half a
    line, as of a killed worker, is not kept. Paths of sockets are short, and no module of this
    project stands where vLLM's are imported from."""
    shards = tmp_path / "shards"
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "lib" / "generate"))
    monkeypatch.setenv("VLLM_PYTHON", str(python_with(STUB, tmp_path)))
    with pytest.raises(UserError, match="^vLLM ended with 1: ValueError: too little memory$"):
        vllm(llama, shards)
    core = Path("/proc") / (tmp_path / "core").read_text()

    def has_ended():
        return not core.exists() or "Z" in (core / "stat").read_text().split()[2]

    until(has_ended)
    with (shards / "drawn.jsonl").open("a") as file:
        file.write('{"example_id": "half a li')
    engine = vllm(llama, shards)
    assert "sockets in /tmp \n2 responses drawn" in (shards / "vllm.log").read_text()
    version = {"engine": "vllm", "version": "9.9"}
    assert engine.facts == version | {"responses": 6, "batch_invariant": "0"}
    requests = generation.build_requests(llama, DATASET, ASKED, SETTINGS)
    orders = json.loads((shards / "requests.json").read_text())
    assert orders["sampling"]["temperature"] == llama.spec.temperature
    assert orders["sampling"]["top_k"] == 0, "off"
    assert orders["engine"]["model"] == str(llama.spec.place)
    longest = max(len(request.prompt_ids) for request in requests)
    assert orders["engine"]["max_model_len"] == longest + SETTINGS.max_new_tokens
    ids, reasons = [], []
    for request in requests:
        token = 5 + request.seed % 40 + len(request.prompt_ids) % 2
        is_ended = request.seed % 2 == 1
        ids.append([token, llama.eos[0]] if is_ended else [token])
        reasons.append("stop" if is_ended else "length")
    first = respond(llama, engine, ASKED[:2])
    frame = pd.concat([first, respond(llama, engine, ASKED[2:])])
    # as any file of responses
    again = respond(llama, file_engine(llama, shards / "drawn.jsonl"))
    for responses in frame, again:
        assert responses.example_id.tolist() == [example.example_id for example in ASKED]
        assert [*map(list, responses.token_ids)] == ids
        assert responses.finish_reason.tolist() == reasons
    vllm(llama, shards)
    assert (shards / "vllm.log").read_text() == "", "where nothing is left, vLLM does not start"


SLOW_STUB = """
    import time
    from pathlib import Path
    from types import SimpleNamespace as Object
    starts = Path(__file__).with_name("starts")
    class LLM:
        def __init__(self, **engine):
            with starts.open("a") as file:
                print(engine["dtype"], file=file)
            self.llm_engine, self.waiting = self, []
        def add_request(self, name, prompt, sampling):
            self.waiting.append((name, sampling))
        def has_unfinished_requests(self):
            return bool(self.waiting)
        def step(self):
            time.sleep(0.3)
            name, sampling = self.waiting.pop()
            output = Object(token_ids=sampling["stop_token_ids"][:1], finish_reason="stop")
            return [Object(request_id=name, finished=True, outputs=[output])]
    SamplingParams, __version__ = dict, "9.9"
"""


def test_vllm_draws_before_the_network_is_loaded_and_says_how_far_it_is(
    llama, tmp_path, monkeypatch, capsys
):
    """01 in one start, and 04b both of its other prompts in one; the steps then find all drawn."""
    monkeypatch.setattr(store, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setattr(vllm_launch, "REPORT_SECONDS", 0.1)
    monkeypatch.setenv("VLLM_PYTHON", str(python_with(SLOW_STUB, tmp_path)))
    starts = tmp_path / "starts"

    def never(*words, **more):
        raise AssertionError("the network is loaded")

    asked = GenerationStep(demonstration="few", engine="vllm", limit=2, max_new_tokens=9)
    again = AblationStep(demonstration="few", engine="vllm", ablation_limit=2, max_new_tokens=9)
    with monkeypatch.context() as patched:
        patched.setattr(loading, "load_network", never)
        generation.draw_pair("mine", "tiny-llama", DATASET, asked)
    drawn = [
        int(count) for count in re.findall(r"^(\d) of 4 drawn$", capsys.readouterr().out, re.M)
    ]
    assert drawn == sorted({*drawn}) and len(drawn) >= 2
    frame = generation.generate_pair("mine", llama, DATASET, asked)
    assert len(frame) == 4 and starts.read_text() == "float32\n"

    with monkeypatch.context() as patched:
        patched.setattr(loading, "load_network", never)
        prompt_arms.generate_arms_ahead("mine", "tiny-llama", DATASET, again)
    assert starts.read_text() == "float32\n" * 2
    combine = prompt_ablation.combine_arms
    arms = prompt_arms.ask_pair("mine", llama, DATASET, again, combine)
    assert arms.groupby("demonstration").size().to_dict() == {"few": 2, "none": 2, "one": 2}
    assert starts.read_text() == "float32\n" * 2
    assert capsys.readouterr().out.count(" of 4 drawn") >= 2
    assert not list((tmp_path / "artifacts").rglob("drawn.jsonl")), "as nothing tells of edits"


def test_one_that_waits_for_another_says_so_once_a_minute(tmp_path, monkeypatch):
    """It looks at the other's lock more often. The other ends after two minutes and a second."""
    now, reports = 0.0, []
    other = ExitStack()
    assert other.enter_context(try_lock(tmp_path / "lock"))

    def sleep(seconds):
        nonlocal now
        now += seconds
        if now >= 121:
            other.close()

    monkeypatch.setattr(vllm_launch.time, "sleep", sleep)
    with vllm_launch.wait_for_lock(tmp_path / "lock", lambda: reports.append(now)):
        assert 121 <= now < 130
    assert len(reports) == 2 and reports[1] - reports[0] == pytest.approx(60)


def test_an_outline_ends_where_the_loaded_model_does(llama):
    outline = loading.outline_language_model("tiny-llama", llama.spec)
    assert outline.eos == llama.eos
    assert outline.context == llama.context and outline.vocab_size == llama.vocab_size
    settings = SETTINGS.model_copy(update={"demonstration": "few"})
    requests = [generation.build_requests(lm, DATASET, ASKED, settings) for lm in (outline, llama)]
    assert requests[0] == requests[1]


@pytest.mark.parametrize(
    "python, message",
    [
        ("none", "or write `engine: transformers`"),
        (sys.executable, "ended with 1: ModuleNotFoundError: No module named"),
        ("/bin/false", "ended with 1: no word"),
    ],
)
def test_no_environment_is_one_line(llama, monkeypatch, tmp_path, python, message):
    monkeypatch.setenv("VLLM_PYTHON", python)
    with pytest.raises(UserError, match=message):
        vllm(llama, tmp_path)
