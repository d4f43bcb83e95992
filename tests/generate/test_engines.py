"""Responses from a file, and from an engine in an environment of its own: the same frames as drawn here."""

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import architectures
import numpy as np
import pytest
import synthetic
import torch

from lib import params
from lib.generate import generation, imported_responses, models, vllm_engine
from lib.params import Generation
from lib.paths import ROOT, UserError

SETTINGS = Generation(seed=3, demonstration="none", max_new_tokens=60, top_logits=16, n_temperature_nodes=9)
RECORDED = json.loads((ROOT / "tests" / "vllm_demo.json").read_text(encoding="utf-8"))
DATASET = "demo-medium"


def examples(count):
    return architectures.examples(DATASET, count)


@pytest.fixture(scope="module")
def lm():
    torch.set_num_threads(1)
    return models.load_language_model("tiny-llama", params.load_model_config("tiny-llama"))


@pytest.fixture(scope="module")
def here(lm):
    return Source(lm, "transformers", examples(6)).respond(examples(6))


class Source:
    """An engine with its model, as 01 has them."""

    def __init__(self, lm, engine, asked, folder=Path):
        self.lm = lm
        self.engine = generation.choose_engine(lm, DATASET, SETTINGS, engine, asked, folder)
        self.facts = self.engine.facts

    def respond(self, asked):
        return generation.generate_responses(self.lm, DATASET, asked, SETTINGS, self.engine)


def from_file(lm, path, asked=None):
    spec = lm.spec.model_copy(update={"responses": str(path)})
    return Source(dataclasses.replace(lm, spec=spec), "transformers", asked or examples(6))


def same(found, expected, atol=5e-5):
    for column in ("example_id", "answer", "answer_start", "text", "finish_reason", "eos"):
        assert found[column].tolist() == expected[column].tolist(), column
    for a, b in zip(found.itertuples(), expected.itertuples(), strict=True):
        assert np.array_equal(a.token_ids, b.token_ids)
        np.testing.assert_allclose(a.token_logprobs, b.token_logprobs, atol=atol)


def put(folder, *lines):
    path = folder / "responses.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# ---- a file


def test_what_one_run_wrote_is_another_runs_file(lm, here, tmp_path):
    source = from_file(lm, synthetic.write_responses(here, tmp_path / "responses.jsonl"))
    found = source.respond(examples(6))
    same(found, here)
    assert source.facts == {"engine": "file", "responses": 6}


def test_texts_are_tokenised_and_ended(lm, here, tmp_path):
    whole = here[here.finish_reason == "stop"].head(2)
    path = put(
        tmp_path,
        *(
            {"example_id": row.example_id, "text": row.text.removesuffix(lm.tokenizer.eos_token)}
            for row in whole.itertuples()
        ),
    )
    wanted = [example for example in examples(6) if example.example_id in set(whole.example_id)]
    same(from_file(lm, path, wanted).respond(wanted), whole.reset_index(drop=True))


def test_the_dataset_in_the_name_of_the_file(lm):
    spec = params.Model(label="x", source="a/b", responses="mine/{dataset}.jsonl")
    assert spec.responses_to("svamp") == ROOT / "mine" / "svamp.jsonl"
    with pytest.raises(ValueError, match="responses"):
        params.Model(label="x", source="a/b", responses="mine/{data}.jsonl")


def test_questions_without_a_response_and_answered_twice(lm, here, tmp_path):
    path = synthetic.write_responses(here.head(4), tmp_path / "responses.jsonl")
    source = from_file(lm, path)
    lost = source.respond(examples(6)).tail(2)
    assert source.facts == {"engine": "file", "responses": 4, "unanswered": 2}
    assert lost.text.tolist() == ["", ""] and lost.answer.isna().all() and [*map(len, lost.token_ids)] == [1, 1]
    path.write_text(json.dumps({"example_id": "z", "text": "7"}) + "\n")
    with pytest.raises(UserError, match=f"no response to 6 of 6 questions, the first '{here.example_id[0]}'"):
        from_file(lm, path)
    synthetic.write_responses(here.head(4), path)
    path.write_text(path.read_text() * 2)
    with pytest.raises(UserError, match=f"line 5: '{here.example_id[0]}' has been answered before"):
        from_file(lm, path)
    with pytest.raises(UserError, match="can't be read"):
        from_file(lm, tmp_path / "absent.jsonl")


