"""Verdicts on the claims (holds, does not hold, not judged), and a table for notebooks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from lib.analysis.results import MissingFrame, Results
from lib.paper.claim_cases import QUANTIFIERS, Claim, NotApplicable
from lib.paper.claims import CLAIMS
from lib.paper.numbers_of_paper import published

VERDICT_WORDS: dict[bool | None, str] = {True: "holds", False: "does not hold", None: "cannot be judged here"}
ALIGN_LEFT = ' style="text-align: left"'  # notebooks align cells to the right, where sentences are hard to read


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim.

    `held` is None if the claim cannot be judged, for `reason` or because the results lack a frame (`lacks`). `rows`
    (with `agrees`) decide it, and `said` counts them.
    """

    claim: Claim
    held: bool | None = None
    said: str = ""
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    lacks: str = ""
    reason: str = ""

    def in_words(self, otherwise: str) -> str:
        """Return a short form such as "holds: 15 of 15 pairs"."""
        if self.held is None:
            return self.reason or otherwise
        return f"{VERDICT_WORDS[self.held]}: {self.said}"


# ---- judging


def judge(claim: Claim, results: Results) -> Verdict:
    """Count the cases of a claim that agree; cases with a missing number are left out."""
    try:
        cases = claim.count_cases(results).dropna()
    except MissingFrame as missing:
        return Verdict(claim, lacks=str(missing.args[0]))
    except NotApplicable as why:
        return Verdict(claim, reason=str(why))
    if cases.empty:
        return Verdict(claim, reason=claim.no_case)
    cases = cases.reset_index(drop=cases.index.names == [None])
    count, total = int(cases.agrees.sum()), len(cases)
    numbers = claim.numbers(cases) if claim.numbers else ""
    said = (
        numbers
        if claim.quantifier == "figure"
        else ", ".join([numbers, f"{count} of {total} {claim.unit}"]).strip(", ")
    )
    return Verdict(claim, QUANTIFIERS[claim.quantifier][1](count, total), said, cases)


def judge_all(results: Results, claims: Iterable[Claim] = CLAIMS) -> dict[str, Verdict]:
    """Judge every claim (or those given) on some results, by name."""
    return {claim.name: judge(claim, results) for claim in claims}


# ---- for a notebook


def frame_as_html(frame: pd.DataFrame, **how: Any) -> str:
    """Return the HTML of a frame whose cells are all text."""
    with pd.option_context("display.max_colwidth", None):
        page = str(frame.to_html(index=False, **how))
    return page.replace("<td>", f"<td{ALIGN_LEFT}>").replace("<th>", f"<th{ALIGN_LEFT}>")


@dataclass(frozen=True)
class ClaimsTable:
    """A row per claim: the paper's words, how it is counted, and its verdict in the paper and in this run."""

    frame: pd.DataFrame
    in_short: str  # how many of several claims hold, in the paper and in this run

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        page = f"{frame_as_html(self.frame)}<p>{self.in_short}</p>"
        return {"text/html": page, "text/plain": f"{self.frame}\n{self.in_short}".strip()}


def count_held(verdicts: Iterable[Verdict]) -> str:
    """Return how many claims hold, do not hold, and are not judged."""
    held = [verdict.held for verdict in verdicts]
    return f"{held.count(True)} hold, {held.count(False)} not, {held.count(None)} not judged"


def show_claims(
    names: str, models: Mapping[str, str], datasets: Mapping[str, str], **frames: pd.DataFrame
) -> ClaimsTable:
    """Return a table of claims with their verdicts on the paper's printed numbers and on `frames`.

    `names` are claims, or a group such as Finding 1, of which the claims that `frames` can judge are shown. `frames`
    are named as in `Results`; `models` and `datasets` are {name: label}.
    """
    results = Results(models, datasets, models, (models, datasets), (), frames)
    here = judge_all(results, [claim for claim in CLAIMS if claim.group == names or claim.name in names.split()])
    chosen = [verdict.claim for verdict in here.values() if verdict.claim.group != names or not verdict.lacks]
    paper = judge_all(published(), chosen)
    rows = [
        (
            claim.quote or "(ours)",
            f"{claim.counted} ({claim.quantifier})",
            paper[claim.name].in_words("no number printed"),
            here[claim.name].in_words(VERDICT_WORDS[None]),
        )
        for claim in chosen
    ]
    group = next((claim.group for claim in chosen), names)
    counts = f"paper: {count_held(paper.values())}; here: {count_held(here[claim.name] for claim in chosen)}"
    in_short = f"Of {len(chosen)} claims, {counts}." if len(chosen) > 1 else ""
    return ClaimsTable(pd.DataFrame(rows, columns=[group, "counted", "paper", "here"]), in_short)
