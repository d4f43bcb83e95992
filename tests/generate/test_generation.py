"""Sampling and what is kept of it, against transformers' own numbers and plain forward passes (float32, CPU)."""

import dataclasses
from types import SimpleNamespace

import architectures
import numpy as np
import pandas as pd
import pytest
import synthetic
import torch
import transformers
from architectures import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from transformers import BloomConfig, GenerationConfig, LogitsProcessorList

from lib import params
from lib.calibrate import fitting
from lib.generate import batching, generation, models, p_true, sampling, scoring
from lib.generate.sampling import Request
from lib.generate.temperatures import temperatures
from lib.params import Generation
from lib.paths import UserError
from lib.random_streams import stream_seed
from lib.tasks import prompts

SETTINGS = Generation(seed=3, demonstration="none", max_new_tokens=120, top_logits=16, n_temperature_nodes=33)


def prompt_ids(lm, count=6):
    """Prompts of unequal lengths: from the bare question to the full one-shot prompt."""
    return [
        models.encode(lm, generation.solving_prompt(lm, e.question, demonstration="none" if i % 3 else "one"))
        for i, e in enumerate(examples("demo-hard", count))
    ]


def seeds(count):
    return [stream_seed(0, "test", str(i)) for i in range(count)]


def sample(lm, prompts, seeds, settings=SETTINGS):
    requests = [Request(None, "", ids, seed, settings.max_new_tokens) for ids, seed in zip(prompts, seeds, strict=True)]
    return sampling.sample_batch(lm, requests)


def test_logprobs_are_those_of_transformers(lm):
    """Log-probabilities equal compute_transition_scores on the raw logits of `generate`, which draws through
    temperature and top-k/p; rows that finish early included."""
    lm = dataclasses.replace(lm, spec=lm.spec.model_copy(update={"top_k": 20, "top_p": 0.9, "temperature": 0.7}))
    requests = generation.build_requests(lm, "demo-hard", examples("demo-hard", 6), SETTINGS)
    padded = lm.tokenizer.pad({"input_ids": [one.prompt_ids for one in requests]}, return_tensors="pt")
    sampler = sampling.SeededSampler(lm.spec, sampling.uniform_numbers([one.seed for one in requests], 120))
    ends = {"eos_token_id": lm.eos, "pad_token_id": lm.tokenizer.pad_token_id, "max_new_tokens": 120}
    config = GenerationConfig(do_sample=False, output_logits=True, return_dict_in_generate=True, **ends)
    out = lm.model.generate(**padded, logits_processor=LogitsProcessorList([sampler]), generation_config=config)
    # in double: in float32 the oracle's own log-softmax, taken along a strided dimension, is off by up to 1.5e-5
    logits = tuple(step.double() for step in out.logits)
    oracle = lm.model.compute_transition_scores(out.sequences, logits, normalize_logits=True)
    frame = generation.generate_responses(lm, "demo-hard", examples("demo-hard", 6), SETTINGS)
    assert frame.token_ids.map(len).nunique() > 1, "the batch must have rows that finish early"
    responses = out.sequences[:, padded.input_ids.shape[1] :]
    for row, ids, expected in zip(frame.itertuples(), responses, oracle, strict=True):
        assert list(row.token_ids) == sampling.truncate_at_eos(ids.tolist(), lm.eos)
        np.testing.assert_allclose(row.token_logprobs, expected[: len(row.token_ids)], atol=5e-5)


def test_tokens_and_their_beginning_are_those_of_one_batch(lm):
    """What all prompts begin with is encoded once, and changes no token."""
    few = SETTINGS.model_copy(update={"demonstration": "few"})
    requests = generation.build_requests(lm, "d", examples("demo-hard", 6), few)
    shared = requests[0].shared_tokens
    assert shared > 100 and {one.shared_tokens for one in requests} == {shared}
    plain = [dataclasses.replace(one, shared_tokens=0) for one in requests]
    forgets = architectures.random("sliding")  # whose cache is begun with by no one
    for model in (lm, forgets):
        assert sampling.sample_batch(model, requests) == sampling.sample_batch(model, plain)


