"""What comes of the claims on some results: held, not held, or not to be judged from them; the counts that the text
quotes; and a table of claims for a notebook.

The paper's words for how many of its cases must agree are defined once, in QUANTIFIERS; every claim names its word.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import pandas as pd

from lib.analysis.results import NotThere, Results
from lib.paper import latex
from lib.paper.claim_views import NotApplicable
from lib.paper.claims import CLAIMS, Claim
from lib.paper.reference import published

QUANTIFIERS: Mapping[str, tuple[str, Callable[[int, int], bool]]] = {  # what a word asks for, of how many that agree
    "all": ("every case", lambda count, total: count == total),
    "most": ("at least three quarters", lambda count, total: count >= 0.75 * total),
    "often": ("more than half", lambda count, total: count > 0.5 * total),
    "generally": ("more than half; a sentence without number is read so", lambda count, total: count > 0.5 * total),
    "several": ("at least a quarter", lambda count, total: count >= 0.25 * total),
    "some": ("at least one", lambda count, total: count > 0),
    "can": ("at least one", lambda count, total: count > 0),
    "figure": ("the one figure that is said", lambda count, total: count == total),
}
VERDICT_WORDS: dict[bool | None, str] = {True: "holds", False: "does not hold", None: "cannot be judged here"}
UNHEARD = "no answer of any model could be read"
LEFT = ' style="text-align: left"'  # a notebook sets cells to the right, where sentences are hard to read


@dataclass(frozen=True)
class Verdict:
    """`held` is None where it cannot be judged, for `reason`, or because the results lack a frame (`lacks`); `rows`
    (with `agrees`) decide it; `quoted` is the number in the text."""

    claim: Claim
    held: bool | None = None
    said: str = ""
    quoted: str = ""
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    lacks: str = ""
    reason: str = ""

    def in_words(self, otherwise: str) -> str:
        """In a few words: "holds: 15 of 15 pairs"."""
        if self.held is None:
            return self.reason or otherwise
        return f"{VERDICT_WORDS[self.held]}: {self.said}"


# ---- judging


def names_in(expression: str) -> list[str]:
    """The columns that an expression compares, in its order."""
    found = [node for node in ast.walk(ast.parse(expression or "0")) if isinstance(node, ast.Name)]
    return list(dict.fromkeys(node.id for node in found if node.id != "abs"))


def judge(claim: Claim, results: Results) -> Verdict:
    """Count the cases of a claim that agree with its predicate; those with a NaN in it are none."""
    try:
        cases = claim.seen.cases(results)
    except NotThere as missing:
        return Verdict(claim, lacks=str(missing.args[0]))
    except NotApplicable as why:
        return Verdict(claim, reason=str(why))
    names = names_in(claim.predicate)
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
    """What a case is called, and the figures that its claim compares."""
    compared = {*names_in(claim.predicate), *names_in(claim.where)} - set(cases.select_dtypes("bool"))
    return [name for name in cases if name in compared or not pd.api.types.is_numeric_dtype(cases[name])]


def judge_all(results: Results, claims: Iterable[Claim] = CLAIMS) -> dict[str, Verdict]:
    """Every claim (or those given) on some results, by name. A model that never answers counts for none."""
    heard = results.heard()
    found = {claim.name: judge(claim, heard) for claim in claims}
    if heard is results:
        return found
    return {name: replace(verdict, lacks="", reason=UNHEARD) if len(results.frames.get(verdict.lacks, ())) else verdict
            for name, verdict in found.items()}  # fmt: skip


# ---- for the paper, and for a notebook


def macros(verdicts: Mapping[str, Verdict]) -> str:
    """`numbers.tex`: a LaTeX macro for each figure that the text quotes (\\BaldBelowPTrue: 10 of 15)."""
    lines = []
    for name, verdict in verdicts.items():
        if verdict.said:
            lines.append(f"% {verdict.claim.statement} ({verdict.claim.unit or 'figure'})")
            lines.append(f"\\newcommand{{\\{name}}}{{{latex.escape(verdict.quoted)}}}")
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class LatexOutput:
    """LaTeX that the exporter writes; a notebook shows a line that opens it."""

    latex: str = field(repr=False)
    title: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        page = f"<details><summary>{escape(self.title)}</summary><pre>{escape(self.latex)}</pre></details>"
        return {"text/html": page, "text/latex": self.latex, "text/plain": self.title}


def in_sentences(frame: pd.DataFrame, **how: Any) -> str:
    """The HTML of a frame whose cells are words, all of them."""
    with pd.option_context("display.max_colwidth", None):
        page = str(frame.to_html(index=False, **how))
    return page.replace("<td>", f"<td{LEFT}>").replace("<th>", f"<th{LEFT}>")


@dataclass(frozen=True)
class ClaimsTable:
    """A row per claim: the paper's words, how it is counted, and what came of it in the paper and here."""

    frame: pd.DataFrame

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        page = f"{in_sentences(self.frame)}<p>{self.in_short}</p>"
        return {"text/html": page, "text/plain": f"{self.frame}\n{self.in_short}".strip()}

    @property
    def in_short(self) -> str:
        """How many of several hold, in the paper and here."""
        if len(self.frame) < 2:
            return ""
        parts = []
        for where in ("paper", "here"):
            held, failed = (int(self.frame[where].str.startswith(VERDICT_WORDS[kind]).sum()) for kind in (True, False))
            parts.append(f"{where}: {held} hold, {failed} not, {len(self.frame) - held - failed} not judged")
        return f"Of {len(self.frame)} claims, {'; '.join(parts)}."


def show_claims(names: str, models: Mapping[str, str], datasets: Mapping[str, str], **frames: pd.DataFrame
                ) -> ClaimsTable:  # fmt: skip
    """Claims by their `names` (or all of a group, Finding 1 say, that these `frames` can judge), a row each: in the
    paper's words and as it is counted, and what came of it on the paper's printed numbers and on these frames, named as
    in `Results`, of {name: label} of models and datasets."""
    results = Results(models, datasets, models, (models, datasets), (), frames)
    chosen = [claim for claim in CLAIMS if claim.name in names.split()]
    chosen = chosen or [claim for claim in CLAIMS if claim.group == names and set(claim.seen.needs) <= set(frames)]
    paper, here = judge_all(published(), chosen), judge_all(results, chosen)
    rows = [(claim.quote or "(ours)", f"{claim.statement} ({claim.quantifier})",
             paper[claim.name].in_words("no number printed"), here[claim.name].in_words(VERDICT_WORDS[None]))
            for claim in chosen]  # fmt: skip
    group = next((claim.group for claim in chosen), names)
    return ClaimsTable(pd.DataFrame(rows, columns=[group, "counted", "paper", "here"]))
