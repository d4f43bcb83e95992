"""A model on several GPUs: how many it takes, where its layers lie, and that it says the same."""

import accelerator
import pytest
import torch
from accelerate import infer_auto_device_map
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from accelerate.utils import get_balanced_memory
from test_accelerator import SETTINGS, examples, load, name, near, same  # noqa: F401  (fixtures)

from lib import params
from lib.generate import generation, mc_dropout, models, p_true
from lib.generate.float32_logits import give_float32_logits
from workflow import cost


@pytest.mark.parametrize("weights, memory, count", [
    (16e9, [80e9], 1), (72e9, [80e9], 1), (73e9, [80e9], 0), (16e9, [80e9] * 4, 1), (73e9, [80e9] * 4, 2),
    (140e9, [80e9] * 4, 3), (200e9, [80e9] * 4, 0),
])  # fmt: skip
def test_a_model_takes_the_fewest_that_hold_it(weights, memory, count):
    assert models.gpus_needed(weights, memory) == count


def test_numbers_that_a_token_takes_in_the_cache(name):  # noqa: F811
    """Against the cache that a pass over three tokens leaves."""
    network = load(name).model
    layers = network(torch.tensor([[5, 6, 7]]), use_cache=True).past_key_values.layers
    held = sum(layer.keys.numel() + layer.values.numel() for layer in layers)
    assert held == 3 * cost.cache_numbers_per_token(network)


def test_layers_are_spread_in_order_and_evenly(name):  # noqa: F811
    """By accelerate, within what `choose_devices` lets each GPU hold; nothing is left for the host or a disk."""
    network = load(name).model
    size = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
    whole = {"no_split_module_classes": network._no_split_modules}
    room = get_balanced_memory(network, max_memory={0: size, 1: size}, **whole)
    placed = infer_auto_device_map(network, max_memory=room, **whole)
    layers = [placed[key] for key in placed if ".layers." in key]
    assert layers == sorted(layers) and set(placed.values()) == {0, 1}


def test_small_and_large_models_on_several_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    source = str(models.local_folder(params.load_model_config("tiny-llama")))
    for count, free, spread in ((1, 1e3, False), (2, 1e9, False), (2, 4e6, True)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda i, free=free: (free, free))
        found = models.choose_devices(source, None, torch.float32)
        expected = {"device_map": "balanced", "max_memory": {0: int(0.6 * free), 1: int(0.6 * free)}}
        assert found == (expected if spread else {"device_map": "cuda"}), (count, free)


def part(lm):
    """Half of the layers on the CPU, all else on the pretended device, as accelerate has them talk."""
    accelerator.move(lm.model)
    layers = lm.model.model.layers
    for i, layer in enumerate(layers):
        there = i < len(layers) // 2
        if not there:
            back(layer)
        place = accelerator.DEVICE if there else "cpu"
        add_hook_to_module(layer, AlignDevicesHook(place, skip_keys="past_key_values"))
    for module in (lm.model.model.norm, lm.model.lm_head):
        add_hook_to_module(module, AlignDevicesHook(accelerator.DEVICE, io_same_device=module is lm.model.lm_head))


def back(module):
    for each in module.modules():
        for key, parameter in list(each._parameters.items()):
            if parameter is not None:
                each._parameters[key] = torch.nn.Parameter(parameter.held, requires_grad=False)


def test_logits_of_a_spread_model_are_not_rounded(name, monkeypatch):  # noqa: F811
    """Accelerate has hooked the last layer by the time it is asked for float32 logits."""
    expected = generation.generate_responses(load(name, dtype="bfloat16"), "demo-medium", examples(2), SETTINGS)
    lm = load(name, dtype="bfloat16")
    lm.model.lm_head._forward_hooks.clear()  # as it is loaded
    with accelerator.pretended(monkeypatch):
        part(lm)
        assert give_float32_logits(lm.model)
        ids = torch.tensor([[5, 6, 7]], device=accelerator.DEVICE)
        assert lm.model(ids).logits.dtype == torch.float32
        found = generation.generate_responses(lm, "demo-medium", examples(2), SETTINGS)
    same(found, expected)


def passes(lm, frame, settings):
    work = [(i, rate) for i in range(len(frame)) for rate in (0.0, 0.2)]
    return mc_dropout.mc_dropout_entropies(lm, frame, work, settings)


def test_a_spread_model_says_the_same(name, near, monkeypatch):  # noqa: F811
    lm, frame = load(name), near
    settings = params.Dropout(seed=3, dropout_passes=2)
    expected = [p_true.verify_responses(lm, frame, params.Verification()), passes(lm, frame, settings)]
    with accelerator.pretended(monkeypatch):
        part(lm)
        assert len({parameter.device for parameter in lm.model.parameters()}) == 2
        found = generation.generate_responses(lm, "demo-medium", examples(4), SETTINGS)
        others = [p_true.verify_responses(lm, frame, params.Verification()), passes(lm, frame, settings)]
    same(found, near)
    for one, other in zip(others, expected, strict=True):
        same(one, other)
