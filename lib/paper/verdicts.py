"""The verdicts on the paper's claims, on a run or on its own numbers: holds, fails, open, not
judged; also under other choices."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, get_args

import pandas as pd

from lib.analysis.resampled_scores import ResampledScores, ResampleSettings
from lib.analysis.results import MissingFrameError, Results
from lib.analysis.run_results import error_frames
from lib.analysis.scores_of_run import collect_scores
from lib.analysis.signals import AnySignals
from lib.errors import UserError
from lib.paper.booktabs import CHOICES
from lib.paper.claim import AGREES, DISAGREES, OPEN, QUANTIFIERS, Claim, NotJudgedError
from lib.paper.claims import CLAIMS
from lib.paper.numbers_of_paper import paper_facts, published
from lib.paper.report_records import ReportRecords
from lib.params import EvaluationChoices

FINDINGS: Mapping[str, str] = paper_facts()["findings"]  # boxed in the paper, each with its claims
HOLDS, FAILS, UNDECIDED, NOT_JUDGED = "holds", "fails", "open", "not judged"
VERDICTS: Mapping[str, str] = {  # of a claim, and what each means
    HOLDS: "enough cases agree for its word",
    FAILS: "too few agree, even if all open ones did",
    UNDECIDED: "the rows do not decide",
    NOT_JUDGED: "data are missing, or cannot decide",
}
# the claim lacks its numbers
NO_NUMBER = {"paper": "no number printed", "here": "not made by this run"}
# of each claim, for the report
CLAIM_FACTS = ["name", "group", "quote", "quantifier", "place", "counted"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim.

    `kind` is one of VERDICTS. `rows` (with `outcome`) decide it, `summary` counts them, and
    `open_cases` names the open ones with their intervals. A claim is not judged if the results lack
    a frame (`lacks`), if all cases lack a number, or for a reason that `summary` gives.
    """

    claim: Claim
    kind: str = NOT_JUDGED
    summary: str = ""
    open_cases: str = ""
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    lacks: str = ""

    def in_words(self, otherwise: str) -> str:
        """Return a short form such as "holds: 15 pairs agree"."""
        if self.kind == NOT_JUDGED:
            return f"{NOT_JUDGED}: {self.summary or otherwise}"
        return f"{self.kind}: {self.summary}"


# ---- judging


def judge(claim: Claim, results: Results) -> Verdict:
    """Count the cases of a claim that agree, disagree or are open; cases with a missing number are
    left out."""
    try:
        cases = claim.count_cases(results)
    except MissingFrameError as missing:
        return Verdict(claim, lacks=str(missing.args[0]))
    except NotJudgedError as reason:
        return Verdict(claim, summary=str(reason))
    cases = cases.dropna(subset="outcome")
    if cases.empty:
        return Verdict(claim, summary="no case has all the numbers")
    texts = []
    if claim.numbers is not None:
        texts.append(claim.numbers(cases))
    if claim.quantifier != "figure":
        texts.append(describe_outcomes(cases.outcome, claim.unit))
    if results.scores is not None and "by_number" in cases:
        texts.append("by number")
    rows = cases.drop(columns="by_number", errors="ignore").dropna(axis=1, how="all")
    rows = rows.reset_index(drop=rows.index.names == [None])
    kind = kind_of_verdict(claim.quantifier, rows.outcome)
    return Verdict(claim, kind, "; ".join(texts), name_open_cases(rows), rows)


def kind_of_verdict(quantifier: str, outcomes: pd.Series) -> str:
    """Return what the cases say of a claim with this word for how many of them must agree."""
    _, suffices = QUANTIFIERS[quantifier]
    agreeing = (outcomes == AGREES).sum()
    undecided = (outcomes == OPEN).sum()
    if suffices(agreeing, len(outcomes)):
        return HOLDS
    return UNDECIDED if suffices(agreeing + undecided, len(outcomes)) else FAILS


