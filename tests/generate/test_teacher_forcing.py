"""One teacher-forced pass against plain forward passes, the shipped signals, and itself in other parts; and the float32
logits that it reads of a model in half precision."""

import dataclasses
import types

import architectures
import numpy as np
import pandas as pd
import pytest
import torch
from architectures import assert_alike, load, plain_logits, random, respond

from lib import params, store
from lib.generate import float32_logits, generation, mc_dropout, models, p_true, sampling, teacher_forcing
from lib.generate.float32_logits import give_float32_logits
from lib.params import Dropout, Generation
from lib.paths import SHIPPED
from lib.stored_columns import temperatures
from lib.tasks import datasets

SETTINGS = Generation(seed=3, demonstration="none", max_new_tokens=60, top_logits=16, n_temperature_nodes=9)
FEW = SETTINGS.model_copy(update={"demonstration": "few"})


def build(lm, count, settings=SETTINGS):
    return generation.build_requests(lm, "demo-hard", architectures.examples("demo-hard", count), settings)


def drawn(lm, count, settings=SETTINGS):
    requests = build(lm, count, settings)
    return requests, sampling.TransformersEngine(lm, settings.max_batch_tokens).sample(requests)


def score(lm, requests, responses):
    return pd.DataFrame(teacher_forcing.score_responses(lm, requests, responses, SETTINGS))


SLOW = (pytest.param(name, marks=pytest.mark.slow) for name in ("demo-easy", "demo-hard"))


@pytest.mark.parametrize("dataset", ["demo-medium", *SLOW])
def test_seeded_draws_are_the_shipped_ones(lm, dataset):
    """Every token; log-probabilities, kept logits, verdicts and dropout passes within float32's rounding."""
    name = f"{lm.name}__{dataset}.parquet"

    def shipped(kind, **columns):
        frame = store.read_frame(SHIPPED / kind / name)
        return frame.query(" and ".join(f"{column} in {values}" for column, values in columns.items()))

    generations = store.read_frame(SHIPPED / "generations" / name).head(60)
    by_id = {example.example_id: example for example in datasets.load_examples(params.load_dataset_config(dataset))}
    asked = [by_id[name] for name in generations.example_id]
    settings = Generation.of(store.read_manifest(SHIPPED / "generations" / name)["parameters"])
    frame = generation.generate_responses(lm, dataset, asked, settings)
    assert set(frame.columns.drop(p_true.IN_SITU_COLUMNS)) == set(generations)
    assert_alike(frame, generations.merge(store.read_frame(SHIPPED / "in_situ" / name), on=store.KEYS))
    some = frame.head(9)
    verified = shipped("verification", example_id=some.example_id.tolist())
    assert_alike(p_true.verify_responses(lm, some), verified.reset_index(drop=True))
    passes = shipped("dropout", example_id=some.example_id.tolist()).head(4).drop(columns=["tuning", "selected"])
    drawn = Dropout.of(store.read_manifest(SHIPPED / "dropout" / name)["parameters"])
    found = mc_dropout.mc_dropout_entropies(lm, some, list(zip(passes.example_id, passes.rate, strict=True)), drawn)
    assert set(found) == set(passes)
    assert_alike(found, passes.reset_index(drop=True))


def family(name):
    lm = load(name)
    if not name.startswith("tiny"):
        for parameter in lm.model.parameters():  # as small as real logits are
            parameter.data.div_((2 if name == "gpt2" else 4) if parameter.dim() > 1 else 1)
    return lm


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen", "gpt2", "gemma2", "mistral", *architectures.STATEFUL])
def test_a_pass_is_a_plain_encoding_and_a_continued_cache(name):
    """Rows of several lengths, ended and cut, with a thinking block; windows that are shorter than the prompt."""
    lm = family(name)
    query, options = p_true.query_ids(lm), list(p_true.option_tokens(lm).values())
    responses = [[*range(5, 5 + n), *lm.eos[: i % 2]] for i, n in enumerate((40, 7, 1))]
    responses.append(models.encode(lm, "<think>\n#### 5\n</think>\n\n#### 42") + lm.eos[:1])
    for requests in (build(lm, 4), build(lm, 4, FEW)):
        scores = score(lm, requests, responses).to_dict("records")
        for request, response, row in zip(requests, responses, scores, strict=True):
            ended = response[-1] in lm.eos
            ids = [*request.prompt_ids, *response[: len(response) - ended], *query]
            logits = plain_logits(lm, ids)
            logprobs = logits[len(request.prompt_ids) - 1 :][: len(response)].log_softmax(-1)
            expected = logprobs.gather(-1, torch.tensor(response)[:, None])[:, 0]
            np.testing.assert_allclose(row["token_logprobs"], expected, atol=5e-5)
            asked = types.SimpleNamespace(prompt=request.prompt, token_ids=response, eos=int(ended))
            verdict, before = p_true.ask_in_situ_on_cache(lm, asked)
            assert verdict["seconds"] > 0 < before
            for found in (row, p_true.in_situ_columns(verdict)):
                np.testing.assert_allclose(found["in_situ_logits"], logits[-1][options], atol=1e-4)
                assert abs(found["in_situ_logz"] - logits[-1].double().logsumexp(-1)) < 1e-4


