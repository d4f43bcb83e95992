"""Comparison of a run with the paper: its findings, and each of its numbers.

Only the paper's own models, with its sampling and its questions, can reproduce the paper. Numbers of other models are
not compared.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from lib.analysis.results import Results
from lib.paper.all_tables import printed_numbers
from lib.paper.cells import format_key_part
from lib.paper.numbers_of_paper import paper_facts
from lib.paper.report_records import ReportRecords
from lib.paper.verdicts import VERDICT_WORDS, Verdict
from lib.score.estimators import ESTIMATORS
from lib.store import PAIR

DECODING = ("temperature", "top_p", "top_k", "min_p", "system_prompt")
# Both a faithful rerun's numbers and the paper's vary, so a 95% interval around one contains fewer of the other.
EXPECTED_CAPTURE_RATE = 2 * float(norm.cdf(norm.ppf(0.975) / 2**0.5)) - 1


# ---- claims

NO_NUMBER = {"paper": "no number printed", "here": "not made by this run"}  # the claim lacks its numbers
# Of each claim, for the report:
CLAIM_FACTS = ("name", "group", "quote", "quantifier", "place", "counted")


def list_claims(paper: Mapping[str, Verdict], here: Mapping[str, Verdict] | None = None) -> ReportRecords:
    """List every claim with its verdicts on the paper's numbers and on a run's, and the rows that decide them."""
    records = []
    for name, on_paper in paper.items():
        record: dict[str, Any] = {fact: getattr(on_paper.claim, fact) for fact in CLAIM_FACTS}
        sides = {"paper": on_paper} | ({} if here is None else {"here": here[name]})
        for side, verdict in sides.items():
            record[side] = VERDICT_WORDS[verdict.held]
            record[f"{side}_said"] = verdict.said or NO_NUMBER[side]
            record[f"{side}_rows"] = json.loads(verdict.rows.to_json(orient="split", index=False, double_precision=15))
        records.append(record)
    frame = pd.DataFrame(records)
    unshown = ("name", "place")
    return ReportRecords(frame, frame[[c for c in frame if c not in unshown and not c.endswith("_rows")]])


# ---- numbers

NOT_COMPARABLE = "not comparable: "  # how such a verdict begins
WITH_BOUNDS = ["value", "low", "high"]
PAPER_NUMBERS = [f"{name}_paper" for name in WITH_BOUNDS]
COMPARED_NUMBERS = [*WITH_BOUNDS, *PAPER_NUMBERS, "difference"]
COMPARED_COLUMNS = ["table", "key", *PAIR, "estimator", "metric", "variant", *COMPARED_NUMBERS, "verdict"]
VARIANT = ["method", "source_model_label", "source_dataset_label", "rate", "bins"]
# Key of a number, here and in the paper
SHARED_KEY = ["model_label", "dataset_label", "estimator", "metric", *VARIANT]
HALF_DIGIT = 0.0005  # half of the last decimal in the paper


def compare_with_paper(here: Results, paper: Results) -> ReportRecords:
    """List every number of a run's tables with the paper's number from the same table.

    It has the difference, the paper's interval if any of its tables prints one for this quantity, and whether the run's
    number is inside.
    """
    ours, printed = printed_numbers(here), printed_numbers(paper)
    both = ours.merge(
        printed[["table", *SHARED_KEY, *WITH_BOUNDS]], "left", ["table", *SHARED_KEY], suffixes=("", "_paper")
    )
    elsewhere = ours[SHARED_KEY].merge(
        printed.dropna(subset="low").drop_duplicates(SHARED_KEY, keep="last"), "left", SHARED_KEY
    )
    for end in ("low", "high"):
        both[f"{end}_paper"] = both[f"{end}_paper"].fillna(elsewhere[end]).where(both["value_paper"].notna())
    both["difference"] = both["value"] - both["value_paper"]
    inside = both["value"].between(both["low_paper"] - HALF_DIGIT, both["high_paper"] + HALF_DIGIT)
    verdicts = [both["value_paper"].isna(), both["low_paper"].isna(), inside]
    both["verdict"] = np.select(verdicts, ["not in the paper", "no interval printed", "inside"], "outside")
    reasons = foreign_models(here, paper) | foreign_questions(here)
    foreign = both[["model", "dataset", "source_model", "source_dataset"]].map(reasons.get).bfill(axis=1).iloc[:, 0]
    both.loc[foreign.notna(), "verdict"] = NOT_COMPARABLE + foreign
    both.loc[foreign.notna(), [*PAPER_NUMBERS, "difference"]] = np.nan
    variants = both[VARIANT].map(format_key_part).itertuples(index=False)
    words = {
        "model": both["model_label"],
        "dataset": both["dataset_label"],
        "variant": [" ".join(filter(None, parts)) for parts in variants],
        "estimator": both["estimator"].replace({name: e.plain for name, e in ESTIMATORS.items()}),
    }
    frame = both.assign(**words).reindex(columns=COMPARED_COLUMNS).astype(dict.fromkeys(COMPARED_NUMBERS, float))
    counts = frame.groupby(["table", "verdict"], sort=False).size().unstack(fill_value=0)
    return ReportRecords(frame, counts.rename_axis(columns=None).reset_index())


def foreign_models(here: Results, paper: Results) -> dict[str, str]:
    """Return the models of a run that differ from the paper's, or are sampled differently, with the reason."""
    printed = {spec.label: spec for spec in paper.settings}
    reasons = {}
    for name, spec in zip(here.models, here.settings, strict=True):
        if spec.source != paper_facts()["models"].get(spec.label):
            reasons[name] = "another model"
        elif any(getattr(spec, setting) != getattr(printed[spec.label], setting) for setting in DECODING):
            reasons[name] = "other decoding settings"
    return reasons


def foreign_questions(here: Results) -> dict[str, str]:
    """Return the datasets of a run that differ from the paper's, or have other numbers of rows, with the reason."""
    reasons = {}
    for name, (source, *rows) in here.questions.items():
        printed = paper_facts()["questions"].get(here.datasets[name], {})
        if not printed or source != printed["source"]:
            reasons[name] = "other questions"
        elif rows != [printed["calibration"], printed["evaluation"]]:
            reasons[name] = "other numbers of questions"
    return reasons


# ---- ablations


def list_ablation(here: Results) -> ReportRecords:
    """List the results of 04b by pair and arm, with the run's labels; empty if it was not run."""
    frame = here.frames.get("ablation", pd.DataFrame(columns=[*PAIR, "rows"]))
    frame = frame.assign(model=frame.model.map(dict(here.models)), dataset=frame.dataset.map(dict(here.datasets)))
    return ReportRecords(frame, frame.round(3))
