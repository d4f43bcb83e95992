"""Sampling and what is kept of it, against transformers' own numbers and the shipped signals (plain
forward passes of many architectures: tests/field/test_architectures.py)."""

import dataclasses
import types

import numpy as np
import pandas as pd
import pytest
import torch
from architectures import SETTINGS, assert_alike, examples, load, requests, respond, warp

from lib import params, store
from lib.errors import UserError
from lib.generate import generation, mc_dropout, p_true, sampling, stored_responses, teacher_forcing
from lib.models import loading
from lib.params import Dropout, Generation
from lib.paths import SHIPPED

OFF = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "min_p": 0.0}
WARPED = [
    {"temperature": 0.6, "top_p": 0.9},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    {"min_p": 0.05},
    {"temperature": 1.5, "top_p": 0.95, "min_p": 0.02},
    {"top_p": 0.999},
    {"top_k": 5},
    {},
]


@pytest.mark.parametrize("size", [300, 20_000])
@pytest.mark.parametrize("settings", WARPED)
def test_warped_logits_are_those_of_transformers_warpers(settings, size):
    """Where the most probable tokens alone are sorted, where these hold too little, and where a
    step has ties."""
    logits = torch.randn(6, size, generator=torch.Generator().manual_seed(0))
    logits[0] *= 8
    logits[1] *= 3
    logits[2] = (logits[2] * 4).bfloat16().float()
    expected = warp(logits, settings)
    spec = params.load_model_config("tiny-llama").model_copy(update=OFF | settings)
    warped = sampling.warp_logits(logits, spec)
    # at the nucleus' edge, by float32's last digits; of 20,000 tokens, many are about as probable
    # as its last
    at_most = 20 if settings.get("top_p") == 0.999 else 0
    assert (torch.isinf(warped) != torch.isinf(expected)).sum() <= at_most
    torch.testing.assert_close(warped.softmax(-1), expected.softmax(-1), atol=1e-4, rtol=0)


