"""Sampling and what is kept of it, against transformers' own numbers and plain forward passes (float32, CPU)."""

import dataclasses

import architectures
import numpy as np
import pytest
import torch
import transformers
from architectures import SETTINGS, examples, respond
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig, LogitsProcessorList

from lib import params
from lib.generate import batching, generation, models, p_true, sampling
from lib.paths import UserError


def build(lm, asked, **changed):
    return generation.build_requests(lm, "demo-hard", asked, SETTINGS.model_copy(update=changed))


OFF = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "min_p": 0.0}
WARPERS = {"temperature": transformers.TemperatureLogitsWarper, "top_k": transformers.TopKLogitsWarper,
           "top_p": transformers.TopPLogitsWarper, "min_p": transformers.MinPLogitsWarper}  # fmt: skip
WARPED = [{"temperature": 0.6, "top_p": 0.9}, {"temperature": 0.7, "top_k": 20, "top_p": 0.8}, {"min_p": 0.05},
          {"temperature": 1.5, "top_p": 0.95, "min_p": 0.02}, {"top_p": 0.999}, {"top_k": 5}, {}]  # fmt: skip


def warp(logits, settings):
    for name, value in settings.items():
        logits = WARPERS[name](value)(None, logits)
    return logits


def test_logprobs_are_those_of_transformers(lm):
    """Log-probabilities equal compute_transition_scores on the raw logits of `generate`, which draws through
    temperature and top-k/p, and on the warped ones; rows that finish early included."""
    warped = {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.05}
    lm = dataclasses.replace(lm, spec=lm.spec.model_copy(update=warped))
    requests = build(lm, examples("demo-hard", 6))
    padded = lm.tokenizer.pad({"input_ids": [one.prompt_ids for one in requests]}, return_tensors="pt")
    uniforms = sampling.uniform_numbers([one.seed for one in requests], 120)

    def draw(ids, scores):  # greedy decoding then has no other choice
        drawn = sampling.sample_inverse_cdf(warp(scores, warped), uniforms[:, ids.shape[1] - padded.input_ids.shape[1]])
        return torch.full_like(scores, -torch.inf).scatter(-1, drawn[:, None], 0.0)

    ends = {"eos_token_id": lm.eos, "pad_token_id": lm.tokenizer.pad_token_id, "max_new_tokens": 120}
    config = GenerationConfig(do_sample=False, output_logits=True, return_dict_in_generate=True, **ends)
    out = lm.model.generate(**padded, logits_processor=LogitsProcessorList([draw]), generation_config=config)
    frame = respond(lm, 6, "demo-hard")
    assert frame.token_ids.map(len).nunique() > 1, "the batch must have rows that finish early"
    responses = out.sequences[:, padded.input_ids.shape[1] :]
    for row, ids in zip(frame.itertuples(), responses, strict=True):
        assert list(row.token_ids) == sampling.truncate_at_eos(ids.tolist(), lm.eos)
    # in double: in float32 the oracle's own log-softmax, taken along a strided dimension, is off by up to 1.5e-5
    raw = tuple(step.double() for step in out.logits)
    drawn = tuple(warp(step, warped) for step in raw)
    for column, logits in (("token_logprobs", raw), ("token_logprobs_sampling", drawn)):
        oracle = lm.model.compute_transition_scores(out.sequences, logits, normalize_logits=True)
        for found, expected in zip(frame[column], oracle, strict=True):
            np.testing.assert_allclose(found, expected[: len(found)], atol=5e-5)


@pytest.mark.parametrize("name", ["tiny-llama", "qwen3", "gpt2", "gemma2", "mistral", *architectures.STATEFUL])
def test_tokens_are_those_of_a_row_by_itself(name):
    """Rows of a batch end at different times; those that go on keep their cache, their padding and their stream."""
    lm = architectures.load(name)
    requests = build(lm, examples("demo-hard", 9))
    together = sampling.sample_batch(lm, requests)
    assert len({len(response) for response in together}) > 4, "the rows must end at different times"
    assert together == [sampling.sample_batch(lm, [one])[0] for one in requests]


@pytest.mark.parametrize("end", ["nan", "inf"])
def test_a_padded_row_whose_logits_are_not_finite_is_said(end):
    """In a batch alone: the pass over the response, without padding, would not show it."""
    lm = architectures.load("tiny-llama")
    requests = build(lm, examples("demo-hard", 3))

    def spoil(model, inputs, output):
        if len(output.logits) > 1:
            output.logits[0, -1, 5] = float(end)

    lm.model.register_forward_hook(spoil)
    shortest = min(requests, key=lambda one: len(one.prompt_ids)).example.example_id
    with pytest.raises(UserError, match=f"float32, sdpa.*: the logits of row {shortest} are not finite .1 of 3 rows"):
        sampling.TransformersEngine(lm, 32768).sample(requests)


