"""The address of a server, as its users write it, in the form of the openai library.

It uses the standard library only, and runs on Python 3.8: the command line is checked before
anything is installed.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from lib.errors import UserError

EXAMPLE = "--url http://localhost:8000/v1"
ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/models")  # cut off when pasted
VERSION = "/v1"  # of a bare host


class Address(NamedTuple):
    """A base address and what is asked for with it.

    Attributes
    ----------
    base : str
        Without a slash at its end: `https://api.openai.com/v1`. A path is joined to it.
    query : str
        What each address ends with, as `?api-version=2024-10-21`; mostly empty.
    host : str
    """

    base: str
    query: str
    host: str

    def join(self, path: str) -> str:
        return f"{self.base}{path}{self.query}"

    @property
    def root(self) -> Address:
        """The address of what the server offers beside the interface of openai."""
        root = self.base[: -len(VERSION)] if self.base.endswith(VERSION) else self.base
        return self._replace(base=root)

    @property
    def is_this_machine(self) -> bool:
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return address.is_loopback or address.is_unspecified


def parse_address(url: str) -> Address:
    """Return the address that a user means. Raise UserError for one that is none.

    Examples
    --------
    >>> parse_address("http://localhost:8000").base
    'http://localhost:8000/v1'
    >>> parse_address("https://x.org/v1beta/openai/chat/completions?v=2").join("/models")
    'https://x.org/v1beta/openai/models?v=2'
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UserError(f"--url {url}: {error}") from None
    if parts.scheme not in ("http", "https") or not host or not url.isprintable() or " " in url:
        raise UserError(f"the address of a server is written as {EXAMPLE}, not '{url}'")
    if "@" in parts.netloc:
        raise UserError("--url holds a password: set OPENAI_API_KEY instead")
    if port == 0:
        raise UserError(f"--url {url}: no server has port 0")
    path = parts.path.rstrip("/")
    for endpoint in ENDPOINTS:
        if path.endswith(endpoint):
            path = path[: -len(endpoint)]
            break
    query = f"?{parts.query}" if parts.query else ""
    if not parts.path.strip("/"):
        path = VERSION
    return Address(f"{parts.scheme}://{parts.netloc}{path}", query, host)