def test_rows_of_equal_length_share_a_pass_and_have_the_numbers_that_they_have_alone(any_lm):
    """Responses of several lengths, ended and cut, after prompts that make up for the difference."""
    first, *_ = build(any_lm, 1)
    lengths = (9, 4, 9, 2)
    requests = [dataclasses.replace(first, prompt_ids=[*first.prompt_ids, *[7] * (9 - n)]) for n in lengths]
    responses = [[*range(5, 5 + n), *any_lm.eos[: n % 2]] for n in lengths]
    rows = []
    with any_lm.model.register_forward_pre_hook(lambda model, inputs: rows.append(len(inputs[0]))):
        together = score(any_lm, requests, responses)
    assert rows == [4]
    alone = [score(any_lm, [one], [response]) for one, response in zip(requests, responses, strict=True)]
    assert_alike(together, pd.concat(alone, ignore_index=True))


@pytest.mark.parametrize("most", [1, 5000])
def test_a_long_response_is_read_in_parts_to_the_same_numbers(lm, monkeypatch, most):
    requests, responses = drawn(lm, 4)
    at_once, sizes = score(lm, requests, responses), []
    monkeypatch.setattr(teacher_forcing, "LOGITS_AT_ONCE", most)
    with lm.model.register_forward_hook(lambda model, inputs, read: sizes.append(read.logits.numel())):
        assert_alike(score(lm, requests, responses), at_once)
    assert max(sizes) <= max(most, lm.vocab_size), "one position, or what is allowed"


def test_what_is_kept_is_relative_to_the_largest():
    """Logits 3, 1, 0 of which one is kept: of the rest log(e^-2/t + e^-3/t), below 0, at every temperature."""
    values, ids, curve = teacher_forcing.compress_logits(torch.tensor([[1.0, 3.0, 0.0]]), 1, 5)
    assert values.tolist() == [[3.0]] and ids.tolist() == [[1]]
    t = temperatures(5)
    assert (t[0], t[-1]) == pytest.approx((0.1, 20)) and curve.shape == (1, 5)
    assert curve[0].numpy() == pytest.approx(np.log(np.exp(-2 / t) + np.exp(-3 / t)), rel=1e-5)
    top, *_ = teacher_forcing.compress_logits(torch.tensor([[1.0, 3.0, 0.0]]), 9, 5)
    assert top.tolist() == [[3.0, 1.0]], "one is left over"


def test_a_token_that_another_engine_drew_beyond_the_nucleus_has_a_log_probability():
    """One that is drawn from rounded logits may be truncated here; it is no impossible one."""
    spec = params.load_model_config("tiny-llama").model_copy(update={"temperature": 0.5, "top_k": 2, "top_p": 1.0})
    logits = torch.tensor([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]])
    found = teacher_forcing.gather_sampling_logprobs(logits, torch.tensor([1, 2]), spec)
    expected = [(2 * logits[0, :2]).log_softmax(-1)[1], (2 * logits[1]).log_softmax(-1)[2]]
    torch.testing.assert_close(found, torch.stack(expected))


# ---- half precision: the last layer gives float32 logits


@pytest.fixture(scope="module", params=["tiny-llama", pytest.param("tiny-qwen", marks=pytest.mark.slow)])
def half(request):
    return load(request.param, dtype="bfloat16")


def test_half_precision_says_so_and_float32_is_left_alone(half):
    layer = half.model.get_output_embeddings()
    assert layer._forward_hooks and half.facts["logits"] == "float32" and type(layer) is torch.nn.Linear
    assert layer.weight.dtype == torch.bfloat16  # tied or not, the weights are what they were
    whole = load("tiny-llama")
    assert "logits" not in whole.facts and not give_float32_logits(whole.model)


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
    frame = respond(half, 4, max_new_tokens=80, top_logits=64)
    chosen = np.concatenate(frame.chosen_logit)
    assert not np.array_equal(chosen, torch.tensor(chosen).bfloat16().float().numpy())
    for row in frame.itertuples():
        prompt, response = models.encode(half, row.prompt), row.token_ids.tolist()
        read = plain_logits(half, prompt + response)[len(prompt) - 1 : -1]
        kept, places = row.kept_positions, range(len(response))
        logprobs = read.log_softmax(-1)[places, response]
        np.testing.assert_allclose(row.token_logprobs, logprobs, atol=0.1)  # other sums in the layers before
        np.testing.assert_allclose(row.chosen_logit, read[places, response][kept], atol=0.5)
        at_one = np.logaddexp.reduce(np.stack(row.top_logits), axis=1)  # the rest has next to nothing
        np.testing.assert_allclose(row.chosen_logit - at_one, row.token_logprobs[kept], atol=2e-3)
    assert not float32_logits.rounding


def test_a_model_that_scales_its_logits_afterwards():
    network, ids = random("gemma2", final_logit_softcapping=2.0).model.bfloat16(), torch.tensor([list(range(5, 30))])
    rounded = network(ids).logits.float()
    assert give_float32_logits(network) and rounded.abs().max() > 1.5, "near the cap"
    exact = network(ids).logits
    assert exact.dtype == torch.float32 and not torch.equal(exact, exact.bfloat16().float())
    torch.testing.assert_close(exact, rounded, atol=0.05, rtol=0)
