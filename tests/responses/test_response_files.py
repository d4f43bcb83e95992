"""Files of responses as a whole, and any line of one: read whole, or refused with its number
(cases: tests/field)."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import batch_line, completion

from lib.errors import UserError
from lib.responses.formats import CUT, parse_response, read_response_file


def test_a_failed_request_may_be_repeated_and_no_other(tmp_path):
    path = tmp_path / "r.jsonl"
    nine = completion("#### 9")
    own_line = json.dumps({"example_id": "a", "dataset": "mine", "text": "#### 9"}) + "\n"
    other_line = json.dumps({"example_id": "a", "dataset": "other", "text": "#### 8"}) + "\r\n"
    for lines in (
        (batch_line("a", nine, 429), "\n", batch_line("a", nine)),
        (own_line, batch_line("a", nine, 429), other_line),
    ):
        path.write_text("".join(lines))
        assert read_response_file(path, "mine")["a"].text == "#### 9"
    assert read_response_file(path, "other")["a"].text == "#### 8"
    path.write_text(own_line + other_line + batch_line("a", nine))
    with pytest.raises(UserError, match="line 3: 'a' has been answered before"):
        read_response_file(path, "mine")


# ---- any line

WRITTEN = st.text("ab 9.#\n\u00e9\u20ac\U0001f600\u0667", min_size=1, max_size=30).filter(str.strip)


@st.composite
def logged(draw):
    """A text, its tokens, cut anywhere between its bytes, as a server lists them, and what these
    decode to."""
    text = draw(WRITTEN)
    data = text.encode()
    last = max(1, len(data) - 1)
    inside = draw(st.sets(st.integers(1, last), max_size=12))
    places = sorted(inside | {0, len(data)})
    way = draw(st.sampled_from(["bytes", "U+FFFD", "Ollama"]))
    tokens = []
    for start, end in pairwise(places):
        piece = data[start:end]
        token = {"token": piece.decode(errors="replace"), "logprob": -0.5 - start}
        if way == "bytes":
            token["bytes"] = list(piece)
        elif way == "Ollama":
            token["bytes"] = list(token["token"].encode())
        tokens.append(token)
    if way == "bytes":
        return text, tokens, text
    return text, tokens, "".join(token["token"] for token in tokens)


def parse(data, tokens, text):
    """The response of a line of either form."""
    logprobs = data.draw(st.sampled_from([tokens, {"content": tokens}]))
    plain_line = {"example_id": "a", "logprobs": logprobs, "text": text}
    choice = {"message": {"content": text}, "logprobs": {"content": tokens}}
    body = {"choices": [choice | {"finish_reason": "stop"}]}
    batch = {"custom_id": "a", "response": {"status_code": 200, "body": body}}
    line = data.draw(st.sampled_from([plain_line, batch]))
    return parse_response(json.dumps(line).encode(), "r.jsonl", 7)


@given(logged(), st.data())
def test_any_response_is_read_with_all_of_its_tokens(logged_text, data):
    """They are the response. A text in which characters are whole that tokens halve is another."""
    text, tokens, decoded = logged_text
    beside = data.draw(st.sampled_from([text, text.strip(), None]))
    if beside is not None and decoded != text:
        with pytest.raises(
            UserError, match="r.jsonl, line 7: the tokens of 'logprobs' do not make up its 'text'"
        ):
            parse(data, tokens, beside)
        return
    response = parse(data, tokens, beside)
    assert response.text == "".join(response.pieces) == decoded
    assert response.logprobs == [entry["logprob"] for entry in tokens] and not response.remarks


@given(logged(), st.data())
def test_a_line_that_was_damaged_is_refused_or_still_whole(logged_text, data):
    """A token lost, doubled or changed, or a value that is none: never another text, or fewer
    tokens than it has."""
    text, tokens, _ = logged_text
    place = data.draw(st.integers(0, len(tokens) - 1))
    replacements = [[], [tokens[place]] * 2, [{"token": "7", "logprob": -1.0}]]
    never = [[tokens[place] | {"logprob": value}] for value in (float("nan"), None, 0.5)]
    instead = data.draw(st.sampled_from(replacements + never))
    tokens[place : place + 1] = instead
    try:
        response = parse(data, tokens, text)
    except UserError as error:
        assert str(error).startswith("r.jsonl, line 7: ")
        return
    assert instead not in never
    assert response.text.strip() in ("", text.strip())
    assert len(response.pieces) == len(response.logprobs)
    assert len(response.pieces) in (0, len(tokens)) or CUT in response.remarks
