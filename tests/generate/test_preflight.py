"""Kinds of models tried on random networks: those with a state besides keys and values, and those without dropout."""

import dataclasses

import pytest
import torch
from architectures import CONFIGS, REFUSED, STATEFUL, random

from lib.generate import checkpoints, preflight, sampling


def lines(name):
    lm = random(name)
    return list(preflight.check_kind(lm))


@pytest.mark.parametrize("name", [*CONFIGS, *STATEFUL])
def test_what_can_be_read_from_a_cache_is_ready(name):
    ((level, text),) = lines(name)
    assert level == "ok" and text.startswith("dropout sites: ")


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_is_refused_in_one_line_that_says_why(name):
    (level, text), *_ = lines(name)
    assert level == "wrong" and "\n" not in text
    assert text.startswith(
        f"a {type(random(name).model).__name__} can't be read from a cache of keys and values, as a run"
    )


def test_one_without_dropout_runs_with_empty_cells():
    assert lines("falcon") == [("note", "dropout takes no effect anywhere in a FalconForCausalLM: c_BALD stays empty")]


def test_a_large_network_is_tried_with_every_type_of_layer():
    lm = random("qwen3_next")
    large = type(lm.model.config)(**lm.model.config.to_dict() | {
        "num_hidden_layers": 48, "num_experts": 512, "vocab_size": 150_000, "intermediate_size": 5000,
        "layer_types": None})  # fmt: skip
    few = preflight.random_twin(dataclasses.replace(lm, model=checkpoints.outline_network(large))).model.config
    assert few.layer_types == [*["linear_attention"] * 3, "full_attention"] and few.num_hidden_layers == 4
    assert (few.num_experts, few.vocab_size, few.intermediate_size, large.num_experts) == (4, 512, 64, 512)


@pytest.mark.parametrize("name", STATEFUL)
def test_rows_of_a_state_are_selected_and_the_others_stay(name):
    """Rows that go on from one cache, in any order, give what each gives alone; the cache itself is not written."""
    lm, new = random(name), torch.tensor([[7], [8], [9]])
    with torch.inference_mode():
        cache = sampling.encode_prefix(lm, [3, 4, 5, 6])
        for rows in ([0, 1, 2], [2, 0]):
            found = lm.model(new[rows], past_key_values=sampling.repeat_row(cache, len(rows))).logits[:, 0]
            for row, logits in zip(rows, found, strict=True):
                plain = lm.model(torch.tensor([[3, 4, 5, 6, 7 + row]]), use_cache=False).logits[0, -1]
                torch.testing.assert_close(logits, plain, atol=1e-4, rtol=1e-4)
