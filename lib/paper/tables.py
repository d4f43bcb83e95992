"""The paper's tables. Each is a function of all results of a run, or of the paper; bold is
computed.

Each method of `calibrators.METHODS` adds a group of columns, a block of rows, or a column.
Temperature scaling is under the heading Platt, as in the paper.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby, permutations

import pandas as pd

from lib.analysis.results import Results
from lib.calibrate.calibrators import METHODS
from lib.calibrate.transfer import SOURCE
from lib.paper import cells
from lib.paper.booktabs import Table, embolden, escape
from lib.paper.cells import lines, pair_lines, place_numbers, set_table
from lib.paper.numbers_of_paper import DECODING_SETTINGS
from lib.score.estimators import ESTIMATORS, Estimator
from lib.score.metrics import METRICS
from lib.store import PAIR

ACCURACY = lines({"estimator": {"": "Acc."}, "metric": {"acc": ""}})
# other methods use their label
METHOD_HEADINGS = {"isotonic": "Isotonic Regression", "platt": "Platt Scaling"}

# ---- estimators and settings


def estimators(results: Results | None = None) -> Table:
    """Return `tab:estimators`, from the registry."""
    labels, definitions = [], []
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
    texts = pd.DataFrame(list(rows.values()), headings).set_axis(labels, axis=1)
    return Table(texts, {"": "l" + "c" * len(models)}, title=results.title)


# ---- raw confidence


def labels_of(shown: list[Estimator]) -> dict[str, str]:
    """Return the labels of estimators, by name."""
    return {estimator.name: estimator.label for estimator in shown}


def result_estimation(results: Results) -> Table:
    """Return `tab:result_estimation`: accuracy, then ECE and MCE of every estimator.

    A bar separates single-pass from multi-pass; the lowest ECE of a row is bold.
    """
    frame = results.frames["result_estimation"]
    shown = cells.estimators_of(frame)
    rows = pair_lines(results.models, results.datasets)
    errors = lines({"estimator": labels_of(shown), "metric": {"ece": "ECE", "mce": "MCE"}})
    columns = pd.concat([ACCURACY, errors])
    numbers = place_numbers(frame, rows, columns)
    numbers["bold"] = cells.lowest(numbers, numbers.metric == "ece")
    specs = ["llc"]
    for _, group in groupby(shown, lambda estimator: estimator.group):
        specs.append(" ".join("cc" for _ in group))
    return set_table(numbers, rows, columns, " | ".join(specs), results.title)


def result_estimation_full(results: Results) -> Table:
    """Return `tab:result_estimation_full`: every metric with its interval. The lowest ECE of a pair
    is bold."""
    frame = results.frames["result_estimation_full"].query("method == ''")
    shown = cells.estimators_of(frame)
    rows = pair_lines(results.models, results.datasets)
    errors = lines({"estimator": labels_of(shown), "metric": cells.ERRORS})
    columns = pd.concat([ACCURACY, errors])
    numbers = place_numbers(frame, rows, columns)
    numbers["text"] = cells.format_intervals(numbers, r"\scoreci", cells.format_3dp)
    numbers["bold"] = cells.lowest(numbers, numbers.metric == "ece")
    specs = cells.specs_by_part(shown, " ccc", first="c")
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
    shown = [e for e in cells.estimators_of(frame) if e.group == "single_pass"]
    bins = {count: str(count) for count in frame.bins.unique()}
    rows = pair_lines(results.bin_labels, results.datasets, bins=bins)
    columns = lines({"estimator": labels_of(shown), "metric": cells.ERRORS})
    numbers = place_numbers(frame, rows, columns)
    return set_table(numbers, rows, columns, "lll" + " ccc" * len(shown), results.title)


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


def calibrated_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns by method: ECE of each estimator, preceded once by its fitted parameters.

    The parameters of `ans` belong to both estimators of the answer's tokens.
    """
    errors = frame[frame.metric == "ece"]
    fitted = set(zip(errors["method"], errors.estimator, strict=True))
    symbols = fitted_symbols(frame)
    columns: dict[tuple[str, str], tuple] = {}
    for method, how in METHODS.items():
        heading = METHOD_HEADINGS.get(method, how.label)
        for estimator in calibrated_estimators(frame, fitted):
            if (method, estimator.name) not in fitted:
                continue
            is_shared = estimator.needs == "answer" and (method, "ans") in symbols
            learner = "ans" if is_shared else estimator.name
            names = symbols.pop((method, learner), None)
            if names is not None:
                text = ",".join(names)
                label = f"${text}$" if len(names) == 1 else f"$({text})$"
                columns[heading, label] = (method, learner, names)
            columns[heading, estimator.label] = (method, estimator.name, "ece")
    labels = pd.MultiIndex.from_tuples(columns)
    return pd.DataFrame(list(columns.values()), labels, ["method", "estimator", "metric"])


