"""A model on several GPUs: how many it takes, where its layers lie, and that it says the same."""

import accelerator
import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from test_accelerator import SETTINGS, examples, load, name, near, same  # noqa: F401  (fixtures)

from lib import params
from lib.generate import head, mc_dropout, models, p_true, placement, responses


@pytest.mark.parametrize("weights, memory, count", [
    (16e9, [80e9], 1), (72e9, [80e9], 1), (73e9, [80e9], 0), (16e9, [80e9] * 4, 1), (73e9, [80e9] * 4, 2),
    (140e9, [80e9] * 4, 3), (200e9, [80e9] * 4, 0), (1e9, [], 0),
])  # fmt: skip
def test_a_model_takes_the_fewest_that_hold_it(weights, memory, count):
    assert placement.cards(weights, memory) == count


def test_numbers_that_a_token_takes_in_the_cache(name):  # noqa: F811
    """Against the cache that a pass over three tokens leaves."""
    network = load(name).model
    layers = network(torch.tensor([[5, 6, 7]]), use_cache=True).past_key_values.layers
    assert sum(layer.keys.numel() + layer.values.numel() for layer in layers) == 3 * placement.cache_numbers(network)


def test_layers_are_spread_in_order_and_the_rest_stays_on_the_first(name):  # noqa: F811
    network = load(name).model
    depth = network.config.num_hidden_layers
    placed = placement.spread(network, 2)
    layers = [placed[f"model.layers.{i}"] for i in range(depth)]
    assert layers == sorted(layers) and set(layers) == {0, 1}
    assert {key for key in placed if ".layers." not in key} == {
        "model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"}  # fmt: skip
    missed = [key for key, _ in network.named_parameters() if not any(key.startswith(f"{each}.") for each in placed)]
    assert missed == []


def test_small_and_large_models_on_several_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    source = str(models.folder(params.load_model("tiny-llama")))
    for count, free, spread in ((1, 1e3, False), (2, 1e9, False), (2, 4e6, True)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda i, free=free: (free, free))
        found = placement.device_map(source, None, torch.float32)["device_map"]
        assert (found != "cuda") == spread, (count, free)


def part(lm):
    """Half of the layers on the CPU, all else on the pretended device, as accelerate has them talk."""
    accelerator.move(lm.model)
    for key, device in placement.spread(lm.model, 2).items():
        module, place = lm.model.get_submodule(key), "cpu" if device else accelerator.DEVICE
        if device:
            back(module)
        if ".layers." in key or key in ("model.norm", "lm_head"):
            add_hook_to_module(module, AlignDevicesHook(place, skip_keys="past_key_values"))


def back(module):
    for each in module.modules():
        for key, parameter in list(each._parameters.items()):
            if parameter is not None:
                each._parameters[key] = torch.nn.Parameter(parameter.held, requires_grad=False)


def test_logits_of_a_spread_model_are_not_rounded(name, monkeypatch):  # noqa: F811
    """Accelerate has hooked the last layer by the time it is asked for float32 logits."""
    expected = responses.respond(load(name, dtype="bfloat16"), "demo-medium", examples(2), SETTINGS, alive=p_true.live)
    lm = load(name, dtype="bfloat16")
    lm.head.__class__ = torch.nn.Linear  # as it is loaded
    with accelerator.pretended(monkeypatch):
        part(lm)
        assert head.exact(lm.model) and lm.head is not None
        found = responses.respond(lm, "demo-medium", examples(2), SETTINGS, alive=p_true.live)
    same(found, expected)


def passes(lm, frame, settings):
    work = [(i, rate) for i in range(len(frame)) for rate in (0.0, 0.2)]
    return mc_dropout.mc_dropout_entropies(lm, frame, work, settings)


def test_a_spread_model_says_the_same(name, near, monkeypatch):  # noqa: F811
    lm, frame = load(name), near.drop(columns=p_true.KEPT)
    settings = params.Dropout(seed=3, dropout_passes=2)
    expected = [p_true.verify(lm, frame, params.Verification()), passes(lm, frame, settings)]
    with accelerator.pretended(monkeypatch):
        part(lm)
        assert len({parameter.device for parameter in lm.model.parameters()}) == 2
        found = responses.respond(lm, "demo-medium", examples(4), SETTINGS, alive=p_true.live)
        others = [p_true.verify(lm, frame, params.Verification()), passes(lm, frame, settings)]
    same(found, near)
    for one, other in zip(others, expected, strict=True):
        same(one, other)
