"""What would go wrong on an accelerator alone, held by tensors that claim to be on one (accelerator.py)."""

import functools

import accelerator
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from lib import params
from lib.generate import batching, generation, mc_dropout, models, p_true
from lib.paths import UserError
from lib.row_cache import Meter
from lib.tasks import datasets

SETTINGS = params.Generation(seed=3, demonstration="none", max_new_tokens=60, top_logits=8, n_temperature_nodes=4)
NESTED = {"top_logits", "tail_curve", "predictive", "conditional"}


def examples(count):
    return datasets.load_examples(params.load_dataset_config("demo-medium"))[:count]


def load(name, **changed):
    torch.set_num_threads(1)
    return models.load_language_model(name, params.load_model_config(name).model_copy(update=changed))


@pytest.fixture(scope="module", params=["tiny-llama", pytest.param("tiny-qwen", marks=pytest.mark.slow)])
def name(request):
    return request.param


@pytest.fixture(scope="module")
def near(name):
    """What the CPU makes: responses with their verdicts."""
    return generation.generate_responses(load(name), "demo-medium", examples(4), SETTINGS)


def same(found, expected):
    for column in expected.columns.difference([name for name in expected if name.endswith("seconds")]):
        for one, other in zip(found[column], expected[column], strict=True):
            if column in NESTED:
                one, other = np.stack(one), np.stack(other)
            if np.asarray(one).dtype.kind == "f":
                np.testing.assert_allclose(one, other, atol=1e-4, err_msg=column)
            else:
                np.testing.assert_array_equal(one, other, err_msg=column)


def test_responses_and_their_verdicts(name, near, monkeypatch):
    lm = load(name)
    with accelerator.pretended(monkeypatch, lm.model) as work:
        found = generation.generate_responses(lm, "demo-medium", examples(4), SETTINGS)
    assert work.waits and work.loads
    same(found, near)


def test_verification(name, near, monkeypatch):
    lm, frame = load(name), near
    expected = p_true.verify_responses(lm, frame, params.Verification())
    with accelerator.pretended(monkeypatch, lm.model) as work:
        assert lm.device == accelerator.DEVICE
        found = p_true.verify_responses(lm, frame, params.Verification())
    assert work.loads
    same(found, expected)


def test_all_of_it_in_half_precision(name, monkeypatch):
    """Logits are made float32 there, too, and what is kept of hidden states is read there."""
    work, settings = [(0, 0.1), (1, 0.1)], params.Dropout(dropout_passes=2)

    def made(lm):
        frame = generation.generate_responses(lm, "demo-medium", examples(3), SETTINGS)
        verified = p_true.verify_responses(lm, frame, params.Verification())
        return frame, verified, mc_dropout.mc_dropout_entropies(lm, frame, work, settings)

    expected, lm = made(load(name, dtype="bfloat16")), load(name, dtype="bfloat16")
    with accelerator.pretended(monkeypatch, lm.model):
        found = made(lm)
    assert lm.facts["logits"] == "float32"
    for one, other in zip(found, expected, strict=True):
        same(one, other)


@pytest.mark.parametrize("scope, opening", [("trajectory", "own"), ("trajectory", "shared"), ("answer", "own")])
def test_dropout(name, near, monkeypatch, scope, opening):
    lm, settings = load(name), params.Dropout(dropout_passes=3, dropout_prefix=opening)
    work = [(0, 0.1), (1, 0.1), (0, 0.2)]
    expected = mc_dropout.mc_dropout_entropies(lm, near, work, settings, scope)
    with accelerator.pretended(monkeypatch, lm.model):
        found = mc_dropout.mc_dropout_entropies(lm, near, work, settings, scope)
    same(found, expected)


def test_what_a_device_would_refuse_is_refused_here(monkeypatch):
    near = torch.ones(3)
    with accelerator.pretended(monkeypatch) as work:
        far = near.to(accelerator.DEVICE)
        for wrong in (lambda: far + near, lambda: near[far.long()], lambda: torch.cat([far, near]),
                      lambda: far.index_put_((far.long(),), near)):  # fmt: skip
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
        found = generation.generate_responses(lm, "demo-medium", examples(4), SETTINGS)
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
        generation.generate_responses(lm, "demo-medium", examples(2), SETTINGS)
    assert len(batching.oom_splits) == 1


def test_every_kind_of_error_that_says_that_memory_ended_is_halved(monkeypatch):
    monkeypatch.setattr(batching, "oom_splits", [])

    def failing(error, part):
        if len(part) > 2:
            raise error
        return [2 * item for item in part]

    for error in (torch.OutOfMemoryError("CUDA out of memory."), MemoryError(),
                  RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
                  RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 B.")):  # fmt: skip
        work = functools.partial(failing, error)
        assert batching.retry_in_halves_on_oom(work, [1, 2, 3, 4, 5], "x") == [2, 4, 6, 8, 10]
    assert batching.oom_splits == [5, 3] * 4
    with pytest.raises(RuntimeError, match="of another kind"):
        batching.retry_in_halves_on_oom(functools.partial(failing, RuntimeError("of another kind")), [1, 2, 3], "x")