@pytest.mark.parametrize("name", ["tiny-llama", "qwen3", "gpt2", "gemma2", "sliding"])
def test_tokens_are_those_of_a_row_by_itself(name):
    """Rows of a batch end at different times; those that go on keep their cache, their padding and their stream."""
    lm = architectures.load(name)
    requests = generation.build_requests(lm, "d", examples("demo-hard", 9), SETTINGS)
    together = sampling.sample_batch(lm, requests)
    assert len({len(response) for response in together}) > 4, "the rows must end at different times"
    assert together == [sampling.sample_batch(lm, [one])[0] for one in requests]


def test_only_a_common_beginning_is_shared(lm):
    """Nothing without worked examples, and never a token of a question, however alike the questions of a batch are."""
    same = [examples("demo-hard", 1)[0]] * 3
    for beginning in ("none", "one"):
        settings = SETTINGS.model_copy(update={"demonstration": beginning})
        assert generation.build_requests(lm, "d", same, settings)[0].shared_tokens == 0
    asked = generation.build_requests(lm, "d", same, SETTINGS.model_copy(update={"demonstration": "few"}))
    shared = lm.tokenizer.decode(asked[0].prompt_ids[: asked[0].shared_tokens])
    assert same[0].question.split()[0] not in shared[-20:] and prompts.WORKED[-1][1] in shared


OFF = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "min_p": 0.0}
WARPED = [{"temperature": 0.6, "top_p": 0.9}, {"temperature": 0.7, "top_k": 20, "top_p": 0.8}, {"min_p": 0.05},
          {"temperature": 1.5, "top_p": 0.95, "min_p": 0.02}, {"top_p": 0.999}, {"top_k": 5}, {}]  # fmt: skip


@pytest.mark.parametrize("size", [300, 20_000])
@pytest.mark.parametrize("settings", WARPED)
def test_warped_logits_are_those_of_transformers_warpers(settings, size):
    """Where the most probable tokens alone are sorted, where these hold too little, and where a step has ties."""
    spec = params.load_model_config("tiny-llama").model_copy(update=OFF | settings)
    logits = torch.randn(6, size, generator=torch.Generator().manual_seed(0))
    logits[0] *= 8
    logits[1] *= 3
    logits[2] = (logits[2] * 4).bfloat16().float()
    chain = [
        warper
        for name, off, warper in (
            ("temperature", 1.0, transformers.TemperatureLogitsWarper),
            ("top_k", -1, transformers.TopKLogitsWarper),
            ("top_p", 1.0, transformers.TopPLogitsWarper),
            ("min_p", 0.0, transformers.MinPLogitsWarper),
        )
        if getattr(spec, name) != off
        for warper in [warper(getattr(spec, name))]
    ]
    expected = logits
    for warper in chain:
        expected = warper(None, expected)
    found = sampling.warp_logits(logits, spec)
    assert (torch.isinf(found) != torch.isinf(expected)).sum() <= 6  # at the nucleus' edge, by float32's last digits
    torch.testing.assert_close(found.softmax(-1), expected.softmax(-1), atol=1e-4, rtol=0)


def test_tokens_do_not_depend_on_the_batch(lm):
    prompt, seed = prompt_ids(lm), seeds(6)
    together = sample(lm, prompt, seed)
    backwards = sample(lm, prompt[::-1], seed[::-1])[::-1]
    alone = [sample(lm, [p], [s])[0] for p, s in zip(prompt, seed, strict=True)]
    assert together == backwards == alone


def test_a_response_as_long_as_it_may_be_is_not_cut_by_the_context():
    frame = pd.DataFrame({"finish_reason": ["length", "length", "stop"], "token_ids": [[1] * 8, [1] * 7, [1] * 3]})
    assert generation.count_cut_by_context(frame, Generation(max_new_tokens=8)) == 1


def test_an_answer_may_begin_with_the_response():
    spans = {"answer_start": 0, "answer_end": 2, "last_number_start": -1, "last_number_end": -1}
    assert scoring.answer_positions(spans, 5) == [0, 1, 4]


