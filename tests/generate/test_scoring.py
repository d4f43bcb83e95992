"""One teacher-forced pass against plain forward passes, the shipped signals, and itself in other batches."""

import dataclasses
import types

import architectures
import numpy as np
import pytest
import torch

from lib import params, store
from lib.generate import generation, models, p_true, sampling, scoring
from lib.generate.temperatures import temperatures
from lib.params import Generation
from lib.paths import SHIPPED
from lib.tasks import datasets

SETTINGS = Generation(seed=3, demonstration="none", max_new_tokens=60, top_logits=16, n_temperature_nodes=9)
FAMILIES = ["qwen2", "gemma2", "gpt2", "sliding"]  # Llama's and Qwen3's are the demo models
NEAR = {"token_logprobs": 5e-5, "token_logprobs_sampling": 5e-5, "chosen_logit": 5e-5, "top_logits": 5e-5,
        "tail_curve": 5e-4, "in_situ_logits": 5e-5}  # fmt: skip


def build(lm, count=6, settings=SETTINGS):
    return generation.build_requests(lm, "demo-hard", architectures.examples("demo-hard", count), settings)


def near(found, expected):
    """Scores of the same responses, column by column."""
    for one, other in zip(found, expected, strict=True):
        assert one["located"] == other["located"]
        assert np.array_equal(one["kept_positions"], other["kept_positions"])
        assert np.array_equal(np.stack(one["top_ids"]), np.stack(other["top_ids"]))
        for column, tolerance in NEAR.items():
            np.testing.assert_allclose(np.stack(one[column]), np.stack(other[column]), atol=tolerance, err_msg=column)


def score(lm, requests, responses, settings=SETTINGS):
    return scoring.score_responses(lm, requests, responses, settings)


def drawn(lm, count=6, settings=SETTINGS):
    requests = build(lm, count, settings)
    return requests, sampling.TransformersEngine(lm, settings.max_batch_tokens).sample(requests)


SLOW = (pytest.param(name, marks=pytest.mark.slow) for name in ("demo-easy", "demo-hard"))


@pytest.mark.parametrize("dataset", ["demo-medium", *SLOW])
def test_seeded_draws_are_the_shipped_ones(lm, dataset):
    """Every token, and log-probabilities, kept logits and verdicts within float32's rounding."""
    place = SHIPPED / "generations" / f"{lm.name}__{dataset}.parquet"
    shipped = store.read_frame(place).merge(store.read_frame(SHIPPED / "in_situ" / place.name), on=store.KEYS).head(60)
    by_id = {example.example_id: example for example in datasets.load_examples(params.load_dataset_config(dataset))}
    settings = Generation.of(store.read_manifest(place)["parameters"])
    frame = generation.generate_responses(lm, dataset, [by_id[name] for name in shipped.example_id], settings)
    assert list(map(list, frame.token_ids)) == list(map(list, shipped.token_ids))
    assert set(frame.columns.drop(p_true.IN_SITU_COLUMNS)) == set(store.read_frame(place))
    for column in ("kept_positions", *NEAR):
        for one, other in zip(frame[column], shipped[column], strict=True):
            np.testing.assert_allclose(np.stack(one), np.stack(other), atol=NEAR.get(column, 0), err_msg=column)
    np.testing.assert_allclose(frame.in_situ_logz, shipped.in_situ_logz, atol=5e-5)
    for column in ("answer", "answer_start", "answer_end", "last_number_start", "finish_reason", "eos", "text", "seed"):
        assert frame[column].tolist() == shipped[column].tolist(), column


def family(name):
    lm = architectures.random(name)
    for parameter in lm.model.parameters():  # as small as real logits are
        parameter.data.div_((2 if name == "gpt2" else 4) if parameter.dim() > 1 else 1)
    return lm


@pytest.mark.parametrize("name", FAMILIES)
def test_a_pass_is_a_plain_encoding_and_a_continued_cache(name):
    """Rows of several lengths, side by side and in chunks; sliding windows that are shorter than the padding."""
    lm = family(name)
    lengths = (40, 7, 25, 1)
    responses = [[*range(5, 5 + n), *lm.eos[: i % 2]] for i, n in enumerate(lengths)]
    for requests in (build(lm, 4), build(lm, 4, SETTINGS.model_copy(update={"demonstration": "few"}))):
        scores = score(lm, requests, responses)
        for request, response, row in zip(requests, responses, scores, strict=True):
            body = response[:-1] if response[-1] in lm.eos else response
            query = p_true.query_ids(lm)
            with torch.inference_mode():
                logits = lm.model(torch.tensor([[*request.prompt_ids, *body, *query]]), use_cache=False).logits[0]
            logprobs = logits[len(request.prompt_ids) - 1 :][: len(response)].log_softmax(-1)
            expected = logprobs.gather(-1, torch.tensor(response)[:, None])[:, 0]
            np.testing.assert_allclose(row["token_logprobs"], expected, atol=5e-5)
            options = logits[-1][list(p_true.option_tokens(lm).values())]
            np.testing.assert_allclose(row["in_situ_logits"], options, atol=5e-5)
            np.testing.assert_allclose(row["in_situ_logz"], logits[-1].double().logsumexp(-1), atol=5e-5)
            asked = types.SimpleNamespace(prompt=request.prompt, token_ids=body, eos=0)
            verdict, _ = p_true.ask_in_situ_on_cache(lm, asked)
            np.testing.assert_allclose(row["in_situ_logits"], verdict["logits"], atol=5e-5)


