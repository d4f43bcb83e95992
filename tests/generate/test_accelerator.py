"""What would go wrong on an accelerator alone, held by tensors that claim to be on one (accelerator.py)."""

import functools

import accelerator
import numpy as np
import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from architectures import respond
from transformers import AutoModelForCausalLM

from lib import params
from lib.generate import batching, mc_dropout, models, p_true
from lib.paths import UserError
from lib.row_cache import Meter
from workflow import cost

NESTED = {"top_logits", "tail_curve", "predictive", "conditional"}


def load(name, **changed):
    torch.set_num_threads(1)
    return models.load_language_model(name, params.load_model_config(name).model_copy(update=changed))


@pytest.fixture(scope="module", params=["tiny-llama", pytest.param("tiny-qwen", marks=pytest.mark.slow)])
def name(request):
    return request.param


@pytest.fixture(scope="module")
def near(name):
    """What the CPU makes: responses with their verdicts."""
    return respond(load(name), 4, max_new_tokens=60)


def same(found, expected):
    for column in expected.columns.difference([name for name in expected if name.endswith("seconds")]):
        for one, other in zip(found[column], expected[column], strict=True):
            if column in NESTED:
                one, other = np.stack(one), np.stack(other)
            if np.asarray(one).dtype.kind == "f":
                np.testing.assert_allclose(one, other, atol=1e-4, err_msg=column)
            else:
                np.testing.assert_array_equal(one, other, err_msg=column)


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


def everything(lm):
    """Responses with their verdicts, both verdicts of 03, and passes in each scope."""
    frame = respond(lm, 4, max_new_tokens=60)
    work = [(0, 0.1), (1, 0.1), (0, 0.2)]
    passes = [
        mc_dropout.mc_dropout_entropies(lm, frame, work, params.Dropout(dropout_passes=3, dropout_prefix=prefix), scope)
        for scope, prefix in (("trajectory", "own"), ("trajectory", "shared"), ("answer", "own"))
    ]
    return [frame, p_true.verify_responses(lm, frame, params.Verification()), *passes]


@pytest.mark.parametrize("dtype, spread", [("float32", False), ("bfloat16", False), ("float32", True)])
def test_a_device_says_what_the_cpu_says(name, monkeypatch, dtype, spread):
    """In half precision, too, where logits are made float32 on it; and spread over two devices."""
    expected, lm = everything(load(name, dtype=dtype)), load(name, dtype=dtype)
    with accelerator.pretended(monkeypatch, *[lm.model][spread:]) as work:
        if spread:
            part(lm)
        assert len({parameter.device for parameter in lm.model.parameters()}) == 1 + spread
        found = everything(lm)
    assert work.waits and work.loads
    for one, other in zip(found, expected, strict=True):
        same(one, other)


def test_what_a_device_would_refuse_is_refused_here(monkeypatch):
    near = torch.ones(3)
    with accelerator.pretended(monkeypatch) as work:
        far = near.to(accelerator.DEVICE)
        for wrong in (
            lambda: far + near,
            lambda: near[far.long()],
            lambda: torch.cat([far, near]),
            lambda: far.index_put_((far.long(),), near),
        ):
            with pytest.raises(accelerator.DeviceMismatch):
                wrong()
        with pytest.raises((TypeError, RuntimeError)):
            far.numpy()
        assert not sum(work.waits.values())
        assert float(far.sum()) == 3 and far.tolist() == [1, 1, 1] and torch.equal(far.cpu(), near) and bool(far[0] > 0)
        assert len(far[far > 0]) == 3 and sum(work.waits.values()) == 5


def test_cudnn_attention_is_off(monkeypatch):
    """What loading does on CUDA, and says in every manifest; nothing is said where there is none."""
    asked, spec = torch.backends.cuda.cudnn_sdp_enabled(), params.load_model_config("tiny-llama")
    try:
        assert "cudnn_attention" not in models.load_language_model("tiny", spec).facts
        with monkeypatch.context() as on_cuda:
            on_cuda.setattr(torch.cuda, "is_available", lambda: True)
            on_cuda.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
            places = straight(on_cuda)
            lm = models.load_language_model("tiny", spec)
        assert places == ["cuda"] and lm.facts["logits"] == "float32" and lm.facts["attention"] == "sdpa"
        assert lm.facts["cudnn_attention"] is False is torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(asked)


def straight(monkeypatch):
    """Weights go where `from_pretrained` is told, and nowhere from there. Which places it was told."""
    load_weights, places = AutoModelForCausalLM.from_pretrained, []

    def there(*words, device_map, **options):
        places.append(device_map)
        return load_weights(*words, **options)

    def moved(module, *words, **options):
        raise AssertionError("a model is moved after it was loaded")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", there)
    monkeypatch.setattr(torch.nn.Module, "to", moved)
    return places


