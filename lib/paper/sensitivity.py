"""What would turn a claim: the claims judged again under every other choice that needs no new run of a model.

The dropout rate stays the one that the run selected. Findings that rest on intervals or the ablation are not judged
again, for their frames are not made anew; learning curves are under another `one_class` or `isotonic_decimals` only,
on 06's sizes and draws.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pandas as pd

from lib.analysis.dropout_statistics import by_passes
from lib.calibrate.fitting import fit_answers
from lib.paper.claims import CLAIMS
from lib.paper.comparison import Listing
from lib.paper.results import Results
from lib.paper.run_results import Fits, Frames, RunSignals, estimators_of
from lib.paper.verdicts import judge_all
from lib.params import Calibration, Reading
from lib.paths import UserError
from lib.score.bootstrap import estimate_metrics
from lib.score.estimators import ESTIMATORS

SENSITIVITY_COLUMNS = ["choice", "words", "finding", "name", "here", "then", "flips"]
NAMED = {  # the choices in words
    "grader": "what counts as right",
    "answer_format": "what counts as an answer",
    "missing": "a response without an answer",
    "logprobs_from": "whose probabilities are read",
    "include_eos": "the end-of-sequence token is part of the response",
    "include_thinking": "the thinking block is part of the response",
    "options": "the words whose mass P(True) compares",
    "phi": "from BALD to confidence",
    "fit_on_tuning_rows": "c_BALD's calibrators see the rows that chose its rate",
    "closed": "the side on which a bin is closed",
    "temperature_objective": "the score that chooses the temperature",
    "one_class": "a calibrator of rows all right or all wrong",
    "isotonic_decimals": "the decimals that isotonic regression sees of a score",
}
TRIED: dict[str, tuple[Any, ...]] = {"isotonic_decimals": (None, 5, 3)}  # where any number could be chosen
ALIKE = "(changes nothing that is read or measured)"
SENSITIVITY_METRICS = ("acc", "ece", "auroc")  # on which findings rest
EARLY = (5,)  # passes after which a finding asks for c_BALD


def variants(*now: Reading | Calibration) -> Iterator[tuple[str, Any]]:
    """Every choice among several, and each value but the one that holds `now`; of numbers those of TRIED."""
    for part in now:
        for name, field in type(part).model_fields.items():
            values = (True, False) if field.annotation is bool else get_args(field.annotation)
            for value in TRIED.get(name, values):
                if value != getattr(part, name):
                    yield name, value


def describe_choice(name: str, value: Any, now: Any) -> str:
    """A choice as a reader meets it: what is chosen, the other value, and that of this run."""
    said = {True: "yes", False: "no", None: "all"}
    return f"{NAMED[name]} ({name}): {said.get(value, value)}, not {said.get(now, now)}"


def sensitivity(here: Results, signals: RunSignals, choices: Calibration = Calibration(),  # noqa: B008  frozen
                n_bins_ablation: Sequence[int] = (10, 20, 30), chosen: Collection[tuple[str, Any]] | None = None,
                seed: int = 0) -> Listing:  # fmt: skip
    """The findings judged again under other choices (`chosen`, by default all `variants`), each alone in place of the
    run's, whose `seed` draws the rows of learning curves."""
    before, records, fitted = judge_all(here), [], fit_answers(signals.sets, choices)
    for name, value in variants(signals.reading, choices) if chosen is None else chosen:
        part = choices if name in Calibration.model_fields else signals.reading
        label = f"{name}: {value}", describe_choice(name, value, getattr(part, name))
        try:
            if name in Calibration.model_fields:
                frames = fitted_anew(here, signals, choices, choices.model_copy(update={name: value}), seed)
            else:
                frames = read_anew(here, signals, signals.under(**{name: value}), fitted, choices, n_bins_ablation)
        except UserError as error:  # such as options that are no single tokens of the model
            records.append((*label, str(error), "", "", "", False))
            continue
        again = [one for one in CLAIMS if one.kind == "claim" and not frames.keys().isdisjoint(one.seen.needs)]
        then = judge_all(replace(here, frames={**here.frames, **frames}), again)
        judged = [(before[one.name], then[one.name], one) for one in again if before[one.name].held is not None]
        records += [(*label, finding.statement, finding.name, old.said, new.said or new.reason,
                     new.held is not None and new.held != old.held)
                    for old, new, finding in judged] or [(*label, ALIKE, "", "", "", False)]  # fmt: skip
    frame = pd.DataFrame(records, columns=SENSITIVITY_COLUMNS)
    flips = frame[frame.flips].drop(columns=["choice", "name", "flips"]).rename(columns={"words": "choice"})
    none = pd.DataFrame([{"choice": "any of them", "finding": "none turns", "here": "", "then": ""}])
    return Listing(frame, flips if len(flips) else none)


