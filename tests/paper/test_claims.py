"""Each claim on printed numbers, by hand (claims_by_hand.py); and how cases become a verdict."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from claims_by_hand import CASES, entropies, errors_on, interval
from test_claims_by_rows import BY_ROWS

from lib.analysis.results import Results
from lib.paper.claim import QUANTIFIERS, decide
from lib.paper.verdicts import CLAIMS, count_kinds, describe_outcomes, judge, kind_of_verdict

MODELS = {"llama": "Llama-3", "qwen": "Qwen3"}
DATASETS = {"easy": "Easy", "hard": "Hard"}
NOTHING = Results(MODELS, DATASETS, MODELS, (MODELS, DATASETS), (), {})
CLAIM_BY_NAME = {claim.name: claim for claim in CLAIMS}
ACCURACY = errors_on(easy={"": 0.9}, hard={"": 0.3}).assign(metric="acc")


@pytest.mark.parametrize("name, verdict, frames", CASES)
def test_a_claim_holds_for_these_numbers_and_not_for_others(name, verdict, frames):
    """Accuracies tell which dataset is the hardest."""
    estimation = [ACCURACY]
    if "result_estimation" in frames:
        estimation.append(frames["result_estimation"])
    results = replace(NOTHING, frames=frames | {"result_estimation": pd.concat(estimation)})
    assert judge(CLAIM_BY_NAME[name], results).kind == verdict


def test_every_claim_has_numbers_for_which_it_holds_and_others_for_which_it_fails():
    verdicts = {name: set() for name in CLAIM_BY_NAME}
    for case in CASES:
        name, verdict, _ = case.values
        verdicts[name].add(verdict)
    for name, kinds in verdicts.items():
        assert {"holds", "fails"} <= kinds or name in BY_ROWS, name


@pytest.mark.parametrize("name", CLAIM_BY_NAME)
def test_a_claim_without_numbers_is_not_judged_and_says_what_it_lacks(name):
    verdict = judge(CLAIM_BY_NAME[name], NOTHING)
    assert verdict.kind == "not judged"
    assert verdict.lacks


@pytest.mark.parametrize("name", ["conditional_stays", "entropy_grows"])
def test_what_one_draw_of_masks_decides_is_not_judged(name):
    frames = {
        "entropies": entropies("conditional", 0.9, 1.1, 1),
        "passes": interval("growth", 0.1, 0.01, 0.2),
    }
    verdict = judge(CLAIM_BY_NAME[name], replace(NOTHING, frames=frames, shared_masks=True))
    assert (verdict.kind, verdict.summary) == ("not judged", "all questions share masks")


# ---- cases to verdicts: a letter for a case that agrees, is open, or disagrees

OUTCOMES = {"a": "agrees", "o": "open", "d": "disagrees"}


@pytest.mark.parametrize(
    "word, letters, verdict",
    [
        ("all", "aaaa", "holds"),
        ("all", "aaao", "open"),
        ("all", "aaod", "fails"),
        ("generally", "aaaoo", "holds"),
        ("generally", "aaood", "open"),
        ("generally", "aaoddd", "fails"),
        ("several", "aooo", "holds"),
        ("several", "oddd", "open"),
        ("several", "odddd", "fails"),
        ("can", "addd", "holds"),
        ("can", "oddd", "open"),
        ("can", "dddd", "fails"),
    ],
)
def test_a_verdict_is_open_only_if_the_open_cases_decide_it(word, letters, verdict):
    outcomes = pd.Series([OUTCOMES[letter] for letter in letters])
    assert kind_of_verdict(word, outcomes) == verdict


@pytest.mark.parametrize(
    "margin, low, high, outcome",
    [
        (0.1, 0.01, 0.2, "agrees"),
        (0.1, 0.0, 0.2, "open"),
        (-0.1, -0.2, 0.01, "open"),
        (-0.1, -0.2, -0.01, "disagrees"),
        (0, 0, 0, "disagrees"),
        (0.1, np.nan, np.nan, "agrees"),
        (0, np.nan, np.nan, "disagrees"),
    ],
)
def test_an_interval_decides_a_case_and_a_number_where_there_is_none(margin, low, high, outcome):
    assert decide(margin, low, high) == outcome


@pytest.mark.parametrize(
    "word, fewest, total",
    [
        ("all", 4, 4),
        ("often", 3, 5),
        ("generally", 3, 4),
        ("several", 1, 4),
        ("several", 2, 5),
        ("some", 1, 4),
        ("can", 1, 9),
        ("figure", 1, 1),
    ],
)
def test_a_word_asks_for_so_many_cases(word, fewest, total):
    _, is_enough = QUANTIFIERS[word]
    assert not is_enough(fewest - 1, total)
    assert is_enough(fewest, total)
    assert is_enough(total, total)


def test_counts_in_words():
    outcomes = pd.Series(["agrees", "agrees", "open", "disagrees"])
    assert describe_outcomes(outcomes, "pairs") == "2 pairs agree, 1 open, 1 disagrees"
    assert describe_outcomes(outcomes[2:], "cells") == "1 cell open, 1 disagrees"
    kinds = ["holds", "open", "holds", "fails", "not judged"]
    assert count_kinds(kinds) == "2 hold, 1 fails, 1 open, 1 not judged"
