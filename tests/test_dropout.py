"""MC dropout: nothing but dropout changes, masks belong to (example, pass), BALD against independent oracles."""

import os
import re
import subprocess
import sys
import time

import architectures
import numpy as np
import pandas as pd
import pytest
import synthetic
import torch
from architectures import SETTINGS

from lib import params, store
from lib.generate import answer_dropout, bald, dropout, responses
from lib.generate.bald import Disagreement
from lib.params import Dropout, Reading
from lib.project import ROOT, UserError
from lib.row_cache import RowCache
from lib.score import confidence, estimators
from lib.score.confidence import confidence_frame
from lib.score.curves import entropy_curves
from lib.streams import stream_seed
from lib.tasks import datasets

PASSES = Dropout(seed=1, dropout_passes=3, dropout_tokens=700)


@pytest.fixture(scope="module", params=architectures.NAMES)
def any_lm(request):
    return architectures.load(request.param)


@pytest.fixture(scope="module")
def frame(any_lm):
    return generations(any_lm)


def generations(lm, count=4):
    settings = SETTINGS.model_copy(update={"max_new_tokens": 40})
    examples = datasets.load_examples(params.load_dataset("demo-easy"))[:count]
    return responses.respond(lm, "demo-easy", examples, settings)


def rows(lm, count=3):
    """Token ids of unequal lengths."""
    g = torch.Generator().manual_seed(0)
    return [torch.randint(5, 600, (20 + 7 * i,), generator=g).tolist() for i in range(count)]


def passes(lm, ids, keys, rate, kernel="keyed", answer=4):
    with dropout.enabled(lm.model, rate, kernel):
        return dropout.forward(lm, ids, [answer] * len(ids), keys, kernel)


@torch.inference_mode()
def plain(lm, ids, answer=4):
    return [lm.model(torch.tensor([row])).logits[0, -answer:].float() for row in ids]


# ---- dropout and nothing else


def test_rate_zero_is_evaluation_mode(any_lm):
    ids = rows(any_lm)
    still = passes(any_lm, ids, [(i, 0) for i in range(3)], 0.0)
    for ours, theirs in zip(still, plain(any_lm, ids), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=2e-6)  # sdpa's rounding
    any_lm.model.set_attn_implementation("eager")
    try:  # the same attention, the same batch: the same bits
        with torch.inference_mode():
            exact = dropout.forward(any_lm, ids, [4] * 3, [(i, 0) for i in range(3)], "keyed")
    finally:
        any_lm.model.set_attn_implementation("sdpa")
    assert all(torch.equal(a, b) for a, b in zip(still, exact, strict=True))


def state(model):
    return [(type(m).__name__, m.training, getattr(m, "p", None), getattr(m, "attention_dropout", None))
            for m in model.modules()], model.config._attn_implementation  # fmt: skip


@pytest.mark.parametrize("kernel", ["keyed", "fused"])
def test_only_dropout_is_switched_and_all_is_put_back(any_lm, kernel):
    before, ids = state(any_lm.model), rows(any_lm)
    logits = plain(any_lm, ids)
    with pytest.raises(RuntimeError, match="half-way"), dropout.enabled(any_lm.model, 0.3, kernel):
        training = {type(m) for m in any_lm.model.modules() if m.training}
        assert training and all("Attention" in t.__name__ or t is torch.nn.Dropout for t in training)
        attention = [m for m in any_lm.model.modules() if "Attention" in type(m).__name__]
        assert len(attention) == any_lm.model.config.num_hidden_layers and all(m.training for m in attention)
        raise RuntimeError("half-way")
    assert state(any_lm.model) == before
    assert all(torch.equal(a, b) for a, b in zip(logits, plain(any_lm, ids), strict=True))


def test_every_attention_module_drops(any_lm):
    ids = rows(any_lm, 1)
    calls = []
    masks = dropout.Masks([(1, 0)], [len(ids[0])])
    drop = masks.drop
    masks.drop = lambda x, *a, **k: calls.append(x.shape) or drop(x, *a, **k)
    with dropout.enabled(any_lm.model, 0.2), torch.inference_mode(), masks:
        any_lm.model(torch.tensor(ids))
    layers = any_lm.model.config.num_hidden_layers
    modules = sum(isinstance(m, torch.nn.Dropout) for m in any_lm.model.modules())
    assert sum(len(shape) == 4 for shape in calls) == layers  # attention probabilities
    assert masks.site == len(calls) == (layers if any_lm.name != "gpt2" else modules)