@pytest.mark.parametrize("size", [300, 20_000])
@pytest.mark.parametrize("settings", WARPED)
def test_warped_logits_are_those_of_transformers_warpers(settings, size):
    """Where the most probable tokens alone are sorted, where these hold too little, and where a step has ties."""
    logits = torch.randn(6, size, generator=torch.Generator().manual_seed(0))
    logits[0] *= 8
    logits[1] *= 3
    logits[2] = (logits[2] * 4).bfloat16().float()
    expected = warp(logits, settings)
    found = sampling.warp_logits(logits, params.load_model_config("tiny-llama").model_copy(update=OFF | settings))
    # at the nucleus' edge, by float32's last digits; of 20,000 tokens, many are about as probable as its last
    assert (torch.isinf(found) != torch.isinf(expected)).sum() <= (20 if settings.get("top_p") == 0.999 else 0)
    torch.testing.assert_close(found.softmax(-1), expected.softmax(-1), atol=1e-4, rtol=0)


def test_sampling_follows_the_distribution():
    logits = torch.tensor([0.5, 0.2, 0.0, 0.3]).log()
    u = torch.rand(40_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = sampling.sample_inverse_cdf(logits.expand(40_000, 4), u)
    share = torch.bincount(drawn, minlength=4) / 40_000
    assert share[2] == 0 and (share - torch.tensor([0.5, 0.2, 0.0, 0.3])).abs().max() < 0.01
    for last in (0.0, 1 - 1e-16):  # a token without mass is never drawn
        ends = sampling.sample_inverse_cdf(torch.tensor([[0.0, 0.5, 0.5, 0.0]]).log(), torch.tensor([last]).double())
        assert int(ends[0]) in (1, 2)


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 4000))
@settings(max_examples=60)
def test_batches_hold_everyone_once_within_the_budget(lengths, budget):
    groups = batching.batch_by_length(lengths, budget)
    assert sorted(i for g in groups for i in g) == list(range(len(lengths)))
    assert all(len(g) == 1 or len(g) * max(lengths[i] for i in g) <= budget for g in groups)
    alike = batching.batch_by_length(lengths, budget, equal=True)
    assert sorted(i for g in alike for i in g) == list(range(len(lengths)))
    assert all(len({lengths[i] for i in g}) == 1 and len(g) <= max(1, budget // lengths[g[0]]) for g in alike)


def test_a_small_model_runs_in_one_thread_also_outside_a_run():
    torch.set_num_threads(2)
    models.load_language_model("tiny-llama", params.load_model_config("tiny-llama"))
    assert torch.get_num_threads() == 1


def test_the_shipped_generation_config_hides_no_processor(tmp_path, lm):
    """A repetition penalty in a checkpoint's own configuration must not bend the distribution."""
    lm.model.save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    GenerationConfig(repetition_penalty=3.0, eos_token_id=lm.eos, do_sample=True, top_k=2).save_pretrained(tmp_path)
    other = models.load_language_model("copy", lm.spec.model_copy(update={"source": str(tmp_path)}))
    requests = build(lm, examples("demo-hard", 2))
    assert sampling.sample_batch(other, requests) == sampling.sample_batch(lm, requests)


# ---- the context


def test_responses_end_where_the_context_does(lm, monkeypatch):
    """Each row where prompt, response and query fill it: cut, a row is the beginning of what it is uncut."""
    whole, query = respond(lm, 8, "demo-hard"), len(p_true.query_ids(lm))
    context = int(whole.prompt_tokens.max()) + 25 + query
    monkeypatch.setattr(lm.model.config, "max_position_embeddings", context)
    frame = respond(lm, 8, "demo-hard")
    left = context - query - frame.prompt_tokens
    assert left.min() == 25 and left.nunique() > 1, "prompts of several lengths"
    for row, uncut, room in zip(frame.itertuples(), whole.itertuples(), left, strict=True):
        assert list(row.token_ids) == list(uncut.token_ids[:room])
        np.testing.assert_allclose(row.token_logprobs, uncut.token_logprobs[:room], atol=1e-5)
        assert row.finish_reason == ("stop" if len(uncut.token_ids) <= room and uncut.eos else "length")
    cut = (whole.token_ids.map(len) > left).sum()
    shorter = frame.assign(token_ids=frame.token_ids.map(lambda ids: ids[:-1]))  # as a server may have cut them
    assert cut > 0 and [generation.count_cut_by_context(lm, each) for each in (frame, shorter)] == [cut, 0]
    assert max(len(p_true.trajectory_ids(lm, row)) + query for row in frame.itertuples()) == context


def test_a_prompt_that_fills_the_context_is_refused(lm, monkeypatch):
    monkeypatch.setattr(lm.model.config, "max_position_embeddings", 40)
    with pytest.raises(UserError, match=f"model '{lm.name}': the prompt of example .* leaves no room .* of 40"):
        respond(lm, 1, "demo-hard")
