"""Files of responses as a whole, and any line of one: read whole, or refused with its number (cases: tests/field)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.generate.response_files import CUT, parse_response, read_response_file
from lib.paths import UserError

TEXT = "#### 9"


def parse(line):
    return parse_response(json.dumps(line).encode(), "r.jsonl", 7)


def own(text=TEXT, **more):
    return {"example_id": "a", "logprobs": [{"token": text, "logprob": -0.1}]} | more


def batch(status_code=200):
    choice = {"message": {"content": TEXT}, "logprobs": {"content": own()["logprobs"]}, "finish_reason": "stop"}
    return {"custom_id": "a", "response": {"status_code": status_code, "body": {"choices": [choice]}}}


def test_a_number_is_a_name_in_either_form():
    assert [parse(line | {name: 7}).example_id for line, name in ((own(), "example_id"), (batch(), "custom_id"))] == [
        "7"
    ] * 2


def test_a_failed_request_may_be_repeated_and_no_other(tmp_path):
    path = tmp_path / "r.jsonl"
    for first, last in (batch(status_code=429), batch()), (batch(), batch(status_code=429)):
        path.write_text(f"{json.dumps(first)}\n\n{json.dumps(last)}\r\n")
        assert read_response_file(path, "mine")["a"].text == TEXT
    path.write_text(f"{json.dumps(own())}\n{json.dumps(own(example_id='b', dataset='other'))}\n{json.dumps(batch())}\n")
    with pytest.raises(UserError, match="line 3: 'a' has been answered before"):
        read_response_file(path, "mine")
    path.write_text(f"{json.dumps(own(dataset='mine'))}\n{json.dumps(own('#### 8', dataset='other'))}\n")
    assert [read_response_file(path, name)["a"].text for name in ("mine", "other")] == [TEXT, "#### 8"]


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
