"""What a model that only a server has is asked, as files of an OpenAI batch.

    <dataset>.requests.jsonl            the paper's prompt, with the model file's decoding
    <dataset>.verify.requests.jsonl     standard P(True), once responses are there
    <dataset>.in_situ.requests.jsonl    in situ: the assistant's own message goes on with the query

A custom_id is the example_id, with #verify or #in_situ in the latter two. `./run_all.sh PROFILE
--url URL` sends them to a server; vLLM, SGLang and providers take such files as a batch. Answers
lie beside them as `.responses.jsonl`.

A body holds what is needed and no more: providers refuse fields that they do not know. `request` in
the model's file is merged into each.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lib.errors import UserError
from lib.files import parse_json, read_lines, write_atomically
from lib.parameter_schemas import Model
from lib.params import Generation
from lib.paths import relative_path
from lib.random_streams import stream_seed
from lib.responses.formats import Response
from lib.responses.response_lines import LISTED
from lib.tasks import prompts
from lib.tasks.answers import answer_start_char
from lib.tasks.datasets import Example

VERIFICATIONS = ("verify", "in_situ")  # the forms of P(True), as files and custom_ids name them
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
PROBES = ("with the query", "without the query")  # whose prompts tell the tokens of the query
# vLLM, SGLang; llama.cpp does so itself
CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}
# of a question's tokens; none at 0 in llama.cpp, and 20 make an answer ten times as long
LISTED_OF_QUESTIONS = 1
OFF = {"top_p": (1.0,), "top_k": (-1, 0), "min_p": (0.0,)}  # values that change no probability
# switches of chat templates that a boolean sets; the others are set by `request`
SWITCHES = ("enable_thinking", "thinking")
LIMITS = ("max_tokens", "max_completion_tokens")  # names of the most tokens of an answer
NOT_COMPARED = ("model", "top_logprobs")  # of two requests for the same answer
BatchRequest = dict[str, Any]


def exchange_files(spec: Model, dataset: str, form: str = "") -> tuple[Path, Path]:
    """Return the files of a dataset's requests and responses; `form`: one of VERIFICATIONS."""
    responses = spec.responses_to(dataset)
    if responses is None:
        raise UserError(
            f"'{spec.label}' names no `responses`: "
            "set the folder for requests and answers in its file"
        )
    if not form:
        return responses.parent / f"{dataset}.requests.jsonl", responses
    stem = responses.parent / f"{dataset}.{form}"
    return Path(f"{stem}.requests.jsonl"), Path(f"{stem}.responses.jsonl")


# ---- what is asked


def make_request(custom_id: str, spec: Model, body: BatchRequest) -> BatchRequest:
    """Return a line of a batch, with the model file's `request` merged into its body."""
    body = merge(body, spec.request)
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": COMPLETION if "prompt" in body else CHAT,
        "body": body,
    }


