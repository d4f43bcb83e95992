"""Token viewer: a response token by token, each shaded by its probability, with the answer boxed and the running mean.

Self-contained markup without scripts, for notebooks and the report. Alternatives of a token appear on hover and on
keyboard focus. Probabilities are the model's own, at temperature 1.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from huggingface_hub import try_to_load_from_cache
from tokenizers import Tokenizer

from lib.configs import Model
from lib.score import running_example
from lib.store import PAIR

TEMPLATE = Path(__file__).with_suffix(".html.jinja")
SHADES = (0.999, 0.99, 0.9, 0.5)  # no shade from the first probability on, and ever darker shades below
MAX_TOKENS_SHOWN = 12_000  # tokens on a page, about 200 bytes each; longer responses lose their middle
TOKENS_LISTED = 5  # most probable tokens to list
CURVE_POINTS = 160  # of the running mean's curve
Speller = Callable[[int], str]  # from a token's id to its text
Spellings = Mapping[str, Speller | None]  # by model


@dataclass(frozen=True)
class Microscope:
    """Responses from `token_view`; several are collapsed."""

    views: list[dict[str, Any]] = field(repr=False)

    def html(self, themed: bool = False) -> str:
        """Return the HTML; `themed` if the surrounding page has a dark mode."""
        env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
        facts = {"model": "model", "dataset": "dataset", "answer": "verdict", "mean": "mean"}
        choices = {name: list(dict.fromkeys(one[fact] for one in self.views)) for name, fact in facts.items()}
        return env.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
            views=self.views,
            choices=choices,
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
    views = [token_view(generations, one, labels, spellings, most) | {"mean": mean} for one, mean in chosen]
    return Microscope(views)


def style_passes(table: pd.DataFrame) -> Any:
    """Return a styled frame of probabilities by pass (`tabulate_passes`); lower probabilities are darker."""
    shaded = table.style.set_uuid("passes").background_gradient("Blues_r", vmin=0, vmax=1).format("{:.3f}")
    return shaded.format_index(axis="columns", escape="html", level=[0, 1])


def most_and_least_confident(rows: pd.DataFrame) -> Iterator[tuple[pd.Series, str]]:
    """Yield the most and the least confident of the right rows, then of the wrong rows, by mean probability.

    A single row counts as most confident.
    """
    means = rows.response.map(lambda logprobs: np.exp(logprobs).mean())
    for correct in (True, False):
        part = means[rows.correct.astype(bool) == correct]
        if len(part):
            yield rows.loc[part.idxmax()], "confident"
        if len(part) > 1:
            yield rows.loc[part.idxmin()], "unsure"


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
    means = p.cumsum() / np.arange(1, n + 1)
    start, end = map(int, one.span or (n, n))
    others = most_probable_tokens(row, spell)
    tokens = [
        {
            "text": spell(int(token)),
            "shade": int(np.sum(p[i] < np.array(SHADES))),
            "answer": start <= i < end,
            "gap": 0,
            "said": f"{p[i]:.4f}, mean {means[i]:.3f}",
            "others": others.get(i),
        }
        for i, token in enumerate(row.token_ids[:n])
    ]
    thought = min(int(row.thinking_end), n)
    parts = {"thinking": omit_middle(tokens[:thought], most // 2), "thought": thought,
             "tokens": omit_middle(tokens[thought:], most // 2 if thought else most)}  # fmt: skip
    names = {"model": labels[0][row.model], "dataset": labels[1][row.dataset]}
    verdict = "right" if one.correct else "wrong"
    found = f"{row.answer}, and {row.reference} is right" if one.parsed else f"no answer, and {row.reference} is right"
    title = f"{', '.join(names.values())}, {row.example_id}: {verdict} ({found}), mean probability {means[-1]:.3f}"
    question = row.question if isinstance(row.question, str) else ""
    facts = {"verdict": verdict, "mean": "", "title": title, "question": question, "spelled": speller is not None}
    return names | facts | parts | running_mean_curve(means, start)


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


def omit_middle(tokens: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return at most `most` tokens: the middle is omitted, except for tokens of the answer."""
    half = most // 2
    shown = [t["answer"] or i < half or i >= len(tokens) - half for i, t in enumerate(tokens)]
    parts: list[dict[str, Any]] = []
    for keep, group in groupby(zip(shown, tokens, strict=True), key=lambda pair: pair[0]):
        part = [token for _, token in group]
        parts += part if keep else [{"gap": len(part)}]
    return parts


def running_mean_curve(means: np.ndarray, start: int) -> dict[str, Any]:
    """Return the running mean as a line of at most CURVE_POINTS in a box of 160 by 70, and the start of the answer."""
    low = np.floor(20 * means.min()) / 20
    at = np.unique(np.linspace(0, len(means) - 1, CURVE_POINTS).astype(int))
    x = 160 * at / max(1, len(means) - 1)
    y = 70 * (1 - (means[at] - low) / (1 - low if low < 1 else 1))
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    begins = round(160 * start / max(1, len(means) - 1), 1) if start < len(means) else None
    return {"line": line, "low": f"{low:.2f}", "end": f"{means[-1]:.3f}", "at": begins}
