"""What a model's tokens spell, from its tokenizer's file alone: no model is loaded, and nothing is fetched."""

from collections.abc import Callable
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from tokenizers import Tokenizer

from lib.params import Model
from lib.project import UserError, read_bytes

Spelling = Callable[[int], str]


def load_token_speller(spec: Model) -> Spelling | None:
    """From a token's id to what it spells (part of a letter as a question mark). None where the tokenizer is not on
    this machine, or can't be read."""
    try:
        path = find_tokenizer_file(spec)
        text = read_bytes(path, path.name).decode() if path else None
        tokenizer = Tokenizer.from_str(text) if text else None
    except (UserError, UnicodeDecodeError):
        return None
    except Exception as error:  # what tokenizers raises of a file that is none has no type of its own
        if type(error) is not Exception:
            raise
        return None
    return (lambda token: tokenizer.decode([token], skip_special_tokens=False)) if tokenizer else None


def find_tokenizer_file(spec: Model) -> Path | None:
    """Where the tokenizer of a model lies: in its folder, or in the hub's cache."""
    if (spec.place / "tokenizer.json").exists():
        return spec.place / "tokenizer.json"
    try:
        found = try_to_load_from_cache(spec.source, "tokenizer.json", revision=spec.revision)
    except HFValidationError:  # a folder that is not there
        return None
    return Path(found) if isinstance(found, str) else None
