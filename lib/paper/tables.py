"""The paper's tables. Each is a function of all results of a run, or of the paper; bold is
computed.

Each method of `calibrators.METHODS` adds a group of columns, a block of rows, or a column.
Temperature scaling is under the heading Platt, as in the paper.
"""

from collections.abc import Callable
from functools import partial
from itertools import groupby

import pandas as pd

from lib.analysis.results import Results
from lib.calibrate.calibrators import METHODS
from lib.calibrate.transfer import SOURCE
from lib.paper import cells
from lib.paper.booktabs import Table, embolden, escape
from lib.paper.calibration_lines import (
    calibrated_columns,
    join_parameters,
    label_methods,
    label_transfer_pairs,
    transfer_moves,
)
from lib.paper.cells import lines, pair_lines, place_numbers, set_table
from lib.paper.numbers_of_paper import DECODING_SETTINGS
from lib.score.estimators import ESTIMATORS, Estimator
from lib.store import PAIR

ACCURACY = lines({"estimator": {"": "Acc."}, "metric": {"acc": ""}})

# ---- estimators and settings


def estimators(results: Results | None = None) -> Table:
    """Return `tab:estimators`, from the registry."""
    labels = []
    definitions = []
    for estimator in ESTIMATORS.values():
        if estimator.definition:
            labels.append((estimator.group.replace("_", "-"), estimator.label))
            definitions.append(estimator.definition)
    index = pd.MultiIndex.from_tuples(labels, names=[None, r"\textbf{Method}"])
    return Table(pd.DataFrame({r"\textbf{Definition}": definitions}, index), {"": "ll"})


def inference_settings(results: Results) -> Table:
    """Return `tab:inference_settings`: settings in rows, models in columns."""
    models = results.settings
    formats = {"top_k": "{:.0f}", "min_p": "{:g}"}
    rows = {}
    for heading, name in DECODING_SETTINGS.items():
        form = formats.get(name, "{}").format
        rows[heading] = [form(float(getattr(model, name))) for model in models]
    rows["System prompt"] = ["Yes" if model.system_prompt else "No" for model in models]
    labels = [escape(model.label) for model in models]
    headings = pd.Index(list(rows), name=r"\textbf{Setting}")
    texts = pd.DataFrame(list(rows.values()), headings, labels)
    spec = "l" + "c" * len(models)
    return Table(texts, {"": spec}, title=results.title)


# ---- raw confidence


def labels_of(listed: list[Estimator]) -> dict[str, str]:
    """Return the labels of estimators, by name."""
    return {estimator.name: estimator.label for estimator in listed}


def result_estimation(results: Results) -> Table:
    """Return `tab:result_estimation`: accuracy, then ECE and MCE of every estimator.

    A bar separates single-pass from multi-pass; the lowest ECE of a row is bold.
    """
    frame = results.frames["result_estimation"]
    listed = cells.estimators_of(frame)
    rows = pair_lines(results.models, results.datasets)
    errors = lines({"estimator": labels_of(listed), "metric": {"ece": "ECE", "mce": "MCE"}})
    columns = pd.concat([ACCURACY, errors])
    numbers = place_numbers(frame, rows, columns)
    numbers["bold"] = cells.lowest(numbers, numbers.metric == "ece")
    specs = ["llc"]
    for _, group in groupby(listed, lambda estimator: estimator.group):
        specs.append(" ".join("cc" for _ in group))
    return set_table(numbers, rows, columns, " | ".join(specs), results.title)


def result_estimation_full(results: Results) -> Table:
    """Return `tab:result_estimation_full`: every metric with its interval. The lowest ECE of a pair
    is bold."""
    frame = results.frames["result_estimation_full"].query("method == ''")
    listed = cells.estimators_of(frame)
    rows = pair_lines(results.models, results.datasets)
    errors = lines({"estimator": labels_of(listed), "metric": cells.ERRORS})
    columns = pd.concat([ACCURACY, errors])
    numbers = place_numbers(frame, rows, columns)
    numbers["text"] = cells.format_intervals(numbers, r"\scoreci", cells.format_3dp)
    numbers["bold"] = cells.lowest(numbers, numbers.metric == "ece")
    specs = cells.specs_by_part(listed, " ccc", first="c")
    return set_table(numbers, rows, columns, specs, results.title)


