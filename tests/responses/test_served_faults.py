"""A server that fails in each way: nothing is lost, nothing asked twice, no question blocks
another, and the server's own reason is said in one line."""

import gzip
import json
import re
import time
from collections import Counter

import pytest
from clone import copy_of_project, counts, kill, start, until
from filelock import FileLock
from served import Served, batch_line, completion, of_questions, right, serving

from lib.errors import UserError
from lib.responses.formats import read_response_file
from workflow.serving import connection

SOON = {"retry-after-ms": "1", "retry-after": "0"}


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Twenty questions to a model, whose seeds tell them apart."""
    monkeypatch.setattr(connection, "FIRST_WAIT", 0.001)
    served = Served(tmp_path)
    served.write_requests()
    return served


def seeds(model):
    """Those of all questions, by name."""
    return {name: request["body"]["seed"] for name, request in model.requests().items()}


PASSING = [
    (429, SOON, b"{}"),
    (500, SOON, b"overloaded"),
    (200, SOON | {"content-length": "900"}, b'{"choices"'),
    (200, SOON, None),
    (200, SOON, b'{"error": {"message": "Rate limit exceeded", "code": 429}}'),
    (200, SOON, b'{"choices": null, "model": "m"}'),
    (200, SOON, b'{"choices": [{"error": {"message": "upstream", "code": 502}}]}'),
    (503, SOON, b'{"error": {"message": "Loading model"}}'),
]


def test_every_question_is_asked_until_it_is_answered_and_not_again(model):
    """Passing faults cost nothing: a busy or broken server, a cut connection, no answer at all, and
    an error inside a status of 200."""
    tried, places = Counter(), list(seeds(model).values())

    def at_second(request):
        seed = request.body.get("seed")
        tried[seed] += 1
        if seed is None or tried[seed] > 1:
            return right(request)
        return PASSING[places.index(seed) % len(PASSING)]

    model.ask_fake(at_second)
    del tried[None]
    assert tried == dict.fromkeys(places, 2)
    assert model.read_responses().keys() == seeds(model).keys()
    assert {response.text for response in model.read_responses().values()} == {"#### 7"}

    lines = model.answers().read_text().splitlines(keepends=True)
    again = [json.loads(line)["custom_id"] for line in lines[:3]]
    failed = batch_line(again[0], {}, status=500)
    # as a killed run leaves it
    half = lines[1][:50]
    model.answers().write_text("".join(lines[3:]) + failed + half)
    requests, outcome = model.ask_fake(right)
    sent = [request.body["seed"] for request in requests]
    assert sorted(sent) == sorted(seeds(model)[name] for name in again)
    assert not outcome.missing
    # as some providers end a file
    model.answers().write_text(model.answers().read_text().rstrip("\n"))
    assert not model.ask_fake(right)[0] and len(model.read_responses()) == 20


def refuse(status, message, **headers):
    content = message if isinstance(message, dict) else {"error": {"message": message}}
    return lambda _: (status, SOON | headers, json.dumps(content).encode())


def page(status, text):
    return lambda _: (status, SOON, text.encode())


# without log-probabilities, or below beside those of another text
BARE = {"message": {"content": "9"}}
LASTING = {
    "401": (refuse(401, "not the key sk-secret"), r"401 not the key \*\*\*: set OPENAI_API_KEY"),
    "402": (refuse(402, "Insufficient credits"), "402 Insufficient credits: .* has credit"),
    "403": (refuse(403, "no access to model m"), "403 no access to model m: the key may not"),
    "404": (refuse(404, "no model m"), "404 no model m: .*--model-name"),
    "413": (refuse(413, "Request entity too large"), "413 Request entity too large: .*too long"),
    "422": (
        refuse(422, {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs"}]}),
        "422 Extra inputs: body.seed: write `request: {seed: null}` in params/models/served.yaml",
    ),
    "422 of Mistral": (
        refuse(422, {"object": "error", "message": {"detail": [{"loc": ["top_p"], "msg": "bad"}]}}),
        "422 bad: top_p$",
    ),
    "400": (refuse(400, "temperature: unsupported"), "write `request: {temperature: null}`"),
    "a limit's name": (
        refuse(400, "Unsupported: 'max_tokens'. Use 'max_completion_tokens' instead."),
        "write `request: {max_tokens: null, max_completion_tokens: 256}`",
    ),
    "logprobs": (refuse(400, "logprobs is not supported"), "lists who gives them"),
    "429 for ever": (refuse(429, "busy"), "429 busy: the same command goes on later"),
    "429 for an hour": (
        refuse(429, "quota", **{"retry-after-ms": "3600000"}),
        "429 quota: asks to wait 3600 s",
    ),
    "503": (refuse(503, "Loading model"), "503 Loading model: .* once the server is ready"),
    "529": (refuse(529, "Overloaded"), "529 Overloaded$"),
    "error as a text": (refuse(400, {"error": "no such template"}), "400 no such template$"),
    "no reason": (page(400, ""), "400 Bad Request$"),
    "error in a 200": (
        page(200, '{"error": {"message": "No credit", "code": 402}}'), "402 No credit: ",
    ),
    "a gateway's error": (
        page(200, '{"error": {"message": "Provider returned error", "code": 400, '
             '"metadata": {"raw": "context too long"}}}'),
        "400 Provider returned error: context too long$",
    ),
    "no choices": (page(200, '{"choices": []}'), r"its answer has no choices \(\[\]\)"),
    "a page": (page(200, "<html><title>Sign in</title>"), "not JSON: a page of HTML: 'Sign in'"),
    "a page of a proxy": (page(502, "<h1>Bad gateway</h1>"), "502 a page of HTML: 'Bad gateway'"),
    "a stream": (page(200, 'data: {"choices": []}\n\n'), "in a stream: write `request: {stream"),
    "no JSON": (page(200, "well, hello"), "not JSON: well, hello: is --url"),
    "no object": (lambda _: [], "its answer, line 1|no JSON object|no choices|not one chat"),
    "an endless line": (
        lambda _: (200, {"content-length": "9000000000"}, b" " * 1_100_000),
        "longer than 1 MB",
    ),
    "no log-probabilities": (lambda _: {"choices": [BARE]}, "has no log-probabilities: start the"),
    "zeros": (
        lambda _: completion("a b c d e f g h #### 7", logprob=0.0),
        "log-probabilities of all 10 tokens are 0",
    ),
    "another text": (
        lambda _: {"choices": [completion()["choices"][0] | BARE]},
        "not make up its 'text'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("answer, message", LASTING.values(), ids=LASTING.keys())
def test_a_lasting_fault_is_one_line_and_no_answer(model, monkeypatch, answer, message):
    """Of the first eight answers, none can be used: it ends there."""
    monkeypatch.setattr(connection, "MOST_BYTES", 10**6)
    monkeypatch.setattr(connection, "KEY", "sk-secret")
    monkeypatch.setattr(connection, "RETRIES", 2)
    seeds_asked = set()

    def noted(request):
        seeds_asked.add(request.body["seed"])
        return answer(request)

    with pytest.raises(UserError, match=message) as caught:
        model.ask_fake(noted)
    assert "\n" not in str(caught.value) and "sk-secret" not in str(caught.value)
    assert model.answers().read_bytes() == b""
    assert len(seeds_asked) == 8


def withhold(message):
    """An answer with status 200 that a filter has emptied."""
    choice = {"message": {"content": ""}, "finish_reason": "content_filter", "logprobs": None}
    return lambda _: {"choices": [choice]}


REFUSALS = {
    "The response 1 was filtered": (lambda text: refuse(400, text), "400 The response "),
    "an empty answer": (withhold, "its answer is empty: it was withheld"),
    "the server's own fault": (lambda text: refuse(500, text), "500 the server's own fault"),
}


@pytest.mark.parametrize("text", REFUSALS)
def test_no_question_blocks_another(model, monkeypatch, text):
    """Twelve are refused each time, more than are sent at once: the others are answered, and asked
    for P(True). The next command asks the twelve alone."""
    monkeypatch.setattr(connection, "RETRIES", 0)
    refusal, words = REFUSALS[text]
    unusable = list(seeds(model).values())[:12]
    others = list(seeds(model))[12:]

    def answer(request):
        if request.body.get("seed") in unusable:
            number = request.body["seed"] % 1000
            return refusal(text.replace("1", str(number)))(request)
        return right(request)

    for count in (20, 12, 12):
        requests, outcome = model.ask_fake(answer)
        assert len(of_questions(requests)) == count
        assert outcome.missing == 12 and not outcome.is_stopped
        (reason,) = outcome.reasons
        assert reason.startswith(words) and " (the first: easy-" in reason
        assert f"12 x {words}" in outcome.describe()
        assert set(model.read_responses()) == set(others)
        for form in ("verify", "in_situ"):
            of_form = model.read_responses(form)
            assert {f"{name}#{form}" for name in others} <= of_form.keys()


def test_a_form_that_a_server_refuses_leaves_the_other(model):
    """As llama.cpp refuses to go on with the message of a model that may think."""

    def answer(request):
        if request.body["messages"][-1]["role"] == "assistant":
            return refuse(400, "Assistant response prefill is incompatible with enable_thinking.")(
                request
            )
        return right(request)

    _, outcome = model.ask_fake(answer)
    assert len(model.read_responses("verify")) == 20
    ((reason, count),) = outcome.reasons.items()
    assert count == 20 + 2 and not outcome.is_stopped
    assert "stays empty, unless it is asked by text: `thinking: true`" in reason


def test_a_server_that_goes_away_is_left_and_the_rest_is_asked_later(model, monkeypatch):
    monkeypatch.setattr(connection, "RETRIES", 1)
    answers = []

    def twelve_times(request):
        answers.append(request)
        return right(request) if len(answers) <= 12 else (200, {}, None)

    _, outcome = model.ask_fake(twelve_times)
    assert outcome.is_stopped and outcome.missing == 8
    assert not model.answers("verify").exists()
    requests, outcome = model.ask_fake(right)
    assert len(of_questions(requests)) == 8 and not outcome.missing


def test_an_answer_that_takes_its_time_is_waited_for_and_computed_once(model, monkeypatch):
    """Unless --timeout says how long, and then it is not asked for again, either."""
    model.ask_fake(right)
    lines = model.answers().read_bytes().splitlines(keepends=True)
    slow_one = json.loads(lines[-1])["custom_id"]

    def slow(request):
        time.sleep(1.5)
        return right(request)

    model.answers().write_bytes(b"".join(lines[:-1]))
    requests, outcome = model.ask_fake(slow, timeout=1)
    assert len(requests) == 1 and not outcome.is_stopped
    (reason,) = outcome.reasons
    assert reason.startswith("408 no answer within 1 s: a longer --timeout, or none")
    requests, outcome = model.ask_fake(slow)
    assert len(requests) == 1 and not outcome.missing
    assert slow_one in model.read_responses()


def test_a_provider_that_lists_five_tokens_is_asked_for_five(model, capsys):
    """All forms are answered; the requests for one token are repeated once per form, no more."""

    def capped(request):
        if request.body["top_logprobs"] > 5:
            message = "Invalid value for 'top_logprobs': must be less than or equal to 5."
            return refuse(400, message)(request)
        return right(request)

    requests, outcome = model.ask_fake(capped, concurrent=1)
    assert not outcome.missing
    listed = Counter(request.body["top_logprobs"] for request in requests)
    assert listed == {1: 20, 20: 2, 5: 42}
    assert "it lists 5 tokens at most (Invalid value for" in capsys.readouterr().out


def test_a_provider_that_lists_not_even_five_is_asked_for_fewer_once_a_form(model, capsys):
    """Though several requests of a form fail."""

    def refuse_lists(request):
        if request.body["top_logprobs"] > 1:
            return refuse(400, "Invalid value for 'top_logprobs'.")(request)
        return right(request)

    requests, outcome = model.ask_fake(refuse_lists, concurrent=1)
    assert outcome.missing
    listed = Counter(request.body["top_logprobs"] for request in requests)
    assert listed[20] == 2 and listed[5] > 2
    assert capsys.readouterr().out.count("it lists 5 tokens at most") == 2


# ---- the first answers


def with_model(name):
    return lambda request: right(request) | {"model": name}


def no_option(request):
    if request.body["max_tokens"] > 1:
        return right(request)
    return completion("Sure", {"Sure": -0.1, "The": -3.0})


def thought(request):
    return right(request, "Well. </think> #### 7")


def thinks_first(request):
    if request.body["max_tokens"] > 1:
        return right(request)
    return completion("<think>", {"<think>": -0.1, "A": -3.0})


AT_ONCE = r"`request: \{chat_template_kwargs: \{enable_thinking: false\}\}`"
FIRST = {
    "another model": (with_model("other-v2"), "", "answers as model 'other-v2', not 'm': write"),
    "no option": (no_option, "verify", "lists `A` or `B` among its 2 most .* begins with 'Sure'"),
    "thinking that was not asked for": (thought, "", rf"answers thinks: write .* or {AT_ONCE}"),
    "thinking before a verdict": (thinks_first, "verify", rf"model thinks before it.*{AT_ONCE}"),
}


@pytest.mark.parametrize("answer, form, message", FIRST.values(), ids=FIRST.keys())
def test_the_first_eight_answers_are_a_probe(model, answer, form, message):
    """Where they are in vain, no others are paid for, and none of them is kept."""
    if not form:
        with pytest.raises(UserError, match=message):
            model.ask_fake(answer)
    else:
        requests, outcome = model.ask_fake(answer)
        one_token = [request for request in requests if "seed" not in request.body]
        assert len(one_token) == 8 + 8, "of both forms"
        assert len(outcome.reasons) == 2 and not outcome.is_stopped
        assert re.search(message, str(outcome.reasons))
    assert model.answers(form).read_bytes() == b""


def test_another_model_is_noticed_by_a_later_command_too(model):
    """The answers of before stay, and none of the other's is kept."""
    model.ask_fake(right)
    lines = model.answers().read_bytes().splitlines(keepends=True)
    twelve = b"".join(lines[:12])
    model.answers().write_bytes(twelve)
    requests, outcome = model.ask_fake(with_model("other-v2"))
    assert len(requests) == 8 and outcome.missing == 8
    assert "answers as model 'other-v2'" in str(outcome.reasons)
    assert model.answers().read_bytes() == twelve