@pytest.mark.parametrize("logits", [1, 5000])
def test_chunks_and_batches_change_nothing_but_the_last_digits(lm, monkeypatch, logits):
    requests, responses = drawn(lm)
    together = score(lm, requests, responses)
    near([score(lm, [one], [ids])[0] for one, ids in zip(requests, responses, strict=True)], together)
    near(score(lm, requests[::-1], responses[::-1])[::-1], together)
    sizes, sampled = [], scoring.gather_sampling_logprobs
    monkeypatch.setattr(
        scoring, "gather_sampling_logprobs", lambda some, *more: sizes.append(some.numel()) or sampled(some, *more)
    )
    monkeypatch.setattr(scoring, "LOGITS_AT_ONCE", logits)
    near(score(lm, requests, responses), together)
    assert max(sizes) <= max(logits, lm.vocab_size), "one position, or what is allowed"


def test_a_beginning_that_is_encoded_once_changes_nothing(lm):
    requests, responses = drawn(lm, settings=SETTINGS.model_copy(update={"demonstration": "few"}))
    assert requests[0].shared_tokens > 100
    near(
        score(lm, [dataclasses.replace(one, shared_tokens=0) for one in requests], responses),
        score(lm, requests, responses),
    )


def test_a_shared_beginning_is_encoded_once(monkeypatch):
    """Whatever the batches: of rows that are scored alone, too."""
    spec = params.load_model_config("tiny-llama").model_copy(update={"dtype": "bfloat16"})
    lm = models.load_language_model("tiny-llama", spec)
    requests, responses = drawn(lm, 4, SETTINGS.model_copy(update={"demonstration": "few"}))
    encoded, forward = [], lm.model.forward
    monkeypatch.setattr(lm.model, "forward", lambda ids, **more: encoded.append(ids.numel()) or forward(ids, **more))
    score(lm, requests, responses)
    shared, query = requests[0].shared_tokens, len(p_true.query_ids(lm))
    rest = sum(len(one.prompt_ids) - shared + len(ids) + query for one, ids in zip(requests, responses, strict=True))
    assert sum(encoded) == shared + rest - sum(ids[-1] in lm.eos for ids in responses)


def test_under_every_warper(lm):
    """Sampling log-probabilities are those of the warped logits of one plain pass."""
    warped = {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.05}
    lm = dataclasses.replace(lm, spec=lm.spec.model_copy(update=warped))
    requests, responses = drawn(lm, 3)
    for request, response, row in zip(requests, responses, score(lm, requests, responses), strict=True):
        with torch.inference_mode():
            logits = lm.model(torch.tensor([request.prompt_ids + response])).logits[0, len(request.prompt_ids) - 1 : -1]
        expected = sampling.apply_warpers(logits, lm.spec).log_softmax(-1)
        expected = expected.gather(-1, torch.tensor(response)[:, None])[:, 0]
        np.testing.assert_allclose(row["token_logprobs_sampling"], expected, atol=1e-4)
        assert np.isfinite(row["token_logprobs_sampling"]).all()


def test_what_is_kept_is_relative_to_the_largest():
    """Logits 3, 1, 0 of which one is kept: of the rest log(e^-2/t + e^-3/t), below 0, at every temperature."""
    values, ids, curve = scoring.compress_logits(torch.tensor([[1.0, 3.0, 0.0]]), 1, 5)
    assert values.tolist() == [[3.0]] and ids.tolist() == [[1]]
    t = temperatures(5)
    assert (t[0], t[-1]) == pytest.approx((0.1, 20)) and curve.shape == (1, 5)
    assert curve[0].numpy() == pytest.approx(np.log(np.exp(-2 / t) + np.exp(-3 / t)), rel=1e-5)
    top, *_ = scoring.compress_logits(torch.tensor([[1.0, 3.0, 0.0]]), 9, 5)
    assert top.tolist() == [[3.0, 1.0]], "one is left over"


def test_in_half_precision_a_row_has_the_bytes_that_it_has_alone():
    spec = params.load_model_config("tiny-llama").model_copy(update={"dtype": "bfloat16"})
    lm = models.load_language_model("tiny-llama", spec)
    requests, responses = drawn(lm, 3)
    together, alone = score(lm, requests, responses), score(lm, requests[2:], responses[2:])
    assert np.array_equal(together[2]["token_logprobs"], alone[0]["token_logprobs"])
    assert np.array_equal(together[2]["in_situ_logits"], alone[0]["in_situ_logits"])


def test_a_token_that_another_engine_drew_beyond_the_nucleus_has_a_log_probability():
    """One that is drawn from rounded logits may be truncated here; it is no impossible one."""
    spec = params.load_model_config("tiny-llama").model_copy(update={"temperature": 0.5, "top_k": 2, "top_p": 1.0})
    logits = torch.tensor([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]])
    found = scoring.gather_sampling_logprobs(logits, torch.tensor([1, 2]), spec)
    expected = [(2 * logits[0, :2]).log_softmax(-1)[1], (2 * logits[1]).log_softmax(-1)[2]]
    torch.testing.assert_close(found, torch.stack(expected))
