"""Responses token by token: probabilities that are the model's, shades that hold in gray, words that stay words."""

import re

import numpy as np
import pytest
from cases import STRINGS

from lib import store
from lib.analysis import token_statistics
from lib.paper import response_views
from lib.paths import ROOT, SHIPPED
from lib.score.interpretation import interpret_responses

MODELS, DATASETS = ("tiny-llama", "tiny-qwen"), ("demo-easy", "demo-medium")
LOUD = " ".join(STRINGS)


@pytest.fixture(scope="module")
def generations():
    return store.load_frames("shipped", "generations", MODELS, DATASETS)[0]


@pytest.fixture(scope="module")
def chosen(generations):
    return [*response_views.most_and_least_confident(interpret_responses(generations))]


@pytest.fixture(scope="module")
def followed(generations):
    return token_statistics.choose_example(interpret_responses(generations), "medium-0355", "tiny-llama", "demo-medium")


def view_of(generations, one, most=10_000):
    return response_views.view_tokens(generations, one, response_views.load_token_speller(one.model), most)


def test_probabilities_are_those_of_the_frame(generations, followed):
    row = token_statistics.rows_of_example(generations, followed).iloc[0]
    view = view_of(generations, followed)
    tokens, p = view["tokens"], np.exp(row.token_logprobs[: len(view["tokens"])])
    assert [float(token["tip"].split(":")[0]) for token in tokens] == pytest.approx(p, abs=6e-5)
    for i in range(*followed.span):
        listed = dict(said.rsplit(" ", 1) for said in reversed(tokens[i]["tip"].split(": ", 1)[1].split(", ")))
        assert float(listed[tokens[i]["text"]]) == pytest.approx(p[i], abs=6e-5), "of the same distribution"
    assert float(view["title"].rsplit(" ", 1)[1]) == pytest.approx(p.mean(), abs=6e-4)
    assert [i for i, token in enumerate(tokens) if token["answer"]] == list(range(*followed.span))
    assert "".join(token["text"] for token in tokens if token["answer"]) == row.answer
    assert row.text in "".join(token["text"] for token in tokens)
    assert "Demo-Medium, medium-0355: wrong" in view["title"] and view["question"] == row.question


def test_right_and_wrong_ones_of_each_pair_are_chosen(generations, chosen):
    responses = interpret_responses(generations).query("split == 'evaluation'")
    assert len(chosen) == 4 * len(MODELS) * len(DATASETS)
    assert [bool(one.correct) for one in chosen] == [True, True, False, False] * 4
    means = responses.response.map(lambda logprobs: np.exp(logprobs).mean())
    here = (responses.model == MODELS[0]) & (responses.dataset == DATASETS[0]) & responses.correct.astype(bool)
    assert [one.name for one in chosen[:2]] == [means[here].idxmax(), means[here].idxmin()]


def test_words_stay_words(generations, chosen, monkeypatch):
    loud = generations.assign(question=LOUD, reference=LOUD)
    monkeypatch.setattr(response_views, "load_token_speller", lambda model: lambda token: LOUD)
    text = response_views.show_tokens(loud, chosen).data
    body = text.split("</style>", 1)[1]
    assert not re.search(r"<(script|img|svg onload|b|iframe)\b", body) and "7*7" in body
    assert not re.search(r'\son\w+="', re.sub(r"&\w+;|&#\d+;", "", re.sub(r">[^<]*<", "><", body)))
    assert "http" not in text and "url(" not in text


# ---- in a browser


def test_no_text_of_others_is_part_of_the_project():
    """Of the real model's run only numbers are shipped: what the viewer shows of it are ids."""
    for path in sorted((SHIPPED.parent / "small" / "generations").glob("*.parquet")):
        frame = store.read_frame(path)
        assert frame.text.isna().all() and frame.question.isna().all(), path.relative_to(ROOT)
