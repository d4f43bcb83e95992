"""MC dropout: nothing but dropout changes, masks belong to the pass, BALD against independent oracles."""

import architectures
import numpy as np
import pandas as pd
import pytest
import synthetic
import torch

from lib.analysis.dropout_statistics import entropy_curves
from lib.generate import bald, dropout_passes, mc_dropout, models, seeded_dropout
from lib.generate.bald import bald_terms, dropout_columns
from lib.generate.mc_dropout import mc_dropout_entropies
from lib.params import Dropout, Reading
from lib.paths import UserError
from lib.random_streams import stream_seed
from lib.score import confidence
from lib.tasks import answers

PASSES = Dropout(seed=1, dropout_passes=3)
SHARED = PASSES.model_copy(update={"dropout_prefix": "shared"})
MODES = [("trajectory", PASSES), ("trajectory", SHARED), ("answer", PASSES)]
TERMS = ("predictive", "conditional", "half_predictive", "half_conditional")
PLAIN = ("tiny-llama", "gpt2", "sliding", "gemma2")
SLOW = (pytest.param(name, marks=pytest.mark.slow) for name in ("tiny-qwen", "mistral", "qwen2"))


@pytest.fixture(scope="module", params=[*PLAIN, *SLOW])
def any_lm(request):
    return architectures.load(request.param)


@pytest.fixture(scope="module")
def frame(any_lm):
    return generations(any_lm)


@pytest.fixture(scope="module")
def llama():
    return architectures.load("tiny-llama")


def generations(lm, count=4):
    return architectures.respond(lm, count, "demo-easy", max_new_tokens=40)


