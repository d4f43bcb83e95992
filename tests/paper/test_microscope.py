"""Responses token by token: probabilities that are the model's, shades that hold in gray, words that stay words."""

import base64
import hashlib
import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from browser import _browse, check_width, chromium, measured
from hostile import STRINGS

from lib import params, store
from lib.paper import microscope
from lib.paths import ROOT, SHIPPED
from lib.score import running_example
from lib.score.interpretation import interpret_responses

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
    return {name: microscope.load_token_speller(params.load_model_config(name)) for name in MODELS}


def test_tokens_spell_the_response(generations, spellings):
    for row in generations[generations.example_id == "medium-0355"].itertuples():
        shown = "".join(spellings[row.model](int(token)) for token in row.token_ids[: -1 if row.eos else None])
        assert row.text in shown


def test_probabilities_are_those_of_the_frame(generations, responses, spellings):
    one = running_example.choose_example(responses, "medium-0355", "tiny-llama", "demo-medium")
    row = running_example.rows_of_example(generations, one).iloc[0]
    (view,) = microscope.token_page(generations, one, LABELS, spellings).views
    p = np.exp(row.token_logprobs[: len(view["tokens"])])
    assert [float(t["said"].split(",")[0]) for t in view["tokens"]] == pytest.approx(p, abs=6e-5)
    assert float(view["end"]) == pytest.approx(p.mean(), abs=6e-4)
    assert [i for i, t in enumerate(view["tokens"]) if t["answer"]] == list(range(*one.span))
    assert "".join(t["text"] for t in view["tokens"] if t["answer"]) == row.answer
    for i in range(*one.span):
        written, *_ = (
            float(said.split()[-1])
            for said in view["tokens"][i]["others"]
            if said.startswith(view["tokens"][i]["text"] + " ")
        )
        assert written == pytest.approx(p[i], abs=6e-5), "the alternatives are of the same distribution"
    assert view["title"].startswith("Tiny, Medium, medium-0355: wrong") and view["question"] == row.question


def test_the_rule_that_chooses(generations, responses, spellings):
    made = microscope.token_pages(generations, responses, LABELS, spellings)
    assert [(v["model"], v["dataset"], v["verdict"], v["mean"]) for v in made.views] == [
        (model, dataset, verdict, mean)
        for model in LABELS[0].values()
        for dataset in LABELS[1].values()
        for verdict in ("right", "wrong")
        for mean in ("confident", "unsure")
    ]
    rows = responses.query("model == 'tiny-llama' and dataset == 'demo-easy' and split == 'evaluation' and ~correct")
    means = [np.exp(logprobs).mean() for logprobs in rows.response]
    assert made.views[2]["title"].endswith(f"{max(means):.3f}") and made.views[3]["title"].endswith(f"{min(means):.3f}")
    again = microscope.token_pages(generations, responses, LABELS, spellings)
    assert json.dumps(made.views) == json.dumps(again.views) and made.html() == again.html()
    alone = list(microscope.ends(rows.head(1)))
    assert [mean for _, mean in alone] == ["confident"]


def test_a_response_that_ends_at_once_is_its_end_token(spellings):
    """A row without an answer, in the middle of others."""
    row = long_row("tiny-llama", 0, 1) | {"answer": None, "eos": 1, "thinking_end": 0, "kept_positions": [0]}
    frame = pd.DataFrame([row, long_row("tiny-llama", 1, 400)])
    read_ = frame[store.KEYS].assign(
        correct=False, parsed=False, span=[(0, 1), (399, 400)], response=[np.log([0.4]), np.log([0.7])]
    )
    view = microscope.token_pages(frame, read_, LABELS, spellings).views[1]
    assert view["title"].endswith("wrong (no answer, and 1 is right), mean probability 0.400")
    assert [(t["text"], t["answer"]) for t in view["tokens"]] == [(spellings["tiny-llama"](0), True)]


def long_row(model: str, number: int, n: int = 32_768) -> dict:
    return {
        "model": model,
        "dataset": "demo-easy",
        "split": "evaluation",
        "example_id": f"row-{number}",
        "reference": "1",
        "answer": "1",
        "question": None,
        "token_ids": np.arange(n),
        "eos": 0,
        "token_logprobs": np.log(np.linspace(0.4, 1, n)),
        "thinking_end": n - 300,
        "kept_positions": [n - 9],
        "chosen_logit": [1.0],
        "top_logits": [np.zeros(64)],
        "top_ids": [np.arange(64)],
    }


def test_words_stay_words(generations, responses):
    loud = generations.assign(question=LOUD)
    labels = ({name: LOUD for name in MODELS}, {name: LOUD for name in DATASETS})
    text = microscope.token_pages(loud, responses, labels, dict.fromkeys(MODELS, lambda token: LOUD)).html()
    body = text.split("</style>", 1)[1]
    assert not re.search(r"<(script|img|svg onload|b|iframe)\b", body) and "7*7" in body
    assert not re.search(r'\son\w+="', re.sub(r"&\w+;|&#\d+;", "", re.sub(r">[^<]*<", "><", body)))
    assert "http" not in text and "url(" not in text


def test_without_a_tokenizer_ids_are_shown(generations, responses):
    text = microscope.token_pages(generations, responses, LABELS, dict.fromkeys(MODELS)).html()
    first = int(generations.token_ids.iloc[0][0])
    assert f">[{first}]<" in text and "is the id of a token" in text


# ---- in a browser


@pytest.mark.skipif(chromium is None, reason="no chromium on this machine")
def test_the_report_chooses_among_them(generations, responses, spellings, tmp_path):
    from workflow.report import SCRIPT, TEMPLATE, page

    views = microscope.token_pages(generations, responses, LABELS, spellings).views
    nb = SimpleNamespace(metadata={"papermill": {"parameters": {"run": "mine"}}})
    text = page(nb, {"rep_microscope": {"application/json": views}})
    (script,) = SCRIPT.findall(TEMPLATE.read_text())
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in text and text.count("<script>") == 1
    path = tmp_path / "report.html"
    path.write_text(text)
    assert "CONSOLE" not in _browse(path.as_uri(), "--dump-dom").stderr
    check_width(path)
    asked = "(() => { const pick = (name, value) => { const x = document.querySelector(`select[name=${name}]`); "
    asked += "x.value = value; x.dispatchEvent(new Event('change', {bubbles: true})) }; "
    asked += "pick('answer', 'wrong'); pick('mean', 'unsure'); pick('dataset', 'Easy'); "
    asked += "return [...document.querySelectorAll('details[data-model]')].filter((x) => x.offsetHeight)"
    asked += ".map((x) => x.firstElementChild.textContent.split(':')[0]) })()"
    titles = [
        v["title"].split(":")[0]
        for v in views
        if (v["verdict"], v["mean"], v["dataset"]) == ("wrong", "unsure", "Easy")
    ]
    assert measured(path, asked) == titles and len(titles) == 2


def test_no_text_of_others_is_part_of_the_project():
    """Of the real model's run only numbers are shipped: what the microscope shows of it are ids."""
    for path in sorted((SHIPPED.parent / "small" / "generations").glob("*.parquet")):
        frame = store.read_frame(path)
        assert frame.text.isna().all() and frame.question.isna().all(), path.relative_to(ROOT)
