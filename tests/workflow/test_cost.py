"""Memory and hours of a model against cases worked out by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from transformers import GPT2Config, MambaConfig, Qwen3Config

from lib import params
from workflow import cost
from workflow.cost import Size, Work
from workflow.device import Device

H200 = Device(cuda=True, name="H200", memory=139e9, bandwidth=4e12, operations=7.9e14, bytes=2)
# A model of 8 billion parameters: 32 layers, 8 heads of keys and values of width 128, in bfloat16.
LLAMA = Size(weights=8_030_000_000, layers=32, cell=2 * 32 * 8 * 128 * 2)
PASSED = {
    "rescore": 11_111 * 4400,
    "verify": 11_111 * (35 + 150 + 300),  # of the response without its thinking
    "dropout": 10 * (11_111 + 3 * 100 * 2) * 4400 * 1.5,
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


def test_work_of_the_paper_profile():
    values = params.load_profile("paper").model_dump()
    thinks = Work.of(values, params.load_model_config("qwen3-8b-thinking"), 400)
    assert thinks == replace(PAPER, served=True, jobs=12, again=2 * 3 * 100 / PAPER.rows)
    spec = params.load_model_config("llama-3.1-8b")
    plain = Work.of(values, spec, 400)
    assert (plain.batch, plain.tokens, plain.longest, plain.middle) == (92, 300, 1424, 700)


@pytest.mark.parametrize("config, numbers", [
    (Qwen3Config(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16), 2 * 2 * 2 * 16),
    (GPT2Config(n_embd=64, n_layer=2, n_head=4), 2 * 2 * 64),
    (MambaConfig(hidden_size=64, num_hidden_layers=2), 0),  # of states alone
])  # fmt: skip
def test_numbers_of_a_token_in_the_cache_by_hand(config, numbers):
    """A key and a value per layer and head."""
    assert cost.cache_numbers_per_token(SimpleNamespace(config=config)) == numbers
