"""What would turn a claim: the claims judged again under every other choice that needs no new run of a model.

The dropout rate stays the one that the run selected. Findings that rest on intervals or the ablation are not judged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, get_args

import pandas as pd

from lib.analysis.results import Results
from lib.analysis.run_signals import Fits, Frames, RunSignals, scores
from lib.calibrate.fitting import fit_answers
from lib.params import Calibration, Reading
from lib.paths import UserError

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
SCORING = ("options", "phi", "fit_on_tuning_rows")  # choices that read the same responses
EARLY = (5,)  # passes after which a finding asks for c_BALD


def analyze(signals: RunSignals, choices: Calibration, labels: Results, n_bins_ablation: tuple[int, ...] = (10, 20, 30),
            rows: RunSignals | None = None, **curves: Any) -> Results:  # fmt: skip
    """All results of a run that its signals give, without intervals. `labels`: its results without frames; `curves`: of
    which models, sizes, draws and seed its learning curves are; `rows`: other signals of the very same responses."""
    frames = frames_of_rows(rows or signals, choices, **curves) | frames_of_scores(signals, n_bins_ablation)
    return replace(labels, frames=frames | signals.calibration(fits_of(rows or signals, choices), choices))


@lru_cache(maxsize=2)
def frames_of_rows(signals: RunSignals, choices: Calibration, **curves: Any) -> Frames:
    """What hangs on responses, but on no P(True) and no pass."""
    moved = signals.moved(signals.sets, fits_of(signals, choices))
    return signals.of_responses() | moved | signals.learning(choices, **curves)


@lru_cache(maxsize=2)
def frames_of_scores(signals: RunSignals, n_bins_ablation: tuple[int, ...]) -> Frames:
    """What hangs on no calibrator."""
    return signals.of_scores(n_bins_ablation, EARLY)


@lru_cache(maxsize=2)
def fits_of(signals: RunSignals, choices: Calibration) -> Fits:
    return fit_answers(signals.sets, choices)


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


def sensitivity(signals: RunSignals, choices: Calibration, analysis: Callable[..., Results],
                judge: Callable[[Results], Mapping[str, Any]], chosen: Sequence[tuple[str, Any]] | None = None
                ) -> pd.DataFrame:  # fmt: skip
    """The findings judged again under other choices (`chosen`, by default all `variants`), each alone in place of the
    run's: a row for every choice and claim. `analysis` makes results as `analyze` does, `judge` verdicts of them."""
    claims = {name: verdict for name, verdict in judge(analysis(signals, choices)).items()
              if verdict.claim.kind == "claim" and verdict.held is not None}  # fmt: skip
    records: list[tuple] = []
    for name, value in variants(signals.reading, choices) if chosen is None else chosen:
        now = getattr(choices if name in Calibration.model_fields else signals.reading, name)
        label = f"{name}: {value}", describe_choice(name, value, now)
        try:
            other = under(signals, choices, name, value)
        except UserError as error:  # such as options that are no single tokens of the model
            records.append((*label, str(error), "", "", "", False))
            continue
        if other is None:
            records.append((*label, ALIKE, "", "", "", False))
            continue
        after = judge(analysis(*other, rows=signals if name in SCORING else None))
        for claim, old in claims.items():
            new = after[claim]
            turns = new.held is not None and new.held != old.held
            records.append((*label, old.claim.statement, claim, old.said, new.said or new.reason, turns))
    return pd.DataFrame(records, columns=SENSITIVITY_COLUMNS)


def under(signals: RunSignals, choices: Calibration, name: str, value: Any) -> tuple[RunSignals, Calibration] | None:
    """Signals and choices with one choice changed; None where that changes nothing that is read or measured. Raises
    UserError where the choice leaves nothing to judge."""
    if name in Calibration.model_fields:
        return signals, choices.model_copy(update={name: value})
    reading = signals.reading.model_copy(update={name: value})
    measured = signals.verification, signals.dropout, reading
    if name in SCORING:
        other = replace(signals, reading=reading, confidence=scores(signals.responses, *measured))
    else:
        other = RunSignals.from_frames(signals.generations, *measured)
    if other.responses.empty:
        raise UserError("(leaves no response to judge)")
    same = other.responses.equals(signals.responses) and other.confidence.equals(signals.confidence)
    return None if same and name != "closed" else (other, choices)


def turned_claims(records: pd.DataFrame) -> pd.DataFrame:
    """The findings that turn, as a reader meets them, of what `sensitivity` returns."""
    turned = records[records.flips].drop(columns=["choice", "name", "flips"]).rename(columns={"words": "choice"})
    none = {"choice": "any of them", "finding": "none turns", "here": "", "then": ""}
    return turned if len(turned) else pd.DataFrame([none])
