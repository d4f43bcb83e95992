"""What the text rests on without a table: the demonstration, the answer's format, the cost of a dropout pass.

A few evaluation questions of each pair are asked again with each other beginning of the prompt: the paper's example, a
few worked ones, nothing. The format is judged by a grader that also reads \\boxed{}.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

import pandas as pd
from scipy.stats import binomtest

from lib.params import Demonstration, Generation
from lib.store import KEYS
from lib.tasks.answers import grade
from lib.tasks.datasets import Example

BEGINNINGS: tuple[Demonstration, ...] = get_args(Generation.model_fields["demonstration"].annotation)
ABLATION_COLUMNS = [*KEYS, "reference", "answer", "boxed", "finish_reason"]


def choose_ablation_rows(
    generations: pd.DataFrame, rows: int, seed: int = 0, before: Iterable[str] = ()
) -> pd.DataFrame:
    """A sample of one pair's evaluation rows: those that a smaller run asked `before`, then the first in the order of
    sha256("seed|dataset|example_id"), alike for every model; in their own order."""
    evaluation, before = generations[generations.split == "evaluation"], set(before)
    order = sorted((row.example_id not in before,
                    hashlib.sha256(f"{seed}|{row.dataset}|{row.example_id}".encode()).hexdigest(), place)
                   for place, row in enumerate(evaluation.itertuples()))  # fmt: skip
    return evaluation.iloc[sorted(place for *_, place in order[:rows])]


def ask_again(arms: Mapping[Demonstration, Callable[[list[Example]], pd.DataFrame]],
              asked: Iterable[tuple[Demonstration, Example]]) -> pd.DataFrame:  # fmt: skip
    """The answers of each arm, by what makes them, to the questions that it is asked."""
    questions: dict[Demonstration, list[Example]] = {}
    for arm, example in asked:
        questions.setdefault(arm, []).append(example)
    return pd.concat([arms[arm](some).assign(demonstration=arm) for arm, some in questions.items()])


def examples_of_rows(generations: pd.DataFrame) -> list[Example]:
    """The questions of a generations frame, to be asked again."""
    return [Example(*row) for row in generations[list(Example._fields)].itertuples(index=False)]


def other_demonstrations(demonstration: Demonstration) -> list[Demonstration]:
    """The beginnings of the prompt that a run did not use."""
    return [other for other in BEGINNINGS if other != demonstration]


def combine_arms(rows: pd.DataFrame, demonstration: Demonstration, asked_again: Mapping[Demonstration, pd.DataFrame]
         ) -> pd.DataFrame:  # fmt: skip
    """Every answer to each question: of the run's own `rows` (`profile`), and of each other beginning."""
    own = rows[ABLATION_COLUMNS].assign(demonstration=demonstration, profile=True)
    parts = [frame[ABLATION_COLUMNS].assign(demonstration=other, profile=False) for other, frame in asked_again.items()]
    return pd.concat([own, *parts], ignore_index=True)


def summarize_ablation(ablation: pd.DataFrame, grader: str = "numeric") -> pd.DataFrame:
    """By pair and arm: rows, accuracy, share of answers found (`extracted`), and accuracy where \\boxed{} counts for a
    response without `####`."""
    extracted = [isinstance(answer, str) for answer in ablation.answer]
    lenient = [row.answer if isinstance(row.answer, str) else row.boxed for row in ablation.itertuples()]
    graded = ablation.assign(
        rows=1,
        extracted=extracted,
        accuracy=[grade(*pair, grader) for pair in zip(ablation.answer, ablation.reference, strict=True)],
        accuracy_boxed=[grade(*pair, grader) for pair in zip(lenient, ablation.reference, strict=True)],
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
        accuracy=[grade(*pair, grader) for pair in zip(ablation.answer, ablation.reference, strict=True)],
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
    right = [grade(*pair, grader) for pair in zip(ablation.answer, ablation.reference, strict=True)]
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


def describe_arms(ablation: pd.DataFrame, example_id: str, grader: str = "numeric") -> str:
    """Of one question in which arm the answer is right."""
    right = graded_by_arm(ablation, grader).loc[example_id]
    return f"{example_id}: " + ", ".join(f"{arm} {'right' if value else 'wrong'}" for arm, value in right.items())


def pass_costs(manifests: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """What `dropout.operations` left in manifests: model, dataset, passes, operations."""
    rows = [(*facts["pair"], int(passes), operations)
            for facts in manifests for passes, operations in facts["operations"].items()]  # fmt: skip
    return pd.DataFrame(rows, columns=["model", "dataset", "passes", "operations"])
