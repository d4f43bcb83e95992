"""What would go wrong on an accelerator alone, held by tensors that claim to be on one (accelerator.py)."""

import accelerator
import numpy as np
import pytest
import torch

from lib import params
from lib.generate import decoding, dropout, models, p_true, responses
from lib.tasks import datasets

SETTINGS = params.Generation(seed=3, demonstration="none", max_new_tokens=60, top_logits=8, curve_nodes=4)
NESTED = {"top_logits", "tail_curve", "predictive", "conditional"}


def examples(count):
    return datasets.load(params.load_dataset("demo-medium"))[:count]


def load(name):
    torch.set_num_threads(1)
    return models.load(name, params.load_model(name))


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


@pytest.mark.parametrize("kernel", ["keyed", "fused"])
def test_dropout(name, near, monkeypatch, kernel):
    lm, settings = load(name), params.Dropout(dropout_passes=3, dropout_kernel=kernel)
    work = [(0, 0.1), (1, 0.1), (0, 0.2)]
    expected = dropout.disagreement(lm, near, work, settings)
    with accelerator.pretended(monkeypatch, lm.model):
        found = dropout.disagreement(lm, near, work, settings)
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
            on_cuda.setattr(torch.nn.Module, "to", lambda module, place: module)
            lm = models.load("tiny", spec)
        assert lm.facts["cudnn_attention"] is allowed is torch.backends.cuda.cudnn_sdp_enabled()
        assert lm.facts["attention"] == "sdpa"
    finally:
        torch.backends.cuda.enable_cudnn_sdp(asked)


def test_the_sampler_waits_for_the_device_once_a_step(name, monkeypatch):
    """And nothing else of ours does: `generate` asks whether any row goes on, and whether a row is padded."""
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
    assert len(own) > 20 and set(own) == {1} and np.median(np.diff(before)) <= 3