@pytest.mark.parametrize("kernel", ["keyed", "fused"])
def test_passes_differ_and_repeat(any_lm, kernel):
    ids = rows(any_lm, 1)
    one, again, other = (passes(any_lm, ids, [(9, t)], 0.2, kernel)[0] for t in (0, 0, 1))
    assert torch.equal(one, again)
    assert (one - other).abs().max() > 1e-3
    assert (one - plain(any_lm, ids)[0]).abs().max() > 1e-3
    assert dropout.check(any_lm, kernel)


def test_a_model_without_dropout_is_refused(any_lm, monkeypatch):
    monkeypatch.setattr(dropout, "sites", lambda model: [])
    for kernel in ("keyed", "fused"):
        with pytest.raises(UserError, match="dropout takes no effect anywhere"):
            dropout.check(any_lm, kernel)


def test_the_fused_kernel_leaves_the_random_stream_alone(any_lm):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    passes(any_lm, rows(any_lm, 2), [(0, 0), (1, 0)], 0.2, "fused")
    assert torch.equal(torch.rand(3), expected)


# ---- masks


def test_masks_do_not_depend_on_the_batch(any_lm):
    ids, keys = rows(any_lm, 3), [(7, 0), (7, 1), (8, 0)]
    together = passes(any_lm, ids, keys, 0.2)
    backwards = passes(any_lm, ids[::-1], keys[::-1], 0.2)[::-1]
    for i in range(3):
        alone = passes(any_lm, ids[i : i + 1], keys[i : i + 1], 0.2)[0]
        torch.testing.assert_close(together[i], alone, atol=2e-5, rtol=0)
        torch.testing.assert_close(together[i], backwards[i], atol=2e-5, rtol=0)


def test_keyed_masks_that_are_too_large_are_refused_with_the_number(any_lm, frame, monkeypatch):
    """Before the first is drawn; a thinking trace of 33,000 tokens would need 35 billion numbers a layer."""
    heads = any_lm.model.config.num_attention_heads
    dropout.check_room(any_lm, "fused", 33_000)
    number = re.escape(f"{heads * 33_000**2:.2g}")
    with pytest.raises(UserError, match=f"masks of 33,000 tokens hold {number} numbers .*: fused"):
        dropout.check_room(any_lm, "keyed", 33_000)
    longest = max(len(p.ids) for i in range(len(frame)) for p in dropout.passes_over(any_lm, frame.iloc[i], i, PASSES))
    work = [(i, 0.1) for i in range(len(frame))]
    monkeypatch.setattr(dropout, "MOST", heads * longest**2)
    assert len(dropout.disagreement(any_lm, frame, work, PASSES)) == len(frame)
    monkeypatch.setattr(dropout, "MOST", heads * longest**2 - 1)
    monkeypatch.setattr(dropout, "forward", lambda *a: pytest.fail("nothing may be drawn"))
    with pytest.raises(UserError, match=f"{longest:,} tokens"):
        dropout.disagreement(any_lm, frame, work, PASSES)


def test_masks_have_the_rate_and_keep_the_mean():
    with dropout.Masks([(1, 0), (2, 0)], [300, 200]) as masks:
        x = torch.ones(2, 4, 300, 300)
        first, second = torch.nn.functional.dropout(x, 0.15, True), torch.nn.functional.dropout(x, 0.15, True)
        assert torch.nn.functional.dropout(x, 0.15, False) is x and torch.nn.functional.dropout(x, 0.0, True) is x
    assert masks.site == 2 and not torch.equal(first, second)
    assert abs((first[0] == 0).double().mean() - 0.15) < 0.002 and abs(first[0].mean() - 1) < 0.003
    torch.testing.assert_close(first[0].max(), torch.tensor(1 / 0.85))
    assert not first[1, :, 200:].any()  # padding
    assert abs(np.corrcoef(first[0].flatten(), second[0].flatten())[0, 1]) < 0.01
    with dropout.Masks([(1, 0)], [4]), pytest.raises(UserError, match="dropout_kernel: fused"):
        torch.nn.functional.dropout(torch.ones(8, 5), 0.1, True)