def describe_outcomes(outcomes: pd.Series, unit: str) -> str:
    """Return the counts in words: "4 pairs agree, 1 open, 1 disagrees"."""
    parts: list[str] = []
    for outcome in (AGREES, OPEN, DISAGREES):
        count = (outcomes == outcome).sum()
        if count:
            parts.append(count_in_words(count, outcome, "" if parts else unit))
    return ", ".join(parts)


def count_kinds(kinds: Iterable[str]) -> str:
    """Return how many verdicts there are of each kind: "9 hold, 2 open, 1 fails"."""
    counts = Counter(kinds)
    return ", ".join(count_in_words(counts[kind], kind) for kind in VERDICTS if counts[kind])


def count_in_words(count: int, verb: str, unit: str = "") -> str:
    """Return a count as "1 pair agrees" or "2 pairs agree", and "2 agree" without a unit."""
    if count > 1:
        verb = verb.removesuffix("s")
    else:
        unit = unit.removesuffix("s")
    return f"{count} {unit} {verb}" if unit else f"{count} {verb}"


def name_open_cases(cases: pd.DataFrame) -> str:
    """Return the key of each open case with its margin and interval: "m on d .010 [-.002,
    .025]"."""
    if "margin" not in cases and "delta_ece" not in cases:
        return ""
    texts = []
    for case in cases[cases.outcome == OPEN].to_dict("records"):
        words = [word for word in case.values() if isinstance(word, str) and word != OPEN]
        margin = case["margin"] if "margin" in case else case["delta_ece"]
        interval = f"[{case['low']:.3f}, {case['high']:.3f}]"
        texts.append(f"{' '.join(words)} {margin:.3f} {interval}")
    return "; ".join(texts)


def judge_all(results: Results, claims: Iterable[Claim] = CLAIMS) -> dict[str, Verdict]:
    """Judge every claim (or those given) on some results, by name."""
    return {claim.name: judge(claim, results) for claim in claims}


# ---- for notebooks and the report


def list_claims(
    paper: Mapping[str, Verdict], here: Mapping[str, Verdict] | None = None
) -> ReportRecords:
    """List every claim with its verdicts on the paper's numbers and on a run's, and the rows that
    decide them."""
    frame = pd.DataFrame([vars(verdict.claim) for verdict in paper.values()], columns=CLAIM_FACTS)
    shown = frame[["group", "quote", "counted", "quantifier"]].copy()
    sides = {"paper": paper}
    if here is not None:
        sides["here"] = here
    for side, verdicts in sides.items():
        in_order = [verdicts[name] for name in paper]
        frame[side] = [verdict.kind for verdict in in_order]
        frame[f"{side}_said"] = [verdict.summary or NO_NUMBER[side] for verdict in in_order]
        frame[f"{side}_open"] = [verdict.open_cases for verdict in in_order]
        frame[f"{side}_rows"] = [rows_as_json(verdict.rows) for verdict in in_order]
        shown[side] = [verdict.in_words(NO_NUMBER[side]) for verdict in in_order]
    return ReportRecords(frame, shown)