# ---- where memory ends


@pytest.fixture
def narrow(monkeypatch):
    """A device that holds so many rows at once: a forward pass of more ends as CUDA ends it. Says which were tried."""
    tried = []

    def narrowed(lm, most, after=0):
        forward = lm.model.forward

        @functools.wraps(forward)  # `generate` asks which arguments it takes
        def limited(input_ids, *more, **named):
            tried.append(len(input_ids))
            if len(input_ids) > most and len(tried) > after:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
            return forward(input_ids, *more, **named)

        monkeypatch.setattr(lm.model, "forward", limited)
        return tried

    monkeypatch.setattr(batching, "oom_splits", [])
    return narrowed


@pytest.mark.parametrize("after", [0, 17], ids=["at the prefill", "in the middle"])
def test_responses_where_memory_ends(name, near, narrow, after):
    lm = load(name)
    narrow(lm, 2, after)
    with Meter() as meter:
        found = respond(lm, 4, max_new_tokens=60)
    same(found, near)
    assert meter.facts()["halved_for_memory"] == batching.oom_splits and batching.oom_splits[0] == 4


def test_verification_where_memory_ends(name, near, narrow):
    lm, frame = load(name), near
    expected = p_true.verify_responses(lm, frame, params.Verification())
    narrow(lm, 1)
    same(p_true.verify_responses(lm, frame, params.Verification()), expected)
    assert batching.oom_splits == [4, 2, 2]


def test_dropout_where_memory_ends(name, near, narrow):
    """In the forward pass of some: none is left out, none is added twice."""
    lm, settings = load(name), params.Dropout(dropout_passes=5)
    work = [(0, 0.1), (1, 0.1), (0, 0.2)]
    expected = mc_dropout.mc_dropout_entropies(lm, near, work, settings)
    narrow(lm, 2)
    found = mc_dropout.mc_dropout_entropies(lm, near, work, settings)
    assert [5, 3] * len(work) == batching.oom_splits
    same(found, expected)


def test_a_row_that_is_too_large_by_itself_is_said(name, near, narrow):
    lm = load(name)
    narrow(lm, 0)
    with pytest.raises(UserError, match=f"model '{name}': the device's memory ends at a single row"):
        respond(lm, 2, max_new_tokens=60)
    assert len(batching.oom_splits) == 1


def test_every_kind_of_error_that_says_that_memory_ended_is_halved(monkeypatch):
    monkeypatch.setattr(batching, "oom_splits", [])

    def failing(error, part):
        if len(part) > 2:
            raise error
        return [2 * item for item in part]

    for error in (
        torch.OutOfMemoryError("CUDA out of memory."),
        MemoryError(),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 B."),
    ):
        work = functools.partial(failing, error)
        assert batching.retry_in_halves_on_oom(work, [1, 2, 3, 4, 5], "x") == [2, 4, 6, 8, 10]
    assert batching.oom_splits == [5, 3] * 4
    with pytest.raises(RuntimeError, match="of another kind"):
        batching.retry_in_halves_on_oom(functools.partial(failing, RuntimeError("of another kind")), [1, 2, 3], "x")


# ---- a model on several GPUs: how many it takes, and that it says the same


@pytest.mark.parametrize("weights, memory, count", [
    (16e9, [80e9], 1), (72e9, [80e9], 1), (73e9, [80e9], 0), (16e9, [80e9] * 4, 1), (73e9, [80e9] * 4, 2),
    (140e9, [80e9] * 4, 3), (200e9, [80e9] * 4, 0),
])  # fmt: skip
def test_a_model_takes_the_fewest_that_hold_it(weights, memory, count):
    assert models.gpus_needed(weights, memory) == count


def test_numbers_that_a_token_takes_in_the_cache(name):
    """Against the cache that a pass over three tokens leaves."""
    network = load(name).model
    layers = network(torch.tensor([[5, 6, 7]]), use_cache=True).past_key_values.layers
    held = sum(layer.keys.numel() + layer.values.numel() for layer in layers)
    assert held == 3 * cost.cache_numbers_per_token(network)


def test_small_and_large_models_on_several_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    source = str(models.local_folder(params.load_model_config("tiny-llama")))
    for count, free, spread in ((1, 1e3, False), (2, 1e9, False), (2, 4e6, True)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda i, free=free: (free, free))
        found = models.choose_devices(source, None, torch.float32)
        expected = {"device_map": "balanced", "max_memory": {0: int(0.6 * free), 1: int(0.6 * free)}}
        assert found == (expected if spread else {"device_map": "cuda"}), (count, free)