def test_a_response_cut_by_length_says_so(lm):
    short = SETTINGS.model_copy(update={"max_new_tokens": 5})
    frame = generation.generate_responses(lm, "demo-hard", examples("demo-hard", 3), short)
    assert set(frame.finish_reason) == {"length"} and set(frame.eos) == {0}
    assert all(len(ids) == 5 for ids in frame.token_ids)
    assert (frame.answer_start == -1).all()
    for kept, ids in zip(frame.kept_positions, frame.token_ids, strict=True):
        assert len(ids) - 1 in kept  # the last token stands in for the missing answer


def test_rows_hold_what_the_contract_says(lm):
    frame = generation.generate_responses(lm, "demo-easy", examples("demo-easy", 8), SETTINGS)
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
    places = {"thinking_end": 2, "answer_start": 3, "answer_end": 5, "eos": True}
    logprobs = {"token_logprobs": np.log([0.5, 1, 1, 0.25, 1, 1]), "token_logprobs_sampling": np.zeros(6)}
    row = SimpleNamespace(token_ids=ids, **places, **logprobs)
    shown = generation.token_table(lm, row)
    assert shown.part.tolist() == ["thinking", "thinking", "", "answer", "answer", "end"]
    assert shown.probability.tolist() == [0.5, 1, 1, 0.25, 1, 1] and shown.id.tolist() == row.token_ids
    row.eos = False
    assert generation.token_table(lm, row).part.tolist()[-1] == ""


def test_sampling_follows_the_distribution():
    logits = torch.tensor([0.5, 0.2, 0.0, 0.3]).log()
    u = torch.rand(40_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = sampling.sample_inverse_cdf(logits.expand(40_000, 4), u)
    share = torch.bincount(drawn, minlength=4) / 40_000
    assert share[2] == 0 and (share - torch.tensor([0.5, 0.2, 0.0, 0.3])).abs().max() < 0.01
    for last in (0.0, 1 - 1e-16):  # a token without mass is never drawn
        ends = sampling.sample_inverse_cdf(torch.tensor([[0.0, 0.5, 0.5, 0.0]]).log(), torch.tensor([last]).double())
        assert int(ends[0]) in (1, 2)


def test_a_longer_stream_begins_with_the_shorter():
    assert (sampling.uniform_numbers([7, 8], 500)[:, :20] == sampling.uniform_numbers([7, 8], 20)).all()
    assert stream_seed(0, "a", "b") != stream_seed(0, "a|b", "c")


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 4000))
@settings(max_examples=60)
def test_batches_hold_everyone_once_within_the_budget(lengths, budget):
    groups = batching.batch_by_length(lengths, budget, growth=50)
    assert sorted(i for g in groups for i in g) == list(range(len(lengths)))
    assert all(len(g) == 1 or len(g) * (max(lengths[i] for i in g) + 50) <= budget for g in groups)


def test_no_second_beginning_of_sequence(lm):
    text = models.apply_chat_template(lm, prompts.question_messages("How many?", system=True))
    ids = models.encode(lm, text)
    assert ids.count(lm.tokenizer.bos_token_id) == (lm.tokenizer.bos_token_id is not None)
    assert lm.tokenizer.decode(ids, skip_special_tokens=False) == text
    if lm.tokenizer.bos_token:
        with pytest.raises(UserError, match="beginning-of-sequence token twice"):
            models.encode(lm, lm.tokenizer.bos_token + lm.tokenizer.bos_token + "x")


def test_the_shipped_generation_config_hides_no_processor(tmp_path, lm):
    """A repetition penalty in a checkpoint's own configuration must not bend the distribution."""
    lm.model.save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    GenerationConfig(repetition_penalty=3.0, eos_token_id=lm.eos, do_sample=True, top_k=2).save_pretrained(tmp_path)
    other = models.load_language_model("copy", lm.spec.model_copy(update={"source": str(tmp_path)}))
    prompt = prompt_ids(lm, 2)
    one, two = (sample(m, prompt, [1, 2]) for m in (other, lm))
    assert one == two