def rows_as_json(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the deciding cases as columns and data."""
    return json.loads(rows.to_json(orient="split", index=False, double_precision=15))


def show_claims(
    names: str,
    models: Mapping[str, str],
    datasets: Mapping[str, str],
    scores: ResampledScores | None = None,
    shared_masks: bool = False,
    moved: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
    **frames: pd.DataFrame,
) -> ReportRecords:
    """Return a table of claims with their verdicts on the paper's printed numbers and on a run's.

    `names` are claims, or a group such as Finding 1, of which the claims that the run's numbers can
    judge are shown. `scores`, `shared_masks` and `frames` are those of `Results`; `models` and
    `datasets` are {name: label}. `moved` are those between which calibrators are judged; all by
    default.
    """
    results = Results(
        models=models,
        datasets=datasets,
        bin_labels=models,
        transfer_labels=(models, datasets) if moved is None else moved,
        settings=(),
        frames=frames,
        scores=scores,
        shared_masks=shared_masks,
    )
    here = {}
    for claim in CLAIMS:
        if claim.group == names or claim.name in names.split():
            verdict = judge(claim, results)
            if claim.group != names or not verdict.lacks:
                here[claim.name] = verdict
    paper = judge_all(published(), [verdict.claim for verdict in here.values()])
    return ReportRecords(None, list_claims(paper, here).shown)


# ---- other choices, one at a time, without a model

BINS = (10, 20, 30)  # the paper's
SENSITIVITY_DRAWS = 500  # resamples of evaluation rows


def alternative_choices(now: EvaluationChoices) -> Iterator[tuple[str, Any]]:
    """Yield each of CHOICES (in captions.yaml) with every value except the current one (`now`)."""
    for name in CHOICES:
        for value in values_of_choice(name):
            if value != getattr(now, name):
                yield name, value


def values_of_choice(name: str) -> tuple[Any, ...]:
    """Return the values that a choice can have."""
    if name == "bins":
        return BINS
    kind = EvaluationChoices.model_fields[name].annotation
    return (True, False) if kind is bool else get_args(kind)


def change_choice(signals: AnySignals, name: str, value: Any) -> AnySignals:
    """Return the signals under another choice."""
    changed = replace(signals, choices=signals.choices.model_copy(update={name: value}))
    if name == "bins":
        changed.sets = signals.sets
        changed.confidence = signals.confidence
        changed.token_reduction = signals.token_reduction
        changed.calibration = signals.calibration
    return changed


def judge_errors(signals: AnySignals, labels: Results) -> dict[str, Verdict]:
    """Judge the claims on the raw and calibrated errors of a run; `labels`: its results without
    frames.

    Intervals come from fewer draws than those of the report, and calibrators are fixed.
    """
    frames = error_frames(signals)
    settings = ResampleSettings(signals.choices.bins, SENSITIVITY_DRAWS, refits=0)
    moved = list(product(*labels.transfer_labels))
    scores = collect_scores(
        signals.confidence, signals.sets, signals.calibration.fits, settings, moved
    )
    return judge_all(replace(labels, frames=frames, scores=scores))


def judge_alternatives(signals: AnySignals, labels: Results) -> pd.DataFrame:
    """Judge the claims again under every alternative choice.

    Return a row for every choice and claim that can be judged here: the choice, the claim's
    quotation (`finding`) and name, its verdicts with counts `here` and `then`, and whether the
    verdict `flips`.
    """
    before = judge_errors(signals, labels)
    records: list[dict[str, Any]] = []
    for name, value in alternative_choices(signals.choices):
        current = getattr(signals.choices, name)
        choice = f"{CHOICES[name]} ({name}): {in_word(value)}, not {in_word(current)}"
        try:
            after = judge_errors(change_choice(signals, name, value), labels)
        except UserError as error:  # such as options that are not single tokens of the model
            unjudged = {"name": "", "here": "", "then": "", "flips": False}
            records.append({"choice": choice, "finding": str(error), **unjudged})
            continue
        for claim_name, old in before.items():
            if old.kind != NOT_JUDGED:
                records.append({"choice": choice, **compare_verdicts(old, after[claim_name])})
    columns = ["choice", "finding", "name", "here", "then", "flips"]
    return pd.DataFrame(records, columns=columns)


def in_word(value: Any) -> Any:
    """Return the value of a choice as a reader says it: yes for True."""
    return {True: "yes", False: "no"}.get(value, value)


def compare_verdicts(old: Verdict, new: Verdict) -> dict[str, Any]:
    """Return the row of `judge_alternatives` for a claim, without the choice."""
    return {
        "finding": old.claim.quote,
        "name": old.claim.name,
        "here": old.in_words(NO_NUMBER["here"]),
        "then": new.in_words(NO_NUMBER["here"]),
        "flips": new.kind not in (NOT_JUDGED, old.kind),
    }
