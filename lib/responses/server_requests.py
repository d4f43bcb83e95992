"""What a model that only a server has is asked, as files of an OpenAI batch.

    <dataset>.requests.jsonl            the paper's prompt, with the model file's decoding
    <dataset>.verify.requests.jsonl     standard P(True), once responses are there
    <dataset>.in_situ.requests.jsonl    in situ: the assistant's own message goes on with the query

A custom_id is the example_id, with #verify or #in_situ in the latter two. vLLM, SGLang and
providers send such files; `./run_all.sh ask` sends them to any other server. Answers lie beside
them as `.responses.jsonl`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib.errors import UserError
from lib.files import parse_json, read_bytes, write_text
from lib.parameter_schemas import Model
from lib.params import Generation
from lib.paths import relative_path
from lib.random_streams import stream_seed
from lib.responses.imported import ImportedResponses
from lib.responses.response_lines import LISTED
from lib.tasks import prompts
from lib.tasks.answers import answer_start_char
from lib.tasks.datasets import Example

VERIFICATIONS = ("verify", "in_situ")  # the forms of P(True), as files and custom_ids name them
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
PROBES = ("with the query", "without the query")  # whose prompts tell the tokens of the query
# vLLM, SGLang; llama.cpp does so itself
CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}
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


def make_request(custom_id: str, body: BatchRequest) -> BatchRequest:
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": COMPLETION if "prompt" in body else CHAT,
        "body": body,
    }


def question_requests(
    spec: Model,
    model_name: str,
    names: tuple[str, str],
    examples: Sequence[Example],
    settings: Generation,
) -> list[BatchRequest]:
    """Return the request for each question. `names`: of model and dataset, the keys of its seed."""
    template: dict[str, Any] = {"enable_thinking": spec.thinking}
    if spec.date_string:
        template["date_string"] = spec.date_string
    shared = {
        "model": model_name,
        "max_tokens": spec.max_new_tokens or settings.max_new_tokens,
        **spec.model_dump(include={"temperature", "top_p", "top_k", "min_p"}),
        "logprobs": True,
        "top_logprobs": LISTED,
        "chat_template_kwargs": template,
    }
    requests = []
    for example in examples:
        messages = prompts.question_messages(
            example.question, spec.system_prompt, settings.demonstration
        )
        seed = stream_seed(settings.seed, *names, example.example_id)
        body = shared | {"messages": messages, "seed": seed % 2**31}  # llama.cpp takes 32 bits
        requests.append(make_request(example.example_id, body))
    return requests


def verification_requests(
    imported: ImportedResponses, questions: dict[str, BatchRequest]
) -> dict[str, list[BatchRequest]]:
    """Return the requests for both forms of P(True) of every response; `questions`: the requests
    for these, by example_id."""
    standard = []
    in_situ = []
    for example in imported.examples:
        name = example.example_id
        response = imported.responses[name]
        if name in questions and not response.empty:
            request = questions[name]["body"]
            body = standard_body(imported.spec, request, example.question, response.text)
            standard.append(make_request(f"{name}#verify", body))
            body = in_situ_body(imported.spec, request, response.text)
            in_situ.append(make_request(f"{name}#in_situ", body))
    request = next(iter(questions.values()))["body"]
    for name, query in zip(PROBES, (prompts.QUERY, ""), strict=True):
        messages = prompts.chat_messages(f"#### 7{query}", system=False)
        body = one_token(request) | {"messages": messages}
        in_situ.append(make_request(f"{name}#in_situ", body))
    return {"verify": standard, "in_situ": in_situ}


def standard_body(spec: Model, request: BatchRequest, question: str, text: str) -> BatchRequest:
    """Return the body of standard P(True); `request`: that for the question. A model that thinks is
    asked to answer at once."""
    proposed = text[answer_start_char(text, spec.thinking) :].strip()
    template = request.get("chat_template_kwargs", {}) | {"enable_thinking": False}
    return one_token(request) | {
        "messages": prompts.verification_messages(question, proposed, spec.system_prompt),
        "chat_template_kwargs": template,
    }


def in_situ_body(spec: Model, request: BatchRequest, text: str) -> BatchRequest:
    """Return the body of P(True) in situ: the response goes on with the query.

    Templates drop the thinking from an assistant's message. So a model that thinks is asked by
    text: `ask` puts the server's own rendering of the messages before the prompt.
    """
    body = one_token(request) | {"chat_template_kwargs": request.get("chat_template_kwargs", {})}
    answered = text + prompts.QUERY
    if spec.thinking:
        return body | {"prompt": answered, "messages": request["messages"], "logprobs": LISTED}
    messages = [*request["messages"], {"role": "assistant", "content": answered}]
    return body | CONTINUE | {"messages": messages}


def one_token(request: BatchRequest) -> BatchRequest:
    """Return the settings of a request for the next token alone."""
    return {
        "model": request["model"],
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": True,
        "top_logprobs": LISTED,
    }


# ---- files


def read_requests(path: Path) -> dict[str, BatchRequest]:
    """Return the requests of a file by custom_id. Raise UserError for a line that is none."""
    where = relative_path(path)
    requests = {}
    try:
        for number, line in enumerate(read_bytes(path).splitlines(), 1):
            request = parse_json(line, where, number)
            requests[str(request["custom_id"])] = request | {"body": dict(request["body"])}
    except (LookupError, TypeError):
        raise UserError(
            f"{where} has a line that is no request: remove the file and write it again"
        ) from None
    return requests


def check_answered(requests: Sequence[BatchRequest], path: Path, answers: Path) -> None:
    """Raise UserError if the file `answers` is there, and its requests in the file `path` are other
    than these."""
    if not path.exists() or not answers.exists():
        return
    sent = read_requests(path)
    for request in requests:
        name = request["custom_id"]
        new = request["body"]
        old = sent[name]["body"] if name in sent else new
        compared = new.keys() & old.keys() - {"model", "top_logprobs"}
        changed = [key for key in compared if new[key] != old[key]]
        if changed:
            about = f"'{name}' with another '{min(changed)}'"
            raise UserError(f"{relative_path(answers)} answers {about}: move it away to ask again")


def write_requests(path: Path, requests: Sequence[BatchRequest], answers: Path) -> None:
    """Write a file of requests. Raise UserError if `answers` are there to a question that was asked
    otherwise."""
    check_answered(requests, path, answers)
    lines = [json.dumps(request, ensure_ascii=False) + "\n" for request in requests]
    write_text(path, "".join(lines))
