"""What would go wrong on an accelerator alone, held by tensors that claim to be on one (accelerator.py)."""

import itertools
from contextlib import nullcontext

import accelerator
import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from architectures import assert_alike, load, respond
from transformers import AutoModelForCausalLM

from lib import params, store
from lib.generate import batching, mc_dropout, models, p_true
from lib.paths import UserError
from lib.row_cache import measured_facts


@pytest.fixture(scope="module", params=["tiny-llama", pytest.param("tiny-qwen", marks=pytest.mark.slow)])
def name(request):
    return request.param


def part(lm):
    """Half of the layers on the CPU, all else on the pretended device, as accelerate has them talk."""
    network, head, layers = lm.model.model, lm.model.lm_head, lm.model.model.layers
    first, rest = layers[: len(layers) // 2], layers[len(layers) // 2 :]
    for module in (network.embed_tokens, network.rotary_emb, *first, network.norm, head):
        accelerator.move(module)
    for place, some in ((accelerator.DEVICE, first), ("cpu", rest)):
        for layer in some:
            add_hook_to_module(layer, AlignDevicesHook(place, skip_keys="past_key_values"))
    for module in (network.norm, head):
        add_hook_to_module(module, AlignDevicesHook(accelerator.DEVICE, io_same_device=module is head))


def responses(lm, frame=None):
    return respond(lm, 4, max_new_tokens=60)


def verification(lm, frame):
    """Of rows of one length: in float32, these are a batch."""
    return p_true.verify_responses(lm, frame.iloc[[0] * 4].reset_index(drop=True))


def dropout(lm, frame, prefix="own"):
    work = [(frame.example_id[place], rate) for place, rate in ((0, 0.1), (1, 0.1), (0, 0.2))]
    return mc_dropout.mc_dropout_entropies(lm, frame, work, params.Dropout(dropout_passes=5, dropout_prefix=prefix))


def everything(lm):
    """Responses with their verdicts, both verdicts of 03, and passes with own and shared masks of the beginning."""
    frame = responses(lm)
    verified = p_true.verify_responses(lm, frame)
    return [frame, verified, verification(lm, frame), *(dropout(lm, frame, prefix) for prefix in ("own", "shared"))]


@pytest.mark.parametrize("dtype, spread", [("float32", False), ("bfloat16", False), ("float32", True)])
def test_a_device_says_what_the_cpu_says(name, monkeypatch, dtype, spread):
    """In half precision, too, where logits are made float32 on it; and spread over two devices."""
    expected, lm = everything(load(name, dtype=dtype)), load(name, dtype=dtype)
    with accelerator.pretended(monkeypatch, *[lm.model][spread:]) as work:
        if spread:
            part(lm)
        assert len({parameter.device for parameter in lm.model.parameters()}) == 1 + spread
        found = everything(lm)
    assert work.waits
    for one, other in zip(found, expected, strict=True):
        assert_alike(one, other, atol=1e-4)


@pytest.fixture
def gpu(monkeypatch):
    """PyTorch says that it sees a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")


def test_small_models_run_on_the_processor_in_float32_where_there_is_a_gpu(name, gpu):
    """Their facts are those of the shipped run, so that it is reproduced; `auto` means the same."""
    shipped = store.read_manifest(store.SHIPPED / "generations" / f"{name}__demo-easy.parquet")["loaded"]
    for dtype in ("float32", "auto"):
        lm = load(name, dtype=dtype)
        assert lm.device.type == "cpu" and lm.model.dtype == torch.float32
        assert lm.facts == shipped


# ---- where memory ends


@pytest.mark.parametrize("make, most, after, halved", [
    (responses, 2, 0, [4]), (responses, 2, 17, [4]), (verification, 1, 0, [4, 2, 2]), (dropout, 2, 0, [5, 3] * 3),
], ids=["at the prefill", "in the middle", "verification", "dropout"])  # fmt: skip
def test_where_memory_ends_rows_are_halved_to_the_same_numbers(name, monkeypatch, make, most, after, halved):
    """A forward pass of more rows at once ends as CUDA ends it: none is left out, none is added twice."""
    monkeypatch.setattr(batching, "oom_splits", [])
    lm, passes = load(name), itertools.count(1)
    frame = responses(lm)
    expected = make(lm, frame)

    def limit(model, inputs, named):
        if len((*inputs, named.get("input_ids"))[0]) > most and next(passes) > after:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    with lm.model.register_forward_pre_hook(limit, with_kwargs=True):
        assert_alike(make(lm, frame), expected, atol=1e-4)
    assert measured_facts()["halved_for_memory"] == batching.oom_splits == halved


@pytest.mark.parametrize("error", [
    torch.OutOfMemoryError("CUDA out of memory."), MemoryError(),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 B."),
])  # fmt: skip
def test_every_kind_of_error_that_says_that_memory_ended_is_halved(monkeypatch, error):
    """Down to a row that is too large by itself; and no other: a bug of shapes is not."""
    monkeypatch.setattr(batching, "oom_splits", [])

    def double(most, error, items=(1, 2, 3, 4, 5)):
        def work(part):
            if len(part) > most:
                raise error
            return [2 * item for item in part]

        return batching.retry_in_halves_on_oom(work, items, "model 'x'")

    assert double(2, error) == [2, 4, 6, 8, 10]
    with pytest.raises(UserError, match="^model 'x': the device's memory ends at a single row"):
        double(0, error)
    with pytest.raises(RuntimeError, match="inconsistent"):
        double(0, RuntimeError("inconsistent tensor size"))


# ---- a model on several GPUs


@pytest.mark.parametrize(
    "places", [{"": 0}, {"model.layers.0": 0, "lm_head": 1}, {"": 0, "lm_head": "cpu"}, {"": "disk"}]
)
def test_a_model_is_spread_over_all_gpus_if_its_file_says_so(monkeypatch, gpu, places):
    """A part on the processor or on disk, for lack of memory, is an error before anything is asked."""
    monkeypatch.setattr(models, "SMALL", 0)
    load_weights, asked = AutoModelForCausalLM.from_pretrained, []

    def there(*words, device_map, **options):
        asked.append(device_map)
        model, info = load_weights(*words, **options)
        model.hf_device_map = places
        return model, info

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", there)
    short = {"cpu", "disk"} & {*map(str, places.values())}
    refused = pytest.raises(UserError, match="parts of it do not fit the visible GPUs$")
    with refused if short else nullcontext():
        load("tiny-llama", gpus="all")
    assert asked == ["auto"]
