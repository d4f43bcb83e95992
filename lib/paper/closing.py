"""How a notebook closes: the claims that its own frames can judge, here and on the paper's numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lib.paper.claims import FINDINGS
from lib.paper.comparison import VERDICT_WORDS
from lib.paper.findings import verdicts
from lib.paper.folded import in_sentences
from lib.paper.judging import ClaimVerdict
from lib.paper.results import Results, published


@dataclass(frozen=True)
class Claims:
    """A row per claim: the paper's words, how it is counted, and what came of it in the paper and here."""

    frame: pd.DataFrame

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        page = f"{in_sentences(self.frame)}<p>{self.in_short}</p>"
        return {"text/html": page, "text/plain": f"{self.frame}\n{self.in_short}"}

    @property
    def in_short(self) -> str:
        """How many of them hold, in the paper and here."""
        parts = []
        for where in ("paper", "here"):
            held = int(self.frame[where].str.startswith(VERDICT_WORDS[True]).sum())
            failed = int(self.frame[where].str.startswith(VERDICT_WORDS[False]).sum())
            parts.append(f"{where}: {held} hold, {failed} not, {len(self.frame) - held - failed} not judged")
        return f"Of {len(self.frame)} claims, {'; '.join(parts)}."


def claims(group: str, models: Mapping[str, str], datasets: Mapping[str, str], **frames: pd.DataFrame) -> Claims:
    """The claims of a `group` (Finding 1, say) that these `frames` (as `Results` names them) can judge, a row each: the
    claim in the paper's words and as it is counted, and what came of it on the paper's printed numbers and here."""
    some = [finding for finding in FINDINGS if finding.group == group and set(finding.needs.split()) <= set(frames)]
    here = verdicts(Results(models, datasets, models, (models, datasets), (), frames), some)
    paper = verdicts(published(), some)
    rows = [(finding.quote or "(ours)", finding.statement, said(paper[finding.name], "no number printed"),
             said(here[finding.name], "cannot be judged here")) for finding in some]  # fmt: skip
    return Claims(pd.DataFrame(rows, columns=[group, "counted", "paper", "here"]))


def said(verdict: ClaimVerdict, otherwise: str) -> str:
    """A verdict in a few words: holds: 15 of 15 pairs."""
    if verdict.held is None:
        return verdict.reason or otherwise
    return f"{VERDICT_WORDS[verdict.held]}: {verdict.said}"
