"""Passes over the tokens before the question that all rows share: the same masks, whoever reads them."""

import architectures
import numpy as np
import pytest
import torch
from test_dropout import PASSES, generations

from lib.generate import dropout, opening, scopes
from lib.streams import stream_seed

SHARED = PASSES.model_copy(update={"dropout_opening": "shared"})


@pytest.fixture(scope="module", params=architectures.NAMES)
def any_lm(request):
    return architectures.load(request.param)


@pytest.fixture(scope="module")
def frame(any_lm):
    return generations(any_lm)


class InTwo(dropout.Masks):
    """Masks of a whole sequence, the oracle: over the first `start` tokens of one key, behind them of another."""

    def __init__(self, first, second, start, length):
        super().__init__([second], [length])
        self.first, self.start = dropout.Masks([first], [start]), start

    def fill(self, keep, row, p):
        start, n = self.start, self.lengths[row]
        self.first.site = self.site
        if keep.ndim == 3:
            self.first.fill(keep[:, :start, :start], 0, p)
            behind = np.zeros((keep.shape[0], n - start, n), dtype=bool)
        else:
            self.first.fill(keep[:start], 0, p)
            behind = np.zeros((n - start, keep.shape[1]), dtype=bool)
        rest = dropout.Masks([self.keys[row]], [n - start], start)
        rest.site = self.site
        rest.fill(behind, 0, p)
        keep[..., start:n, :] = behind


def test_it_is_what_one_plain_forward_gives_with_these_masks(any_lm, frame):
    """Two forwards, the second behind the cache of the first, against one over the whole sequence."""
    found = dropout.disagreement(any_lm, frame, [(0, 0.2), (1, 0.2)], SHARED)
    for place in (0, 1):
        row = frame.iloc[place]
        one = dropout.passes_over(any_lm, row, place, SHARED)[0]
        assert 10 < len(one.opening) < len(one.ids)
        p = []
        for t in range(3):
            keys = (stream_seed(1, any_lm.name, "opening"), t), (one.key[0], t)
            masks = InTwo(*keys, len(one.opening), len(one.ids))
            with dropout.enabled(any_lm.model, 0.2), torch.inference_mode(), masks:
                logits = any_lm.model(torch.tensor([one.ids])).logits[0]
            p.append(logits[-one.answer :].double().softmax(-1))
        p = torch.stack(p)
        np.testing.assert_allclose(found.predictive[place][-1], torch.special.entr(p.mean(0)).sum(-1), atol=1e-5)
        np.testing.assert_allclose(found.conditional[place][-1], torch.special.entr(p).sum(-1).mean(0), atol=1e-5)


def test_a_row_does_not_depend_on_the_others(any_lm, frame):
    """Neither on the batch, on how many are asked for, nor on other rates; masks of its own give other numbers."""
    work = [(i, rate) for rate in (0.1, 0.2) for i in range(len(frame))]
    together = dropout.disagreement(any_lm, frame, work, SHARED)
    alone = dropout.disagreement(any_lm, frame, [(2, 0.2)], SHARED.model_copy(update={"dropout_tokens": 1})).iloc[0]
    same = together[(together.example_id == alone.example_id) & (together.rate == 0.2)].iloc[0]
    np.testing.assert_allclose(np.stack(same.predictive), np.stack(alone.predictive), atol=1e-5)
    more = dropout.disagreement(any_lm, frame, [(2, 0.2)], SHARED.model_copy(update={"dropout_passes": 4})).iloc[0]
    np.testing.assert_allclose(np.stack(more.predictive)[:3], np.stack(alone.predictive), atol=1e-5)
    own = dropout.disagreement(any_lm, frame, [(2, 0.2)], PASSES).iloc[0]
    assert not np.allclose(np.stack(own.predictive), np.stack(alone.predictive), atol=1e-4)


def test_the_opening_is_read_once_a_pass_and_rate(any_lm, frame, monkeypatch):
    lengths, forward = [], any_lm.model.forward
    monkeypatch.setattr(any_lm.model, "forward", lambda ids=None, *a, **k: lengths.append(
        tuple((ids if ids is not None else k["input_ids"]).shape)) or forward(ids, *a, **k))  # fmt: skip
    dropout.disagreement(any_lm, frame, [(i, r) for r in (0.1, 0.2) for i in range(3)], SHARED)
    start = len(opening.before_question(any_lm, frame.iloc[0]))
    assert lengths.count((1, start)) == 2 * 3, "rates, passes"
    longest = max(len(dropout.passes_over(any_lm, frame.iloc[i], i, SHARED)[0].ids) for i in range(3))
    assert all(width <= longest - start for rows, width in lengths if (rows, width) != (1, start))


@pytest.mark.parametrize("kernel", ["keyed", "fused"])
def test_it_repeats(any_lm, frame, kernel):
    settings = SHARED.model_copy(update={"dropout_kernel": kernel})
    first, second = (dropout.disagreement(any_lm, frame, [(0, 0.1), (1, 0.1)], settings) for _ in range(2))
    for name in ("predictive", "conditional"):
        assert all(np.array_equal(a, b) for a, b in zip(first[name], second[name], strict=True))


def test_a_prompt_without_the_question_has_no_opening(any_lm, frame):
    """It is passed over as a whole, with masks of its own."""
    assert opening.before_question(any_lm, frame.iloc[0])
    for question in ("", "never asked"):
        assert opening.before_question(any_lm, frame.assign(question=question).iloc[0]) == ()
    other = frame.assign(question="")
    own, shared = (dropout.disagreement(any_lm, other, [(0, 0.1)], one).iloc[0] for one in (PASSES, SHARED))
    assert np.array_equal(np.stack(own.predictive), np.stack(shared.predictive))


def test_a_token_that_reaches_into_the_question_is_not_shared(any_lm, frame, monkeypatch):
    """As a newline and the spaces that a question begins with may be one token."""
    row = frame.iloc[0]
    encode = opening.models.encode
    whole = encode(any_lm, row.prompt)
    head = row.prompt.rpartition(row.question)[0]
    monkeypatch.setattr(opening.models, "encode",
                        lambda lm, text: [*encode(lm, head)[:-1], 7] if text == head else encode(lm, text))  # fmt: skip
    found = opening.before_question(any_lm, row)
    assert found == tuple(whole[: len(found)]) and len(found) == len(encode(any_lm, head)) - 1


def test_a_cache_that_forgets_is_not_shared(any_lm, frame, monkeypatch):
    monkeypatch.setattr(opening, "forgets", lambda lm: True)
    assert opening.before_question(any_lm, frame.iloc[0]) == ()


def test_only_rows_of_the_trajectory_hang_on_it():
    """Rows at the answer are kept, whatever is said of the opening, and so are those of before it could be said."""
    facts = {kind: {"sites": 1, "parameters": {"dropout_opening": kind, "dropout_passes": 10}}
             for kind in ("own", "shared")}  # fmt: skip
    before = {"sites": 1, "parameters": {"dropout_passes": 10}}
    assert scopes.telling("answer", facts["own"]) == scopes.telling("answer", facts["shared"]) == before
    assert scopes.telling("trajectory", facts["own"]) == before
    assert scopes.telling("trajectory", facts["shared"]) == facts["shared"]
    assert facts["own"]["parameters"]["dropout_opening"] == "own", "what is given stays as it is"
