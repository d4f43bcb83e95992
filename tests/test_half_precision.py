"""The last layer of a model in half precision gives float32 logits; one in float32 is left alone."""

import dataclasses
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM, GraniteConfig, GraniteForCausalLM

from lib import params, store
from lib.generate import decoding, head, models, p_true, responses, token_logits
from lib.project import SHIPPED
from lib.tasks import datasets

SETTINGS = params.Generation(seed=3, demonstration="none", max_new_tokens=80, top_logits=64, curve_nodes=4)
ROWS = 60


def load(name, dtype="bfloat16"):
    torch.set_num_threads(1)
    return models.load(name, params.load_model(name).model_copy(update={"dtype": dtype}))


@pytest.fixture(scope="module", params=["tiny-llama", "tiny-qwen"])
def half(request):
    return load(request.param)


@contextmanager
def rounding(lm):
    """While it lasts, a model's last layer is as PyTorch has it."""
    layer = lm.model.get_output_embeddings()
    layer.__class__ = torch.nn.Linear
    try:
        yield
    finally:
        layer.__class__ = head.Head


def shipped(name):
    return store.read_frame(SHIPPED / "generations" / f"{name}__demo-medium.parquet").head(ROWS)


def bare_margins(lm):
    """Logits of a bare A less those of a bare B, on shipped responses."""
    found = p_true.verify(lm, shipped(lm.name), params.Verification())
    options = np.stack(found.standard_logits)
    return options[:, found.spellings[0].index("A")] - options[:, found.spellings[0].index("B")]


def test_float32_is_left_alone():
    lm = load("tiny-llama", "float32")
    layer = lm.model.get_output_embeddings()
    assert lm.head is None and type(layer) is torch.nn.Linear and "logits" not in lm.facts
    assert not head.exact(lm.model) and type(layer) is torch.nn.Linear


def test_half_precision_says_so(half):
    assert half.head is half.model.get_output_embeddings() and half.facts["logits"] == "float32"
    assert half.head.weight.dtype == torch.bfloat16  # tied or not, the weights are what they were


def test_a_hook_of_accelerate_does_not_keep_it_from_float32():
    """As on a model spread over GPUs, whose modules are hooked while they are loaded."""
    network = AutoModelForCausalLM.from_pretrained(models.folder(params.load_model("tiny-llama")), dtype=torch.bfloat16)
    add_hook_to_module(network.lm_head, AlignDevicesHook("cpu"))
    assert head.exact(network) and network(torch.tensor([[5, 6]])).logits.dtype == torch.float32
    assert network.lm_head.hidden.shape == (1, 2, network.config.hidden_size)


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
@pytest.mark.parametrize("bias", [False, True])
def test_the_product_is_that_of_float32(shape, bias, monkeypatch):
    monkeypatch.setattr(head, "CHUNK", 4)
    torch.manual_seed(0)
    hidden, weight = torch.randn(shape).bfloat16(), torch.randn(10, 7).bfloat16()
    added = torch.randn(10).bfloat16() if bias else None
    expected = hidden.double() @ weight.double().T + (added.double() if bias else 0)
    found = head.product(hidden, weight, added)
    assert found.dtype == torch.float32 and found.shape == (*shape[:-1], 10)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-6)


def test_on_a_gpu_the_matrix_units_sums_are_not_rounded():
    """Tensors that know shape and type alone: bfloat16 goes in, float32 comes out, nothing is made float32 before."""
    with FakeTensorMode():
        hidden, weight = (torch.empty(*shape, 64, dtype=torch.bfloat16, device="cuda") for shape in ((2, 3), (9,)))
        grown = []
        with pytest.MonkeyPatch.context() as watched:
            watched.setattr(torch.Tensor, "float", lambda tensor: grown.append(tensor))
            found = head.product(hidden, weight)
        assert found.shape == (2, 3, 9) and found.dtype == torch.float32 and found.is_cuda and not grown


def test_margins_differ_where_rounding_makes_ties(half):
    exact, reference = bare_margins(half), bare_margins(load(half.name, "float32"))
    with rounding(half):
        rounded = bare_margins(half)
    assert len(set(exact)) == ROWS > len(set(rounded)) + 10
    assert np.abs(exact - reference).mean() < 0.7 * np.abs(rounded - reference).mean()


def test_tokens_are_nearer_to_float32(half):
    plain, (row,) = load(half.name, "float32"), shipped(half.name).head(1).itertuples()
    response = list(row.token_ids)

    def logits(lm):
        return token_logits.logits_at(lm, models.encode(lm, row.prompt), response, range(len(response)))

    found = [logits(half), logits(plain)]
    with rounding(half):
        found.append(logits(half))
    exact, reference, rounded = (z.log_softmax(-1).gather(-1, torch.tensor(response)[:, None]) for z in found)
    assert (exact - reference).abs().mean() < 0.7 * (rounded - reference).abs().mean()
    assert not torch.equal(found[0], found[0].bfloat16().float()) and torch.equal(found[2], found[2].bfloat16().float())


