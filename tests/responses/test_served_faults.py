"""`ask` against a server that fails in each way: nothing is lost, nothing asked twice, and one line
says why."""

import gzip
import json
import time
from collections import Counter
from contextlib import suppress

import pytest
from clone import copy_of_project, kill, run, start, until
from filelock import FileLock
from served import Served, batch_line, completion, right, serving

from lib.errors import UserError
from lib.responses import served
from lib.responses.formats import read_response_file
from workflow import serve_requests

SOON = {"retry-after-ms": "1", "retry-after": "0"}


@pytest.fixture
def model(tmp_path):
    """Twenty questions to a model, whose seeds tell them apart."""
    served = Served(tmp_path)
    served.command("requests")
    return served


def seeds(model):
    """Those of all questions, by name."""
    requests = served.read_requests(served.exchange_files(model.spec, "demo-easy")[0])
    return {name: request["body"]["seed"] for name, request in requests.items()}


PASSING = [
    (429, SOON, b"{}"),
    (500, SOON, b"overloaded"),
    (200, SOON | {"content-length": "900"}, b'{"choices"'),
    (200, SOON, None),
]


def test_every_question_is_asked_until_it_is_answered_and_not_again(model, monkeypatch):
    """Passing faults cost nothing: a busy or broken server, a cut connection, and no answer at
    all."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    tried, places = Counter(), list(seeds(model).values())

    def at_second(request):
        tried[request.body["seed"]] += 1
        return (
            right(request)
            if tried[request.body["seed"]] > 1
            else PASSING[places.index(request.body["seed"]) % 4]
        )

    model.send(at_second)
    assert tried == dict.fromkeys(places, 2)
    assert model.read_responses().keys() == seeds(model).keys()
    assert {response.text for response in model.read_responses().values()} == {"#### 7"}

    lines = model.answers().read_text().splitlines(keepends=True)
    again = [json.loads(line)["custom_id"] for line in lines[:3]]
    failed = batch_line(again[0], {}, status=500)
    # as a killed run leaves it
    half = lines[1][:50]
    model.answers().write_text("".join(lines[3:]) + failed + half)
    sent = [request.body["seed"] for request in model.send(right)]
    assert sorted(sent) == sorted(seeds(model)[name] for name in again)
    # as some providers end a file
    model.answers().write_text(model.answers().read_text().rstrip("\n"))
    assert not model.send(right) and len(model.read_responses()) == 20


def refuse(status, message):
    return lambda _: (status, SOON, json.dumps({"error": {"message": message}}).encode())


# without log-probabilities, or below beside those of another text
BARE = {"message": {"content": "9"}}
LASTING = {
    "401": (refuse(401, "not the key sk-secret"), r"Error code: 401.*\*\*\*.*: set OPENAI_API_KEY"),
    "404": (refuse(404, "no model m"), "404.*no model m.*--model-name"),
    "400": (refuse(400, "top_k is unknown"), "400.*top_k is unknown.*docs/extending.md"),
    "429 for ever": (refuse(429, "busy"), "429.*: the same command goes on later"),
    "no JSON": (lambda _: (200, {}, b"<script>alert(1)</script>"), "not JSON"),
    "no object": (lambda _: [], "no JSON object"),
    "an endless line": (
        lambda _: (200, {"content-length": "9000000000"}, b" " * 1_100_000),
        "longer than 1 MB",
    ),
    "no log-probabilities": (lambda _: {"choices": [BARE]}, "has no log-probabilities"),
    "another text": (
        lambda _: {"choices": [completion()["choices"][0] | BARE]},
        "line 1: .* not make up its 'text'",
    ),
}


@pytest.mark.parametrize("answer, message", LASTING.values(), ids=LASTING.keys())
def test_a_lasting_fault_is_one_line_and_no_answer(model, monkeypatch, answer, message):
    monkeypatch.setattr(serve_requests, "MOST_BYTES", 10**6)
    monkeypatch.setattr(serve_requests, "KEY", "sk-secret")
    monkeypatch.setattr(serve_requests, "RETRIES", 2)
    with pytest.raises(UserError, match=message) as caught:
        model.send(answer)
    assert "\n" not in str(caught.value) and "sk-secret" not in str(caught.value)
    assert model.answers().read_bytes() == b""


def test_answers_that_can_not_be_used_are_said_and_the_others_are_kept(model, capsys):
    """Even those of the first questions, and more of them than are sent at once."""
    unusable = list(seeds(model).values())[:8]
    others = list(seeds(model))[8:]
    too_long = refuse(400, "the prompt is too long")

    def answer(request):
        return too_long(request) if request.body["seed"] in unusable else right(request)

    def all_others():
        with suppress(UserError):  # where six in a row fail
            model.send(answer, concurrent=6)
        return set(model.read_responses()) == set(others)

    until(all_others)
    with pytest.raises(UserError, match="the prompt is too long"):
        model.send(answer)
    model.answers().unlink()
    model.send(answer, concurrent=9)
    output = capsys.readouterr().out
    assert "12 of 20 answered\n8 can't be used" in output
    assert "the prompt is too long" in output


def test_the_key_goes_to_its_host_alone_and_is_written_nowhere(model, monkeypatch):
    monkeypatch.setattr(serve_requests, "KEY", "sk-secret")
    assert {request.key for request in model.send(right)} == {"Bearer sk-secret"}
    assert all(b"sk-secret" not in path.read_bytes() for path in model.answers().parent.iterdir())
    model.answers().unlink()
    with serving(right) as other:
        for status in 301, 302, 307, 308:
            with pytest.raises(UserError, match=f"{status}.*--url must be where it redirects to"):
                redirect = (status, {"location": f"{other.url}/v1/chat/completions"}, b"")
                model.send(lambda _, answer=redirect: answer)
    assert not other.asked


FOREIGN = {
    "gzip": gzip.compress,
    "UTF-16, of Windows": lambda text: text.decode().encode("utf-16"),
    "an indented list": lambda text: json.dumps(
        [json.loads(line) for line in text.splitlines()], indent=1
    ).encode(),
    "a remark at its end": lambda text: text + b"# collected on node 7, second shift",
    "half a line of a provider": lambda text: (
        text + b'{"id": "batch_req_1", "custom_id": "easy-0001", "resp'
    ),
    "half a line of nobody's question": lambda text: text + line_of("nobody")[:70],
    "half a line of `ask` after a bad one": lambda text: b"{\n" + text[:-20],
    "no line break after a bad line": lambda text: b"{\n" + text.rstrip(b"\n"),
}


def line_of(name):
    return batch_line(name, completion()).encode()


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_that_is_refused_keeps_every_byte(model, kind):
    """Answers that somebody joined, packed or annotated, or that another program left half."""
    text = b"".join(map(line_of, list(seeds(model))[:3]))
    (path := model.answers()).write_bytes(FOREIGN[kind](text))
    before = path.read_bytes()
    with pytest.raises(UserError, match=f"{path.name}, line ") as refused:
        model.send(right)
    assert path.read_bytes() == before and "\n" not in str(refused.value)


@pytest.mark.parametrize("length", [1, 13, 30, -1])
def test_half_a_line_that_a_killed_ask_wrote_is_removed_and_asked_again(model, length):
    first, second, *others = map(line_of, seeds(model))
    model.answers().write_bytes(b"".join(others) + first + second[:length])
    requests = model.send(right)
    assert len(requests) == (0 if length == -1 else 1)
    assert len(model.read_responses()) == 20
    assert model.answers().read_bytes().startswith(b"".join(others) + first)


@pytest.mark.parametrize("key", ["sk-secret\n", " sk-secret\r\n", "\tsk-secret"])
def test_blanks_around_a_key_are_none_of_it(model, monkeypatch, key):
    monkeypatch.setattr(serve_requests, "KEY", key)
    assert {request.key for request in model.send(right)} == {"Bearer sk-secret"}


@pytest.mark.parametrize(
    "key", ["sk-se\ncret", "sk-s\u00eecret", "\u201csk-secret\u201d", "sk-\x00secret"]
)
def test_a_key_that_no_header_can_carry_is_one_line_without_it(model, monkeypatch, key):
    monkeypatch.setattr(serve_requests, "KEY", key)
    with pytest.raises(
        UserError, match="^OPENAI_API_KEY has a character that no header can carry"
    ) as refused:
        model.send(right)
    assert "cret" not in str(refused.value) and not model.answers().read_bytes()


def test_two_at_once_are_refused(model):
    first = FileLock(model.answers().with_name(f".{model.answers().name}.lock"))
    with first, pytest.raises(UserError, match="is being written by another `ask`"):
        model.send(right)
    assert model.send(right), "the lock of one that has ended does not matter"


@pytest.mark.slow
def count_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_five_hundred_questions_and_two_kills(tmp_path):
    """Each kill loses what was in flight, at most as many as are sent at once; nothing that was
    kept is asked again."""
    folder = copy_of_project(tmp_path / "project")
    options = ["demo", "--models", "served", "--datasets", "demo-easy"]
    run(folder, "requests", *options)
    path = folder / "artifacts" / "served" / "demo-easy.responses.jsonl"

    def slow(request):
        time.sleep(0.02)
        return completion()

    with serving(slow) as server:
        for enough in 120, 300:
            process = start(folder, "ask", *options, "--url", server.url)
            until(lambda wanted=enough: count_lines(path) >= wanted, process=process)
            kill(process)
            assert process.wait() < 0
        run(folder, "ask", *options, "--url", server.url)
    requests_by_seed = Counter(request.body["seed"] for request in server.asked)
    responses = read_response_file(path, "demo-easy")
    assert len(responses) == len(requests_by_seed) == 500
    for response in responses.values():
        assert response.pieces
    assert requests_by_seed.total() <= 500 + 2 * 8