def test_a_model_that_was_to_think_and_does_not_is_a_wrong_setting(tmp_path):
    model = Served(tmp_path, thinking=True)
    with pytest.raises(UserError, match="none of the first 8 answers .*: remove `thinking: true`"):
        model.ask_fake(right)


@pytest.mark.parametrize("name", ["m-2024-08-06", "org/M", "/srv/models/m.gguf", ""])
def test_a_server_may_lengthen_a_models_name(model, name):
    assert not model.ask_fake(with_model(name))[1].missing


# ---- the key, and the file of answers


def test_the_key_goes_to_its_host_alone_and_is_written_nowhere(model, monkeypatch):
    monkeypatch.setattr(connection, "KEY", "sk-secret")
    assert {request.key for request in model.ask_fake(right)[0]} == {"Bearer sk-secret"}
    paths = [path for path in model.answers().parent.iterdir() if path.is_file()]
    assert all(b"sk-secret" not in path.read_bytes() for path in paths)
    model.answers().unlink()
    with serving(right) as other:
        for status in 301, 302, 307, 308:
            redirect = (status, {"location": f"{other.url}/v1/chat/completions"}, b"")
            with pytest.raises(UserError, match=f"{status}.*--url must be where it redirects to"):
                model.ask_fake(lambda _, answer=redirect: answer)
    assert not other.requests


