"""What a model that only a server has is asked, and its answers.

`requests` writes the files, `ask` sends them.

`./run_all.sh requests PROFILE --models M` writes the questions, and once responses are there, both
forms of P(True). `./run_all.sh ask PROFILE --models M --url URL` sends what lacks an answer. Each
answer is one line, appended as soon as it is there, so a killed run loses what was in flight and no
more. The server is not trusted: an answer is read up to a size and checked before it is kept, and
no redirect is followed, as the key would go with it.
"""

import asyncio
import json
import os
import random
import subprocess
from argparse import Namespace
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import Any, BinaryIO

import openai
from filelock import FileLock, Timeout
from tqdm import tqdm

from lib import params
from lib.errors import UserError, first_line
from lib.files import parse_json, read_bytes
from lib.paths import ROOT, relative_path
from lib.responses import server_requests
from lib.responses.formats import Response, parse_response, parse_response_lines
from lib.responses.imported import ImportedResponses
from workflow.check import select_examples
from workflow.engine.jobs_of_run import Run
from workflow.engine.progress import say

RETRIES = 5  # after a broken connection, 408, 409, 429 and 5xx; openai waits longer before each
MOST_BYTES = 2**26  # of an answer
KEY = os.environ.get("OPENAI_API_KEY", "")  # of the server, as the user set it
REMEDIES = {
    **dict.fromkeys((301, 302, 307, 308), "--url must be where it redirects to"),
    400: "which fields a provider may refuse is in docs/extending.md",
    401: "set OPENAI_API_KEY to its key",
    404: "check --url, and give `requests` the model's name there as --model-name",
    429: "the same command goes on later, with a smaller --concurrent",
}


def main(run: Run, args: Namespace) -> int:
    """Write the requests of every pair, or send them, and return the exit code."""
    if args.verb == "ask":
        for model, dataset in run.pairs:
            for form in ("", *server_requests.VERIFICATIONS):
                requests, answers = server_requests.exchange_files(run.specs[model], dataset, form)
                if requests.exists() or not form:
                    ask_for_missing(requests, answers, dataset, args)
        return 0
    check_folders(run)
    for model, dataset in run.pairs:
        write_requests(run, model, dataset, args.model_name or model)
    requests, answers = server_requests.exchange_files(run.specs[model], dataset)
    files = f"-i {relative_path(requests)} -o {relative_path(answers)}"
    ask = f"./run_all.sh ask {args.profile} --models {' '.join(run.specs)} --url URL"
    if args.datasets:
        ask += f" --datasets {' '.join(run.values['datasets'])}"
    say(
        f"send each file: `vllm run-batch {files} --model NAME`, "
        f"a provider's batch service, or `{ask}`"
    )
    return 0


# ---- files of requests


def check_folders(run: Run) -> None:
    """Raise UserError for the folder of two models, and for one in which git would take the
    questions of others."""
    model_of: dict[Path, str] = {}
    for model, dataset in run.pairs:
        path, _ = server_requests.exchange_files(run.specs[model], dataset)
        other = model_of.setdefault(path, model)
        if other != model:
            problem = f"models '{other}' and '{model}' have the same `responses`"
            raise UserError(f"{problem}: give each a folder of its own")
        data = params.load_dataset_config(dataset)
        of_others = data.files or data.repository
        if of_others and path.is_relative_to(ROOT) and would_be_committed(path):
            raise UserError(
                f"git does not ignore {relative_path(path.parent)}, and "
                f"the questions of '{dataset}' belong to others: "
                "set `responses` to a folder such as artifacts/served/"
            )


def would_be_committed(path: Path) -> bool:
    """Whether git would take a file of the project."""
    if not which("git"):
        return False
    command = ["git", "check-ignore", "--quiet", str(path)]
    ignored = subprocess.run(command, cwd=ROOT, capture_output=True)
    return ignored.returncode == 1  # 128 outside a clone


def write_requests(run: Run, model: str, dataset: str, model_name: str) -> None:
    """Write the questions, and both forms of P(True) if there are responses."""
    spec = run.specs[model]
    examples = select_examples(run, dataset)
    settings = params.Generation.of(run.values)
    questions = server_requests.question_requests(
        spec, model_name, (model, dataset), examples, settings
    )
    requests_by_form = {"": questions}
    if server_requests.exchange_files(spec, dataset)[1].exists():
        imported = ImportedResponses.read(spec, dataset, examples)
        for line in imported.describe_coverage():
            say(line)
        question_by_id = {request["custom_id"]: request for request in questions}
        requests_by_form |= server_requests.verification_requests(imported, question_by_id)
    for form, requests in requests_by_form.items():
        path, answers = server_requests.exchange_files(spec, dataset, form)
        server_requests.write_requests(path, requests, answers)
        say(f"{relative_path(path)}: {len(requests)} requests")


# ---- the answers of a server


def ask_for_missing(requests: Path, answers: Path, dataset: str, args: Namespace) -> None:
    """Send the requests of a file that lack an answer, and append the answers."""
    request_by_id = server_requests.read_requests(requests)
    name = relative_path(answers)
    try:
        lock = FileLock(answers.with_name(f".{answers.name}.lock")).acquire(blocking=False)
    except Timeout:
        raise UserError(f"{name} is being written by another `ask`") from None
    with lock, answers.open("ab", buffering=0) as file:
        responses = read_answers(file, answers, request_by_id, dataset)
        missing = []
        for custom_id, request in request_by_id.items():
            if custom_id not in responses or responses[custom_id].empty:
                missing.append(request)
        random.shuffle(missing)  # so that what fails each time does not come first each time
        unusable = asyncio.run(send(missing, file, args.url, args.concurrent))
    count = len(request_by_id)
    say(f"{name}: {count - len(unusable)} of {count} answered")
    if unusable:
        say(
            f"{len(unusable)} can't be used and are asked again by the same command, "
            f"the first: {unusable[0]}"
        )


