"""What would turn a finding: the findings judged again under other choices that need no new run of a model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lib.paper.comparison import Listing
from lib.paper.findings import FINDINGS, Verdict, verdicts
from lib.paper.results import Results
from lib.paper.run_results import RunSignals
from lib.paper.targets import target
from lib.params import Calibration

# Choices that need no new run of a model, and what to put in their place.
VARIANTS = (("grader", "exact"), ("grader", "integer"), ("missing", "drop"), ("missing", "zero"),
            ("token_source", "sampling"), ("closed", "left"))  # fmt: skip
DROPOUT_ONLY = ("entropies", "top_tokens")  # frames that no choice of reading changes
MADE_ANEW = (
    *("result_estimation", "insitu_ptrue", "dropout_grid_search", "bin_ablation", "result_calibration"),
    *("result_calibration_full", "result_isotonic", "calibration_transfer_full", "calibration_transfer_summary"),
    *("running_mean", "answers"),
)
COLUMNS = ["choice", "finding", "name", "here", "then", "flips"]


@target("rep_sensitivity")
def sensitivity(e: Results, signals: RunSignals, choices: Calibration = Calibration(),  # noqa: B008  frozen
                bin_counts: Sequence[int] = (10, 20, 30), variants: Sequence[tuple[str, Any]] = VARIANTS
                ) -> Listing:  # fmt: skip
    """The findings judged again under other choices, each alone in place of the run's. Claims that rest on intervals,
    learning curves or the ablation are not judged again: those frames are not made anew."""
    here = verdicts(replace(e, frames={name: e.frames[name] for name in (*MADE_ANEW, *DROPOUT_ONLY)}))
    records = []
    for name, value in variants:
        if value == getattr(signals.reading, name):
            continue
        then = verdicts_under(e, signals, {name: value}, choices, bin_counts) or here
        for finding in FINDINGS:
            now, other = here[finding.name], then[finding.name]
            if now.held is not None and other.held is not None:
                records.append((f"{name}: {value}", finding.statement, finding.name, now.said, other.said,
                                other.held != now.held))  # fmt: skip
    frame = pd.DataFrame(records, columns=COLUMNS)
    flips = frame[frame.flips].drop(columns=["name", "flips"])
    none = pd.DataFrame([{"choice": "any of them", "finding": "none flips", "here": "", "then": ""}])
    return Listing(frame, flips if len(flips) else none)


def verdicts_under(e: Results, signals: RunSignals, choice: dict[str, Any], choices: Calibration,
                   bin_counts: Sequence[int]) -> dict[str, Verdict] | None:  # fmt: skip
    """Every finding that MADE_ANEW can decide, judged under another choice; None where it reads everything alike.
    Findings rest on accuracy and ECE, those on the number of bins on MCE and Brier too."""
    other = signals.under(**choice)
    if other.alike(signals):
        return None
    frames = other.estimation(bin_counts, ("acc", "ece")) | other.calibration(choices) | other.pictures()
    unchanged = {name: e.frames[name] for name in DROPOUT_ONLY}
    return verdicts(replace(e, frames={name: frames[name] for name in MADE_ANEW} | unchanged))
