"""A run beside the paper: its findings, and each of its numbers.

Only the paper's own models, sampled as it says, on its own questions can reproduce the paper: a number of any other is
shown beside nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from scipy.stats import norm

from lib.paper.findings import ClaimVerdict
from lib.paper.folded import in_sentences
from lib.paper.results import QUESTIONS, Results
from lib.paper.table import Number
from lib.paper.targets import all_targets, target
from lib.score.estimators import ESTIMATORS
from lib.store import PAIR

# Our reading of the models and datasets that the paper names by these labels; it gives no repository and no revision.
SOURCES = {
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "Llama-3.2-3B": "meta-llama/Llama-3.2-3B-Instruct",
    "DeepSeek-R1-8B": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    "Qwen3-8B-Thinking": "Qwen/Qwen3-8B",
    "Qwen3-4B-Instruct": "Qwen/Qwen3-4B-Instruct-2507",
}
DECODING = ("temperature", "top_p", "top_k", "min_p", "system_prompt")
# Of a faithful rerun's numbers: both they and the paper's vary, so a 95% interval around one holds fewer of the other.
INSIDE_EXPECTED = 2 * float(norm.cdf(norm.ppf(0.975) / 2**0.5)) - 1


@dataclass(frozen=True)
class Listing:
    """Records for the report, and a short form of them for the reader of the notebook."""

    records: pd.DataFrame
    shown: pd.DataFrame = field(repr=False)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        records = json.loads(self.records.to_json(orient="records", double_precision=15))
        return {"text/html": in_sentences(self.shown, na_rep=""), "text/plain": self.shown.to_string(),
                "application/json": records}  # fmt: skip


# ---- findings

VERDICT_WORDS: dict[bool | None, str] = {True: "holds", False: "does not hold", None: "cannot be judged here"}
UNSAID = {"paper": "no number printed", "here": "not made by this run"}  # what a finding needs is not there
FACTS = ("name", "group", "kind", "statement", "quote", "word", "place")  # of a finding, for the report


@target("rep_findings", published=True)
def findings(paper: Mapping[str, ClaimVerdict], here: Mapping[str, ClaimVerdict] | None = None) -> Listing:
    """Every finding with its verdict on the paper's numbers and, beside it, on a run's, and the rows that decide."""
    records = []
    for name, on_paper in paper.items():
        record: dict[str, Any] = {fact: getattr(on_paper.finding, fact) for fact in FACTS}
        sides = {"paper": on_paper}
        if here is not None:
            sides["here"] = here[name]
        for side, verdict in sides.items():
            record[side] = VERDICT_WORDS[verdict.held]
            record[f"{side}_said"] = verdict.said or verdict.reason or UNSAID[side]
            record[f"{side}_rows"] = json.loads(verdict.rows.to_json(orient="split", index=False, double_precision=15))
        records.append(record)
    frame = pd.DataFrame(records)
    unshown = ("name", "kind", "place", "word")
    return Listing(frame, frame[[c for c in frame if c not in unshown and not c.endswith("_rows")]])


# ---- numbers

MOVES, STANDS = "moves under rounding", "stands"
FOREIGN = "not comparable: "  # the beginning of such a verdict
CELL_KEY = [*PAIR, "estimator", "metric"]
NUMBERS = ["value", "low", "high", "value_paper", "low_paper", "high_paper", "difference"]
COMPARED_COLUMNS = ["table", "key", *CELL_KEY, "variant", *NUMBERS, "verdict", "moves"]


@target("rep_numbers")
def beside(here: Results, paper: Results, moved: pd.DataFrame | None = None) -> Listing:
    """Every number that a run's tables show beside the paper's in the same table: difference, the paper's interval
    where it prints one (for the same quantity in any of its tables), and whether the run's number lies in it; and
    whether rounding moves it, where that was tried (`moved`, as `rounding.moves` returns it)."""
    shown = {table.name: table.of(here).numbers for table in all_targets() if table.of and not table.extra}
    printed = {table.name: {_quantity(number): number for number in table.of(paper).numbers}
               for table in all_targets() if table.of and table.published}  # fmt: skip
    bounded = {quantity: number for numbers in printed.values() for quantity, number in numbers.items()
               if number.low is not None}  # fmt: skip
    foreign = foreign_models(here, paper) | foreign_questions(here)
    records = []
    for name, numbers in shown.items():
        for number in numbers:
            record, quantity = {"table": name} | _record(number), _quantity(number)
            names = [number.key.get(column) for column in (*PAIR, "source_model", "source_dataset")]
            reasons = [foreign[name] for name in names if name in foreign]
            if reasons:
                record["verdict"] = FOREIGN + reasons[0]
            elif quantity not in printed.get(name, {}):
                record["verdict"] = "not in the paper"
            else:
                there = printed[name][quantity]
                record |= _against(number, there, bounded.get(quantity, there) if there.low is None else there)
            records.append(record)
    frame = pd.DataFrame(records, columns=COMPARED_COLUMNS).astype(dict.fromkeys(NUMBERS, float))
    counts = frame.groupby(["table", "verdict"], sort=False).size().unstack(fill_value=0)
    if moved is not None:
        frame["moves"] = pd.MultiIndex.from_frame(frame[["table", "key"]]).map(describe_changes(moved)).fillna(STANDS)
        counts[MOVES] = (frame["moves"] != STANDS).groupby(frame.table).sum()
    return Listing(frame.astype({"moves": object}), counts.rename_axis(columns=None).reset_index())


def describe_changes(moved: pd.DataFrame) -> pd.Series:
    """Of each number, by table and key: that it stands, or in how many draws its cell reads otherwise, and by how much
    it moves at most."""
    words = [f"{row.moved} of {row.draws}, by {row.moves:.1g}" if row.moved else STANDS for row in moved.itertuples()]
    return pd.Series(words, pd.MultiIndex.from_frame(moved[["table", "key"]]), dtype=object)


def foreign_models(here: Results, paper: Results) -> dict[str, str]:
    """Models of a run that are not the paper's, or not sampled as it says, and why."""
    printed = {spec.label: spec for spec in paper.settings}
    reasons = {}
    for name, spec in zip(here.models, here.settings, strict=True):
        if spec.source != SOURCES.get(spec.label):
            reasons[name] = "another model"
        elif any(getattr(spec, setting) != getattr(printed[spec.label], setting) for setting in DECODING):
            reasons[name] = "other decoding settings"
    return reasons


