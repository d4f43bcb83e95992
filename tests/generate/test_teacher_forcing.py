"""One teacher-forced pass against the shipped signals and in parts; and the float32 logits that it reads of a model in
half precision (plain forward passes: tests/field/test_architectures.py)."""

import architectures
import numpy as np
import pandas as pd
import pytest
import torch
from architectures import assert_alike, load, plain_logits, random, respond

from lib import params, store
from lib.generate import float32_logits, generation, mc_dropout, models, p_true, teacher_forcing
from lib.generate.float32_logits import give_float32_logits
from lib.params import Dropout, Generation
from lib.paths import SHIPPED
from lib.stored_columns import temperatures
from lib.tasks import datasets

SLOW = (pytest.param(name, marks=pytest.mark.slow) for name in ("demo-easy", "demo-hard"))


@pytest.mark.parametrize("dataset", ["demo-medium", *SLOW])
def test_seeded_draws_are_the_shipped_ones(lm, dataset):
    """Every token; log-probabilities, kept logits, verdicts and dropout passes within float32's rounding."""
    name = f"{lm.name}__{dataset}.parquet"

    def shipped(kind, some):
        frame = store.read_frame(SHIPPED / kind / name)
        return frame[frame.example_id.isin(some.example_id)].reset_index(drop=True)

    generations = store.read_frame(SHIPPED / "generations" / name).head(60)
    by_id = {example.example_id: example for example in datasets.load_examples(params.load_dataset_config(dataset))}
    asked = [by_id[name] for name in generations.example_id]
    settings = Generation.of(store.read_manifest(SHIPPED / "generations" / name)["parameters"])
    frame = generation.generate_responses(lm, dataset, asked, settings)
    assert set(frame.columns.drop(p_true.IN_SITU_COLUMNS)) == set(generations)
    assert_alike(frame, generations.merge(store.read_frame(SHIPPED / "in_situ" / name), on=store.KEYS))
    some = frame.head(9)
    assert_alike(p_true.verify_responses(lm, some), shipped("verification", some))
    passes = shipped("dropout", some).head(4).drop(columns=["tuning", "selected"])
    drawn = Dropout.of(store.read_manifest(SHIPPED / "dropout" / name)["parameters"])
    found = mc_dropout.mc_dropout_entropies(lm, some, list(zip(passes.example_id, passes.rate, strict=True)), drawn)
    assert set(found) == set(passes)
    assert_alike(found, passes)


@pytest.mark.parametrize("most", [1, 5000])
def test_a_long_response_is_read_in_parts_to_the_same_numbers(lm, monkeypatch, most):
    at_once, sizes = respond(lm, 4, "demo-hard"), []
    monkeypatch.setattr(teacher_forcing, "LOGITS_AT_ONCE", most)
    asked, given = architectures.requests(lm, 4), [ids.tolist() for ids in at_once.token_ids]
    with lm.model.register_forward_hook(lambda model, inputs, read: sizes.append(read.logits.numel())):
        found = pd.DataFrame(teacher_forcing.score_responses(lm, asked, given, architectures.SETTINGS))
    assert_alike(found, at_once[[column for column in found if column in at_once]])
    assert max(sizes) <= max(most, lm.vocab_size), "one position, or what is allowed"


def test_what_is_kept_is_relative_to_the_largest():
    """Logits 3, 1, 0 of which one is kept: of the rest log(e^-2/t + e^-3/t), below 0, at every temperature."""
    logits, t = torch.tensor([[1.0, 3.0, 0.0]]), temperatures(5)
    values, ids, curve = teacher_forcing.compress_logits(logits, 1, 5)
    assert (values.tolist(), ids.tolist(), curve.shape) == ([[3.0]], [[1]], (1, 5))
    assert (t[0], t[-1]) == pytest.approx((0.1, 20))
    assert curve[0].numpy() == pytest.approx(np.log(np.exp(-2 / t) + np.exp(-3 / t)), rel=1e-5)
    assert teacher_forcing.compress_logits(logits, 9, 5)[0].tolist() == [[3.0, 1.0]], "one is left over"


def test_a_token_that_another_engine_drew_beyond_the_nucleus_has_a_log_probability():
    """One that is drawn from rounded logits may be truncated here; it is no impossible one."""
    spec = params.load_model_config("tiny-llama").model_copy(update={"temperature": 0.5, "top_k": 2, "top_p": 1.0})
    logits = torch.tensor([2.0, 1.0, 0.0])
    found = teacher_forcing.gather_sampling_logprobs(logits.expand(2, 3), torch.tensor([1, 2]), spec)
    torch.testing.assert_close(
        found, torch.stack([(2 * logits[:2]).log_softmax(-1)[1], (2 * logits).log_softmax(-1)[2]])
    )


# ---- half precision: the last layer gives float32 logits


@pytest.fixture(scope="module", params=["tiny-llama", pytest.param("tiny-qwen", marks=pytest.mark.slow)])
def half(request):
    return load(request.param, dtype="bfloat16")


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
@pytest.mark.parametrize("bias", [False, True])
def test_the_product_is_that_of_float32(shape, bias, monkeypatch):
    monkeypatch.setattr(float32_logits, "WEIGHT_ROWS", 4)
    torch.manual_seed(0)
    hidden, weight = torch.randn(shape).bfloat16(), torch.randn(10, 7).bfloat16()
    added = torch.randn(10).bfloat16() if bias else None
    expected = hidden.double() @ weight.double().T + (added.double() if bias else 0)
    found = float32_logits.float32_product(hidden, weight, added)
    assert found.dtype == torch.float32 and found.shape == (*shape[:-1], 10)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-6)


def test_every_token_is_read_from_float32_logits(half):
    """Log-probabilities and what is kept, of one plain pass over the row; though drawing rounds on a processor."""
    frame, layer = respond(half, 4, max_new_tokens=80, top_logits=64), half.model.get_output_embeddings()
    assert half.facts["logits"] == "float32" and layer.weight.dtype == torch.bfloat16
    chosen = np.concatenate(frame.chosen_logit)
    assert not np.array_equal(chosen, torch.tensor(chosen).bfloat16().float().numpy())
    for row in frame.itertuples():
        prompt, response = models.encode(half, row.prompt), row.token_ids.tolist()
        logprobs = plain_logits(half, prompt + response)[len(prompt) - 1 : -1].log_softmax(-1)
        np.testing.assert_allclose(row.token_logprobs, logprobs[range(len(response)), response], atol=0.1)
        at_one = np.logaddexp.reduce(np.stack(row.top_logits), axis=1)  # the rest has next to nothing
        np.testing.assert_allclose(row.chosen_logit - at_one, row.token_logprobs[row.kept_positions], atol=2e-3)
    assert not float32_logits.rounding


def test_a_model_that_scales_its_logits_afterwards():
    network, ids = random("gemma2", final_logit_softcapping=2.0).model.bfloat16(), torch.tensor([list(range(5, 30))])
    rounded = network(ids).logits.float()
    assert give_float32_logits(network) and rounded.abs().max() > 1.5, "near the cap"
    exact = network(ids).logits
    assert exact.dtype == torch.float32 and not torch.equal(exact, exact.bfloat16().float())
    torch.testing.assert_close(exact, rounded, atol=0.05, rtol=0)
    assert not give_float32_logits(load("tiny-llama").model), "float32 is left alone"
