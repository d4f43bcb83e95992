"""Responses to read on a page: of each pair the most confident wrong ones, the least confident
right ones, and some at random, with their tokens."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from lib.analysis.running_example import rows_of_example
from lib.analysis.signals import AnySignals
from lib.calibrate.calibration_sets import Pair
from lib.errors import show_hidden
from lib.paper.response_views import load_token_speller, spell_tokens, title_of_view
from lib.score.estimators import ans_avg
from lib.store import evaluation_rows

KINDS = ("most confident wrong", "least confident right", "random")
OF_EACH_KIND = 8
ALTERNATIVES = 3  # most probable tokens to list
MOST_PAIRS = 12  # of more, one pair's responses are read
# tokens on a page, some twenty bytes each; longer responses lose their beginning
MAX_TOKENS = 40_000
SEED = 0


def responses_to_read(
    signals: AnySignals, labels: Mapping[Pair, str], first: Pair
) -> dict[Pair, list[dict[str, Any]]]:
    """Return the responses that a page shows, by pair; `first` alone if there are many pairs."""
    pairs = list(labels) if len(labels) <= MOST_PAIRS else [first]
    most = MAX_TOKENS // (len(pairs) * len(KINDS) * OF_EACH_KIND)
    spellers: dict[str, Callable[[int], str]] = {}
    views: dict[Pair, list[dict[str, Any]]] = {}
    for pair in pairs:
        model = pair[0]
        if model not in spellers:
            spellers[model] = load_token_speller(model)
        views[pair] = []
        of_pair = signals.of_pair(pair)
        rows = evaluation_rows(of_pair.responses)
        for kind, labels_of_rows in choose_responses(rows).items():
            for label in labels_of_rows:
                view = describe_response(
                    of_pair.generations, rows.loc[label], spellers[model], most
                )
                views[pair].append(view | {"kind": kind})
    return views


def choose_responses(rows: pd.DataFrame) -> dict[str, list[Any]]:
    """Return the index labels of responses of a pair by kind.

    Confidence is the Ans Avg of an answer that was read; ties go to the first.
    """
    answered = rows[rows.answer.notna() & rows.parsed.astype(bool)]
    confidence = answered.answer.map(ans_avg).astype(float)
    correct = answered.correct.astype(bool)
    surest_wrong = confidence[~correct].sort_values(ascending=False, kind="stable")
    least_sure_right = confidence[correct].sort_values(kind="stable")
    order = np.random.default_rng(SEED).permutation(len(rows))
    at_random = rows.iloc[order]
    chosen = {}
    for kind, part in zip(KINDS, (surest_wrong, least_sure_right, at_random), strict=True):
        chosen[kind] = list(part.index[:OF_EACH_KIND])
    return chosen


def describe_response(
    generations: pd.DataFrame, response: pd.Series, spell: Callable[[int], str], most: int
) -> dict[str, Any]:
    """Return a response: its title, its question where that is stored, and its last tokens.

    A token is its text and probability, 1 if it is of the answer, and the most probable tokens in
    its place where logits were kept.
    """
    row = rows_of_example(generations, response).iloc[0]
    spelled = spell_tokens(row, response, spell)
    left_out = max(0, len(spelled) - most)
    tokens: list[list[Any]] = []
    for token in spelled[left_out:]:
        entry: list[Any] = [show_hidden(token.text), round(token.probability, 4)]
        if token.in_answer or token.alternatives:
            others = []
            for text, probability in token.alternatives[:ALTERNATIVES]:
                others.append([show_hidden(text), round(probability, 4)])
            entry += [int(token.in_answer), others]
        tokens.append(entry)
    question = row.question if isinstance(row.question, str) else ""
    return {
        "example_id": response.example_id,
        "title": show_hidden(title_of_view(row, response)),
        "question": show_hidden(question),
        "left_out": left_out,
        "tokens": tokens,
    }