def test_a_row_of_the_frame_does_not_depend_on_the_others(any_lm, frame):
    """Neither on the batch, on the budget of tokens (here passes of an example are split), nor on other rates."""
    work = [(i, rate) for rate in (0.1, 0.2) for i in range(len(frame))]
    together = dropout.disagreement(any_lm, frame, work, PASSES)
    assert list(together.rate) == [rate for _, rate in work]
    alone = dropout.disagreement(any_lm, frame, [(2, 0.2)], PASSES.model_copy(update={"dropout_tokens": 1})).iloc[0]
    same = together[(together.example_id == alone.example_id) & (together.rate == 0.2)].iloc[0]
    for name in ("predictive", "conditional"):
        np.testing.assert_allclose(np.stack(same[name]), np.stack(alone[name]), atol=1e-5)
    more = dropout.disagreement(any_lm, frame, [(2, 0.2)], PASSES.model_copy(update={"dropout_passes": 4})).iloc[0]
    np.testing.assert_allclose(np.stack(more.predictive)[:3], np.stack(alone.predictive), atol=1e-5)


def test_the_frame_is_what_full_logits_give(any_lm, frame):
    """Against whole-sequence logits of one pass at a time, masks alike, at the positions that predict the answer."""
    row = frame.iloc[0]
    found = dropout.disagreement(any_lm, frame, [(0, 0.15)], PASSES).iloc[0]
    start, end = (
        (row.answer_start, row.answer_end)
        if row.answer_start >= 0
        else (
            (row.last_number_start, row.last_number_end)
            if row.last_number_start >= 0
            else (len(row.token_ids) - row.eos - 1, len(row.token_ids) - row.eos)
        )
    )
    ids = any_lm.tokenizer(row.prompt, add_special_tokens=False).input_ids + row.token_ids.tolist()[: end - 1]
    seed = stream_seed(1, any_lm.name, "demo-easy", row.example_id)
    p = []
    for t in range(3):
        with dropout.enabled(any_lm.model, 0.15), torch.inference_mode(), dropout.Masks([(seed, t)], [len(ids)]):
            logits = any_lm.model(torch.tensor([ids])).logits[0]
        p.append(logits[start - end :].double().softmax(-1).numpy())
    p = np.stack(p)  # (T, m, V)
    entropy = lambda q: -(q * np.log(q)).sum(-1)  # noqa: E731
    for t in range(3):
        np.testing.assert_allclose(found.predictive[t], entropy(p[: t + 1].mean(0)), atol=1e-5)
        np.testing.assert_allclose(found.conditional[t], entropy(p[: t + 1]).mean(0), atol=1e-5)
    np.testing.assert_array_equal(found.top_changed, [len(set(column)) > 1 for column in p.argmax(-1).T])


@pytest.mark.parametrize("scope", [dropout, answer_dropout])
@pytest.mark.parametrize("kernel", ["keyed", "fused"])
def test_runs_repeat_and_resume_to_the_same_bytes(any_lm, frame, tmp_path, monkeypatch, kernel, scope):
    monkeypatch.setattr("lib.row_cache.ARTIFACTS", tmp_path)
    settings, work = PASSES.model_copy(update={"dropout_kernel": kernel}), [(i, 0.1) for i in range(len(frame))]

    def run(name, break_at=None):
        calls = []

        def once(part):
            calls.append(part)
            if len(calls) == break_at:
                raise KeyboardInterrupt
            return scope.disagreement(any_lm, frame, part, settings)

        cache = RowCache(name, "job", {"parameters": settings.model_dump()}, 2, known_by=("example_id", "rate"))
        return cache.map(once, work, lambda line: None, dropout.keys(frame))

    def written(frame, name):
        return store.write(frame, tmp_path / f"{name}.parquet").read_bytes()

    whole = written(run("a"), "a")
    with pytest.raises(KeyboardInterrupt):
        run("b", break_at=2)
    assert written(run("b"), "b") == whole == written(run("c"), "c")


# ---- BALD


def distributions(passes=6, tokens=3, vocabulary=40, sharpness=3.0):
    g = torch.Generator().manual_seed(4)
    return torch.randn(passes, tokens, vocabulary, generator=g) * sharpness


def naive(p):
    """BALD of float64 probabilities (T, m, V), by the formula."""
    p = p.double().numpy()
    entropy = lambda q: -np.where(q > 0, q * np.log(np.where(q > 0, q, 1)), 0).sum(-1)  # noqa: E731
    return entropy(p.mean(0)) - entropy(p).mean(0)


