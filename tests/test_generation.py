"""Sampling and what is kept of it, against transformers' own numbers and plain forward passes (float32, CPU)."""

import dataclasses
import weakref
from types import SimpleNamespace

import architectures
import numpy as np
import pandas as pd
import pytest
import synthetic
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from transformers import BloomConfig, DynamicCache, GenerationConfig, LogitsProcessorList
from transformers.cache_utils import DynamicLayer

from lib import params
from lib.calibrate import fitting
from lib.generate import decoding, models, p_true, responses, token_logits
from lib.generate.temperatures import temperatures
from lib.params import Generation
from lib.project import UserError
from lib.streams import stream_seed
from lib.tasks import answers, datasets, prompts

SETTINGS = Generation(seed=3, demonstration="none", max_new_tokens=120, top_logits=16, curve_nodes=33)


def examples(count, dataset="demo-hard"):
    return datasets.load_examples(params.load_dataset(dataset))[:count]


def prompt_ids(lm, count=6):
    """Prompts of unequal lengths: from the bare question to the full one-shot prompt."""
    return [
        models.encode(lm, responses.prompt_text(lm, e.question, demonstration="none" if i % 3 else "one"))
        for i, e in enumerate(examples(count))
    ]


def seeds(count):
    return [stream_seed(0, "test", str(i)) for i in range(count)]


def greedy(lm):
    return dataclasses.replace(lm, spec=lm.spec.model_copy(update={"top_k": 1, "top_p": 1.0}))


def test_logprobs_are_those_of_transformers(lm):
    """Chosen-token log-probabilities equal compute_transition_scores on raw logits, through temperature and top-k/p."""
    prompt = prompt_ids(lm)
    padded = lm.tokenizer.pad({"input_ids": prompt}, return_tensors="pt")
    note = decoding.Note()
    sample = decoding.Sample(note, seeds(len(prompt)), lm.number_like, SETTINGS)
    warpers = decoding.warpers(lm.spec.model_copy(update={"top_k": 20, "top_p": 0.9, "temperature": 0.7}))
    out = lm.model.generate(
        **padded,
        logits_processor=LogitsProcessorList([note, *warpers, sample]),
        generation_config=GenerationConfig(
            do_sample=False,
            max_new_tokens=120,
            eos_token_id=lm.eos,
            output_logits=True,
            pad_token_id=lm.tokenizer.pad_token_id,
            return_dict_in_generate=True,
        ),
    )
    # in double: in float32 the oracle's own log-softmax, taken along a strided dimension, is off by up to 1.5e-5
    logits = tuple(step.double() for step in out.logits)
    oracle = lm.model.compute_transition_scores(out.sequences, logits, normalize_logits=True)
    lengths = [len(decoding.cut(r, lm.eos)) for r in out.sequences[:, padded.input_ids.shape[1] :].tolist()]
    assert len(set(lengths)) > 1, "the batch must have rows that finish early"
    for i, length in enumerate(lengths):
        ours = sample.logprobs[i, :length]
        assert (ours - oracle[i, :length]).abs().max() < 1e-5


def test_logprobs_are_those_of_a_full_forward_pass(lm):
    prompt = prompt_ids(lm)
    batch = decoding.decode(lm, prompt, seeds(len(prompt)), SETTINGS)
    for i, response in enumerate(batch.responses):
        logits = token_logits.logits_at(lm, prompt[i], response, list(range(len(response))))
        plain = logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0]
        assert (batch.logprobs[i, : len(response)] - plain).abs().max() < 1e-5
        warped = torch.cat([chain(lm, row[None]) for row in logits]).log_softmax(-1)
        warped = warped.gather(-1, torch.tensor(response)[:, None])[:, 0]
        assert (batch.sampling[i, : len(response)] - warped).abs().max() < 1e-4


def chain(lm, scores):
    for warper in decoding.warpers(lm.spec):
        scores = warper(None, scores)
    return scores


@pytest.mark.parametrize("mode", [greedy, lambda lm: lm], ids=["greedy", "sampled"])
def test_tokens_do_not_depend_on_the_batch(lm, mode):
    lm = mode(lm)
    prompt, seed = prompt_ids(lm), seeds(6)
    together = decoding.decode(lm, prompt, seed, SETTINGS).responses
    backwards = decoding.decode(lm, prompt[::-1], seed[::-1], SETTINGS).responses[::-1]
    alone = [decoding.decode(lm, [p], [s], SETTINGS).responses[0] for p, s in zip(prompt, seed, strict=True)]
    assert together == backwards == alone


