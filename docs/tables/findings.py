"""`python docs/tables/findings.py` renews README's table of findings: the verdicts on their claims
on the paper's numbers, on the demo and on the real models, as the stored reports of both replays
say."""

import json
import lzma
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tables.replacing import replace_table
from lib.paper.verdicts import CLAIMS, FINDINGS, count_kinds
from workflow.findings import NEEDS

BEGIN = "<!-- findings: python docs/tables/findings.py renews this table -->\n"
SIDES = (
    ("replay", "paper"),
    ("replay", "here"),
    ("replay-small", "here"),
)  # report, and side: paper, demo, real models


@cache
def judged(run: str) -> dict[str, dict[str, str]]:
    """By claim, what the golden report of a run says of it: `here`, `here_said`, `paper`,
    `paper_said`."""
    report = json.loads(
        lzma.decompress((ROOT / f"tests/blackbox/goldens/{run}.json.xz").read_bytes())
    )
    found: dict[str, dict[str, str]] = {claim.name: {} for claim in CLAIMS}
    for name, side, said in re.findall(
        r'^/(\w+)/((?:here|paper)\w*): "(.*)"$', report["rep_findings"], flags=re.M
    ):
        found[name][side] = said
    return found


def count(run: str, side: str, groups: str = "") -> str:
    """How many verdicts of the groups that match are of each kind: "7 hold, 1 open, 3 fail"."""
    return count_kinds(
        judged(run)[claim.name][side] for claim in CLAIMS if re.match(groups, claim.group)
    )


def table() -> str:
    """The findings, each with its notebooks and the verdicts on its claims; then the other
    claims."""
    head = ("finding", "notebooks", "on the paper's numbers", "on the demo", "on two real models")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    rows = []
    for number, names in NEEDS.items():
        notebooks = ", ".join(name.split("_")[0] for name in names)
        rows.append((f"{number}. {FINDINGS[f'Finding {number}']}", notebooks, f"Finding {number}"))
    rows.append(("Abstract and introduction", "08", "(?!Finding)"))
    for text, notebooks, groups in rows:
        counts = " | ".join(count(*side, groups) for side in SIDES)
        lines.append(f"| {text} | {notebooks} | {counts} |")
    return "\n".join(lines)


def renewed(text: str) -> str:
    return replace_table(text, BEGIN, table())


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(renewed(readme.read_text(encoding="utf-8")), encoding="utf-8")