def added(logits, *cuts, **more):
    state = Disagreement(**more)
    for part in logits.split(list(cuts) or [len(logits)]):
        state.add(part)
    return pd.Series(state.row())


@pytest.mark.parametrize("sharpness", [0.1, 3.0, 60.0])
def test_bald_is_the_formula_for_every_number_of_passes(sharpness):
    logits = distributions(sharpness=sharpness)
    row = added(logits)
    for t in range(1, 7):
        np.testing.assert_allclose(confidence.compute_bald(row, t), naive(logits[:t].double().softmax(-1)), atol=1e-9)
    assert abs(confidence.compute_bald(row, 1)).max() < 1e-12


def test_bald_is_baals():
    from baal.active import heuristics

    logits = distributions(passes=7, tokens=5, vocabulary=300)
    p = logits.double().softmax(-1).permute(1, 2, 0).numpy()  # (m, V, T), float64
    np.testing.assert_allclose(
        confidence.compute_bald(added(logits)), heuristics.BALD().get_uncertainties(p), atol=1e-9
    )


def softmax_unless_probabilities(p):
    """What baal does to its input (baal.utils.array_utils.to_prob), in words of our own: rows that do not sum to 1
    within numpy's default tolerance are taken for logits, all of them."""
    if np.allclose(p.sum(1), 1) and (p >= 0).all():
        return p
    e = np.exp(p - p.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_float32_probabilities_of_a_large_vocabulary_are_a_trap():
    """At V = 128256 float32 probabilities are taken for logits, and disagreement vanishes; ours does not care."""
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 2, 128_256, generator=g) * 4
    logits[..., 7] += 12
    truth = naive(logits.double().softmax(-1))
    p32 = logits.softmax(-1).numpy().transpose(1, 2, 0)  # (m, V, T)
    trapped = naive(torch.tensor(softmax_unless_probabilities(p32)).permute(2, 0, 1))
    np.testing.assert_allclose(confidence.compute_bald(added(logits)), truth, atol=1e-9)
    assert truth.min() > 0.01 and abs(trapped).max() < 1e-3 * truth.min()


@pytest.mark.parametrize("cuts", [(1, 5), (2, 2, 2), (1, 1, 1, 1, 1, 1)])
def test_passes_may_come_in_parts(cuts):
    logits, more = distributions(), {"top_k": (2, 5), "top_p": (0.9,)}
    whole, parts = added(logits, **more), added(logits, *cuts, **more)
    for name in whole.index:
        np.testing.assert_allclose(np.array(whole[name], float), np.array(parts[name], float), atol=1e-12)


def test_an_endless_number_is_read_in_blocks_of_tokens_to_the_same_bits(monkeypatch):
    """At no time more than a block's probabilities in float64, whatever the length of the answer."""
    logits, more, sizes = distributions(tokens=11), {"top_k": (2, 5), "top_p": (0.9,), "passes": 6}, []
    whole, values = added(logits, 2, 4, **more), Disagreement._values
    monkeypatch.setattr(Disagreement, "_values", lambda state, part, block: sizes.append(part.shape[1])
                        or values(state, part, block))  # fmt: skip
    monkeypatch.setattr(bald, "BLOCK", 3 * logits.shape[-1] + 1)
    parts = added(logits, 2, 4, **more)
    assert sizes == 2 * [3, 3, 3, 2]
    for name in whole.index:
        np.testing.assert_array_equal(np.array(whole[name]), np.array(parts[name]))


def held(state):
    """Bytes of all storages that a state keeps alive."""
    kept = [*state.carried.values(), *(part for parts in state.kept.values() for part in parts)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in kept}
    return sum(storages.values())


def test_whole_vocabularies_are_not_kept():
    """Between passes (m, V) sums alone, of probabilities and of each support; afterwards (T, m) numbers."""
    logits, more = distributions(passes=6, tokens=3, vocabulary=5000), {"top_k": (2, 5), "top_p": (0.9,), "passes": 6}
    state = Disagreement(**more)
    state.add(logits[:4])
    per_number = 4 * 3 * (3 * 8 + 3 * 4)  # of 4 passes and 3 tokens: two entropies, the top token, three sizes
    assert held(state) <= 3 * 5000 * (8 + 3 * 8) + 3 * 8 + per_number
    state.add(logits[4:])
    assert held(state) <= 6 * 3 * (3 * 8 + 3 * 4) and not state.carried
    whole, parts = added(logits, top_k=(2, 5), top_p=(0.9,)), pd.Series(state.row())
    for name in whole.index:
        np.testing.assert_array_equal(np.array(whole[name]), np.array(parts[name]))
    with pytest.raises(ValueError, match="7 passes, where 6 were announced"):
        state.add(logits[:1])


