"""`ask` against a server that fails in each way: nothing is lost, nothing asked twice, and one line says why."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from types import SimpleNamespace

import pytest
from clone import copy_of_project
from served import completion, faulty

from lib.generate.response_files import read_response_file
from lib.generate.served import make_request, write_requests
from lib.paths import UserError
from workflow import ask

BODY = {"model": "m", "max_tokens": 99, "logprobs": True}
SOON = {"retry-after-ms": "1", "retry-after": "0"}


@pytest.fixture
def files(tmp_path):
    """Requests for twenty questions, and where their answers will be."""
    requests, answers = tmp_path / "d.requests.jsonl", tmp_path / "d.responses.jsonl"
    asked = [make_request(f"q{n}", BODY | {"messages": [{"role": "user", "content": f"{n}"}]}) for n in range(20)]
    write_requests(requests, asked, answers)
    return requests, answers


def send(files, answer, concurrent=4):
    """Ask a server that answers in this way, and return it."""
    with faulty(answer) as server:
        ask.ask_for_missing(*files, "d", SimpleNamespace(url=server.url, concurrent=concurrent))
    return server


def right(server, number, body):
    return completion(body)


def read(files):
    return read_response_file(files[1], "d")


def test_every_question_is_asked_once_and_again_only_without_an_answer(files):
    server = send(files, right)
    assert Counter(body["messages"][0]["content"] for body in server.asked) == {str(n): 1 for n in range(20)}
    assert {one.text for one in read(files).values()} == {"#### 7"} and len(read(files)) == 20
    lines = files[1].read_text().splitlines(keepends=True)
    failed = json.dumps({"custom_id": "q3", "response": {"status_code": 500, "body": {}}, "error": None})
    whole = [line for line in lines if json.loads(line)["custom_id"] not in ("q3", "q5", "q9")]
    files[1].write_text("".join(whole) + failed + "\n" + lines[0][:50])  # as a killed run leaves it
    server = send(files, right)
    assert sorted(body["messages"][0]["content"] for body in server.asked) == ["3", "5", "9"]
    assert len(read(files)) == 20
    files[1].write_text(files[1].read_text().rstrip("\n"))  # a provider's file may have no last line break
    assert not send(files, right).asked and len(read(files)) == 20


PASSING = {
    "429": (429, SOON, b"{}"),
    "500": (500, SOON, b"overloaded"),
    "a cut connection": (200, SOON | {"content-length": "900"}, b'{"choices"'),
    "no answer at all": (200, SOON, None),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_a_passing_fault_costs_nothing(files, fault, monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    send(files, lambda server, number, body: fault if number % 3 == 0 else completion(body))
    assert len(read(files)) == 20


def without(body):
    made = completion(body)
    made["choices"][0]["logprobs"] = None
    return made


def altered(**token):
    def answer(server, number, body):
        made = completion(body)
        made["choices"][0]["logprobs"]["content"][0] |= token
        return made

    return answer


def refuse(status, message):
    return lambda *_: (status, SOON, json.dumps({"error": {"message": message}}).encode())


LASTING = {
    "401": (refuse(401, "not the key sk-secret"), r"Error code: 401.*\*\*\*.*: set OPENAI_API_KEY"),
    "404": (refuse(404, "no model m"), "404.*no model m.*--model-name"),
    "400": (refuse(400, "top_k is unknown"), "400.*top_k is unknown.*docs/extending.md"),
    "429 for ever": (refuse(429, "busy"), "429.*: the same command goes on later"),
    "another host": (
        lambda *_: (302, {"location": "http://127.0.0.1:9/"}, b""),
        "302.*--url must be where it redirects to",
    ),
    "no log-probabilities": (lambda server, number, body: without(body), "has no log-probabilities"),
    "HTML": (lambda *_: (200, {"content-type": "text/html"}, b"<script>alert(1)</script>"), "not JSON"),
    "no JSON": (lambda *_: b'{"choices": [', "not JSON"),
    "deep": (lambda *_: b"[" * 100_000, "not JSON"),
    "an endless line": (lambda *_: b" " * 3_000_000, "longer than 1 MB"),
    "half of a character": (altered(token="\ud800", bytes=None), "input should be a valid string"),
    "a probability": (altered(logprob=0.9), "less than or equal"),
    "another text": (altered(token="####9", bytes=None), "do not make up its 'text'"),
}


@pytest.mark.parametrize("answer, said", LASTING.values(), ids=LASTING.keys())
def test_a_lasting_fault_is_one_line_and_no_answer(files, monkeypatch, answer, said):
    monkeypatch.setattr(ask, "MOST_BYTES", 10**6)
    monkeypatch.setattr(ask, "KEY", "sk-secret")
    monkeypatch.setattr(ask, "RETRIES", 2)
    with pytest.raises(UserError, match=said) as told:
        send(files, answer)
    assert "\n" not in str(told.value) and "sk-secret" not in str(told.value)
    assert files[1].read_bytes() == b""


def test_answers_that_can_not_be_used_are_said_and_the_others_are_kept(files, capsys):
    """Even those of the first questions, and more of them than are sent at once."""

    def answer(server, number, body):
        if int(body["messages"][0]["content"]) < 8:
            return 400, {}, b'{"error": {"message": "the prompt is too long"}}'
        return completion(body)

    for _ in range(100):
        with suppress(UserError):  # where four in a row fail
            send(files, answer)
        if len(read(files)) == 12:
            break
    assert set(read(files)) == {f"q{n}" for n in range(8, 20)}
    with pytest.raises(UserError, match="the prompt is too long"):
        send(files, answer)
    files[1].unlink()
    send(files, answer, concurrent=20)
    said = capsys.readouterr().out
    assert "12 of 20 answered\n8 can't be used" in said and "the prompt is too long" in said


def test_the_key_goes_to_its_host_alone_and_is_written_nowhere(files, monkeypatch):
    monkeypatch.setattr(ask, "KEY", "sk-secret")
    server = send(files, right)
    assert {headers.get("Authorization") or headers.get("authorization") for headers in server.headers} == {
        "Bearer sk-secret"
    }
    assert all(b"sk-secret" not in path.read_bytes() for path in files[1].parent.iterdir())
    with faulty(right) as other:
        redirected = lambda *_: (307, {"location": f"{other.url}/v1/chat/completions"}, b"")  # noqa: E731
        files[1].unlink()
        with pytest.raises(UserError, match="redirects to"):
            send(files, redirected)
        assert not other.asked


def test_two_at_once_are_refused(files):
    with files[1].open("ab") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="is being written by another `ask`"):
            send(files, right)


@pytest.mark.slow
def test_five_hundred_questions_and_two_kills(tmp_path):
    """Each kill loses what was in flight, at most as many as are sent at once; nothing that was kept is asked again."""
    folder = copy_of_project(tmp_path / "project")
    command = [sys.executable, "-m", "workflow.run"]
    options = ["demo", "--models", "served", "--datasets", "demo-easy"]
    env = os.environ | {"PYTHONPATH": str(folder)}
    subprocess.run([*command, "requests", *options], cwd=folder, env=env, check=True, capture_output=True)
    path = folder / "artifacts" / "served" / "demo-easy.responses.jsonl"

    def slow(server, number, body):
        time.sleep(0.02)
        return completion(body)

    with faulty(slow) as server:
        for enough in 120, 300, 500:
            running = subprocess.Popen([*command, "ask", *options, "--url", server.url], cwd=folder, env=env)
            while running.poll() is None and enough < 500:
                kept = path.read_bytes().count(b"\n") if path.exists() else 0
                if kept >= enough:
                    os.kill(running.pid, signal.SIGKILL)
                time.sleep(0.01)
            assert running.wait() == (0 if enough == 500 else -signal.SIGKILL)
        asked = Counter(body["messages"][-1]["content"] for body in server.asked)
    found = read_response_file(path, "demo-easy")
    assert len(found) == 500 and all(one.pieces for one in found.values())
    assert len(asked) == 500 and sum(asked.values()) <= 500 + 2 * 8