def test_greedy_is_transformers_greedy(lm):
    prompt = prompt_ids(lm, 1)
    theirs = lm.model.generate(
        torch.tensor(prompt),
        attention_mask=torch.ones(1, len(prompt[0])),
        do_sample=False,
        max_new_tokens=120,
        eos_token_id=lm.eos,
        pad_token_id=lm.tokenizer.pad_token_id,
    )
    ours = decoding.decode(greedy(lm), prompt, seeds(1), SETTINGS).responses[0]
    assert decoding.cut(theirs[0, len(prompt[0]) :].tolist(), lm.eos) == ours


@pytest.mark.parametrize("shared", [False, True])
def test_a_batch_that_dwindles_writes_the_same(lm, monkeypatch, shared):
    """Rows handed over when half have ended, prompts with a beginning that is encoded once: the tokens of a plain
    batch, its log-probabilities within float32's rounding, and caches in which the rows can be asked on."""
    monkeypatch.setattr(decoding, "FEW", 2)
    asked = [responses.request(lm, "d", e, SETTINGS.model_copy(update={"demonstration": "few"})) for e in examples(6)]
    few = SETTINGS.model_copy(update={"demonstration": "few"})
    count = responses.shared_tokens(lm, asked, few)
    assert count > 100 and all(r.prompt_ids[:count] == asked[0].prompt_ids[:count] for r in asked)
    ids, own = [r.prompt_ids for r in asked], [r.seed for r in asked]
    whole = decoding.decode(lm, ids, own, SETTINGS)
    verdicts = p_true.live(lm, whole)
    handed = []
    for places, batch in decoding.rounds(lm, ids, own, SETTINGS, count if shared else 0):
        handed.append(places)
        assert batch.responses == [whole.responses[i] for i in places]
        for place, (i, verdict) in enumerate(zip(places, p_true.live(lm, batch), strict=True)):
            length = len(batch.responses[place])
            torch.testing.assert_close(batch.logprobs[place, :length], whole.logprobs[i, :length], atol=1e-3, rtol=0)
            assert verdict["in_situ_logits"] == pytest.approx(verdicts[i]["in_situ_logits"], abs=1e-3)
            assert batch.kept[place].keys() == whole.kept[i].keys()
    assert len(handed) > 1 and sorted(sum(handed, [])) == list(range(6))


def test_a_cache_that_forgets_is_begun_with_by_no_one(lm, monkeypatch):
    told, begin = [], decoding.beginning
    monkeypatch.setattr(decoding, "forgets", lambda lm: True)
    monkeypatch.setattr(decoding, "beginning", lambda lm, ids, shared: told.append(shared) or begin(lm, ids, shared))
    assert len(list(decoding.rounds(lm, prompt_ids(lm, 3), seeds(3), SETTINGS, shared=1))) == 1, "and hands no row over"
    assert told == [0]


def test_a_response_as_long_as_it_may_be_is_not_cut_by_the_context():
    frame = pd.DataFrame({"finish_reason": ["length", "length", "stop"], "token_ids": [[1] * 8, [1] * 7, [1] * 3]})
    assert responses.cut_by_context(frame, Generation(max_new_tokens=8)) == 1


def test_an_answer_may_begin_with_the_response():
    spans = {"answer_start": 0, "answer_end": 2, "last_number_start": -1, "last_number_end": -1}
    assert responses.answer_positions(spans, 5) == [0, 1, 4]


class Alive:
    """Every layer of a cache that was ever filled, so that those that still live can be counted."""

    def __init__(self, monkeypatch):
        self.layers = weakref.WeakSet()
        fill = DynamicLayer.lazy_initialization

        def noted(layer, *states):
            self.layers.add(layer)
            fill(layer, *states)

        monkeypatch.setattr(DynamicLayer, "lazy_initialization", noted)

    def bytes(self, apart_from=None):
        own = {id(layer) for layer in apart_from.layers} if apart_from is not None else set()
        kept = [t for layer in self.layers if id(layer) not in own for t in (layer.keys, layer.values)]
        return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}.values())


