"""Hours of a model against cases worked out by hand, and against what was measured of the paper's run."""

import re
from dataclasses import replace

import pytest

from lib import params
from workflow import check, cost
from workflow.cost import Device, Size, Work
from workflow.pipeline import Run

H200 = Device(cuda=True, name="H200", memory=139e9, bandwidth=4e12, operations=7.9e14, bytes=2)
# A model of 8 billion parameters: 32 layers, 8 heads of keys and values of width 128, in bfloat16.
LLAMA = Size(weights=8_030_000_000, layers=32, cell=2 * 32 * 8 * 128 * 2)
QWEN = Size(weights=8_190_000_000, layers=36, cell=2 * 36 * 8 * 128 * 2)
PAPER = Work(rows=11_111, batch=3, budget=131_072, prompt=400, tokens=4000, longest=33_168,
             passes=10 * (11_111 + 3 * 100 * 2), at_answer=11_111 * 4400 + 10 * (11_111 + 600) * 4)  # fmt: skip


def test_few_rows_are_bound_by_launches():
    """32 layers of 0.7 ms; at most 1.1 ms each, and 16.06 GB of weights and 3 x 1.73 GB of caches at 4 TB/s."""
    low, high = cost.step_seconds(LLAMA, 3, 4400, H200)
    assert low == pytest.approx(32 * 0.7e-3)
    caches = 3 * 4400 * 131_072
    assert high == pytest.approx((16.06e9 + 3 * caches) / 4e12 + 32 * 1.1e-3)
    assert 0.022 < low < high < 0.05


def test_many_rows_are_bound_by_their_caches():
    """92 rows of 10,000 tokens: 120.6 GB of cache to be read, 34 ms; the weights' share is 4 ms."""
    low, _ = cost.step_seconds(LLAMA, 92, 10_000, H200)
    assert low == pytest.approx((16.06e9 + 92 * 10_000 * 131_072) / 4e12) and low > 0.034


def test_a_slow_processor_is_bound_by_arithmetic():
    low, _ = cost.step_seconds(LLAMA, 100, 10, replace(H200, operations=1e12))
    assert low == pytest.approx(2 * 8.03e9 * 100 / 1e12)


def test_hours_by_hand():
    """10 rows, 5 at once, 100 tokens: 2 batches of 150 to 200 steps of 1 to 2 s; 30 tokens of a prompt, these and the
    response once more, the query, the
    standard prompt with the response; and 100 passes over all of 150 tokens, each as long as 1.5."""
    size = Size(1000, 1, 1)
    work = Work(rows=10, batch=5, budget=1000, prompt=50, tokens=100, longest=250, shared=20, passes=100)
    device = replace(H200, operations=6000)
    encoding, dropout = (n * 2 * 1000 / 2000 for n in (10 * (30 + 130 + 35 + 250), 100 * 150 * 1.5))
    total, of_dropout = cost.hours(size, work, (1, 2), device)
    assert of_dropout == pytest.approx(dropout / 3600)
    assert total == pytest.approx(((300 + encoding + dropout) / 3600, (800 + encoding + dropout) / 3600))
    assert cost.hours(size, replace(work, at_answer=9000), (1, 2), device)[1] == pytest.approx((dropout + 9000) / 3600)
    short = replace(work, longest=50 + 120, passes=0)  # no response is longer than the limit
    assert cost.hours(size, short, (1, 1), device)[0] == pytest.approx(((2 * 120 + encoding) / 3600,) * 2)
    processor, encoding = replace(device, cuda=False), encoding / 3 / 0.9  # ended rows handed over, cores kept busy
    assert cost.hours(size, replace(work, passes=0), (1, 1), processor)[0] == pytest.approx(
        ((2 * 110 + encoding) / 3600, (2 * 150 + encoding) / 3600))  # fmt: skip


def test_the_papers_thinking_models_take_what_was_reckoned_for_them():
    """356 hours on one H200 for the five models as configured, nearly all of them of the two that think.

    Counting a step as one reading of the weights gave 42 hours a model, a quarter of it.
    """
    totals = [cost.hours(size, PAPER, cost.step_seconds(size, 3, PAPER.half, H200), H200)[0]
              for size in (LLAMA, QWEN)]  # fmt: skip
    low, high = map(sum, zip(*totals, strict=True))
    assert 250 < low < 356 < high < 800


def test_the_papers_thinking_models_drawn_by_vllm():
    """At most 256 rows at once, or as many as 0.6 of 139 GB hold beside the weights: (83.4 - 16.06) GB over 2400 tokens
    of 131,072 bytes. Each of their 4000 tokens is a step's share; then one pass over 4400 tokens of each row."""
    work, step = cost.served(LLAMA, replace(PAPER, served=True, passes=0), H200)
    assert work.batch == int((0.6 * 139e9 - 16.06e9) / (2400 * 131_072)) == 214
    assert step[0] == pytest.approx((16.06e9 + 214 * 2400 * 131_072) / 4e12) and step[1] == 2 * step[0]
    (low, high), _ = cost.hours(LLAMA, replace(work, at_answer=0), step, H200)
    token = 2 * 8.03e9 / (7.9e14 / 3) / 3600
    encoded = 11_111 * (400 + 35 + 150 + 4000 + 4400) * token
    assert low == pytest.approx(11_111 / 214 * 4000 * step[0] / 3600 + encoded)
    assert 1 < low < high < 5


