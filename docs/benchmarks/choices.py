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
    after = after[(after["method"] != "") & (after.metric == "ece")]
    rows = pd.concat([raw, after])
    return rows.set_index(["model", "dataset", "estimator", "method", "metric"]).value.astype(float)


def largest(now: pd.Series, then: pd.Series, metric: str, raw: bool = True) -> float:
    """The largest change of a metric, of raw scores or of calibrated ones."""
    change = (then - now).abs().reset_index()
    is_raw = change["method"] == ""
    return change[(change.metric == metric) & (is_raw == raw)].value.max()


def effects() -> pd.DataFrame:
    """A row for every other value of every choice."""
    signals = load_signals("shipped", DEMO.models, DEMO.datasets, EvaluationChoices())
    base = errors(signals)
    rows = []
    for name, value in alternative_choices(EvaluationChoices()):
        then = base
        with suppress(UserError):  # it changes nothing
            then = errors(change_choice(signals, name, value))
        row = {"choice": name, "value": value}
        row["accuracy"] = largest(base, then, "acc")
        row["raw"] = largest(base, then, "ece")
        row["calibrated"] = largest(base, then, "ece", raw=False)
        rows.append(row)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    print(effects().round(3).to_string(index=False))
