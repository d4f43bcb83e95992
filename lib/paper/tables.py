"""The paper's tables. Each is a function of all results of a run, or of the paper; bold is
computed.

Each method of `calibrators.METHODS` adds a group of columns, a block of rows, or a column.
Temperature scaling is under the heading Platt, as in the paper.
"""

import re
from collections.abc import Mapping
from functools import partial
from itertools import groupby, permutations

import pandas as pd

from lib.analysis.result_tables import Results
from lib.calibrate.calibrators import METHODS
from lib.calibrate.experiments import SOURCE
from lib.paper import cells
from lib.paper.booktabs import Table, embolden, escape
from lib.paper.cells import lines, pair_lines, place, set_table
from lib.paper.numbers_of_paper import DECODING_SETTINGS
from lib.score.estimators import ESTIMATORS
from lib.score.metrics import METRICS
from lib.store import PAIR

ACCURACY = lines({"estimator": {"": "Acc."}, "metric": {"acc": ""}})
# other methods use their label
METHOD_HEADINGS = {"isotonic": "Isotonic Regression", "platt": "Platt Scaling"}

# ---- estimators and settings


def estimators(results: Results | None = None) -> Table:
    """Return `tab:estimators`, from the registry."""
    defined = [e for e in ESTIMATORS.values() if e.definition]
    labels = pd.MultiIndex.from_tuples(
        [(e.group.replace("_", "-"), e.label) for e in defined], names=[None, r"\textbf{Method}"]
    )
    return Table(
        pd.DataFrame({r"\textbf{Definition}": [e.definition for e in defined]}, labels), {"": "ll"}
    )


def inference_settings(results: Results) -> Table:
    """Return `tab:inference_settings`: settings in rows, models in columns."""
    models, forms = results.settings, {"top_k": "{:.0f}", "min_p": "{:g}"}
    rows = {}
    for heading, name in DECODING_SETTINGS.items():
        rows[heading] = [
            forms.get(name, "{}").format(float(getattr(model, name))) for model in models
        ]
    rows["System prompt"] = ["Yes" if model.system_prompt else "No" for model in models]
    texts = pd.DataFrame([*rows.values()], pd.Index([*rows], name=r"\textbf{Setting}"))
    labels = [escape(model.label) for model in models]
    return Table(texts.set_axis(labels, axis=1), {"": "l" + "c" * len(models)}, title=results.title)


# ---- raw confidence


def result_estimation(results: Results) -> Table:
    """Return `tab:result_estimation`: accuracy, then ECE and MCE of every estimator.

    A bar separates single-pass from multi-pass; the lowest ECE of a row is bold.
    """
    frame, rows = results.frames["result_estimation"], pair_lines(results.models, results.datasets)
    shown = cells.estimators_of(frame)
    errors = lines(
        {"estimator": {e.name: e.label for e in shown}, "metric": {"ece": "ECE", "mce": "MCE"}}
    )
    columns = pd.concat([ACCURACY, errors])
    numbers = place(frame, rows, columns)
    numbers["bold"] = cells.lowest(numbers, numbers.metric == "ece")
    groups = [" ".join("cc" for _ in group) for _, group in groupby(shown, lambda e: e.group)]
    return set_table(numbers, rows, columns, " | ".join(["llc", *groups]), results.title)


def result_estimation_full(results: Results) -> Table:
    """Return `tab:result_estimation_full`: every metric with its interval. The lowest ECE of a pair
    is bold."""
    frame = results.frames["result_estimation_full"].query("method == ''")
    rows, shown = pair_lines(results.models, results.datasets), cells.estimators_of(frame)
    errors = lines({"estimator": {e.name: e.label for e in shown}, "metric": cells.ERRORS})
    columns = pd.concat([ACCURACY, errors])
    numbers = place(frame, rows, columns)
    numbers["text"] = cells.format_intervals(numbers, r"\scoreci", cells.format_3dp)
    numbers["bold"] = cells.lowest(numbers, numbers.metric == "ece")
    return set_table(
        numbers, rows, columns, cells.specs_by_part(shown, " ccc", first="c"), results.title
    )


