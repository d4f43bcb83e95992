"""The verdicts on the paper's claims, on its numbers, on the demo and on the real models, as the
stored reports of both replays say."""

import json
import lzma
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lib.paper.verdicts import CLAIMS, count_kinds

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
