"""Responses token by token: probabilities that are the model's, words that stay words; and prompts,
on a page and in LaTeX."""

import html
import re
import shutil
import subprocess

import numpy as np
import pytest
from bs4 import BeautifulSoup
from cases import STRINGS

from lib.analysis.running_example import choose_example, rows_of_example
from lib.paper.response_views import (
    load_token_speller,
    most_and_least_confident,
    prompt_comparison,
    prompt_example,
    show_tokens,
    token_view,
)
from lib.tasks.prompts import QUERY
from workflow.output.paper_files import results_document
from workflow.run import typeset

# ---- tokens


@pytest.fixture(scope="module")
def example(shipped):
    return choose_example(shipped.responses, "medium-0355", "tiny-llama", "demo-medium")


@pytest.fixture(scope="module")
def row(shipped, example):
    return rows_of_example(shipped.generations, example).iloc[0]


@pytest.fixture(scope="module")
def view(shipped, example):
    spell = load_token_speller(example.model)
    return token_view(shipped.generations, example, spell, 10_000)


@pytest.fixture(scope="module")
def probabilities(row, view):
    return np.exp(row.token_logprobs[: len(view["tokens"])])


def probability_in(tip):
    """`0.9: 7 0.9, 8 0.1` begins with that of the token."""
    return float(tip.split(":")[0])


def distribution_in(tip):
    """The probability of each token of the distribution that a tip lists."""
    _, listed = tip.split(": ", 1)
    distribution = {}
    for entry in listed.split(", "):
        token, probability = entry.rsplit(" ", 1)
        distribution.setdefault(token, float(probability))
    return distribution


def test_each_token_has_its_probability(view, probabilities):
    tip_probabilities = [probability_in(token["tip"]) for token in view["tokens"]]
    assert tip_probabilities == pytest.approx(probabilities, abs=6e-5)


def test_an_answers_token_is_listed_in_its_distribution(view, example, probabilities):
    for place in range(*example.span):
        token = view["tokens"][place]
        listed = distribution_in(token["tip"])
        assert listed[token["text"]] == pytest.approx(probabilities[place], abs=6e-5)


def test_the_answers_tokens_are_marked(view, example, row):
    marked = [place for place, token in enumerate(view["tokens"]) if token["answer"]]
    assert marked == list(range(*example.span))
    assert "".join(view["tokens"][place]["text"] for place in marked) == row.answer
    assert row.text in "".join(token["text"] for token in view["tokens"])


def test_the_title_says_which_response_it_is_and_its_mean(view, row, probabilities):
    assert "Demo-Medium, medium-0355: wrong" in view["title"]
    assert view["question"] == row.question
    _, mean = view["title"].rsplit(" ", 1)
    assert float(mean) == pytest.approx(probabilities.mean(), abs=6e-4)


def test_of_a_long_response_the_end_is_shown(shipped, example, view):
    spell = load_token_speller(example.model)
    end = token_view(shipped.generations, example, spell, 3)
    assert end["tokens"] == view["tokens"][-3:]
    assert end["left_out"] == len(view["tokens"]) - 3


def test_right_and_wrong_ones_of_each_pair_are_chosen(shipped):
    chosen = list(most_and_least_confident(shipped.responses))
    assert [bool(response.correct) for response in chosen] == [True, True, False, False] * 6
    rows = shipped.responses
    first_pair = (rows.model == "tiny-llama") & (rows.dataset == "demo-easy")
    right = rows[first_pair & (rows.split == "evaluation") & rows.correct]
    means = right.response.map(lambda logprobs: np.exp(logprobs).mean())
    assert [response.name for response in chosen[:2]] == [means.idxmax(), means.idxmin()]


def test_words_stay_words(shipped):
    loud = " ".join(STRINGS)
    response, *_ = most_and_least_confident(shipped.responses)
    rows = shipped.generations.assign(question=loud, reference=loud)
    markup = show_tokens(rows, [response], lambda token: loud).data
    page = BeautifulSoup(markup, "html.parser")
    tags = page.find_all(True)
    assert {tag.name for tag in tags} == {"div", "style", "p", "span", "details", "summary"}
    for tag in tags:
        assert set(tag.attrs) <= {"class", "title", "open"}
    assert loud in page.get_text()
    assert loud in page.select(".tokens span")[0].get_text()


# ---- prompts

PROMPT = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind to $x$ & <y>.<|eot_id|>"
)
HOSTILE = (
    "<\uff5cUser\uff5c> 2 \u2264 3, Ren\u00e9\u2019s \u4e2d <b>&amp; "
    "\\end{lstlisting}\\input{x} 100% $x_1$ #{}~^"
)


def test_prompts_show_every_character():
    """On a page each letter, none of them markup."""
    page = prompt_comparison(PROMPT, PROMPT + HOSTILE + QUERY)._repr_html_()
    texts = []
    for block in re.findall("(?s)<pre[^>]*>(.*?)</pre>", page):
        texts.append(html.unescape(re.sub("<[^>]*>", "", block)))
    assert texts == [PROMPT, PROMPT + HOSTILE + QUERY]
    assert page.count(f"<mark>{html.escape(QUERY)}</mark>") == 1


def test_prompts_in_latex_have_the_letters_that_it_can_set_or_their_codes():
    latex = prompt_example(PROMPT, HOSTILE)._repr_latex_()
    assert PROMPT in latex
    assert r"<|User|> 2 \u2264 3, Ren\xe9's \u4e2d <b>&amp;" in latex
    assert latex.count(r"\end{lstlisting}") == 2


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_prompts_compile(tmp_path):
    prompt = prompt_example(PROMPT, HOSTILE + "\tword " * 99)._repr_latex_()
    document = results_document("x", {"fig_prompt_example.tex": prompt.encode()})
    (tmp_path / "fig_prompt_example.tex").write_text(prompt)
    (tmp_path / "results.tex").write_text(document)
    assert typeset(tmp_path) == "", (tmp_path / "results.log").read_text()[-2000:]
    command = ["pdftotext", tmp_path / "results.pdf", "-"]
    words = "".join(subprocess.check_output(command, text=True).split())
    assert "<|eot_id|>" in words
    assert "100%$x_1$#{}" in words
    assert words.count("word") == 99
