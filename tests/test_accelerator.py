"""What would go wrong on an accelerator alone, held by tensors that claim to be on one (accelerator.py)."""

import functools

import accelerator
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, causal_mask_function, sdpa_mask

from lib import params
from lib.generate import decoding, mc_dropout, models, p_true, padding, responses, room
from lib.project import UserError
from lib.row_cache import Meter
from lib.tasks import datasets

SETTINGS = params.Generation(seed=3, demonstration="none", max_new_tokens=60, top_logits=8, curve_nodes=4)
NESTED = {"top_logits", "tail_curve", "predictive", "conditional"}


def examples(count):
    return datasets.load_examples(params.load_dataset("demo-medium"))[:count]


def load(name, **changed):
    torch.set_num_threads(1)
    return models.load(name, params.load_model(name).model_copy(update=changed))


@pytest.fixture(scope="module", params=["tiny-llama", "tiny-qwen"])
def name(request):
    return request.param


@pytest.fixture(scope="module")
def near(name):
    """What the CPU makes: responses with their verdicts."""
    return responses.respond(load(name), "demo-medium", examples(4), SETTINGS, alive=p_true.live)


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
        found = responses.respond(lm, "demo-medium", examples(4), SETTINGS, alive=p_true.live)
    assert work.waits and work.loads
    same(found, near)


def test_verification(name, near, monkeypatch):
    lm, frame = load(name), near.drop(columns=p_true.KEPT)
    expected = p_true.verify(lm, frame, params.Verification())
    with accelerator.pretended(monkeypatch, lm.model) as work:
        assert lm.device == accelerator.DEVICE
        found = p_true.verify(lm, frame, params.Verification())
    assert work.loads
    same(found, expected)


def test_all_of_it_in_half_precision(name, monkeypatch):
    """Logits are made float32 there, too, and what is kept of hidden states is read there."""
    work, settings = [(0, 0.1), (1, 0.1)], params.Dropout(dropout_passes=2)

    def made(lm):
        frame = responses.respond(lm, "demo-medium", examples(3), SETTINGS, alive=p_true.live)
        verified = p_true.verify(lm, frame.drop(columns=p_true.KEPT), params.Verification())
        return frame, verified, mc_dropout.mc_dropout_entropies(lm, frame, work, settings)

    expected, lm = made(load(name, dtype="bfloat16")), load(name, dtype="bfloat16")
    with accelerator.pretended(monkeypatch, lm.model):
        found = made(lm)
    assert lm.head is not None
    for one, other in zip(found, expected, strict=True):
        same(one, other)


@pytest.mark.parametrize("scope, opening", [("trajectory", "own"), ("trajectory", "shared"), ("answer", "own")])
def test_dropout(name, near, monkeypatch, scope, opening):
    lm, settings = load(name), params.Dropout(dropout_passes=3, dropout_opening=opening)
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


@pytest.mark.parametrize("attention, allowed", [("auto", False), ("sdpa", False), ("cudnn", True)])
def test_cudnn_attention_is_off_unless_the_file_asks_for_it(monkeypatch, attention, allowed):
    """What `load` does on CUDA, and says in every manifest; nothing is said where there is none."""
    asked = torch.backends.cuda.cudnn_sdp_enabled()
    spec = params.load_model("tiny-llama").model_copy(update={"attention": attention})
    try:
        assert "cudnn_attention" not in models.load("tiny", spec).facts
        with monkeypatch.context() as on_cuda:
            on_cuda.setattr(torch.cuda, "is_available", lambda: True)
            on_cuda.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
            places = straight(on_cuda)
            lm = models.load("tiny", spec)
        assert places == ["cuda"] and lm.facts["logits"] == "float32"
        assert lm.facts["cudnn_attention"] is allowed is torch.backends.cuda.cudnn_sdp_enabled()
        assert lm.facts["attention"] == "sdpa"
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


@pytest.mark.parametrize("lengths", [(5, 5), (3, 5)], ids=["not padded", "padded"])
@pytest.mark.parametrize("local_size", [None, 4])
def test_masks_are_the_same_whether_padding_is_told_or_asked(lengths, local_size):
    """At the prefill, at a step, and behind a beginning that was encoded before; sliding windows, too."""
    prompt, padded = max(lengths), min(lengths) < max(lengths)
    for new, held in ((prompt, 0), (1, prompt), (1, prompt + 3), (4, prompt)):
        seen = torch.ones(len(lengths), held + new, dtype=torch.bool)
        for row, length in enumerate(lengths):
            seen[row, : prompt - length] = False
        asked = {"batch_size": len(lengths), "q_length": new, "kv_length": held + new, "q_offset": held,
                 "attention_mask": seen, "mask_function": causal_mask_function, "local_size": local_size}  # fmt: skip
        expected = sdpa_mask(**asked)
        with padding.known(padded):
            found = ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](**asked)
        assert (found is None) is (expected is None)
        assert found is None or torch.equal(found, expected)
    assert ALL_MASK_ATTENTION_FUNCTIONS["sdpa"] is sdpa_mask


