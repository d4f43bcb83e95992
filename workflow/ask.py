"""`./run_all.sh ask PROFILE --models M --url URL`: send the files of requests to a server, and keep its answers.

Each answer is one line, appended as soon as it is there, so a killed run loses what was in flight and no more. What is
answered is not sent again. The server is not trusted: an answer is read up to a size and checked before it is kept, and
no redirect is followed, as the key would go with it.
"""

import asyncio
import fcntl
import json
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import openai
from tqdm import tqdm

from lib import params
from lib.files import parse_json, read_bytes
from lib.generate.batch_requests import VERIFICATIONS, BatchRequest, read_requests, served_file
from lib.generate.response_files import Response, parse_response, read_response_file
from lib.generate.served_p_true import parse_verdict
from lib.paths import UserError, first_line, relative_path
from workflow.pipeline import Run
from workflow.progress import say

RETRIES = 5  # after a broken connection, 408, 409, 429 and 5xx; openai waits longer before each
MOST_BYTES = 2**26  # of an answer
OF_ONE_REQUEST = (400, 413, 422)  # statuses that need not concern other requests
KEY = os.environ.get("OPENAI_API_KEY", "")
REMEDIES = {
    401: "set OPENAI_API_KEY to its key",
    404: "check --url, and give `requests` the model's name there as --model-name",
    429: "the same command goes on later, with a smaller --concurrent",
}


class Unusable(UserError):
    """An answer that can't be kept; others may be right."""


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """An HTTP client that follows no redirect and reads at most MOST_BYTES of an answer."""

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Return the whole answer."""
        answer, data = await super().send(request, stream=True, **options | {"follow_redirects": False}), b""
        async for part in answer.aiter_bytes():
            data += part
            if len(data) > MOST_BYTES:
                await answer.aclose()
                raise UserError(f"an answer is longer than {MOST_BYTES / 1e6:.0f} MB")
        told = {
            name: answer.headers[name] for name in ("content-type", "location", "retry-after") if name in answer.headers
        }
        return type(answer)(answer.status_code, headers=told, content=data, request=request)


async def post(api: openai.AsyncOpenAI, path: str, body: BatchRequest) -> Any:
    """Return the JSON object of an answer. Raise UserError with the status and what to do."""
    url = str(api.base_url).removesuffix("/v1/")
    try:
        answer = await api.post(url + path, body=body, cast_to=object)
    except openai.APIStatusError as error:
        status, moved = error.status_code, error.response.headers.get("location")
        remedy = (
            f"--url must be where it redirects to, {moved}" if moved else REMEDIES.get(status, "see the server's log")
        )
        said = first_line(error).replace(KEY or "\0", "***")
        raise (Unusable if status in OF_ONE_REQUEST else UserError)(
            f"{url} answers {status} ({said}): {remedy}"
        ) from None
    except openai.APIConnectionError as error:
        raise UserError(f"{url} does not answer ({first_line(error.__cause__ or error)}): does it run there?") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise Unusable(f"{url}{path} returns no JSON object: is it an OpenAI-compatible server?")
    return answer


async def render(api: openai.AsyncOpenAI, template: BatchRequest, model: str) -> str:
    """Return a conversation as the server's own template renders it: by llama.cpp, else by vLLM."""
    try:
        rendered = await post(api, "/apply-template", template)
    except UserError:
        tokens = await post(api, "/tokenize", template | {"model": model})
        rendered = await post(api, "/detokenize", {"model": model, "tokens": tokens.get("tokens")})
    return str(rendered.get("prompt"))


# ---- the answers


class Answers:
    """The file of the answers to one file of requests, open for this process alone."""

    def __init__(self, requests: Path, path: Path, dataset: str, form: str):
        self.asked, self.file, self.name = read_requests(requests), path.open("ab", buffering=0), relative_path(path)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{self.name} is being written by another `ask`") from None
        end_last_line(path)
        self.parse = parse_verdict if form else parse_response
        found = read_response_file(path, dataset, self.parse)
        self.answered, self.unusable = {name for name, one in found.items() if not one.empty}, list[UserError]()

    @property
    def left(self) -> list[BatchRequest]:
        return [request for name, request in self.asked.items() if name not in self.answered]

    def keep(self, name: str, body: Any) -> None:
        """Append an answer. Raise Unusable unless it can be read, with its log-probabilities."""
        line = {"custom_id": name, "response": {"status_code": 200, "body": body}, "error": None}
        data, where = json.dumps(line).encode(), f"the answer to '{name}'"
        try:
            read = self.parse(data, where, 1)
        except UserError as problem:
            raise Unusable(problem) from None
        if isinstance(read, Response) and read.text and not read.pieces:
            raise Unusable(f"{where} has no log-probabilities: start the server so that it gives `logprobs`")
        self.file.write(data + b"\n")
        self.answered.add(name)

    async def ask(self, url: str, concurrent: int) -> None:
        """Send the requests that are left. Raise the first error that concerns them all."""
        base = f"{url.rstrip('/').removesuffix('/v1')}/v1"
        api = openai.AsyncOpenAI(base_url=base, api_key=KEY or "none", max_retries=RETRIES, http_client=BoundedClient())
        queue, shown = iter(self.left), tqdm(total=len(self.asked), initial=len(self.answered), disable=None)

        async def work() -> None:
            for request in queue:
                try:
                    body = request["body"]
                    if template := request.get("template"):
                        body = body | {"prompt": await render(api, template, body["model"]) + body["prompt"]}
                    self.keep(request["custom_id"], await post(api, request["url"], body))
                except Unusable as problem:
                    if not self.answered:  # then it concerns all
                        raise
                    self.unusable.append(problem)
                shown.update()

        try:
            async with api, asyncio.TaskGroup() as group:
                for _ in range(concurrent):
                    group.create_task(work())
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from None


def end_last_line(path: Path) -> None:
    """Remove half a line, which a killed run left at the end, or end a whole one."""
    rest = read_bytes(path).rpartition(b"\n")[2]
    try:
        with path.open("ab") as file:
            file.write(b"\n" if rest and parse_json(rest, path) else b"")
    except UserError:
        os.truncate(path, path.stat().st_size - len(rest))


def main(run: Run, args: Namespace) -> int:
    """Send every file of requests that lacks answers and return the exit code."""
    for model, dataset in run.pairs:
        spec = params.load_model_config(model)
        for form in ("", *VERIFICATIONS):
            requests, path = (served_file(spec, dataset, kind, form) for kind in ("requests", "responses"))
            if form and not requests.exists():
                continue
            answers = Answers(requests, path, dataset, form)
            if answers.left:
                asyncio.run(answers.ask(args.url, args.concurrent))
            say(f"{answers.name}: {len(answers.asked) - len(answers.left)} of {len(answers.asked)} answered")
            if wrong := answers.unusable:
                say(f"{len(wrong)} can't be used and are asked again by the same command, the first: {wrong[0]}")
    return 0