def fitted_symbols(frame: pd.DataFrame) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the names of the fitted parameters by method and estimator."""
    parameters = frame[~frame.metric.isin([*METRICS, ""])]
    symbols = {}
    for (method, estimator), part in parameters.groupby(["method", "estimator"]):
        symbols[method, estimator] = tuple(part.metric.unique())
    return symbols


def calibrated_estimators(frame: pd.DataFrame, fitted: set[tuple[str, str]]) -> list[Estimator]:
    """Return the estimators for which some method uses more than the confidence (answer tokens, a
    margin), or all if there are none. `fitted` are methods and estimators."""
    beyond = [name for name, method in METHODS.items() if "confidence" not in method.inputs]
    every = cells.estimators_of(frame)
    with_more = {estimator for method, estimator in fitted if method in beyond}
    chosen = [estimator for estimator in every if estimator.name in with_more]
    return chosen if chosen else every


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
    shown = cells.estimators_of(frame)
    rows = pair_lines(results.models, results.datasets)
    columns = lines({"estimator": labels_of(shown)}, metric="ece", method="isotonic")
    numbers = place_numbers(frame, rows, columns)
    numbers["text"] = cells.format_intervals(numbers, r"\isoCI")
    gains = (100 * numbers.relative).round()
    numbers["bold"] = gains == gains.groupby(numbers.row).transform("max")
    return set_table(numbers, rows, columns, cells.specs_by_part(shown, "c"), results.title)


# ---- transfer


def label_methods() -> dict[str, str]:
    """Return the labels of the methods, by name."""
    return {name: method.label for name, method in METHODS.items()}


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
    return set_table(numbers, rows, columns, "ll" + " ccc" * len(pairs), results.title)


def label_transfer_pairs(results: Results, frame: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return the labels of the pairs between which calibrators move, if they have a raw ECE."""
    models, datasets = results.transfer_labels
    families = family_labels(models)
    raw = frame.query("method == '' and metric == 'ece'").dropna(subset="value")
    has_error = set(zip(raw.model, raw.dataset, strict=True))
    labels = {}
    for model, family in families.items():
        for dataset, label in datasets.items():
            if (model, dataset) in has_error:
                labels[model, dataset] = escape(f"{family} / {label}")
    return labels


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


def transfer_moves(results: Results) -> pd.DataFrame:
    """Return the rows of `tab:calibration_transfer_summary`: all moves that change the dataset or
    the model."""
    models, datasets = results.transfer_labels
    families = family_labels(models)
    moves = []
    for model in models:
        for source, target in permutations(datasets, 2):
            moves.append(("across", model, source, model, target))
    for dataset in datasets:
        for source, target in permutations(models, 2):
            moves.append(("between", source, dataset, target, dataset))
    labels = []
    for block, source_model, source_dataset, model, dataset in moves:
        source = escape(f"{families[source_model]}: {datasets[source_dataset]}")
        target = escape(f"{families[model]}: {datasets[dataset]}")
        labels.append((block, rf"{source} $\rightarrow$ {target}"))
    names = (None, r"Calibration Source $\rightarrow$ Evaluation Target")
    index = pd.MultiIndex.from_tuples(labels, names=names)
    ends = [move[1:] for move in moves]
    return pd.DataFrame(ends, index, [*SOURCE, *PAIR])


def family_labels(models: Mapping[str, str]) -> dict[str, str]:
    """Return model labels shortened to their first letters (Llama-3.1-8B: Llama), if these are
    unique."""
    families = {}
    for name, label in models.items():
        letters = re.match(r"[^\W\d_]+", label)
        families[name] = letters[0] if letters else label
    is_unique = len(set(families.values())) == len(families) > 1
    return families if is_unique else dict(models)


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
