"""Responses token by token: probabilities that are the model's, shades that hold in gray, words that stay words."""

import re

import numpy as np
import pytest
from browser import _browse, check_width, chromium
from hostile import STRINGS

from lib import params, store
from lib.paper import token_viewer
from lib.paths import ROOT, SHIPPED
from lib.score import running_example
from lib.score.interpretation import interpret_responses
from workflow.report import report_page

MODELS, DATASETS = ("tiny-llama", "tiny-qwen"), ("demo-easy", "demo-medium")
LABELS = {"tiny-llama": "Tiny", "tiny-qwen": "Other"}, {"demo-easy": "Easy", "demo-medium": "Medium"}
LOUD = " ".join(STRINGS)


@pytest.fixture(scope="module")
def generations():
    return store.load_frames("shipped", "generations", MODELS, DATASETS)[0]


@pytest.fixture(scope="module")
def responses(generations):
    return interpret_responses(generations)


@pytest.fixture(scope="module")
def spellings():
    return {name: token_viewer.load_token_speller(params.load_model_config(name)) for name in MODELS}


def test_probabilities_are_those_of_the_frame(generations, responses, spellings):
    one = running_example.choose_example(responses, "medium-0355", "tiny-llama", "demo-medium")
    row = running_example.rows_of_example(generations, one).iloc[0]
    (view,) = token_viewer.token_page(generations, one, LABELS, spellings).views
    tokens, p = view["tokens"], np.exp(row.token_logprobs[: len(view["tokens"])])
    assert [float(token["said"]) for token in tokens] == pytest.approx(p, abs=6e-5)
    assert float(view["title"].rsplit(" ", 1)[1]) == pytest.approx(p.mean(), abs=6e-4)
    assert [i for i, token in enumerate(tokens) if token["answer"]] == list(range(*one.span))
    assert "".join(token["text"] for token in tokens if token["answer"]) == row.answer
    assert row.text in "".join(token["text"] for token in tokens)
    for i in range(*one.span):
        listed = dict(said.rsplit(" ", 1) for said in reversed(tokens[i]["others"]))
        assert float(listed[tokens[i]["text"]]) == pytest.approx(p[i], abs=6e-5), "of the same distribution"
    assert view["title"].startswith("Tiny, Medium, medium-0355: wrong") and view["question"] == row.question


def test_a_long_response_loses_its_beginning_but_not_its_answer(generations, responses, spellings):
    one = running_example.choose_example(responses, "medium-0355", "tiny-llama", "demo-medium")
    (whole,) = token_viewer.token_page(generations, one, LABELS, spellings).views
    cut = token_viewer.token_view(generations, one, LABELS, spellings, 7)
    assert cut["tokens"] == whole["tokens"][-7:] and any(token["answer"] for token in cut["tokens"])
    assert cut["left_out"] == len(whole["tokens"]) - 7 and cut["title"] == whole["title"]


def test_words_stay_words(generations, responses):
    loud = generations.assign(question=LOUD)
    labels = ({name: LOUD for name in MODELS}, {name: LOUD for name in DATASETS})
    text = token_viewer.token_pages(loud, responses, labels, dict.fromkeys(MODELS, lambda token: LOUD)).html()
    body = text.split("</style>", 1)[1]
    assert not re.search(r"<(script|img|svg onload|b|iframe)\b", body) and "7*7" in body
    assert not re.search(r'\son\w+="', re.sub(r"&\w+;|&#\d+;", "", re.sub(r">[^<]*<", "><", body)))
    assert "http" not in text and "url(" not in text


def test_without_a_tokenizer_ids_are_shown(generations, responses):
    text = token_viewer.token_pages(generations, responses, LABELS, dict.fromkeys(MODELS)).html()
    first = int(generations.token_ids.iloc[0][0])
    assert f">[{first}]<" in text and "is the id of a token" in text


# ---- in a browser


@pytest.mark.skipif(chromium is None, reason="no chromium on this machine")
def test_the_report_shows_them_in_any_width(generations, responses, spellings, tmp_path):
    views = token_viewer.token_pages(generations, responses, LABELS, spellings).views
    path = tmp_path / "report.html"
    path.write_text(report_page({"run": "mine"}, {"rep_microscope": {"application/json": views}}))
    assert "CONSOLE" not in _browse(path.as_uri(), "--dump-dom").stderr
    check_width(path)


def test_no_text_of_others_is_part_of_the_project():
    """Of the real model's run only numbers are shipped: what the microscope shows of it are ids."""
    for path in sorted((SHIPPED.parent / "small" / "generations").glob("*.parquet")):
        frame = store.read_frame(path)
        assert frame.text.isna().all() and frame.question.isna().all(), path.relative_to(ROOT)
