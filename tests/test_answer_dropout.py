"""MC dropout at the answer only: against a plain forward of the whole trajectory whose masks are empty elsewhere."""

import architectures
import numpy as np
import pytest
import torch
from test_dropout import generations, state
from torch.overrides import TorchFunctionMode

from lib.generate import answer_dropout, dropout, room
from lib.params import Dropout
from lib.project import UserError
from lib.streams import stream_seed
from lib.tasks import answers

PASSES = Dropout(seed=1, dropout_passes=3)
ALONE = PASSES.model_copy(update={"dropout_tokens": 1})  # a row at a time
TERMS = ("predictive", "conditional")


@pytest.fixture(scope="module", params=[*architectures.NAMES, "sliding"])
def any_lm(request):
    """`sliding`: a model whose cache forgets all but the last tokens."""
    if request.param == "sliding":
        return architectures.random("mistral", sliding_window=12)
    return architectures.load(request.param)


@pytest.fixture(scope="module")
def frame(any_lm):
    return generations(any_lm)


class LastRows(TorchFunctionMode):
    """Dropout that touches the last m positions of one whole trajectory alone, by numbers drawn anew: entries fall
    where 16 bits of one Philox stream, at the key, are below p."""

    def __init__(self, key, m):
        super().__init__()
        self.m, self.site, self.stream = m, 0, np.random.Philox(key=np.array(key, np.uint64))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (self.drop if func is torch.nn.functional.dropout else func)(*args, **(kwargs or {}))

    def drop(self, x, p=0.5, training=True, inplace=False):
        if not training:
            return x
        part = x[0, ..., -self.m :, :]  # (heads, m, n) or (m, width)
        bits = self.stream.random_raw(-(-part.numel() // 4)).tobytes()
        below = np.frombuffer(bits, np.uint16)[: part.numel()] < round(p * 65536)
        self.site += 1
        x = x.clone()
        x[0, ..., -self.m :, :] = part.masked_fill(torch.from_numpy(below).view(part.shape), 0) / (1 - p)
        return x


def whole(lm, row, rate, passes=3):
    """Probabilities (T, m, V) float64 at the answer: one whole forward a pass, without cache or padding."""
    start, end = answers.answer_span(row)
    ids = lm.tokenizer(row.prompt, add_special_tokens=False).input_ids + row.token_ids.tolist()[: end - 1]
    seed, found = stream_seed(1, lm.name, row.dataset, row.example_id), []
    for t in range(passes):
        with dropout.enabled(lm.model, rate), torch.inference_mode(), LastRows((seed, t), end - start) as masks:
            found.append(lm.model(torch.tensor([ids]), use_cache=False).logits[0, start - end :].double().softmax(-1))
        assert masks.site >= lm.model.config.num_hidden_layers
    return torch.stack(found).numpy()


def entropy(p):
    return -(p * np.log(p)).sum(-1)


def test_passes_on_the_cache_are_whole_passes_that_drop_at_the_answer_only(any_lm, frame):
    """Rows of several lengths in one batch, behind their common beginning, at two rates."""
    work = [(row, rate) for row in range(len(frame)) for rate in (0.15, 0.4)]
    found = answer_dropout.disagreement(any_lm, frame, work, PASSES)
    lengths = {len(row.prompt) + len(row.token_ids) for row in frame.itertuples()}
    assert len(lengths) > 1 and found.rate.tolist() == [rate for _, rate in work]
    assert max(np.max(row.predictive[-1] - row.conditional[-1]) for row in found.itertuples()) > 1e-3
    for (place, rate), row in zip(work, found.itertuples(), strict=True):
        p = whole(any_lm, frame.iloc[place], rate)
        for t in range(3):
            np.testing.assert_allclose(row.predictive[t], entropy(p[: t + 1].mean(0)), atol=1e-5)
            np.testing.assert_allclose(row.conditional[t], entropy(p[: t + 1]).mean(0), atol=1e-5)
        np.testing.assert_array_equal(row.top_changed, [len(set(column)) > 1 for column in p.argmax(-1).T])


def test_a_row_does_not_depend_on_the_batch(any_lm, frame):
    """Neither on the other rows, on the budget (here a row at a time), on other rates, nor on how many passes."""
    together = answer_dropout.disagreement(any_lm, frame, [(i, r) for r in (0.1, 0.2) for i in range(4)], PASSES)
    alone = answer_dropout.disagreement(any_lm, frame, [(2, 0.2)], ALONE).iloc[0]
    more = PASSES.model_copy(update={"dropout_passes": 5})
    longer = answer_dropout.disagreement(any_lm, frame, [(3, 0.2), (2, 0.2)], more).iloc[1]
    same = together[(together.example_id == alone.example_id) & (together.rate == 0.2)].iloc[0]
    for name in TERMS:
        np.testing.assert_allclose(np.stack(same[name]), np.stack(alone[name]), atol=1e-5)
        np.testing.assert_allclose(np.stack(longer[name])[:3], np.stack(alone[name]), atol=1e-5)


@pytest.mark.parametrize("kernel", ["keyed", "fused"])
def test_a_rate_of_zero_is_no_disagreement(any_lm, frame, kernel):
    """Every pass is then the model in evaluation mode; and at any rate the model is left as it was."""
    before, settings = state(any_lm.model), PASSES.model_copy(update={"dropout_kernel": kernel})
    still, moved = (answer_dropout.disagreement(any_lm, frame, [(0, rate), (1, rate)], settings) for rate in (0.0, 0.3))
    for row in still.itertuples():
        np.testing.assert_allclose(np.stack(row.predictive), np.stack(row.conditional), atol=1e-6)
        assert not row.top_changed.any()
    np.testing.assert_allclose(still.predictive[0][0], entropy(whole(any_lm, frame.iloc[0], 0.0, 1))[0], atol=2e-5)
    assert (moved.predictive[0][2] - moved.conditional[0][2]).max() > 1e-4 and state(any_lm.model) == before


def test_nothing_before_the_answer_is_dropped(any_lm, frame, monkeypatch):
    """Every dropout site sees the answer's tokens alone, once for each of the passes that stand side by side."""
    seen, drop = set(), dropout.Masks.drop
    monkeypatch.setattr(dropout.Masks, "drop", lambda self, x, *a, **k: seen.add(x.shape[-2]) or drop(self, x, *a, **k))
    answer_dropout.disagreement(any_lm, frame, [(0, 0.2)], PASSES)
    start, end = answers.answer_span(frame.iloc[0])
    assert len(seen) == 1 and seen.pop() in (end - start, 3 * (end - start))


def test_what_rows_begin_with_is_encoded_once(any_lm, frame, monkeypatch):
    """In as many batches as there are; and a single row, or a cache that forgets, is encoded as it is."""
    lengths, forward = [], any_lm.model.forward
    monkeypatch.setattr(any_lm.model, "forward", lambda ids, **k: lengths.append(tuple(ids.shape)) or forward(ids, **k))
    answer_dropout.disagreement(any_lm, frame, [(i, 0.2) for i in range(4)], ALONE)
    prompts = [any_lm.tokenizer(text, add_special_tokens=False).input_ids for text in frame.prompt]
    shared = next(i for i, tokens in enumerate(zip(*prompts, strict=False)) if len(set(tokens)) > 1)
    shared = 0 if any_lm.model.config.to_dict().get("sliding_window") else shared
    spans = [answers.answer_span(row) for row in frame.itertuples()]
    before = [len(ids) + start - 1 - shared for ids, (start, _) in zip(prompts, spans, strict=True)]
    encodings = [shape for shape in lengths if shape[1] > max(3 * (end - start) for start, end in spans)]
    assert sorted(encodings) == sorted((1, length) for length in [shared, *before] if length)


def test_endless_numbers_have_fewer_rows_and_passes_side_by_side(any_lm, frame, monkeypatch):
    """As many as a bound on logits allows, to the same numbers."""
    work = [(row, 0.2) for row in range(4)]
    whole = answer_dropout.disagreement(any_lm, frame, work, PASSES)
    start, end = answers.answer_span(frame.iloc[0])
    read, reading, most = [], answer_dropout.reading, 2 * (end - start)
    monkeypatch.setattr(answer_dropout, "MOST", most * any_lm.model.config.vocab_size)
    monkeypatch.setattr(answer_dropout, "reading", lambda lm, before, rows, kernel: read.append(rows)
                        or reading(lm, before, rows, kernel))  # fmt: skip
    parts = answer_dropout.disagreement(any_lm, frame, work, PASSES)
    assert sum(len(rows) * len(rows[0]) for rows in read) == 12
    for rows in read:
        alone = len(rows) == len(rows[0]) == 1
        assert alone or len(rows) * len(rows[0]) * max(passes[0].answer for passes in rows) <= most
    for name in TERMS:
        for ours, theirs in zip(parts[name], whole[name], strict=True):
            np.testing.assert_allclose(np.stack(ours), np.stack(theirs), atol=3e-5)


@pytest.mark.parametrize("ends", ["reading", "adding"])
def test_where_memory_ends_rows_are_read_in_halves_to_the_same_numbers(any_lm, frame, monkeypatch, ends):
    """Before anything of a batch was added, or when half of its rows were, at the second of two rates."""
    work = [(row, rate) for row in range(4) for rate in (0.1, 0.3)]
    whole = answer_dropout.disagreement(any_lm, frame, work, PASSES)
    reading, add, calls = answer_dropout.reading, answer_dropout.Disagreement.add, []

    def short(lm, before, rows, kernel):
        if len(rows) > 2 and ends == "reading":
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return reading(lm, before, rows, kernel)

    def fails_once(state, logits):
        calls.append(len(logits))
        if len(calls) == 7 and ends == "adding":
            raise torch.OutOfMemoryError("CUDA out of memory.")
        add(state, logits)

    monkeypatch.setattr(room, "HALVED", [])
    monkeypatch.setattr(answer_dropout, "reading", short)
    monkeypatch.setattr(answer_dropout.Disagreement, "add", fails_once)
    found = answer_dropout.disagreement(any_lm, frame, work, PASSES)
    assert room.HALVED == [4] and sum(calls) == 3 * len(work) + (calls[0] if ends == "adding" else 0)
    for name in TERMS:
        for ours, theirs in zip(found[name], whole[name], strict=True):
            np.testing.assert_allclose(np.stack(ours), np.stack(theirs), atol=1e-5)
    monkeypatch.setattr(answer_dropout, "reading", lambda *args: (_ for _ in ()).throw(torch.OutOfMemoryError))
    with pytest.raises(UserError, match="memory ends at a single row"):
        answer_dropout.disagreement(any_lm, frame, work, PASSES)
