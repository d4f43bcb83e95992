"""`python docs/tables/expected.py` renews the expected results in ARTIFACT-APPENDIX.md, from the
shipped runs."""

import sys
from pathlib import Path

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
EXPERIMENTS, CLAIMED = (
    f"<!-- {name}: python docs/tables/expected.py renews this table -->\n"
    for name in ("expected", "claims")
)
LEADING = (  # the claims under each finding, of which the paper prints numbers
    "seq_avg_below_answer", "seq_joint_below_answer", "substantially_better", "seq_below_multi_pass",
    "bald_below_p_true", "rate_matters", "in_situ_comparable", "token_reduction", "isotonic_reduces",
    "easy_to_hard", "hard_to_easy",
)  # fmt: skip


def jobs(profile: str, run: str) -> int:
    """The number of jobs of a run."""
    return len(Run(run, load_profile(profile).model_dump(mode="json")).jobs)


def demo_errors(model: str, dataset: str) -> dict[str, str]:
    """The ECE of each estimator on a pair of the demo."""
    scores = load_signals(
        "replay", [model], [dataset], EvaluationChoices(), ("verification",)
    ).confidence
    results = evaluation.evaluate(scores, names=["ece"])
    return {
        row.estimator: f"{row.value:.3f}".lstrip("0")
        for row in results.itertuples()
        if row.metric == "ece"
    }


def experiments() -> str:
    """A row for each experiment that an evaluator can run."""
    demo, pair = demo_errors("tiny-llama", "demo-medium"), ("qwen2.5-coder-1.5b", "gsm8k")
    seq, ans, isotonic = (
        of_small()[f"ECE {name}"][pair] for name in ("Seq Avg", "Ans Avg", "Ans Avg, isotonic")
    )
    demo_jobs, replayed = jobs("demo", "demo"), jobs("small", "replay-small")
    third = count("replay", "here", "Finding 3")
    paper, small = count("replay", "paper"), count("replay-small", "here")
    seq_pairs, isotonic_pairs = (
        judged("replay-small")[name]["here_said"]
        for name in ("seq_avg_below_answer", "isotonic_reduces")
    )
    rows = [
        ("experiment", "it says at its end", "numbers", "tolerance", "supports", "if it differs"),
        ("1. `published`", "`published: 2 of 2 jobs ran`", f"claims: {paper}; 12 tables", "none",
         "the table code and the verdicts: they give the paper's tables from its numbers",
         "the code that formats tables was changed"),
        ("2. the demo", f"`demo: {demo_jobs} of {demo_jobs} jobs ran`",
         f"tiny-llama, medium: ECE of Seq Avg {demo['seq_avg']}, of Ans Avg {demo['ans_avg']}", ".002; see 5",
         "the whole pipeline: models, signals, tables, claims", "another processor; 5 tells by how much"),
        ("3. `finding 3`", f"`Finding 3 on this run: of 4 claims {third}`",
         f"tiny-llama, medium: ECE of P(True) {demo['p_true']}", "as 2",
         "a finding can be judged alone, with the rows that decide", "a verdict is near its limit: the rows show it"),
        ("4. `replay small`", f"`replay-small: {replayed} of {replayed} jobs ran`",
         f"1.5B on GSM8K: ECE of Seq Avg {seq}, of Ans Avg {ans}, isotonic {isotonic}; claims: {small}", "none",
         f"Finding 1 (lower ECE of Seq Avg: {seq_pairs}) and 4 (isotonic reduces: {isotonic_pairs}) on real models",
         "a shipped file or the analysis was changed"),
        ("5. `verify`", "`verify demo: ... the same`, exit code 0", "every number of the demo's tables", ".002",
         "your run is ours", "`figures/demo/verify.csv` lists each number"),
    ]  # fmt: skip
    lines = [rows[0], ("---",) * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def claims() -> str:
    """The findings, each with its leading claims and their counts on the paper's numbers, the demo
    and real models."""
    lines = [
        "| finding and claim | on the paper's numbers | on the demo | on two real models |",
        "|---|---|---|---|",
    ]
    for group, said in FINDINGS.items():
        counts = " | ".join(f"**{count(*side, group)}**" for side in SIDES)
        lines.append(f"| **{group.removeprefix('Finding ')}. {said}** | {counts} |")
        for claim in (one for one in CLAIMS if one.group == group and one.name in LEADING):
            verdicts = [(judged(run)[claim.name], side) for run, side in SIDES]
            cells = " | ".join(f"{one[side]}: {one[f'{side}_said']}" for one, side in verdicts)
            lines.append(f"| \u201c{claim.quote}\u201d: {claim.counted} | {cells} |")
    return "\n".join(lines)


def renewed(text: str) -> str:
    return replace_table(replace_table(text, EXPERIMENTS, experiments()), CLAIMED, claims())


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
