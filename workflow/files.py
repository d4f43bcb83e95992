"""JSON files of the workflow."""

import json
from pathlib import Path

from lib.files import write_atomically


def read_json(path: Path) -> object:
    """Return a file's content, or None if it is missing or not JSON.

    Raise PermissionError if it may not be read: the outputs that it records must not be generated again.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except PermissionError:
        raise
    except (OSError, ValueError, RecursionError):
        return None


def write_json(path: Path, content: object) -> None:
    """Write a JSON file atomically."""
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_atomically(path, lambda scratch: scratch.write_text(text, encoding="utf-8"))
