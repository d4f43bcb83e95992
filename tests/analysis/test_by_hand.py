"""Numbers by hand (by_hand.yaml); and what tables and claims rest on beyond errors: positions,
passes, costs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
import yaml
from synthetic import keyed

from lib import store
from lib.analysis import costs, multi_pass_statistics, running_example, token_statistics
from lib.calibrate import experiments
from lib.paper import booktabs, cells, figures
from lib.params import EvaluationChoices
from lib.score import confidence, estimators, evaluation, metrics, reading, selective
from lib.tasks import answers

MODULES = (multi_pass_statistics, token_statistics, running_example, costs,
           experiments, booktabs, cells, figures, confidence, estimators,
           metrics, evaluation, reading, selective, answers)  # fmt: skip
LIB = {module.__name__.rpartition(".")[2]: vars(module) for module in MODULES}


class Loader(yaml.SafeLoader):
    pass


Loader.add_constructor("!log", lambda loader, node: np.log(loader.construct_sequence(node)))
Loader.add_constructor("!calc", lambda loader, node: float(eval(node.value, vars(np))))
CASES = yaml.load(Path(__file__).with_name("by_hand.yaml").read_text("utf-8"), Loader)  # noqa: S506


def frame_of(columns):
    rows = max((len(values) for values in columns.values() if isinstance(values, list)), default=1)
    return keyed(rows, **pd.DataFrame(columns, range(rows)))


MAKE = {
    "columns": frame_of,
    "row": lambda told: pd.Series(dict.fromkeys(store.KEYS, "x") | told),
    "passed": lambda more: synthetic.passed(**more),
    "choices": lambda chosen: EvaluationChoices(**chosen),
    "labels": dict,
}


def made(told):
    """What a case is given: a value, or a frame (a list of some is one below the other)."""
    if isinstance(told, list) and told and isinstance(told[0], dict):
        return pd.concat(map(made, told))
    return next(MAKE[kind](what) for kind, what in told.items()) if isinstance(told, dict) else told


def same(found, expected):
    one, other = list(np.ravel(found)), list(np.ravel(expected))
    if len(one) != len(other) or any(isinstance(value, str | None) for value in other):
        return one == other
    return np.allclose(np.array(one, float), np.array(other, float), 1e-9, 1e-12, equal_nan=True)


@pytest.mark.parametrize(
    "call, given, gives", [(call, *case) for call, cases in CASES.items() for case in cases]
)
def test_by_hand(call, given, gives):
    module, name = call.split(".")
    function, given = LIB[module][name], [*map(made, given)]
    if isinstance(gives, dict) and "refused" in gives:
        with pytest.raises(ValueError, match=gives["refused"]):
            function(*given)
        return
    found = function(*given)
    for name, expected in gives.items() if isinstance(gives, dict) else [(None, gives)]:
        assert same(found if name is None else found[name], expected), (name, found)


def test_rates_that_differ_are_told_from_exchanged_ones():
    """Two rates: at one, c_BALD is right on average; at the other it is .3 too high. Two equal
    rates differ by nothing, and exchanging them changes nothing."""
    correct = [True, False] * 20
    keys = {"example_id": [f"e{i}" for i in range(40)], "split": "calibration"}
    responses = keyed(40, correct=correct).assign(**keys, answer=[np.zeros(1)] * 40, parsed=True)
    parts = []
    for rate, bald in ((0.1, 0.5), (0.2, 0.2), (0.3, 0.5)):
        entropies = {"predictive": [[[bald]]] * 40, "conditional": [[[0.0]]] * 40}
        parts.append(keyed(40, **entropies).assign(**keys, rate=rate, tuning=True, selected=False))
    passes = pd.concat(parts)
    found = multi_pass_statistics.compare_rates(
        responses, passes, EvaluationChoices(), draws=200
    ).iloc[0]
    assert found.ece_range == pytest.approx(0.3) and 0 < found.chance_high < 0.2
    alike = multi_pass_statistics.compare_rates(
        responses, passes[passes.rate != 0.2], EvaluationChoices()
    ).iloc[0]
    assert alike.ece_range == alike.chance_high == 0
