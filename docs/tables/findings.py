"""`python docs/tables/findings.py` renews README's table of findings: each with its command and how many of its claims
hold, from the paper's numbers, the shipped signals of the demo, and the stored report of the real models."""

import json
import lzma
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tables.replacing import replace_table  # noqa: E402
from lib.analysis import run_results  # noqa: E402
from lib.paper.claims import Claim  # noqa: E402
from lib.paper.numbers_of_paper import published  # noqa: E402
from lib.paper.verdicts import CLAIMS, FINDINGS, Verdict, judge_all  # noqa: E402
from lib.params import EvaluationChoices, load_profile  # noqa: E402
from workflow import finding  # noqa: E402

BEGIN = "<!-- findings: python docs/tables/findings.py renews this table -->\n"
MINUTES = {"1": 5, "2": 4, "3": 2, "4": 5}


def counted(verdicts_of: dict[str, Verdict]) -> str:
    held = [one.held for one in verdicts_of.values() if one.held is not None]
    return f"{sum(held)} of {len(held)}"


def counted_in_report(run: str, side: str, claims: list[Claim]) -> str:
    """How many of the claims hold in the golden report of a run, `here` or on the numbers of the `paper`."""
    report = json.loads(lzma.decompress((ROOT / f"tests/blackbox/goldens/{run}.json.xz").read_bytes()))
    verdict_of = dict(re.findall(rf'^/(\w+)/{side}: "(.*)"$', report["rep_findings"], flags=re.M))
    verdicts = [verdict_of[claim.name] for claim in claims]
    return f"{verdicts.count('holds')} of {sum(verdict in ('holds', 'does not hold') for verdict in verdicts)}"


def table() -> str:
    """The findings, each with its command and how many of its claims hold."""
    demo = load_profile("demo")
    moved = {"transfer_models": demo.transfer_models, "transfer_datasets": demo.transfer_datasets}
    head = ("finding", "command", "minutes", "notebooks", "on the paper's numbers", "on the demo", "on two real models")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for number, notebooks in finding.NEEDS.items():
        some = [claim for claim in CLAIMS if claim.group == f"Finding {number}"]
        pairs, kinds = (demo.models, demo.datasets), finding.frame_kinds(number)
        signals = run_results.load_signals("replay", *pairs, EvaluationChoices(), kinds)
        here = run_results.results_of_run("replay", signals, *pairs, kinds=kinds, **moved)
        sides = [counted(judge_all(results, some)) for results in (published(), here)]
        sides.append(counted_in_report("replay-small", "here", some))
        names = ", ".join(name.split("_")[0] for name in notebooks)
        said, command = FINDINGS[f"Finding {number}"], f"`./run_all.sh finding {number}`"
        lines.append(f"| {number}. {said} | {command} | {MINUTES[number]} | {names} | {' | '.join(sides)} |")
    return "\n".join(lines)


def renewed(text: str) -> str:
    return replace_table(text, BEGIN, table())


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(renewed(readme.read_text(encoding="utf-8")), encoding="utf-8")