def insitu_ptrue(results: Results) -> Table:
    """Return `tab:insitu_ptrue`: ECE of Ans Avg and of both forms of P(True), and the tokens saved
    in percent; no bold."""
    labels = {"ans_avg": "Ans Avg", "p_true_insitu": r"In-situ $\ptrue$", "p_true": r"$\ptrue$"}
    errors = lines({"estimator": labels}, metric="ece")
    saved = lines({"estimator": {"p_true_insitu": r"Reduction (\%)"}}, metric="token_reduction_pct")
    rows, columns = pair_lines(results.models, results.datasets), pd.concat([errors, saved])
    numbers = place(results.frames["insitu_ptrue"], rows, columns)
    percent = cells.format_values(numbers.value, "{:.2f}".format)
    numbers["text"] = numbers.text.where(numbers.metric == "ece", percent)
    bold = r"\textbf{{{}}}".format
    rows, columns = rows.rename_axis(index=bold), columns.rename(bold)
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
    numbers = place(frame, rows, columns)
    lowest = (
        numbers[cells.lowest(numbers, numbers.metric == "ece", *PAIR)].drop_duplicates(PAIR).row
    )
    numbers["bold"] = numbers.row.isin(lowest)
    heads = rows.index.to_frame(index=False)
    heads.iloc[lowest, -1] = heads.iloc[lowest, -1].map(embolden)
    rows = rows.set_axis(pd.MultiIndex.from_frame(heads))
    return set_table(numbers, rows, columns, "llcccc", results.title)


def bin_ablation(results: Results) -> Table:
    """Return `tab:bin_ablation`: ECE, MCE and Brier of the single-pass estimators for each number
    of bins; no bold."""
    frame = results.frames["bin_ablation"]
    shown = {e.name: e.label for e in cells.estimators_of(frame) if e.group == "single_pass"}
    bins = {count: str(count) for count in frame.bins.unique()}
    rows = pair_lines(results.bin_labels, results.datasets, bins=bins)
    columns = lines({"estimator": shown, "metric": cells.ERRORS})
    return set_table(
        place(frame, rows, columns), rows, columns, "lll" + " ccc" * len(shown), results.title
    )


# ---- calibration


def result_calibration(results: Results, full: bool = False) -> Table:
    """Return `tab:result_calibration`: ECE after each method, and its fitted parameters.

    The lowest ECE of an estimator is bold; ties go to the largest improvement as printed. `full`:
    with intervals.
    """
    frame = results.frames["result_calibration_full" if full else "result_calibration"]
    rows, columns = pair_lines(results.models, results.datasets), calibrated_columns(frame)
    numbers = place(frame, rows, columns)
    errors, gains = numbers.metric == "ece", (100 * numbers.relative).round()
    improved = numbers.text.where(
        numbers.relative.isna(), numbers.text + " (" + cells.format_gains(numbers) + ")"
    )
    shown = cells.format_intervals(numbers, r"\calci") if full else improved
    numbers["text"] = shown.where(
        errors, cells.format_values(numbers.value, cells.format_two_digits)
    )
    best = gains.fillna(0).where(cells.lowest(numbers, errors, "row", "estimator"))
    numbers["bold"] = best == best.groupby([numbers.row, numbers.estimator]).transform("max")
    spec = " | ".join(["ll", *("c" * len(list(group)) for _, group in groupby(columns["method"]))])
    return set_table(
        numbers, rows, columns, spec, results.title, partial(join_parameters, full=full)
    )


def result_calibration_full(results: Results) -> Table:
    """Return `tab:result_calibration_full`: `result_calibration` with intervals."""
    return result_calibration(results, full=True)


