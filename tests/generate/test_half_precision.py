"""The last layer of a model in half precision gives float32 logits; one in float32 is left alone."""

import numpy as np
import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from architectures import load, plain_logits, random, respond
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM

from lib import params
from lib.generate import float32_logits, models
from lib.generate.float32_logits import give_float32_logits


@pytest.fixture(scope="module", params=["tiny-llama", pytest.param("tiny-qwen", marks=pytest.mark.slow)])
def half(request):
    return load(request.param, dtype="bfloat16")


def test_half_precision_says_so_and_float32_is_left_alone(half):
    layer = half.model.get_output_embeddings()
    assert layer._forward_hooks and half.facts["logits"] == "float32" and type(layer) is torch.nn.Linear
    assert layer.weight.dtype == torch.bfloat16  # tied or not, the weights are what they were
    whole = load("tiny-llama")
    assert "logits" not in whole.facts and not give_float32_logits(whole.model)


def test_a_hook_of_accelerate_does_not_keep_it_from_float32():
    """As on a model spread over GPUs, whose modules are hooked while they are loaded."""
    source = models.local_folder(params.load_model_config("tiny-llama"))
    network = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    add_hook_to_module(network.lm_head, AlignDevicesHook("cpu", io_same_device=True))
    assert give_float32_logits(network) and network(torch.tensor([[5, 6]])).logits.dtype == torch.float32


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
@pytest.mark.parametrize("bias", [False, True])
def test_the_product_is_that_of_float32(shape, bias, monkeypatch):
    monkeypatch.setattr(float32_logits, "WEIGHT_ROWS", 4)
    torch.manual_seed(0)
    hidden, weight = torch.randn(shape).bfloat16(), torch.randn(10, 7).bfloat16()
    added = torch.randn(10).bfloat16() if bias else None
    expected = hidden.double() @ weight.double().T + (added.double() if bias else 0)
    found = float32_logits.float32_product(hidden, weight, added)
    assert found.dtype == torch.float32 and found.shape == (*shape[:-1], 10)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-6)


def test_on_a_gpu_the_matrix_units_sums_are_not_rounded():
    """Tensors that know shape and type alone: bfloat16 goes in, float32 comes out, nothing is made float32 before."""
    with FakeTensorMode():
        hidden, weight = (torch.empty(*shape, 64, dtype=torch.bfloat16, device="cuda") for shape in ((2, 3), (9,)))
        grown = []
        with pytest.MonkeyPatch.context() as watched:
            watched.setattr(torch.Tensor, "float", lambda tensor: grown.append(tensor))
            found = float32_logits.float32_product(hidden, weight)
        assert found.shape == (2, 3, 9) and found.dtype == torch.float32 and found.is_cuda and not grown


def test_every_token_is_read_from_float32_logits(half):
    """Log-probabilities and what is kept, of one plain pass over the row; though drawing rounds on a processor."""
    frame = respond(half, 4, max_new_tokens=80, top_logits=64)
    chosen = np.concatenate(frame.chosen_logit)
    assert not np.array_equal(chosen, torch.tensor(chosen).bfloat16().float().numpy())
    for row in frame.itertuples():
        prompt, response = models.encode(half, row.prompt), row.token_ids.tolist()
        read = plain_logits(half, prompt + response)[len(prompt) - 1 : -1]
        kept, places = row.kept_positions, range(len(response))
        logprobs = read.log_softmax(-1)[places, response]
        np.testing.assert_allclose(row.token_logprobs, logprobs, atol=0.1)  # other sums in the layers before
        np.testing.assert_allclose(row.chosen_logit, read[places, response][kept], atol=0.5)
        at_one = np.logaddexp.reduce(np.stack(row.top_logits), axis=1)  # the rest has next to nothing
        np.testing.assert_allclose(row.chosen_logit - at_one, row.token_logprobs[kept], atol=2e-3)
    assert not float32_logits.rounding


def test_a_model_that_scales_its_logits_afterwards():
    network, ids = random("gemma2", final_logit_softcapping=2.0).model.bfloat16(), torch.tensor([list(range(5, 30))])
    rounded = network(ids).logits.float()
    assert give_float32_logits(network) and rounded.abs().max() > 1.5, "near the cap"
    exact = network(ids).logits
    assert exact.dtype == torch.float32 and not torch.equal(exact, exact.bfloat16().float())
    torch.testing.assert_close(exact, rounded, atol=0.05, rtol=0)
