"""The paper's findings on some results: every row of `claims.FINDINGS` judged, and the counts that the text quotes."""

from collections.abc import Iterable
from dataclasses import replace

from lib.paper.claims import FINDINGS
from lib.paper.judging import ClaimVerdict, Finding, judge
from lib.paper.latex import escape
from lib.paper.results import Results

UNHEARD = "no answer of any model could be read"


def verdicts(results: Results, findings: Iterable[Finding] = FINDINGS) -> dict[str, ClaimVerdict]:
    """Every finding (or those given) on some results, by name. A model that never answers counts for none."""
    heard = results.heard()
    found = {finding.name: judge(finding, heard) for finding in findings}
    if heard is results:
        return found
    return {name: replace(verdict, lacks="", reason=UNHEARD) if len(results.frames.get(verdict.lacks, ())) else verdict
            for name, verdict in found.items()}  # fmt: skip


def macros(verdicts: dict[str, ClaimVerdict]) -> str:
    """`numbers.tex`: a LaTeX macro for each figure that the text quotes (\\BaldBelowPTrue: 10 of 15)."""
    lines = []
    for verdict in verdicts.values():
        if verdict.said:
            finding = verdict.finding
            lines.append(f"% {finding.statement} ({finding.unit or 'figure'})")
            lines.append(f"\\newcommand{{\\{finding.name}}}{{{escape(verdict.quoted)}}}")
    return "".join(f"{line}\n" for line in lines)
