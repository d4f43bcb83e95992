"""`python docs/tables/expected.py` renews the expected results in ARTIFACT-APPENDIX.md, from the
shipped runs."""

import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tables.findings import SIDES, count, judged
from docs.tables.replacing import replace_table
from docs.tables.small_models import results as of_small
from lib.analysis.signals import load_signals
from lib.paper.verdicts import CLAIMS, FINDINGS
from lib.params import EvaluationChoices, load_profile
from lib.score import evaluation
from workflow.engine.jobs_of_run import Run

PAGE = ROOT / "ARTIFACT-APPENDIX.md"
EXPERIMENTS = "<!-- expected: python docs/tables/expected.py renews this table -->\n"
CLAIMED = "<!-- claims: python docs/tables/expected.py renews this table -->\n"
LEADING = (  # the claims under each finding, of which the paper prints numbers
    "seq_avg_below_answer",
    "seq_joint_below_answer",
    "substantially_better",
    "seq_below_multi_pass",
    "bald_below_p_true",
    "rate_matters",
    "in_situ_comparable",
    "token_reduction",
    "isotonic_reduces",
    "easy_to_hard",
    "hard_to_easy",
)


def jobs(profile: str, run: str) -> int:
    """The number of jobs of a run."""
    return len(Run(run, load_profile(profile).model_dump(mode="json")).jobs)


def demo_errors(model: str, dataset: str) -> dict[str, str]:
    """The ECE of each estimator on a pair of the demo."""
    signals = load_signals("replay", [model], [dataset], EvaluationChoices(), ["verification"])
    errors = {}
    for row in evaluation.evaluate(signals.confidence, names=["ece"]).itertuples():
        errors[row.estimator] = f"{row.value:.3f}".lstrip("0")
    return errors


class Experiment(NamedTuple):
    """What an evaluator runs, and what comes out."""

    name: str
    last_line: str  # of what the command says
    numbers: str
    tolerance: str
    supports: str
    if_it_differs: str


def published() -> Experiment:
    return Experiment(
        "1. `published`",
        "`published: 2 of 2 jobs ran`",
        f"claims: {count('replay', 'paper')}; 12 tables",
        "none",
        "the table code and the verdicts: they give the paper's tables from its numbers",
        "the code that formats tables was changed",
    )


def demo(errors: dict[str, str]) -> Experiment:
    count_of_jobs = jobs("demo", "demo")
    return Experiment(
        "2. the demo",
        f"`demo: {count_of_jobs} of {count_of_jobs} jobs ran`",
        f"tiny-llama, medium: ECE of Seq Avg {errors['seq_avg']}, of Ans Avg {errors['ans_avg']}",
        ".002; see 5",
        "the whole pipeline: models, signals, tables, claims",
        "another processor; 5 tells by how much",
    )


def one_finding(errors: dict[str, str]) -> Experiment:
    verdicts = count("replay", "here", "Finding 3")
    return Experiment(
        "3. `finding 3`",
        f"`Finding 3 on this run: of 4 claims {verdicts}`",
        f"tiny-llama, medium: ECE of P(True) {errors['p_true']}",
        "as 2",
        "a finding can be judged alone, with the rows that decide",
        "a verdict is near its limit: the rows show it",
    )


def real_models() -> Experiment:
    pair = ("qwen2.5-coder-1.5b", "gsm8k")
    seq = of_small()["ECE Seq Avg"][pair]
    ans = of_small()["ECE Ans Avg"][pair]
    isotonic = of_small()["ECE Ans Avg, isotonic"][pair]
    count_of_jobs = jobs("small", "replay-small")
    verdicts = judged("replay-small")
    lower = verdicts["seq_avg_below_answer"]["here_said"]
    reduced = verdicts["isotonic_reduces"]["here_said"]
    return Experiment(
        "4. `replay small`",
        f"`replay-small: {count_of_jobs} of {count_of_jobs} jobs ran`",
        f"1.5B on GSM8K: ECE of Seq Avg {seq}, of Ans Avg {ans}, isotonic {isotonic}; "
        f"claims: {count('replay-small', 'here')}",
        "none",
        f"Finding 1 (lower ECE of Seq Avg: {lower}) and 4 (isotonic reduces: {reduced}) on real "
        "models",
        "a shipped file or the analysis was changed",
    )


def verify() -> Experiment:
    return Experiment(
        "5. `verify`",
        "`verify demo: ... the same`, exit code 0",
        "every number of the demo's tables",
        ".002",
        "your run is ours",
        "`figures/demo/verify.csv` lists each number",
    )


def experiments() -> str:
    """A row for each experiment that an evaluator can run."""
    errors = demo_errors("tiny-llama", "demo-medium")
    rows = [published(), demo(errors), one_finding(errors), real_models(), verify()]
    lines = [
        "| experiment | it says at its end | numbers | tolerance | supports | if it differs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def claims() -> str:
    """The findings, each with its leading claims and their counts on the paper's numbers, the demo
    and real models."""
    lines = [
        "| finding and claim | on the paper's numbers | on the demo | on two real models |",
        "|---|---|---|---|",
    ]
    for group, sentence in FINDINGS.items():
        counts = " | ".join(f"**{count(run, side, group)}**" for run, side in SIDES)
        lines.append(f"| **{group.removeprefix('Finding ')}. {sentence}** | {counts} |")
        for claim in CLAIMS:
            if claim.group == group and claim.name in LEADING:
                cells = " | ".join(verdict(claim.name, run, side) for run, side in SIDES)
                lines.append(f"| \u201c{claim.quote}\u201d: {claim.counted} | {cells} |")
    others = " | ".join(f"**{count(run, side, '(?!Finding)')}**" for run, side in SIDES)
    lines.append(f"| **Abstract and introduction** | {others} |")
    return "\n".join(lines)


def verdict(claim: str, run: str, side: str) -> str:
    """The verdict on a claim, and what it counts."""
    of_claim = judged(run)[claim]
    return f"{of_claim[side]}: {of_claim[f'{side}_said']}"


def renewed(text: str) -> str:
    text = replace_table(text, EXPERIMENTS, experiments())
    return replace_table(text, CLAIMED, claims())


if __name__ == "__main__":
    page = renewed(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
