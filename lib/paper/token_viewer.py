"""Token viewer: a response token by token, each shaded by its probability, with the answer boxed.

Self-contained markup without scripts, for notebooks and the report. A token's probability and its alternatives appear
on hover and on keyboard focus. Probabilities are the model's own, at temperature 1.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from huggingface_hub import try_to_load_from_cache
from tokenizers import Tokenizer

from lib.models_and_datasets import Model
from lib.score import running_example
from lib.store import PAIR

TEMPLATE = Path(__file__).with_suffix(".html.jinja")
SHADES = (0.999, 0.99, 0.9, 0.5)  # no shade from the first probability on, and ever darker shades below
MAX_TOKENS_SHOWN = 12_000  # tokens on a page, about 200 bytes each; longer responses lose their beginning
TOKENS_LISTED = 5  # most probable tokens to list
Speller = Callable[[int], str]  # from a token's id to its text
Spellings = Mapping[str, Speller | None]  # by model


@dataclass(frozen=True)
class Microscope:
    """Responses from `token_view`; several are collapsed."""

    views: list[dict[str, Any]] = field(repr=False)

    def html(self, themed: bool = False) -> str:
        """Return the HTML; `themed` if the surrounding page has a dark mode."""
        env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
        return env.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
            views=self.views,
            themed=themed,
            folded=len(self.views) > 1,
            unspelled=not all(one["spelled"] for one in self.views),
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        titles = [one["title"] for one in self.views]
        return {"text/html": self.html(), "text/plain": "\n".join(titles), "application/json": self.views}


def load_token_speller(spec: Model) -> Speller | None:
    """Return a function from token ids to text, from the tokenizer's file in its folder or in the Hugging Face cache.

    Partial characters become question marks. None if the file is missing or unreadable.
    """
    own = spec.place / "tokenizer.json"
    try:
        path = own if own.is_file() else try_to_load_from_cache(spec.source, own.name, revision=spec.revision)
        tokenizer = Tokenizer.from_file(str(path))
    except Exception:  # tokenizers raises errors without a type of their own
        return None
    return lambda token: tokenizer.decode([token], skip_special_tokens=False)


def token_page(
    generations: pd.DataFrame, one: pd.Series, labels: tuple[Mapping, Mapping], spellings: Spellings
) -> Microscope:
    """Return the view of one response: a row of `interpret_responses`; the generations frame has its tokens."""
    return Microscope([token_view(generations, one, labels, spellings)])


def token_pages(
    generations: pd.DataFrame, responses: pd.DataFrame, labels: tuple[Mapping, Mapping], spellings: Spellings
) -> Microscope:
    """Return views of the responses with the highest and lowest mean probability in every pair's evaluation rows.

    Both right and wrong responses are shown, right ones first; ties go to the first.
    """
    pairs = responses[responses.split == "evaluation"].groupby(PAIR, sort=False)
    chosen = [one for _, rows in pairs for one in most_and_least_confident(rows)]
    most = MAX_TOKENS_SHOWN // max(1, len(chosen))
    return Microscope([token_view(generations, one, labels, spellings, most) for one in chosen])


def style_passes(table: pd.DataFrame) -> Any:
    """Return a styled frame of probabilities by pass (`tabulate_passes`); lower probabilities are darker."""
    shaded = table.style.set_uuid("passes").background_gradient("Blues_r", vmin=0, vmax=1).format("{:.3f}")
    return shaded.format_index(axis="columns", escape="html", level=[0, 1])


def most_and_least_confident(rows: pd.DataFrame) -> Iterator[pd.Series]:
    """Yield the most and the least confident of the right rows, then of the wrong rows, by mean probability.

    A single row is yielded once.
    """
    means = rows.response.map(lambda logprobs: np.exp(logprobs).mean())
    for correct in (True, False):
        part = means[rows.correct.astype(bool) == correct]
        for place in dict.fromkeys([part.idxmax(), part.idxmin()] if len(part) else []):
            yield rows.loc[place]


def token_view(
    generations: pd.DataFrame,
    one: pd.Series,
    labels: tuple[Mapping, Mapping],
    spellings: Spellings,
    most: int = MAX_TOKENS_SHOWN,
) -> dict[str, Any]:
    """Return the template's values for a row of `interpret_responses`; an empty response shows its end token."""
    row = running_example.rows_of_example(generations, one).iloc[0]
    speller, n = spellings.get(row.model), max(1, len(row.token_ids) - int(row.eos))
    spell = speller or (lambda token: f"[{token}]")
    p = np.exp(np.asarray(row.token_logprobs, dtype=float)[:n])
    start, end = map(int, one.span or (n, n))
    others = most_probable_tokens(row, spell)
    tokens = [
        {
            "text": spell(int(row.token_ids[i])),
            "shade": int(np.sum(p[i] < np.array(SHADES))),
            "answer": start <= i < end,
            "said": f"{p[i]:.4f}",
            "others": others.get(i),
        }
        for i in range(max(0, n - most), n)
    ]
    names = f"{labels[0][row.model]}, {labels[1][row.dataset]}, {row.example_id}"
    verdict = "right" if one.correct else "wrong"
    found = row.answer if one.parsed else "no answer"
    return {
        "title": f"{names}: {verdict} ({found}, and {row.reference} is right), mean probability {p.mean():.3f}",
        "question": row.question if isinstance(row.question, str) else "",
        "spelled": speller is not None,
        "left_out": max(0, n - most),
        "tokens": tokens,
    }


def most_probable_tokens(row: Any, spell: Speller) -> dict[int, list[str]]:
    """Return the most probable tokens, with probabilities, at each position with stored logits.

    The log-partition of the softmax follows from the chosen token's logit and log-probability.
    """
    found = {}
    kept = zip(row.kept_positions, row.chosen_logit, row.top_logits, row.top_ids, strict=True)
    for position, chosen, logits, ids in kept:
        p = np.exp(
            np.asarray(logits, dtype=float)[:TOKENS_LISTED] - float(chosen) + float(row.token_logprobs[position])
        )
        found[int(position)] = [f"{spell(int(token))} {value:.4f}" for token, value in zip(ids, p, strict=False)]
    return found
