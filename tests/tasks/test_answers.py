"""Finding, grading and locating answers: by tokens, by hand, by property (the cases by hand of
texts: tests/field)."""

import re
import time
from fractions import Fraction
from functools import cache

import pandas as pd
import pytest
import transformers
from cases import read_answers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from lib.paths import ROOT, SHIPPED
from lib.tasks import answers, grading
from lib.tasks.written_numbers import canonical_number, format_number, parse_number

PLAIN = ["tiny-llama", "Llama-3.1-8B-Instruct", "Qwen3-8B"]
EACH = [*PLAIN, "Llama-3.2-3B-Instruct", "DeepSeek-R1-Distill-Llama-8B", "Qwen3-4B-Instruct-2507"]


@cache
def real(name):
    """The demo's tokenizer of that name, or a published one."""
    transformers.logging.set_verbosity_error()
    for folders in (ROOT / "demo" / "models", ROOT.parent / "shared" / "tokenizers"):
        if (folders / name).is_dir():
            return transformers.AutoTokenizer.from_pretrained(folders / name)
    pytest.skip("the published tokenizers (../shared) are not on this machine")


BYTES = [f"<0x{byte:02X}>" for byte in b"#7\xc3\xa4\xdd\xff"]  # of which some make no character
FAMILIES = {  # of tokenizers: how they decode, and some of their tokens
    "sentencepiece": (
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()]),
        [*BYTES, "\u2581####", "\u25811", "8", ",", "-", "7", "\n", "\u2581sells", "<unk>"],
    ),
    "wordpiece": (
        decoders.WordPiece(),
        [*"#123478,.-$'tn", "##8", "##34", "do", "sells", "eggs", "##gs", "[UNK]"],
    ),
}


def of_family(name):
    """A tokenizer that decodes as one of that family does."""
    decoder, tokens = FAMILIES[name]
    tokenizer = Tokenizer(
        models.BPE(vocab={token: place for place, token in enumerate(tokens)}, merges=[])
    )
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<end>"])
    return tokenizer


# ---- tokens

BEFORE = "We get it.\n"


def located(tokenizer, ids, thinking=False):
    """What each token says, and where the answer is."""
    texts = answers.token_texts(tokenizer, ids)
    return texts, answers.locate_answer(texts, thinking)


@pytest.mark.parametrize("name", EACH)
def test_the_tokens_of_an_answer(name):
    """All that hold a part of it, and no other."""
    tokenizer = real(name)
    for value, text, span in read_answers():
        ids = tokenizer.encode(BEFORE + text, add_special_tokens=False)
        texts, located_answer = located(tokenizer, ids)
        start, end = located_answer["answer_start"], located_answer["answer_end"]
        assert located_answer["text"] == BEFORE + text
        assert located_answer["answer"] == value
        assert (start == -1) == (value is None)
        if span:
            answer = text[slice(*span)]
            # a first byte of a character adds none
            held = [text for text in texts[start:end] if text]
            assert answer in "".join(held)
            assert answer not in "".join(held[1:])
            assert answer not in "".join(held[:-1])


TOKENIZER_OF_RUN = {"demo": None, "small": "Qwen3-8B"}  # Qwen 2.5 and 3 number tokens alike
POSITIONS = ["answer_start", "answer_end", "last_number_start", "last_number_end"]


@pytest.mark.parametrize("run", TOKENIZER_OF_RUN)
def test_shipped_answers_are_those_of_the_shipped_tokens(run):
    """Of two tiny and two real models; and none is the number of another text."""
    count = 0
    for path in sorted((SHIPPED.parent / run / "generations").glob("*.parquet")):
        tokenizer = real(TOKENIZER_OF_RUN[run] or path.stem.split("__")[0])
        for row in pd.read_parquet(path).itertuples():
            ids = row.token_ids[: len(row.token_ids) - row.eos]
            texts = answers.token_texts(tokenizer, ids)
            located_answer = answers.locate_answer(texts, row.thinking_end > 0)
            assert located_answer["answer"] == (row.answer if isinstance(row.answer, str) else None)
            for name in POSITIONS:
                assert located_answer[name] == getattr(row, name)
            count += 1
    assert count == {"demo": 3000, "small": 3600}[run]


# ---- arbitrary input


