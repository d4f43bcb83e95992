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
# report and side of the paper, the demo and the real models
SIDES = (("replay", "paper"), ("replay", "here"), ("replay-small", "here"))


@cache
def judged(run: str) -> dict[str, dict[str, str]]:
    """By claim, what the golden report of a run says of it: `here`, `here_said`, `paper`,
    `paper_said`."""
    path = ROOT / "tests" / "blackbox" / "goldens" / f"{run}.json.xz"
    report = json.loads(lzma.decompress(path.read_bytes()))
    line = r'^/(\w+)/((?:here|paper)\w*): "(.*)"$'
    verdicts: dict[str, dict[str, str]] = {claim.name: {} for claim in CLAIMS}
    for name, side, text in re.findall(line, report["rep_findings"], flags=re.M):
        verdicts[name][side] = text
    return verdicts


def count(run: str, side: str, groups: str = "") -> str:
    """How many verdicts of the groups that match are of each kind: "7 hold, 1 open, 3 fail"."""
    names = [claim.name for claim in CLAIMS if re.match(groups, claim.group)]
    return count_kinds(judged(run)[name][side] for name in names)


def counts(groups: str) -> str:
    """The same of all three sides, as cells of a table."""
    return " | ".join(count(run, side, groups) for run, side in SIDES)


def table() -> str:
    """The findings, each with its notebooks and the verdicts on its claims; then the other
    claims."""
    lines = [
        "| finding | notebooks | on the paper's numbers | on the demo | on two real models |",
        "|---|---|---|---|---|",
    ]
    for number, names in NEEDS.items():
        group = f"Finding {number}"
        notebooks = ", ".join(name.split("_")[0] for name in names)
        lines.append(f"| {number}. {FINDINGS[group]} | {notebooks} | {counts(group)} |")
    lines.append(f"| Abstract and introduction | 08 | {counts('(?!Finding)')} |")
    return "\n".join(lines)


def renewed(text: str) -> str:
    return replace_table(text, BEGIN, table())


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(renewed(readme.read_text(encoding="utf-8")), encoding="utf-8")