def test_who_is_served():
    values, spec = params.load_profile("paper").model_dump(), params.load_model_config("llama-3.1-8b")
    assert Work.of(values, spec, 400).served and not Work.of(values | {"engine": "transformers"}, spec, 400).served
    assert not Work.of(values, spec.model_copy(update={"responses": "mine.jsonl"}), 400).served


def test_memory_of_a_token_by_hand():
    """2 layers of 10 bytes: 20 in the cache, 10 in a copy of a layer; 44 x 50 of a row's 100
    tokens."""
    size, work = Size(1000, 2, 20, vocabulary=50), replace(PAPER, longest=100)
    assert cost.token_bytes(size, work) == 20 + 10 + 22


def test_memory_of_an_8b_model():
    """One cache of 131,072 tokens, 17.2 GB, beside 17.7 GB of weights; a layer more, and 92 rows' distributions."""
    plain = replace(PAPER, batch=92, longest=1424)
    llama = replace(LLAMA, vocabulary=128_256)
    level, text = check.memory(llama, plain, H200)
    need = float(re.search(r"up to (\S+) GB", text)[1])
    assert level == "ok" and 34.8 < need < 40


def test_work_of_the_paper_profile():
    values = params.load_profile("paper").model_dump()
    thinks = cost.Work.of(values, params.load_model_config("qwen3-8b-thinking"), 400)
    assert thinks == replace(PAPER, served=True, jobs=12, left_out=4000 - 300, again=2 * 3 * 100 / PAPER.rows)
    plain = cost.Work.of(values, params.load_model_config("llama-3.1-8b"), 400)
    assert (plain.batch, plain.tokens, plain.longest, plain.half) == (92, 300, 1424, 700)


def test_starting_counts_for_every_notebook_that_runs_the_model():
    size, work = Size(1000, 1, 1), Work(rows=10, batch=5, budget=1000, prompt=50, tokens=100, longest=250)
    processor = replace(H200, cuda=False)
    without, more = (cost.hours(size, replace(work, jobs=jobs), (1, 2), processor)[0] for jobs in (0, 12))
    assert [b - a for a, b in zip(without, more, strict=True)] == pytest.approx([12 * 3 / 3600] * 2)
    assert Work.of(params.load_profile("demo").model_dump(), params.load_model_config("tiny-llama"), 60).jobs == 12


# Of a whole demo run on an idle machine of two cores: seconds of the jobs of a model (01, 03, 04, 04b, three datasets),
# tokens of its mean prompt and response. Of the same kind of processor, by processor time: seconds of a step of its
# batches, and of a token in a pass over 4096, as `cost.timed` measures them.
DEMO = {"tiny-llama": (191.7, 69, 41, 0.024, 34.4e-6), "tiny-qwen": (243.1, 67, 69, 0.019, 34.0e-6)}


@pytest.mark.parametrize("name", DEMO)
def test_the_demo_takes_what_is_reckoned_for_it(name):
    """Within a factor of 1.5 either way."""
    measured, prompt, tokens, step, passed = DEMO[name]
    values, spec = params.load_profile("demo").model_dump(), params.load_model_config(name)
    work = Work.of(values, spec, prompt, written=tokens)
    processor = replace(H200, cuda=False, bytes=4)
    (low, high), dropout = cost.hours(Size(950_000, 4, 1), work, (step, 2 * step), processor, passed)
    assert measured / 1.5 < 3600 * low < 3600 * high < 1.5 * measured
    assert 0.4 * measured < 3600 * dropout < 0.8 * measured  # 04 took 116 and 161 s


def test_the_small_run_takes_what_is_reckoned_for_it():
    """Within a factor of 1.5 either way, with matrix units in bfloat16. Of fifty rows, the seconds that the quickest of
    their kind took in 01, 03 and 04 at the answer, which read twelve times as many of each dataset, and in 04 over the
    whole, which reads some, and the tuning rows at two more rates; a step and a token as `cost.timed` measures them."""
    fifty = {"svamp": (90, 40, 50), "gsm8k": (165, 48, 51), "gsmhard": (153, 61, 82)}
    whole = {"svamp": 170, "gsm8k": 301, "gsmhard": 354}
    values, spec = params.load_profile("small").model_dump(), params.load_model_config("qwen2.5-coder-1.5b")
    passed = 2 * (values["dropout_limit"] + values["n_tuning_examples"]) / 50 * sum(whole.values())
    at_answer = 12 * sum(seconds[2] for seconds in fifty.values())
    measured = 12 * sum(map(sum, fifty.values())) + passed
    work = Work.of(values, spec, 448, shared=411, written=75)
    processor = replace(H200, cuda=False, bytes=2)
    (low, high), dropout = cost.hours(Size(1_800_000_000, 28, 1), work, (0.86, 0.86), processor, 4.4e-3)
    assert measured / 1.5 < 3600 * low < 3600 * high < 1.5 * measured
    assert (passed + at_answer) / 1.5 < 3600 * dropout < 1.5 * (passed + at_answer)