def test_rows_whose_passes_are_in_hold_no_vocabulary(any_lm, frame, monkeypatch):
    """While the last row is still to come."""
    states = []
    monkeypatch.setattr(dropout, "Disagreement", lambda *more: states.append(Disagreement(*more)) or states[-1])
    dropout.disagreement(any_lm, frame, [(i, 0.1) for i in range(len(frame))], PASSES)
    tokens = [state.kept["top"][0].shape[-1] for state in states]
    assert states and all(held(state) <= 3 * m * (4 * 8 + 2 * 8) for state, m in zip(states, tokens, strict=True))


def test_effective_supports_are_unions():
    logits = distributions(passes=5, tokens=4, vocabulary=30, sharpness=1.5)
    row = added(logits, top_k=(1, 4), top_p=(0.5, 0.95))
    p = logits.double().softmax(-1).numpy()
    for token in range(4):
        unions = {name: set() for name in ("top_k_1", "top_k_4", "top_p_0.5", "top_p_0.95")}
        for t in range(5):
            order = np.argsort(-p[t, token])
            cumulative = np.cumsum(p[t, token, order])
            for k in (1, 4):
                unions[f"top_k_{k}"] |= set(order[:k])
            for mass in (0.5, 0.95):
                unions[f"top_p_{mass}"] |= set(order[: int(np.argmax(cumulative > mass)) + 1])
            for name, union in unions.items():
                assert row[name][t][token] == len(union), name


def test_phi():
    bald, support = np.array([0.0, 0.5, 3.0, -1e-15]), np.array([10, 20, 15, 1])
    assert estimators.c_bald(bald) == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    expected = (1 + (1 - 0.5 / np.log(20)) + 0 + 1) / 4
    assert estimators.c_bald(estimators.normalize_bald(bald, support)) == pytest.approx(expected)
    assert 0 <= estimators.c_bald(estimators.normalize_bald(bald, np.ones(4))) <= 1  # log 1 = 0 is not divided by


# ---- selection and reading


def kept(values, tokens=2):
    """A dropout frame of one pair with BALD values per example, T = 2, at two rates."""
    made = [
        {
            "model": "m",
            "dataset": "d",
            "split": "calibration",
            "example_id": str(i),
            "rate": rate,
            "tuning": True,
            "predictive": [np.zeros(tokens), np.full(tokens, v)],
            "conditional": [np.zeros(tokens)] * 2,
            "top_p_0.95": [np.full(tokens, 10)] * 2,
            "top_changed": np.zeros(tokens, bool),
        }
        for rate, column in values.items()
        for i, v in enumerate(column)
    ]
    return pd.DataFrame(made)


def c_bald(generations, passes, **choices):
    read = synthetic.responses(generations, **choices)
    return confidence_frame(read, dropout=passes, reading=params.Reading.of(choices), names=["c_bald"])


def answered(right):
    return pd.DataFrame(
        [
            {
                "model": "m",
                "dataset": "d",
                "split": "calibration",
                "example_id": str(i),
                "reference": "1",
                "answer": "1" if ok else "2",
                "answer_start": 0,
                "answer_end": 1,
                "last_number_start": -1,
                "last_number_end": -1,
                "thinking_end": 0,
                "eos": 0,
                "token_logprobs": np.zeros(1),
            }
            for i, ok in enumerate(right)
        ]
    )


