"""`python docs/tables/example.py TOKENIZER.JSON` writes artifacts/shipped/small/example.json.

The file spells the tokens of one shipped response, and those that were most probable in its place,
for 00_overview. The tokenizer is that of the model, or of any Qwen 2.5 or 3: they number the tokens
of a text alike.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lib import store
from lib.paper.response_views import TOKENS_LISTED

PATH = ROOT / "artifacts" / "shipped" / "small" / "example.json"
MODEL, DATASET, EXAMPLE = "qwen2.5-coder-1.5b", "gsm8k", "evaluation-1109"


def spelled_example(tokenizer: Tokenizer) -> dict:
    """The response as text, and the text of each token that a page about it may show, by id."""
    frame = store.load_frames("replay-small", "generations", [MODEL], [DATASET])[0]
    row = frame.set_index("example_id").loc[EXAMPLE]
    tokens = set(map(int, row.token_ids))
    for most_probable in row.top_ids:
        tokens.update(map(int, most_probable[:TOKENS_LISTED]))
    spelled = {}
    for token in sorted(tokens):
        spelled[str(token)] = tokenizer.decode([token], skip_special_tokens=False)
    response = "".join(spelled[str(token)] for token in row.token_ids)
    return {
        "model": MODEL,
        "dataset": DATASET,
        "example_id": EXAMPLE,
        "response": response,
        "spelled": spelled,
    }


if __name__ == "__main__":
    example = spelled_example(Tokenizer.from_file(sys.argv[1]))
    PATH.write_text(json.dumps(example, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
