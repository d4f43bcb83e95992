"""Requests to a server for what a run asks its models, as files of an OpenAI batch: one JSON line each.

    <dataset>.requests.jsonl            the paper's prompt, with the model file's decoding; custom_id: the example_id
    <dataset>.verify.requests.jsonl     standard P(True), once responses are there; custom_id: example_id#verify
    <dataset>.in_situ.requests.jsonl    P(True) in situ: the assistant's own message goes on with the query; #in_situ

vLLM, SGLang and providers send such files; `./run_all.sh ask` sends them to any other server. Answers lie beside
them as `.responses.jsonl`.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lib.files import parse_json, read_bytes, write_atomically
from lib.generate.imported_responses import ImportedResponses
from lib.generate.response_files import LISTED
from lib.parameter_schemas import Model
from lib.params import Generation
from lib.paths import UserError, relative_path
from lib.random_streams import stream_seed
from lib.tasks import prompts
from lib.tasks.answers import answer_start_char
from lib.tasks.datasets import Example

VERIFICATIONS = ("verify", "in_situ")  # the forms of P(True), as files and custom_ids name them
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
PROBES = ("with the query", "without the query")  # whose prompts tell the tokens of the query
CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}  # vLLM, SGLang; llama.cpp does so itself
BatchRequest = dict[str, Any]


def served_files(spec: Model, dataset: str, form: str = "") -> tuple[Path, Path]:
    """Return the files of a dataset's requests and responses; `form`: one of VERIFICATIONS."""
    responses = spec.responses_to(dataset)
    if responses is None:
        raise UserError(f"'{spec.label}' names no `responses`: set the folder for requests and answers in its file")
    stem = responses.parent / (f"{dataset}.{form}" if form else dataset)
    return Path(f"{stem}.requests.jsonl"), Path(f"{stem}.responses.jsonl") if form else responses


def make_request(custom_id: str, body: BatchRequest) -> BatchRequest:
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}


def question_requests(
    spec: Model, model_name: str, names: tuple[str, str], examples: Sequence[Example], settings: Generation
) -> list[BatchRequest]:
    """Return the request for each question. `names`: of model and dataset, the keys of its seed."""
    template = {"enable_thinking": spec.thinking} | ({"date_string": spec.date_string} if spec.date_string else {})
    shared = {
        "model": model_name,
        "max_tokens": spec.max_new_tokens or settings.max_new_tokens,
        **spec.model_dump(include={"temperature", "top_p", "top_k", "min_p"}),
        "logprobs": True,
        "top_logprobs": LISTED,
        "chat_template_kwargs": template,
    }
    requests = []
    for name, _, question, _ in examples:
        messages = prompts.question_messages(question, spec.system_prompt, settings.demonstration)
        seed = stream_seed(settings.seed, *names, name) % 2**31  # llama.cpp takes 32 bits
        requests.append(make_request(name, shared | {"messages": messages, "seed": seed}))
    return requests


def verification_requests(
    imported: ImportedResponses, asked: Mapping[str, BatchRequest]
) -> dict[str, list[BatchRequest]]:
    """Return the requests for both forms of P(True) of every response; `asked`: those for the questions, by example_id.

    The standard prompt asks a model that thinks to answer at once. In situ, templates drop the thinking from an
    assistant's message. So a model that thinks is asked by text: `ask` puts the server's own rendering of `template`
    before the prompt.
    """
    spec, standard, in_situ = imported.spec, [], []
    for name, _, question, _ in imported.examples:
        response, text = imported.responses[name], imported.responses[name].text
        if response.empty or name not in asked:
            continue
        first = asked[name]["body"]
        template = first.get("chat_template_kwargs", {})
        proposed = text[answer_start_char(text, spec.thinking) :].strip()
        verifying = prompts.verification_messages(question, proposed, spec.system_prompt)
        at_once = template | {"enable_thinking": False}
        standard.append(one_token(f"{name}#verify", first, messages=verifying, chat_template_kwargs=at_once))
        if spec.thinking:
            request = one_token(f"{name}#in_situ", first, prompt=text + prompts.QUERY, logprobs=LISTED)
            before = {"messages": first["messages"], "chat_template_kwargs": template}
            in_situ.append(request | {"url": COMPLETION, "template": before})
        else:
            own = [*first["messages"], {"role": "assistant", "content": text + prompts.QUERY}]
            continued = CONTINUE | {"chat_template_kwargs": template}
            in_situ.append(one_token(f"{name}#in_situ", first, messages=own, **continued))
    for name, query in zip(PROBES, (prompts.QUERY, ""), strict=True):
        in_situ.append(
            one_token(f"{name}#in_situ", first, messages=prompts.chat_messages(f"#### 7{query}", system=False))
        )
    return {"verify": standard, "in_situ": in_situ}


def one_token(custom_id: str, first: BatchRequest, **asked: Any) -> BatchRequest:
    """Return the request for the next token alone. `first`: the request for a question; `asked`: what comes before."""
    body = {"model": first["model"], "max_tokens": 1, "temperature": 0.0, "logprobs": True, "top_logprobs": LISTED}
    return make_request(custom_id, body | asked)


# ---- files


def read_requests(path: Path) -> dict[str, BatchRequest]:
    """Return the requests of a file by custom_id. Raise UserError for a line that is none."""
    lines = enumerate(read_bytes(path, where := relative_path(path)).splitlines(), 1)
    requests = [parse_json(line, where, number) for number, line in lines]
    try:
        return {str(request["custom_id"]): request | {"body": dict(request["body"])} for request in requests}
    except (LookupError, TypeError):
        raise UserError(f"{where} has a line that is no request: remove the file and write it again") from None


def check_answered(requests: Sequence[BatchRequest], path: Path, answers: Path) -> None:
    """Raise UserError if the file `answers` is there, and its requests in the file `path` are other than these."""
    sent = read_requests(path) if path.exists() and answers.exists() else {}
    for request in requests:
        new, old = request["body"], sent.get(request["custom_id"], request)["body"]
        if changed := [key for key in new.keys() & old.keys() if new[key] != old[key] and key != "model"]:
            about = f"'{request['custom_id']}' with another '{min(changed)}'"
            raise UserError(f"{relative_path(answers)} answers {about}: move it away to ask again")


def write_requests(path: Path, requests: Sequence[BatchRequest], answers: Path) -> None:
    """Write a file of requests. Raise UserError if `answers` are there to a question that was asked otherwise."""
    check_answered(requests, path, answers)
    text = "".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests)
    write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
