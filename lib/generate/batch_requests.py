"""Requests to a server for what a run asks its models, as files of an OpenAI batch: one JSON line each.

    <dataset>.requests.jsonl            the paper's prompt, with the model file's decoding; custom_id: the example_id
    <dataset>.verify.requests.jsonl     standard P(True), once responses are there; custom_id: example_id#verify
    <dataset>.in_situ.requests.jsonl    P(True) in situ: the assistant's own message goes on with the query; #in_situ

vLLM, SGLang and providers send such files; `./run_all.sh ask` sends them to any other server. Answers lie beside
them as `.responses.jsonl`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lib.files import parse_json, read_bytes, write_atomically
from lib.generate.imported_responses import ImportedResponses
from lib.parameter_schemas import Model
from lib.params import Generation
from lib.paths import UserError, relative_path
from lib.random_streams import stream_seed
from lib.tasks import prompts
from lib.tasks.answers import answer_start_char
from lib.tasks.datasets import Example

VERIFICATIONS = ("verify", "in_situ")  # the forms of P(True), as files and custom_ids name them
LISTED = 20  # most probable tokens that a server lists: the most that OpenAI's interface allows
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
PROBES = ("with the query#in_situ", "without the query#in_situ")  # whose prompts tell the tokens of the query
CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}  # vLLM, SGLang; llama.cpp does so itself
BatchRequest = dict[str, Any]


def served_file(spec: Model, dataset: str, kind: str, form: str = "") -> Path:
    """Return the file of a dataset's `requests` or `responses`; `form`: one of VERIFICATIONS."""
    responses = spec.responses_to(dataset)
    if responses is None:
        raise UserError(f"'{spec.label}' names no `responses`: set the folder for requests and answers in its file")
    if kind == "responses" and not form:
        return responses
    return responses.parent / ".".join(filter(None, (dataset, form, kind, "jsonl")))


def make_request(custom_id: str, body: BatchRequest, **more: Any) -> BatchRequest:
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body, **more}


def question_requests(
    spec: Model, model_name: str, names: tuple[str, str], examples: Iterable[Example], settings: Generation
) -> Iterator[BatchRequest]:
    """Yield the request for each question. `names`: of model and dataset, the keys of its seed."""
    template = {"enable_thinking": spec.thinking} | ({"date_string": spec.date_string} if spec.date_string else {})
    decoding = {name: getattr(spec, name) for name in ("temperature", "top_p", "top_k", "min_p")}
    for example in examples:
        seed = stream_seed(settings.seed, *names, example.example_id) % 2**31  # llama.cpp takes 32 bits
        body = {
            "model": model_name,
            "messages": prompts.question_messages(example.question, spec.system_prompt, settings.demonstration),
            "max_tokens": spec.max_new_tokens or settings.max_new_tokens,
            **decoding,
            "seed": seed,
            "logprobs": True,
            "top_logprobs": LISTED,
            "chat_template_kwargs": template,
        }
        yield make_request(example.example_id, body)


def verification_requests(
    imported: ImportedResponses, asked: Mapping[str, BatchRequest]
) -> dict[str, list[BatchRequest]]:
    """Return the requests of both forms of P(True), for every question that has a response.

    Parameters
    ----------
    imported : the responses
    asked : the request of each question, by example_id
    """
    spec, standard, in_situ = imported.spec, [], []
    for example in imported.examples:
        response, first = imported.responses[example.example_id], asked[example.example_id]["body"]
        if not response.empty:
            name, answered = example.example_id, response.text
            proposed = answered[answer_start_char(answered, spec.thinking) :].strip()
            messages = prompts.verification_messages(example.question, proposed, spec.system_prompt)
            standard.append(make_request(f"{name}#verify", one_token(first, messages, spec.thinking)))
            in_situ.append(in_situ_request(f"{name}#in_situ", first, answered + prompts.QUERY, spec.thinking))
    for name, query in zip(PROBES, (prompts.QUERY, ""), strict=True):
        in_situ.append(make_request(name, one_token(first, prompts.chat_messages(f"#### 7{query}", False), False)))
    return {"verify": standard, "in_situ": in_situ}


def one_token(first: BatchRequest, messages: prompts.Messages, thinking: bool) -> BatchRequest:
    """Return the body that asks for the next token alone; a model that thinks is asked to answer at once."""
    asked = {"model": first["model"], "messages": messages, "max_tokens": 1, "temperature": 0.0, "logprobs": True}
    template = first["chat_template_kwargs"] | ({"enable_thinking": False} if thinking else {})
    return asked | {"top_logprobs": LISTED, "chat_template_kwargs": template}


def in_situ_request(name: str, first: BatchRequest, answered: str, thinking: bool) -> BatchRequest:
    """Return the request for the token after a response and the query.

    Templates drop the thinking from an assistant's message. A thinking model is therefore asked by text: `ask` puts
    the server's own rendering of `template` before the prompt.
    """
    if not thinking:
        messages = [*first["messages"], {"role": "assistant", "content": answered}]
        return make_request(name, one_token(first, messages, False) | CONTINUE)
    template = {key: first[key] for key in ("messages", "chat_template_kwargs")}
    body = {"model": first["model"], "prompt": answered, "max_tokens": 1, "temperature": 0.0, "logprobs": LISTED}
    return make_request(name, body, template=template) | {"url": COMPLETION}


# ---- files


def read_requests(path: Path) -> dict[str, BatchRequest]:
    """Return the requests of a file by custom_id. Raise UserError for a line that is none."""
    where, lines = relative_path(path), enumerate(read_bytes(path).splitlines(), 1)
    requests = [parse_json(line, where, number) for number, line in lines]
    try:
        return {str(request["custom_id"]): request | {"body": dict(request["body"])} for request in requests}
    except (LookupError, TypeError):
        raise UserError(f"{where} has a line that is no request: remove the file and write it again") from None


def write_requests(path: Path, requests: Iterable[BatchRequest], answers: Path) -> None:
    """Write a file of requests. Raise UserError if `answers` are there to a question that was asked otherwise."""
    asked = {request["custom_id"]: request for request in requests}
    before = read_requests(path) if path.exists() and answers.exists() else {}
    for name in asked.keys() & before.keys():
        new, old = asked[name]["body"], before[name]["body"]
        if changed := [key for key in new.keys() & old.keys() if new[key] != old[key] and key != "model"]:
            where = relative_path(answers)
            raise UserError(f"{where} answers requests with another '{min(changed)}': move it away to ask again")
    text = "".join(json.dumps(request, ensure_ascii=False) + "\n" for request in asked.values())
    write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