class RecordedMasks:
    """The oracle: dropout on one whole sequence, by numbers drawn anew. Of the queries from `start` to `stop`, entries
    fall where 16 bits of a Philox stream at a segment's seed are below the rate; no other entry is touched. Blocks of
    queries draw for the keys that they may see; a cache that forgets holds the last `window` - 1 before the start."""

    def __init__(self, rate, *segments, window=None):
        self.rate, self.segments, self.window, self.sites = rate, segments, window, [0] * len(segments)

    def fall(self, part, segment):
        _, _, seed = self.segments[segment]
        stream = np.random.Philox(key=seed, counter=[0, 0, self.sites[segment], 0])
        bits = np.frombuffer(stream.random_raw(-(-part.numel() // 4)).tobytes(), np.uint16)[: part.numel()]
        part.masked_fill_(torch.from_numpy(bits < round(self.rate * 65536)).view(part.shape), 0).div_(1 - self.rate)
        self.sites[segment] += 1

    def __call__(self, x, p=0.5, training=True, inplace=False):
        if not training:
            return x
        x = x.clone()
        for i, (start, stop, _) in enumerate(self.segments):
            if x.dim() == 3:
                self.fall(x[0, start:stop], i)
                continue
            held = max(0, start - (self.window_of(x) or start + 1) + 1)
            for first in range(start, stop, seeded_dropout.QUERIES):
                last = min(first + seeded_dropout.QUERIES, stop)
                self.fall(x[0, :, first:last, held:last], i)
        return x

    def window_of(self, x):
        """Of a layer whose weights are empty outside of a window."""
        n = x.shape[-1]
        return self.window if self.window and n > self.window and not x[0, :, -1, : n - self.window].any() else None


def window_of(lm):
    return getattr(lm.model.config, "sliding_window", None)


def parts_of(lm, row):
    """(ids, first answer token's query, m) of a generations row."""
    start, end = answers.answer_span(row)
    ids = lm.tokenizer(row.prompt, add_special_tokens=False).input_ids + row.token_ids.tolist()[: end - 1]
    return ids, len(ids) - (end - start), end - start


def whole(lm, row, rate, settings, scope):
    """Probabilities (T, m, V) float64 at the answer: one whole forward of the model's own eager attention a pass."""
    ids, query, m = parts_of(lm, row)
    found = []
    for t in range(settings.dropout_passes):
        seed = stream_seed(1, lm.name, row.dataset, row.example_id, f"{rate:g}", str(t))
        segments = [(0, len(ids), seed)] if scope == "trajectory" else [(query, len(ids), seed)]
        if settings is SHARED:
            prefix = len(dropout_passes.shared_prefix(lm, row, ids))
            first = stream_seed(1, lm.name, "opening", f"{rate:g}", str(t))
            segments = [(0, prefix, first), (prefix, len(ids), seed)]
        masks = RecordedMasks(rate, *segments, window=window_of(lm))
        with seeded_dropout.seeded_dropout(lm.model, []), torch.inference_mode():
            lm.model.set_attn_implementation("eager")
            torch.nn.functional.dropout = masks
            logits = lm.model(torch.tensor([ids]), use_cache=False).logits[0, query:]
        assert masks.sites[-1] >= lm.model.config.num_hidden_layers
        found.append(logits.double().softmax(-1))
    return torch.stack(found).numpy()


def logits_of(lm, row, rate, settings, scope):
    clean = dropout_passes.encode_without_dropout(lm, [row])[0] if scope == "answer" else None
    return dropout_passes.pass_logits(lm, row, [rate], settings, clean)


def entropy(p):
    return -(p * np.log(p, where=p > 0, out=np.zeros_like(p))).sum(-1)


# ---- dropout and nothing else


def state(model):
    return [m.training for m in model.modules()], model.config._attn_implementation, torch.nn.functional.dropout


def test_rate_zero_is_evaluation_mode(any_lm, frame):
    """Blocks of queries, in the model's own attention: scaled, capped, and windowed as it does."""
    ids, query, _ = parts_of(any_lm, frame.iloc[0])
    attention = any_lm.model.config._attn_implementation
    with torch.inference_mode():
        plain = any_lm.model(torch.tensor([ids])).logits[0, query:].float()
        any_lm.model.set_attn_implementation("eager")
        eager = any_lm.model(torch.tensor([ids])).logits[0, query:].float()
        any_lm.model.set_attn_implementation(attention)
    for scope, settings in MODES:
        (logits,) = logits_of(any_lm, frame.iloc[0], 0.0, settings, scope)
        for of_pass in logits[0]:
            torch.testing.assert_close(of_pass, eager, atol=5e-5, rtol=1e-5)
            torch.testing.assert_close(of_pass, plain, atol=5e-5, rtol=1e-5)


def test_only_dropout_is_switched_and_all_is_put_back(any_lm, frame):
    before, ids = state(any_lm.model), torch.tensor([parts_of(any_lm, frame.iloc[0])[0]])
    with torch.inference_mode():
        logits = any_lm.model(ids).logits
    with pytest.raises(RuntimeError, match="half-way"), seeded_dropout.seeded_dropout(any_lm.model, [(1, 0.3)]):
        training = {type(m) for m in any_lm.model.modules() if m.training}
        assert training and all("Attention" in t.__name__ or t is torch.nn.Dropout for t in training)
        attention = [m for m in any_lm.model.modules() if "Attention" in type(m).__name__]
        assert len(attention) == any_lm.model.config.num_hidden_layers and all(m.training for m in attention)
        raise RuntimeError("half-way")
    assert state(any_lm.model) == before
    with torch.inference_mode():
        assert torch.equal(logits, any_lm.model(ids).logits)
    with seeded_dropout.seeded_dropout(any_lm.model, [(1, 0.2)]) as masks, torch.inference_mode():
        any_lm.model(torch.arange(5, 25)[None])
    modules = sum(isinstance(m, torch.nn.Dropout) for m in any_lm.model.modules())
    assert masks.site == (modules if any_lm.name == "gpt2" else any_lm.model.config.num_hidden_layers), "each drops"
    assert seeded_dropout.assert_dropout_active(any_lm)


def test_a_model_without_dropout_is_refused(llama, monkeypatch):
    monkeypatch.setattr(seeded_dropout, "dropout_modules", lambda model: [])
    with pytest.raises(UserError, match="dropout takes no effect anywhere"):
        seeded_dropout.assert_dropout_active(llama)


# ---- masks


def test_masks_have_the_rate_and_keep_the_mean():
    masks, x = seeded_dropout.SeededDropout([(1, 0.15), (2, 0.4)]), torch.ones(2, 4, 300, 300)
    first, second, hidden = masks(x.clone()), masks(x.clone()), masks(x[:, 0])
    assert masks(x, training=False) is x
    assert masks.site == 3 and not torch.equal(first, second) and (x == 1).all() and hidden.dim() == 3
    assert abs((first[0] == 0).double().mean() - 0.15) < 0.002 and abs(first[0].mean() - 1) < 0.003
    torch.testing.assert_close(first[0].max(), torch.tensor(1 / 0.85))
    assert abs((first[1] == 0).double().mean() - 0.4) < 0.002 and abs(first[1].mean() - 1) < 0.005
    for one, other in ((first[0], second[0]), (first[0], first[1])):
        assert abs(np.corrcoef(one.flatten(), other.flatten())[0, 1]) < 0.01
    with pytest.raises(UserError, match="not by passes"):
        masks(torch.ones(8, 5))


@pytest.mark.parametrize("scope, settings", MODES)
def test_it_is_what_plain_forwards_give_with_these_masks(any_lm, frame, scope, settings):
    """Against whole-sequence logits of one pass at a time, without cache, the masks drawn anew."""
    work = [(0, 0.15), (1, 0.15), (1, 0.4)]
    found = mc_dropout_entropies(any_lm, frame, work, settings, scope)
    assert found.rate.tolist() == [rate for _, rate in work]
    assert max(np.max(row.predictive[-1] - row.conditional[-1]) for row in found.itertuples()) > 1e-3
    for (place, rate), row in zip(work, found.itertuples(), strict=True):
        p = whole(any_lm, frame.iloc[place], rate, settings, scope)
        for t in range(3):
            np.testing.assert_allclose(row.predictive[t], entropy(p[: t + 1].mean(0)), atol=2e-5)
            np.testing.assert_allclose(row.conditional[t], entropy(p[: t + 1]).mean(0), atol=2e-5)
        np.testing.assert_allclose(row.half_conditional, entropy(p[:2]), atol=2e-5)
        np.testing.assert_array_equal(row.top_changed, [len(set(column)) > 1 for column in p.argmax(-1).T])


@pytest.mark.parametrize("scope, settings", MODES)
def test_a_row_depends_on_nothing_else(any_lm, frame, scope, settings):
    """Neither on other rows and their order, on other rates, on how many passes run at once, nor on their number."""
    work = [(i, rate) for rate in (0.1, 0.2) for i in range(len(frame))]
    together = mc_dropout_entropies(any_lm, frame, work, settings, scope)
    alone, longer = (settings.model_copy(update=more) for more in ({"max_dropout_tokens": 1}, {"dropout_passes": 4}))
    backwards = mc_dropout_entropies(any_lm, frame, work[::-1], alone, scope)[::-1].reset_index(drop=True)
    for name in TERMS:
        for one, other in zip(together[name], backwards[name], strict=True):
            np.testing.assert_allclose(np.stack(one), np.stack(other), atol=2e-5)
    more = mc_dropout_entropies(any_lm, frame, [(2, 0.2)], longer, scope).iloc[0]
    np.testing.assert_allclose(np.stack(more.predictive)[:3], np.stack(together.predictive[6]), atol=2e-5)


@pytest.mark.parametrize("scope, settings", MODES)
def test_what_rows_begin_with_is_encoded_once(llama, monkeypatch, scope, settings):
    """Tokens by forward pass: three passes a rate; in the scope `answer`, what comes before it once for both rates."""
    dropout_passes.encode_shared.cache_clear()
    frame, tokens, forward = generations(llama), [], llama.model.forward
    monkeypatch.setattr(llama.model, "forward", lambda ids, **k: tokens.append(ids.numel()) or forward(ids, **k))
    rates, rows = (0.1, 0.2), range(3)
    by_row = [(i, rate) for i in rows for rate in rates]
    work = by_row if scope == "answer" else [(i, rate) for rate in rates for i in rows]
    mc_dropout_entropies(llama, frame, work, settings, scope)
    parts = [parts_of(llama, frame.iloc[i]) for i in rows]
    prefix = len(dropout_passes.shared_prefix(llama, frame.iloc[0], parts[0][0]))
    whole, answer = sum(len(ids) for ids, *_ in parts), sum(m for *_, m in parts)
    expected = 2 * 3 * (whole - 2 * prefix) if settings is SHARED else 2 * 3 * whole
    if scope == "answer":  # the rows side by side, padded
        expected = prefix + 3 * (max(len(ids) - m for ids, _, m in parts) - prefix) + 2 * 3 * answer
    assert prefix > 10 and sum(tokens) == expected


def test_a_prompt_without_the_question_shares_nothing(llama):
    """It is passed over as a whole, with masks of its own."""
    frame = generations(llama, 2)
    for question in ("", "never asked"):
        row = frame.assign(question=question).iloc[0]
        assert dropout_passes.shared_prefix(llama, row, models.encode(llama, row.prompt)) == ()
    other = frame.assign(question="")
    own, shared = (mc_dropout_entropies(llama, other, [(0, 0.1)], one).iloc[0] for one in (PASSES, SHARED))
    assert np.array_equal(np.stack(own.predictive), np.stack(shared.predictive))


def test_a_token_that_reaches_into_the_question_is_not_shared(llama, monkeypatch):
    """As a newline and the spaces that a question begins with may be one token."""
    row, encode = generations(llama, 1).iloc[0], models.encode
    whole, head = encode(llama, row.prompt), row.prompt.rpartition(row.question)[0]
    monkeypatch.setattr(
        models, "encode", lambda lm, text: [*encode(lm, head)[:-1], 7] if text == head else encode(lm, text)
    )
    found = dropout_passes.shared_prefix(llama, row, whole)
    assert found == tuple(whole[: len(found)]) and len(found) == len(encode(llama, head)) - 1


def test_only_rows_of_the_trajectory_depend_on_what_is_shared():
    """Rows at the answer are kept, whatever is said of it, and so are those of before it could be said."""
    facts = {
        kind: {"sites": 1, "parameters": {"dropout_prefix": kind, "dropout_passes": 10}} for kind in ("own", "shared")
    }
    before, of = {"sites": 1, "parameters": {"dropout_passes": 10}}, mc_dropout.facts_in_scope
    assert of("answer", facts["own"]) == of("answer", facts["shared"]) == of("trajectory", facts["own"]) == before
    assert of("trajectory", facts["shared"]) == facts["shared"]
    assert facts["own"]["parameters"]["dropout_prefix"] == "own", "what is given stays as it is"


@pytest.mark.parametrize("scope, settings", MODES)
def test_probabilities_have_the_entropies_of_the_frame(llama, scope, settings):
    frame = generations(llama, 1)
    row = mc_dropout_entropies(llama, frame, [(0, 0.2)], settings, scope).iloc[0]
    p = mc_dropout.pass_probabilities(llama, frame.iloc[0], 0.2, settings, scope)
    assert p.shape[:2] == (3, len(row.predictive[-1])) and torch.allclose(p.sum(-1), torch.ones(()).double())
    for term, found in zip(TERMS, bald_terms(p), strict=False):
        np.testing.assert_allclose(found, np.stack(row[term]), atol=1e-6)
    table = mc_dropout.tabulate_passes(llama, p, top=2)
    assert list(table.index) == [1, 2, 3, "mean"] and table.shape[1] == 2 * p.shape[1]
    np.testing.assert_allclose(table.loc["mean"], table.iloc[:3].mean())
    assert table.loc["mean"].iloc[0] == pytest.approx(float(p.mean(0)[0].max()))


# ---- BALD


def distributions(passes=6, tokens=3, vocabulary=40, sharpness=3.0):
    g = torch.Generator().manual_seed(4)
    return torch.randn(passes, tokens, vocabulary, generator=g) * sharpness


def naive(p):
    """BALD of float64 probabilities (T, m, V), by the formula."""
    p = p.double().numpy()
    return entropy(p.mean(0)) - entropy(p).mean(0)


def added(logits, *cuts, **more):
    blocks = logits[None].split(list(cuts) or [logits.shape[1]], 2)
    return pd.Series(dropout_columns(blocks, **more)[0])


@pytest.mark.parametrize("sharpness", [0.1, 3.0, 60.0])
def test_bald_is_the_formula_for_every_number_of_passes(sharpness):
    logits = distributions(sharpness=sharpness)
    row = added(logits)
    for t in range(1, 7):
        np.testing.assert_allclose(confidence.compute_bald(row, t), naive(logits[:t].double().softmax(-1)), 0, 1e-12)
    assert abs(confidence.compute_bald(row, 1)).max() < 1e-12


@pytest.mark.parametrize("passes", [1, 2, 6, 7])
def test_halves_are_the_passes_of_each_alone(passes):
    """Of an odd number, the last is in neither; of a single pass there are none."""
    logits, half = distributions(passes=passes), passes // 2
    row = added(logits, 2, 1)
    assert len(row.half_predictive) == len(row.half_conditional) == (2 if half else 0)
    for i in range(2 if half else 0):
        alone = added(logits[i * half : (i + 1) * half])
        np.testing.assert_allclose(row.half_predictive[i], alone.predictive[-1], atol=1e-12)
        np.testing.assert_allclose(row.half_conditional[i], alone.conditional[-1], atol=1e-12)


def test_bald_is_baals():
    from baal.active import heuristics

    logits = distributions(passes=7, tokens=5, vocabulary=300)
    p = logits.double().softmax(-1)
    predictive, conditional = bald_terms(p)
    expected = heuristics.BALD().get_uncertainties(p.permute(1, 2, 0).numpy())  # (m, V, T), float64
    np.testing.assert_allclose((predictive - conditional)[-1], expected, atol=1e-12)
    np.testing.assert_allclose(confidence.compute_bald(added(logits)), expected, atol=1e-12)


def test_an_endless_number_is_read_in_blocks_of_tokens_to_the_same_bits(monkeypatch):
    logits, more = distributions(tokens=11), {"top_k": (2, 5), "top_p": (0.9,)}
    whole = added(logits, **more)
    monkeypatch.setattr(bald, "MAX_PROBABILITIES", 3 * 6 * logits.shape[-1] + 1)
    parts = added(logits, 7, 4, **more)
    for name in whole.index:
        np.testing.assert_array_equal(np.array(whole[name]), np.array(parts[name]))


@pytest.mark.parametrize("scope", ["trajectory", "answer"])
def test_a_response_of_five_hundred_digits_takes_no_more_at_once(llama, monkeypatch, scope):
    """Its logits are made some tokens at a time, by further forwards over the same masks."""
    row = generations(llama, 1).iloc[0].copy()
    digits = llama.tokenizer("7", add_special_tokens=False).input_ids[-1:] * 500
    row.token_ids = np.array([*row.token_ids[:5], *digits])
    row.update({"answer_start": 5, "answer_end": 505, "eos": 0, "token_logprobs": np.zeros(505)})
    (whole,) = logits_of(llama, row, 0.2, PASSES, scope)
    monkeypatch.setattr(dropout_passes, "MAX_LOGITS", 3 * 120 * llama.model.config.vocab_size)
    blocks = list(logits_of(llama, row, 0.2, PASSES, scope))
    assert [block.shape[2] for block in blocks] == [120, 120, 120, 120, 20] and whole.shape[2] == 500
    torch.testing.assert_close(torch.cat(blocks, 2), whole, atol=2e-5, rtol=0)


def test_effective_supports_are_unions():
    logits = distributions(passes=5, tokens=4, vocabulary=30, sharpness=1.5)
    row = added(logits, top_k=(1, 4, 50), top_p=(0.5, 0.95))
    assert (np.array(row.top_k_50) == 30).all()
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


# ---- selection and reading


def kept(values, tokens=2):
    """A dropout frame of one pair with BALD values per example, T = 2, at two rates."""
    keys = {"model": "m", "dataset": "d", "split": "calibration", "tuning": True}
    rows = [(rate, str(i), value) for rate, column in values.items() for i, value in enumerate(column)]
    return pd.DataFrame(
        [
            keys
            | {
                "rate": rate,
                "example_id": name,
                "predictive": [np.zeros(tokens), np.full(tokens, v)],
                "conditional": [np.zeros(tokens)] * 2,
                "top_p_0.95": [np.full(tokens, 10)] * 2,
                "top_changed": np.zeros(tokens, bool),
            }
            for rate, name, v in rows
        ]
    )


def answered(right):
    same = {"model": "m", "dataset": "d", "split": "calibration", "reference": "1", "answer_start": 0, "answer_end": 1,
            "last_number_start": -1, "last_number_end": -1, "thinking_end": 0, "eos": 0}  # fmt: skip
    return pd.DataFrame(
        [
            same | {"example_id": str(i), "answer": "1" if ok else "2", "token_logprobs": np.zeros(1)}
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
    with pytest.raises(UserError, match="phi: 'top_k' is not a choice; did you mean 'top_p_0.95'"):
        confidence.scale_bald(passes, "top_k")
    silent = synthetic.responses(answered(right).assign(answer=None), missing="zero")
    read = confidence.confidence_frame(silent, dropout=passes[passes.rate == 0.1], names=["c_bald"])
    assert read.confidence.tolist() == [0.0] * 4


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
    rows = mc_dropout.tuning_rows(frame, 10, seed=0)
    assert len(set(rows)) == 10 and max(rows) < 30
    shuffled = frame.sample(frac=1, random_state=0).reset_index(drop=True)
    assert {shuffled.example_id[r] for r in mc_dropout.tuning_rows(shuffled, 10, seed=0)} == {str(r) for r in rows}
    assert mc_dropout.tuning_rows(frame, 10, seed=1) != rows and len(mc_dropout.tuning_rows(frame, 100, seed=0)) == 30


def test_entropies_by_passes():
    curves = entropy_curves(kept({0.1: [0.2, 0.4]}).assign(split="evaluation"))
    last = curves[(curves.term == "predictive") & (curves.passes == 2)].iloc[0]
    assert last["mean"] == pytest.approx(0.3) and last.low < 0.3 < last.high and last.n == 2
    assert (curves[curves.term == "conditional"]["mean"] == 0).all()
