"""A response token by token: each shaded by its probability, the answer boxed, the running mean beside it.

Self-contained markup without a script, for a notebook and for the report: what could have stood at a token shows on
hover and on keyboard focus. Probabilities are the model's own, at temperature 1.
"""

from collections.abc import Callable, Iterable, Mapping
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
SHADES = (0.999, 0.99, 0.9, 0.5)  # at least so probable: no shade, and ever darker ones
MAX_TOKENS_SHOWN = 12_000  # tokens on a page, at some 200 bytes each; of a longer response the middle is left out
OTHERS = 5  # most probable tokens that are told
POINTS = 160  # of the running mean's curve
Speller = Callable[[int], str]  # from a token's id to what it spells
Spellings = Mapping[str, Speller | None]  # by model


@dataclass(frozen=True)
class Microscope:
    """Responses as `token_view` describes them; several are folded."""

    views: list[dict[str, Any]] = field(repr=False)

    def html(self, themed: bool = False) -> str:
        """The page's part; `themed` where the page around it has a dark form."""
        env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
        facts = {"model": "model", "dataset": "dataset", "answer": "verdict", "mean": "mean"}
        choices = {name: list(dict.fromkeys(one[fact] for one in self.views)) for name, fact in facts.items()}
        return env.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
            views=self.views, choices=choices, themed=themed, folded=len(self.views) > 1,
            unspelt=not all(one["spelt"] for one in self.views))  # fmt: skip

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        titles = [one["title"] for one in self.views]
        return {"text/html": self.html(), "text/plain": "\n".join(titles), "application/json": self.views}


def load_token_speller(spec: Model) -> Speller | None:
    """What a model's tokens spell (part of a letter as a question mark), from its tokenizer's file in its folder or in
    the hub's cache. None where that is not on this machine, or can't be read."""
    own = spec.place / "tokenizer.json"
    try:
        path = own if own.is_file() else try_to_load_from_cache(spec.source, own.name, revision=spec.revision)
        tokenizer = Tokenizer.from_file(str(path))
    except Exception:  # what tokenizers raises has no type of its own
        return None
    return lambda token: tokenizer.decode([token], skip_special_tokens=False)


def token_page(
    generations: pd.DataFrame, one: pd.Series, labels: tuple[Mapping, Mapping], spellings: Spellings
) -> Microscope:
    """One response: a row of `interpret_responses`, and the generations frame that has its tokens."""
    return Microscope([token_view(running_example.rows_of_example(generations, one).iloc[0], one, labels, spellings)])


def token_pages(
    generations: pd.DataFrame, responses: pd.DataFrame, labels: tuple[Mapping, Mapping], spellings: Spellings
) -> Microscope:
    """Of every pair's evaluation rows the right and the wrong one of the highest and of the lowest mean probability
    (the first of equal ones), right ones first."""
    chosen = [
        (row, mean)
        for _, rows in responses[responses.split == "evaluation"].groupby(PAIR, sort=False)
        for row, mean in ends(rows)
    ]
    most = MAX_TOKENS_SHOWN // max(1, len(chosen))
    return Microscope(
        [
            token_view(running_example.rows_of_example(generations, row).iloc[0], row, labels, spellings, most)
            | {"mean": mean}
            for row, mean in chosen
        ]
    )


def passes(table: pd.DataFrame) -> Any:
    """Probabilities by pass (`spread.table`), each cell the darker the less probable; a styled frame."""
    colours = ("#fff", "#e3ecf6", "#b9cee6", "#79a2d0", "#1c4a80")

    def shaded(p: float) -> str:
        level = shade(p)
        return f"background-color:{colours[level]};color:{'#fff' if level == len(SHADES) else '#10151a'}"

    names = {"axis": "columns", "escape": "html", "level": [0, 1]}
    return table.style.set_uuid("passes").map(shaded).format("{:.3f}").format_index(**names)