def spelled(number):
    """A strategy of (text, value): spellings of a whole number below a billion."""
    whole = st.sampled_from([f"{number}", f"{number:,}"])
    digits = st.from_regex("[0-9]{1,4}", fullmatch=True)
    below = st.integers(2, 9)
    slash = st.sampled_from(["{}/{}", "{} / {}", "\\frac{{{}}}{{{}}}"])
    power = st.integers(0, 9)
    sign = st.sampled_from(["", "+"])
    return st.one_of(
        whole.map(lambda text: (text, Fraction(number))),
        st.builds(
            lambda text, part: (f"{text}.{part}", Fraction(f"{number}.{part}")), whole, digits
        ),
        st.builds(
            lambda text, form, n: (form.format(text, n), Fraction(number, n)), whole, slash, below
        ),
        st.builds(
            lambda text, plus, n: (f"{text}e{plus}{n}", Fraction(number * 10**n)),
            whole,
            sign,
            power,
        ),
    )


SPELLED = st.integers(0, 10**9).flatmap(spelled)
FACTOR_BY_SIGN = {"": 1, "+": 1, "-": -1, "- ": -1, "\u2212": -1, "-$": -1}
SIGNS = st.sampled_from(list(FACTOR_BY_SIGN))
BEFORE_IT = st.sampled_from(
    [
        "",
        "Answer: ",
        "$",
        "**",
        "x = ",
        "3 * 6 = ",
        "\\boxed{",
        "**Total:** \u20ac",
        "So it is: ",
        "<answer>",
    ]
)
AFTER_IT = st.sampled_from(
    ["", " apples", "%", ".", " km/h", "**", "$", "}", " people in all.", "</answer>", "\nSo 5."]
)
GOES_ON = st.sampled_from(
    [
        *("*", " * ", " \\times ", "-", " - ", "\u2013", " + ", "^", "**", " \u00f7 ", " < "),
        *(" or ", " to ", " apples and ", ", ", ":", "; ", "(", ",5,", ".5.", " \\cdot \\sqrt{"),
    ]
)
CHANGED = [
    *("{} thousand", "{} million", "{} dozen", "{} k", "{}bn", "{} x", "{} squared", "{} thirds"),
    *("{} and a half", "{} or more", "{} to go", "{} times x", "{}\u00bd", "{}\u00b2", "{}\u4e07"),
    *("half of {}", "twice {}", "minus {}", "x {}", "f[{}", "\u00b1 {}", "\u221a{}", "Total - {}"),
    *("more than {}", "at least {}", "not {}", "It isn't {}", "x >= {}", "Step {}", "Option {}"),
]


def value_of(text):
    """The value of the answer in a text, as a fraction with a denominator of 10^20 at most; None
    without one."""
    span = answers.find_answer(text)
    if span is None:
        return None
    number = Fraction(parse_number(text[slice(*span)]))
    return f"{number.limit_denominator(10**20)}"


@settings(max_examples=300, deadline=None)
@given(SPELLED, SIGNS, BEFORE_IT, AFTER_IT)
def test_a_number_is_read_whole(number, sign, before, after):
    written, value = number
    signed = FACTOR_BY_SIGN[sign] * value
    text = f"So it is.\n#### {before}{sign}{written}{after}"
    assert value_of(text) == f"{signed.limit_denominator(10**20)}", text
    grades = [grading.grade(str(value + 1), written, grader) for grader in grading.GRADERS]
    assert value.denominator > 1 or not any(grades), "its neighbor is another"


@settings(max_examples=300, deadline=None)
@given(SPELLED, st.sampled_from(CHANGED))
def test_a_number_that_a_word_changes_is_no_answer(number, words):
    """Nor is an earlier line read instead."""
    line = words.format(number[0])
    text = f"#### 77\n#### {line}"
    assert answers.find_answer(text) is None, line
    assert answers.unread_line(text) == line


@settings(max_examples=300, deadline=None)
@given(SPELLED, GOES_ON, SPELLED, BEFORE_IT)
def test_no_part_of_more_is_read(first, between, second, before):
    text = f"#### {before}{first[0]}{between}{second[0]}"
    assert value_of(text) is None, text


@settings(max_examples=1500, deadline=None)
@given(
    st.text("0123456789", max_size=4),
    st.text("0012345,.' _/^*-+:~\u2009\u00bd\u00b2\u00d7\u2044", min_size=1, max_size=12),
)
def test_no_digit_is_left_out(digits, soup):
    """Where no word stands between, all digits of a line are the answer's, or there is none."""
    text = f"#### {digits}{soup}"
    span = answers.find_answer(text)
    if span is not None:
        start, end = span
        others = text[:start] + text[end:]
        assert not re.search(r"[0-9\u00b2\u00bd]", others), text


