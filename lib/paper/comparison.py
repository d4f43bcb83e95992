"""A run beside the paper: its findings, and each of its numbers.

Only the paper's own models can reproduce the paper: a number of any other is shown beside nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from lib.paper.calibration_tables import families
from lib.paper.claims import Verdict
from lib.paper.layout import about
from lib.paper.results import PAIR, Evidence
from lib.score.estimators import ESTIMATORS

# Where the paper's models and questions come from, by the label it prints: a file of another source is another model.
SOURCES = {
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "Llama-3.2-3B": "meta-llama/Llama-3.2-3B-Instruct",
    "DeepSeek-R1-8B": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    "Qwen3-8B-Thinking": "Qwen/Qwen3-8B",
    "Qwen3-4B-Instruct": "Qwen/Qwen3-4B-Instruct-2507",
}
_MOVED = ["method", "source_model", "source_dataset"]
KEYS = {  # what tells the numbers of a table apart, beside model, dataset, estimator and metric (as its builder does)
    "result_estimation": [], "result_estimation_full": [], "insitu_ptrue": [], "result_isotonic": [],
    "dropout_grid_search": ["rate"], "bin_ablation": ["bins"],
    "result_calibration": ["method"], "result_calibration_full": ["method"],
    "calibration_transfer_full": _MOVED, "calibration_transfer_summary": _MOVED,
}  # fmt: skip


@dataclass(frozen=True)
class Listing:
    """Records for the report, and a short form of them for the reader of the notebook."""

    records: pd.DataFrame
    shown: pd.DataFrame = field(repr=False)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        records = json.loads(self.records.to_json(orient="records", double_precision=6))
        return {"text/html": self.shown.to_html(index=False, na_rep=""), "text/plain": self.shown.to_string(),
                "application/json": records}  # fmt: skip


# ---- findings


WORDS: dict[bool | None, str] = {True: "holds", False: "does not hold"}
UNSAID = {"paper": "no number printed", "here": "not made by this run"}  # what a claim needs is not there


def findings(paper: Mapping[str, Verdict], here: Mapping[str, Verdict] | None = None) -> Listing:
    """Every finding with its verdict on the paper's numbers and, beside it, on a run's, and the rows that decide."""
    records = []
    for name, on_paper in paper.items():
        sides = {"paper": on_paper} | ({"here": here[name]} if here else {})
        claim = on_paper.claim
        record = {"name": name, "finding": claim.statement, "place": claim.place}
        for side, v in sides.items():
            rows = json.loads(v.rows.round(4).to_json(orient="split", index=False))
            record |= {side: WORDS.get(v.held, UNSAID[side]), f"{side}_said": v.said, f"{side}_rows": rows}
        records.append(record)
    frame = pd.DataFrame(records)
    return Listing(frame, frame[[c for c in frame if c not in ("name", "place") and not c.endswith("_rows")]])


# ---- numbers


def _of(table: str, e: Evidence) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """{name: label} of the models and datasets that a table shows, as it prints them."""
    if "transfer" in table:
        return families(e.moved[0]), e.moved[1]
    return e.binned if table == "bin_ablation" else e.models, e.datasets


def _numbers(table: str, e: Evidence) -> pd.DataFrame:
    """The numbers that a table shows, keyed as its builder keys them, each with the name of its cell."""
    models, datasets = _of(table, e)
    frame, keys = e.frames[table], [*PAIR, "estimator", "metric", *KEYS[table]]
    shown = frame.model.isin(list(models)) & frame.dataset.isin(list(datasets))
    if "method" in frame and "transfer" not in table:
        raw, isotonic = frame["method"] == "", frame["method"] == "isotonic"
        shown &= isotonic if table == "result_isotonic" else ~raw if "calibration" in table else raw
    kept = frame[shown].assign(estimator="") if "transfer" in table else frame[shown]
    kept = kept.dropna(subset="value").drop_duplicates(keys)
    kept = kept.assign(about=[about(key) for key in kept[keys].itertuples(index=False)])
    return kept.reindex(columns=[*keys, "value", "low", "high", "about"]).astype({"value": float})


def _printed_names(table: str, frame: pd.DataFrame, e: Evidence) -> pd.DataFrame:
    models, datasets = _of(table, e)
    names = {"model": models, "source_model": models, "dataset": datasets, "source_dataset": datasets}
    return frame.assign(**{c: frame[c].map(lambda name, to=to: to.get(name, name))
                           for c, to in names.items() if c in frame})  # fmt: skip


def _paired(table: str, e: Evidence, paper: Evidence, foreign: set[str], intervals: Mapping) -> pd.DataFrame:
    """One table's numbers beside the paper's, metric by metric that it prints."""
    estimators = [name for name, one in ESTIMATORS.items() if one.definition]
    keys = [*PAIR, "estimator", "metric", *KEYS[table]]
    here, printed = _numbers(table, e), paper.frames[table]
    known = {*printed.estimator, *(estimators if table.startswith("result") else ())}
    here = here[here.metric.isin(printed.metric) & (here.estimator.isin(known) | (here.estimator == ""))]
    alien = here.model.isin(foreign) | (here.source_model.isin(foreign) if "source_model" in here else False)
    here = _printed_names(table, here, e).assign(alien=alien)
    there = _numbers(table, paper).drop(columns="about")
    both = here.merge(there, on=keys, how="left", suffixes=("", "_paper"))
    both.loc[both.alien, ["value_paper", "low_paper", "high_paper"]] = float("nan")
    if table.startswith("result_") or table == "insitu_ptrue":
        method = both["method"] if "method" in both else ["isotonic" * (table == "result_isotonic")] * len(both)
        keyed = zip(both.model, both.dataset, both.estimator, method, both.metric, strict=True)
        ends = pd.DataFrame([intervals.get(key, (None, None)) for key in keyed], both.index, dtype=float)
        for at, column in enumerate(("low_paper", "high_paper")):
            both[column] = both[column].astype(float).fillna(ends[at].where(both.value_paper.notna()))
    variant = [" ".join(str(v) for v in row if v != "") for row in both[KEYS[table]].itertuples(index=False)]
    return both.assign(table=f"tab_{table}", variant=variant or "", difference=both.value - both.value_paper,
                       verdict=[_verdict(row) for row in both.itertuples()])  # fmt: skip


COLUMNS = ["table", "about", *PAIR, "estimator", "metric", "variant", "value", "low", "high",
           "value_paper", "low_paper", "high_paper", "difference", "verdict"]  # fmt: skip


def beside(e: Evidence, paper: Evidence) -> Listing:
    """Every number of a run's tables beside the paper's: difference, the paper's interval where it prints one (for the
    same quantity in any of its tables), and whether the run's number lies in it."""
    foreign = {name for name, spec in zip(e.models, e.settings, strict=True) if spec.source != SOURCES.get(spec.label)}
    intervals = _intervals(paper)
    frame = pd.concat([_paired(table, e, paper, foreign, intervals)[COLUMNS] for table in KEYS], ignore_index=True)
    frame["estimator"] = [ESTIMATORS[name].plain if name in ESTIMATORS else name for name in frame.estimator]
    counts = frame.groupby(["table", "verdict"], sort=False).size().unstack(fill_value=0)
    return Listing(frame, counts.rename_axis(columns=None).reset_index())


def _intervals(paper: Evidence) -> dict[tuple, tuple[float, float]]:
    """The printed intervals, by (model, dataset, estimator, method, metric)."""
    tables = ("result_estimation_full", "result_calibration_full", "result_isotonic")
    rows = pd.concat([paper.frames[name] for name in tables]).dropna(subset=["low", "high"])
    return {(r.model, r.dataset, r.estimator, r.method, r.metric): (r.low, r.high) for r in rows.itertuples()}


def _verdict(row: Any) -> str:
    if row.alien:
        return "not comparable: another model"
    if pd.isna(row.value_paper):
        return "not in the paper"
    if pd.isna(row.low_paper):
        return "no interval printed"
    half = 0.0005  # printed with three decimals
    return "inside" if row.low_paper - half <= row.value <= row.high_paper + half else "outside"


# ---- ablations


def ablation(e: Evidence) -> Listing:
    """What 09 found, by pair and arm, with the labels of the run; empty where it was not run."""
    frame = e.frames.get("ablation", pd.DataFrame(columns=[*PAIR, "rows"]))
    frame = frame.assign(model=frame.model.map(dict(e.models)), dataset=frame.dataset.map(dict(e.datasets)))
    return Listing(frame, frame.round(3))
