"""Responses from a file, and from an engine in an environment of its own: the same frames as drawn here."""

import dataclasses
import json
import sys
import textwrap
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
from architectures import SETTINGS, assert_alike, examples
from clone import until

from lib.generate import generation
from lib.params import Generation
from lib.paths import ROOT, UserError

RECORDED = json.loads((ROOT / "tests" / "vllm_demo.json").read_text(encoding="utf-8"))
DATASET = "demo-medium"
ASKED = examples(DATASET, 6)
NAMES = [example.example_id for example in ASKED]


def respond(lm, engine=None, asked=ASKED):
    return generation.generate_responses(lm, DATASET, asked, SETTINGS, engine)


# ---- a file


def file_engine(lm, path):
    spec = lm.spec.model_copy(update={"responses": str(path)})
    return generation.choose_engine(dataclasses.replace(lm, spec=spec), DATASET, SETTINGS, "transformers", ASKED, Path)


def test_what_one_run_wrote_is_another_runs_file(llama, tmp_path):
    """Token ids, one response as its text, which is tokenized and ended, and none to the last question."""
    here = respond(llama, generation.choose_engine(llama, DATASET, SETTINGS, "transformers", ASKED, Path))
    path, ended = tmp_path / "responses.jsonl", here[here.finish_reason == "stop"].iloc[0]
    synthetic.write_responses(here[:5].drop(ended.name), path)
    with path.open("a") as file:
        print(json.dumps({"example_id": ended.example_id, "text": ended.text}), file=file)
    engine = file_engine(llama, path)
    found = respond(llama, engine)
    assert_alike(found[:5], here[:5])
    missing = "are missing: rows without an answer, which count as wrong"
    assert engine.facts == {"engine": "file", "responses": 5, missing: 1}
    assert found.text[5] == "" and found.answer.isna()[5] and len(found.token_ids[5]) == 1


# ---- vLLM


def test_what_vllm_wrote_is_rescored(llama):
    """Ids and log-probabilities that vLLM (float32) gave for demo prompts, recorded in tests/vllm_demo.json."""
    settings = Generation.of(RECORDED["settings"])
    by_id = {line["example_id"]: line for line in RECORDED["answers"]}
    asked = [example for example in examples(DATASET) if example.example_id in by_id]
    engine = types.SimpleNamespace(sample=lambda some: [by_id[one.example.example_id]["token_ids"] for one in some])
    frame = generation.generate_responses(llama, DATASET, asked, settings, engine)
    assert len(frame) == len(by_id) > 10 and frame.answer.notna().mean() > 0.9
    for row in frame.itertuples():
        np.testing.assert_allclose(row.token_logprobs, by_id[row.example_id]["token_logprobs"], atol=1e-4)


STUB = """
    import os, signal, subprocess, sys
    from pathlib import Path
    from types import SimpleNamespace as Object
    here, order = Path(__file__).parent, os.environ.get("STUB")
    print("sockets in", os.environ["VLLM_RPC_BASE_PATH"], "ours" * any(path.endswith("generate") for path in sys.path))
    class LLM:
        def __init__(self, **engine):
            self.llm_engine, self.waiting, self.drawn = self, [], 0
            if order == "killed":
                core = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
                (here / "core").write_text(str(core.pid))
                os.kill(os.getpid(), signal.SIGKILL)
        def add_request(self, name, prompt, sampling):
            self.waiting.append((name, prompt["prompt_token_ids"], sampling))
        def has_unfinished_requests(self):
            return bool(self.waiting)
        def step(self):
            if order == "memory" and self.drawn == 4:
                print("(Worker) ERROR [x.py:9] ValueError: too little memory")
                raise RuntimeError("See above.")
            self.drawn += 1
            name, prompt, sampling = self.waiting.pop()
            ids = [5 + sampling["seed"] % 40 + len(prompt) % 2, sampling["stop_token_ids"][0]]
            ids, reason = (ids, "stop") if sampling["seed"] % 2 else (ids[:1], "length")
            going, one = Object(request_id=name, finished=False), Object(token_ids=ids, finish_reason=reason)
            return [going, Object(request_id=name, finished=True, outputs=[one])]
    SamplingParams, __version__ = dict, "9.9"
"""


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """A Python with a module in vLLM's place, which draws nonsense or ends in the way that STUB says."""
    python = tmp_path / "python"
    (tmp_path / "vllm.py").write_text(textwrap.dedent(STUB))
    refused = '[ -z "$PYTHONPATH" ] || exit 3'
    python.write_text(f'#!/bin/sh\n{refused}\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("VLLM_PYTHON", str(python))
    return lambda order: monkeypatch.setenv("STUB", order)


def vllm(lm, folder):
    return generation.choose_engine(lm, DATASET, SETTINGS, "vllm", ASKED, folder)


def test_all_are_drawn_at_once_into_a_file_which_a_failed_engine_leaves(llama, stub, tmp_path):
    """A failure is one line, the first of its errors; half a line, as of a killed worker, is not kept. Paths of sockets
    are short, and no module of this project stands where vLLM's are imported from."""
    stub("memory")
    drawn, log = tmp_path / "shards" / "drawn.jsonl", tmp_path / "shards" / "vllm.log"
    with pytest.raises(UserError, match="^vLLM ended with 1: ValueError: too little memory$"):
        vllm(llama, tmp_path / "shards")
    with drawn.open("a") as file:
        file.write('{"example_id": "half a li')
    stub("")
    engine = vllm(llama, tmp_path / "shards")
    assert "sockets in /tmp \n2 responses drawn" in log.read_text()
    frame = pd.concat([respond(llama, engine, ASKED[:2]), respond(llama, engine, ASKED[2:])])
    asked = generation.build_requests(llama, DATASET, ASKED, SETTINGS)
    ids = [[5 + one.seed % 40 + len(one.prompt_ids) % 2, llama.eos[0]][: 1 + one.seed % 2] for one in asked]
    assert frame.example_id.tolist() == NAMES and [*map(list, frame.token_ids)] == ids
    assert frame.finish_reason.tolist() == [["length", "stop"][one.seed % 2] for one in asked]
    assert engine.facts == {"engine": "vllm", "version": "9.9", "responses": 6, "batch_invariant": "0"}
    orders = json.loads((tmp_path / "shards" / "requests.json").read_text())
    assert orders["sampling"]["temperature"] == llama.spec.temperature
    again = respond(llama, file_engine(llama, drawn))
    assert [*map(list, again.token_ids)] == ids, "as any file of responses"
    assert vllm(llama, tmp_path / "shards").facts["version"] == "9.9" and log.read_text() == "", "vLLM does not start"


@pytest.mark.slow
def test_what_a_killed_worker_has_started_ends_with_it(llama, stub, tmp_path):
    """Its engine would keep the GPU's memory."""
    stub("killed")
    with pytest.raises(UserError, match="^vLLM ended with -9: sockets in /tmp"):
        vllm(llama, tmp_path / "shards")
    core = Path("/proc") / (tmp_path / "core").read_text()
    until(lambda: not core.exists() or "Z" in (core / "stat").read_text().split()[2])


def test_no_environment_is_one_line(llama, monkeypatch, tmp_path):
    for python, said in (
        (tmp_path / "none", "or write `engine: transformers`"),
        (sys.executable, "No module named 'vllm'"),
    ):
        monkeypatch.setenv("VLLM_PYTHON", str(python))
        with pytest.raises(UserError, match=said):
            vllm(llama, tmp_path)