def read_answers(
    file: BinaryIO, path: Path, ids: Iterable[str], dataset: str
) -> dict[str, Response]:
    """Return the answers so far, and let the file end in a whole line: one that a killed `ask` left
    half is removed.

    Raise UserError for a file that can't be read whole otherwise. Nothing of it is changed.
    """
    data = read_bytes(path)
    last_line = data.rpartition(b"\n")[2]
    if is_half_line(last_line, ids):
        data = data.removesuffix(last_line)
    responses = parse_response_lines(data, relative_path(path), dataset)
    file.truncate(len(data))
    if data and not data.endswith(b"\n"):
        file.write(b"\n")
    return responses


def line_start(custom_id: str) -> str:
    """Return how the line with the answer to a request begins, as `fetch_line` writes it."""
    return json.dumps({"custom_id": custom_id, "response": {"status_code": 200}}).removesuffix("}}")


def is_half_line(text: bytes, ids: Iterable[str]) -> bool:
    """Whether a text that ends a file is half a line that `ask` wrote: no JSON, and begun as the
    line of a request."""
    with suppress(UserError):
        parse_json(text, "the last line")
        return False
    for custom_id in ids:
        start = line_start(custom_id).encode()
        if text.startswith(start) or start.startswith(text):
            return True
    return False


def read_key() -> str:
    """Return the server's key, without what a file adds at its ends. Raise UserError, without the
    key, if no header can carry it."""
    key = KEY.strip()
    if not (key.isascii() and key.isprintable()):
        raise UserError(
            "OPENAI_API_KEY has a character that no header can carry: copy the key again"
        )
    return key


async def send(
    requests: list[server_requests.BatchRequest], file: BinaryIO, url: str, concurrent: int
) -> list[UserError]:
    """Send requests, append each answer to a file, and return why others can't be used.

    Raise the last problem where as many in a row have one as are sent at once: then it concerns
    all.
    """
    api = openai.AsyncOpenAI(
        base_url=url.rstrip("/").removesuffix("/v1"),
        api_key=read_key() or "none",
        max_retries=RETRIES,
        http_client=BoundedClient(follow_redirects=False),
    )
    queue = iter(tqdm(requests, disable=None))
    unusable: list[UserError] = []
    in_a_row: list[UserError] = []

    async def work() -> None:
        for request in queue:
            try:
                file.write(await fetch_line(api, request))
                in_a_row.clear()
            except UserError as problem:
                unusable.append(problem)
                in_a_row.append(problem)
                if len(in_a_row) == min(concurrent, len(requests)):
                    raise

    async with api:
        await asyncio.gather(*(work() for _ in range(concurrent)))
    return unusable


async def fetch_line(api: openai.AsyncOpenAI, request: server_requests.BatchRequest) -> bytes:
    """Return the line with the answer to a request. Raise UserError for one that can't be used."""
    name = request["custom_id"]
    body = request["body"]
    if "prompt" in body:
        prompt = await render(api, body) + body["prompt"]  # with its special tokens
        body = body | {"prompt": prompt, "add_special_tokens": False}
    answer = {"status_code": 200, "body": await post(api, request["url"], body)}
    line = json.dumps({"custom_id": name, "response": answer, "error": None}).encode() + b"\n"
    where = f"the answer to '{name}'"
    response = parse_response(line, where)
    if response.text and not response.pieces:
        raise UserError(
            f"{where} has no log-probabilities: start the server so that it gives `logprobs`"
        )
    return line


async def render(api: openai.AsyncOpenAI, body: server_requests.BatchRequest) -> str:
    """Return the messages of a request as the server's own template renders them: by llama.cpp,
    else by vLLM."""
    conversation: dict[str, Any] = {}
    for name in ("model", "messages", "chat_template_kwargs"):
        if name in body:
            conversation[name] = body[name]
    try:
        rendered = await post(api, "/apply-template", conversation)
    except UserError:
        tokenized = await post(api, "/tokenize", conversation)
        tokens = {"model": body["model"], "tokens": tokenized.get("tokens")}
        rendered = await post(api, "/detokenize", tokens)
    return str(rendered.get("prompt"))


async def post(
    api: openai.AsyncOpenAI, path: str, body: server_requests.BatchRequest
) -> dict[str, Any]:
    """Return the JSON object of an answer. Raise UserError with the status and what to do."""
    url = str(api.base_url).rstrip("/") + path
    try:
        answer = parse_json(await api.post(path, body=body, cast_to=bytes), url)
    except openai.APIError as error:
        reason = first_line(error.__cause__ or error).replace(read_key() or "\0", "***")
        remedy = "does it run there? see its log"
        if isinstance(error, openai.APIStatusError):
            remedy = REMEDIES.get(error.status_code, remedy)
        raise UserError(f"{url}: {reason}: {remedy}") from None
    if not isinstance(answer, dict):
        raise UserError(f"{url} answers no JSON object: is it an OpenAI-compatible server?")
    return answer


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """An HTTP client that reads at most MOST_BYTES of an answer."""

    async def send(self, request: Any, **options: Any) -> Any:
        """Return the whole answer."""
        answer = await super().send(request, **options | {"stream": True})
        data = bytearray()
        async for part in answer.aiter_bytes():
            data += part
            if len(data) > MOST_BYTES:
                raise UserError(f"an answer is longer than {MOST_BYTES / 1e6:.0f} MB")
        retry_after = {}
        for name, value in answer.headers.items():
            if name.startswith("retry-after"):
                retry_after[name] = value
        return type(answer)(
            answer.status_code, headers=retry_after, content=bytes(data), request=request
        )