def insitu_ptrue(results: Results) -> Table:
    """Return `tab:insitu_ptrue`: ECE of Ans Avg and of both forms of P(True), and the tokens saved
    in percent; no bold."""
    labels = {"ans_avg": "Ans Avg", "p_true_insitu": r"In-situ $\ptrue$", "p_true": r"$\ptrue$"}
    errors = lines({"estimator": labels}, metric="ece")
    saved = lines({"estimator": {"p_true_insitu": r"Reduction (\%)"}}, metric="token_reduction_pct")
    rows = pair_lines(results.models, results.datasets)
    columns = pd.concat([errors, saved])
    numbers = place_numbers(results.frames["insitu_ptrue"], rows, columns)
    percent = cells.format_values(numbers.value, "{:.2f}".format)
    numbers["text"] = numbers.text.where(numbers.metric == "ece", percent)
    bold = r"\textbf{{{}}}".format
    rows = rows.rename_axis(index=bold)
    columns = columns.rename(bold)
    return set_table(numbers, rows, columns, "llcccc", results.title)


# ---- one setting with several values


def dropout_grid_search(results: Results) -> Table:
    """Return `tab:dropout_grid_search`: ECE, MCE and Brier of c_BALD on the tuning examples for
    each dropout rate.

    The row of lowest ECE, the selected rate, is bold; ties go to the lower rate.
    """
    frame = results.frames["dropout_grid_search"]
    rates = {rate: f"{rate:.2f}" for rate in sorted(frame.rate.unique())}
    rows = pair_lines(results.models, results.datasets, rate=rates)
    columns = lines({"metric": cells.ERRORS}, estimator="c_bald")
    numbers = place_numbers(frame, rows, columns)
    lowest = numbers[cells.lowest(numbers, numbers.metric == "ece", *PAIR)]
    selected = lowest.drop_duplicates(PAIR).row
    numbers["bold"] = numbers.row.isin(selected)
    heads = rows.index.to_frame(index=False)
    bold_rates = heads.iloc[selected, -1].map(embolden)
    heads.iloc[selected, -1] = bold_rates
    rows = rows.set_axis(pd.MultiIndex.from_frame(heads))
    return set_table(numbers, rows, columns, "llcccc", results.title)


def bin_ablation(results: Results) -> Table:
    """Return `tab:bin_ablation`: ECE, MCE and Brier of the single-pass estimators for each number
    of bins; no bold."""
    frame = results.frames["bin_ablation"]
    listed = [e for e in cells.estimators_of(frame) if e.group == "single_pass"]
    bins = {count: str(count) for count in frame.bins.unique()}
    rows = pair_lines(results.bin_labels, results.datasets, bins=bins)
    columns = lines({"estimator": labels_of(listed), "metric": cells.ERRORS})
    numbers = place_numbers(frame, rows, columns)
    return set_table(numbers, rows, columns, "lll" + " ccc" * len(listed), results.title)


# ---- calibration


def result_calibration(results: Results, full: bool = False) -> Table:
    """Return `tab:result_calibration`: ECE after each method, and its fitted parameters.

    The lowest ECE of an estimator is bold; ties go to the largest improvement as printed. `full`:
    with intervals.
    """
    frame = results.frames["result_calibration_full" if full else "result_calibration"]
    rows = pair_lines(results.models, results.datasets)
    columns = calibrated_columns(frame)
    numbers = place_numbers(frame, rows, columns)
    is_error = numbers.metric == "ece"
    if full:
        errors = cells.format_intervals(numbers, r"\calci")
    else:
        improved = numbers.text + " (" + cells.format_gains(numbers) + ")"
        errors = improved.where(numbers.relative.notna(), numbers.text)
    parameters = cells.format_values(numbers.value, cells.format_two_digits)
    numbers["text"] = errors.where(is_error, parameters)
    gains = (100 * numbers.relative).round().fillna(0)
    gains_of_lowest = gains.where(cells.lowest(numbers, is_error, "row", "estimator"))
    largest = gains_of_lowest.groupby([numbers.row, numbers.estimator]).transform("max")
    numbers["bold"] = gains_of_lowest == largest
    specs = ["ll"]
    for _, group in groupby(columns["method"]):
        specs.append("c" * len(list(group)))
    join = partial(join_parameters, full=full)
    return set_table(numbers, rows, columns, " | ".join(specs), results.title, join)


