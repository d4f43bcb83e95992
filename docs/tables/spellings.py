"""`python docs/tables/spellings.py TOKENIZER_FOLDER` writes artifacts/shipped/spellings/MODEL.json.

Each file has the text of every token that the shipped responses of a real model hold, or that was
among the most probable in its place, by id. With it a page shows responses without the model's
tokenizer. The tokenizer is that of the models, or of any Qwen 2.5 or 3: they number the tokens of
a text alike. It is refused unless it spells the answers that the model's own tokenizer found, and
turns the text of a response into the same tokens again.
"""

import json
import sys
from pathlib import Path

import pandas as pd
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lib import params, paths, store
from lib.paper.response_views import TOKENS_LISTED

MODELS = ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b")
# of the answers, and of the responses: a number is also stored in another form, 8427 for 8,427, and
# a sampled text can be cut into tokens as no tokenizer would
LEAST_AGREEING = 0.95


def spell_tokens(generations: pd.DataFrame, tokenizer: Tokenizer) -> dict[str, str]:
    """Return the text of each token that a page about these responses may show, by id."""
    tokens: set[int] = set()
    for row in generations.itertuples():
        tokens.update(map(int, row.token_ids))
        for most_probable in row.top_ids:
            tokens.update(map(int, most_probable[:TOKENS_LISTED]))
    spelled = {}
    for token in sorted(tokens):
        spelled[str(token)] = tokenizer.decode([token], skip_special_tokens=False)
    return spelled


def share_of_answers_spelled(generations: pd.DataFrame, spelled: dict[str, str]) -> float:
    """Return the share of stored answers that their tokens spell."""
    answered = generations[generations.answer.notna() & (generations.answer_start >= 0)]
    agreeing = 0
    for row in answered.itertuples():
        answer = row.token_ids[row.answer_start : row.answer_end]
        text = "".join(spelled[str(token)] for token in answer)
        agreeing += text.strip() == row.answer
    return agreeing / len(answered)


def share_of_responses_encoded(generations: pd.DataFrame, tokenizer: Tokenizer) -> float:
    """Return the share of responses whose text the tokenizer turns into the stored tokens."""
    agreeing = 0
    for row in generations.itertuples():
        stored = row.token_ids[: len(row.token_ids) - row.eos].tolist()
        text = tokenizer.decode(stored, skip_special_tokens=False)
        agreeing += tokenizer.encode(text, add_special_tokens=False).ids == stored
    return agreeing / len(generations)


def write_spellings(model: str, tokenizer: Tokenizer) -> None:
    """Write the table of a model."""
    datasets = params.load_profile("small").datasets
    generations, _ = store.load_frames("replay-small", "generations", [model], datasets)
    spelled = spell_tokens(generations, tokenizer)
    answers = share_of_answers_spelled(generations, spelled)
    responses = share_of_responses_encoded(generations, tokenizer)
    agreement = f"{answers:.1%} of the answers and {responses:.1%} of the responses agree"
    if min(answers, responses) < LEAST_AGREEING:
        sys.exit(f"spellings: not the tokenizer of {model}: only {agreement}")
    paths.SPELLINGS.mkdir(exist_ok=True)
    text = json.dumps(spelled, indent=0, ensure_ascii=False)
    (paths.SPELLINGS / f"{model}.json").write_text(f"{text}\n", encoding="utf-8")
    print(f"{model}: {len(spelled)} tokens; {agreement}")


if __name__ == "__main__":
    for model_ in MODELS:
        write_spellings(model_, Tokenizer.from_file(f"{sys.argv[1]}/tokenizer.json"))