def calibrated_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns by method: ECE of each estimator, preceded once by its fitted parameters.

    The table shows estimators for which some method uses more than the confidence (answer tokens, a
    margin), or all if there are none. The parameters of `ans` belong to both estimators of the
    answer's tokens.
    """
    errors, learned = frame[frame.metric == "ece"], frame[~frame.metric.isin([*METRICS, ""])]
    fitted = set(zip(errors["method"], errors.estimator, strict=True))
    parameters = (
        learned.groupby(["method", "estimator"])
        .metric.agg(lambda names: tuple(names.unique()))
        .to_dict()
    )
    beyond = [name for name, method in METHODS.items() if "confidence" not in method.inputs]
    every = cells.estimators_of(frame)
    shown = [e for e in every if any((method, e.name) in fitted for method in beyond)] or every
    columns = {}
    for method, how in METHODS.items():
        heading = METHOD_HEADINGS.get(method, how.label)
        for e in (e for e in shown if (method, e.name) in fitted):
            learner = "ans" if e.needs == "answer" and (method, "ans") in parameters else e.name
            if names := parameters.pop((method, learner), None):
                symbols = ",".join(names) if len(names) == 1 else f"({','.join(names)})"
                columns[heading, f"${symbols}$"] = method, learner, names
            columns[heading, e.label] = method, e.name, "ece"
    return pd.DataFrame(
        [*columns.values()], pd.MultiIndex.from_tuples(columns), ["method", "estimator", "metric"]
    )


def join_parameters(texts: pd.Series, full: bool) -> str:
    """Return the fitted parameters of a cell as one text: 0.53, or (0.61, -1.20), as a formula if
    intervals are formulas (`full`)."""
    if len(texts) == 1 or cells.DASH in set(texts):
        return str(min(texts))  # the dash comes first
    return f"$({','.join(texts)})$" if full else f"({', '.join(texts)})"


def result_isotonic(results: Results) -> Table:
    """Return `tab:result_isotonic`: ECE after isotonic regression, interval and relative
    improvement.

    The largest improvement of a pair as printed, over both parts, is bold.
    """
    frame = results.frames["result_isotonic"].query("method == 'isotonic'")
    rows, shown = pair_lines(results.models, results.datasets), cells.estimators_of(frame)
    columns = lines(
        {"estimator": {e.name: e.label for e in shown}}, metric="ece", method="isotonic"
    )
    numbers = place(frame, rows, columns)
    numbers["text"], gains = (
        cells.format_intervals(numbers, r"\isoCI"),
        (100 * numbers.relative).round(),
    )
    numbers["bold"] = gains == gains.groupby(numbers.row).transform("max")
    return set_table(numbers, rows, columns, cells.specs_by_part(shown, "c"), results.title)


# ---- transfer


def calibration_transfer_full(results: Results) -> Table:
    """Return `tab:calibration_transfer_full`: sources in rows, targets in columns.

    Cells whose source is the target are bold.
    """
    frame = results.frames["calibration_transfer_full"]
    models, datasets = family_labels(results.transfer_labels[0]), results.transfer_labels[1]
    raw = set(
        frame.query("method == '' and metric == 'ece'").dropna(subset="value").set_index(PAIR).index
    )
    pairs = {
        (m, d): escape(f"{models[m]} / {datasets[d]}")
        for m in models
        for d in datasets
        if (m, d) in raw
    }
    uncalibrated = lines({"method": {"": "Uncalibrated"}, tuple(SOURCE): {("", ""): cells.DASH}})
    calibrated = lines(
        {"method": {name: how.label for name, how in METHODS.items()}, tuple(SOURCE): pairs}
    )
    rows = pd.concat([uncalibrated, calibrated]).rename_axis(
        ["Calibration", r"Source $\backslash$ Target"]
    )
    columns = lines({tuple(PAIR): pairs, "metric": cells.ERRORS})
    numbers = place(frame, rows, columns)
    numbers["bold"] = (numbers[PAIR].to_numpy() == numbers[SOURCE].to_numpy()).all(
        axis=1
    ) & numbers.value.notna()
    return set_table(numbers, rows, columns, "ll" + " ccc" * len(pairs), results.title)


def calibration_transfer_summary(results: Results) -> Table:
    """Return `tab:calibration_transfer_summary`: change of ECE, first across datasets, then between
    models.

    Improvements on the dataset with the lowest accuracy are bold.
    """
    models, datasets = family_labels(results.transfer_labels[0]), results.transfer_labels[1]
    moves = [("across", m, a, m, b) for m in models for a, b in permutations(datasets, 2)]
    moves += [("between", a, d, b, d) for d in datasets for a, b in permutations(models, 2)]
    labels = []
    for block, *ends in moves:
        ends = [escape(f"{models[m]}: {datasets[d]}") for m, d in (ends[:2], ends[2:])]
        labels.append((block, r" $\rightarrow$ ".join(ends)))
    names = (None, r"Calibration Source $\rightarrow$ Evaluation Target")
    rows = pd.DataFrame(
        [move[1:] for move in moves],
        pd.MultiIndex.from_tuples(labels, names=names),
        [*SOURCE, *PAIR],
    )
    columns = lines(
        {"method": {name: how.label for name, how in METHODS.items()}}, metric="delta_ece"
    )
    numbers = place(results.frames["calibration_transfer_summary"], rows, columns)
    numbers["text"] = cells.format_values(
        numbers.value, lambda change: f"${cells.format_3dp(change, '+')}$"
    )
    numbers["bold"] = numbers.text.str.startswith("$-") & (
        numbers.dataset == results.hardest_dataset
    )
    return set_table(numbers, rows, columns, "l" + "r" * len(METHODS), results.title)


def family_labels(models: Mapping[str, str]) -> dict[str, str]:
    """Return model labels shortened to their first letters (Llama-3.1-8B: Llama), if these are
    unique."""
    labels = dict(models)
    cut = {name: (re.match("[^\\W\\d_]+", label) or [label])[0] for name, label in labels.items()}
    return cut if len(set(cut.values())) == len(cut) > 1 else labels