def fitted_anew(here: Results, signals: RunSignals, before: Calibration, choices: Calibration, seed: int = 0
                ) -> Frames:  # fmt: skip
    """The frames that another way to fit calibrators changes. How one class is met changes small draws, and nothing
    that is fitted on all rows where these are of both."""
    frames: Frames = {}
    other_class, other_scores = (getattr(choices, name) != getattr(before, name)
                                 for name in ("one_class", "isotonic_decimals"))  # fmt: skip
    if other_class or other_scores:
        frames = signals.learning(here.frames["curves"], choices, seed, every=other_scores)
    if other_class and all(len(set(rows.correct)) > 1 for rows, _ in signals.sets.values()):
        return frames
    fitted, names = fit_answers(signals.sets, choices), {"ans_avg", "ans_joint"}
    if other_class or other_scores:
        names = set(ESTIMATORS)
    anew = merged(here, signals.calibration(fitted, choices, names), names)
    return without_intervals(frames | anew | signals.moved(signals.sets, fitted))


def read_anew(here: Results, signals: RunSignals, other: RunSignals, fitted: Fits, choices: Calibration,
              n_bins_ablation: Sequence[int]) -> Frames:  # fmt: skip
    """The frames that another reading changes: rows of the pairs and estimators whose scores it changes."""
    if other.responses.empty and other.changed:
        raise UserError("(leaves no response to judge)")
    if other.confidence is signals.confidence:  # measured otherwise
        return measured_anew(here, signals, other, fitted, n_bins_ablation)
    names = estimators_of(other.changed) & set(signals.confidence.estimator)  # of a model not at hand not all are there
    if not names:
        return {}
    if other.reading.fit_on_tuning_rows != signals.reading.fit_on_tuning_rows:
        return without_intervals(merged(here, other.calibration({}, choices, names), names))
    new_fits = fit_answers(other.sets, choices) if "answer" in other.changed else {}
    anew = other.estimation(n_bins_ablation, SENSITIVITY_METRICS, names) | other.calibration(new_fits, choices, names)
    if not other.changed.isdisjoint(("response", "answer")):
        anew |= other.of_responses()
    if other.reading.phi != signals.reading.phi:
        anew["by_passes"] = by_passes(other.responses, other.dropout, other.reading, EARLY)
    elif "bald" in other.changed:
        anew |= other.of_passes(EARLY) | other.of_phi()
    frames = merged(here, anew, names, set(zip(other.generations.model, other.generations.dataset, strict=True)))
    if new_fits:
        frames |= other.moved({**signals.sets, **other.sets}, {**fitted, **new_fits})
    return without_intervals(frames | signals.in_situ(frames["result_estimation"]))


def measured_anew(here: Results, signals: RunSignals, other: RunSignals, fitted: Fits, n_bins_ablation: Sequence[int]
                  ) -> Frames:  # fmt: skip
    """All frames of errors, from the same scores."""
    frames = other.estimation(n_bins_ablation, SENSITIVITY_METRICS) | other.moved(signals.sets, fitted)
    calibrated = estimate_metrics(here.frames["calibrated"], other.reading.bins, other.reading.closed, ["ece"])
    frames |= dict.fromkeys(("result_calibration", "result_calibration_full", "result_isotonic"), calibrated)
    return frames | other.of_passes(EARLY) | other.of_phi() | other.in_situ(frames["result_estimation"])


def merged(here: Results, anew: Frames, names: Collection[str], pairs: Collection[tuple] | None = None) -> Frames:
    """Frames with the rows that the run has of other pairs (by default of none) and, where they tell estimators apart,
    of other estimators."""
    frames = {}
    for name, new in anew.items():
        old = here.frames[name]
        gone = old.estimator.isin([*names, ""]) if {"estimator", "metric"} <= set(old) else pd.Series(True, old.index)
        if pairs is not None:
            gone = gone & np.array([pair in pairs for pair in zip(old.model, old.dataset, strict=True)])
        frames[name] = pd.concat([old[~gone], new], ignore_index=True)
    return frames


def without_intervals(frames: Frames) -> Frames:
    return {name: frame for name, frame in frames.items() if name != "result_estimation_full"}
