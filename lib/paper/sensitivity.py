"""Sensitivity of the claims: their verdicts on raw and calibrated errors under other choices, one at a time.

No model is run again, and the dropout rate remains the selected one. Claims that need intervals, passes or positions
are left out.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pandas as pd

from lib.analysis.results import Results
from lib.analysis.run_signals import RunSignals
from lib.paper.verdicts import Verdict, judge_all
from lib.params import EvaluationChoices
from lib.paths import UserError

CHOICES = {  # that move results and need no model, and what each decides
    "missing": "a response without an answer",
    "logprobs_from": "whose probabilities are read",
    "include_thinking": "the thinking block is part of the response",
    "options": "the words whose mass P(True) compares",
    "phi": "from BALD to confidence",
    "fit_on_tuning_rows": "c_BALD's calibrators see the rows that chose its rate",
    "grader": "what counts as right",
    "bins": "the bins of ECE and MCE",
}
BINS = (10, 20, 30)  # the paper's


def alternative_choices(now: EvaluationChoices) -> Iterator[tuple[str, Any]]:
    """Yield each of CHOICES with every value except the current one (`now`)."""
    for name in CHOICES:
        kind = EvaluationChoices.model_fields[name].annotation
        values = BINS if name == "bins" else (True, False) if kind is bool else get_args(kind)
        yield from ((name, value) for value in values if value != getattr(now, name))


def change_choice(signals: RunSignals, name: str, value: Any) -> RunSignals:
    """Return the signals under another choice. Raise UserError if no response is left."""
    choices = signals.choices.model_copy(update={name: value})
    other = RunSignals.from_frames(signals.generations, signals.verification, signals.dropout, choices)
    if other.responses.empty:
        raise UserError("(leaves no response to judge)")
    return other


def judge_errors(signals: RunSignals, labels: Results) -> dict[str, Verdict]:
    """Judge the claims on the raw and calibrated errors of a run; `labels`: its results without frames."""
    frames = signals.raw_frames((), ("acc", "ece", "auroc")) | signals.calibration_frames()
    return judge_all(replace(labels, frames=frames))


def judge_alternatives(signals: RunSignals, labels: Results) -> pd.DataFrame:
    """Judge the claims again under every alternative choice.

    Return a row for every choice and claim that can be judged here: the choice, the claim's quotation (`finding`) and
    name, its counts `here` and `then`, and whether the verdict `flips`.
    """
    before, records = list(judge_errors(signals, labels).values()), []
    for name, value in alternative_choices(signals.choices):
        said, now = ({True: "yes", False: "no"}.get(one, one) for one in (value, getattr(signals.choices, name)))
        choice = f"{CHOICES[name]} ({name}): {said}, not {now}"
        try:
            after = list(judge_errors(change_choice(signals, name, value), labels).values())
        except UserError as error:  # such as options that are not single tokens of the model
            after = []
            records.append((choice, str(error), "", "", "", False))
        for old, new in zip(before, after, strict=False):
            if old.held is not None:
                flips = new.held not in (None, old.held)
                records.append((choice, old.claim.quote, old.claim.name, old.said, new.said, flips))
    return pd.DataFrame(records, columns=["choice", "finding", "name", "here", "then", "flips"])


def list_changed_verdicts(records: pd.DataFrame) -> pd.DataFrame:
    """Return the claims whose verdict changes, for the reader, from the output of `judge_alternatives`."""
    changed = records.loc[records.flips, ["choice", "finding", "here", "then"]]
    return changed if len(changed) else pd.DataFrame([{"choice": "any of them", "finding": "none changes"}])
