"""Responses to read: exchanges as framed listings (`fig:prompt_example`, `fig:prompt_comparison`),
and token by token, each shaded by its probability, with the answer boxed.

Markup without scripts, for notebooks and the report. Probabilities are the model's own, at
temperature 1.
"""

import html
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from huggingface_hub import try_to_load_from_cache
from IPython.display import HTML
from tokenizers import Tokenizer

from lib import params, paths, store
from lib.analysis.running_example import rows_of_example
from lib.analysis.signals import AnySignals
from lib.errors import show_hidden
from lib.paper.booktabs import TEMPLATES, escape
from lib.store import PAIR, evaluation_rows
from lib.tasks.prompts import QUERY

NOT_KEPT = "(not kept)"
NOT_ASKED = "(not known: the model is not at hand)"
LISTING = Path(__file__).with_name("listing.tex").read_text(encoding="utf-8").strip()
QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014", "''\"\"--")
# no shade from the first probability on, and ever darker shades below
SHADES = (0.999, 0.99, 0.9, 0.5)
TOKENS_LISTED = 5  # most probable tokens to list
# tokens on a page, about 100 bytes each; longer responses lose their beginning
MAX_TOKENS_SHOWN = 12_000

# ---- exchanges


@dataclass(frozen=True)
class Listings:
    """Named texts beside each other: LaTeX for the paper, `<pre>` on a page.

    On the page, the verification query at the end of a text is marked: in situ it alone is encoded.
    """

    texts: Mapping[str, str]

    def _repr_latex_(self) -> str:
        width = 0.98 / len(self.texts)
        boxes = []
        for name, text in self.texts.items():
            boxes.append(LISTING % (width, escape(name), as_ascii(text)))
        return "\n".join([r"% \usepackage{listings}", "\\hfill%\n".join(boxes), ""])

    def _repr_html_(self) -> str:
        texts = {}
        for name, text in self.texts.items():
            texts[name] = html.escape(show_hidden(text))
        template = TEMPLATES.get_template("listings.html.jinja")
        return template.render(texts=texts, query=html.escape(QUERY))


def as_ascii(text: str) -> str:
    """Return the text of a LaTeX listing, which cannot end it.

    Listings read no letters beyond ASCII: these become their plain form (a bar for a full-width
    one), else their code.
    """
    plain = unicodedata.normalize("NFKC", show_hidden(text).translate(QUOTES))
    letters = plain.encode("ascii", "backslashreplace").decode()
    return letters.replace(r"\end{lstlisting}", r"\end {lstlisting}").strip("\n")


def prompt_example(prompt: str, response: str) -> Listings:
    """Return `fig:prompt_example`: a prompt and its response with every character, special tokens
    included."""
    return Listings({"Prompt": prompt, "Response": response})


def prompt_comparison(standard: str, in_situ: str) -> Listings:
    """Return `fig:prompt_comparison`: the verification prompt, standard and in situ, side by
    side."""
    return Listings({"Standard P(True)": standard, "In-situ P(True)": in_situ})


def load_exchange(run: str, signals: AnySignals, model: str, dataset: str) -> dict[str, str]:
    """Return the `prompt`, the response (`text`) and both verification prompts (`standard_prompt`,
    `in_situ_prompt`) of the first evaluation row of a pair.

    If the run stores no texts, the exchange is on our own question, from the manifest of 03. Of an
    unavailable model, the question replaces its unknown prompt.
    """
    pair = signals.of_pair((model, dataset))
    row = evaluation_rows(pair.generations).iloc[0]
    has_text = isinstance(row.text, str)
    if not params.load_model_config(model).at_hand:
        return {
            "prompt": row.question if has_text else NOT_KEPT,
            "text": row.text if has_text else NOT_KEPT,
            "standard_prompt": NOT_ASKED,
            "in_situ_prompt": NOT_ASKED,
        }
    if has_text:
        verification = evaluation_rows(pair.verification).iloc[0]
        exchange = {
            "prompt": row.prompt,
            "text": row.text,
            "standard_prompt": verification.standard_prompt,
        }
    else:
        path = store.find_frame(run, "verification", f"{model}__{dataset}")
        exchange = store.read_manifest(path)["exchange"]
    return exchange | {"in_situ_prompt": exchange["prompt"] + exchange["text"] + QUERY}


# ---- token by token


def show_tokens(
    generations: pd.DataFrame, rows: Iterable[pd.Series], spell: Callable[[int], str] | None = None
) -> HTML:
    """Show responses, rows of `interpret_responses`; the generations frame has their tokens.
    Several are collapsed.

    `spell` turns token ids to text; by default it is of each model's tokenizer.
    """
    responses = list(rows)
    models = {response.model for response in responses}
    spellers = {model: spell or load_token_speller(model) for model in models}
    most = MAX_TOKENS_SHOWN // max(1, len(responses))
    views = []
    for response in responses:
        views.append(token_view(generations, response, spellers[response.model], most))
    return HTML(TEMPLATES.get_template("response_views.html.jinja").render(views=views))


