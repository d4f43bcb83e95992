"""What would turn a finding: the findings judged again under every other choice that needs no new run of a model.

The dropout rate stays the one that the run selected. Findings that rest on intervals, learning curves or the ablation are
not judged again, for their frames are not made anew.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import pandas as pd

from lib.paper.claims import FINDINGS
from lib.paper.comparison import Listing
from lib.paper.findings import verdicts
from lib.paper.results import Results
from lib.paper.run_results import MEASURED, Frames, RunSignals, estimators_of
from lib.paper.targets import target
from lib.params import Profile, Reading
from lib.project import UserError
from lib.score.bootstrap import estimates
from lib.score.estimators import ESTIMATORS

FITTED = ("temperature_target", "one_class")  # how calibrators are fitted; the rest is how responses are read
COLUMNS = ["choice", "finding", "name", "here", "then", "flips"]
ALIKE = "(changes nothing that is read or measured)"
EARLY = (5,)  # passes after which a finding asks for c_BALD


def variants(now: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every choice among several (of `params.Reading` and FITTED), and each value but the one that holds `now`."""
    for name in [*Reading.model_fields, *(name for name in FITTED if name in Profile.model_fields)]:
        field = Profile.model_fields[name]
        for value in (True, False) if field.annotation is bool else get_args(field.annotation):
            if value != now.get(name, field.default):
                yield name, value


@target("rep_sensitivity")
def sensitivity(here: Results, signals: RunSignals, fit: Mapping[str, Any], bin_counts: Sequence[int] = (10, 20, 30),
                chosen: Collection[tuple[str, Any]] | None = None) -> Listing:  # fmt: skip
    """The findings judged again under other choices (`chosen`, by default all `variants`), each alone in place of the
    run's. `fit`: the run's own way to fit calibrators, by the names of FITTED."""
    now, before, records = signals.reading.model_dump() | dict(fit), verdicts(here), []
    for name, value in variants(now) if chosen is None else chosen:
        label = f"{name}: {value}"
        try:
            frames = made_anew(here, signals, {name: value}, fit, bin_counts)
        except UserError as error:  # such as options that are no single tokens of the model
            records.append((label, str(error), "", "", "", False))
            continue
        again = [finding for finding in FINDINGS if not frames.keys().isdisjoint(finding.needs.split())]
        then = verdicts(replace(here, frames={**here.frames, **frames}), again)
        judged = [(before[one.name], then[one.name]) for one in again if before[one.name].held is not None]
        records += [(label, old.finding.statement, old.finding.name, old.said, new.said or new.reason, old.held != new.held)
                    for old, new in judged] or [(label, ALIKE, "", "", "", False)]  # fmt: skip
    frame = pd.DataFrame(records, columns=COLUMNS)
    flips = frame[frame.flips].drop(columns=["name", "flips"])
    none = pd.DataFrame([{"choice": "any of them", "finding": "none turns", "here": "", "then": ""}])
    return Listing(frame, flips if len(flips) else none)


def made_anew(here: Results, signals: RunSignals, choice: Mapping[str, Any], fit: Mapping[str, Any],
              bin_counts: Sequence[int]) -> Frames:  # fmt: skip
    """The frames that another choice changes. Estimators whose scores it leaves alone keep their rows."""
    if set(choice) <= set(FITTED):
        names = set(ESTIMATORS) if "one_class" in choice else {"ans_avg", "ans_joint"}
        return _with_rows_of(here, signals.calibration(names, **{**fit, **choice}), names)
    other = signals.under(**choice)
    if set(choice) <= set(MEASURED):
        calibrated = estimates(here.frames["calibrated"], other.reading.bins, other.reading.closed, ["ece"])
        measured = other.estimation(bin_counts, ("acc", "ece", "auroc")) | other.calibration({"ans_avg"}, **fit)
        measured |= {name: calibrated for name in ("result_calibration", "result_isotonic", "result_calibration_full")}
        measured |= other.of_passes(EARLY) | other.of_phi() | other.in_situ(measured["result_estimation"])
        return {name: frame for name, frame in measured.items() if name != "result_estimation_full"}
    if not other.changed:
        return {}
    names = estimators_of(other.changed)
    frames = other.estimation(bin_counts, ("acc", "ece", "auroc"), names) | other.calibration(names, **fit)
    frames = _with_rows_of(here, frames, names)
    frames |= other.in_situ(frames["result_estimation"])
    if not other.changed.isdisjoint(("response", "answer")):
        frames |= other.of_responses()
    if "bald" in other.changed:
        frames |= other.of_passes(EARLY) | ({} if "phi" in choice else other.of_phi())
    return frames


def _with_rows_of(here: Results, frames: Frames, names: Collection[str]) -> Frames:
    """Frames of the estimators of `names`, with the rows that the others have; intervals are not made anew."""
    gone, whole = {*names, ""}, {}
    for name, frame in frames.items():
        if name == "result_estimation_full":
            continue
        if "estimator" in frame and name != "dropout_grid_search":
            old = here.frames[name]
            frame = pd.concat([old[~old.estimator.isin(gone)], frame], ignore_index=True)
        whole[name] = frame
    return whole