def test_the_rate_of_lowest_ece_is_selected():
    right = [True, True, False, False]
    passes = kept({0.1: [0.0, 0.0, 0.0, 0.0], 0.2: [0.0, 0.0, 1.0, 1.0], 0.3: [0.0, 0.0, 1.0, 1.0]})
    results = confidence.evaluate_rate_grid(synthetic.responses(answered(right)), passes)
    errors = results[results.metric == "ece"].set_index("rate").value
    assert errors[0.1] == pytest.approx(0.5) and errors[0.2] == 0
    assert confidence.select_dropout_rate(results) == 0.2  # of equal ones the lower
    top = c_bald(answered(right), passes[passes.rate == 0.2], phi="top_p")
    assert top.confidence.tolist() == pytest.approx([1, 1, 1 - 1 / np.log(10), 1 - 1 / np.log(10)])
    with pytest.raises(UserError, match="phi: 'top_k' is not a choice; did you mean 'top_p_0.95'"):
        c_bald(answered(right), passes[passes.rate == 0.2], phi="top_k")
    silent = answered(right).assign(answer=None)
    read = c_bald(silent, passes[passes.rate == 0.1], missing="zero")
    assert read.confidence.tolist() == [0.0] * 4 and not read.correct.any()
    assert c_bald(silent, passes[passes.rate == 0.1]).confidence.tolist() == [1.0] * 4


def test_where_no_tuning_row_has_an_answer_the_lowest_rate_is_selected():
    """`missing: drop` leaves out all of them."""
    silent = answered([True, False]).assign(answer=None)
    passes, reading = kept({0.3: [0.0, 0.0], 0.1: [0.0, 1.0]}), Reading(missing="drop")
    results = confidence.evaluate_rate_grid(synthetic.responses(silent, missing="drop"), passes, reading)
    assert results.empty and confidence.select_dropout_rate(results, [0.3, 0.1]) == 0.1


def test_tuning_examples_are_drawn_from_the_calibration_split():
    frame = pd.DataFrame(
        {"split": ["calibration"] * 30 + ["evaluation"] * 20, "dataset": "d", "example_id": [str(i) for i in range(50)]}
    )
    rows = dropout.tuning(frame, 10, seed=0)
    assert len(set(rows)) == 10 and max(rows) < 30
    shuffled = frame.sample(frac=1, random_state=0).reset_index(drop=True)
    assert {shuffled.example_id[r] for r in dropout.tuning(shuffled, 10, seed=0)} == {str(r) for r in rows}
    assert dropout.tuning(frame, 10, seed=1) != rows and len(dropout.tuning(frame, 100, seed=0)) == 30


def test_entropies_by_passes():
    curves = entropy_curves(kept({0.1: [0.2, 0.4]}), split="calibration")
    last = curves[(curves.term == "predictive") & (curves.passes == 2)].iloc[0]
    assert last["mean"] == pytest.approx(0.3) and last.low < 0.3 < last.high and last.n == 2
    assert (curves[curves.term == "conditional"]["mean"] == 0).all()


# ---- killed and resumed

JOB = """
import sys
from pathlib import Path
from lib import params, row_cache, store
from lib.generate import dropout, models, SCOPE as scope
from lib.project import SHIPPED

store.ARTIFACTS = row_cache.ARTIFACTS = Path(sys.argv[1])
lm = models.load("tiny-llama", params.load_model("tiny-llama"))
frame = store.read(SHIPPED / "generations" / "tiny-llama__demo-easy.parquet")
work = [(row, rate) for rate in (0.1, 0.2) for row in range(8)]
passes = row_cache.RowCache("mine", "passes", {}, 2, known_by=("example_id", "rate"))
make = lambda some: scope.disagreement(lm, frame, some, params.Dropout(dropout_passes=4))
found = passes.map(make, work, print, dropout.keys(frame))
store.write(found, store.place("mine", "dropout", "all"))
"""


def job(folder, scope):
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", JOB.replace("SCOPE", scope), folder]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("scope", ["dropout", pytest.param("answer_dropout", marks=pytest.mark.slow)])
def test_killed_half_way_and_resumed_equals_uninterrupted(tmp_path, scope):
    whole = job(tmp_path / "whole", scope)
    assert "kept" not in whole.communicate()[0] and whole.returncode == 0
    killed, until = job(tmp_path / "killed", scope), time.time() + 120
    while len(list((tmp_path / "killed").glob("mine/shards/*/*.parquet"))) < 3:
        assert killed.poll() is None and time.time() < until
        time.sleep(0.001)
    killed.kill()
    killed.communicate()
    kept = len(list((tmp_path / "killed").glob("mine/shards/*/[0-9]*.parquet")))
    resumed = job(tmp_path / "killed", scope)
    said = resumed.communicate()[0]
    assert resumed.returncode == 0 and 3 <= said.count("kept from before") == kept < 8
    files = [tmp_path / name / "mine" / "dropout" / "all.parquet" for name in ("whole", "killed")]
    assert files[0].read_bytes() == files[1].read_bytes()
