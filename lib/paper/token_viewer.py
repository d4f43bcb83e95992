"""Token viewer: responses token by token, each shaded by its probability, with the answer boxed.

Self-contained markup without scripts, for notebooks and the report. The tooltip of a token has its probability and,
where its logits are stored, the most probable tokens. Probabilities are the model's own, at temperature 1.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from huggingface_hub import try_to_load_from_cache
from tokenizers import Tokenizer

from lib import params
from lib.analysis.token_statistics import rows_of_example
from lib.store import PAIR

TEMPLATE = Path(__file__).with_suffix(".html.jinja")
SHADES = (0.999, 0.99, 0.9, 0.5)  # no shade from the first probability on, and ever darker shades below
MAX_TOKENS_SHOWN = 12_000  # tokens on a page, about 200 bytes each; longer responses lose their beginning
TOKENS_LISTED = 5  # most probable tokens to list


@dataclass(frozen=True)
class TokenViewer:
    """Responses, each a dictionary of what the template shows; several are collapsed."""

    views: list[dict[str, Any]] = field(repr=False)

    def _repr_html_(self) -> str:
        env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
        return env.from_string(TEMPLATE.read_text(encoding="utf-8")).render(views=self.views)

    def _repr_json_(self) -> list[dict[str, Any]]:
        return self.views


def show_tokens(generations: pd.DataFrame, rows: Iterable[pd.Series]) -> TokenViewer:
    """Show responses, rows of `interpret_responses`; the generations frame has their tokens."""
    chosen = list(rows)
    spellers = {model: load_token_speller(model) for model in {one.model for one in chosen}}
    most = MAX_TOKENS_SHOWN // max(1, len(chosen))
    return TokenViewer([view_tokens(generations, one, spellers[one.model], most) for one in chosen])


def load_token_speller(model: str) -> Callable[[int], str]:
    """Return a function from token ids to text, from the tokenizer's file in its folder or in the Hugging Face cache.

    Partial characters become question marks. If the file is missing or unreadable, an id becomes itself in brackets.
    """
    spec = params.load_model_config(model)
    own = spec.place / "tokenizer.json"
    try:
        path = own if own.is_file() else try_to_load_from_cache(spec.source, own.name, revision=spec.revision)
        tokenizer = Tokenizer.from_file(str(path))
    except Exception:  # tokenizers raises errors without a type of their own
        return "[{}]".format
    return lambda token: tokenizer.decode([token], skip_special_tokens=False)


def most_and_least_confident(responses: pd.DataFrame) -> Iterator[pd.Series]:
    """Yield the evaluation responses with the highest and lowest mean probability of each pair, once each.

    Both right and wrong responses are chosen, right ones first; ties go to the first.
    """
    for _, rows in responses[responses.split == "evaluation"].groupby(PAIR, sort=False):
        means = rows.response.map(lambda logprobs: np.exp(logprobs).mean())
        for correct in (True, False):
            part = means[rows.correct.astype(bool) == correct]
            for place in dict.fromkeys([part.idxmax(), part.idxmin()] if len(part) else []):
                yield rows.loc[place]


def view_tokens(generations: pd.DataFrame, one: pd.Series, spell: Callable[[int], str], most: int) -> dict[str, Any]:
    """Return what the template shows of a row of `interpret_responses`; an empty response shows its end token."""
    row = rows_of_example(generations, one).iloc[0]
    n = max(1, len(row.token_ids) - int(row.eos))
    p = np.exp(np.asarray(row.token_logprobs, dtype=float)[:n])
    start, end = map(int, one.span or (n, n))
    others = list_probable_tokens(row, spell)
    tokens = [
        {
            "text": spell(int(row.token_ids[i])),
            "shade": int(np.sum(p[i] < np.array(SHADES))),
            "answer": start <= i < end,
            "tip": f"{p[i]:.4f}{others.get(i, '')}",
        }
        for i in range(max(0, n - most), n)
    ]
    names = params.load_model_config(row.model).label, params.load_dataset_config(row.dataset).label, row.example_id
    verdict = f"{'right' if one.correct else 'wrong'} ({row.answer if one.parsed else 'no answer'}"
    return {
        "title": f"{', '.join(names)}: {verdict}, and {row.reference} is right), mean probability {p.mean():.3f}",
        "question": row.question if isinstance(row.question, str) else "",
        "left_out": max(0, n - most),
        "tokens": tokens,
    }


def list_probable_tokens(row: Any, spell: Callable[[int], str]) -> dict[int, str]:
    """Return the most probable tokens, with probabilities, at each position with stored logits.

    The log-partition of the softmax follows from the chosen token's logit and log-probability.
    """
    listed = {}
    for place, position in enumerate(row.kept_positions):
        logits = np.asarray(row.top_logits[place], dtype=float)[:TOKENS_LISTED]
        p = np.exp(logits - float(row.chosen_logit[place]) + float(row.token_logprobs[position]))
        words = (f"{spell(int(token))} {value:.4f}" for token, value in zip(row.top_ids[place], p, strict=False))
        listed[int(position)] = f": {', '.join(words)}"
    return listed
