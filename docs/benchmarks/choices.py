"""`python docs/benchmarks/choices.py`: what each choice that needs no model changes on the shipped
demo signals.

A choice a row: the largest change of accuracy, of any raw ECE and of any ECE after calibration over
all pairs, each choice alone in place of the default. docs/configuration.md quotes these figures.
"""

from contextlib import suppress

import pandas as pd

from lib import params
from lib.analysis.run_results import calibration_frames, raw_frames
from lib.analysis.signals import Signals, load_signals
from lib.errors import UserError
from lib.paper.verdicts import alternative_choices, change_choice
from lib.params import EvaluationChoices

DEMO = params.load_profile("demo")


def errors(signals: Signals) -> pd.Series:
    """Accuracy and ECE by cell: model, dataset, estimator, method."""
    raw = raw_frames(signals)["result_estimation"].assign(method="")
    raw = raw[raw.metric.isin(["acc", "ece"])]
    after = calibration_frames(signals)["result_calibration"]
    rows = pd.concat([raw, after[(after["method"] != "") & (after.metric == "ece")]])
    return rows.set_index(["model", "dataset", "estimator", "method", "metric"]).value.astype(float)


def largest(now: pd.Series, then: pd.Series, metric: str, raw: bool = True) -> float:
    change = (then - now).abs().reset_index()
    return change[(change.metric == metric) & ((change["method"] == "") == raw)].value.max()


def effects() -> pd.DataFrame:
    """A row for every other value of every choice."""
    signals = load_signals("shipped", DEMO.models, DEMO.datasets, EvaluationChoices())
    base, rows = errors(signals), []
    for name, value in alternative_choices(EvaluationChoices()):
        then = base
        with suppress(UserError):  # it changes nothing
            then = errors(change_choice(signals, name, value))
        rows.append(
            (
                name,
                value,
                largest(base, then, "acc"),
                largest(base, then, "ece"),
                largest(base, then, "ece", raw=False),
            )
        )
    return pd.DataFrame(rows, columns=["choice", "value", "accuracy", "raw", "calibrated"])


if __name__ == "__main__":
    print(effects().round(3).to_string(index=False))
