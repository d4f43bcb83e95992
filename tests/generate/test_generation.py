"""Sampling and what is kept of it, against transformers' own numbers (float32, CPU; plain forward passes of many
architectures: tests/field/test_architectures.py)."""

import dataclasses

import numpy as np
import pytest
import torch
import transformers
from architectures import SETTINGS, requests, respond
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig, LogitsProcessorList

from lib import params
from lib.generate import batching, generation, mc_dropout, p_true, sampling, teacher_forcing
from lib.paths import UserError

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
    asked, frame = requests(lm, 6), respond(lm, 6, "demo-hard")
    padded = lm.tokenizer.pad({"input_ids": [one.prompt_ids for one in asked]}, return_tensors="pt")
    begun, uniforms = padded.input_ids.shape[1], sampling.uniform_numbers([one.seed for one in asked], 120)

    def draw(ids, scores):  # greedy decoding then has no other choice
        drawn = sampling.sample_inverse_cdf(warp(scores, warped), uniforms[:, ids.shape[1] - begun])
        return torch.full_like(scores, -torch.inf).scatter(-1, drawn[:, None], 0.0)

    ends = {"eos_token_id": lm.eos, "pad_token_id": lm.tokenizer.pad_token_id, "max_new_tokens": 120}
    config = GenerationConfig(do_sample=False, output_logits=True, return_dict_in_generate=True, **ends)
    out = lm.model.generate(**padded, logits_processor=LogitsProcessorList([draw]), generation_config=config)
    assert frame.token_ids.map(len).nunique() > 1, "the batch must have rows that finish early"
    for found, ids in zip(frame.token_ids, out.sequences[:, begun:], strict=True):
        assert found.tolist() == sampling.truncate_at_eos(ids.tolist(), lm.eos)
    # in double: in float32 the oracle's own log-softmax, taken along a strided dimension, is off by up to 1.5e-5
    raw = tuple(step.double() for step in out.logits)
    drawn = tuple(warp(step, warped) for step in raw)
    for column, logits in (("token_logprobs", raw), ("token_logprobs_sampling", drawn)):
        oracle = lm.model.compute_transition_scores(out.sequences, logits, normalize_logits=True)
        for found, expected in zip(frame[column], oracle, strict=True):
            np.testing.assert_allclose(found, expected[: len(found)], atol=5e-5)


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
    """And a token without mass is never drawn."""
    p = torch.tensor([0.5, 0.2, 0.0, 0.3])
    u = torch.rand(40_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    share = torch.bincount(sampling.sample_inverse_cdf(p.log().expand(40_000, 4), u), minlength=4) / 40_000
    assert share[2] == 0 and (share - p).abs().max() < 0.01
    ends = torch.tensor([[0.0, 0.5, 0.5, 0.0]]).log().expand(2, 4)
    assert sampling.sample_inverse_cdf(ends, torch.tensor([0.0, 1 - 1e-16]).double()).tolist() == [1, 2]


SITES = {
    "sampling": lambda lm, frame: sampling.TransformersEngine(lm, 32768).sample(requests(lm, 3)),
    "scoring": lambda lm, frame: teacher_forcing.score_responses(lm, requests(lm, 3), [[5, 6]] * 3, SETTINGS),
    "verification": p_true.verify_responses,
    "passes": lambda lm, frame: mc_dropout.mc_dropout_entropies(
        lm, frame, [(frame.example_id[0], 0.1)], params.Dropout(dropout_passes=2)
    ),
}


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("end", ["nan", "inf"])
def test_logits_that_are_not_finite_are_refused_with_the_row(llama, site, end):
    """Never a token V, never a NaN: of a batch its first row, which is padded."""
    frame = respond(llama, 3, "demo-hard", max_new_tokens=20)

    def spoil(layer, inputs, logits):
        logits[0, -1, 5] = float(end)

    refused = pytest.raises(UserError, match=r"float32, .*: the logits of row .* are not finite \([13] of")
    with llama.model.get_output_embeddings().register_forward_hook(spoil), refused:
        SITES[site](llama, frame)


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 4000), st.booleans())
@settings(max_examples=60)
def test_batches_hold_everyone_once_within_the_budget(lengths, budget, equal):
    groups = batching.batch_by_length(lengths, budget, equal=equal)
    assert sorted(i for g in groups for i in g) == list(range(len(lengths)))
    assert all(len(g) == 1 or len(g) * max(lengths[i] for i in g) <= budget for g in groups)
    assert not equal or all(len({lengths[i] for i in g}) == 1 for g in groups)


def test_responses_end_where_the_context_does(lm, monkeypatch):
    """Each row where prompt, response and query fill it: cut, a row is the beginning of what it is uncut. Without room
    for a single token it is refused."""
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
    monkeypatch.setattr(lm.model.config, "max_position_embeddings", 40)
    with pytest.raises(UserError, match=f"model '{lm.name}': the prompt of example .* leaves no room .* of 40"):
        respond(lm, 1, "demo-hard")