def ends(rows: pd.DataFrame) -> Iterable[tuple[pd.Series, str]]:
    """The surest and the least sure of the right rows, then of the wrong ones, by mean probability; of a single one it
    is the surest."""
    for correct in (True, False):
        part = rows[rows.correct.astype(bool) == correct]
        means = np.array([np.exp(logprobs).mean() for logprobs in part.response])
        if len(part):
            yield part.iloc[int(means.argmax())], "confident"
        if len(part) > 1:
            yield part.iloc[int(means.argmin())], "unsure"


def token_view(
    row: Any, one: pd.Series, labels: tuple[Mapping, Mapping], spellings: Spellings, most: int = MAX_TOKENS_SHOWN
) -> dict[str, Any]:
    """What the template shows of a generations row, read as `one`; of one that ends at once, its end token."""
    spell, n = spellings.get(row.model), max(1, len(row.token_ids) - int(row.eos))
    p = np.exp(np.asarray(row.token_logprobs, dtype=float)[:n])
    means = p.cumsum() / np.arange(1, n + 1)
    start, end = map(int, one.span or (n, n))
    others = alternatives(row, spell or by_id)
    tokens = [{"text": (spell or by_id)(int(token)), "shade": shade(p[i]), "answer": start <= i < end, "gap": 0,
               "said": f"{p[i]:.4f}, mean {means[i]:.3f}", "others": others.get(i)}
              for i, token in enumerate(row.token_ids[:n])]  # fmt: skip
    thought = min(int(row.thinking_end), n)
    parts = {"thinking": shortened(tokens[:thought], most // 2), "thought": thought,
             "tokens": shortened(tokens[thought:], most // 2 if thought else most)}  # fmt: skip
    names = {"model": labels[0][row.model], "dataset": labels[1][row.dataset]}
    verdict = "right" if one.correct else "wrong"
    found = f"{row.answer}, and {row.reference} is right" if one.parsed else f"no answer, and {row.reference} is right"
    title = f"{', '.join(names.values())}, {row.example_id}: {verdict} ({found}), mean probability {means[-1]:.3f}"
    question = row.question if isinstance(row.question, str) else ""
    facts = {"verdict": verdict, "mean": "", "title": title, "question": question, "spelt": spell is not None}
    return names | facts | parts | running_mean_curve(means, start)


def by_id(token: int) -> str:
    return f"[{token}]"


def shade(p: float) -> int:
    """0 to 4, the darker the less probable."""
    return sum(bool(p < bound) for bound in SHADES)


def alternatives(row: Any, spell: Speller) -> dict[int, list[str]]:
    """The most probable tokens at each position whose logits were kept, with their probabilities: softmax by the
    log-partition that the chosen token's logit and log-probability imply."""
    found = {}
    kept = zip(row.kept_positions, row.chosen_logit, row.top_logits, row.top_ids, strict=True)
    for position, chosen, logits, ids in kept:
        p = np.exp(np.asarray(logits, dtype=float)[:OTHERS] - float(chosen) + float(row.token_logprobs[position]))
        found[int(position)] = [f"{spell(int(token))} {value:.4f}" for token, value in zip(ids, p, strict=False)]
    return found


def shortened(tokens: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many tokens: of more, the middle is left out, but no token of the answer."""
    half = most // 2
    shown = [t["answer"] or i < half or i >= len(tokens) - half for i, t in enumerate(tokens)]
    parts: list[dict[str, Any]] = []
    for keep, group in groupby(zip(shown, tokens, strict=True), key=lambda pair: pair[0]):
        part = [token for _, token in group]
        parts += part if keep else [{"gap": len(part)}]
    return parts


def running_mean_curve(means: np.ndarray, start: int) -> dict[str, Any]:
    """The running mean as a line of at most POINTS points in a box of 160 by 70, and where the answer starts."""
    low = np.floor(20 * means.min()) / 20
    at = np.unique(np.linspace(0, len(means) - 1, POINTS).astype(int))
    x = 160 * at / max(1, len(means) - 1)
    y = 70 * (1 - (means[at] - low) / (1 - low if low < 1 else 1))
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    begins = round(160 * start / max(1, len(means) - 1), 1) if start < len(means) else None
    return {"line": line, "low": f"{low:.2f}", "end": f"{means[-1]:.3f}", "at": begins}
