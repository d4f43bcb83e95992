"""Each number of a run's tables beside the paper's.

Only the paper's own models, with its sampling and its questions, can reproduce the paper. Numbers
of other models are not compared.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from lib.analysis.results import NUMBER_KEY, QUANTITIES, Results
from lib.calibrate.transfer import SOURCE
from lib.paper.numbers_of_paper import DECODING_SETTINGS, paper_facts
from lib.paper.report_records import ReportRecords
from lib.paper.tables import TABLES
from lib.score.estimators import ESTIMATORS
from lib.score.evaluation import RESULT_KEYS
from lib.store import PAIR, SCORE_CELL

# Both a faithful rerun's numbers and the paper's vary, so a 95% interval around one contains fewer
# of the other.
EXPECTED_CAPTURE_RATE = 2 * float(norm.cdf(norm.ppf(0.975) / 2**0.5)) - 1
NOT_COMPARABLE = "not comparable: "  # how such a verdict begins
HALF_DIGIT = 0.0005  # half of the last decimal in the paper
PAPER_NUMBERS = ["value_paper", "low_paper", "high_paper"]
COMPARED_NUMBERS = ["value", "low", "high", *PAPER_NUMBERS, "difference"]
CHANCE_COLUMNS = ["chance", "chance_high", "calibrated"]  # of `compare_with_chance`
# the parts of a number's key that not all tables have
VARIANT = ["method", *SOURCE, "rate", "bins"]

# ---- the numbers of a run, or of the paper


def printed_numbers(results: Results) -> pd.DataFrame:
    """Return the numbers that the paper's tables print.

    Columns: NUMBER_KEY (labels, "" where a part does not apply), QUANTITIES, and the `key` of each
    within its table in one word, as in cells.
    """
    parts = []
    for name, build in TABLES.items():
        parts.append(build(results).numbers.assign(table=name))
    numbers = pd.concat(parts).dropna(subset="value")
    numbers = numbers.reindex(columns=[*NUMBER_KEY, *QUANTITIES, "key"])
    for name in ("rate", "bins"):
        numbers[name] = numbers[name].astype(object).map("{:g}".format, na_action="ignore")
    numbers[NUMBER_KEY] = numbers[NUMBER_KEY].fillna("")
    return label_key(numbers, results).reset_index(drop=True)


def label_key(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return a frame with labels of models, datasets and estimators in place of their names, as
    words."""
    models = dict(results.models)
    datasets = dict(results.datasets)
    labels = {
        "model": models,
        "dataset": datasets,
        "source_model": models,
        "source_dataset": datasets,
        "estimator": {name: estimator.plain for name, estimator in ESTIMATORS.items()},
    }
    return frame.replace(labels)


# ---- side by side


def compare_with_paper(here: Results, paper: Results) -> ReportRecords:
    """List every number of a run's tables with the paper's number from the same table.

    It has the difference, the paper's interval if any of its tables prints one for this quantity,
    whether the run's number is inside, and beside an ECE what chance gives (CHANCE_COLUMNS, from
    the frame `chance`).
    """
    numbers = printed_numbers(here).merge(
        fill_in_intervals(paper), "left", NUMBER_KEY, suffixes=("", "_paper")
    )
    numbers = add_chance(numbers, here)
    foreign = reasons_not_comparable(here, paper)
    reasons_by_part = numbers[[*PAIR, *SOURCE]].map(foreign.get)
    reasons = reasons_by_part.bfill(axis=1).iloc[:, 0]  # the first of a row
    numbers["verdict"] = compare_with_intervals(numbers, reasons)
    numbers.loc[reasons.notna(), PAPER_NUMBERS] = np.nan
    numbers["difference"] = numbers["value"] - numbers["value_paper"]
    variants = numbers[VARIANT].to_numpy()
    numbers["variant"] = [" ".join(filter(None, variant)) for variant in variants]
    columns = ["table", "key", *SCORE_CELL, "metric", "variant", *COMPARED_NUMBERS]
    frame = numbers[[*columns, *CHANCE_COLUMNS, "verdict"]]
    frame = frame.astype(dict.fromkeys(COMPARED_NUMBERS, float))
    counts = frame.groupby(["table", "verdict"], sort=False).size().unstack(fill_value=0)
    return ReportRecords(frame, counts.rename_axis(columns=None).reset_index())


def fill_in_intervals(paper: Results) -> pd.DataFrame:
    """Return the paper's numbers, each with the interval that any of its tables prints for this
    quantity."""
    numbers = printed_numbers(paper)
    intervals = numbers.groupby(NUMBER_KEY[1:])[["low", "high"]].transform("last")
    return numbers.fillna(intervals)[[*NUMBER_KEY, "value", "low", "high"]]


def add_chance(numbers: pd.DataFrame, here: Results) -> pd.DataFrame:
    """Return numbers with CHANCE_COLUMNS beside each ECE of a pair's own calibrator."""
    chance = here.frames.get("chance", pd.DataFrame(columns=[*RESULT_KEYS, *CHANCE_COLUMNS]))
    chance = label_key(chance, here)[[*RESULT_KEYS, *CHANCE_COLUMNS]]
    numbers = numbers.merge(chance, "left", RESULT_KEYS)
    is_variant = (numbers[[*SOURCE, "rate", "bins"]] != "").any(axis=1)
    numbers.loc[is_variant, CHANCE_COLUMNS] = None
    return numbers


def compare_with_intervals(numbers: pd.DataFrame, reasons: pd.Series) -> pd.Series:
    """Return how each number lies to the paper's interval; `reasons` say why one cannot be
    compared."""
    low = numbers["low_paper"] - HALF_DIGIT
    high = numbers["high_paper"] + HALF_DIGIT
    verdicts = pd.Series("outside", numbers.index)
    verdicts[numbers["value"].between(low, high)] = "inside"
    verdicts[numbers["low_paper"].isna()] = "no interval printed"
    verdicts[numbers["value_paper"].isna()] = "not in the paper"
    return verdicts.mask(reasons.notna(), NOT_COMPARABLE + reasons.fillna(""))


def reasons_not_comparable(here: Results, paper: Results) -> dict[str, str]:
    """Return why numbers of a model or dataset of a run cannot be compared with the paper's, by its
    label."""
    facts = paper_facts()
    printed = {spec.label: spec for spec in paper.settings}
    reasons = {}
    for spec in here.settings:
        if spec.source != facts["models"].get(spec.label):
            reasons[spec.label] = "another model"
        elif decoding_of(spec) != decoding_of(printed[spec.label]):
            reasons[spec.label] = "other decoding settings"
    for name, (source, *rows) in here.questions.items():
        label = here.datasets[name]
        known = facts["questions"].get(label)
        if known is None or source != known["source"]:
            reasons[label] = "other questions"
        elif rows != [known["calibration"], known["evaluation"]]:
            reasons[label] = "other numbers of questions"
    return reasons


def decoding_of(spec: Any) -> list:
    """Return how a model was sampled."""
    return [getattr(spec, name) for name in (*DECODING_SETTINGS.values(), "system_prompt")]
