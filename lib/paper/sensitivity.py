"""What would turn a finding: the findings judged again under other choices that need no new run of a model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lib.paper.comparison import Listing
from lib.paper.findings import FINDINGS, judge, verdicts
from lib.paper.results import Results
from lib.paper.run_results import RunSignals
from lib.paper.targets import target

# Choices that need no new run of a model, and what to put in their place.
VARIANTS = (("grader", "exact"), ("grader", "integer"), ("missing", "drop"), ("missing", "zero"),
            ("token_source", "sampling"), ("closed", "left"))  # fmt: skip
MADE_ANEW = (
    *("result_estimation", "insitu_ptrue", "dropout_grid_search", "bin_ablation", "result_calibration"),
    *("result_calibration_full", "result_isotonic", "calibration_transfer_full", "calibration_transfer_summary"),
    *("running_mean", "entropies", "answers", "top_tokens"),
)
COLUMNS = ["choice", "finding", "name", "here", "then", "flips"]


@target("rep_sensitivity")
def sensitivity(e: Results, signals: RunSignals, temperature_target: str = "ans_avg",
                bin_counts: Sequence[int] = (10, 20, 30), variants: Sequence[tuple[str, Any]] = VARIANTS
                ) -> Listing:  # fmt: skip
    """The findings judged again under other choices, each alone in place of the run's. Claims that rest on intervals,
    learning curves or the ablation are not judged again: those frames are not made anew."""
    here, records = verdicts(e), []
    for name, value in variants:
        if value == getattr(signals.reading, name):
            continue
        other = signals.under(**{name: value})
        if other.alike(signals):
            varied = replace(e, frames={frame: e.frames[frame] for frame in MADE_ANEW})
        else:
            varied = replace(e, frames=frames_of(other, temperature_target, bin_counts))
        for claim in FINDINGS:
            then, now = judge(claim, varied), here[claim.name]
            if then.held is not None and now.held is not None:
                records.append((f"{name}: {value}", claim.statement, claim.name, now.said, then.said,
                                then.held != now.held))  # fmt: skip
    frame = pd.DataFrame(records, columns=COLUMNS)
    flips = frame[frame.flips].drop(columns=["name", "flips"])
    none = pd.DataFrame([{"choice": "any of them", "finding": "none flips", "here": "", "then": ""}])
    return Listing(frame, flips if len(flips) else none)


def frames_of(signals: RunSignals, temperature_target: str, bin_counts: Sequence[int]) -> dict[str, pd.DataFrame]:
    """The frames of MADE_ANEW. Findings rest on accuracy and ECE, those on the number of bins on MCE and Brier too."""
    frames = signals.estimation(bin_counts, ("acc", "ece")) | signals.calibration(temperature_target)
    frames |= signals.pictures()
    return {name: frames[name] for name in MADE_ANEW}