def test_an_id_that_the_vocabulary_lacks(lm, tmp_path):
    (asked,) = examples(1)
    source = from_file(lm, put(tmp_path, {"example_id": asked.example_id, "token_ids": [10**6]}), [asked])
    with pytest.raises(UserError, match="token id 1000000, and the vocabulary"):
        source.respond([asked])


# ---- vLLM


def test_what_vllm_wrote_is_rescored(lm):
    """Ids and log-probabilities that vLLM (float32) gave for demo prompts, recorded in tests/vllm_demo.json."""
    settings = Generation.of(RECORDED["settings"])
    by_id = {line["example_id"]: line for line in RECORDED["answers"]}
    asked = [example for example in examples(None) if example.example_id in by_id]
    engine = types.SimpleNamespace(sample=lambda some: [by_id[one.example.example_id]["token_ids"] for one in some])
    frame = generation.generate_responses(lm, DATASET, asked, settings, engine)
    assert len(frame) == len(by_id) > 10 and frame.answer.notna().mean() > 0.9
    for row in frame.itertuples():
        np.testing.assert_allclose(row.token_logprobs, by_id[row.example_id]["token_logprobs"], atol=1e-4)


FAKE = """
    import json, os, sys
    asked = json.load(open(sys.argv[1]))
    print("sockets in", os.environ["VLLM_RPC_BASE_PATH"])
    print("drawing", len(asked["requests"]))
    with open(sys.argv[2], "a") as file:
        for i, (example_id, prompt, seed, max_tokens) in enumerate(asked["requests"]):
            if i == {stop}:
                file.write('{{"example_id": "half a li')
                sys.exit("out of memory")
            ids = [5 + seed % 40 + i % 2, asked["sampling"]["stop_token_ids"][0]]
            file.write(json.dumps({{"example_id": example_id, "token_ids": ids}}) + "\\n")
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A worker that draws nonsense, and fails at its fifth request where it is told to."""

    def write(stop):
        (tmp_path / "worker.py").write_text(textwrap.dedent(FAKE).format(stop=stop))
        monkeypatch.setattr(vllm_engine, "WORKER", tmp_path / "worker.py")

    monkeypatch.setenv("VLLM_PYTHON", sys.executable)
    monkeypatch.setattr(vllm_engine, "find_vllm", lambda: (sys.executable, "0"))
    return write


def vllm(lm, folder, count=6):
    return Source(lm, "vllm", examples(count), lambda: folder)


def test_all_are_drawn_at_once_and_rescored_in_shards(lm, worker, tmp_path, capsys):
    """The log is named before; rows at once are as many as a GPU's cache holds, and paths of sockets are short."""
    worker(stop=-1)
    source = vllm(lm, tmp_path / "shards")
    first, rest = source.respond(examples(6)[:2]), source.respond(examples(6)[2:])
    assert "sockets in /tmp\ndrawing 6" in (log := tmp_path / "shards" / "vllm.log").read_text()
    assert capsys.readouterr().out == f"vLLM draws 6 responses; {log} says how far it is\n"
    assert first.example_id.tolist() + rest.example_id.tolist() == [example.example_id for example in examples(6)]
    assert source.facts["engine"] == "vllm"
    orders = json.loads((tmp_path / "shards" / "requests.json").read_text())
    assert orders["sampling"] | {"temperature": lm.spec.temperature, "stop_token_ids": lm.eos} == orders["sampling"]
    assert orders["engine"]["max_num_seqs"] == 256
    assert {seed for _, _, seed, _ in orders["requests"]} == set(first.seed) | set(rest.seed)


def test_a_failed_engine_is_one_line_and_what_it_drew_is_kept(lm, worker, tmp_path):
    worker(stop=4)
    source = vllm(lm, tmp_path / "shards")
    with pytest.raises(UserError, match="^vLLM ended with 1: out of memory$"):
        source.respond(examples(6))
    worker(stop=-1)
    source.respond(examples(6))
    assert "drawing 2" in (tmp_path / "shards" / "vllm.log").read_text()


STUB = """
    import time
    class LLM:
        def __init__(self, **engine):
            self.llm_engine, self.waiting = self, []
        def add_request(self, name, prompt, sampling):
            self.waiting.append((name, prompt["prompt_token_ids"]))
        def has_unfinished_requests(self):
            return bool(self.waiting)
        def step(self):
            time.sleep(0.3)
            name, ids = self.waiting.pop()
            answer = Output(token_ids=ids[::-1], finish_reason="stop")
            return [Output(request_id=name, finished=True, outputs=[answer])]
    class Output:
        def __init__(self, **given):
            self.__dict__.update(given)
    def SamplingParams(**given):
        return given
    CompletionOutput = Output
"""