def test_a_step_waits_for_the_device_twice(name, monkeypatch):
    """Once of ours, for what the sampler has to know; once as `generate` asks whether any row goes on."""
    lm, draw, before, own = load(name), decoding.Sample.__call__, [], []

    def drawn(sample, *more):
        before.append(sum(work.waits.values()))
        scores = draw(sample, *more)
        own.append(sum(work.waits.values()) - before[-1])
        return scores

    monkeypatch.setattr(decoding.Sample, "__call__", drawn)
    monkeypatch.setattr(decoding, "FEW", 2)
    with accelerator.pretended(monkeypatch, lm.model) as work:
        ids = [models.encode(lm, responses.prompt_text(lm, e.question, "none")) for e in examples(3)]
        for _, batch in decoding.rounds(lm, ids, [1, 2, 3], SETTINGS):
            numbers = sum(map(len, batch.kept))
    assert numbers, "some tokens were kept"
    assert len(own) > 20 and set(own) == {1}
    steps = np.diff(before)  # some lead from one round of rows to the next
    assert np.median(steps) == 2 and (steps == 2).mean() > 0.8, sorted(steps)


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

    monkeypatch.setattr(room, "HALVED", [])
    return narrowed


@pytest.mark.parametrize("after", [0, 17], ids=["at the prefill", "in the middle"])
def test_responses_where_memory_ends(name, near, narrow, after):
    lm = load(name)
    narrow(lm, 2, after)
    with Meter() as meter:
        found = responses.respond(lm, "demo-medium", examples(4), SETTINGS, alive=p_true.live)
    same(found, near)
    assert meter.facts()["halved_for_memory"] == room.HALVED == [4]


def test_verification_where_memory_ends(name, near, narrow):
    lm, frame = load(name), near.drop(columns=p_true.KEPT)
    expected = p_true.verify(lm, frame, params.Verification())
    narrow(lm, 1)
    same(p_true.verify(lm, frame, params.Verification()), expected)
    assert room.HALVED == [4, 2, 2, 4, 2, 2]  # the standard prompts, then the trajectories


def test_dropout_where_memory_ends(name, near, narrow):
    """In the forward pass of some: none is left out, none is added twice."""
    lm, settings = load(name), params.Dropout(dropout_passes=5)
    work = [(0, 0.1), (1, 0.1), (0, 0.2)]
    expected = mc_dropout.mc_dropout_entropies(lm, near, work, settings)
    narrow(lm, 2)
    found = mc_dropout.mc_dropout_entropies(lm, near, work, settings)
    assert [5, 3] * len(work) == room.HALVED
    same(found, expected)


def test_a_half_that_was_done_is_not_done_again(name, near, monkeypatch):
    """Memory ends with the last row of a batch, whose first half is there."""
    lm, made, write = load(name), [], responses.row

    def ends(lm, asked, *more):
        made.append(asked.example.example_id)
        if len(made) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return write(lm, asked, *more)

    monkeypatch.setattr(responses, "row", ends)
    monkeypatch.setattr(room, "HALVED", [])
    same(responses.respond(lm, "demo-medium", examples(4), SETTINGS, alive=p_true.live), near)
    assert room.HALVED == [4] and len(made) == 5


def test_a_row_that_is_too_large_by_itself_is_said(name, near, narrow):
    lm = load(name)
    narrow(lm, 0)
    with pytest.raises(UserError, match=f"model '{name}': the device's memory ends at a single row"):
        responses.respond(lm, "demo-medium", examples(2), SETTINGS)
    assert Meter().__enter__().halved == len(room.HALVED) == 1


def test_nothing_is_said_where_memory_was_enough(name, monkeypatch):
    monkeypatch.setattr(room, "HALVED", [7])  # of work before
    with Meter() as meter:
        room.by_halves([1, 2], lambda part: None, "x")
    assert "halved_for_memory" not in meter.facts()
