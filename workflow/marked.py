"""What an executed notebook holds for the paper: the outputs that bear a target, and the files that each becomes.

Apart from export.py, whose imports take a second: every run asks whether its tables are still those of the notebook.
"""

import base64
from collections.abc import Iterator

SUFFIXES = {"tab": {"text/latex": ".tex"}, "fig": {"application/pdf": ".pdf", "image/png": ".png"},
            "num": {"text/latex": ".tex"}, "rep": {"application/json": ""}}  # fmt: skip


def marked(cells: list[dict]) -> Iterator[tuple[int, str, dict]]:
    """(number of the cell, target, data) of each output meant for the paper."""
    for number, cell in enumerate(cells, 1):
        for output in cell.get("outputs", []):
            if "paper" in output.get("metadata", {}):
                yield number, output["metadata"]["paper"], output.get("data", {})


def contents(target: str, data: dict) -> dict[str, bytes]:
    """The files of one target, by name."""
    files = {}
    for mime, suffix in SUFFIXES[target[:3]].items():
        if suffix:
            text = "".join(data[mime])
            files[target + suffix] = text.encode() if mime.startswith("text/") else base64.b64decode(text)
    return files
