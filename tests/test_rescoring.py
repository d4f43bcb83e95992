"""One teacher-forced pass says of given tokens what decoding said of them when it drew them (float32, CPU)."""

import architectures
import numpy as np
import pytest
import torch

from lib import params
from lib.generate import p_true, rescoring, responses
from lib.params import Generation
from lib.project import UserError
from lib.tasks import datasets

SETTINGS = Generation(seed=3, demonstration="none", max_new_tokens=60, top_logits=16, curve_nodes=9)
EXACT = ["example_id", "answer", "answer_start", "answer_end", "last_number_start", "text", "finish_reason", "eos"]
NEAR = {"token_logprobs": 5e-5, "token_logprobs_sampling": 5e-5, "chosen_logit": 1e-4, "top_logits": 1e-4,
        "tail_curve": 5e-4, "in_situ_logits": 1e-4}  # fmt: skip


def examples(count, dataset="demo-hard"):
    return datasets.load_examples(params.load_dataset(dataset))[:count]


def drawn(lm, count=6, settings=SETTINGS):
    """A frame as decoding leaves it, and what it was asked."""
    asked = [responses.request(lm, "demo-hard", example, settings) for example in examples(count)]
    return responses.respond(lm, "demo-hard", examples(count), settings, alive=p_true.live), asked


def agree(found, expected):
    for column in EXACT:
        assert found[column].tolist() == expected[column].tolist(), column
    for column in ("token_ids", "kept_positions", "top_ids"):
        assert all(np.array_equal(np.stack(a), np.stack(b))
                   for a, b in zip(found[column], expected[column], strict=True)), column  # fmt: skip
    for column, tolerance in NEAR.items():
        for a, b in zip(found[column], expected[column], strict=True):
            np.testing.assert_allclose(np.stack(a), np.stack(b), atol=tolerance, err_msg=column)


def test_as_decoding_left_it(lm):
    """Own and sampling log-probabilities, kept logits, spans and in-situ verdicts, of whole and of cut responses."""
    lengths = drawn(lm, settings=SETTINGS.model_copy(update={"max_new_tokens": 200}))[0].token_ids.map(len)
    settings = SETTINGS.model_copy(update={"max_new_tokens": int(lengths.median())})
    frame, asked = drawn(lm, settings=settings)
    assert {"stop", "length"} == set(frame.finish_reason)
    agree(rescoring.respond(lm, "demo-hard", asked, list(map(list, frame.token_ids)), settings), frame)


def test_under_every_warper(lm):
    lm.spec = lm.spec.model_copy(update={"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.02})
    frame, asked = drawn(lm, 4)
    found = rescoring.respond(lm, "demo-hard", asked, list(map(list, frame.token_ids)), SETTINGS)
    agree(found, frame)
    assert not np.allclose(found.token_logprobs[0], found.token_logprobs_sampling[0])


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_change_nothing_but_the_last_digits(lm, monkeypatch, chunk):
    frame, asked = drawn(lm, 3)
    monkeypatch.setattr(rescoring, "CHUNK", chunk)
    agree(rescoring.respond(lm, "demo-hard", asked, list(map(list, frame.token_ids)), SETTINGS), frame)


def test_a_row_by_itself_has_the_same_bytes(lm):
    frame, asked = drawn(lm, 3)
    ids = list(map(list, frame.token_ids))
    together = rescoring.respond(lm, "demo-hard", asked, ids, SETTINGS)
    alone = rescoring.respond(lm, "demo-hard", asked[2:], ids[2:], SETTINGS)
    assert np.array_equal(together.token_logprobs[2], alone.token_logprobs[0])
    assert np.array_equal(together.in_situ_logits[2], alone.in_situ_logits[0])


@pytest.mark.parametrize("name", [*architectures.NAMES, "sliding"])
def test_caches_that_forget_and_others(name):
    """Against one plain forward pass over the whole trajectory, on architectures with sliding windows, too."""
    lm = architectures.random("mistral", sliding_window=16) if name == "sliding" else architectures.load(name)
    (asked,) = [responses.request(lm, "demo-hard", example, SETTINGS) for example in examples(1)]
    ids = [*range(5, 45), lm.eos[0]]
    batch, verdict = rescoring.rescored(lm, asked, ids, SETTINGS)
    with torch.inference_mode():
        logits = lm.model(torch.tensor([asked.prompt_ids + ids])).logits[0].float().log_softmax(-1)
        expected = [float(logits[len(asked.prompt_ids) + i - 1, token]) for i, token in enumerate(ids)]
    np.testing.assert_allclose(batch.logprobs[0], expected, atol=1e-4)
    (plain,) = p_true.encoded(lm, [asked.prompt_ids + ids[:-1] + p_true.query(lm)])
    np.testing.assert_allclose(verdict["logits"], plain["logits"], atol=1e-4)


def test_a_response_that_ends_at_once(lm):
    (asked,) = [responses.request(lm, "demo-hard", example, SETTINGS) for example in examples(1)]
    (row,) = rescoring.respond(lm, "demo-hard", [asked], [[lm.eos[0]]], SETTINGS).itertuples()
    assert (row.text, row.eos, row.finish_reason, list(row.kept_positions)) == ("", 1, "stop", [0])
    with torch.inference_mode():
        logits = lm.model(torch.tensor([asked.prompt_ids])).logits[0, -1]
    assert row.reencoded == 0 and row.chosen_logit[0] == pytest.approx(float(logits[lm.eos[0]]), abs=1e-4)
    assert row.token_logprobs[0] == pytest.approx(float(logits.log_softmax(-1)[lm.eos[0]]), abs=1e-4)


def test_logits_that_are_not_finite_are_refused_with_the_row(lm):
    (asked,) = [responses.request(lm, "demo-hard", example, SETTINGS) for example in examples(1)]
    lm.model.get_output_embeddings().weight.data[:] = float("nan")
    with pytest.raises(UserError, match=f"logits of row {asked.example.example_id} are not finite"):
        rescoring.respond(lm, "demo-hard", [asked], [[5, lm.eos[0]]], SETTINGS)