@pytest.mark.parametrize("key", ["sk-secret\n", " sk-secret\r\n", "\tsk-secret"])
def test_blanks_around_a_key_are_none_of_it(model, monkeypatch, key):
    monkeypatch.setattr(connection, "KEY", key)
    assert {request.key for request in model.ask_fake(right)[0]} == {"Bearer sk-secret"}


@pytest.mark.parametrize(
    "key", ["sk-se\ncret", "sk-s\u00eecret", "\u201csk-secret\u201d", "sk-\x00secret"]
)
def test_a_key_that_no_header_can_carry_is_one_line_without_it(model, monkeypatch, key):
    monkeypatch.setattr(connection, "KEY", key)
    with pytest.raises(
        UserError, match="^OPENAI_API_KEY has a character that no header can carry"
    ) as refused:
        model.ask_fake(right)
    assert "cret" not in str(refused.value) and not model.answers().read_bytes()


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
    "half a line of ours after a bad one": lambda text: b"{\n" + text[:-20],
    "no line break after a bad line": lambda text: b"{\n" + text.rstrip(b"\n"),
}


def line_of(name):
    return batch_line(name, completion()).encode()


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_that_is_refused_keeps_every_byte(model, kind):
    """Answers that somebody joined, packed or annotated, or that another program left half."""
    text = b"".join(map(line_of, list(seeds(model))[:3]))
    path = model.answers()
    path.write_bytes(FOREIGN[kind](text))
    before = path.read_bytes()
    with pytest.raises(UserError, match=f"{path.name}, line ") as refused:
        model.ask_fake(right)
    assert path.read_bytes() == before and "\n" not in str(refused.value)