def foreign_questions(here: Results) -> dict[str, str]:
    """Datasets of a run that are not the paper's, or not as many rows of them, and why."""
    reasons = {}
    for name, (source, *rows) in here.questions.items():
        expected, *sizes = QUESTIONS.get(here.datasets[name], (None, 0, 0))
        if source != expected:
            reasons[name] = "other questions"
        elif rows != sizes:
            reasons[name] = "other numbers of questions"
    return reasons


def _quantity(number: Number) -> tuple:
    """What is measured, in the words of the tables: the same in every table that shows it."""
    return tuple(number.labels.items())


def _record(number: Number) -> dict[str, Any]:
    labels = number.labels
    plain = {name: e.plain for name, e in ESTIMATORS.items()}
    variant = " ".join(str(label) for name, label in labels.items() if name not in CELL_KEY and label != "")
    return {"key": number.name, **{name: labels[name] for name in CELL_KEY}, "variant": variant,
            "estimator": plain.get(labels["estimator"], labels["estimator"]),
            "value": number.value, "low": number.low, "high": number.high}  # fmt: skip


def _against(number: Number, there: Number, bounds: Number) -> dict[str, Any]:
    """A number against the paper's, and within `bounds`, the same quantity where the paper prints its interval."""
    record = {"value_paper": there.value, "low_paper": bounds.low, "high_paper": bounds.high,
              "difference": number.value - there.value}  # fmt: skip
    if bounds.low is None or bounds.high is None:
        return record | {"verdict": "no interval printed"}
    half = 0.0005  # printed with three decimals
    inside = bounds.low - half <= number.value <= bounds.high + half
    return record | {"verdict": "inside" if inside else "outside"}


# ---- ablations


@target("rep_ablation")
def ablation(here: Results) -> Listing:
    """What 04b found, by pair and arm, with the labels of the run; empty where it was not run."""
    frame = here.frames.get("ablation", pd.DataFrame(columns=[*PAIR, "rows"]))
    frame = frame.assign(model=frame.model.map(dict(here.models)), dataset=frame.dataset.map(dict(here.datasets)))
    return Listing(frame, frame.round(3))
