"""The views on calibration and transfer, on the setup, and on the ablation (see `estimation_claims`)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.analysis.printed_numbers import PAPER_ESTIMATORS
from lib.analysis.results import Results
from lib.paper.reference import paper_facts
from lib.paper.claim_cases import (
    CELL,
    MIN_CASES,
    NotApplicable,
    compare_with_hardest,
    hardest_dataset,
    pivot_values,
    rows_of_table,
    uncalibrated,
)
from lib.store import PAIR

TRANSFER_KEY = ["source_model", "source_dataset", *PAIR, "method"]
CALIBRATED_ESTIMATORS = ["ans_avg", "ans_joint", "p_true"]  # of `tab:result_calibration`
METHOD_KEY = [*PAIR, "method"]

# ---- calibration


def _calibrated(
    results: Results, table: str = "result_calibration", estimators: Sequence[str] = CALIBRATED_ESTIMATORS
) -> pd.DataFrame:
    """Return the ECE of these estimators after each method, with its relative improvement."""
    rows = rows_of_table(results, table).query("method != '' and estimator in @estimators").dropna(subset="relative")
    return rows[[*CELL, "method", "value", "relative"]]


def isotonic_gains(results: Results) -> pd.DataFrame:
    """relative improvement of ECE by isotonic regression, by pair and estimator"""
    return _calibrated(results, "result_isotonic", PAPER_ESTIMATORS).query("method == 'isotonic'")


def platt_gains(results: Results) -> pd.DataFrame:
    """relative improvement of ECE by temperature or Platt scaling, by pair and estimator"""
    return _calibrated(results).query("method == 'platt'")


def median_gains(results: Results) -> pd.DataFrame:
    """median relative improvement of ECE of each method"""
    medians = _calibrated(results).groupby("method").relative.median().reindex(["isotonic", "platt"])
    if medians.isna().any():
        raise NotApplicable("one of both methods was not fitted")
    return medians.rename("median_gain").reset_index()


def calibrated_ece(results: Results) -> pd.DataFrame:
    """ECE after isotonic regression and after temperature or Platt scaling, with the gains, by pair and estimator"""
    rows = _calibrated(results)
    return pivot_values(rows, "method", index=CELL).join(
        pivot_values(rows, "method", "relative", CELL).add_suffix("_gain")
    )


def raw_and_calibrated(results: Results) -> pd.DataFrame:
    """ECE before and after calibration, by pair, estimator and method"""
    before = uncalibrated(results).reset_index().melt(PAIR, var_name="estimator", value_name="raw")
    return _calibrated(results).rename(columns={"value": "calibrated"}).merge(before, on=CELL)


def curved_reliability(results: Results) -> pd.DataFrame:
    """ECE of Ans Avg by pair after both methods, and the p-value of a quadratic term in the logit"""
    curved = results.frame("calibration_rows").set_index(PAIR).curved.rename("p_quadratic")
    rows = rows_of_table(results, "result_calibration").query(
        "estimator == 'ans_avg' and method in ['isotonic', 'platt']"
    )
    table = pivot_values(rows, "method").dropna()
    if (curved < 0.05).any() and not {"isotonic", "platt"} <= set(table):
        raise NotApplicable("temperature was not fitted: no logits are there")
    return table.join(curved, how="inner")


def errors_by_model(results: Results) -> pd.DataFrame:
    """confident errors (above .9) in 50 calibration rows by model, on the hardest dataset, and the most elsewhere"""
    table = pivot_values(results.frame("calibration_rows"), "dataset", "confident_errors", ["model"])
    return compare_with_hardest(results, table)


def _learning_curves(results: Results) -> pd.DataFrame:
    """Return the ECE by the number of calibration rows `n`, and that of the raw score."""
    rows = results.frame("learning", sampling="uniform").astype({"n": float})
    before = rows[rows["method"] == ""].set_index(PAIR)["mean"].rename("raw")
    return rows[rows["method"] != ""].join(before, on=PAIR)


def learning_at_fifty(results: Results) -> pd.DataFrame:
    """ECE of Ans Avg by pair and method: raw, calibrated with 50 rows (or the nearest size), and with all"""
    rows = _learning_curves(results)
    nearest = rows.assign(distance=np.log(rows.n / 50).abs()).sort_values("distance").groupby(METHOD_KEY).first()
    few = nearest[["n", "raw", "mean"]].set_axis(["rows", "raw", "few"], axis=1)
    return few.join(rows.sort_values("n").groupby(METHOD_KEY)["mean"].last().rename("every"))


def rows_needed(results: Results) -> pd.DataFrame:
    """fewest calibration rows with which nine draws in ten improve, by model, method and dataset, and on the hardest"""
    rows = _learning_curves(results)
    needed = rows[rows.high < rows.raw].groupby(METHOD_KEY).n.min().reindex(rows.set_index(METHOD_KEY).index.unique())
    needed = needed.fillna(np.inf).rename("needed").reset_index()
    hard = needed.dataset == hardest_dataset(results)
    on_hard = needed[hard].set_index(["model", "method"]).needed.rename("needed_on_hardest")
    both = needed[~hard].join(on_hard, on=["model", "method"]).dropna()
    told = both[both[["needed", "needed_on_hardest"]].max(axis=1) > rows.n.min()]
    if len(both) and told.empty:
        raise NotApplicable("the fewest rows tried are enough on every dataset")
    return told


# ---- transfer


def _arrows(results: Results) -> pd.DataFrame:
    """Return the arrows of `tab:calibration_transfer_summary`: both ends are among its models and datasets, and exactly
    one of the two changes; `changed` names it."""
    rows = rows_of_table(results, "calibration_transfer_summary", "delta_ece").query("method != ''")
    for labels, kind in zip(results.transfer_labels, PAIR, strict=True):
        rows = rows[rows[kind].isin(list(labels)) & rows[f"source_{kind}"].isin(list(labels))]
    other_model = rows.source_model != rows.model
    rows = rows.assign(changed=np.where(other_model, "model", "dataset"), delta_ece=rows.value)
    rows = rows[other_model != (rows.source_dataset != rows.dataset)]
    if rows.empty:
        raise NotApplicable("no arrow between models or datasets")
    return rows[[*TRANSFER_KEY, "changed", "delta_ece"]]


def transfers(results: Results) -> pd.DataFrame:
    """change of ECE by a calibrator of another dataset or model"""
    rows, hardest = _arrows(results), hardest_dataset(results)
    llama, qwen = (
        [name for name, label in results.transfer_labels[0].items() if family in label.lower()]
        for family in ("llama", "qwen")
    )
    return rows.assign(
        onto_hardest=rows.dataset == hardest,
        from_hardest=rows.source_dataset == hardest,
        llama_to_qwen=rows.source_model.isin(llama) & rows.model.isin(qwen),
    )


def _between_models(results: Results) -> pd.DataFrame:
    """Return the change of ECE between models, except on the hardest dataset."""
    return transfers(results).query("changed == 'model' and not onto_hardest")[[*TRANSFER_KEY, "delta_ece"]]


def transfers_both_ways(results: Results) -> pd.DataFrame:
    """change of ECE between two models, off the hardest dataset, one way and back"""
    rows = _between_models(results)
    back = rows.rename(columns={"source_model": "model", "model": "source_model", "delta_ece": "back"})
    return rows[rows.source_model < rows.model].merge(back, on=TRANSFER_KEY)


def largest_transfer(results: Results) -> pd.DataFrame:
    """largest change of ECE between models, off the hardest dataset"""
    rows = _between_models(results)
    if rows.empty:
        raise NotApplicable("no arrow between models")
    return pd.DataFrame({"largest": [rows.delta_ece.max()]})


def transfers_twice(results: Results) -> pd.DataFrame:
    """change of ECE by transfer, in the summary and in the full table"""
    summary = _arrows(results).rename(columns={"delta_ece": "summary"})
    errors = rows_of_table(results, "calibration_transfer_full")
    before = errors[errors["method"] == ""].set_index(PAIR).value.rename("before")
    both = summary.merge(errors[[*TRANSFER_KEY, "value"]], on=TRANSFER_KEY).join(before, on=PAIR)
    return both.assign(full=both.value - both.before)


def calibrated_twice(results: Results) -> pd.DataFrame:
    """ECE after calibration, in the short and in the full table"""
    both = [
        rows_of_table(results, table).query("method != ''").set_index([*CELL, "method"]).value
        for table in ("result_calibration", "result_calibration_full")
    ]
    return pd.concat(both, axis=1, keys=["short", "full"], join="inner")


# ---- setup and ablation


def evaluation_questions(results: Results) -> pd.DataFrame:
    """evaluation questions in total"""
    return pd.DataFrame({"questions": [results.frame("rows")["rows"].sum()]})


def decoding_settings(results: Results) -> pd.DataFrame:
    """decoding settings by model, used and published"""
    published, rows = paper_facts()["published_settings"], []
    for spec in (spec for spec in results.settings if spec.label in published):
        own = {name: getattr(spec, name) for name in ("temperature", "top_p", "top_k")}
        named = own | published[spec.label]  # a publication may omit a setting
        rows.append({"model": spec.label} | own | {f"published_{name}": value for name, value in named.items()})
    if not rows:
        raise NotApplicable("not the paper's models")
    return pd.DataFrame(rows)


def boxed_answers(results: Results) -> pd.DataFrame:
    r"""share of DeepSeek's wrong answers that are right once \boxed{} counts, by pair"""
    rows = results.frame("ablation")
    taught = [name for name, label in results.models.items() if label.startswith("DeepSeek")]
    if not taught:
        raise NotApplicable("no model of this run was taught \\boxed{}")
    rows = rows.query("profile and model in @taught")
    wrong = (1 - rows.accuracy).where(rows.accuracy < 1)
    return rows[PAIR].assign(recovered=(rows.accuracy_boxed - rows.accuracy) / wrong)


def _with_demonstration(results: Results, outcome: str) -> pd.DataFrame:
    """Return questions that only the prompt with the demonstration, or only that without, gets right or parses."""
    rows = results.frame("demonstration", outcome=outcome).drop(columns="outcome")
    rows = rows.rename(columns={"with": "only_with", "without": "only_without"}).query("only_with + only_without > 0")
    if rows.empty:
        raise NotApplicable("saturated: both prompts do the same on every question")
    if rows["rows"].max() < MIN_CASES:
        raise NotApplicable(f"fewer than {MIN_CASES} questions")
    return rows


def right_with_demonstration(results: Results) -> pd.DataFrame:
    """questions by pair answered right with the demonstration alone, and without it alone; p of McNemar's exact test"""
    return _with_demonstration(results, "accuracy")


def read_with_demonstration(results: Results) -> pd.DataFrame:
    """answers by pair found with the demonstration alone, and without it alone; p of McNemar's exact test"""
    return _with_demonstration(results, "extracted")
