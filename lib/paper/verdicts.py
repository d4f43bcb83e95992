"""Verdicts on the claims (holds, does not hold, not judged), the counts that the text quotes, and a table for
notebooks.

The paper's words for how many cases must agree are defined once, in QUANTIFIERS; every claim names one of them.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import pandas as pd

from lib.analysis.results import MissingFrame, Results
from lib.paper import latex
from lib.paper.claims import CLAIMS, VIEWS, Claim
from lib.paper.reference import published
from lib.paper.claim_cases import NotApplicable

QUANTIFIERS: Mapping[str, tuple[str, Callable[[int, int], bool]]] = {  # condition of each word on the agreeing cases
    "all": ("every case", lambda count, total: count == total),
    "most": ("at least three quarters", lambda count, total: count >= 0.75 * total),
    "often": ("more than half", lambda count, total: count > 0.5 * total),
    "generally": ("more than half, also for claims without a quantity", lambda count, total: count > 0.5 * total),
    "several": ("at least a quarter", lambda count, total: count >= 0.25 * total),
    "some": ("at least one", lambda count, total: count > 0),
    "can": ("at least one", lambda count, total: count > 0),
    "figure": ("the one number that the text states", lambda count, total: count == total),
}
VERDICT_WORDS: dict[bool | None, str] = {True: "holds", False: "does not hold", None: "cannot be judged here"}
NO_PARSED_ANSWER = "no answer of any model could be read"
ALIGN_LEFT = ' style="text-align: left"'  # notebooks align cells to the right, where sentences are hard to read


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim.

    `held` is None if the claim cannot be judged, for `reason` or because the results lack a frame (`lacks`). `rows`
    (with `agrees`) decide it; `quoted` is the number in the text.
    """

    claim: Claim
    held: bool | None = None
    said: str = ""
    quoted: str = ""
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    lacks: str = ""
    reason: str = ""

    def in_words(self, otherwise: str) -> str:
        """Return a short form such as "holds: 15 of 15 pairs"."""
        if self.held is None:
            return self.reason or otherwise
        return f"{VERDICT_WORDS[self.held]}: {self.said}"


# ---- judging


def names_in(expression: str) -> list[str]:
    """Return the columns that an expression compares, in its order."""
    found = [node for node in ast.walk(ast.parse(expression or "0")) if isinstance(node, ast.Name)]
    return list(dict.fromkeys(node.id for node in found if node.id != "abs"))


def judge(claim: Claim, results: Results) -> Verdict:
    """Count the cases of a claim that agree with its predicate; cases with NaN are ignored."""
    try:
        if claim.view not in results.views:  # shared by several claims
            results.views[claim.view] = VIEWS[claim.view](results)
        cases = results.views[claim.view]
    except MissingFrame as missing:
        return Verdict(claim, lacks=str(missing.args[0]))
    except NotApplicable as why:
        return Verdict(claim, reason=str(why))
    names = names_in(claim.predicate)
    cases = cases if cases.index.names == [None] else cases.reset_index()
    cases = cases.reindex(columns=[*cases, *(name for name in names if name not in cases)]).dropna(subset=names)
    if claim.where and len(cases):
        cases = cases.query(claim.where, engine="python")
    if cases.empty:
        return Verdict(claim, reason=claim.otherwise)
    cases = cases.reset_index(drop=True)
    agrees = cases.eval(claim.predicate, engine="python").astype(bool)
    count, total = int(agrees.sum()), len(agrees)
    counted = f"{count} of {total}" if claim.unit else ""
    summary = claim.summary(cases.assign(agrees=agrees)) if claim.summary else ""
    said = ", ".join(filter(None, [summary, f"{counted} {claim.unit}".strip()]))
    rows = cases[columns_shown(claim, cases)].assign(agrees=agrees)
    return Verdict(claim, QUANTIFIERS[claim.quantifier][1](count, total), said, summary or counted, rows)


def columns_shown(claim: Claim, cases: pd.DataFrame) -> list[str]:
    """Return the columns that name a case, and the numbers that the claim compares."""
    compared = {*names_in(claim.predicate), *names_in(claim.where)} - set(cases.select_dtypes("bool"))
    return [name for name in cases if name in compared or not pd.api.types.is_numeric_dtype(cases[name])]


def judge_all(results: Results, claims: Iterable[Claim] = CLAIMS) -> dict[str, Verdict]:
    """Judge every claim (or those given) on some results, by name. Models that never answer are excluded."""
    heard = results.drop_models_without_answers()
    found = {claim.name: judge(claim, heard) for claim in claims}
    if heard is results:
        return found
    return {
        name: replace(verdict, lacks="", reason=NO_PARSED_ANSWER)
        if len(results.frames.get(verdict.lacks, ()))
        else verdict
        for name, verdict in found.items()
    }


# ---- for the paper, and for a notebook


def claim_macros(verdicts: Mapping[str, Verdict]) -> str:
    """Return `numbers.tex`: a LaTeX macro for each number that the text quotes (\\BaldBelowPTrue: 10 of 15)."""
    lines = []
    for name, verdict in verdicts.items():
        if verdict.said:
            lines.append(f"% {verdict.claim.statement} ({verdict.claim.unit or 'figure'})")
            lines.append(f"\\newcommand{{\\{name}}}{{{latex.escape(verdict.quoted)}}}")
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class LatexOutput:
    """LaTeX for the exporter; a notebook shows a line that expands it."""

    latex: str = field(repr=False)
    title: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        page = f"<details><summary>{escape(self.title)}</summary><pre>{escape(self.latex)}</pre></details>"
        return {"text/html": page, "text/latex": self.latex, "text/plain": self.title}


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
            f"{claim.statement} ({claim.quantifier})",
            paper[claim.name].in_words("no number printed"),
            here[claim.name].in_words(VERDICT_WORDS[None]),
        )
        for claim in chosen
    ]
    group = next((claim.group for claim in chosen), names)
    counts = f"paper: {count_held(paper.values())}; here: {count_held(here[claim.name] for claim in chosen)}"
    in_short = f"Of {len(chosen)} claims, {counts}." if len(chosen) > 1 else ""
    return ClaimsTable(pd.DataFrame(rows, columns=[group, "counted", "paper", "here"]), in_short)