def merge(body: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with changes as in a JSON merge patch (RFC 7396): null removes a field, and
    objects are merged.

    Examples
    --------
    >>> merge({"seed": 1, "max_tokens": 9}, {"seed": None, "extra": {"a": 1}})
    {'max_tokens': 9, 'extra': {'a': 1}}
    """
    merged = dict(body)
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            before = merged.get(name)
            merged[name] = merge(before if isinstance(before, dict) else {}, value)
        else:
            merged[name] = value
    return merged


def question_requests(
    spec: Model,
    model_name: str,
    names: tuple[str, str],
    examples: Iterable[Example],
    settings: Generation,
) -> Iterator[BatchRequest]:
    """Yield the request for each question. `names`: of model and dataset, the keys of its seed."""
    shared = {
        "model": model_name,
        "max_tokens": spec.max_new_tokens or settings.max_new_tokens,
        "temperature": spec.temperature,
        "logprobs": True,
        "top_logprobs": LISTED_OF_QUESTIONS,
    }
    for name, values_off in OFF.items():
        value = getattr(spec, name)
        if value not in values_off:
            shared[name] = value
    shared |= template_variables(spec, spec.thinking)
    for example in examples:
        messages = prompts.question_messages(
            example.question, spec.system_prompt, settings.demonstration
        )
        seed = stream_seed(settings.seed, *names, example.example_id)
        body = shared | {"messages": messages, "seed": seed % 2**31}  # llama.cpp takes 32 bits
        yield make_request(example.example_id, spec, body)


def template_variables(spec: Model, thinking: bool) -> BatchRequest:
    """Return the field with the variables of the chat template; none if the model's file sets none.

    A template ignores the switch of another family.
    """
    variables: dict[str, Any] = {}
    if spec.thinking:
        variables |= dict.fromkeys(SWITCHES, thinking)
    if spec.date_string:
        variables["date_string"] = spec.date_string
    return {"chat_template_kwargs": variables} if variables else {}


def verification_requests(
    form: str,
    spec: Model,
    questions: Mapping[str, BatchRequest],
    examples: Iterable[Example],
    responses: Mapping[str, Response],
) -> Iterator[BatchRequest]:
    """Yield the requests for one form of P(True) of every response.

    Parameters
    ----------
    form : one of VERIFICATIONS
    questions : the requests for the questions, by example_id
    examples, responses : the run's questions, and what was answered, by example_id
    """
    for example in examples:
        name = example.example_id
        if name not in questions or responses[name].empty:
            continue
        request = questions[name]["body"]
        text = responses[name].text
        if form == "verify":
            body = standard_body(spec, request, example.question, text)
        else:
            body = in_situ_body(spec, request, text)
        yield one_token_request(f"{name}#{form}", spec, request, body)
    if form == "in_situ":
        request = next(iter(questions.values()))["body"]
        for name, query in zip(PROBES, (prompts.QUERY, ""), strict=True):
            messages = prompts.chat_messages(f"#### 7{query}", system=False)
            yield one_token_request(f"{name}#in_situ", spec, request, {"messages": messages})


def standard_body(spec: Model, request: BatchRequest, question: str, text: str) -> BatchRequest:
    """Return what standard P(True) asks; `request`: that for the question. A model that thinks is
    asked to answer at once."""
    proposed = text[answer_start_char(text, spec.thinking) :].strip()
    messages = prompts.verification_messages(question, proposed, spec.system_prompt)
    return {"messages": messages, **template_variables(spec, thinking=False)}


def in_situ_body(spec: Model, request: BatchRequest, text: str) -> BatchRequest:
    """Return what P(True) in situ asks: the response goes on with the query.

    Templates drop the thinking from an assistant's message. So a model that thinks is asked by
    text: the server's own rendering of the messages is put before the prompt when it is sent.
    """
    answered = text + prompts.QUERY
    variables = template_variables(spec, spec.thinking)
    if spec.thinking:
        by_text = {"prompt": answered, "messages": request["messages"], "logprobs": LISTED}
        return by_text | variables
    messages = [*request["messages"], {"role": "assistant", "content": answered}]
    return {"messages": messages, **variables, **CONTINUE}


def one_token_request(
    custom_id: str, spec: Model, question: BatchRequest, body: BatchRequest
) -> BatchRequest:
    """Return the request for the next token alone, of the model that answered the question."""
    settings = {
        "model": question["model"],
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": True,
        "top_logprobs": LISTED,
    }
    request = make_request(custom_id, spec, settings | body)
    for name in LIMITS:  # `request` may have renamed it
        if name in request["body"]:
            request["body"][name] = 1
    return request


# ---- files


@dataclass
class RequestFile(Mapping[str, BatchRequest]):
    """The requests of a file by custom_id, each read when it is wanted: a file of many questions
    does not lie in memory. Raise UserError for a line that is none."""

    path: Path
    places: dict[str, int] = field(default_factory=dict)  # of a line's first byte

    def __post_init__(self) -> None:
        place = 0
        for number, line in enumerate(read_lines(self.path), 1):
            if line.strip():
                request = self.parse(line, number)
                self.places[str(request["custom_id"])] = place
            place += len(line)

    def parse(self, line: bytes, number: int = 1) -> BatchRequest:
        where = relative_path(self.path)
        try:
            request = parse_json(line, where, number)
            return request | {"custom_id": request["custom_id"], "body": dict(request["body"])}
        except (LookupError, TypeError):
            raise UserError(
                f"{where} has a line that is no request: remove the file and write it again"
            ) from None

    def __getitem__(self, custom_id: str) -> BatchRequest:
        with self.path.open("rb") as file:
            file.seek(self.places[custom_id])
            return self.parse(file.readline())

    def __contains__(self, custom_id: object) -> bool:
        return custom_id in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def check_same_requests(requests: Iterable[BatchRequest], path: Path, answers: Path) -> None:
    """Raise UserError if the file `answers` is there, and its requests in the file `path` are other
    than these."""
    if not path.exists() or not answers.exists():
        return
    sent = RequestFile(path)
    for request in requests:
        name = request["custom_id"]
        if name in sent:
            changed = changed_fields(request["body"], sent[name]["body"])
            if changed:
                about = f"'{name}' with another '{changed[0]}'"
                raise UserError(
                    f"{relative_path(answers)} answers {about}: move it away to ask again"
                )


def changed_fields(new: BatchRequest, old: BatchRequest) -> list[str]:
    """Return the names of fields in which two bodies differ, so that their answers do, too."""
    before, after = deciding_fields(old), deciding_fields(new)
    names = before.keys() | after.keys()
    if "seed" not in before or "seed" not in after:  # another draw, but of the same distribution
        names.discard("seed")
    return sorted(name for name in names if before.get(name) != after.get(name))


def deciding_fields(body: BatchRequest) -> BatchRequest:
    """Return the fields of a body on which its answer depends, the limit by its first name."""
    fields = {}
    for name, value in body.items():
        if name not in NOT_COMPARED:
            fields[LIMITS[0] if name in LIMITS else name] = value
    return fields


def write_requests(path: Path, requests: Iterable[BatchRequest], answers: Path) -> None:
    """Write a file of requests. Raise UserError if `answers` are there to a question that was asked
    otherwise."""

    def write(scratch: Path) -> None:
        with scratch.open("w", encoding="utf-8") as file:
            for request in requests:
                file.write(json.dumps(request, ensure_ascii=False) + "\n")
        check_same_requests(RequestFile(scratch).values(), path, answers)

    write_atomically(path, write)
