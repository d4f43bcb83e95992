"""The interactive part of a page: numbers that are the run's own, words that stay words, and a
script that the page's policy names."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from browser import chromium, look_at_explorer
from bs4 import BeautifulSoup

from lib import params
from lib.paper import explorer_responses
from lib.paper.cells import format_3dp, label_method
from lib.paper.explorer import (
    Explorer,
    explorer_data,
    explorer_markup,
    is_moved,
    label_estimator,
    shorten_confidences,
)
from lib.score import baselines, metrics, reliability
from workflow.output.report import report_page

NEAR = 0.003  # mean of chance in the page, of 500 draws, and that of the run
NEAR_95 = 0.009  # their 95% points


@pytest.fixture(scope="module")
def scored(shipped):
    return baselines.add_base_rate(shipped.confidence, shipped.calibration.scores)


@pytest.fixture(scope="module")
def labels():
    profile = params.load_profile("demo")
    labels = {}
    for model in profile.models:
        for dataset in profile.datasets:
            labels[model, dataset] = f"{model}, {dataset}"
    return labels


@pytest.fixture(scope="module")
def read(shipped, labels):
    first = ("tiny-llama", "demo-medium")
    return explorer_responses.responses_to_read(shipped, labels, first)


@pytest.fixture(scope="module")
def data(scored, labels, read):
    return explorer_data(scored, labels, 10, read, ("tiny-llama", "demo-medium"))


def page_of(data):
    return report_page({}, {"rep_explorer": {"application/json": data}})


def data_in(page):
    """The data that a browser reads in a page."""
    soup = BeautifulSoup(page, "html.parser")
    return json.loads(soup.find(id="explorer-data").string)


# ---- data


def test_scores_keep_four_digits_and_more_only_where_a_bin_would_change():
    confidence = np.array([0.123456, 0.10001, 0.99999, 0.5, 1.0])
    short = shorten_confidences(confidence, np.array([0, 0, 1, 1, 1.0]), 10)
    assert short.tolist() == [0.1235, 0.10001, 1.0, 0.5, 1.0]
    assert not is_moved(short, confidence).any()
    assert is_moved(np.round(confidence, 4), confidence).tolist() == [False, True] + [False] * 3


def test_saturated_scores_keep_the_digits_of_their_ece():
    confidence = np.full(20, 0.99996)
    correct = np.array(
        [0.0] * 11 + [1.0] * 9
    )  # the ECE is .54996, and not .550 by another rounding
    short = shorten_confidences(confidence, correct, 10)
    assert format_3dp(metrics.ece(short, correct)) == format_3dp(metrics.ece(confidence, correct))


def test_a_score_of_some_rows_alone_has_none_elsewhere():
    rows = pd.DataFrame({"example_id": ["b", "a", "b"], "estimator": ["mine", "mine", "other"]})
    rows = rows.assign(model="m", dataset="d", split="evaluation", method="")
    rows = rows.assign(confidence=[0.25, 0.5, 0.75], correct=[True, False, True])
    (pair,) = explorer_data(rows, {("m", "d"): "M", ("m", "no"): "absent"})["pairs"]
    assert (pair["label"], pair["right"], pair["responses"]) == ("M", "01", [])
    assert [score["estimator"] for score in pair["scores"]] == ["mine", "other"]
    assert [score["confidence"] for score in pair["scores"]] == [[5000, 2500], [None, 7500]]
    assert [score["auroc"] for score in pair["scores"]] == [0.0, None]


def test_a_score_of_four_digits_is_a_whole_number_on_the_page():
    """As .0003, though ten thousand times the nearest float is 2.9999999999999996."""
    rows = pd.DataFrame({"example_id": ["a", "b"], "confidence": [0.0003, 0.0029]})
    rows = rows.assign(model="m", dataset="d", split="evaluation", estimator="mine", method="")
    (pair,) = explorer_data(rows.assign(correct=[True, False]), {("m", "d"): "M"})["pairs"]
    assert json.dumps(pair["scores"][0]["confidence"]) == "[3, 29]"


def test_responses_are_the_most_confident_wrong_and_the_least_confident_right_ones(shipped, read):
    views = read["tiny-qwen", "demo-hard"]
    kinds = [view["kind"] for view in views]
    assert kinds == list(np.repeat(explorer_responses.KINDS, 8))
    rows = shipped.responses.query("model == 'tiny-qwen' and dataset == 'demo-hard'")
    rows = rows[(rows.split == "evaluation") & rows.parsed].set_index("example_id")
    confidence = rows.answer.map(lambda logprobs: np.exp(logprobs).mean())
    wrong = sorted(confidence[~rows.correct.astype(bool)])[-8:]
    right = sorted(confidence[rows.correct.astype(bool)])[:8]
    shown = [confidence[view["example_id"]] for view in views[:16]]
    assert shown == pytest.approx([*reversed(wrong), *right])


@pytest.mark.parametrize("most_pairs, count", [(5, 1), (6, 6)])
def test_of_many_pairs_one_has_responses(shipped, monkeypatch, labels, most_pairs, count):
    monkeypatch.setattr(explorer_responses, "MOST_PAIRS", most_pairs)
    first = ("tiny-qwen", "demo-easy")
    read = explorer_responses.responses_to_read(shipped, labels, first)
    assert len(labels) == 6 and len(read) == count and first in read


def test_responses_of_a_page_share_its_tokens_and_long_ones_lose_their_beginning(
    shipped, monkeypatch
):
    """Of 240, each of 24 responses may have ten."""
    pair = ("tiny-llama", "demo-easy")

    def tokens_of_views():
        read = explorer_responses.responses_to_read(shipped, {pair: "x"}, pair)
        return [view["tokens"] for view in read[pair]], [view["left_out"] for view in read[pair]]

    whole, none = tokens_of_views()
    monkeypatch.setattr(explorer_responses, "MAX_TOKENS", 240)
    ends, left_out = tokens_of_views()
    assert len(whole) == 24 and not any(none)
    assert ends == [tokens[-10:] for tokens in whole]
    assert left_out == [max(0, len(tokens) - 10) for tokens in whole]


def test_a_question_that_is_not_stored_is_not_told_nor_its_answer(shipped, labels):
    closed = replace(shipped, generations=shipped.generations.assign(question=None, text=None))
    pair = ("tiny-llama", "demo-easy")
    read = explorer_responses.responses_to_read(closed, {pair: "x"}, pair)
    for view in read[pair]:
        assert view["question"] == ""
        assert "correct" not in view["title"]


# ---- words


def test_a_spelling_ends_no_script(data):
    loud = "</script><script>document.title = 'hacked'</script><!--"
    pair = data["pairs"][0]
    view = pair["responses"][0] | {"title": loud, "tokens": [[loud, 0.5, 1, [[loud, 0.5]]]]}
    loud_pair = pair | {"label": loud, "responses": [view]}
    page = page_of(data | {"pairs": [loud_pair], "first": 0})
    assert len(BeautifulSoup(page, "html.parser").find_all("script")) == 2
    assert data_in(page)["pairs"][0]["responses"][0]["tokens"][0][0] == loud


def test_a_notebook_shows_what_the_page_has(data):
    shown = BeautifulSoup(Explorer(data)._repr_html_(), "html.parser")
    assert len(shown.find_all("tr")) == 1 + 6
    assert "<" not in str(explorer_markup(data)).split('type="application/json"')[1].split("</")[0]


# ---- in a browser

in_browser = pytest.mark.skipif(chromium is None, reason="Chromium is not on this machine")


@pytest.fixture(scope="module")
def seen(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_of(data), encoding="utf-8")
    return look_at_explorer(path)


@in_browser
def test_the_numbers_of_every_score_are_the_runs(seen, scored, labels):
    by_chance = baselines.compare_with_chance(scored, 10, 5000, 0)
    chance_of = by_chance.set_index(["model", "dataset", "estimator", "method"])
    measured = {}
    for key, part in scored.groupby(["model", "dataset", "estimator", "method"]):
        model, dataset, estimator, method = key
        words = (label_estimator(estimator), label_method(method, estimator))
        measured[labels[model, dataset], *words] = (part, chance_of.loc[key])
    assert len(seen["scores"]) == len(measured)
    for label, estimator, method, *numbers in seen["scores"]:
        part, expected = measured[label, estimator, method]
        c, y = part.confidence, part.correct
        chance = numbers.pop(1)
        plain = [metrics.ece(c, y), metrics.auroc(c, y), metrics.brier(c, y)]
        texts = [*map(format_3dp, plain), str(len(c)), format_3dp(y.mean())]
        assert numbers == [*texts, len(reliability.reliability_diagram(c, y, 10))]
        mean, high = map(float, re.fullmatch(r"([.\d]+) \(95%: ([.\d]+)\)", chance).groups())
        assert abs(mean - expected.chance) < NEAR
        assert abs(high - expected.chance_high) < NEAR_95


@in_browser
def test_it_begins_where_the_run_does_and_other_bins_give_their_own_error(seen, shipped):
    assert seen["first"] == {"pair": "1", "estimator": "Ans Avg", "method": "raw", "bins": "10"}
    rows = shipped.confidence.query(
        "model == 'tiny-llama' and dataset == 'demo-medium' and estimator == 'ans_avg'"
    )
    rows = rows[rows.split == "evaluation"]
    expected = metrics.ece(rows.confidence, rows.correct, 25)
    count, error = seen["finer"]
    assert count == "25" and abs(float(error) - expected) < 0.0006


@in_browser
def test_responses_and_tokens_are_reached_by_keys(seen, read):
    views = read["tiny-llama", "demo-medium"]
    wrong = [view for view in views if view["kind"] == explorer_responses.KINDS[0]]
    shown = seen["read"]
    assert shown["kinds"] == list(explorer_responses.KINDS)
    assert shown["places"] == ["1 of 8", "2 of 8", "8 of 8"]
    assert shown["title"] == wrong[0]["title"]
    tokens = wrong[0]["tokens"]
    assert shown["response"] == "".join(token[0] for token in tokens)
    assert shown["first"].startswith(f"{json.dumps(tokens[0][0])} {tokens[0][1]:.4f}")
    assert shown["second"].startswith(f"{json.dumps(tokens[1][0])} {tokens[1][1]:.4f}")
    answer = [token for token in tokens if len(token) > 2 and token[2]]
    assert shown["boxed"] == "".join(token[0] for token in answer)
    assert shown["answer"].count(", ") == 2 and "; most probable: " in shown["answer"]


@in_browser
def test_loud_words_run_nothing(data, tmp_path):
    loud = "</script><img src=x onerror=\"document.title='hacked'\">"
    pair = data["pairs"][0]
    view = pair["responses"][0] | {"title": loud, "tokens": [[loud, 0.5, 1, [[loud, 0.5]]]]}
    loud_pair = pair | {"label": loud, "responses": [view]}
    path = tmp_path / "report.html"
    path.write_text(page_of(data | {"pairs": [loud_pair], "first": 0}), encoding="utf-8")
    shown = look_at_explorer(path)
    assert shown["read"]["title"] == shown["read"]["response"] == loud
    assert shown["read"]["elements"] == ["SPAN"]
    assert shown["hacked"] != "hacked"
    assert shown["scripts"] == 2


@in_browser
def test_without_responses_there_is_a_diagram_alone(scored, labels, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page_of(explorer_data(scored, labels)), encoding="utf-8")
    shown = look_at_explorer(path)
    assert shown["read"]["hidden"]
    assert len(shown["scores"]) > 50