def kept_and_read_again(lm):
    """What is kept of responses, and what a plain pass over them says of the same tokens."""
    frame = responses.respond(
        lm, "demo-medium", datasets.load_examples(params.load_dataset("demo-medium"))[:4], SETTINGS
    )
    again = []
    for row in frame.itertuples():
        logits = token_logits.logits_at(lm, models.encode(lm, row.prompt), list(row.token_ids), row.kept_positions)
        again.append(token_logits.of_tokens(logits, torch.tensor(row.token_ids[row.kept_positions]), SETTINGS))
    return frame, again


def test_what_is_kept_while_drawing_is_not_rounded(half):
    """Neither the logits of the answer's tokens nor their log-probabilities, though drawing rounds on a processor."""
    frame, again = kept_and_read_again(half)
    assert (frame.reencoded < frame.kept_positions.map(len)).all(), "some are of decoding"
    chosen = np.concatenate(frame.chosen_logit)
    assert not np.array_equal(chosen, torch.tensor(chosen).bfloat16().float().numpy())
    for row, exact in zip(frame.itertuples(), again, strict=True):
        kept = row.token_logprobs[row.kept_positions]
        np.testing.assert_allclose(row.chosen_logit, exact.chosen, atol=0.5)  # other sums in the layers before
        np.testing.assert_allclose(kept, exact.logprob, atol=0.1)
        np.testing.assert_allclose(np.stack(row.top_logits), exact.top, atol=0.5)
        at_one = np.logaddexp.reduce(np.stack(row.top_logits), axis=1)  # the rest has next to nothing
        np.testing.assert_allclose(row.chosen_logit - at_one, kept, atol=2e-3)
    assert half.head.rounds is False


def test_every_token_is_read_from_the_same_logits(half, monkeypatch):
    """Not the answer's alone: what is said of a response is what it would be, had drawing rounded nothing."""
    drawn, _ = kept_and_read_again(half)
    monkeypatch.setattr(head.Head, "rounding", lambda layer: nullcontext())
    exact, _ = kept_and_read_again(half)
    for one, other in zip(drawn.itertuples(), exact.itertuples(), strict=True):
        assert list(one.token_ids) == list(other.token_ids) and one.reencoded == 0
        np.testing.assert_allclose(one.token_logprobs, other.token_logprobs, atol=1e-5)


@pytest.mark.parametrize("kind, config, scaled", [
    (Gemma2ForCausalLM, Gemma2Config, {"final_logit_softcapping": 2.0}),
    (GraniteForCausalLM, GraniteConfig, {"logits_scaling": 4.0}),
])  # fmt: skip
def test_a_model_that_scales_its_logits_afterwards(half, kind, config, scaled):
    """What is said of a token, and kept of it, is scaled, too."""
    torch.manual_seed(1)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    network = kind(config(vocab_size=len(half.tokenizer), num_key_value_heads=2, **size, **scaled)).bfloat16().eval()
    for parameter in network.parameters():
        parameter.data.mul_(4 if parameter.dim() > 1 else 1)  # else no logit is near the cap
    assert head.exact(network)
    frame, again = kept_and_read_again(dataclasses.replace(half, model=network))
    for row, exact in zip(frame.itertuples(), again, strict=True):
        np.testing.assert_allclose(row.chosen_logit, exact.chosen, atol=0.02)
        np.testing.assert_allclose(row.token_logprobs[row.kept_positions], exact.logprob, atol=0.02)


def test_where_drawing_rounds_it_keeps_what_the_last_layer_was_given(half):
    ids = [models.encode(half, responses.prompt_text(half, e.question, "none"))
           for e in datasets.load_examples(params.load_dataset("demo-medium"))[:2]]  # fmt: skip
    batch = decoding.decode(half, ids, [1, 2], SETTINGS)
    for response, kept in zip(batch.responses, batch.kept, strict=True):
        assert list(kept) == list(range(len(response)))
        assert all(value.shape == (half.head.in_features,) and value.dtype == torch.bfloat16
                   for value in kept.values())  # fmt: skip


def test_without_it_the_same_tokens_are_drawn_on_a_processor(half):
    """Where drawing rounds as PyTorch does, no response changes; only what is said of it."""
    exact, _ = kept_and_read_again(half)
    with rounding(half):
        rounded, _ = kept_and_read_again(half)
    assert list(map(list, exact.token_ids)) == list(map(list, rounded.token_ids))
    assert not np.array_equal(np.concatenate(exact.chosen_logit), np.concatenate(rounded.chosen_logit))
