"""Each claim on printed numbers, by hand: numbers for which it holds, and the change that turns it.
Both are written in claims.yaml, and none is computed by the code under test."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from test_claims_by_rows import BY_ROWS

from lib.analysis.result_tables import Results
from lib.paper.claim import QUANTIFIERS, decide
from lib.paper.verdicts import CLAIMS, count_kinds, count_outcomes, judge, kind_of_verdict

MODELS, DATASETS = {"llama": "Llama-3", "qwen": "Qwen3"}, {"easy": "Easy", "hard": "Hard"}
NOTHING = Results(MODELS, DATASETS, MODELS, (MODELS, DATASETS), (), {})
NAMES = {claim.name: claim for claim in CLAIMS}
ACCURACY = {"dataset": ["easy", "hard"], "estimator": "", "metric": "acc", "value": [0.9, 0.3]}
BY_HAND = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text())
BY_HAND.pop("shared")


def frame_of(told):
    columns = (
        {"model": "llama", "dataset": "easy"}
        | ({"metric": "ece"} if "value" in told else {})
        | told
    )
    rows = max((len(values) for values in columns.values() if isinstance(values, list)), default=1)
    return pd.DataFrame(columns, range(rows))


@pytest.mark.parametrize(
    "name, verdict, told", [(name, *case) for name, cases in BY_HAND.items() for case in cases]
)
def test_a_claim_holds_for_these_numbers_and_not_for_others(name, verdict, told):
    """Accuracies tell which dataset is the hardest."""
    frames = {table: frame_of(columns) for table, columns in told.items()}
    frames["result_estimation"] = pd.concat(
        [frame_of(ACCURACY), frames.get("result_estimation")], ignore_index=True
    )
    assert judge(NAMES[name], replace(NOTHING, frames=frames)).kind == verdict


def test_every_claim_has_such_numbers_and_says_what_it_lacks():
    assert set(BY_HAND) | set(BY_ROWS) == set(NAMES)
    for name in NAMES:
        kinds = {kind for kind, _ in BY_HAND.get(name, ())}
        assert {"holds", "fails"} <= kinds or name in BY_ROWS, name
        without = judge(NAMES[name], NOTHING)
        assert without.kind == "not judged" and without.lacks, name


def test_what_one_draw_of_masks_decides_is_not_judged():
    entropies = frame_of({"term": "conditional", "passes": [1, 2, 3], "mean": [0.9, 1.1, 1]})
    passes = frame_of({"growth": 0.1, "growth_low": 0.01, "growth_high": 0.2})
    shared = replace(NOTHING, frames={"entropies": entropies, "passes": passes}, shared_masks=True)
    for name in ("conditional_stays", "entropy_grows"):
        verdict = judge(NAMES[name], shared)
        assert (verdict.kind, verdict.said) == ("not judged", "all questions share masks")


# ---- cases to verdicts


@pytest.mark.parametrize("word, outcomes, verdict", [
    ("all", "aaaa", "holds"), ("all", "aaao", "open"), ("all", "aaod", "fails"),
    ("generally", "aaaoo", "holds"), ("generally", "aaood", "open"), ("generally", "aaoddd", "fails"),
    ("several", "aooo", "holds"), ("several", "oddd", "open"), ("several", "odddd", "fails"),
    ("can", "addd", "holds"), ("can", "oddd", "open"), ("can", "dddd", "fails")])  # fmt: skip
def test_a_verdict_is_open_only_if_the_open_cases_decide_it(word, outcomes, verdict):
    names = {"a": "agrees", "o": "open", "d": "disagrees"}
    assert kind_of_verdict(word, pd.Series([names[letter] for letter in outcomes])) == verdict


@pytest.mark.parametrize("margin, low, high, outcome", [
    (0.1, 0.01, 0.2, "agrees"), (0.1, 0.0, 0.2, "open"), (-0.1, -0.2, 0.01, "open"), (-0.1, -0.2, -0.01, "disagrees"),
    (0, 0, 0, "disagrees"), (0.1, np.nan, np.nan, "agrees"), (0, np.nan, np.nan, "disagrees")])  # fmt: skip
def test_an_interval_decides_a_case_and_a_number_where_there_is_none(margin, low, high, outcome):
    assert decide(margin, low, high) == outcome


def test_counts_in_words():
    outcomes = pd.Series(["agrees", "agrees", "open", "disagrees"])
    assert count_outcomes(outcomes, "pairs") == "2 pairs agree, 1 open, 1 disagrees"
    assert count_outcomes(outcomes[2:], "cells") == "1 cell open, 1 disagrees"
    assert (
        count_kinds(["holds", "open", "holds", "fails", "not judged"])
        == "2 hold, 1 fails, 1 open, 1 not judged"
    )


@pytest.mark.parametrize("word, fewest, total", [
    ("all", 4, 4), ("often", 3, 5), ("generally", 3, 4), ("several", 1, 4),
    ("several", 2, 5), ("some", 1, 4), ("can", 1, 9), ("figure", 1, 1)])  # fmt: skip
def test_words_for_how_many(word, fewest, total):
    assert [QUANTIFIERS[word][1](count, total) for count in (fewest - 1, fewest, total)] == [
        False,
        True,
        True,
    ]