@pytest.mark.parametrize("beginning", ["none", "few"])
def test_one_cache_is_alive_at_a_time(lm, monkeypatch, beginning):
    """When a batch, or what is left of one, is decoded, no cache of another is still there."""
    monkeypatch.setattr(decoding, "FEW", 2)
    alive, generate, others = Alive(monkeypatch), lm.model.generate, []

    def spied(*, past_key_values, **more):
        others.append(alive.bytes(past_key_values))
        return generate(past_key_values=past_key_values, **more)

    monkeypatch.setattr(lm.model, "generate", spied)
    tokens = {"none": 1200, "few": 4000}[beginning]
    settings = SETTINGS.model_copy(update={"demonstration": beginning, "batch_tokens": tokens})
    asked = examples(9)
    requests = [responses.request(lm, "demo-hard", example, settings) for example in asked]
    assert len(list(responses.grouped(lm, requests, settings))) > 1
    responses.respond(lm, "demo-hard", asked, settings, alive=p_true.live)
    assert len(others) > 3 and not any(others) and not alive.bytes()


def test_tokens_that_are_read_again_fill_no_cache(lm, monkeypatch):
    alive = Alive(monkeypatch)
    ids = prompt_ids(lm, 1)[0]
    assert token_logits.logits_at(lm, ids[:20], ids[20:], [0, 3]).shape[0] == 2 and not alive.layers


def test_a_cache_is_parted_within_its_own_room(monkeypatch):
    """One layer is held twice at most, and each part has its rows."""
    alive, whole = Alive(monkeypatch), DynamicCache()
    states = [torch.randn(6, 2, 10, 4) for _ in range(8)]
    for i, state in enumerate(states):
        whole.update(state, -state, i)
    before, most, update = alive.bytes(), [], DynamicCache.update
    monkeypatch.setattr(DynamicCache, "update", lambda *a: (update(*a), most.append(alive.bytes())))
    over = torch.tensor([True, False, False, True, False, True])
    part, rest = decoding.parted(whole, over)
    assert rest is whole and len(most) == 8 and max(most) <= before * (1 + 1 / 8)
    for layer, other, state in zip(part.layers, rest.layers, states, strict=True):
        assert torch.equal(layer.keys, state[over]) and torch.equal(layer.values, -state[over])
        assert torch.equal(other.keys, state[~over]) and torch.equal(other.values, -state[~over])


def test_only_a_common_beginning_is_shared(lm):
    """Nothing without worked examples, and never a token of a question, however alike the questions of a batch are."""
    same = [examples(1)[0]] * 3
    for beginning in ("none", "one"):
        settings = SETTINGS.model_copy(update={"demonstration": beginning})
        assert responses.shared_tokens(lm, [responses.request(lm, "d", e, settings) for e in same], settings) == 0
    few = SETTINGS.model_copy(update={"demonstration": "few"})
    asked = [responses.request(lm, "d", e, few) for e in same]
    shared = lm.tokenizer.decode(asked[0].prompt_ids[: responses.shared_tokens(lm, asked, few)])
    assert same[0].question.split()[0] not in shared[-20:] and prompts.WORKED[-1][1] in shared


def test_another_seed_gives_other_responses(lm):
    hot = dataclasses.replace(lm, spec=lm.spec.model_copy(update={"temperature": 2.0, "top_k": -1, "top_p": 1.0}))
    prompt = prompt_ids(lm, 2)
    one, two = (decoding.decode(hot, prompt, seeds, SETTINGS).responses for seeds in ([1, 2], [3, 4]))
    assert one != two


def test_a_response_cut_by_length_says_so(lm):
    short = SETTINGS.model_copy(update={"max_new_tokens": 5})
    frame = responses.respond(lm, "demo-hard", examples(3), short)
    assert set(frame.finish_reason) == {"length"} and set(frame.eos) == {0}
    assert all(len(ids) == 5 for ids in frame.token_ids)
    assert (frame.answer_start == -1).all()
    for kept, ids in zip(frame.kept_positions, frame.token_ids, strict=True):
        assert len(ids) - 1 in kept  # the last token stands in for the missing answer


def test_rows_hold_what_the_contract_says(lm):
    frame = responses.respond(lm, "demo-easy", examples(8, "demo-easy"), SETTINGS)
    for row in frame.itertuples():
        body = row.token_ids[: len(row.token_ids) - row.eos]
        assert lm.tokenizer.decode(body, skip_special_tokens=False) == row.text
        assert len(row.token_logprobs) == len(row.token_logprobs_sampling) == len(row.token_ids)
        assert (row.token_logprobs <= 0).all()
        assert row.prompt_tokens == len(models.encode(lm, row.prompt))
        if row.answer_start >= 0:
            assert set(range(row.answer_start, row.answer_end)) <= set(row.kept_positions)
        for p, z, top, tail in zip(row.kept_positions, row.chosen_logit, row.top_logits, row.tail_curve, strict=True):
            # at temperature 1 what is kept gives the token's log-probability back
            rest = CubicSpline(np.log(1 / temperatures(33))[::-1], np.float64(tail)[::-1])(0.0)
            logz = np.logaddexp(np.logaddexp.reduce(np.float64(top) - top[0]), rest) + top[0]
            assert abs((z - logz) - row.token_logprobs[p]) < 1e-5