def result_calibration_full(results: Results) -> Table:
    """Return `tab:result_calibration_full`: `result_calibration` with intervals."""
    return result_calibration(results, full=True)


def result_isotonic(results: Results) -> Table:
    """Return `tab:result_isotonic`: ECE after isotonic regression, interval and relative
    improvement.

    The largest improvement of a pair as printed, over both parts, is bold.
    """
    frame = results.frames["result_isotonic"].query("method == 'isotonic'")
    listed = cells.estimators_of(frame)
    rows = pair_lines(results.models, results.datasets)
    columns = lines({"estimator": labels_of(listed)}, metric="ece", method="isotonic")
    numbers = place_numbers(frame, rows, columns)
    numbers["text"] = cells.format_intervals(numbers, r"\isoCI")
    gains = (100 * numbers.relative).round()
    numbers["bold"] = gains == gains.groupby(numbers.row).transform("max")
    return set_table(numbers, rows, columns, cells.specs_by_part(listed, "c"), results.title)


# ---- transfer


def calibration_transfer_full(results: Results) -> Table:
    """Return `tab:calibration_transfer_full`: sources in rows, targets in columns.

    Cells whose source is the target are bold.
    """
    frame = results.frames["calibration_transfer_full"]
    pairs = label_transfer_pairs(results, frame)
    source = tuple(SOURCE)
    uncalibrated = lines({"method": {"": "Uncalibrated"}, source: {("", ""): cells.DASH}})
    calibrated = lines({"method": label_methods(), source: pairs})
    names = ["Calibration", r"Source $\backslash$ Target"]
    rows = pd.concat([uncalibrated, calibrated]).rename_axis(names)
    columns = lines({tuple(PAIR): pairs, "metric": cells.ERRORS})
    numbers = place_numbers(frame, rows, columns)
    same_model = numbers.model == numbers.source_model
    same_dataset = numbers.dataset == numbers.source_dataset
    numbers["bold"] = same_model & same_dataset & numbers.value.notna()
    spec = "ll" + " ccc" * len(pairs)
    return set_table(numbers, rows, columns, spec, results.title)


def calibration_transfer_summary(results: Results) -> Table:
    """Return `tab:calibration_transfer_summary`: change of ECE, first across datasets, then between
    models.

    Improvements on the dataset with the lowest accuracy are bold.
    """
    rows = transfer_moves(results)
    columns = lines({"method": label_methods()}, metric="delta_ece")
    numbers = place_numbers(results.frames["calibration_transfer_summary"], rows, columns)
    numbers["text"] = cells.format_values(numbers.value, format_change)
    is_hard = numbers.dataset == results.hardest_dataset
    numbers["bold"] = numbers.text.str.startswith("$-") & is_hard
    return set_table(numbers, rows, columns, "l" + "r" * len(METHODS), results.title)


def format_change(change: float) -> str:
    """Return a change of ECE as a formula: $-.012$."""
    return f"${cells.format_3dp(change, '+')}$"


# ---- all of them, in the order of the paper

TABLES: dict[str, Callable[[Results], Table]] = {
    "tab_estimators": estimators,
    "tab_result_estimation": result_estimation,
    "tab_result_calibration": result_calibration,
    "tab_calibration_transfer_summary": calibration_transfer_summary,
    "tab_dropout_grid_search": dropout_grid_search,
    "tab_inference_settings": inference_settings,
    "tab_result_estimation_full": result_estimation_full,
    "tab_result_calibration_full": result_calibration_full,
    "tab_result_isotonic": result_isotonic,
    "tab_calibration_transfer_full": calibration_transfer_full,
    "tab_insitu_ptrue": insitu_ptrue,
    "tab_bin_ablation": bin_ablation,
}