def test_responses_that_are_there_say_how_long_they_are(monkeypatch):
    """39 tokens, the shipped demo's, in the place of 256, which `max_new_tokens` allows."""
    run = Run("demo", params.load_profile("demo").model_dump(), 2, 0)
    assert 38 < check.written(run, "tiny-llama") < 40 and 64 < check.written(run, "tiny-qwen") < 67
    assert check.written(run, "smollm2-135m") is None
    spec = params.load_model_config("tiny-llama")
    assert Work.of(run.values, spec, 60).tokens == 256 and Work.of(run.values, spec, 60, written=41.3).tokens == 41
    assert Work.of(run.values, spec, 60, written=900).tokens == 256


def test_a_pass_of_a_small_model_is_timed_where_it_is(monkeypatch):
    """As long as a pass over so many tokens takes here, by hand."""
    import time

    import torch

    torch.set_num_threads(1)
    monkeypatch.setattr(cost, "time", type("T", (), {"perf_counter": staticmethod(time.thread_time)}))
    values, spec = params.load_profile("demo").model_dump(), params.load_model_config("tiny-llama")
    work = Work.of(values, spec, 60, written=40)
    (low, high), passed = cost.timed(str(spec.place), Size(950_000, 4, 1), work, replace(H200, cuda=False, bytes=4))
    assert high == 2 * low and 0 < low < 5
    from lib.generate import models

    network = models.load_language_model("tiny-llama", spec).model
    ids = torch.ones((40, 100), dtype=torch.long)
    with torch.inference_mode():
        seconds = cost.seconds(lambda: network(ids, use_cache=False, logits_to_keep=1)) / ids.numel()
    assert seconds / 1.5 < passed < 1.5 * seconds


def test_work_of_part_of_the_rows():
    """Of each split at most so many, and passes over fewer; answers are short after worked examples."""
    values = params.load_profile("small").model_dump() | {
        "dropout_limit": 80,
        "dropout_scope": ["answer", "trajectory"],
    }
    work = cost.Work.of(values, params.load_model_config("qwen2.5-coder-1.5b"), 470, shared=411)
    assert (work.rows, work.tokens, work.shared) == (3 * 2 * 300, 100, 411)
    assert work.passes == 10 * 3 * (2 * 80 + 40 * 2)
    assert work.once == 411
    own = cost.Work.of(
        values | {"dropout_prefix": "own"}, params.load_model_config("qwen2.5-coder-1.5b"), 470, shared=411
    )
    size, device = cost.Size(1e9, 28, 1e4, 150_000), replace(H200, cuda=False)
    ratio = [cost.shares(size, replace(one, at_answer=0), (1, 1), device)["04"][0] for one in (work, own)]
    assert ratio[0] / ratio[1] == pytest.approx((59 + 100) / (470 + 100))
    # each of 3 x 600 rows is read once, after the beginning, and its 4 answer tokens by all passes
    assert work.at_answer == 3 * 600 * (59 + 100) + 10 * 3 * (600 + 40 * 2) * 4
    work = cost.Work.of(
        values | {"dropout_scope": ["answer"]}, params.load_model_config("qwen2.5-coder-1.5b"), 470, 411
    )
    assert work.passes == 0


def test_a_processor_with_matrix_units(monkeypatch):
    """Half the bytes and as many times the operations as were measured, for a model in half precision."""
    monkeypatch.setattr(cost, "bfloat16_seconds", lambda: 0.25)
    device = replace(H200, cuda=False, bytes=4, operations=1e11)
    spec = params.load_model_config("tiny-llama")
    assert cost.in_precision(device, spec) == device
    fast = cost.in_precision(device, spec.model_copy(update={"dtype": "bfloat16"}))
    assert (fast.bytes, fast.operations) == (2, pytest.approx(4e11))


def test_seconds_of_a_product_in_half_precision():
    assert 0.01 < cost.bfloat16_seconds() < 100


def test_a_small_local_model_is_timed(tmp_path, capsys):
    run = Run("demo", params.load_profile("demo").model_dump() | {"datasets": ["demo-easy"], "limit": 20}, 2, 0)
    device = replace(H200, cuda=False, bytes=4, memory=8e9)
    said = [text for _, text in check.about_model(run, "tiny-llama", device, {})]
    low, high = map(float, re.search(r"about (\S+) to (\S+) hours for 40 questions", said[-1]).groups())
    assert 0 < low <= high < 1 and said[-1].endswith("measured")  # rounded
