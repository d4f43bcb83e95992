"""Each claim by hand: numbers for which it holds, and the change that turns it. Both are written in claims.yaml, and
none is computed by the code under test."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from lib.analysis.results import Results
from lib.paper.claims import QUANTIFIERS
from lib.paper.verdicts import CLAIMS, judge

MODELS, DATASETS = {"llama": "Llama-3", "qwen": "Qwen3"}, {"easy": "Easy", "hard": "Hard"}
NOTHING = Results(MODELS, DATASETS, MODELS, (MODELS, DATASETS), (), {})
NAMES = {claim.name: claim for claim in CLAIMS}
ACCURACY = {"dataset": ["easy", "hard"], "estimator": "", "metric": "acc", "value": [0.9, 0.3]}
BY_HAND = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text())
BY_HAND.pop("shared")


def frame_of(told):
    columns = {"model": "llama", "dataset": "easy"} | ({"metric": "ece"} if "value" in told else {}) | told
    rows = max((len(values) for values in columns.values() if isinstance(values, list)), default=1)
    return pd.DataFrame(columns, range(rows))


@pytest.mark.parametrize("name, held, told", [(name, *case) for name, cases in BY_HAND.items() for case in cases])
def test_a_claim_holds_for_these_numbers_and_not_for_others(name, held, told):
    """Accuracies tell which dataset is the hardest."""
    frames = {table: frame_of(columns) for table, columns in told.items()}
    frames["result_estimation"] = pd.concat([frame_of(ACCURACY), frames.get("result_estimation")], ignore_index=True)
    assert judge(NAMES[name], replace(NOTHING, frames=frames)).held is held


def test_every_claim_has_such_numbers_and_says_what_it_lacks():
    assert set(BY_HAND) == set(NAMES)
    for name, cases in BY_HAND.items():
        assert {True, False} <= {held for held, _ in cases}
        without = judge(NAMES[name], NOTHING)
        assert without.held is None and without.lacks in {"result_estimation", *cases[0][1]}, name


@pytest.mark.parametrize("word, fewest, total", [
    ("all", 4, 4), ("often", 3, 5), ("generally", 3, 4), ("several", 1, 4),
    ("several", 2, 5), ("some", 1, 4), ("can", 1, 9), ("figure", 1, 1)])  # fmt: skip
def test_words_for_how_many(word, fewest, total):
    assert [QUANTIFIERS[word][1](count, total) for count in (fewest - 1, fewest, total)] == [False, True, True]
