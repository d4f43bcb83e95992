"""Half precision: the last layer of a loaded network gives float32 logits."""

import numpy as np
import pytest
import torch
from architectures import load, random, respond

from lib.models import float32_logits


@pytest.mark.parametrize("name", ["tiny-llama", pytest.param("tiny-qwen", marks=pytest.mark.slow)])
def test_every_token_is_read_from_float32_logits(name):
    """Log-probabilities and what is kept, to the last digits; though drawing rounds on a
    processor."""
    half = load(name, dtype="bfloat16")
    frame, layer = (
        respond(half, 4, max_new_tokens=80, top_logits=64),
        half.model.get_output_embeddings(),
    )
    assert half.facts["logits"] == "float32" and layer.weight.dtype == torch.bfloat16
    chosen = np.concatenate(frame.chosen_logit)
    assert not np.array_equal(chosen, torch.tensor(chosen).bfloat16().float().numpy())
    for row in frame.itertuples():
        # the rest has next to nothing
        at_one = np.logaddexp.reduce(np.stack(row.top_logits), axis=1)
        np.testing.assert_allclose(
            row.chosen_logit - at_one, row.token_logprobs[row.kept_positions], atol=2e-3
        )
    assert not float32_logits.rounding


@pytest.mark.parametrize("name", ["gemma2", "phi"])
@torch.inference_mode()
def test_the_product_is_that_of_float32(name, monkeypatch):
    """In parts of the weights; before the model caps its logits, or with the layer's bias."""
    monkeypatch.setattr(float32_logits, "WEIGHT_ROWS", 100)
    network = random(name, final_logit_softcapping=2.0).model
    ids = torch.tensor([list(range(5, 30))])
    assert not float32_logits.give_float32_logits(network), "float32 is left alone"
    layer = network.bfloat16().get_output_embeddings()
    bias = 0 if layer.bias is None else layer.bias.normal_().double()
    assert float32_logits.give_float32_logits(network)
    logits = network(ids).logits
    hidden = network.model(ids).last_hidden_state
    expected = hidden.double() @ layer.weight.double().T + bias
    expected = 2 * (expected / 2).tanh() if name == "gemma2" else expected
    torch.testing.assert_close(logits, expected.float(), atol=1e-5, rtol=1e-5)
