"""A connection to a server with the interface of openai, and why it gives no answer.

The server is not trusted: an answer is read up to a size, and no redirect is followed, as the key
would go with it. What passes by itself is asked again, after the time that the server names. An
answer that takes its time is waited for: if the client hung up, the server would compute it again.
"""

import asyncio
import json
import os
import ssl
from collections.abc import Callable
from typing import Self
from urllib.request import proxy_bypass

import httpx2

from lib.errors import UserError, first_line
from workflow.serving.address import Address
from workflow.serving.errors import (
    LONGEST_WAIT,
    Body,
    ServerError,
    describe_error,
    explain_text,
    find_error_inside,
    find_named_field,
    read_wait,
    write_without,
)
from workflow.serving.givers import explain_missing

KEY = os.environ.get("OPENAI_API_KEY", "")  # of the server, as the user set it
MOST_BYTES = 2**26  # of an answer
CONNECT_SECONDS = 10
RETRIES = 5
FIRST_WAIT = 0.5  # seconds; twice as long each time
LISTED_AT_LEAST = 5  # most probable tokens that each provider lists


class Server:
    """A server that answers requests.

    Parameters
    ----------
    timeout : seconds after which an answer is no longer waited for; None: never
    say : prints a line for the user
    parameter_file : the file that says what the server is sent
    """

    def __init__(
        self,
        address: Address,
        timeout: float | None,
        say: Callable[[str], None],
        parameter_file: str = "its file",
    ):
        self.address = address
        self.parameter_file = parameter_file
        self.timeout = timeout
        self.say = say
        self.most_listed = 20  # tokens; fewer once the server has said so
        self.reasons_shown: set[int] = set()
        self.key = read_key()
        self.client = make_client(address, self.key, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()

    async def list_models(self) -> list[str]:
        """Return the names of the models that the server has."""
        answer = await self.ask("GET", self.address.join("/models"))
        entries = answer.get("data") or answer.get("models") or []
        return [str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry]

    async def complete(self, path: str, body: Body) -> Body:
        """Return a completion. A server that lists fewer tokens than are asked for is asked for
        fewer from then on."""
        address = self.address.join(path)
        try:
            answer = await self.ask("POST", address, list_fewer(body, self.most_listed))
        except ServerError as error:
            if not self.may_list_fewer(error, body):
                raise
            self.most_listed = LISTED_AT_LEAST
            self.say(f"it lists {self.most_listed} tokens at most ({error.reason})")
            answer = await self.ask("POST", address, list_fewer(body, self.most_listed))
        return answer

    def may_list_fewer(self, error: ServerError, body: Body) -> bool:
        return (
            error.status in (400, 422)
            and "logprobs" in error.reason
            and body.get("top_logprobs", 0) > LISTED_AT_LEAST
            and self.most_listed > LISTED_AT_LEAST
        )

    async def render(self, body: Body) -> str:
        """Return the messages of a request as the server's own template renders them: by llama.cpp,
        else by vLLM."""
        conversation: Body = {}
        for name in ("model", "messages", "chat_template_kwargs"):
            if name in body:
                conversation[name] = body[name]
        root = self.address.root
        try:
            rendered = await self.ask("POST", root.join("/apply-template"), conversation)
        except ServerError:
            tokenized = await self.ask("POST", root.join("/tokenize"), conversation)
            tokens = {"model": body["model"], "tokens": tokenized.get("tokens")}
            rendered = await self.ask("POST", root.join("/detokenize"), tokens)
        return str(rendered.get("prompt"))

    async def ask(self, method: str, address: str, body: Body | None = None) -> Body:
        """Return the JSON object of an answer, asked for again while what keeps it may pass."""
        wait = FIRST_WAIT
        for _ in range(RETRIES):
            try:
                return await self.ask_once(method, address, body)
            except ServerError as error:
                if not error.passes or error.wait > LONGEST_WAIT:
                    raise
                if error.status not in self.reasons_shown:
                    self.reasons_shown.add(error.status)
                    self.say(f"{error.reason}: asked again")
                await asyncio.sleep(error.wait or wait)
                wait *= 2
        return await self.ask_once(method, address, body)

    async def ask_once(self, method: str, address: str, body: Body | None) -> Body:
        """Return the JSON object of an answer. Raise ServerError, without the key, if there is
        none."""
        try:
            async with self.client.stream(method, address, json=body) as answer:
                data = await read_bounded(answer)
                headers = answer.headers
                status = answer.status_code
        except httpx2.TimeoutException as error:
            raise self.explain_timeout(error) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise self.explain_broken(error) from None
        if status != 200:
            reason = self.redact(describe_error(data, status))
            remedy = self.find_remedy(reason, status, body)
            raise ServerError(reason, status, remedy, read_wait(headers))
        return self.read_object(data, body)

    def read_object(self, data: bytes, body: Body | None) -> Body:
        """Return the JSON object of an answer with status 200; some hold an error."""
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            raise ServerError(*explain_text(data)) from None
        if isinstance(answer, list):  # some list models so
            answer = {"data": answer}
        if not isinstance(answer, dict):
            raise ServerError(
                "it answers no JSON object", 200, "is it an OpenAI-compatible server?"
            )
        problem = find_error_inside(answer)
        if problem:
            reason, status = problem
            reason = self.redact(reason)
            raise ServerError(reason, status, self.find_remedy(reason, status, body))
        return answer

    def find_remedy(self, reason: str, status: int, body: Body | None) -> str:
        """Return what to do about an error, where it names a field of the body; else nothing."""
        if status not in (400, 404, 422) or not body:
            return ""
        name = find_named_field(reason, body)
        if name in ("logprobs", "top_logprobs"):
            return explain_missing(self.address)
        return f"{write_without(name, reason, body)} in {self.parameter_file}" if name else ""

    def explain_timeout(self, error: httpx2.TimeoutException) -> ServerError:
        if isinstance(error, httpx2.ConnectTimeout):
            return ServerError(f"no connection to {self.address.base}{self.through_proxy()}")
        remedy = "a longer --timeout, or none, waits for it"
        problem = ServerError(f"no answer within {self.timeout:g} s", 408, remedy)
        problem.passes = False  # else it would be computed again
        return problem

    def explain_broken(self, error: Exception) -> ServerError:
        reason = self.redact(first_line(error.__cause__ or error))
        where = f"{self.address.base}{self.through_proxy()}"
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            problem = ServerError(
                f"{where}: {reason}",
                remedy="name the file of its authority's certificate in SSL_CERT_FILE",
            )
            problem.passes = False
            return problem
        return ServerError(f"{where}: {reason}", remedy="does it run there?")

    def through_proxy(self) -> str:
        """Name the variable of the proxy that stands between, if one does."""
        variable = find_proxy_variable(self.address)
        return f" through the proxy of {variable}" if variable else ""

    def redact(self, text: str) -> str:
        return text.replace(self.key, "***") if self.key else text


# ---- the client


def read_key() -> str:
    """Return the server's key, without what a file adds at its ends. Raise UserError, without the
    key, if no header can carry it."""
    key = KEY.strip()
    if not (key.isascii() and key.isprintable()):
        raise UserError(
            "OPENAI_API_KEY has a character that no header can carry: copy the key again"
        )
    return key


def find_proxy_variable(address: Address) -> str:
    """Return the variable that names the proxy for an address; empty where none stands between.

    A proxy elsewhere could not reach this machine by its own name, so none is used for it.
    """
    if address.is_this_machine or proxy_bypass(address.host):
        return ""
    scheme = address.base.partition(":")[0]
    for name in (f"{scheme}_proxy", "all_proxy"):
        for variable in (name.upper(), name):
            if os.environ.get(variable):
                return variable
    return ""


def make_client(address: Address, key: str, timeout: float | None) -> httpx2.AsyncClient:
    """Return a client of HTTP. Raise UserError for a proxy or a certificate that it can't use."""
    variable = find_proxy_variable(address)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        certificates = httpx2.create_ssl_context()
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise UserError(f"the certificates of SSL_CERT_FILE can't be read: {reason}") from None
    try:
        return httpx2.AsyncClient(
            headers=headers,
            verify=certificates,
            timeout=httpx2.Timeout(timeout, connect=CONNECT_SECONDS, pool=None),
            limits=httpx2.Limits(max_connections=None),
            trust_env=bool(variable),
        )
    except ImportError:
        remedy = "unset it, or install the package socksio"
        raise UserError(f"the proxy of {variable} speaks SOCKS: {remedy}") from None
    except (ValueError, httpx2.InvalidURL):
        remedy = "write it as http://host:port, or unset it"
        raise UserError(f"the proxy of {variable} can't be used: {remedy}") from None


async def read_bounded(answer: httpx2.Response) -> bytes:
    """Return the bytes of an answer. Raise UserError for more than MOST_BYTES."""
    data = bytearray()
    async for part in answer.aiter_bytes():
        data += part
        if len(data) > MOST_BYTES:
            raise UserError(f"an answer is longer than {MOST_BYTES / 1e6:.0f} MB")
    return bytes(data)


# ---- what is asked for


def list_fewer(body: Body, most: int) -> Body:
    """Return a body that asks for at most so many of the most probable tokens."""
    fewer = dict(body)
    for name in ("top_logprobs", "logprobs"):
        if type(body.get(name)) is int:
            fewer[name] = min(body[name], most)
    return fewer
