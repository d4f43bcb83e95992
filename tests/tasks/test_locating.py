"""Where an answer stands: in the text, among the tokens, after the thinking."""

import pytest

from lib.tasks.answers import last_number, locate_answer, runs_on, text_offsets, token_span

# ---- thinking


def test_thinking_that_never_ends_ends_after_all_tokens():
    located = locate_answer(["<think>", "so 5"], thinking=True)
    assert located["thinking_end"] == 3


def test_thinking_ends_with_its_tag():
    located = locate_answer(["<think>", "so 5", "</think>"], thinking=True)
    assert located["thinking_end"] == 3


def test_thinking_ends_with_the_last_token_of_a_tag_in_pieces():
    located = locate_answer(["<think>", "so 5", "</th", "ink>"], thinking=True)
    assert located["thinking_end"] == 4


def test_an_answer_after_the_thinking_is_found():
    located = locate_answer(["<think>", "so 5", "</think>", "#### 7"], thinking=True)
    assert located["thinking_end"] == 3
    assert located["answer"] == "7"
    assert (located["answer_start"], located["answer_end"]) == (3, 4)


def test_a_tag_of_a_model_that_does_not_think_is_text():
    assert locate_answer(["</think>", "so 5"], thinking=False)["thinking_end"] == 0


# ---- the last number of a response without an answer


@pytest.mark.parametrize(
    "text, number",
    [
        ("4 + 3 = 7 eggs.", "7"),
        ("10-3", "3"),
        ("is -3", "-3"),
        ("4,5,6", "6"),
        ("from 5 to 1,000!", "1,000"),
        ("so \\boxed{\\frac{1}{2}} of 7 1/2.", "1/2"),
        ("3, which is \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
    ],
)
def test_the_last_number_is_found(text, number):
    start, end = last_number(text)
    assert text[start:end] == number
    assert start == text.rindex(number)


@pytest.mark.parametrize("text", ["v2, x1", "no"])
def test_a_digit_in_a_word_is_no_number(text):
    assert last_number(text) is None


# ---- what goes on after its answer

FURTHER_QUESTIONS = {
    "a question and its answer": (
        "#### 9\n\nQuestion: Bo has 2 pens and buys 2. How many?\nAnswer: 2+2=4\n#### 4"
    ),
    "a short question": "#### 12\n\nQ: 1+1?\nA: #### 2",
    "a numbered problem": "#### 9\n\n**Problem 2:** Bo has",
    "a heading": "#### 9\n### Question\nBo has",
    "another answer": "#### 5\n#### 6",
}
ENDED = {
    "the same answer again": "#### 7\n#### 7",
    "the answer alone": "#### 5",
    "a question before the answer": "Question: how many?\n#### 5",
    "no answer": "Q: a\nQ: b",
    "an offer": "#### 5\n\nIs there anything else?",
    "a sentence about the problem": "#### 5\nProblem solved.",
    "a heading of a step": "#### 18\n#### Step 2: check",
}


@pytest.mark.parametrize("kind", FURTHER_QUESTIONS)
def test_a_response_runs_on_if_it_answers_another_question(kind):
    assert runs_on(FURTHER_QUESTIONS[kind])


@pytest.mark.parametrize("kind", ENDED)
def test_a_response_that_ends_with_its_answer_does_not_run_on(kind):
    assert not runs_on(ENDED[kind])


def test_an_answer_in_a_thought_is_not_the_first_of_two():
    assert not runs_on("#### 5</think>\n#### 6", thinking=True)


# ---- characters and tokens

TEXTS = ["##", "", "##", " $", "1", "", "8\n", ""]  # empty: first bytes of a character
OFFSETS = [(0, 2), (2, 2), (2, 4), (4, 6), (6, 7), (7, 7), (7, 9), (9, 9)]


def test_tokens_stand_one_after_the_other():
    assert text_offsets(TEXTS) == OFFSETS


@pytest.mark.parametrize(
    "characters, tokens",
    [
        pytest.param((6, 8), (4, 7), id="18 without the blank before and the empty end"),
        pytest.param((5, 6), (3, 4), id="a part of a token"),
        pytest.param((2, 3), (1, 3), id="with the empty token that holds its first bytes"),
        pytest.param(None, (-1, -1), id="nothing"),
        pytest.param((9, 9), (-1, -1), id="nothing at the end"),
    ],
)
def test_the_tokens_of_a_span_are_all_that_hold_a_part_of_it(characters, tokens):
    assert token_span(OFFSETS, characters) == tokens
