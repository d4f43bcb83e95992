"""Finding, grading and locating answers: cases by hand, real solutions and tokenizers, arbitrary input."""

import json
import time
from decimal import Decimal
from functools import cache
from types import SimpleNamespace

import pytest
import recorded_tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from lib.paths import ROOT, UserError
from lib.tasks import answers

SHARED = ROOT.parent / "shared"
PLAIN = ["Llama-3.1-8B-Instruct", "Qwen3-8B"]
REAL = [*PLAIN, "Llama-3.2-3B-Instruct", "DeepSeek-R1-Distill-Llama-8B", "Qwen3-4B-Instruct-2507"]
EACH = [*PLAIN, *(pytest.param(name, marks=pytest.mark.slow) for name in REAL[2:])]
CORPUS = ["She sells 18 eggs.\n#### 18\n", "He has 1,234 coins.\n#### 1,234\n", "#### -7\n#### $18\n"] * 5


@cache
def real(name):
    """The tokenizer of that name, or what is recorded of it."""
    folder = SHARED / "tokenizers" / name
    if not folder.is_dir():
        return recorded_tokenizers.Recorded(name)
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    return transformers.AutoTokenizer.from_pretrained(folder)


@cache
def small(kind):
    """Tokenizers of three families, trained on three lines; `merging` has tokens such as '18\\n', ' $18'."""
    if kind == "merging":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split("####", "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        )
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    elif kind == "sentencepiece":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()])
        special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def encode(tokenizer, text):
    found = tokenizer.encode(text, add_special_tokens=False)
    return getattr(found, "ids", found)


# --- where the answer is ----------------------------------------------------------------------------------

FOUND = [  # text, what is found, its canonical value
    ("#### 18", "18", "18"),
    ("#### 1,234", "1,234", "1234"),
    ("#### 1,234,567.", "1,234,567", "1234567"),
    ("#### 1{,}234", "1{,}234", "1234"),
    ("#### -7", "-7", "-7"),
    ("#### \u22127", "\u22127", "-7"),
    ("#### \u20137", "\u20137", "-7"),
    ("####-7", "-7", "-7"),
    ("#### $18", "18", "18"),
    ("#### \u20ac18", "18", "18"),
    ("#### -$18", "-$18", "-18"),
    ("#### Rs.18", "18", "18"),
    ("#### 18.00", "18.00", "18"),
    ("#### .5", ".5", "0.5"),
    ("#### 18%", "18", "18"),
    ("#### 18km", "18", "18"),
    ("#### **18**", "18", "18"),
    ("#### \\boxed{18}", "18", "18"),
    ("#### x = 18", "18", "18"),
    ("#### x1 = 18", "18", "18"),
    ("#### 3 * 6 = $18", "18", "18"),
    ("#### 5 apples + 3 apples = 8 apples", "8", "8"),
    ("#### 18 (as x = 20 - 2)", "18", "18"),
    ("#### <<10-3=7>>7", "7", "7"),
    ("#### 12,5", "12", "12"),
    ("#### 18-20", "18", "18"),
    ("#### 3/4", "3/4", "0.75"),
    ("#### 1/0", "1", "1"),
    ("#### 1.5e6", "1.5e6", "1500000"),
    ("#### 2e9999", "2", "2"),
    ("####\n18", "18", "18"),
    ("#### 18\n\nIs there anything else, like 5?", "18", "18"),
    ("#### 18<|eot_id|>", "18", "18"),
    ("##### 18", "18", "18"),
    ("#### 18 ####", "18", "18"),
    ("9 + 9:\nso #### 18 ####", "18", "18"),
    ("#### 3\nno, wait\n#### 4", "4", "4"),
    ("10 - 3 = 7\r\n#### 7\r\n", "7", "7"),
    ("\u5171 #### \u517118\u4e2a", "18", "18"),
    ("#### $ \\frac{32}{3} $", "\\frac{32}{3}", "10." + "6" * 57 + "7"),
    ("#### \\dfrac{3}{4}", "\\dfrac{3}{4}", "0.75"),
    ("#### $\\tfrac{-3}{4}$", "\\tfrac{-3}{4}", "-0.75"),
    ("#### -$\\frac{3}{4}$", "-$\\frac{3}{4}", "-0.75"),
    ("#### \u2212\\frac{1{,}000}{8}.", "\u2212\\frac{1{,}000}{8}", "-125"),
    ("#### \\frac{1.5}{2} cups", "\\frac{1.5}{2}", "0.75"),
    ("#### \\frac{3}{4} = 0.75", "0.75", "0.75"),
    ("#### \\frac{7}{0}", "7", "7"),  # nothing is divided by zero
    ("#### 1 1/2", "1 1/2", "1.5"),
    ("#### -1 1/2 cups", "-1 1/2", "-1.5"),
    ("#### -$1,000 3/4", "-$1,000 3/4", "-1000.75"),
    ("#### $1\\frac{1}{2}$", "1\\frac{1}{2}", "1.5"),
    ("#### -1 \\dfrac{1}{4}", "-1 \\dfrac{1}{4}", "-1.25"),
    ("#### 1\\ \\frac{1}{2}", "1\\ \\frac{1}{2}", "1.5"),
    ("#### 1.5 1/2", "1.5", "1.5"),  # no mixed number
    ("#### 3\n1/2", "3", "3"),
    ("#### $$\n\\boxed{80}\n$$", "80", "80"),
    ("####\n\\[\n80\n\\]", "80", "80"),
    ("#### $\\boxed{\\frac{32}{4}}$", "\\frac{32}{4}", "8"),
    ("#### \\boxed{-1 1/2}", "-1 1/2", "-1.5"),
    ("#### 3 \\times 6 is \\boxed{18}", "18", "18"),  # the box comes before what stands beside it
    ("#### \\boxed{18} = 3 \\times 6", "18", "18"),
    ("#### \\boxed{3} \\times \\boxed{6} = \\boxed{18}", "18", "18"),
    ("#### \\boxed{3 * 6 = 18} apples = 18.00", "18", "18"),
    ("#### 18 \\boxed{\\text{yes}}", "18", "18"),
    ("#### \\boxed{18", "18", "18"),
]


