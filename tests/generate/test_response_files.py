"""Lines of a file of responses: each is read whole, or refused with its number and the remedy."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.generate.response_files import CUT, ENDINGS, LOST, UNFINISHED, parse_response, read_response_file
from lib.paths import UserError

NINE = [("That is 9.\n", -0.3), ("####", -0.02), (" 9", -0.1)]
TEXT = "That is 9.\n#### 9"
EURO = [("It costs ", -0.2), ("\ufffd", -0.5), ("\ufffd", -0.01), ("\ufffd", -0.01), ("9.\n#### 9", -0.3)]
THOUGHT = [("Add", -2.5), (" them.", -2.0)]


def entries(tokens, **more):
    return [{"token": token, "logprob": logprob} | more for token, logprob in tokens]


def encoded(tokens):
    return [one | {"bytes": list(one["token"].encode())} for one in entries(tokens)]


def parse(line):
    return parse_response(json.dumps(line).encode(), "r.jsonl", 7)


def own(tokens=NINE, **more):
    return {"example_id": "a", "logprobs": entries(tokens)} | more


def batch(content=TEXT, tokens=NINE, finish_reason="stop", status_code=200, error=None, **message):
    logprobs = tokens if tokens is None or isinstance(tokens, dict) else {"content": encoded(tokens), "refusal": None}
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "logprobs": logprobs,
              "finish_reason": finish_reason}  # fmt: skip
    body = {"id": "x", "object": "chat.completion", "choices": [choice], "usage": {"total_tokens": 9}}
    return {"id": "b", "custom_id": "a", "error": error, "response": {"status_code": status_code, "body": body}}


def one_choice():
    """A batch line as SGLang writes it."""
    line = batch()
    line["response"]["body"]["choices"] = line["response"]["body"]["choices"][0]
    return line


def parts(**some):
    return {"example_id": "a", "logprobs": {name: entries(tokens) for name, tokens in some.items()}}


TAGGED = [*THOUGHT, ("</think>", -0.1), ("\n\n", -0.1), *NINE]
READ = {  # a line; its text, how many tokens count, and what differs from a complete response without an end token
    "a list": (own(), TEXT, 3, {}),
    "wrapped": (parts(content=NINE), TEXT, 3, {}),
    "other fields of tokens": (own(logprobs=entries(NINE, id=5, rank=1, top_logprobs=[])), TEXT, 3, {}),
    "a text alone": ({"example_id": "a", "text": TEXT}, TEXT, 0, {}),
    "a text, and no log-probabilities": (own(text=TEXT, logprobs=None), TEXT, 0, {}),
    "a text, and an empty list": (own(text=TEXT, logprobs={"content": []}), TEXT, 0, {}),
    "ids": ({"example_id": "a", "token_ids": [3, 4]}, "", 0, {"token_ids": [3, 4]}),
    "nothing": ({"example_id": "a", "logprobs": None}, "", 0, {}),
    "fields of one's own": (own(model="m", prompt="2+2?", usage={"total_tokens": 9}, seconds=0.3, prompt_logprobs=None,
                                tool_calls=[], error=None, context="c", num_tokens=3, stop_reason=None), TEXT, 3, {}),
    "a whole number": (own(example_id=101), TEXT, 3, {"example_id": "101"}),
    "no number": (own(example_id="007"), TEXT, 3, {"example_id": "007"}),
    "an end token": (own([*NINE, ("</s>", -0.9)]), TEXT, 4, {"ended": True}),
    "one with a vocabulary's mark": (own([*NINE, ("<|end\u2581of|>", -0.9)]), TEXT, 4, {"ended": True}),
    "a nameless one": (own([*NINE, ("", -0.9)], text=TEXT), TEXT, 4, {"ended": True}),
    "a mark in the text": (own([*NINE, ("<b>", -0.9)], text=f"{TEXT}<b>"), f"{TEXT}<b>", 4, {}),
    "one of a cut response": (own([*NINE, ("</s>", -1)], finish_reason="length"), f"{TEXT}</s>", 4,
                              {"finish_reason": "length"}),
    # characters
    "bytes": (own(logprobs=[one | {"token": "?"} for one in encoded(NINE)]), TEXT, 3, {}),
    "a character in two tokens": (own(logprobs=[{"token": "", "logprob": -1, "bytes": list(half)} for half in
                                                (b"#### \xe2\x82", b"\xac")]), "#### \u20ac", 2, {}),
    "DeepSeek's half of one": (own(logprobs=[{"token": "\\xe2\\x82", "logprob": -1, "bytes": [226, 130]},
                                             {"token": "\\xac", "logprob": -1, "bytes": [172]}]), "\u20ac", 2, {}),
    "half of a character at the end": (own(logprobs=[{"token": "", "logprob": -1, "bytes": [57, 226]}]), "9\ufffd", 1,
                                       {}),
    "halves beside the true text": (own(EURO, text="It costs \u20ac9.\n#### 9"), "It costs \u20ac9.\n#### 9", 5,
                                    {"pieces": ["It costs ", "", "", "\u20ac", "9.\n#### 9"]}),
    "Ollama's bytes of them": (own(logprobs=encoded(EURO), text="It costs \u20ac9.\n#### 9"),
                               "It costs \u20ac9.\n#### 9", 5, {}),
    "a digit in halves": (own([("#### \ufffd", -1), ("\ufffd", -1)], text="#### \u0667"), "#### \u0667", 2, {}),
    "halves at both ends": (own([("\ufffd", -1), ("\ufffd", -1), ("#### 9", -1), ("\ufffd", -1), ("\ufffd", -1)],
                                text=" \u00e9#### 9\u00e9\u00e9"), "\u00e9#### 9\u00e9\u00e9", 5, {}),
    "halves before a stop string": (own([*EURO, ("\n\n", -1), ("Q:", -1)], text="It costs \u20ac9.\n#### 9"),
                                    "It costs \u20ac9.\n#### 9", 5, {"remarks": [CUT]}),
    "vLLM's empty halves": (own([("It costs ", -1), ("", -1), ("", -1), ("9.\n#### 9", -1)],
                                text="It costs \u20ac9.\n#### 9"), "It costs \u20ac9.\n#### 9", 4,
                            {"pieces": ["It costs ", "", "\u20ac", "9.\n#### 9"]}),
    "some of them empty": (own([("\u4e8c\ufffd", -1), ("", -1), ("\u4e09 ", -1), ("#### 9", -1)],
                               text="\u4e8c\u5341\u4e09 #### 9"), "\u4e8c\u5341\u4e09 #### 9", 4,
                           {"pieces": ["\u4e8c\u5341", "", "\u4e09 ", "#### 9"]}),
    "a half that the text leaves out": (own([("#### 9 ", -1), ("\ufffd", -1)], text="#### 9 ", finish_reason="length"),
                                        "#### 9 ", 2, {"finish_reason": "length"}),
    "a letter that is a vocabulary's mark": (own([("\u0120or\u0121", -1), (" 9", -1)], text="\u0120or\u0121 9"),
                                             "\u0120or\u0121 9", 2, {}),
    # a text that is not all of the tokens
    "blanks stripped": (own([(" ", -1), *NINE, ("\n", -1)], text=TEXT), f" {TEXT}\n", 5, {}),
    "cut at a stop string": (own([*NINE, ("\n\n", -1), ("Question", -1), (":", -1)], text=TEXT), TEXT, 3,
                             {"remarks": [CUT]}),
    "cut within a token": (own([("#### 9\n\nQ", -1), (":", -1), ("</s>", -1)], text="#### 9"), "#### 9", 1,
                           {"remarks": [CUT]}),
    "thinking taken out of the text": (own(TAGGED, text=TEXT), f"Add them.</think>\n\n{TEXT}", 7,
                                       {"thought": True}),
    # thinking apart
    "DeepSeek's thinking": (parts(reasoning_content=THOUGHT, content=NINE), f"Add them.</think>{TEXT}", 5,
                            {"thought": True}),
    "vLLM's": (parts(reasoning=THOUGHT, content=[*NINE, ("", -1)]), f"Add them.</think>{TEXT}", 6,
               {"thought": True, "ended": True}),
    "with its tag": (parts(reasoning_content=[*THOUGHT, ("</think>", -1)], content=NINE), f"Add them.</think>{TEXT}", 6,
                     {"thought": True}),
    "beside the text": (batch(tokens=parts(reasoning_content=THOUGHT, content=NINE)["logprobs"],
                              reasoning_content="Add them."), f"Add them.</think>{TEXT}", 5, {"thought": True}),
    "SGLang's": (batch(tokens=TAGGED, reasoning_content="Add them."), f"Add them.</think>\n\n{TEXT}", 7,
                 {"thought": True}),
    "Ollama's, with halves": (
        batch("It costs \u20ac9.\n#### 9", [("Add \ufffd", -1), ("\ufffd.", -1), ("</", -1), ("think>\n", -1), *EURO],
              reasoning="Add \u20ac."),
        "Add \u20ac.</think>\nIt costs \u20ac9.\n#### 9", 9, {"thought": True}),
    "that ended and no more": (batch("", [*THOUGHT, ("</think>", -1)], reasoning="Add them."), "Add them.</think>", 3,
                               {"thought": True}),
    "that never ended": (batch(None, THOUGHT, "length", reasoning="Add them."), "Add them.", 2,
                         {"thought": True, "finish_reason": "length"}),
    # a batch
    "of a batch": (batch(), TEXT, 3, {}),
    "SGLang's one choice": (one_choice(), TEXT, 3, {}),
    "the completion itself": ({"custom_id": "a", "response": batch()["response"]["body"]}, TEXT, 3, {}),
    "no status": ({"custom_id": "a", "response": {"body": batch()["response"]["body"]}}, TEXT, 3, {}),
    "no body": ({"custom_id": "a", "response": {"status_code": None, "body": None}}, "", 0, {"remarks": [LOST]}),
    "with an end token": (batch(tokens=[*NINE, ("<|im_end|>", -0.5)]), TEXT, 4, {"ended": True}),
    "without log-probabilities": (batch(tokens=None), TEXT, 0, {}),
    "a refusal": (batch(None, None, refusal="I can't."), "", 0, {}),
    "tokens of a refusal": (own(logprobs={"content": None, "refusal": entries(NINE)}), "", 0, {}),
    "a call of a tool": (batch(None, NINE, "tool_calls", tool_calls=[{"id": "t"}]), "", 0, {"remarks": [LOST]}),
    "status 500": (batch(status_code=500), "", 0, {"remarks": [LOST]}),
    "an error": (batch(error={"code": "batch_expired"}), "", 0, {"remarks": [LOST]}),
    "no response": ({"custom_id": "a", "response": None, "error": {"code": "x"}}, "", 0, {"remarks": [LOST]}),
}  # fmt: skip
COMPLETE = {
    "example_id": "a",
    "token_ids": [],
    "ended": False,
    "thought": False,
    "finish_reason": "stop",
    "remarks": [],
}


@pytest.mark.parametrize("line, text, count, differs", READ.values(), ids=READ.keys())
def test_a_line_is_read_whole(line, text, count, differs):
    found = parse(line)
    told = {name: getattr(found, name) for name in COMPLETE | differs}
    assert (found.text, len(found.pieces), told) == (text, count, COMPLETE | differs)
    assert "".join(found.pieces[: count - found.ended]) == (text if count else "")
    assert len(found.logprobs) == count
    if isinstance(stated := line.get("logprobs"), list):
        assert found.logprobs == [one["logprob"] for one in stated[:count]]
    assert found.empty == (text == "" and not found.token_ids)


REASONS = [
    (
        "stop",
        [
            "eos",
            "eos_token",
            "EOS",
            "end_turn",
            "stop_sequence",
            "STOP",
            "FinishReason.STOP",
            "COMPLETE",
            "stopSequence",
            "stop_str",
            "FINISH_REASON_STOP",
            "end_id",
        ],
    ),
    ("stop", [{"type": "stop", "matched": 2}]),
    (
        "length",
        [
            "length",
            "max_tokens",
            "MAX_TOKENS",
            {"type": "length", "length": 256},
            "model_length",
            "maxTokens",
            "max_new_tokens",
        ],
    ),
    ("unfinished", [None, "", "abort", {"type": "abort"}, "error", "insufficient_system_resource"]),
    ("lost", ["content_filter", "ContentFilter", "SAFETY", "RECITATION", "refusal"]),
    ("lost", ["tool_calls", "function_call", "tool_use", "TOOL_CALL"]),
]


@pytest.mark.parametrize("ending, names", REASONS)
def test_finish_reasons_of_the_known_servers(ending, names):
    for name in names:
        for line in own(finish_reason=name), batch(finish_reason=name):
            found = parse(line)
            assert found.remarks == {"lost": [LOST], "unfinished": [UNFINISHED]}.get(ending, [])
            assert found.empty == (ending == "lost")
            assert found.finish_reason == ("length" if ending in ("length", "unfinished") else "stop")
    assert ending in ENDINGS


MARKED = [[("4+5", -1), ("\u0120=", -1), ("\u01209", -1), ("\u010a", -1), ("####", -1), ("\u01209", -1)],
          [("\u2581That\u2581is", -1), ("<0x0A>", -1), ("####\u25819", -1)], [("9.", -1), ("<0x0A>", -1), (" 9", -1)],
          [("That is 9.\u010a", -1), ("####", -1), ("\u01209", -1)]]  # fmt: skip
LIST = 'is no list [{"token": ..., "logprob": ...}, ...]: ask /v1/chat/completions, which has it'
REFUSED = [
    *[(own(marked), "is a token's id, bytes or sign, not its text: log tokens as their text") for marked in MARKED],
    (own(logprobs=encoded(MARKED[0])), "sign, not its text"),
    (own(MARKED[0], text=TEXT), "do not make up its 'text'"),
    ({"example_id": "a", "text": "####\u01209"}, "sign, not its text"),
    (parts(reasoning_content=MARKED[0], content=NINE), "sign, not its text"),
    (own([("token_id:2132", -0.2)]), "'token_id:2132' is a token's id"),
    (own([("bytes:\\xe2\\x82", -0.2), ("\\xac", -0.2)]), "log tokens as their text"),
    (own([("token_id:2132", -0.2)], text="9"), "'token_id:2132' is a token's id"),
    # log-probabilities
    *[(own([("9", -0.1), ("9", value)]), words) for value, words in [
        (0.97, "less than or equal to 0.001"), (1, "less than"), (float("-inf"), "finite"), (float("nan"), "finite"),
        (None, "a valid number"), ("-0.1", "a valid number"), (True, "a valid number")]],
    # other forms
    (own(logprobs={"tokens": ["9"], "token_logprobs": [-0.1], "text_offset": [0]}), LIST),
    (own(logprobs=[-0.1, -0.2]), LIST),
    (own(logprobs=[[-0.1, 24, "9"]]), LIST),  # SGLang
    (own(logprobs=[{"24": {"logprob": -0.1, "decoded_token": "9"}}]), LIST),  # vLLM offline
    (own(logprobs=[{"text": "9", "logprob": -0.1}]), LIST),
    (own(logprobs=[{"token": "9", "logProbability": -0.1}]), LIST),  # Gemini
    (own(logprobs="x"), LIST),
    (own(logprobs=0), LIST),
    (parts(content=NINE, analysis=THOUGHT), LIST),
    (own(token_logprobs=[-0.1]), "no parameter 'token_logprobs'"),
    (own(finish_resaon="length"), "did you mean 'finish_reason'?"),
    *[(own(**{name: "x"}), f"no parameter '{name}'")
      for name in ("thinking", "reasoning", "error", "refusal", "txt", "stop_reason")],
    ({"example_id": "a", "output": TEXT}, "no parameter 'output'"),
    ({"text": TEXT}, "'example_id' is missing"),
    (own(example_id=1.5), "'example_id' is 1.5"),
    (own(example_id=True), "'example_id' is True"),
    (own(finish_reason="melted"), "'finish_reason' can't be 'melted': write stop, length, content_filter, tool_calls"),
    (own(finish_reason={"matched": 2}), "'finish_reason' can't be"),
    (own(token_ids=[1]), "given as 'text', as 'token_ids' or as 'logprobs'"),
    (own(logprobs=entries(NINE, bytes=[256])), "bytes"),
    (own([("a\ud800", -1)]), "unable to parse raw data as a unicode string"),
    ({"example_id": "a", "text": "a\ud800"}, "unable to parse raw data as a unicode string"),
    # a text that the tokens do not make up
    *[(own(tokens, text=text, finish_reason=end), "do not make up its 'text'") for tokens, text, end in [
        (NINE, "#### 18", "stop"), (TAGGED[:3], "#### 9", "stop"), (NINE, f"{TEXT}9", "stop"),
        ([*NINE, ("5", -1)], TEXT, "stop"),
        ([*NINE, (".5", -1)], TEXT, "stop"), ([*NINE, (",", -1), ("000", -1)], TEXT, "stop"),
        ([*NINE, ("\nQ", -1)], TEXT, "length"), (NINE, "#### 9", "stop"), (NINE, "", "stop"),
        (EURO, "It costs $9.\n#### 9", "stop"), (EURO, "It costs \u20ac\u20ac\u20ac\u20ac9.\n#### 9", "stop")]],
    # thinking without log-probabilities
    (batch(reasoning_content="Add them."), "or serve without a parser"),
    (batch(reasoning_content="\u5148\u52a0\u3002"), "or serve without a parser"),
    (batch("It costs \u20ac9.\n#### 9", EURO, reasoning_content="\u5148\u52a0\u3002"), "or serve without a parser"),
    (batch(tokens=None, reasoning="Add them."), "or serve without a parser"),
    (batch(tokens=parts(reasoning_content=THOUGHT, content=NINE)["logprobs"], reasoning_content="Other."),
     "or serve without a parser"),
    # a batch
    ({"custom_id": "a", "body": {}, "method": "POST"}, "not one chat completion"),
    (batch(content=[{"type": "text", "text": TEXT}]), "'text' is"),
    (batch() | {"response": {"status_code": 200, "body": {"choices": []}}}, "not one chat completion"),
    (batch() | {"response": {"status_code": 200, "body": {"choices": [{"text": TEXT}]}}}, "ask /v1/chat/completions"),
    (batch() | {"response": {"status_code": 200, "body": {"object": "response", "output": []}}}, "ask /v1/chat/"),
    (batch() | {"response": {"status_code": 200, "body": [1]}}, "not one chat completion"),
    (batch() | {"response": {"status_code": 200, "body": {"choices": [{"message": {}}] * 2}}}, "with `n: 1`"),
    (["a"], "must be an object"),
]  # fmt: skip


@pytest.mark.parametrize("line, said", REFUSED)
def test_or_refused_with_its_number_and_the_remedy(line, said):
    with pytest.raises(UserError) as caught:
        parse(line)
    message = str(caught.value)
    assert message.startswith("r.jsonl, line 7") and said in message and message.isprintable()


def test_a_failed_request_may_be_repeated_and_no_other(tmp_path):
    path = tmp_path / "r.jsonl"
    for first, last in (batch(status_code=429), batch()), (batch(), batch(status_code=429)):
        path.write_text(f"{json.dumps(first)}\n\n{json.dumps(last)}\r\n")
        assert read_response_file(path, "mine")["a"].text == TEXT
    path.write_text(f"{json.dumps(own())}\n{json.dumps(own(example_id='b', dataset='other'))}\n{json.dumps(batch())}\n")
    with pytest.raises(UserError, match="line 3: 'a' has been answered before"):
        read_response_file(path, "mine")
    path.write_text(f"{json.dumps(own(dataset='mine'))}\n{json.dumps(own(NINE[1:], dataset='other'))}\n")
    assert [read_response_file(path, name)["a"].text for name in ("mine", "other")] == [TEXT, "#### 9"]


# ---- any line

WRITTEN = st.text("ab 9.#\n\u00e9\u20ac\U0001f600\u0667", min_size=1, max_size=30).filter(str.strip)


@st.composite
def logged(draw):
    """A text, cut into tokens anywhere between its bytes, and the line that a server would write of it."""
    data = draw(WRITTEN).encode()
    places = sorted(draw(st.sets(st.integers(1, max(1, len(data) - 1)), max_size=12)) | {0, len(data)})
    pieces = [data[start:end] for start, end in zip(places, places[1:], strict=False)]
    way = draw(st.sampled_from(["bytes", "U+FFFD", "Ollama"]))
    tokens = []
    for place, piece in enumerate(pieces):
        token = piece.decode(errors="replace")
        tokens.append({"token": token, "logprob": -0.5 - place})
        if way != "U+FFFD":
            tokens[-1]["bytes"] = list(piece if way == "bytes" else token.encode())
    beside = way != "bytes" or draw(st.booleans())
    line = {"example_id": "a", "logprobs": draw(st.sampled_from([tokens, {"content": tokens}]))}
    return (
        data.decode(),
        tokens,
        line | ({"text": draw(st.sampled_from([data.decode(), data.decode().strip()]))} if beside else {}),
    )


@given(logged())
def test_any_response_is_read_with_all_of_its_tokens(one):
    text, tokens, line = one
    found = parse(line)
    assert found.text == "".join(found.pieces) and found.text.strip() == text.strip()
    assert found.logprobs == [entry["logprob"] for entry in tokens] and not found.remarks


@given(logged(), st.data())
def test_a_line_that_was_damaged_is_refused_or_still_whole(one, data):
    """A token lost, doubled or changed, or a value that is none: never another text, or fewer tokens than it has."""
    text, tokens, line = one
    line["text"] = text
    place = data.draw(st.integers(0, len(tokens) - 1))
    how = data.draw(st.sampled_from(["lost", "doubled", "changed", "nan", "null", "positive", "extra"]))
    match how:
        case "lost":
            del tokens[place]
        case "doubled":
            tokens.insert(place, tokens[place])
        case "changed":
            tokens[place] = {"token": "7", "logprob": -1.0}
        case "extra":
            line["finish_reasons"] = "length"
        case value:
            tokens[place] = tokens[place] | {"logprob": {"nan": float("nan"), "null": None, "positive": 0.5}[value]}
    try:
        found = parse(line)
    except UserError as error:
        assert str(error).startswith("r.jsonl, line 7: ")
        return
    assert how in ("lost", "doubled", "changed") and found.text.strip() in ("", text.strip())
    assert len(found.pieces) == len(found.logprobs) == len(tokens) or CUT in found.remarks or not found.pieces
