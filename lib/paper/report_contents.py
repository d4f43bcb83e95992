"""What 08 tells the report beyond the paper's tables and claims: the answer of a run, tokens, when to answer, 04b, each
number beside the paper's, notes.

Only the paper's own models, with its sampling and its questions, can reproduce the paper. Numbers of other models are
not compared.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.stats import norm

from lib import params, store
from lib.analysis.results import NUMBER_KEY, QUANTITIES, Results
from lib.analysis.run_results import Signals
from lib.analysis.token_statistics import EXTRA_TOKEN_ESTIMATORS, RESPONSE_ITSELF
from lib.calibrate.experiments import SOURCE
from lib.paper import cells, tables
from lib.paper.booktabs import OF_PAPER, ReportRecords, Table
from lib.paper.cells import HEADLINE, label_rows, lines, pair_lines, place, set_table
from lib.paper.numbers_of_paper import DECODING_SETTINGS, paper_facts
from lib.score.estimators import ESTIMATORS
from lib.score.evaluation import BASE, RESULT_KEYS
from lib.score.interpretation import answer_coverage
from lib.store import PAIR

RAW_LABELS = {"ece": "ECE", "ece_mass": "Equal mass", "brier": "Brier", "mcb": "MCB", "dsc": "DSC", "unc": "UNC",
              "log_loss": "Log-loss", "auroc": "AUROC", "augrc": "AUGRC"}  # fmt: skip
AFTER_ISOTONIC = ["ece", "brier", "mcb", "dsc"]
WITH_INTERVALS = ["auroc", "augrc"]  # raw, shown with intervals
TABLES = {name: vars(tables)[name.removeprefix("tab_")] for name in OF_PAPER if name.startswith("tab_")}
# Both a faithful rerun's numbers and the paper's vary, so a 95% interval around one contains fewer of the other.
EXPECTED_CAPTURE_RATE = 2 * float(norm.cdf(norm.ppf(0.975) / 2**0.5)) - 1
NOT_COMPARABLE = "not comparable: "  # how such a verdict begins
HALF_DIGIT = 0.0005  # half of the last decimal in the paper
PAPER_NUMBERS = ["value_paper", "low_paper", "high_paper"]
COMPARED_NUMBERS = ["value", "low", "high", *PAPER_NUMBERS, "difference"]
CHANCE_COLUMNS = ["chance", "chance_high", "calibrated"]  # of `compare_with_chance`
VARIANT = ["method", *SOURCE, "rate", "bins"]  # the parts of a number's key that not all tables have

# ---- the answer of a run: the ECE of each pair's HEADLINE scores, and what chance gives


def headline_errors(here: Results) -> pd.DataFrame:
    """Return the ECE of each pair's HEADLINE scores (`score`): the frame `chance` of the results, which has the columns
    of `compare_with_chance`, with the 95% interval (low, high).
    """
    constants = here.frame("selective_scores", estimator=BASE)
    intervals = pd.concat([here.frame("result_isotonic"), constants], ignore_index=True)
    shown = here.frame("chance").merge(intervals[[*RESULT_KEYS, "low", "high"]], "left", RESULT_KEYS)
    shown["score"] = [HEADLINE.get(key) for key in zip(shown.estimator, shown["method"], strict=True)]
    return shown.dropna(subset="score")


def list_overview(here: Results) -> ReportRecords:
    """List the `headline_errors`, with the accuracy of the pair and the AUROC of each score."""
    ranks = here.frame("selective_scores", metric="auroc").rename(columns={"value": "auroc"})
    right = here.frame("result_estimation", metric="acc").rename(columns={"value": "accuracy"})
    frame = headline_errors(here).merge(ranks[[*RESULT_KEYS[:4], "auroc"]], "left").merge(right[[*PAIR, "accuracy"]])
    frame = label_rows(frame, here.models, here.datasets).sort_values(PAIR, kind="stable")
    frame = frame.astype(dict.fromkeys(("low", "high", "auroc", "accuracy"), float))
    shown = frame.assign(text=cells.mark_calibrated(frame), accuracy=frame.accuracy.round(3))
    shown = shown.pivot(index=[*PAIR, "accuracy"], columns="score", values="text")[list(HEADLINE.values())]
    return ReportRecords(frame, shown.reset_index().rename_axis(columns=None))


# ---- tables beyond the paper


def costs(results: Results) -> Table:
    """Return the table of tokens: those of the response, and the extra tokens of every estimator."""
    extra = {name: ESTIMATORS[name].label for name in EXTRA_TOKEN_ESTIMATORS}
    columns = lines({"estimator": {RESPONSE_ITSELF: "Response"} | extra}, metric="tokens")
    rows = pair_lines(results.models, results.datasets)
    numbers = place(results.frames["costs"], rows, columns)
    numbers["text"] = cells.format_values(numbers.value, "{:,.0f}".format)
    return set_table(numbers, rows, columns, "ll" + "c" * len(columns), results.title)


def selective(results: Results) -> Table:
    """Return the table of a pair's base rate and estimators, a row each: scores raw, after isotonic regression, and the
    share answered at each guaranteed precision.

    Bold is a pair's lowest Brier score, raw and isotonic, its highest share answered and its lowest AUGRC.
    """
    scores, thresholds = results.frames["selective_scores"], results.frames["selective_thresholds"]
    precisions = {f"answered_{t:g}": cells.format_3dp(t).rstrip("0") for t in sorted(thresholds.target.unique())}
    metric = thresholds.target.map("answered_{:g}".format)
    answered = thresholds.assign(metric=metric, value=thresholds.answered, method="")
    labels = {BASE: "Base rate"} | {e.name: e.label for e in cells.estimators_shown(scores)}
    rows, has_scores = pair_lines(results.models, results.datasets, estimator=labels), [*PAIR, "estimator"]
    rows = rows[pd.MultiIndex.from_frame(rows).isin(scores.set_index(has_scores).index)]
    columns = pd.concat([
        lines({"method": {"": "Raw"}, "metric": RAW_LABELS}),
        lines({"method": {"isotonic": "Isotonic"}, "metric": {name: RAW_LABELS[name] for name in AFTER_ISOTONIC}}),
        lines({"method": {"": "Answered at"}, "metric": precisions}),
    ])  # fmt: skip
    numbers = place(pd.concat([scores, answered], ignore_index=True), rows, columns)
    numbers = numbers[(numbers.estimator != BASE) | (numbers.column < len(RAW_LABELS))]
    has_interval = numbers.metric.isin(WITH_INTERVALS) & (numbers["method"] == "")
    intervals = cells.format_intervals(numbers, r"\scoreci", cells.format_3dp)
    texts = intervals.where(has_interval, cells.format_values(numbers.value, cells.format_3dp))
    best_is_low = numbers.assign(value=numbers.value.where(~numbers.metric.isin([*precisions]), -numbers.value))
    bold = cells.lowest(best_is_low, numbers.metric.isin(["augrc", "brier", *precisions]), *PAIR, "column")
    spec = " ".join(["lll", "c" * len(RAW_LABELS), "c" * len(AFTER_ISOTONIC), "c" * len(precisions)])
    return set_table(numbers.assign(text=texts, bold=bold), rows, columns, spec, results.title)


def list_ablation(here: Results) -> ReportRecords:
    """List the results of 04b by pair and arm, with the run's labels; empty if it was not run."""
    frame = label_rows(here.frames.get("ablation", pd.DataFrame()), here.models, here.datasets)
    return ReportRecords(frame, frame.round(3))