@pytest.fixture
def orders(tmp_path):
    """What the worker is told, with a module in vLLM's place that answers a request with its prompt turned round."""
    (tmp_path / "vllm.py").write_text(textwrap.dedent(STUB))
    requests = [(f"e{i}", [i, 5], i, 3) for i in range(40)]
    path = tmp_path / "requests.json"
    path.write_text(json.dumps({"engine": {}, "sampling": {}, "requests": requests}))
    return [sys.executable, str(vllm_engine.WORKER), str(path), str(tmp_path / "drawn.jsonl")]


def test_the_worker_writes_a_line_as_soon_as_a_response_has_ended(orders, tmp_path):
    asked = json.loads(Path(orders[2]).read_text())
    Path(orders[2]).write_text(json.dumps(asked | {"requests": asked["requests"][:2]}))
    subprocess.run(orders, check=True, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    found = imported_responses.read_response_file(tmp_path / "drawn.jsonl", DATASET)
    assert {name: one.token_ids for name, one in found.items()} == {"e0": [5, 0], "e1": [5, 1]}


@pytest.mark.slow
def test_a_worker_ends_with_the_job_that_started_it(orders, tmp_path):
    """Killed as it is, a job can't tell its worker; an orphan would write on beside the next run's."""
    code = f"import subprocess; subprocess.run({orders!r}, start_new_session=True)"
    job = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(tmp_path)})
    answers = tmp_path / "drawn.jsonl"
    until(lambda: answers.exists() and answers.read_text().count("\n") > 1)
    job.kill()
    job.wait()
    time.sleep(2)
    there = answers.read_text()
    time.sleep(1)
    assert answers.read_text() == there and there.count("\n") < 40


def until(found, seconds=30):
    ends = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.05)


def test_why_an_engine_failed_is_its_first_error():
    log = "INFO ok\n(Worker) ERROR [x.py:9] ValueError: too little memory\n  File x\nRuntimeError: See above."
    assert vllm_engine.find_root_cause(log) == "ValueError: too little memory"
    assert vllm_engine.find_root_cause("loading\nout of memory\n") == "out of memory"
    assert vllm_engine.find_root_cause("") == "no word"


@pytest.mark.parametrize("free, total, share", [(80e9, 80e9, 0.6), (24e9, 40e9, 0.562), (28e9, 48e9, 0.552)])
def test_vllm_takes_its_share_of_what_is_free(monkeypatch, free, total, share):
    """It refuses to start where less is free than its share of the whole: a loaded model lies there, too."""
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (free, total))
    found = vllm_engine.memory_budget(torch.device("cuda"), 99)
    assert found == {"gpu_memory_utilization": pytest.approx(share, abs=1e-3)}
    for free, cache in ((4e9, 1e9), (64e9, 2**32)):  # on a processor: else it reserves nearly all memory
        monkeypatch.setattr("psutil.virtual_memory", lambda free=free: types.SimpleNamespace(available=int(free)))
        assert vllm_engine.memory_budget(torch.device("cpu"), 99)["kv_cache_memory_bytes"] == cache


LEAVES = """
    import json, pathlib, subprocess, sys
    core = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    place = pathlib.Path(sys.argv[2]).parent
    (place / "core").write_text(str(core.pid))
    (place / "path").write_text(json.dumps(sys.path))
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_what_a_killed_worker_has_started_ends_with_it(lm, worker, tmp_path, monkeypatch):
    """Its engine would keep the GPU's memory; and no module of this project stands where it imports from."""
    worker(stop=-1)
    (tmp_path / "worker.py").write_text(textwrap.dedent(LEAVES))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with pytest.raises(UserError, match="vLLM ended with -9"):
        vllm(lm, tmp_path / "shards").respond(examples(6))
    core = Path("/proc") / (tmp_path / "shards" / "core").read_text()
    until(lambda: not core.exists() or "Z" in (core / "stat").read_text().split()[2])
    path = json.loads((tmp_path / "shards" / "path").read_text())
    assert str(ROOT) not in path and str(tmp_path) not in path


def test_no_environment_is_one_line(lm, monkeypatch, tmp_path):
    monkeypatch.setenv("VLLM_PYTHON", str(tmp_path / "none"))
    with pytest.raises(UserError, match="VLLM_PYTHON; or write `engine: transformers`"):
        vllm(lm, tmp_path)
    monkeypatch.setenv("VLLM_PYTHON", sys.executable)
    with pytest.raises(UserError, match="has no vLLM"):
        vllm(lm, tmp_path)
