"""What would turn a finding: the findings judged again under other choices that need no new run of a model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lib.paper.comparison import Listing
from lib.paper.findings import FINDINGS, judge, verdicts
from lib.paper.results import Results
from lib.paper.run_results import Signals
from lib.paper.targets import target

# Choices that need no new run of a model, and what to put in their place.
VARIANTS = (("grader", "exact"), ("grader", "integer"), ("missing", "drop"), ("missing", "zero"),
            ("token_source", "sampling"), ("closed", "left"))  # fmt: skip


@target("rep_sensitivity")
def sensitivity(e: Results, signals: Signals, joint: bool = False,
                variants: Sequence[tuple[str, Any]] = VARIANTS) -> Listing:  # fmt: skip
    """The findings judged again under other choices, each alone in place of the run's. Claims that rest on intervals,
    learning curves or the ablation are not judged again: those frames are not made anew."""
    base, records = verdicts(e), []
    for name, value in variants:
        if value == (getattr(signals, name) if name == "closed" else signals.reading.get(name)):
            continue
        other = replace(signals, **{name: value} if name == "closed" else {"reading": {**signals.reading, name: value}})
        frames = other.estimation() | other.calibration(joint) | other.pictures()
        varied = replace(e, frames={k: v for k, v in frames.items() if k != "result_estimation_full"})
        for claim in FINDINGS:
            then, now = judge(claim, varied), base[claim.name]
            if then.held is not None and now.held is not None:
                records.append({"choice": f"{name}: {value}", "finding": claim.statement, "name": claim.name,
                                "here": now.said, "then": then.said, "flips": then.held != now.held})  # fmt: skip
    frame = pd.DataFrame(records, columns=["choice", "finding", "name", "here", "then", "flips"])
    flips = frame[frame.flips].drop(columns=["name", "flips"])
    none = pd.DataFrame([{"choice": "any of them", "finding": "none flips", "here": "", "then": ""}])
    return Listing(frame, flips if len(flips) else none)
