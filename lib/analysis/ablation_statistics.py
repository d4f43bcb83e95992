"""What the text rests on without a table: the demonstration, the answer's format, the cost of a dropout pass.

The format is judged by a grader that also reads \\boxed{}.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from lib.score.ablation import BEGINNINGS
from lib.tasks.answers import grade


def grade_all(answers: Iterable[Any], references: Iterable[str], grader: str) -> list[bool]:
    """Whether each answer is right; a missing one is not."""
    return [grade(answer, reference, grader) for answer, reference in zip(answers, references, strict=True)]


def summarize_ablation(ablation: pd.DataFrame, grader: str = "numeric") -> pd.DataFrame:
    """By pair and arm: rows, accuracy, share of answers found (`extracted`), and accuracy where \\boxed{} counts for a
    response without `####`."""
    extracted = [isinstance(answer, str) for answer in ablation.answer]
    lenient = [row.answer if isinstance(row.answer, str) else row.boxed for row in ablation.itertuples()]
    graded = ablation.assign(
        rows=1,
        extracted=extracted,
        accuracy=grade_all(ablation.answer, ablation.reference, grader),
        accuracy_boxed=grade_all(lenient, ablation.reference, grader),
    )
    by = graded.groupby(["model", "dataset", "demonstration", "profile"], sort=False)
    shares = {name: (name, "mean") for name in ("accuracy", "extracted", "accuracy_boxed")}
    return by.agg(rows=("rows", "sum"), **shares).reset_index()


def compare_demonstrations(ablation: pd.DataFrame, grader: str = "numeric") -> pd.DataFrame:
    """With the paper's example (`one`) and with `none`, question by question, by pair and outcome (accuracy,
    extracted): rows, those in which it is so `with` the example alone and `without` it alone, and the p-value of
    McNemar's exact test, two-sided."""
    graded = ablation.assign(
        extracted=[isinstance(answer, str) for answer in ablation.answer],
        accuracy=grade_all(ablation.answer, ablation.reference, grader),
    )
    records = []
    for pair, rows in graded.groupby(["model", "dataset"], sort=False):
        for outcome in ("accuracy", "extracted"):
            arms = rows.pivot(index="example_id", columns="demonstration", values=outcome)
            arms = arms.reindex(columns=["one", "none"]).dropna().astype(bool)
            if arms.empty:  # a model may not be askable in both ways
                continue
            only, other = int((arms.one & ~arms.none).sum()), int((~arms.one & arms.none).sum())
            p = float(binomtest(only, only + other).pvalue) if only + other else 1.0
            records.append((*pair, outcome, len(arms), only, other, p))
    return pd.DataFrame(records, columns=["model", "dataset", "outcome", "rows", "with", "without", "p"])


def graded_by_arm(ablation: pd.DataFrame, grader: str = "numeric") -> pd.DataFrame:
    """Whether the answer to each question (rows, by id) is right in each arm (columns)."""
    right = grade_all(ablation.answer, ablation.reference, grader)
    return ablation.assign(right=right).pivot(index="example_id", columns="demonstration", values="right")


def find_changed_answer(ablation: pd.DataFrame, own: str, grader: str = "numeric") -> tuple[str, str]:
    """A question whose answer is right in the run's `own` arm or in another, not in both, and that arm; where there is
    none, the first question and any other arm (`own` itself, where there is no other)."""
    right = graded_by_arm(ablation, grader)
    others = [arm for arm in BEGINNINGS if arm != own and arm in right]
    for other in others:
        changed = right.index[right[other] != right[own]]
        if len(changed):
            return str(changed[0]), other
    return str(right.index[0]), others[0] if others else own


def responses_to(example_id: str, frames: Mapping[str, pd.DataFrame], arms: Sequence[str]) -> dict[str, str]:
    """The texts of the responses to one question by arm, of `frames` of generations by arm; of answers that a smaller
    run made there are none."""
    texts = {arm: frames[arm].reindex(columns=["example_id", "text"]).set_index("example_id").text[example_id]
             for arm in arms}  # fmt: skip
    return {arm: text if isinstance(text, str) else "(not kept)" for arm, text in texts.items()}


def pass_costs(manifests: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """What `mc_dropout.count_operations` left in manifests: model, dataset, passes, operations."""
    rows = [(*facts["pair"], int(passes), operations)
            for facts in manifests for passes, operations in facts["operations"].items()]  # fmt: skip
    return pd.DataFrame(rows, columns=["model", "dataset", "passes", "operations"])
