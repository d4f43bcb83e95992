"""The file of a server's answers: read before more are asked for, and then appended to.

A killed command leaves at most half a line, which is removed. Nothing else of the file is changed.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from lib.errors import UserError
from lib.files import parse_json, read_lines
from lib.paths import relative_path
from lib.responses.formats import Response, parse_response_lines

BLOCK = 2**16  # bytes that are read at once from the end


def line_of_answer(custom_id: str, completion: dict[str, Any]) -> bytes:
    """Return the line of a batch with the answer to a request."""
    answer = {"status_code": 200, "body": completion}
    return json.dumps({"custom_id": custom_id, "response": answer, "error": None}).encode() + b"\n"


def line_start(custom_id: str) -> bytes:
    """Return how the line with the answer to a request begins."""
    line = json.dumps({"custom_id": custom_id, "response": {"status_code": 200}})
    return line.removesuffix("}}").encode()


def read_answers(
    file: BinaryIO, path: Path, custom_ids: Iterable[str], dataset: str
) -> dict[str, Response]:
    """Return the answers so far, and let the file end in a whole line: one that a killed command
    left half is removed.

    Raise UserError for a file that can't be read whole otherwise. Nothing of it is changed.
    """
    last_line = read_last_line(path)
    end = path.stat().st_size
    if is_half_line(last_line, custom_ids):
        end -= len(last_line)
        last_line = b""
    responses = parse_response_lines(read_until(path, end), relative_path(path), dataset)
    file.truncate(end)
    if last_line:
        file.write(b"\n")
    return responses


def read_last_line(path: Path) -> bytes:
    """Return what follows the last line break of a file."""
    data = b""
    with path.open("rb") as file:
        place = file.seek(0, 2)
        while place > 0 and b"\n" not in data:
            size = min(BLOCK, place)
            place = file.seek(place - size)
            data = file.read(size) + data
    return data.rpartition(b"\n")[2]


def read_until(path: Path, end: int) -> Iterator[bytes]:
    """Yield the lines of a file before a place."""
    place = 0
    for line in read_lines(path):
        place += len(line)
        if place <= end:
            yield line


def is_half_line(text: bytes, custom_ids: Iterable[str]) -> bool:
    """Whether a text that ends a file is half a line of ours: no JSON, and begun as the line of a
    request."""
    if not text:
        return False
    with suppress(UserError):
        parse_json(text, "the last line")
        return False
    for custom_id in custom_ids:
        start = line_start(custom_id)
        if text.startswith(start) or start.startswith(text):
            return True
    return False
