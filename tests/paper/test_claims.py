"""Each claim by hand: numbers for which it holds, and the change that turns it. Both are written in claims.yaml, and
none is computed by the code under test."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

from lib.analysis.results import Results
from lib.paper.verdicts import CLAIMS, judge

MODELS, DATASETS = {"llama": "Llama-3", "qwen": "Qwen3"}, {"easy": "Easy", "hard": "Hard"}
NAMES = {claim.name: claim for claim in CLAIMS}
ACCURACY = {"dataset": ["easy", "hard"], "estimator": "", "metric": "acc", "value": [0.9, 0.3]}
BY_HAND = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text())
BY_HAND.pop("shared")


def frame_of(told):
    columns = {"model": "llama", "dataset": "easy"} | ({"metric": "ece"} if "value" in told else {}) | told
    rows = max((len(values) for values in columns.values() if isinstance(values, list)), default=1)
    return pd.DataFrame(columns, range(rows))


def results(told):
    """Results of frames that are told by their columns; accuracies tell which dataset is the hardest."""
    frames = {name: frame_of(columns) for name, columns in told.items()}
    some = frames.get("result_estimation")
    frames["result_estimation"] = pd.concat([frame_of(ACCURACY), some], ignore_index=True)
    return Results(MODELS, DATASETS, MODELS, (MODELS, DATASETS), (), frames)


@pytest.mark.parametrize("name, held, told", [(name, *case) for name, cases in BY_HAND.items() for case in cases])
def test_a_claim_holds_for_these_numbers_and_not_for_others(name, held, told):
    assert judge(NAMES[name], results(told)).held is held


def test_every_claim_has_such_numbers_and_says_what_it_lacks():
    assert set(BY_HAND) == set(NAMES)
    for name, cases in BY_HAND.items():
        assert {True, False} <= {held for held, _ in cases}
        without = judge(NAMES[name], Results(MODELS, DATASETS, MODELS, (MODELS, DATASETS), (), {}))
        assert without.held is None and without.lacks in {"result_estimation", *cases[0][1]}, name
