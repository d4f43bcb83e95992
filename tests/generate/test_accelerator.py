"""What would go wrong on an accelerator alone, held by tensors that claim to be on one
(accelerator.py)."""

import itertools

import accelerator
import pandas as pd
import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from architectures import assert_alike, load, respond
from transformers import AutoModelForCausalLM

from lib import params, store
from lib.errors import UserError
from lib.generate import mc_dropout, p_true
from lib.models import batching, loading
from lib.row_cache import measured_facts


@pytest.fixture(
    scope="module", params=["tiny-llama", pytest.param("tiny-qwen", marks=pytest.mark.slow)]
)
def name(request):
    return request.param


def spread(model):
    """Half of the layers on the CPU, all else on the pretended device, as accelerate has them
    talk."""
    network, head = model.model, model.lm_head
    layers = list(network.layers)
    middle = len(layers) // 2
    first, rest = layers[:middle], layers[middle:]
    for module in (network.embed_tokens, network.rotary_emb, *first, network.norm, head):
        accelerator.move(module)
        hook = AlignDevicesHook(
            accelerator.DEVICE, skip_keys="past_key_values", io_same_device=module is head
        )
        add_hook_to_module(module, hook)
    for layer in rest:
        add_hook_to_module(layer, AlignDevicesHook("cpu", skip_keys="past_key_values"))


def responses(lm, frame=None):
    return respond(lm, 4, max_new_tokens=60)


def verification(lm, frame):
    """Of rows of one length: in float32, these are a batch."""
    return p_true.verify_responses(lm, frame.iloc[[0] * 4].reset_index(drop=True))


def dropout(lm, frame, prefix="own"):
    first, second = frame.example_id[0], frame.example_id[1]
    work = [(first, 0.1), (second, 0.1), (first, 0.2)]
    settings = params.Dropout(dropout_passes=5, dropout_prefix=prefix)
    return mc_dropout.mc_dropout_entropies(lm, frame, work, settings)


def everything(lm):
    """Responses with their verdicts, all verdicts of 03, and passes with own and shared masks of
    the beginning."""
    frame = responses(lm)
    cached, seconds = p_true.ask_in_situ_on_cache(lm, frame.iloc[0])
    assert 0 < seconds < 60
    verdicts = p_true.verify_responses(lm, frame)
    passes = [dropout(lm, frame, prefix) for prefix in ("own", "shared")]
    return [frame, verdicts, verification(lm, frame), pd.DataFrame([cached]), *passes]


@pytest.mark.parametrize(
    "dtype, place, most",
    [
        ("float32", accelerator.move, 300),
        ("bfloat16", accelerator.move, 300),
        ("float32", spread, 1000),
    ],
)
def test_a_device_says_what_the_cpu_says(name, monkeypatch, dtype, place, most):
    """In half precision, too, where logits are made float32 on it; and spread over two devices. Of
    the 70 passes, each waits for the device a few times."""
    expected, lm = everything(load(name, dtype=dtype)), load(name, dtype=dtype)
    with accelerator.pretended(monkeypatch) as work:
        place(lm.model)
        frames = everything(lm)
    assert 0 < work.waits < most
    for frame, expected_frame in zip(frames, expected, strict=True):
        assert_alike(frame, expected_frame, atol=1e-4)


@pytest.fixture
def gpu(monkeypatch):
    """PyTorch says that it sees a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")


def test_small_models_run_on_the_processor_in_float32_where_there_is_a_gpu(name, gpu):
    """Their facts are those of the shipped run, so that it is reproduced; `auto` means the same."""
    shipped = store.read_manifest(store.SHIPPED / "generations" / f"{name}__demo-easy.parquet")[
        "loaded"
    ]
    for dtype in ("float32", "auto"):
        lm = load(name, dtype=dtype)
        assert lm.device.type == "cpu" and lm.model.dtype == torch.float32
        assert lm.facts == shipped


# ---- where memory ends


@pytest.mark.parametrize(
    "make, most, after, halved, error",
    [
        (responses, 2, 0, [4], torch.OutOfMemoryError("CUDA out of memory.")),
        (responses, 2, 17, [4], MemoryError()),
        (
            verification,
            1,
            0,
            [4, 2, 2],
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
        ),
        (
            dropout,
            2,
            0,
            [5, 3] * 3,
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 B."),
        ),
    ],
    ids=["at the prefill", "in the middle", "verification", "dropout"],
)
def test_where_memory_ends_rows_are_halved_to_the_same_numbers(
    name, monkeypatch, make, most, after, halved, error
):
    """A forward pass of more rows at once ends as on CUDA or a CPU: none is left out, none
    twice."""
    monkeypatch.setattr(batching, "oom_splits", [])
    lm, passes = load(name), itertools.count(1)
    frame = responses(lm)
    expected = make(lm, frame)

    def limit(layer, inputs):
        if len(inputs[0]) > most and next(passes) > after:
            raise error

    with lm.model.get_input_embeddings().register_forward_pre_hook(limit):
        assert_alike(make(lm, frame), expected, atol=1e-4)
    assert measured_facts()["halved_for_memory"] == batching.oom_splits == halved


def test_a_single_row_is_not_halved_and_no_other_error_is_hidden():
    def fail(rows):
        raise rows[0]

    with pytest.raises(UserError, match="^model 'x': the device's memory ends at a single row"):
        batching.retry_in_halves_on_oom(fail, [MemoryError()], "model 'x'")
    with pytest.raises(RuntimeError, match="inconsistent"):
        batching.retry_in_halves_on_oom(
            fail, [RuntimeError("inconsistent tensor size")], "model 'x'"
        )


# ---- a model on several GPUs


@pytest.mark.parametrize("place", [1, "cpu", "disk"])
def test_a_model_is_spread_over_all_gpus_if_its_file_says_so(monkeypatch, gpu, place):
    """A part on the processor or on disk, for lack of memory, is an error before anything is
    asked."""
    monkeypatch.setattr(loading, "SMALL", 0)
    load_weights = AutoModelForCausalLM.from_pretrained

    def load_spread(*words, device_map, **options):
        assert device_map == "auto"
        model, info = load_weights(*words, **options)
        model.hf_device_map = {"": 0, "lm_head": place}
        return model, info

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load_spread)
    if place == 1:
        assert (
            load("tiny-llama", gpus="all").facts["cudnn_attention"]
            is torch.backends.cuda.cudnn_sdp_enabled()
        )
    else:
        with pytest.raises(UserError, match="parts of it do not fit the visible GPUs$"):
            load("tiny-llama", gpus="all")