def test_a_response_is_shown_token_by_token(lm):
    ids = models.encode(lm, "#### 42 and no more")[:6]
    row = SimpleNamespace(
        token_ids=ids,
        token_logprobs=np.log([0.5, 1, 1, 0.25, 1, 1]),
        eos=True,
        token_logprobs_sampling=np.zeros(6),
        answer_start=3,
        answer_end=5,
        thinking_end=2,
    )
    shown = responses.token_table(lm, row)
    assert shown.part.tolist() == ["thinking", "thinking", "", "answer", "answer", "end"]
    assert shown.probability.tolist() == [0.5, 1, 1, 0.25, 1, 1] and shown.id.tolist() == row.token_ids
    row.eos = False
    assert responses.token_table(lm, row).part.tolist()[-1] == ""


def test_kept_logits_equal_a_full_forward_pass(lm):
    frame = responses.respond(lm, "demo-medium", examples(3, "demo-medium"), SETTINGS)
    for row in frame.itertuples():
        prompt = models.encode(lm, row.prompt)
        logits = token_logits.logits_at(lm, prompt, list(row.token_ids), list(row.kept_positions))
        values, ids, curve = token_logits.compress(logits, 16, 33)
        np.testing.assert_allclose(np.stack(row.top_logits), values, atol=1e-4)  # cached against plain, z about 20
        np.testing.assert_allclose(np.stack(row.tail_curve), curve, atol=2e-3)  # at t = 0.1 differences count tenfold


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_compressed_logits_resoftmax_at_any_temperature(scale):
    """Top 64 and 33 nodes: confidence within 2e-5 of a softmax over all of V = 128256, t in [0.1, 20]."""
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 128256, generator=g) * scale
    logits[:, 5] += torch.tensor([0.0, 2.0, 5.0, 10.0, 20.0, 40.0])
    values, ids, curve = token_logits.compress(logits, 64, 33)
    nodes = np.log(1 / temperatures(33))
    worst = 0.0
    for row in range(6):
        rest = CubicSpline(nodes[::-1], curve[row].double().numpy()[::-1])
        top = values[row].double().numpy() - float(values[row, 0])
        for t in np.exp(np.linspace(np.log(0.1), np.log(20), 101)):
            z = float(logits[row, 5]) - float(values[row, 0])
            ours = np.exp(z / t - np.logaddexp(np.logaddexp.reduce(top / t), rest(np.log(1 / t))))
            worst = max(worst, abs(ours - float((logits[row].double() / t).softmax(-1)[5])))
    assert worst < 2e-5


def test_sampling_follows_the_distribution():
    logits = torch.tensor([0.5, 0.2, 0.0, 0.3]).log()
    u = torch.rand(40_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = decoding.invert(logits.expand(40_000, 4), u)
    share = torch.bincount(drawn, minlength=4) / 40_000
    assert share[2] == 0 and (share - torch.tensor([0.5, 0.2, 0.0, 0.3])).abs().max() < 0.01


@given(
    st.lists(st.one_of(st.floats(-30, 30), st.just(float("-inf"))), min_size=2, max_size=30).filter(
        lambda z: max(z) > float("-inf")
    ),
    st.floats(0, 1, exclude_max=True),
)
def test_a_token_without_mass_is_never_drawn(z, u):
    token = int(decoding.invert(torch.tensor([z]), torch.tensor([u], dtype=torch.float64))[0])
    assert token < len(z) and z[token] > float("-inf")


def test_a_longer_stream_begins_with_the_shorter():
    assert (decoding.uniforms([7, 8], 500)[:, :20] == decoding.uniforms([7, 8], 20)).all()
    assert stream_seed(0, "a", "b") != stream_seed(0, "a|b", "c")


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 4000))
@settings(max_examples=60)
def test_batches_hold_everyone_once_within_the_budget(lengths, budget):
    groups = decoding.batches(lengths, budget, growth=50)
    assert sorted(i for g in groups for i in g) == list(range(len(lengths)))
    assert all(len(g) == 1 or len(g) * (max(lengths[i] for i in g) + 50) <= budget for g in groups)


