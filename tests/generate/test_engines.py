"""Responses from a file, and from an engine in an environment of its own: the same frames as drawn
here."""

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

from lib.errors import UserError
from lib.generate import generation
from lib.params import Generation
from lib.paths import ROOT

RECORDED = json.loads((ROOT / "tests" / "vllm_demo.json").read_text(encoding="utf-8"))
DATASET = "demo-medium"
ASKED = examples(DATASET, 6)


def respond(lm, engine=None, asked=ASKED):
    return generation.generate_responses(lm, DATASET, asked, SETTINGS, engine)


# ---- a file


def file_engine(lm, path):
    spec = lm.spec.model_copy(update={"responses": str(path)})
    return generation.choose_engine(
        dataclasses.replace(lm, spec=spec), DATASET, SETTINGS, "transformers", ASKED, Path
    )


def test_what_one_run_wrote_is_another_runs_file(llama, tmp_path):
    """The last question has no response in it."""
    here = respond(
        llama, generation.choose_engine(llama, DATASET, SETTINGS, "transformers", ASKED, Path)
    )
    engine = file_engine(llama, synthetic.write_responses(here[:5], tmp_path / "responses.jsonl"))
    found = respond(llama, engine)
    assert_alike(found[:5], here[:5])
    missing = "are missing: rows without an answer, which count as wrong"
    assert engine.facts == {"engine": "file", "responses": 5, missing: 1}
    assert found.text[5] == "" and found.answer.isna()[5] and len(found.token_ids[5]) == 1


# ---- vLLM


def test_what_vllm_wrote_is_rescored(llama):
    """Ids and log-probabilities that vLLM (float32) gave for demo prompts, recorded in
    tests/vllm_demo.json."""
    settings = Generation.of(RECORDED["settings"])
    by_id = {line["example_id"]: line for line in RECORDED["answers"]}
    asked = [example for example in examples(DATASET) if example.example_id in by_id]
    engine = types.SimpleNamespace(
        sample=lambda some: [by_id[one.example.example_id]["token_ids"] for one in some]
    )
    frame = generation.generate_responses(llama, DATASET, asked, settings, engine)
    assert len(frame) == len(by_id) > 10 and frame.answer.notna().mean() > 0.9
    for row in frame.itertuples():
        np.testing.assert_allclose(
            row.token_logprobs, by_id[row.example_id]["token_logprobs"], atol=1e-4
        )


STUB = """
    import os, subprocess, sys
    from pathlib import Path
    from types import SimpleNamespace as Object
    core = Path(__file__).with_name("core")
    fails = not core.exists()  # the first time
    print("sockets in", os.environ["VLLM_RPC_BASE_PATH"], "ours" * any(path.endswith("generate") for path in sys.path))
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
            going, one = Object(request_id=name, finished=False), Object(token_ids=ids, finish_reason=reason)
            return [going, Object(request_id=name, finished=True, outputs=[one])]
    SamplingParams, __version__ = dict, "9.9"
"""


def vllm(lm, folder):
    return generation.choose_engine(lm, DATASET, SETTINGS, "vllm", ASKED, folder)


def test_all_are_drawn_at_once_into_a_file_which_a_failed_engine_leaves(
    llama, tmp_path, monkeypatch
):
    """By a Python with a module in vLLM's place, which draws nonsense. A failure is one line, the
    first of its errors; what the engine started ends, or it would keep the GPU's memory; half a
    line, as of a killed worker, is not kept. Paths of sockets are short, and no module of this
    project stands where vLLM's are imported from."""
    (tmp_path / "vllm.py").write_text(textwrap.dedent(STUB))
    python, shards = tmp_path / "python", tmp_path / "shards"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{tmp_path}" exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "lib" / "generate"))
    monkeypatch.setenv("VLLM_PYTHON", str(python))
    with pytest.raises(UserError, match="^vLLM ended with 1: ValueError: too little memory$"):
        vllm(llama, shards)
    core = Path("/proc") / (tmp_path / "core").read_text()
    until(lambda: not core.exists() or "Z" in (core / "stat").read_text().split()[2])
    with (shards / "drawn.jsonl").open("a") as file:
        file.write('{"example_id": "half a li')
    engine = vllm(llama, shards)
    assert "sockets in /tmp \n2 responses drawn" in (shards / "vllm.log").read_text()
    assert engine.facts == {
        "engine": "vllm",
        "version": "9.9",
        "responses": 6,
        "batch_invariant": "0",
    }
    orders = json.loads((shards / "requests.json").read_text())
    # 0: off
    assert (orders["sampling"]["temperature"], orders["sampling"]["top_k"]) == (
        llama.spec.temperature,
        0,
    )
    asked = generation.build_requests(llama, DATASET, ASKED, SETTINGS)
    ids = [
        [5 + one.seed % 40 + len(one.prompt_ids) % 2, llama.eos[0]][: 1 + one.seed % 2]
        for one in asked
    ]
    frame = pd.concat([respond(llama, engine, ASKED[:2]), respond(llama, engine, ASKED[2:])])
    # as any file of responses
    for found in frame, respond(llama, file_engine(llama, shards / "drawn.jsonl")):
        assert found.example_id.tolist() == [one.example_id for one in ASKED]
        assert [*map(list, found.token_ids)] == ids
        assert found.finish_reason.tolist() == [["length", "stop"][one.seed % 2] for one in asked]
    vllm(llama, shards)
    assert (shards / "vllm.log").read_text() == "", "where nothing is left, vLLM does not start"


@pytest.mark.parametrize("python, said", [
    ("none", "or write `engine: transformers`"), (sys.executable, "ended with 1: ModuleNotFoundError: No module named"),
    ("/bin/false", "ended with 1: no word"),
])  # fmt: skip
def test_no_environment_is_one_line(llama, monkeypatch, tmp_path, python, said):
    monkeypatch.setenv("VLLM_PYTHON", python)
    with pytest.raises(UserError, match=said):
        vllm(llama, tmp_path)
