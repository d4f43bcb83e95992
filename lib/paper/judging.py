"""What a finding is, and how it is judged on results: held, not held, or not to be judged from them.

The paper's words for how many of its cases must agree are defined once, in QUORUMS; every finding names its word.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from lib.paper.results import NotThere, Results

Cases = tuple[pd.DataFrame, pd.Series]  # the rows that decide, and which of them agree
Judge = Callable[[Results], Cases]

QUORUMS: Mapping[str, tuple[str, Callable[[int, int], bool]]] = {  # what a word asks for, of how many that agree of all
    "all": ("every case", lambda count, total: count == total),
    "most": ("at least three quarters", lambda count, total: count >= 0.75 * total),
    "often": ("more than half", lambda count, total: count > 0.5 * total),
    "generally": ("more than half; a sentence without number is read so", lambda count, total: count > 0.5 * total),
    "several": ("at least a quarter", lambda count, total: count >= 0.25 * total),
    "some": ("at least one", lambda count, total: count > 0),
    "can": ("at least one", lambda count, total: count > 0),
    "figure": ("the one figure that is said", lambda count, total: count == total),
}


class Undecided(Exception):
    """Why results that hold what a finding needs cannot decide it."""


@dataclass(frozen=True)
class Finding:
    """`place` is the target that shows it, `quote` the paper's sentence in a few words; `judge` returns the rows that
    decide and which of them agree, from the frames that it `needs`. `kind`: a claim of the paper, a check of
    consistency (true by construction of the program), or a reading of ours that the paper does not claim."""

    name: str
    place: str
    quote: str
    word: str
    unit: str
    judge: Judge
    statement: str
    needs: str
    said: Callable[[pd.DataFrame], str] | None = None  # of the rows that decide, where a count says too little
    kind: str = "claim"
    group: str = ""

    def __post_init__(self) -> None:
        if self.word not in QUORUMS:
            raise ValueError(f"finding '{self.name}': '{self.word}' is none of {', '.join(QUORUMS)}")


@dataclass(frozen=True)
class ClaimVerdict:
    """`held` is None where it cannot be judged, for `reason`, or because the results lack a frame (`lacks`); `rows`
    (with `agrees`) decide it; `quoted` is the number in the text."""

    finding: Finding
    held: bool | None = None
    said: str = ""
    quoted: str = ""
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    lacks: str = ""
    reason: str = ""


def judge(finding: Finding, results: Results) -> ClaimVerdict:
    """A finding on some results."""
    try:
        rows, agrees = finding.judge(results)
    except NotThere as missing:
        return ClaimVerdict(finding, lacks=str(missing.args[0]))
    except Undecided as why:
        return ClaimVerdict(finding, reason=str(why))
    agrees = agrees.reset_index(drop=True).astype(bool)
    count, total = int(agrees.sum()), len(agrees)
    if not total:
        return ClaimVerdict(finding, rows=rows, reason="no case")
    rows = rows.reset_index(drop=True)
    if len(rows) == total:
        rows = rows.assign(agrees=agrees)
    held = QUORUMS[finding.word][1](count, total)
    counted = f"{count} of {total}" if finding.unit else ""
    quoted = finding.said(rows) if finding.said else counted
    said = ", ".join(filter(None, [finding.said(rows) if finding.said else "", f"{counted} {finding.unit}".strip()]))
    return ClaimVerdict(finding, held, said, quoted, rows)
