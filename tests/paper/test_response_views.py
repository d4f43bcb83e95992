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

from lib.analysis import running_example
from lib.paper import response_views
from lib.tasks.prompts import QUERY
from workflow.output.paper_files import results_document
from workflow.run import typeset


def test_probabilities_are_those_of_the_frame(shipped):
    one = running_example.choose_example(
        shipped.responses, "medium-0355", "tiny-llama", "demo-medium"
    )
    row = running_example.rows_of_example(shipped.generations, one).iloc[0]
    spell = response_views.load_token_speller(one.model)
    view = response_views.view_tokens(shipped.generations, one, spell, 10_000)
    tokens, p = view["tokens"], np.exp(row.token_logprobs[: len(view["tokens"])])
    assert [float(token["tip"].split(":")[0]) for token in tokens] == pytest.approx(p, abs=6e-5)
    for i in range(*one.span):
        listed = dict(
            said.rsplit(" ", 1) for said in reversed(tokens[i]["tip"].split(": ", 1)[1].split(", "))
        )
        assert float(listed[tokens[i]["text"]]) == pytest.approx(p[i], abs=6e-5), (
            "of the same distribution"
        )
    assert float(view["title"].rsplit(" ", 1)[1]) == pytest.approx(p.mean(), abs=6e-4)
    assert [i for i, token in enumerate(tokens) if token["answer"]] == list(range(*one.span))
    assert "".join(token["text"] for token in tokens if token["answer"]) == row.answer
    assert row.text in "".join(token["text"] for token in tokens)
    assert "Demo-Medium, medium-0355: wrong" in view["title"] and view["question"] == row.question
    end = response_views.view_tokens(shipped.generations, one, spell, 3)
    assert end["tokens"] == tokens[-3:] and end["left_out"] == len(tokens) - 3


def test_right_and_wrong_ones_of_each_pair_are_chosen(shipped):
    chosen = [*response_views.most_and_least_confident(shipped.responses)]
    assert [bool(one.correct) for one in chosen] == [True, True, False, False] * 6
    first = shipped.responses.query(
        "model == 'tiny-llama' and dataset == 'demo-easy' and split == 'evaluation'"
    )
    means = first[first.correct.astype(bool)].response.map(lambda logprobs: np.exp(logprobs).mean())
    assert [one.name for one in chosen[:2]] == [means.idxmax(), means.idxmin()]


def test_words_stay_words(shipped):
    loud = " ".join(STRINGS)
    (one, *_) = response_views.most_and_least_confident(shipped.responses)
    rows = shipped.generations.assign(question=loud, reference=loud)
    page = BeautifulSoup(
        response_views.show_tokens(rows, [one], lambda token: loud).data, "html.parser"
    )
    assert {tag.name for tag in page.find_all(True)} == {
        "div",
        "style",
        "p",
        "span",
        "details",
        "summary",
    }
    assert {name for tag in page.find_all(True) for name in tag.attrs} == {"class", "title", "open"}
    assert all(
        text.count(loud) for text in (page.get_text(), page.select(".tokens span")[0].get_text())
    )


# ---- prompts

PROMPT = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind to $x$ & <y>.<|eot_id|>"
)
HOSTILE = "<\uff5cUser\uff5c> 2 \u2264 3, Ren\u00e9\u2019s \u4e2d <b>&amp; \\end{lstlisting}\\input{x} 100% $x_1$ #{}~^"


def test_prompts_show_every_character():
    """On a page each letter, none of them markup; in LaTeX what it can set, or the letter's
    code."""
    page = response_views.prompt_comparison(PROMPT, PROMPT + HOSTILE + QUERY)._repr_html_()
    texts = [
        html.unescape(re.sub("<[^>]*>", "", one))
        for one in re.findall("(?s)<pre[^>]*>(.*?)</pre>", page)
    ]
    assert (
        texts == [PROMPT, PROMPT + HOSTILE + QUERY]
        and page.count(f"<mark>{html.escape(QUERY)}</mark>") == 1
    )
    latex = response_views.prompt_example(PROMPT, HOSTILE)._repr_latex_()
    assert PROMPT in latex and r"<|User|> 2 \u2264 3, Ren\xe9's \u4e2d <b>&amp;" in latex
    assert latex.count(r"\end{lstlisting}") == 2


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_prompts_compile(tmp_path):
    prompt = response_views.prompt_example(PROMPT, HOSTILE + "\tword " * 99)._repr_latex_()
    (tmp_path / "fig_prompt_example.tex").write_text(prompt)
    (tmp_path / "results.tex").write_text(
        results_document("x", {"fig_prompt_example.tex": prompt.encode()})
    )
    assert typeset(tmp_path) == "", (tmp_path / "results.log").read_text()[-2000:]
    seen = "".join(
        subprocess.check_output(["pdftotext", tmp_path / "results.pdf", "-"], text=True).split()
    )
    assert "<|eot_id|>" in seen and "100%$x_1$#{}" in seen and seen.count("word") == 99