# ---- numbers beside the paper's


def printed_numbers(results: Results) -> pd.DataFrame:
    """Return the numbers that the paper's tables print.

    Columns: NUMBER_KEY (labels, "" where a part does not apply), QUANTITIES, and the `key` of each within its table in
    one word, as in cells.
    """
    numbers = pd.concat([build(results).numbers.assign(table=name) for name, build in TABLES.items()])
    numbers = numbers.dropna(subset="value").reindex(columns=[*NUMBER_KEY, *QUANTITIES, "key"])
    settings = numbers[["rate", "bins"]].astype(object).map("{:g}".format, na_action="ignore")
    parts = numbers.assign(**settings)[NUMBER_KEY].fillna("")
    return label_key(numbers.assign(**parts), results).reset_index(drop=True)


def label_key(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return a frame with labels of models, datasets and estimators in place of their names, as words."""
    models, datasets = dict(results.models), dict(results.datasets)
    labels = {"model": models, "dataset": datasets, "source_model": models, "source_dataset": datasets}
    return frame.replace(labels | {"estimator": {name: e.plain for name, e in ESTIMATORS.items()}})


def compare_with_paper(here: Results, paper: Results) -> ReportRecords:
    """List every number of a run's tables with the paper's number from the same table.

    It has the difference, the paper's interval if any of its tables prints one for this quantity, whether the run's
    number is inside, and beside an ECE what chance gives (CHANCE_COLUMNS, from the frame `chance`).
    """
    ours, printed = printed_numbers(here), printed_numbers(paper)
    intervals = printed.groupby(NUMBER_KEY[1:])[["low", "high"]].transform("last")
    printed = printed.fillna(intervals)[[*NUMBER_KEY, "value", "low", "high"]]
    both = ours.merge(printed, "left", NUMBER_KEY, suffixes=("", "_paper"))
    chance = here.frames.get("chance", pd.DataFrame(columns=[*RESULT_KEYS, *CHANCE_COLUMNS]))
    both = both.merge(label_key(chance, here)[[*RESULT_KEYS, *CHANCE_COLUMNS]], "left", RESULT_KEYS)
    both.loc[(both[VARIANT[1:]] != "").any(axis=1), CHANCE_COLUMNS] = None
    inside = both["value"].between(both["low_paper"] - HALF_DIGIT, both["high_paper"] + HALF_DIGIT)
    reasons = both[[*PAIR, *SOURCE]].map(find_foreign(here, paper).get).bfill(axis=1).iloc[:, 0]
    conditions = [reasons.notna(), both["value_paper"].isna(), both["low_paper"].isna(), inside]
    verdicts = [NOT_COMPARABLE + reasons.fillna(""), "not in the paper", "no interval printed", "inside"]
    both["verdict"] = np.select(conditions, verdicts, "outside")
    both.loc[reasons.notna(), PAPER_NUMBERS] = np.nan
    both["variant"] = [" ".join(filter(None, parts)) for parts in both[VARIANT].to_numpy()]
    both["difference"] = both["value"] - both["value_paper"]
    columns = ["table", "key", *PAIR, "estimator", "metric", "variant", *COMPARED_NUMBERS, *CHANCE_COLUMNS, "verdict"]
    frame = both[columns].astype(dict.fromkeys(COMPARED_NUMBERS, float))
    counts = frame.groupby(["table", "verdict"], sort=False).size().unstack(fill_value=0)
    return ReportRecords(frame, counts.rename_axis(columns=None).reset_index())


def find_foreign(here: Results, paper: Results) -> dict[str, str]:
    """Return why numbers of a model or dataset of a run cannot be compared with the paper's, by its label."""
    decoding = [*DECODING_SETTINGS.values(), "system_prompt"]
    printed, facts, reasons = {spec.label: spec for spec in paper.settings}, paper_facts(), {}
    for spec in here.settings:
        if spec.source != facts["models"].get(spec.label):
            reasons[spec.label] = "another model"
        elif any(getattr(spec, setting) != getattr(printed[spec.label], setting) for setting in decoding):
            reasons[spec.label] = "other decoding settings"
    for name, (source, *rows) in here.questions.items():
        known = facts["questions"].get(label := here.datasets[name], {"source": None})
        if source != known["source"]:
            reasons[label] = "other questions"
        elif rows != [known["calibration"], known["evaluation"]]:
            reasons[label] = "other numbers of questions"
    return reasons


# ---- notes on all tables

NOT_AT_HAND = "from a file, the model not at hand: nothing is known of passes with dropout and temperature"


def list_notes(run: str, signals: Signals, results: Results) -> ReportRecords:
    """List the notes on a run's tables, a row each."""
    counted = answer_coverage(signals.generations)
    rows = counted["rows"].sum()
    unparsed, cut = ((counted[name] * counted["rows"]).sum() / rows for name in ("unparsed", "cut"))
    shares = f"Of {rows} responses to evaluation questions are {unparsed:.1%} without a parsable answer"
    told = [*describe_sources(run, results), f"{shares}, {cut:.1%} cut by length."]
    frame = pd.DataFrame({"note": [*told, *describe_row_counts(results), *explain_empty_cells(run, results)]})
    return ReportRecords(frame, frame)


def describe_sources(run: str, results: Results) -> list[str]:
    """Return a line for each model: its source and revision, and the device and precision, from its manifests."""
    pairs, told = store.pair_names(list(results.models), list(results.datasets)), []
    for pair, facts in store.read_manifests(run, "generations", pairs):
        said = NOT_AT_HAND
        if loaded := facts.get("loaded"):
            revision = f"@{loaded['revision'][:12]}" if loaded["revision"] else ""
            said = f"{loaded['source']}{revision}, on {loaded['device']}, {loaded['dtype']}"
        told.append(f"{results.models[pair.split('__')[0]]}: {said}.")
    return list(dict.fromkeys(told))


def describe_row_counts(results: Results) -> Iterator[str]:
    """Yield the number of evaluation rows, and a line for each pair in which some estimators have fewer."""
    rows = results.frames["result_estimation"].query("metric == 'ece'")
    rows = label_rows(rows, results.models, results.datasets).assign(most=rows.groupby(PAIR).n.transform("max"))
    counts = (f"{n} of {dataset}" for dataset, n in rows.groupby("dataset", observed=True).n.max().items())
    yield f"Evaluation rows: {', '.join(counts)}."
    fewer = rows[rows.n < rows.most].groupby([*PAIR, "n", "most"], observed=True)
    for (model, dataset, n, most), part in fewer:
        yield f"{', '.join(part.estimator)} on {model} on {dataset}: {n} of {most} rows."


def explain_empty_cells(run: str, results: Results) -> Iterator[str]:
    """Yield why a pair has no passes with dropout, what a server did not tell, and other reasons, each once."""
    pairs = store.pair_names(list(results.models), list(results.datasets))
    labels = [f"{model} on {dataset}" for model in results.models.values() for dataset in results.datasets.values()]
    named, at_hand = dict(zip(pairs, labels, strict=True)), params.models_at_hand(list(results.models))
    made = dict(store.read_manifests(run, "dropout", pairs))
    for pair, label in named.items():
        reason = made.get(pair, {"missing": "not made yet"}).get("missing")
        if reason and pair.split("__")[0] in at_hand:
            yield f"No dropout passes of {label}: {reason}."
    for pair, facts in store.read_manifests(run, "verification", pairs):
        yield from (f"P(True) of {named[pair]}: {remark}." for remark in facts.get("remarks", ()))
    told = [frame for frame in results.frames.values() if "reason" in frame]
    reasons = pd.concat([frame.reason[frame.filter(["value", "answered"]).isna().any(axis=1)] for frame in told])
    if said := ", ".join(filter(None, reasons.dropna().unique())):
        yield f"--: {said}."