def load_token_speller(model: str) -> Callable[[int], str]:
    """Return a function from token ids to text, from the tokenizer's file in its folder or in the
    Hugging Face cache, else from the shipped table of the model's tokens.

    Partial characters become question marks. An id that nothing spells becomes itself in brackets.
    """
    spec = params.load_model_config(model)
    path: Any = spec.place / "tokenizer.json"
    try:
        if not path.is_file():
            path = try_to_load_from_cache(spec.source, path.name, revision=spec.revision)
        tokenizer = Tokenizer.from_file(str(path))
    except Exception:  # tokenizers raises errors without a type of their own
        spelled = read_spellings(model)
        return lambda token: spelled.get(str(token), f"[{token}]")
    return lambda token: tokenizer.decode([token], skip_special_tokens=False)


def read_spellings(model: str) -> dict[str, str]:
    """Return the shipped table of a model's tokens (docs/tables/spellings.py), text by id; empty if
    there is none."""
    path = paths.SPELLINGS / f"{model}.json"
    if not path.is_file():
        return {}
    return json.loads(path.read_text(encoding="utf-8"))


def most_and_least_confident(responses: pd.DataFrame) -> Iterator[pd.Series]:
    """Yield the evaluation responses with the highest and lowest mean probability of each pair,
    once each.

    Both right and wrong responses are chosen, right ones first; ties go to the first.
    """
    for _, rows in evaluation_rows(responses).groupby(PAIR, sort=False):
        means = rows.response.map(lambda logprobs: np.exp(logprobs).mean())
        for correct in (True, False):
            part = means[rows.correct.astype(bool) == correct]
            if len(part):
                for label in dict.fromkeys([part.idxmax(), part.idxmin()]):
                    yield rows.loc[label]


def token_view(
    generations: pd.DataFrame, response: pd.Series, spell: Callable[[int], str], most: int
) -> dict[str, Any]:
    """Return what the template shows of a row of `interpret_responses`; an empty response shows its
    end token."""
    row = rows_of_example(generations, response).iloc[0]
    spelled = spell_tokens(row, response, spell)
    left_out = max(0, len(spelled) - most)
    tokens = []
    for token in spelled[left_out:]:
        listed = [f"{text} {p:.4f}" for text, p in token.alternatives]
        tip = ": ".join([f"{token.probability:.4f}", ", ".join(listed)])
        view = {
            "text": token.text,
            "shade": int((token.probability < np.array(SHADES)).sum()),
            "answer": token.in_answer,
            "tip": tip if listed else f"{token.probability:.4f}",
        }
        tokens.append(view)
    mean = np.mean([token.probability for token in spelled])
    return {
        "title": f"{title_of_view(row, response)}, mean probability {mean:.3f}",
        "question": row.question if isinstance(row.question, str) else "",
        "left_out": left_out,
        "tokens": tokens,
    }


class SpelledToken(NamedTuple):
    """A token of a response: its text, its probability, whether it is of the answer, and the most
    probable tokens in its place where logits were kept, each with its probability."""

    text: str
    probability: float
    in_answer: bool
    alternatives: list[tuple[str, float]]


def spell_tokens(row: Any, response: pd.Series, spell: Callable[[int], str]) -> list[SpelledToken]:
    """Return the tokens of a response: a row of the generations, and of `interpret_responses`."""
    count = max(1, len(row.token_ids) - int(row.eos))
    start, end = response.span if response.span else (count, count)
    probabilities = np.exp(np.asarray(row.token_logprobs, dtype=float)[:count])
    alternatives = list_probable_tokens(row, spell)
    tokens = []
    for position, probability in enumerate(probabilities):
        token = SpelledToken(
            spell(int(row.token_ids[position])),
            float(probability),
            start <= position < end,
            alternatives.get(position, []),
        )
        tokens.append(token)
    return tokens


def title_of_view(row: Any, response: pd.Series) -> str:
    """Return the title of a response: its example, whether it is right, and what it answered.

    The correct answer belongs to the question, and is named where that is stored.
    """
    model = params.load_model_config(row.model).label
    dataset = params.load_dataset_config(row.dataset).label
    verdict = "right" if response.correct else "wrong"
    answer = f"answered {row.answer}" if response.parsed else "no answer"
    title = f"{model}, {dataset}, {row.example_id}: {verdict}, {answer}"
    return f"{title}, correct {row.reference}" if isinstance(row.question, str) else title


def list_probable_tokens(
    row: Any, spell: Callable[[int], str]
) -> dict[int, list[tuple[str, float]]]:
    """Return the most probable tokens, with probabilities, at each position with stored logits.

    The log-partition of the softmax follows from the chosen token's logit and log-probability.
    """
    listed = {}
    for index, position in enumerate(row.kept_positions):
        logits = np.asarray(row.top_logits[index], dtype=float)[:TOKENS_LISTED]
        log_partition = float(row.chosen_logit[index]) - float(row.token_logprobs[position])
        probabilities = np.exp(logits - log_partition)
        texts = [spell(int(token)) for token in row.top_ids[index][:TOKENS_LISTED]]
        listed[int(position)] = list(zip(texts, map(float, probabilities), strict=True))
    return listed
