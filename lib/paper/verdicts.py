"""The claims of the paper's abstract, introduction and four boxed findings, in this order, and their verdicts: holds,
does not hold, not judged; also under other choices."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pandas as pd

from lib.analysis.results import MissingFrame, Results
from lib.analysis.run_results import Signals, calibration_frames, raw_frames
from lib.paper import findings_1_2, findings_3_4
from lib.paper.booktabs import CHOICES, ReportRecords
from lib.paper.claims import QUANTIFIERS, Claim
from lib.paper.numbers_of_paper import paper_facts, published
from lib.params import EvaluationChoices
from lib.paths import UserError

FINDINGS: Mapping[str, str] = paper_facts()["findings"]  # boxed in the paper, each with its claims
GROUPS = ["Abstract", "Introduction", *FINDINGS]
ALL = [*vars(findings_1_2).values(), *vars(findings_3_4).values()]
CLAIMS = sorted((claim for claim in ALL if isinstance(claim, Claim)), key=lambda claim: GROUPS.index(claim.group))
VERDICT_WORDS: dict[bool | None, str] = {True: "holds", False: "does not hold", None: "cannot be judged here"}
NO_NUMBER = {"paper": "no number printed", "here": "not made by this run"}  # the claim lacks its numbers
# Of each claim, for the report:
CLAIM_FACTS = ["name", "group", "quote", "quantifier", "place", "counted"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim.

    `rows` (with `agrees`) decide it, and `said` counts them. `held` is None if the claim cannot be judged because the
    results lack a frame (`lacks`), or all cases a number.
    """

    claim: Claim
    held: bool | None = None
    said: str = ""
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    lacks: str = ""

    def in_words(self, otherwise: str) -> str:
        """Return a short form such as "holds: 15 of 15 pairs"."""
        return f"{VERDICT_WORDS[self.held]}: {self.said}" if self.held is not None else self.said or otherwise


# ---- judging


def judge(claim: Claim, results: Results) -> Verdict:
    """Count the cases of a claim that agree; cases with a missing number are left out."""
    try:
        cases = claim.count_cases(results).dropna()
    except MissingFrame as missing:
        return Verdict(claim, lacks=str(missing.args[0]))
    if cases.empty:
        return Verdict(claim, said="no case has all the numbers")
    cases = cases.reset_index(drop=cases.index.names == [None])
    count, total = int(cases.agrees.sum()), len(cases)
    said = [claim.numbers(cases)] if claim.numbers else []
    said += [f"{count} of {total} {claim.unit}"] if claim.quantifier != "figure" else []
    return Verdict(claim, QUANTIFIERS[claim.quantifier][1](count, total), ", ".join(said), cases)


def judge_all(results: Results, claims: Iterable[Claim] = CLAIMS) -> dict[str, Verdict]:
    """Judge every claim (or those given) on some results, by name."""
    return {claim.name: judge(claim, results) for claim in claims}


# ---- for notebooks and the report


def list_claims(paper: Mapping[str, Verdict], here: Mapping[str, Verdict] | None = None) -> ReportRecords:
    """List every claim with its verdicts on the paper's numbers and on a run's, and the rows that decide them."""
    frame = pd.DataFrame([vars(one.claim) for one in paper.values()], columns=CLAIM_FACTS)
    shown = frame[["group", "quote", "counted", "quantifier"]].copy()
    for side, verdicts in {"paper": paper, **({} if here is None else {"here": here})}.items():
        found = [verdicts[name] for name in paper]
        frame[side] = [VERDICT_WORDS[one.held] for one in found]
        frame[f"{side}_said"] = [one.said or NO_NUMBER[side] for one in found]
        rows = [one.rows.to_json(orient="split", index=False, double_precision=15) for one in found]
        frame[f"{side}_rows"] = [*map(json.loads, rows)]
        shown[side] = [one.in_words(NO_NUMBER[side]) for one in found]
    return ReportRecords(frame, shown)


def show_claims(
    names: str, models: Mapping[str, str], datasets: Mapping[str, str], **frames: pd.DataFrame
) -> ReportRecords:
    """Return a table of claims with their verdicts on the paper's printed numbers and on `frames`.

    `names` are claims, or a group such as Finding 1, of which the claims that `frames` can judge are shown. `frames`
    are named as in `Results`; `models` and `datasets` are {name: label}.
    """
    results = Results(models, datasets, models, (models, datasets), (), frames)
    here = judge_all(results, [claim for claim in CLAIMS if claim.group == names or claim.name in names.split()])
    here = {name: one for name, one in here.items() if one.claim.group != names or not one.lacks}
    paper = judge_all(published(), [one.claim for one in here.values()])
    return ReportRecords(None, list_claims(paper, here).shown)


# ---- other choices, one at a time, without a model

OF_SCORES = ("options", "phi", "fit_on_tuning_rows", "bins")  # they leave the reading of responses as it is
BINS = (10, 20, 30)  # the paper's


def alternative_choices(now: EvaluationChoices) -> Iterator[tuple[str, Any]]:
    """Yield each of CHOICES (in captions.yaml) with every value except the current one (`now`)."""
    for name in CHOICES:
        kind = EvaluationChoices.model_fields[name].annotation
        values = BINS if name == "bins" else (True, False) if kind is bool else get_args(kind)
        yield from ((name, value) for value in values if value != getattr(now, name))


def change_choice(signals: Signals, name: str, value: Any) -> Signals:
    """Return the signals under another choice."""
    changed = replace(signals, choices=signals.choices.model_copy(update={name: value}))
    if name in OF_SCORES:
        changed.responses, changed.sets = signals.responses, signals.sets
    return changed


def judge_errors(signals: Signals, labels: Results) -> dict[str, Verdict]:
    """Judge the claims on the raw and calibrated errors of a run; `labels`: its results without frames."""
    frames = raw_frames(signals) | calibration_frames(signals)
    return judge_all(replace(labels, frames=frames))


def judge_alternatives(signals: Signals, labels: Results) -> pd.DataFrame:
    """Judge the claims again under every alternative choice.

    Return a row for every choice and claim that can be judged here: the choice, the claim's quotation (`finding`) and
    name, its counts `here` and `then`, and whether the verdict `flips`.
    """
    before, records = judge_errors(signals, labels), []
    for name, value in alternative_choices(signals.choices):
        said, now = ({True: "yes", False: "no"}.get(one, one) for one in (value, getattr(signals.choices, name)))
        choice = f"{CHOICES[name]} ({name}): {said}, not {now}"
        try:
            after = judge_errors(change_choice(signals, name, value), labels)
        except UserError as error:  # such as options that are not single tokens of the model
            records.append((choice, str(error), "", "", "", False))
            continue
        for old, new in zip(before.values(), after.values(), strict=True):
            if old.held is not None:
                flips = new.held not in (None, old.held)
                records.append((choice, old.claim.quote, old.claim.name, old.said, new.said, flips))
    return pd.DataFrame(records, columns=["choice", "finding", "name", "here", "then", "flips"])