def test_answer_is_found():
    for text, shown, value in FOUND:
        span = answers.find_answer(text)
        assert span is not None and text[slice(*span)] == shown, text
        assert answers.format_number(answers.parse_number(shown)) == value, text


def test_no_answer():
    for text in [
        "",
        "18",
        "### 18",
        "####",
        "#### ",
        "####\n",
        "#### none",
        "#### none\n18",
        "#### x1",
        "#### \u0661\u0662",
        "#### 5\nbut\n####",
        "\\boxed{80}",
        "$$\\boxed{80}$$\n####",
        "#### $$",
        "#### $$\nnone\n80",
        "#### none $$\n80",
    ]:
        assert answers.find_answer(text) is None, text


@pytest.mark.parametrize(("text", "shown"), [
    ("4 + 3 = 7 eggs.", "7"), ("10-3", "3"), ("is -3", "-3"), ("4,5,6", "6"), ("from 5 to 1,000!", "1,000"),
    ("so \\boxed{\\frac{1}{2}} of 7 1/2.", "7 1/2"), ("3, which is \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
    ("v2 x1", None), ("no", None)])  # fmt: skip
def test_last_number(text, shown):
    span = answers.last_number(text)
    assert (span and text[slice(*span)]) == shown


def test_thinking_hides_its_answers():
    text = "<think>#### 1</think>So 5.\n#### 2"
    start = answers.answer_start_char(text, thinking=True)
    assert text[start:].startswith("So") and answers.find_answer(text, start) == (len(text) - 1, len(text))
    assert answers.find_answer("<think>#### 1</think> none", 21) is None
    assert answers.answer_start_char("<think>#### 1", thinking=True) == 13  # never closed: nothing is outside
    assert answers.answer_start_char(text, thinking=False) == 0
    assert answers.answer_start_char("a</think>b</think>c", thinking=True) == 9  # the first tag closes


# --- numbers and grades -----------------------------------------------------------------------------------


NUMBERS = {"1,000": "1000", " $1,000. ": "1000", "-9867630.0": "-9867630", "5e-07": "0.0000005",
           "1e+22": "1" + "0" * 22, "3244047.0999999996": "3244047.0999999996", "18%": "18",
           "$\\frac{1}{2}$": "0.5", "-\\frac{-1}{2}": "0.5",
           "+1 1/2": "1.5", "\u22127": "-7", "0010": "10", "**5**": "5"}  # fmt: skip


def test_numbers_are_parsed():
    for text, value in NUMBERS.items():
        assert answers.format_number(answers.parse_number(text)) == value
    for text in [
        None,
        "",
        "-",
        "$",
        "nan",
        "inf",
        "-Infinity",
        "1e9999",
        "5 apples",
        "1 2",
        "0x10",
        "\\frac{1}{0}",
        "\\frac{x}{2}",
        "1 1/0",
        "\\frac12",
        "1_000",
        "\u0661",
        "1,2345",
        "--",
        "1.2.3",
    ]:
        assert answers.parse_number(text) is None, text


GRADES = [  # answer, reference, and what numeric, exact, integer, relative and pal say
    ("18", "18", True, True, True, True, True),
    ("1,000", "1000", True, True, True, True, True),
    ("17", "18", False, False, False, False, False),
    ("-9867630", "-9867630.0", True, True, True, True, True),
    ("3244047.1", "3244047.0999999996", True, False, False, True, True),
    ("3244047", "3244047.0999999996", True, False, False, True, False),  # its rounding
    ("7.3", "7.3", True, True, False, True, True),
    ("7", "7.3", True, False, False, True, False),
    ("7.2", "7.3", False, False, False, False, False),  # a rounding is an integer
    ("2", "2.5", True, False, False, True, False),  # half to even
    ("3", "2.5", True, False, False, True, False),  # half up
    ("-2", "-2.5", True, False, False, True, False),
    ("-3", "-2.5", True, False, False, True, False),
    ("1643532", "1643531.4999999998", True, False, False, True, False),  # .5 cut by floating point
    ("0", "5e-7", True, False, False, True, True),
    ("0.0000005", "5e-7", True, True, False, True, True),
    ("0.0000001", "0", True, False, False, False, True),
    ("18.5", "18", False, False, False, False, False),  # only a reference is rounded
    ("1000001", "1000000", False, False, False, True, False),  # 1e-6 exactly
    ("1000002", "1000000", False, False, False, False, False),
    ("0.3333333", "1/3", True, False, False, True, True),
    (None, "18", False, False, False, False, False),
    ("nan", "18", False, False, False, False, False),
    (float("nan"), "18", False, False, False, False, False),  # what pandas makes of a missing answer
    ("18", "none", False, False, False, False, False),
    ("6277880", "6277881", False, False, False, True, False),  # the near miss that GSMHard's large numbers invite
    ("18.0005", "18", True, False, False, False, True),
    ("0.33", "1/3", True, False, False, False, False),  # rounded to the decimals that the answer has
    ("2.34", "2.345", True, False, False, False, False),
    ("2.35", "2.345", True, False, False, False, False),  # of two equally near ones either
    ("1 1/2", "1.5", True, True, False, True, True),
    ("\\frac{32}{4}", "8", True, True, True, True, True),
    ("2.4", "2.345", False, False, False, False, False),
    ("9280000000000.12", "9280000000000.123456", True, False, False, True, False),
]


def test_grades():
    for answer, reference, *expected in GRADES:
        graders = ("numeric", "exact", "integer", "relative", "pal")
        assert [answers.grade(answer, reference, grader) for grader in graders] == expected, (answer, reference)
        assert answers.grade(answer, reference) is expected[0]
    with pytest.raises(UserError, match="'numerc'.*'numeric'"):
        answers.grade("1", "1", "numerc")


def test_no_integer_of_gsmhard_is_met_by_its_neighbour(shared):
    lines = (shared / "data" / "gsmhard" / "gsmhardv2.jsonl").read_text(encoding="utf-8").splitlines()
    targets = [Decimal(repr(json.loads(line)["target"])) for line in lines]
    integers = [target for target in targets if target == target.to_integral_value()]
    assert (len(targets), len(integers)) == (1319, 1016)

    def forgiven(grader: str, by: int) -> int:
        return sum(answers.grade(str(int(target) + by), str(int(target)), grader) for target in integers)

    assert {by: forgiven("relative", by) for by in (1, 10, 100)} == {1: 609, 10: 352, 100: 103}
    assert all(forgiven(grader, 1) == 0 for grader in answers.GRADERS if grader != "relative")


@pytest.mark.parametrize("text, thinking, plain", [
    ("3 + 4 = 7\n#### 7", False, True), ("#### 7\n", False, True), ("#### 1,234", False, True),
    ("#### -7", False, True), ("####7", False, True), ("#### $7", False, False), ("#### 7 apples", False, False),
    ("#### 3 + 4 = 7", False, False), ("#### $$\n7\n$$", False, False), ("#### \\boxed{7}", False, False),
    ("#### **7**", False, False), ("7", False, False), ("#### none", False, False),
    ("#### 7</think>\n#### 8", True, True), ("#### 7</think>\n8", True, False), ("#### 7", True, False),
])  # fmt: skip
def test_a_plain_answer_is_a_number_alone(text, thinking, plain):
    assert answers.is_bare_answer(text, thinking) is plain


# --- tokens -----------------------------------------------------------------------------------------------


def test_token_span_by_hand():
    spans = answers.text_offsets(["##", "", "##", " $", "1", "", "8\n", ""])
    assert spans == [(0, 2), (2, 2), (2, 4), (4, 6), (6, 7), (7, 7), (7, 9), (9, 9)]
    assert answers.token_span(spans, (6, 8)) == (4, 7)  # the token before and the empty end stay out
    assert answers.token_span(spans, (5, 6)) == (3, 4)
    assert answers.token_span(spans, (2, 3)) == (1, 3)  # an empty token holds the first bytes of what follows
    assert answers.token_span(spans, None) == answers.token_span(spans, (9, 9)) == (-1, -1)


def test_number_merged_with_its_neighbours():
    tokenizer = small("merging")
    for shown, text in {"18": "#### 18\n", "-7": "#### -7\n", "1,234": "#### 1,234\n"}.items():
        ids = encode(tokenizer, text)
        found = answers.locate_answer(tokenizer, ids, thinking=False)
        held = "".join(answers.token_texts(tokenizer, ids)[found["answer_start"] : found["answer_end"]])
        assert shown in held and held != shown, "the corpus makes tokens with blanks or newlines in them"
        assert found["answer"] == shown.replace(",", "") and found["text"] == text


@pytest.mark.parametrize("name", EACH)
def test_spans_with_real_tokenizers(name):
    tokenizer = real(name)
    for text, shown, value in FOUND:
        ids = encode(tokenizer, "We get it.\n" + text)
        found = answers.locate_answer(tokenizer, ids, thinking=False)
        texts = answers.token_texts(tokenizer, ids)
        start, end = found["answer_start"], found["answer_end"]
        assert found["text"] == "We get it.\n" + text and found["answer"] == value
        assert shown in "".join(texts[start:end])
        assert shown not in "".join(texts[start + 1 : end]) and shown not in "".join(texts[start : end - 1])


@pytest.mark.parametrize("name", EACH)
def test_what_is_recorded_of_a_real_tokenizer_is_what_it_does(name, shared):
    recorded, tokenizer = recorded_tokenizers.Recorded(name), real(name)
    assert len(recorded.ids) >= len(FOUND)
    for text, ids in recorded.ids.items():
        assert encode(tokenizer, text) == ids
        assert answers.token_texts(recorded, ids) == answers.token_texts(tokenizer, ids)


@pytest.mark.parametrize("name", EACH)
def test_minus_of_several_bytes(name):
    tokenizer = real(name)
    ids = encode(tokenizer, "\U0001f9ee\U0001f600#### \uff0d7")
    texts = answers.token_texts(tokenizer, ids)
    found = answers.locate_answer(tokenizer, ids, thinking=False)
    assert found["answer"] == "-7" and "".join(texts).endswith("#### \uff0d7")
    head = tokenizer.backend_tokenizer.decode(ids[: found["answer_start"]], skip_special_tokens=False)
    assert head.rstrip() == "\U0001f9ee\U0001f600####"  # every byte of the minus lies in the span


@pytest.mark.parametrize("name", ["DeepSeek-R1-Distill-Llama-8B", "Qwen3-8B"])
def test_thinking_tokens(name):
    tokenizer = real(name)
    thought = encode(tokenizer, "<think>\nMaybe #### 5\n</think>")
    said = encode(tokenizer, "\n\nIt is 7.\n#### 6")
    found = answers.locate_answer(tokenizer, thought + said, thinking=True)
    assert found["thinking_end"] == len(thought) and found["answer"] == "6"
    assert found["answer_start"] == len(thought) + len(said) - 1
    unclosed = answers.locate_answer(tokenizer, thought[:-1], thinking=True)
    assert unclosed["thinking_end"] == len(thought) - 1 and unclosed["answer"] is None
    assert unclosed["answer_start"] == unclosed["last_number_start"] == -1
    silent = answers.locate_answer(tokenizer, thought, thinking=True)
    assert silent["thinking_end"] == len(thought) and silent["last_number_end"] == -1
    plain = answers.locate_answer(tokenizer, thought + said, thinking=False)
    assert plain["thinking_end"] == 0 and plain["answer"] == "6"


OF_REAL = {test_spans_with_real_tokenizers: REAL, test_minus_of_several_bytes: REAL,
           test_thinking_tokens: ["DeepSeek-R1-Distill-Llama-8B", "Qwen3-8B"]}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_every_gsm8k_solution(name, shared):
    """The answer is found, right against itself, and its tokens decode to the number: with a tokenizer a family."""
    lines = (shared / "data" / "gsm8k" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    tokenizer, solutions = real(name), [json.loads(line)["answer"] for line in lines]
    assert len(solutions) == 1319
    backend = tokenizer.backend_tokenizer
    encodings = backend.encode_batch(solutions, add_special_tokens=False)
    for solution, encoding in zip(solutions, encodings, strict=True):
        published = solution.rpartition("#### ")[2]
        found = answers.locate_answer(tokenizer, encoding.ids, thinking=False)
        assert found["text"] == solution
        assert found["answer"] == published.replace(",", "")
        assert all(answers.grade(found["answer"], published, grader) for grader in answers.GRADERS)
        assert not answers.grade(str(int(found["answer"]) * 2 + 1), published)
        held = backend.decode(encoding.ids[found["answer_start"] : found["answer_end"]])
        assert held.strip() == published
        assert found["last_number_start"] == found["answer_start"]


# --- arbitrary input --------------------------------------------------------------------------------------

LATEX = st.sampled_from(["####", "\\frac{", "\\tfrac{1}{2}", "\\boxed{", "}{", " 1/2", "$$\n", "\\[\n", "=", "-"])
FORMULA = st.lists(LATEX | st.text("0123456789,.-}/ ", max_size=4), max_size=14).map("".join)
TEXT = FORMULA | st.text(st.sampled_from("0123456789#,.-+$%=(){}/\\e \n\u2212x*\ufffd") | st.characters(), max_size=60)


@settings(max_examples=400, deadline=None)
@given(TEXT, st.integers(0, 70))
def test_any_text(text, start):
    for find in (answers.find_answer, answers.last_number):
        span = find(text, start)
        if span is not None:
            assert start <= span[0] < span[1] <= len(text)
            number = answers.parse_number(text[slice(*span)])
            assert number is not None and number.is_finite()
            assert answers.parse_number(answers.format_number(number)) == number
            assert answers.grade(text[slice(*span)], answers.format_number(number), "exact")
    assert 0 <= answers.answer_start_char(text, True) <= len(text)


@settings(max_examples=300, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_float_matches_itself(number):
    value = answers.parse_number(repr(number))
    assert value == Decimal(repr(number))
    assert answers.grade(answers.format_number(value), repr(number))
    assert answers.grade(repr(number), repr(number), "exact")


@pytest.mark.parametrize("kind", ["merging", "sentencepiece", "wordpiece", *PLAIN])
def test_any_ids(kind):
    tokenizer = real(kind) if kind in REAL else small(kind)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    beyond = backend.get_vocab_size() + 300  # a model's vocabulary is padded: ids without a token can come

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.integers(0, beyond) | st.just(2**31), max_size=30), st.booleans())
    def check(ids, thinking):
        texts = answers.token_texts(tokenizer, ids)
        found = answers.locate_answer(tokenizer, ids, thinking)
        assert len(texts) == len(ids) and found["text"] == "".join(texts)
        whole = backend.decode(ids, skip_special_tokens=False)
        # WordPiece drops blanks it has written, byte fallback a whole run of bytes when its last is invalid
        if kind != "wordpiece" and not (kind == "sentencepiece" and "\ufffd" in whole):
            assert found["text"] == whole
        assert 0 <= found["thinking_end"] <= len(ids)
        for what in ("answer", "last_number"):
            start, end = found[f"{what}_start"], found[f"{what}_end"]
            assert (start, end) == (-1, -1) or found["thinking_end"] <= start < end <= len(ids)
        assert (found["answer"] is None) == (found["answer_start"] == -1)

    check()


@pytest.mark.parametrize("piece", ["1", "1,", "1,000,", "-", "#", "#### ", "#\n", "####\n", "1/", "(=",
                                   "1e", "$", " ", "0/0", "\\frac{", "\\frac{1}{", "1\\frac{1}{2}", "1 1/",
                                   "\\boxed{", "\\boxed{1}", "$$\n", "$\n\n", "\n", "1 1/2 "])  # fmt: skip
def test_degenerate_loops_take_linear_time(piece):
    text = "#### " + piece * 60000 + "x"
    began = time.perf_counter()
    span = answers.find_answer(text)
    answers.last_number(text)
    assert span is None or answers.format_number(answers.parse_number(text[slice(*span)]))
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("answer, start, end, found", [
    ("7", 0, 1, True), ("7", 3, 5, True), (None, 0, 1, False), (None, -1, -1, False), ("7", -1, -1, False),
    ("7", -1, 2, False), ("7", 2, 2, False), ("7", 3, 2, False), (float("nan"), 0, 1, False),
])  # fmt: skip
def test_an_answer_is_a_text_that_has_tokens(answer, start, end, found):
    row = SimpleNamespace(answer=answer, answer_start=start, answer_end=end)
    assert answers.has_answer(row) is found
