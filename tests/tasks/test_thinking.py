"""How models think: a template of each family, in our words, is told what it knows, and its marks
end the thinking."""

import re
from types import SimpleNamespace

import pytest
from architectures import TINY
from transformers import AutoTokenizer

from lib import params
from lib.generate import p_true, preflight
from lib.models import loading
from lib.paths import ROOT
from lib.tasks import answers, thinking

EVERY = "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
TAG = "{# </think> #}<think>"
HARMONY = "<|start|>assistant{# <|channel|>final<|message|> #}"
BUDGET = "{% if thinking_budget == 0 %}<seed:think></seed:think>{% endif %}"
CHANNEL = "{% if not enable_thinking %}<|channel>thought\n<channel|>{% endif %}"
# with the ends of the prompt that asks a question, and of the one that asks for A or B at once
TEMPLATES = [
    (
        "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}",
        "<|im_end|>",
        "<think>\n\n</think>\n\n",
    ),
    ("{{ '<think>' if thinking else '</think>' }}", "<|im_end|><think>", "<|im_end|></think>"),
    (TAG + "{{ '\n' }}", "<|im_end|><think>\n", "<|im_end|><think>\n\n</think>\n\n"),
    (TAG + "\nWell, ", "<think>\nWell, ", "<think>\nWell,\n\n</think>\n\n"),
    (CHANNEL, "<|im_end|>", "<|im_end|><|channel>thought\n<channel|>"),
    ("{{ reasoning_effort }}{# [/THINK] #}", "<|im_end|>high", "<|im_end|>none"),
    ("[THINK]", "<|im_end|>[THINK]", "<|im_end|>[THINK][/THINK]"),
    (
        "{{ reasoning_effort }}" + HARMONY,
        "medium<|start|>assistant",
        "low<|start|>assistant<|channel|>final<|message|>",
    ),
    (BUDGET, "<|im_end|>", "<seed:think></seed:think>"),
]
NONE = ["", "{{ enable_thinking }}", "{{ reasoning_effort }}", "I <thinking> and [THOUGHT]"]


def with_template(text, on):
    """An outline of tiny-llama with this template."""
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.chat_template = EVERY + text
    spec = params.load_model_config("tiny-llama").model_copy(
        update={"thinking": on, "system_prompt": False}
    )
    return preflight.LanguageModel("mine", spec, SimpleNamespace(), tokenizer, [816], {})


def find_wrong(lm):
    """What `check` finds wrong with a template, whose marks are no tokens of tiny-llama."""
    config = preflight.checkpoints.read_config(str(TINY))
    lm.model = preflight.checkpoints.outline_network(config)
    findings = preflight.check_prompt(lm, {"demonstration": "one", "options": "A/B"})
    return [text for level, text in findings if level == "wrong"]


@pytest.mark.parametrize("template, asks, at_once", TEMPLATES)
def test_a_template_is_told_what_it_knows(template, asks, at_once):
    lm = with_template(template, True)
    messages = [{"role": "user", "content": "2 + 2?"}]
    assert loading.apply_chat_template(lm, messages).endswith(asks)
    assert p_true.standard_prompt(lm, "2 + 2?", "#### 4").endswith(at_once)
    assert find_wrong(lm) == []


@pytest.mark.parametrize("template", NONE)
def test_one_that_knows_nothing_of_it_is_refused(template):
    (refusal,) = find_wrong(with_template(template, True))
    assert refusal.startswith("its template has no switch and no mark of thinking")
    assert "`thinking: false`" in refusal
    assert find_wrong(with_template(template, False)) == []


@pytest.mark.parametrize(
    "template", [TAG, TAG + "\nWell, ", "[THINK]", HARMONY, "<seed:think>", "<|channel>thought\n"]
)
def test_a_block_that_is_opened_though_nothing_says_so(template):
    assert find_wrong(with_template(template, False)) == [
        "its template opens a thinking block: write `thinking: true`"
    ]


@pytest.mark.parametrize("before", ["", "Solve this. "])
def test_a_block_may_be_all_that_a_template_adds(before):
    assert "[THINK]" in thinking.find_open_family(f"{before}[THINK]").opens
    assert thinking.find_open_family(f"{before}[THINK][/THINK]") is None
    assert thinking.find_open_family(before) is None


CLOSING_MARKS = []
for thinking_family in thinking.FAMILIES:
    CLOSING_MARKS += thinking_family.closes


@pytest.mark.parametrize("mark", CLOSING_MARKS)
def test_the_answer_is_after_the_first_mark(mark):
    texts = ["So", " #### 3", *re.findall("<[^<>]*>|[^<>]+", mark), "#### ", "7", " is all"]
    located = answers.locate_answer(texts, True)
    first = len(texts) - 3
    assert located["thinking_end"] == first
    assert located["answer"] == "7"
    assert located["answer_start"] == first + 1
    never = answers.locate_answer(texts[:2], True)
    assert (never["answer"], never["thinking_end"]) == (None, 3)
    assert answers.locate_answer(texts[:2], False)["answer"] == "3"


@pytest.mark.parametrize(
    "token", ["<think>", "[THINK]", "<|channel|>", "<|channel>", "<seed:think>", " <think>\n"]
)
def test_a_first_token_that_begins_to_think(token):
    assert thinking.is_opening(token)


@pytest.mark.parametrize("token", ["A", " B", "", "the", "</think>"])
def test_a_first_token_that_does_not_begin_to_think(token):
    assert not thinking.is_opening(token)


def test_the_page_shows_the_table():
    """A row a family, with its marks and its switch."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8").replace("\\|", "|")
    for family in thinking.FAMILIES:
        switch = "none"
        if family.switch:
            on, off = family.values
            switch = f"`{family.switch}: {on}` or `{off}`".replace("True", "true")
            switch = switch.replace("False", "false")
        marks = f"`{family.opens[-1]}` | `{family.closes[-1]}`"
        assert f"| {family.models} | {marks} | {switch} |" in page
