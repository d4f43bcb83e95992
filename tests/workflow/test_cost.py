"""Memory and hours of a model against cases worked out by hand."""

import re
from dataclasses import replace

import pytest

from lib import params
from workflow import check, cost
from workflow.cost import Device, Size, Work

H200 = Device(cuda=True, name="H200", memory=139e9, bandwidth=4e12, operations=7.9e14, bytes=2)
# A model of 8 billion parameters: 32 layers, 8 heads of keys and values of width 128, in bfloat16.
LLAMA = Size(weights=8_030_000_000, layers=32, cell=2 * 32 * 8 * 128 * 2)
PASSED = {
    "rescore": 11_111 * 4400,
    "verify": 11_111 * (35 + 150 + 300),  # of the response without its thinking
    "dropout": 10 * (11_111 + 3 * 100 * 2) * 4400 * 1.5 + 11_111 * 4400 + 10 * (11_111 + 600) * 4,
}
PAPER = Work(rows=11_111, batch=3, budget=131_072, prompt=400, tokens=4000, longest=33_168, passed=PASSED)


MANY, SERVED = replace(PAPER, batch=92, prompt=6000), replace(PAPER, served=True)
SLOW = replace(H200, operations=1e12)
WEIGHTS, CACHE = 16.06e9, 131_072  # bytes: of all weights, and of a token
LAUNCH = 32 * 1.1e-3  # at most, of the layers
STEP = (WEIGHTS + 214 * 2400 * CACHE) / 4e12


@pytest.mark.parametrize("work, device, low, high", [
    # 3 rows of 4400 tokens: 32 layers of 0.7 ms take longer than reading at 4 TB/s
    (PAPER, H200, 32 * 0.7e-3, (WEIGHTS + 3 * 3 * 4400 * CACHE) / 4e12 + LAUNCH),
    # 92 rows of 10,000 tokens: 120.6 GB of cache to be read, 34 ms; the weights' share is 4 ms
    (MANY, H200, (WEIGHTS + 92 * 10_000 * CACHE) / 4e12, (WEIGHTS + 3 * 92 * 10_000 * CACHE) / 4e12 + LAUNCH),
    (MANY, SLOW, 2 * 8.03e9 * 92 / 1e12, 2 * 8.03e9 * 92 / 1e12 + LAUNCH),
    (SERVED, H200, STEP, 2 * STEP),
])  # fmt: skip
def test_a_step_is_bound_by_launches_caches_or_arithmetic(work, device, low, high):
    assert cost.step_seconds(LLAMA, work, device) == pytest.approx((low, high))


def test_vllm_has_as_many_rows_as_fit_beside_the_weights():
    """(83.4 - 16.06) GB of 0.6 x 139 GB, over 2400 tokens of 131,072 bytes; none waits for the longest."""
    assert cost.rows_at_once(LLAMA, SERVED, H200) == int((0.6 * 139e9 - WEIGHTS) / (2400 * CACHE)) == 214
    seconds = 11_111 / 214 * 4000 * STEP + 11_111 * 400 * 2 * 8.03e9 / (7.9e14 / 3)
    assert cost.estimate_hours(LLAMA, SERVED, H200)["draw"][0] == pytest.approx(seconds / 3600)


def test_parts_by_hand(monkeypatch):
    """10 rows, 5 at once, 100 tokens: 2 batches of 130 to 200 steps of 1 to 2 s. A token takes 2 x 1000 operations, at
    6000 a second, and 30 tokens of a prompt are its own."""
    size, device = Size(1000, 1, 1), replace(H200, operations=18_000)
    passed = {"rescore": 1300, "verify": 2850, "dropout": 22_500}
    work = Work(10, 5, budget=1000, prompt=50, tokens=100, longest=250, passed=passed, shared=20, again=0.5, jobs=4)
    monkeypatch.setattr(cost, "step_seconds", lambda *some: (1, 2))
    parts = {name: [3600 * value for value in hours] for name, hours in cost.estimate_hours(size, work, device).items()}
    assert parts["draw"] == pytest.approx([2 * 130 + 100, 2 * 200 * 2 + 100])
    for name, count in passed.items():
        assert parts[name] == pytest.approx([count / 3] * 2)
    assert parts["ablation"] == pytest.approx([(drawn + 1300 / 3) / 2 for drawn in parts["draw"]])
    assert parts["loads"] == pytest.approx([4 * 20] * 2)
    assert cost.sum_hours([(1, 2), (3, 4)]) == (4, 6)


def test_every_notebook_that_runs_a_model_has_its_parts():
    named = [name for parts in cost.PARTS.values() for name in parts]
    assert {*named, "loads"} == set(cost.estimate_hours(LLAMA, PAPER, H200)) and len(cost.PARTS) == cost.OF_PAIR


def test_memory_of_an_8b_model():
    """One cache of 131,072 tokens, 17.2 GB, beside 17.7 GB of weights; a layer more, and 92 rows' distributions."""
    size, work = Size(1000, 2, 20, vocabulary=50), replace(PAPER, longest=100)
    assert cost.token_bytes(size, work) == 20 + 10 + 22, "cache, copy of a layer, 44 x 50 of a row's 100 tokens"
    level, text = check.check_memory(replace(LLAMA, vocabulary=128_256), replace(PAPER, batch=92, longest=1424), H200)
    need = float(re.search(r"up to (\S+) GB", text)[1])
    assert level == "ok" and 34.8 < need < 40


def test_work_of_the_paper_profile():
    values = params.load_profile("paper").model_dump()
    thinks = Work.of(values, params.load_model_config("qwen3-8b-thinking"), 400)
    assert thinks == replace(PAPER, served=True, jobs=12, again=2 * 3 * 100 / PAPER.rows)
    spec = params.load_model_config("llama-3.1-8b")
    plain = Work.of(values, spec, 400)
    assert (plain.batch, plain.tokens, plain.longest, plain.middle) == (92, 300, 1424, 700)
    assert not Work.of(values | {"engine": "transformers"}, spec, 400).served
    assert not Work.of(values, spec.model_copy(update={"responses": "mine.jsonl"}), 400).served


def test_work_of_part_of_the_rows():
    """Of each split at most so many, and passes over fewer; answers are short after worked examples."""
    spec = params.load_model_config("qwen2.5-coder-1.5b")
    values = params.load_profile("small").model_dump()
    values |= {"dropout_limit": 80, "dropout_scope": ["answer", "trajectory"]}
    work = Work.of(values, spec, 470, shared=411)
    assert (work.rows, work.tokens, work.shared) == (3 * 2 * 300, 100, 411)
    assert work.passed["rescore"] == 1800 * (59 + 100) and work.passed["verify"] == 1800 * (35 + 150 + 100)
    # each of 3 x 600 rows is read once, after the beginning, and its 4 answer tokens by all passes
    at_answer, rows = 3 * 600 * (59 + 100) + 10 * 3 * (600 + 40 * 2) * 4, 10 * 3 * (2 * 80 + 40 * 2)
    assert work.passed["dropout"] == rows * (59 + 100) * 1.5 + at_answer
    own = Work.of(values | {"dropout_prefix": "own"}, spec, 470, shared=411)
    assert own.passed["dropout"] == rows * (470 + 100) * 1.5 + at_answer
    assert Work.of(values | {"dropout_scope": ["answer"]}, spec, 470, 411).passed["dropout"] == at_answer
