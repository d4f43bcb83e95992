"""Sensitivity of the claims: their verdicts under every other choice that needs no new model run.

The dropout rate remains the run's selected one. Findings from intervals or the ablation are excluded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import pandas as pd

from lib.analysis.results import Results
from lib.analysis.run_signals import RunSignals
from lib.params import Reading, Subsampling
from lib.paths import UserError

SENSITIVITY_COLUMNS = ["choice", "words", "finding", "name", "here", "then", "flips"]
CHOICE_DESCRIPTIONS = {
    "grader": "what counts as right",
    "missing": "a response without an answer",
    "logprobs_from": "whose probabilities are read",
    "include_thinking": "the thinking block is part of the response",
    "options": "the words whose mass P(True) compares",
    "phi": "from BALD to confidence",
    "fit_on_tuning_rows": "c_BALD's calibrators see the rows that chose its rate",
}
CHANGES_NOTHING = "(changes nothing that is read or measured)"
PASSES_TRIED = (5,)  # numbers of passes for which a finding needs c_BALD


def analyze(
    signals: RunSignals,
    labels: Results,
    n_bins_ablation: tuple[int, ...],
    model: str,
    drawn: Subsampling,
) -> Results:
    """Compute all results of a run from its signals, without intervals.

    `labels`: its results without frames; `model` and `drawn`: of its learning curves.
    """
    frames = signals.response_frames() | signals.call(RunSignals.score_frames, signals, n_bins_ablation, PASSES_TRIED)
    frames |= signals.learning_frames(model, drawn) | signals.calibration_frames()
    return replace(labels, frames=frames)


def alternative_choices(now: Reading) -> Iterator[tuple[str, Any]]:
    """Yield every choice among several, and each value except the current one (`now`)."""
    for name, field in Reading.model_fields.items():
        for value in (True, False) if field.annotation is bool else get_args(field.annotation):
            if value != getattr(now, name):
                yield name, value


def describe_choice(name: str, value: Any, now: Any) -> str:
    """Describe a choice for the reader: its meaning, the other value, and that of this run."""
    said = {True: "yes", False: "no"}
    return f"{CHOICE_DESCRIPTIONS[name]} ({name}): {said.get(value, value)}, not {said.get(now, now)}"


def judge_alternatives(
    signals: RunSignals,
    analysis: Callable[..., Results],
    judge: Callable[..., Mapping[str, Any]],
    chosen: Sequence[tuple[str, Any]] | None = None,
) -> pd.DataFrame:
    """Judge the claims again under other choices, changed one at a time: `chosen`, or all `alternative_choices`.

    Return a row for every choice and claim. `analysis` computes results like `analyze`, and `judge` their verdicts (for
    all claims, or the given ones).
    """
    before = {
        name: verdict
        for name, verdict in judge(analysis(signals)).items()
        if verdict.claim.kind == "claim" and verdict.held is not None
    }
    claims = [verdict.claim for verdict in before.values()]
    records: list[tuple] = []
    for name, value in alternative_choices(signals.reading) if chosen is None else chosen:
        now = getattr(signals.reading, name)
        label = f"{name}: {value}", describe_choice(name, value, now)
        try:
            other = change_choice(signals, name, value)
        except UserError as error:  # such as options that are not single tokens of the model
            records.append((*label, str(error), "", "", "", False))
            continue
        for claim, new in judge(analysis(other), claims).items():
            old = before[claim]
            turns = new.held is not None and new.held != old.held
            records.append((*label, old.claim.quote, claim, old.said, new.said or new.reason, turns))
    return pd.DataFrame(records, columns=SENSITIVITY_COLUMNS)


def change_choice(signals: RunSignals, name: str, value: Any) -> RunSignals:
    """Return signals with one choice changed; unaffected parts remain the same objects.

    Raise UserError if nothing changes, or if no response is left to judge.
    """
    reading = signals.reading.model_copy(update={name: value})
    other = RunSignals.from_frames(signals.generations, signals.verification, signals.dropout, reading, signals.call)
    if other.responses.empty:
        raise UserError("(leaves no response to judge)")
    if other.responses is signals.responses and other.confidence is signals.confidence:
        raise UserError(CHANGES_NOTHING)
    return other


def list_flipped_claims(records: pd.DataFrame) -> pd.DataFrame:
    """Return the findings whose verdict flips, for the reader, from the output of `judge_alternatives`."""
    turned = records[records.flips].drop(columns=["choice", "name", "flips"]).rename(columns={"words": "choice"})
    none = {"choice": "any of them", "finding": "none turns", "here": "", "then": ""}
    return turned if len(turned) else pd.DataFrame([none])