@pytest.mark.parametrize("length", [1, 13, 30, -1])
def test_half_a_line_that_a_killed_command_wrote_is_removed_and_asked_again(model, length):
    first, second, *others = map(line_of, seeds(model))
    model.answers().write_bytes(b"".join(others) + first + second[:length])
    requests = of_questions(model.ask_fake(right)[0])
    assert len(requests) == (0 if length == -1 else 1)
    assert len(model.read_responses()) == 20
    assert model.answers().read_bytes().startswith(b"".join(others) + first)


def test_a_line_longer_than_what_is_read_at_once_from_the_end(model, monkeypatch):
    monkeypatch.setattr("workflow.serving.answer_files.BLOCK", 7)
    test_half_a_line_that_a_killed_command_wrote_is_removed_and_asked_again(model, 30)


def test_two_at_once_are_refused(model):
    first = FileLock(model.answers().with_name(f".{model.answers().name}.lock"))
    with first, pytest.raises(UserError, match="is being written by another command"):
        model.ask_fake(right)
    assert model.ask_fake(right)[0], "the lock of one that has ended does not matter"


def count_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_five_hundred_questions_and_two_kills(tmp_path):
    """Each kill loses what was in flight, at most as many as are sent at once; nothing that was
    kept is asked again. No parameter file is needed, and the report is made."""
    folder = copy_of_project(tmp_path / "project")
    options = ["demo", "--datasets", "demo-easy"]
    path = folder / "artifacts" / "served" / "m" / "demo-easy.responses.jsonl"

    def slow(request):
        time.sleep(0.02)
        return right(request)

    with serving(slow) as server:
        for enough in 120, 300:
            process = start(folder, *options, "--url", server.url)
            until(lambda wanted=enough: count_lines(path) >= wanted, process=process)
            kill(process)
            assert process.wait() < 0
        process = start(folder, *options, "--url", server.url)
        output = process.communicate()[0]
        assert process.returncode == 0, output
        requests = list(server.requests)
        process = start(folder, *options, "--url", server.url)
        output = process.communicate()[0]
        assert counts(output)[0] == 0
        assert server.requests == requests, "a command that lacks nothing asks nothing"
    requests_by_seed = Counter(request.body["seed"] for request in of_questions(requests))
    responses = read_response_file(path, "demo-easy")
    assert len(responses) == len(requests_by_seed) == 500
    for response in responses.values():
        assert response.pieces
    assert requests_by_seed.total() <= 500 + 2 * 8
    assert len(requests) - requests_by_seed.total() == 500 + 502
