"""What the tokenizers of the paper's five models make of the texts of tests, for machines that have none of them.

python tests/recorded_tokenizers.py      # writes recorded_tokenizers.json, where ../shared/tokenizers is there
"""

import json
import sys
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models

FILE = Path(__file__).with_suffix(".json")


@cache
def read() -> dict:
    return json.loads(FILE.read_text(encoding="utf-8"))


class Recorded:
    """One of them: `ids` by text, and the tokens of these ids. Another text skips the test that asks for it."""

    def __init__(self, name: str):
        self.ids = read()[name]["ids"]
        self.backend_tokenizer = Tokenizer(models.BPE(vocab=read()[name]["tokens"], merges=[]))
        self.backend_tokenizer.decoder = decoders.ByteLevel()

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        if text not in self.ids:
            pytest.skip("this text is not among what is recorded of the real tokenizers")
        return self.ids[text]


def record() -> dict:
    """What each makes of the texts that the tests ask for."""
    sys.path.append(str(FILE.parent / "tasks"))
    import test_answers as tests

    known: dict = {}
    for name in tests.REAL:
        tokenizer = tests.real(name)
        ids = {text: tests.encode(tokenizer, text) for text in tests.ASKED}
        used = sorted({one for some in ids.values() for one in some})
        tokens = {tokenizer.backend_tokenizer.id_to_token(one): one for one in used}
        known[name] = {"tokens": tokens, "ids": ids}
    return known


if __name__ == "__main__":
    made = record()
    FILE.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{sum(len(one['ids']) for one in made.values())} texts")
