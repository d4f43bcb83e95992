"""MC dropout: nothing but dropout changes, masks belong to the pass, BALD against independent
oracles."""

import dataclasses
from collections import Counter
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
import synthetic
import torch
from architectures import plain_logits, random, respond
from oracles import netcal_and_baal
from scipy.stats import entropy

from lib import store
from lib.errors import MissingSignalError
from lib.generate import mc_dropout, seeded_dropout
from lib.generate.mc_dropout import dropout_columns, mc_dropout_entropies
from lib.models import loading
from lib.params import Dropout, DropoutStep, EvaluationChoices
from lib.random_streams import stream_seed
from lib.score import confidence
from lib.score.bald import compute_bald
from lib.tasks import answers

PASSES = Dropout(seed=1, dropout_passes=3)
SHARED = PASSES.model_copy(update={"dropout_prefix": "shared"})
generations = partial(respond, dataset="demo-easy", max_new_tokens=40)
close = partial(np.testing.assert_allclose, rtol=0)


@pytest.fixture(scope="module")
def frame(any_lm):
    return generations(any_lm, 4)


def recorded_masks(rate, segments, window):
    """The oracle: dropout on one whole sequence, by numbers drawn anew. Of the queries from `start`
    to `stop`, entries fall where 16 bits of a Philox stream at a segment's seed are below the rate;
    no other entry is touched. Blocks of queries draw for the keys that they may see; a cache that
    forgets holds the last `window` - 1 before the start."""
    sites = Counter()

    def fall(part, seed):
        stream = np.random.Philox(key=seed, counter=[0, 0, sites[seed], 0])
        count = part.numel()
        numbers = stream.random_raw(-(-count // 4))
        bits = np.frombuffer(numbers.tobytes(), np.uint16)[:count]
        falls = torch.from_numpy(bits < round(rate * 65536)).view(part.shape)
        part.masked_fill_(falls, 0).div_(1 - rate)
        sites[seed] += 1

    def dropout(x, p=0.5, training=True, inplace=False):
        x, keys = x.clone(), x.shape[-1]
        for start, stop, seed in segments if training else ():
            if x.dim() == 3:
                fall(x[0, start:stop], seed)
                continue
            # of a layer with a window, the weights outside of it are empty
            is_longer = window and keys > window
            forgets = is_longer and not x[0, :, -1, : keys - window].any()
            held = max(0, start - window + 1) if forgets else 0
            for first in range(start, stop, seeded_dropout.QUERIES):
                last = min(first + seeded_dropout.QUERIES, stop)
                fall(x[0, :, first:last, held:last], seed)
        return x

    return dropout


def parts_of(lm, row):
    """(ids, where the first answer token is predicted) of a generations row."""
    start, end = answers.answer_span(row)
    prompt = lm.tokenizer(row.prompt, add_special_tokens=False).input_ids
    ids = prompt + row.token_ids.tolist()[: end - 1]
    return ids, len(ids) - (end - start)


def whole(lm, row, rate, settings):
    """Probabilities (T, m, V) float64 at the answer: one whole forward of the model's own eager
    attention a pass."""
    ids, query = parts_of(lm, row)
    probabilities = []
    window = getattr(lm.model.config, "sliding_window", None)
    for t in range(settings.dropout_passes):
        names = (lm.name, row.dataset, row.example_id, f"{rate:g}", str(t))
        seed = stream_seed(1, *names)
        segments = [(0, len(ids), seed)]
        if settings is SHARED:
            prefix = len(mc_dropout.shared_prefix(lm, row, ids))
            first = stream_seed(1, lm.name, "opening", f"{rate:g}", str(t))
            segments = [(0, prefix, first), (prefix, len(ids), seed)]
        with seeded_dropout.seeded_dropout(lm.model, []):
            lm.model.set_attn_implementation("eager")
            torch.nn.functional.dropout = recorded_masks(rate, segments, window)
            logits = plain_logits(lm, ids)[query:]
        probabilities.append(logits.double().softmax(-1))
    return torch.stack(probabilities).numpy()


# ---- dropout and nothing else


def test_only_dropout_is_switched_and_all_is_put_back(any_lm, frame):
    model, ids = any_lm.model, parts_of(any_lm, frame.iloc[0])[0]

    def state():
        settings = model.config._attn_implementation, torch.nn.functional.dropout
        return (
            *settings,
            any(m.training for m in model.modules()),
            plain_logits(any_lm, ids).tolist(),
        )

    before = state()
    with (
        pytest.raises(RuntimeError, match="half-way"),
        seeded_dropout.seeded_dropout(model, [(1, 0.3)]),
    ):
        assert state() != before
        raise RuntimeError("half-way")
    assert state() == before


def test_a_model_without_dropout_gets_an_empty_frame_with_the_reason(monkeypatch, tmp_path):
    path = tmp_path / "dropout" / "a__b.parquet"
    monkeypatch.setattr(store, "frame_path", lambda *names: path)
    lm = dataclasses.replace(random("falcon"), name="tiny-llama")
    with pytest.raises(MissingSignalError) as missing:
        mc_dropout.describe_passes("lab", lm, "demo-easy", DropoutStep())
    assert store.read_frame(path).empty
    assert store.read_manifest(path)["missing"] == str(missing.value)


# ---- masks


@pytest.mark.parametrize("settings", [PASSES, SHARED])
def test_it_is_what_plain_forwards_give_with_these_masks(any_lm, frame, settings, monkeypatch):
    """Against whole-sequence logits of one pass at a time, without cache, the masks drawn anew.
    However many run at once, and with the logits of one answer token at a time."""
    places = [(0, 0.15), (1, 0.15), (1, 0.4)]
    work = [(frame.example_id[place], rate) for place, rate in places]
    one_by_one = settings.model_copy(update={"max_dropout_tokens": 1})
    together = mc_dropout_entropies(any_lm, frame, work, settings)
    alone = mc_dropout_entropies(any_lm, frame, work, one_by_one)
    monkeypatch.setattr(mc_dropout, "MAX_LOGITS", 3 * any_lm.vocab_size)
    in_parts = mc_dropout_entropies(any_lm, frame, work, settings)
    for logits in mc_dropout.pass_logits(any_lm, frame.iloc[0], 0.15, settings):
        assert len(logits[0]) == 1
    oracle = [whole(any_lm, frame.iloc[place], rate, settings) for place, rate in places]
    for entropies in (together, alone, in_parts):
        bald = entropies.predictive.str[-1] - entropies.conditional.str[-1]
        assert bald.map(np.max).max() > 1e-3
        for (_, rate), p, row in zip(work, oracle, entropies.itertuples(), strict=True):
            assert row.rate == rate
            for t in range(3):
                so_far = p[: t + 1]
                close(row.predictive[t], entropy(so_far.mean(0), axis=-1), atol=2e-5)
                close(row.conditional[t], entropy(so_far, axis=-1).mean(0), atol=2e-5)
            close(row.half_conditional, entropy(p[:2], axis=-1), atol=2e-5)
            changed = [len(set(column)) > 1 for column in p.argmax(-1).T]
            np.testing.assert_array_equal(row.top_changed, changed)


def test_tokens_before_the_question_are_shared(llama):
    """Up to the first that reaches into it, as a newline and spaces do; none where the prompt lacks
    the question."""
    frame = generations(llama, 1)
    ids = loading.encode(llama, frame.prompt[0])
    question = frame.question[0]
    cases = {question: True, question[2:]: True, "": False, "never asked": False}
    for text, shares in cases.items():
        row = frame.assign(question=text).iloc[0]
        prefix = mc_dropout.shared_prefix(llama, row, ids)
        assert prefix == tuple(ids[: len(prefix)])
        assert bool(prefix) == shares


# ---- BALD


def columns_of(passes, tokens=5, vocabulary=60, sharpness=3.0, **more):
    """Probabilities (T, m, V) of random passes, and the columns of their logits, in blocks of two
    tokens."""
    logits = (
        torch.randn(passes, tokens, vocabulary, generator=torch.Generator().manual_seed(4))
        * sharpness
    )
    return logits.double().softmax(-1).numpy(), pd.Series(
        dropout_columns(logits.split(2, 1), **more)
    )


# of the first two passes, of the first three, and so on to seven, of three tokens: printed by
# tests/oracles/netcal_and_baal.py
BALD_BY_BAAL = {
    0.1: [
        (0.001181907296, 0.001156976987, 0.001350462381),
        (0.001260516346, 0.002104867857, 0.001995007861),
        (0.001641738733, 0.002034072661, 0.001644111486),
        (0.001884694797, 0.002095840420, 0.001588376424),
        (0.001739375349, 0.001850357408, 0.001465941339),
        (0.001667975649, 0.001981185076, 0.001374999963),
    ],
    3.0: [
        (0.489077323019, 0.214780729516, 0.514802950811),
        (0.662768779752, 0.460511919918, 0.744686696841),
        (0.662954849497, 0.615728656207, 0.588916508754),
        (0.756832133511, 0.623455202315, 0.551457296762),
        (0.644160148499, 0.554741925177, 0.553145537458),
        (0.624698769196, 0.705805848492, 0.560634164994),
    ],
    60.0: [
        (0.693147180560, 0.123658735734, 0.693147180560),
        (1.098612288622, 0.477967191843, 1.098612081495),
        (1.040399931994, 0.920810537962, 0.968613899788),
        (1.055463496910, 0.920503866491, 0.905334832307),
        (0.902995384243, 0.879103239421, 0.837130950340),
        (0.973159676912, 1.163633380649, 1.109438454827),
    ],
}


def bald_of(logits):
    """BALD by the number of passes (T, m) and of each half, from the columns that are stored."""
    row = pd.Series(dropout_columns(torch.from_numpy(logits).split(2, 1)))
    halves = np.array(row.half_predictive) - np.array(row.half_conditional)
    by_passes = []
    for passes in range(1, len(logits) + 1):
        first = pd.Series({name: row[name][:passes] for name in ("predictive", "conditional")})
        by_passes.append(compute_bald(first))
    return np.array(by_passes), halves


def test_masks_of_a_gpu_are_seeded_by_pass_and_site():
    """Here on the processor: the same again and in a smaller batch, others at another site, and as
    many kept as the rates say."""
    passes = [(11, 0.1), (12, 0.15), (13, 0.2)]
    x = torch.zeros(3, 8, 50, 60)
    masks = seeded_dropout.masks_on_gpu(passes, 5, x)
    assert masks.dtype == torch.bool and masks.shape == x.shape
    shares = masks.double().mean((1, 2, 3)).tolist()
    assert shares == pytest.approx([0.9, 0.85, 0.8], abs=0.012)  # five standard deviations
    assert torch.equal(masks, seeded_dropout.masks_on_gpu(passes, 5, x))
    assert torch.equal(masks[1:2], seeded_dropout.masks_on_gpu(passes[1:2], 5, x[1:2]))
    for others in (seeded_dropout.masks_on_gpu(passes, 6, x), masks.roll(1, 0)):
        agreement = (masks[0] == others[0]).double().mean().item()
        assert 0.7 < agreement < 0.9, "no more than chance"


@pytest.mark.parametrize("sharpness", BALD_BY_BAAL)
def test_bald_is_baals_for_every_number_of_passes(sharpness):
    bald, _ = bald_of(netcal_and_baal.logits(sharpness))
    close(bald[0], 0, atol=1e-12)
    close(bald[1:], BALD_BY_BAAL[sharpness], atol=1e-11)


@pytest.mark.parametrize("passes, half", [(2, 1), (6, 3), (7, 3)])
def test_each_half_of_the_passes_has_the_bald_of_these_passes_alone(passes, half):
    """Of an odd number the last pass is in neither."""
    logits = netcal_and_baal.logits(3.0)[:passes]
    _, halves = bald_of(logits)
    first, _ = bald_of(logits[:half])
    second, _ = bald_of(logits[half : 2 * half])
    close(halves, [first[-1], second[-1]], atol=1e-12)


def test_a_single_pass_has_no_halves():
    _, halves = bald_of(netcal_and_baal.logits(3.0)[:1])
    assert halves.size == 0


@pytest.mark.parametrize("top_k, top_p", [(1, 0.5), (4, 0.95)])
def test_effective_supports_are_unions(top_k, top_p):
    p, row = columns_of(5, tokens=4, vocabulary=30, sharpness=1.5, top_k=top_k, top_p=top_p)
    for token, name in product(range(4), ("top_k", "top_p")):
        union = set()
        for t in range(5):
            order = np.argsort(-p[t, token])
            mass = np.cumsum(p[t, token, order])
            size = top_k if name == "top_k" else np.argmax(mass > top_p) + 1
            union |= set(order[:size])
            assert row[name][t][token] == len(union), name


# ---- selection


def at_rate(rate, last):
    """A dropout frame: BALD by example after the last of two passes over two tokens."""
    predictive = [[np.zeros(2), np.full(2, value)] for value in last]
    same = {
        "conditional": [[np.zeros(2)] * 2] * len(last),
        "top_p": [[np.full(2, 10)] * 2] * len(last),
    }
    frame = synthetic.keyed(len(last), split="calibration", predictive=predictive, **same)
    return frame.assign(rate=rate, tuning=True)


def test_the_rate_of_lowest_ece_is_selected():
    right = [True, True, False, False]
    responses = synthetic.responses_of_pair([[1.0]] * 4, right).assign(split="calibration")
    bald = {0.1: [0.0, 0.0, 0.0, 0.0], 0.2: [0.0, 0.0, 1.0, 1.0], 0.3: [0.0, 0.0, 1.0, 1.0]}
    passes = pd.concat([at_rate(rate, last) for rate, last in bald.items()])
    results = confidence.evaluate_rate_grid(responses, passes, EvaluationChoices())
    errors = results[results.metric == "ece"].set_index("rate").value
    assert errors[0.1] == pytest.approx(0.5) and errors[0.2] == 0
    # lowest at 0.3
    others = results.assign(value=results.value.where(results.metric == "ece", -results.rate))
    # or the lower
    assert confidence.select_dropout_rate(results) == confidence.select_dropout_rate(others) == 0.2


def test_tuning_examples_are_drawn_from_the_calibration_split():
    """In any order of rows the same; a limit of the passes counts them, and keeps the running
    example."""
    frame = synthetic.keyed(50).assign(split=["calibration"] * 30 + ["evaluation"] * 20)
    tuning = mc_dropout.tuning_rows(frame, 10, seed=0)
    assert len(set(tuning)) == 10
    assert set(tuning) < set(frame.example_id[:30])
    shuffled = frame.sample(frac=1, random_state=0)
    assert set(mc_dropout.tuning_rows(shuffled, 10, seed=0)) == set(tuning)
    assert mc_dropout.tuning_rows(frame, 10, seed=1) != tuning
    assert len(mc_dropout.tuning_rows(frame, 100, seed=0)) == 30
    example = frame.example_id.iloc[-1]
    for limit, rest in ((12, 2 + 12), (1, 1), (0, 20 + 20)):
        work = dict(mc_dropout.rest_work(frame, 0.2, limit, tuning, 0, example))
        assert len(work) == rest
        assert set(work.values()) == {0.2}
        assert example in work
        assert work.keys().isdisjoint(tuning)
