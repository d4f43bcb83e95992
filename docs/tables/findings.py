"""`python docs/tables/findings.py` renews README's table of findings: how many of their claims hold on the paper's
numbers, on the demo and on the real models, as the stored reports of both replays say."""

import json
import lzma
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tables.replacing import replace_table  # noqa: E402
from lib.paper.verdicts import CLAIMS, FINDINGS  # noqa: E402
from workflow.rules import NEEDS  # noqa: E402

BEGIN = "<!-- findings: python docs/tables/findings.py renews this table -->\n"
SIDES = (
    ("replay", "paper"),
    ("replay", "here"),
    ("replay-small", "here"),
)  # report, and side: paper, demo, real models


@cache
def judged(run: str) -> dict[str, dict[str, str]]:
    """By claim, what the golden report of a run says of it: `here`, `here_said`, `paper`, `paper_said`."""
    report = json.loads(lzma.decompress((ROOT / f"tests/blackbox/goldens/{run}.json.xz").read_bytes()))
    found: dict[str, dict[str, str]] = {claim.name: {} for claim in CLAIMS}
    for name, side, said in re.findall(r'^/(\w+)/((?:here|paper)\w*): "(.*)"$', report["rep_findings"], flags=re.M):
        found[name][side] = said
    return found


def count(run: str, side: str, groups: str = "") -> str:
    """How many claims hold of those that can be judged, of all or of the groups that match."""
    verdicts = [judged(run)[claim.name][side] for claim in CLAIMS if re.match(groups, claim.group)]
    return f"{verdicts.count('holds')} of {sum(verdict in ('holds', 'does not hold') for verdict in verdicts)}"


def table() -> str:
    """The findings, each with its notebooks and how many of its claims hold; then the other claims, and all."""
    head = ("finding", "notebooks", "on the paper's numbers", "on the demo", "on two real models")
    rows = [(f"{number}. {FINDINGS[f'Finding {number}']}", ", ".join(name.split("_")[0] for name in names),
             f"Finding {number}") for number, names in NEEDS.items()]  # fmt: skip
    rows += [("Abstract and introduction", "08", "(?!Finding)"), ("All claims", "", "")]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for said, notebooks, groups in rows:
        lines.append(f"| {said} | {notebooks} | {' | '.join(count(*side, groups) for side in SIDES)} |")
    return "\n".join(lines)


def renewed(text: str) -> str:
    return replace_table(text, BEGIN, table())


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(renewed(readme.read_text(encoding="utf-8")), encoding="utf-8")