LATEX = st.sampled_from(
    ["####", "\\frac{", "\\tfrac{1}{2}", "\\boxed{", "}{", " 1/2", "$$\n", "\\[\n", "=", "-"]
)
FORMULA = st.lists(LATEX | st.text("0123456789,.-}/ ", max_size=4), max_size=14).map("".join)
TEXT = FORMULA | st.text(
    st.sampled_from("0123456789#,.-+$%=(){}/\\e \n\u2212x*\ufffd") | st.characters(), max_size=60
)


@settings(max_examples=400, deadline=None)
@given(TEXT, st.integers(0, 70))
def test_any_text(text, start):
    for find in (answers.find_answer, answers.last_number):
        span = find(text, start)
        if span is not None:
            assert start <= span[0] < span[1] <= len(text)
            number = parse_number(text[slice(*span)])
            assert parse_number(format_number(number)) == number
            assert grading.grade(text[slice(*span)], format_number(number), "exact")
    assert 0 <= answers.answer_start_char(text, True) <= len(text)


@pytest.mark.parametrize("kind", [*FAMILIES, *PLAIN])
def test_any_ids(kind):
    tokenizer = of_family(kind) if kind in FAMILIES else real(kind)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    # a special token; a model's vocabulary is padded: ids beyond it can come
    last = backend.get_vocab_size() - 1

    @settings(max_examples=150, deadline=None)
    @given(
        st.lists(st.integers(0, last + 6) | st.sampled_from([last, 2**31]), max_size=30),
        st.booleans(),
    )
    def check(ids, thinking):
        texts, located_answer = located(tokenizer, ids, thinking)
        assert len(texts) == len(ids) and located_answer["text"] == "".join(texts)
        whole = backend.decode(ids, skip_special_tokens=False)
        # WordPiece drops blanks it has written, byte fallback a whole run of bytes when its last is
        # invalid
        if kind != "wordpiece" and not (kind == "sentencepiece" and "\ufffd" in whole):
            assert located_answer["text"] == whole
        never = thinking and "</think>" not in located_answer["text"] != ""
        assert 0 <= located_answer["thinking_end"] <= len(ids) + never
        for what in ("answer", "last_number"):
            start = located_answer[f"{what}_start"]
            end = located_answer[f"{what}_end"]
            if (start, end) != (-1, -1):
                assert located_answer["thinking_end"] <= start < end <= len(ids)
        assert (located_answer["answer"] is None) == (located_answer["answer_start"] == -1)

    check()


def test_a_byte_that_makes_no_character_adds_no_text():
    """Though the decoder takes back what it has said of the byte before."""
    ids = [FAMILIES["sentencepiece"][1].index(token) for token in ("<0x37>", "<0xFF>", ",")]
    assert answers.token_texts(of_family("sentencepiece"), ids) == ["7", "", ","]


PIECES = [
    *("1", "1,", "1,000,", "-", "#", "#### ", "#\n", "####\n", "1/", "(=", "1e", "$", " ", "0/0"),
    *("\\frac{", "\\frac{1}{", "1\\frac{1}{2}", "1 1/", "\\boxed{", "\\boxed{1}", "$$\n", "$\n\n"),
    *("\n", "1 1/2 ", "2*3=", "x = 5, ", " (1", "- ", "1\\,", "1 000 ", "\n#### 1:", "\n#### x"),
    *("10^", "1 and ", "1 a b c ", "1 hundred ", "hundred ", "-{", "and 1 a b "),
    *("a", "a ", "a.", "a-", "a'", "a/ ", "/ ", "\\text{", "\\text", "<a", "<<", "1,000"),
    *("* ", "_", "#### a\n", "#### 1 a\n"),
]


@pytest.mark.parametrize(
    "pieces", [PIECES[::7], pytest.param(PIECES, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_degenerate_loops_take_linear_time(pieces):
    for piece in pieces:
        text = "#### " + piece * 20000 + "x"
        began = time.process_time()
        answers.last_number(text)
        answers.runs_on(text)
        start, end = answers.find_answer(text) or (0, 0)
        canonical_number(text[start:end])
        assert time.process_time() - began < 20, piece  # quadratic time takes minutes