def test_settings_that_are_off_add_no_processor():
    off = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "min_p": 0.0}
    on = {"temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.1}
    spec = params.load_model("tiny-llama")
    assert decoding.warpers(spec.model_copy(update=off)) == []
    assert len(decoding.warpers(spec.model_copy(update=on))) == 4


def test_number_like_tokens_cover_every_answer_span(lm):
    mask = lm.number_like
    for text in ("#### -1,234.50", "####7", "#### $18", "= 12.", "#### \u22125"):
        ids = lm.tokenizer(text, add_special_tokens=False).input_ids
        found = answers.locate_answer(lm.tokenizer, ids, thinking=False)
        assert all(mask[ids[p]] for p in range(found["last_number_start"], found["last_number_end"]))


def test_no_second_beginning_of_sequence(lm):
    text = models.render(lm, prompts.question_messages("How many?", system=True))
    ids = models.encode(lm, text)
    assert ids.count(lm.tokenizer.bos_token_id) == (lm.tokenizer.bos_token_id is not None)
    assert lm.tokenizer.decode(ids, skip_special_tokens=False) == text


def test_a_template_that_doubles_the_beginning_is_refused():
    from lib.project import UserError

    lm = models.load("tiny-llama", params.load_model("tiny-llama"))
    with pytest.raises(UserError, match="beginning-of-sequence token twice"):
        models.encode(lm, lm.tokenizer.bos_token + lm.tokenizer.bos_token + "x")


def test_the_shipped_generation_config_hides_no_processor(tmp_path, lm):
    """A repetition penalty in a checkpoint's own configuration must not bend the distribution."""
    lm.model.save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    GenerationConfig(repetition_penalty=3.0, eos_token_id=lm.eos, do_sample=True, top_k=2).save_pretrained(tmp_path)
    other = models.load("copy", lm.spec.model_copy(update={"source": str(tmp_path)}))
    prompt = prompt_ids(lm, 2)
    one, two = (decoding.decode(m, prompt, [1, 2], SETTINGS).responses for m in (other, lm))
    assert one == two


def test_only_the_latest_numbers_are_kept_while_sampling_and_the_rest_is_encoded_again(lm, monkeypatch):
    """A long response keeps RING positions; what an answer needs beyond them comes from a plain forward pass."""
    whole = responses.respond(lm, "demo-hard", examples(3), SETTINGS)
    monkeypatch.setattr(token_logits, "RING", 2)
    prompt = prompt_ids(lm, 3)
    for kept in decoding.decode(lm, prompt, seeds(3), SETTINGS).kept:
        assert len(kept) == 2
    few = responses.respond(lm, "demo-hard", examples(3), SETTINGS)
    assert few.reencoded.sum() > whole.reencoded.sum()
    for one, other in zip(whole.chosen_logit, few.chosen_logit, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_what_is_written_after_the_end_is_not_kept(lm, monkeypatch):
    """A row that has ended waits for the others; what it draws meanwhile takes no place from its own numbers."""
    monkeypatch.setattr(decoding, "FEW", 99)
    prompt = prompt_ids(lm)
    batch = decoding.decode(lm, prompt, seeds(6), SETTINGS)
    lengths = [len(response) for response in batch.responses]
    assert min(lengths) < max(lengths)
    for response, kept in zip(batch.responses, batch.kept, strict=True):
        numbers = [i for i, token in enumerate(response) if lm.number_like[token]]
        assert kept and sorted(kept) == numbers[-token_logits.RING :]


def test_a_response_that_ends_at_once_has_a_confidence(lm):
    """Its answer token is the end token, whose logits are kept, so that temperature can be fitted on it."""
    hasty = dataclasses.replace(lm, eos=list(range(len(lm.tokenizer))))
    frame = responses.respond(hasty, "demo-easy", examples(4), SETTINGS)
    assert (frame.token_ids.map(len) == 1).all() and (frame.eos == 1).all() and frame.answer.isna().all()
    frame["split"] = ["calibration", "evaluation"] * 2
    confidence = synthetic.single_pass(frame)
    assert confidence.confidence.between(0, 1).all() and not confidence.correct.any()
    ((old, new),) = fitting.calibration_data(frame, synthetic.responses(frame)).values()
    np.testing.assert_allclose(old.answers.confidence(1.0)[0], old.confidence, atol=1e-5)


# ---- the context


def test_responses_end_where_the_context_does(lm, monkeypatch):
    """Each row where prompt, response and query fill it: cut, a row is the beginning of what it is uncut."""
    asked, query = examples(8), len(p_true.query(lm))
    whole = responses.respond(lm, "demo-hard", asked, SETTINGS)
    context = int(whole.prompt_tokens.max()) + 25 + query
    monkeypatch.setattr(lm.model.config, "max_position_embeddings", context)
    frame = responses.respond(lm, "demo-hard", asked, SETTINGS, alive=p_true.live)
    left = context - query - frame.prompt_tokens
    assert left.min() == 25 and left.nunique() > 1, "prompts of several lengths"
    for row, uncut, room in zip(frame.itertuples(), whole.itertuples(), left, strict=True):
        assert list(row.token_ids) == list(uncut.token_ids[:room])
        np.testing.assert_allclose(row.token_logprobs, uncut.token_logprobs[:room], atol=1e-5)
        assert row.finish_reason == ("stop" if len(uncut.token_ids) <= room and uncut.eos else "length")
    cut = (whole.token_ids.map(len) > left).sum()
    assert responses.cut_by_context(frame, SETTINGS) == cut > 0 == responses.cut_by_context(whole, SETTINGS)
    trajectory = [len(p_true.trajectory(lm, row)) for row in frame.itertuples()]
    assert max(trajectory) == context


def test_positions_that_are_learned_never_run_out():
    """GPT-2 has no position beyond its context: decoding, the live query and the passes stay within it."""
    asked = [*examples(3), *examples(3, "demo-easy")]
    lm = architectures.random("gpt2", n_positions=1024)
    prompts_alone = [len(models.encode(lm, responses.prompt_text(lm, e.question, "none"))) for e in asked]
    lm = architectures.random("gpt2", n_positions=max(prompts_alone) + 8 + len(p_true.query(lm)))
    assert lm.context == lm.model.config.n_positions
    frame = responses.respond(lm, "demo-hard", asked, SETTINGS, alive=p_true.live)
    assert (frame.token_ids.map(len) < SETTINGS.max_new_tokens).all() and responses.cut_by_context(frame, SETTINGS)
    verified = p_true.verify(lm, frame, params.Verification())
    again = p_true.encoded(lm, [p_true.trajectory(lm, row) for row in frame.itertuples()])
    np.testing.assert_allclose(np.stack(verified.in_situ_logits), [v["logits"] for v in again], atol=1e-4)


def test_a_prompt_that_fills_the_context_is_refused(lm, monkeypatch):
    monkeypatch.setattr(lm.model.config, "max_position_embeddings", 40)
    with pytest.raises(UserError, match=f"model '{lm.name}': the prompt of example .* leaves no room .* of 40"):
        responses.respond(lm, "demo-hard", examples(1), SETTINGS)


def test_a_model_without_a_context_is_not_cut(lm):
    asked = responses.request(lm, "demo-hard", examples(1)[0], SETTINGS)
    free = dataclasses.replace(lm, model=SimpleNamespace(config=BloomConfig()))  # distances instead of positions
    assert free.context is None and responses.room(free, asked, SETTINGS) == SETTINGS.max_new_tokens


def test_beginnings_that_a_model_cannot_take_are_left_out(lm, monkeypatch):
    """The ablation asks a model in the ways that it can be asked: by its context, and by its template."""
    ways, asked = ["one", "few", "none"], examples(3)
    assert responses.askable(lm, asked, SETTINGS, ways) == ways
    longest = {way: max(len(models.encode(lm, responses.prompt_text(lm, e.question, way))) for e in asked)
               for way in ways}  # fmt: skip
    assert longest["none"] < longest["one"] < longest["few"]
    query = len(p_true.query(lm))
    for way, held in (("few", ways), ("one", ["one", "none"]), ("none", ["none"])):
        monkeypatch.setattr(lm.model.config, "max_position_embeddings", longest[way] + query + 1)
        assert responses.askable(lm, asked, SETTINGS, ways) == held
    monkeypatch.setattr(lm.model.config, "max_position_embeddings", longest["none"] + query)
    assert responses.askable(lm, asked, SETTINGS, ways) == []
    monkeypatch.undo()
    once = "{% for m in messages if m.role == 'assistant' %}{{ raise_exception('one turn') }}{% endfor %}"
    monkeypatch.setattr(lm.tokenizer, "chat_template", once + lm.tokenizer.chat_template)
    assert responses.askable(lm, asked, SETTINGS, ways) == ["one", "none"]