def test_sampling_follows_the_distribution():
    """And a token without mass is never drawn, not by the least or the largest number."""
    p = torch.tensor([0.0, 0.5, 0.2, 0.0, 0.3, 0.0])
    u = torch.rand(40_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sampled = sampling.sample_inverse_cdf(p.log().expand(40_000, 6), u)
    share = torch.bincount(sampled, minlength=6) / 40_000
    assert not share[p == 0].any()
    assert (share - p).abs().max() < 0.01
    ends = torch.tensor([0.0, 1 - 1e-16], dtype=torch.float64)
    assert sampling.sample_inverse_cdf(p.log().expand(2, 6), ends).tolist() == [1, 4]


@pytest.mark.parametrize("ask", [
    lambda lm, frame: sampling.sample_batch(lm, requests(lm, 3)),
    lambda lm, frame: teacher_forcing.score_responses(lm, requests(lm, 3), [[5, 6]] * 3, SETTINGS),
    lambda lm, frame: p_true.verify_responses(lm, frame),
    lambda lm, frame: next(mc_dropout.pass_logits(lm, frame.iloc[0], 0.1, Dropout())),
], ids=["sampling", "scoring", "verification", "passes"])  # fmt: skip
@pytest.mark.parametrize("end", ["nan", "inf"])
def test_logits_that_are_not_finite_are_refused_with_the_row(llama, ask, end):
    """Never a token V, never a NaN: of a batch its first row, which is padded."""
    frame = respond(llama, 3, "demo-hard", max_new_tokens=20)

    def spoil(layer, inputs, logits):
        logits[0, -1, 5] = float(end)

    refused = pytest.raises(
        UserError, match=r"float32, .*: the logits of row .* are not finite \([13] of"
    )
    with llama.model.get_output_embeddings().register_forward_hook(spoil), refused:
        ask(llama, frame)


def test_responses_end_where_the_context_does(lm, monkeypatch):
    """Each row where prompt, response and query fill it: cut, a row is the beginning of what it is
    uncut. Without room for a single token it is refused."""
    whole, query = respond(lm, 8, "demo-hard"), len(p_true.query_ids(lm))
    context = int(whole.prompt_tokens.max()) + 25 + query
    monkeypatch.setattr(lm.model.config, "max_position_embeddings", context)
    left = context - query - whole.prompt_tokens
    assert left.min() == 25 and left.nunique() > 1, "prompts of several lengths"
    frame, cut = respond(lm, 8, "demo-hard"), whole.token_ids.map(len) > left
    for row, uncut, room in zip(frame.itertuples(), whole.itertuples(), left, strict=True):
        assert list(row.token_ids) == list(uncut.token_ids[:room])
    assert frame.finish_reason.equals(whole.finish_reason.mask(cut, "length"))
    assert generation.count_cut_by_context(lm, frame) == cut.sum() > 0
    monkeypatch.setattr(lm.model.config, "max_position_embeddings", 40)
    with pytest.raises(
        UserError, match=f"model '{lm.name}': the prompt of example .* leaves no room .* of 40"
    ):
        respond(lm, 1, "demo-hard")


# ---- the pass over a response


SLOW_LEVELS = [pytest.param(level, marks=pytest.mark.slow) for level in ("easy", "hard")]


@pytest.mark.parametrize("level", ["medium", *SLOW_LEVELS])
def test_seeded_draws_are_the_shipped_ones(lm, level):
    """Every token; log-probabilities, kept logits, verdicts and dropout passes within float32's
    rounding."""
    dataset = f"demo-{level}"
    name = f"{lm.name}__{dataset}.parquet"
    generations, in_situ, verification, dropout = (
        store.read_frame(SHIPPED / kind / name)
        for kind in ("generations", "in_situ", "verification", "dropout")
    )
    settings = Generation.of(store.read_manifest(SHIPPED / "generations" / name)["parameters"])
    by_id = {example.example_id: example for example in examples(dataset)}
    questions = [by_id[name] for name in generations.example_id[:60]]
    frame = generation.generate_responses(lm, dataset, questions, settings)
    assert_alike(frame, generations[:60].merge(in_situ, on=store.KEYS))
    assert frame.in_situ_seconds.between(0, 60, inclusive="neither").all()
    assert_alike(p_true.verify_responses(lm, frame[:9]), verification[:9])
    passes = dropout[dropout.example_id.isin(frame.example_id)][:4].drop(
        columns=["tuning", "selected"]
    )
    dropout_settings = Dropout.of(store.read_manifest(SHIPPED / "dropout" / name)["parameters"])
    work = list(zip(passes.example_id, passes.rate, strict=True))
    entropies = mc_dropout.mc_dropout_entropies(lm, frame, work, dropout_settings)
    assert_alike(entropies, passes.reset_index(drop=True))


@pytest.mark.parametrize("most", [1, 5000])
def test_a_long_response_is_read_in_parts_to_the_same_numbers(lm, monkeypatch, most):
    at_once = respond(lm, 4, "demo-hard")
    sizes = []
    monkeypatch.setattr(teacher_forcing, "LOGITS_AT_ONCE", most)
    four_requests = requests(lm, 4)
    responses = [ids.tolist() for ids in at_once.token_ids]
    with lm.model.register_forward_hook(
        lambda model, inputs, read: sizes.append(read.logits.numel())
    ):
        scores = teacher_forcing.score_responses(lm, four_requests, responses, SETTINGS)
    scored = pd.DataFrame(scores)
    assert_alike(scored, at_once[[column for column in scored if column in at_once]])
    assert max(sizes) <= max(most, lm.vocab_size), "one position, or what is allowed"


def test_thinking_is_shown_and_holds_no_answer(llama):
    """Closed and not; each part's tokens counted by themselves."""
    lm = dataclasses.replace(llama, spec=llama.spec.model_copy(update={"thinking": True}))
    texts = "<think>\n#### 5\n</think>", "\n\n#### ", "42", " eggs"
    thought, mark, answer, after = (loading.encode(lm, text) for text in texts)
    ids = [*thought, *mark, *answer, *after, lm.eos[0]]
    engine = types.SimpleNamespace(sample=lambda requests: [ids, thought[:-1]])
    frame = generation.generate_responses(
        lm, "demo-hard", examples("demo-hard", 2), SETTINGS, engine
    )
    closed, unclosed = (stored_responses.token_table(lm, row) for row in frame.itertuples())
    parts = {"thinking": thought, "": mark, "answer": answer, " ": after, "end": lm.eos[:1]}
    names = []
    for part, tokens in parts.items():
        names += [part.strip()] * len(tokens)
    assert closed.part.tolist() == names
    assert set(unclosed.part) == {"thinking"}
    assert frame.answer.fillna("none").tolist() == ["42", "none"]
    assert frame.thinking_end.tolist() == [len(thought), len(thought)], (
        "never closed: one more than there are"
    )
    np.testing.assert_allclose(
        closed["when sampling"], np.exp(frame.token_logprobs_sampling[0]), atol=1e-6
    )


def test_a_token_that_another_engine_drew_beyond_the_nucleus_has_a_log_probability():
    """One that is drawn from rounded logits may be truncated here; it is no impossible one."""
    spec = params.load_model_config("tiny-llama").model_copy(
        update={"temperature": 0.5, "top_k": 2, "top_p": 1.0}
    )
    logits = torch.tensor([2.0, 1.0, 0.0])
    logprobs = teacher_forcing.gather_sampling_logprobs(
        logits.expand(2, 3), torch.tensor([1, 2]), spec
    )
    in_nucleus = (2 * logits[:2]).log_softmax(-1)[1]
    beyond = (2 * logits).log_softmax(-1)[2]
    torch.testing.assert_close(logprobs, torch.stack([in_nucleus, beyond]))


@pytest.mark.parametrize("dtype, at_once", [("float32", 3), ("bfloat16", 1)])
def test_in_half_precision_each_response_is_scored_alone(dtype, at_once):
    """A batch would change more than the last digits of its numbers."""
    lm = load("tiny-llama", dtype=dtype)
    rows_of_passes = []

    def count_rows(module, words, named):
        ids = words[0] if words else named["input_ids"]
        rows_of_passes.append(len(ids))

    lm.model.register_forward_pre_hook(count_rows, with_kwargs=True)
    response = [5, 6, lm.eos[0]]
    teacher_forcing.score_responses(lm, requests(lm, 1) * 3, [response] * 3, SETTINGS)
    assert max(rows_of_passes) == at_once