def test_a_response_that_ends_at_once_has_a_confidence(lm):
    """Its answer token is the end token, whose logits are kept, so that temperature can be fitted on it."""
    hasty = dataclasses.replace(lm, eos=list(range(len(lm.tokenizer))))
    frame = generation.generate_responses(hasty, "demo-easy", examples("demo-easy", 4), SETTINGS)
    assert (frame.token_ids.map(len) == 1).all() and (frame.eos == 1).all() and frame.answer.isna().all()
    frame["split"] = ["calibration", "evaluation"] * 2
    confidence = synthetic.single_pass(frame)
    assert confidence.confidence.between(0, 1).all() and not confidence.correct.any()
    ((old, new),) = fitting.calibration_data(frame, synthetic.responses(frame)).values()
    np.testing.assert_allclose(old.answers.confidence(1.0)[0], old.confidence, atol=1e-5)


# ---- the context


def test_responses_end_where_the_context_does(lm, monkeypatch):
    """Each row where prompt, response and query fill it: cut, a row is the beginning of what it is uncut."""
    asked, query = examples("demo-hard", 8), len(p_true.query_ids(lm))
    whole = generation.generate_responses(lm, "demo-hard", asked, SETTINGS)
    context = int(whole.prompt_tokens.max()) + 25 + query
    monkeypatch.setattr(lm.model.config, "max_position_embeddings", context)
    frame = generation.generate_responses(lm, "demo-hard", asked, SETTINGS)
    left = context - query - frame.prompt_tokens
    assert left.min() == 25 and left.nunique() > 1, "prompts of several lengths"
    for row, uncut, room in zip(frame.itertuples(), whole.itertuples(), left, strict=True):
        assert list(row.token_ids) == list(uncut.token_ids[:room])
        np.testing.assert_allclose(row.token_logprobs, uncut.token_logprobs[:room], atol=1e-5)
        assert row.finish_reason == ("stop" if len(uncut.token_ids) <= room and uncut.eos else "length")
    cut = (whole.token_ids.map(len) > left).sum()
    counted = [generation.count_cut_by_context(each, SETTINGS) for each in (frame, whole)]
    assert cut > 0 and counted == [cut, 0]
    trajectory = [len(p_true.trajectory_ids(lm, row)) + query for row in frame.itertuples()]
    assert max(trajectory) == context


def test_a_prompt_that_fills_the_context_is_refused(lm, monkeypatch):
    monkeypatch.setattr(lm.model.config, "max_position_embeddings", 40)
    with pytest.raises(UserError, match=f"model '{lm.name}': the prompt of example .* leaves no room .* of 40"):
        generation.generate_responses(lm, "demo-hard", examples("demo-hard", 1), SETTINGS)


def test_a_model_without_a_context_is_not_cut(lm):
    """As of distances instead of positions; GPT-2's, which are learned, have a name of their own."""
    free = dataclasses.replace(lm, model=SimpleNamespace(config=BloomConfig()))
    assert free.context is None
    assert generation.count_new_tokens(free, *examples("demo-hard", 1), [5] * 9, SETTINGS) == SETTINGS.max_new_tokens
    assert architectures.random("gpt2", n_positions=77).context == 77


def test_beginnings_that_a_model_cannot_take_are_left_out(lm, monkeypatch):
    """The ablation asks a model in the ways that it can be asked: by its context, and by its template."""
    ways, asked = ["one", "few", "none"], examples("demo-hard", 3)
    assert generation.supported_demonstrations(lm, asked, SETTINGS, ways) == ways
    longest = max(len(models.encode(lm, generation.solving_prompt(lm, e.question, "one"))) for e in asked)
    query = len(p_true.query_ids(lm))
    for left, held in ((1, ["one", "none"]), (0, ["none"])):
        monkeypatch.setattr(lm.model.config, "max_position_embeddings", longest + query + left)
        assert generation.supported_demonstrations(lm, asked, SETTINGS, ways) == held
    monkeypatch.undo()
    once = "{% for m in messages if m.role == 'assistant' %}{{ raise_exception('one turn') }}{% endfor %}"
    monkeypatch.setattr(lm.tokenizer, "chat_template", once + lm.tokenizer.chat_template)
    assert generation.supported_demonstrations(lm, asked, SETTINGS, ways) == ["one", "none"]
