"""What 08 tells the report beyond the paper's tables and claims: the answer of a run, tokens, when
to answer, 04b, each number beside the paper's, notes.

Only the paper's own models, with its sampling and its questions, can reproduce the paper. Numbers
of other models are not compared.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.stats import norm

from lib import params, store
from lib.analysis.costs import EXTRA_TOKEN_ESTIMATORS, RESPONSE_ITSELF
from lib.analysis.resampled_scores import Measure, Score
from lib.analysis.result_tables import NUMBER_KEY, QUANTITIES, MissingFrame, Results
from lib.analysis.score_differences import Pooled, pool_difference
from lib.analysis.signals import Signals
from lib.calibrate import experiments
from lib.calibrate.experiments import SOURCE
from lib.paper import cells, tables
from lib.paper.booktabs import OF_PAPER, ReportRecords, Table
from lib.paper.cells import HEADLINE, OVERVIEW, label_rows, lines, pair_lines, place, set_table
from lib.paper.numbers_of_paper import DECODING_SETTINGS, paper_facts
from lib.score.estimators import ESTIMATORS
from lib.score.evaluation import BASE, RESULT_KEYS, percentile_interval
from lib.score.reading import answer_coverage, describe_unread_lines
from lib.store import PAIR, SCORE_CELL

RAW_LABELS = {"ece": "ECE", "ece_mass": "Equal mass", "brier": "Brier", "mcb": "MCB", "dsc": "DSC", "unc": "UNC",
              "log_loss": "Log-loss", "auroc": "AUROC", "augrc": "AUGRC"}  # fmt: skip
AFTER_ISOTONIC = ["ece", "brier", "mcb", "dsc"]
WITH_INTERVALS = ["auroc", "augrc"]  # raw, shown with intervals
TABLES = {
    name: vars(tables)[name.removeprefix("tab_")] for name in OF_PAPER if name.startswith("tab_")
}
# Both a faithful rerun's numbers and the paper's vary, so a 95% interval around one contains fewer
# of the other.
EXPECTED_CAPTURE_RATE = 2 * float(norm.cdf(norm.ppf(0.975) / 2**0.5)) - 1
NOT_COMPARABLE = "not comparable: "  # how such a verdict begins
HALF_DIGIT = 0.0005  # half of the last decimal in the paper
PAPER_NUMBERS = ["value_paper", "low_paper", "high_paper"]
COMPARED_NUMBERS = ["value", "low", "high", *PAPER_NUMBERS, "difference"]
CHANCE_COLUMNS = ["chance", "chance_high", "calibrated"]  # of `compare_with_chance`
RESPLIT_SEED = 0
# the parts of a number's key that not all tables have
VARIANT = ["method", *SOURCE, "rate", "bins"]

# ---- the answer of a run: the ECE of each pair's first scores, what chance gives, and what they are worth

POOLED = {  # differences whose mean over pairs is told first: metric, first and second score
    "Seq Avg minus Ans Avg": ("ece", Score("seq_avg"), Score("ans_avg")),
    "Ans Avg minus Seq Avg": ("auroc", Score("ans_avg"), Score("seq_avg")),
    "Ans Avg, isotonic minus raw": ("ece", Score("ans_avg", "isotonic"), Score("ans_avg")),
    "Ans Avg, isotonic, minus a constant": ("ece", Score("ans_avg", "isotonic"), Score(BASE)),
    "P(True) minus Seq Avg": ("ece", Score("p_true"), Score("seq_avg")),
    "P(True), in situ minus fresh prompt": ("ece", Score("p_true_insitu"), Score("p_true")),
}


def overview_scores(here: Results) -> pd.DataFrame:
    """Return the OVERVIEW scores of each pair, a row each.

    Columns: PAIR, estimator, method, `score` (its label), n, `value` (ECE) with the ends `low` and
    `high` of its 95% interval (calibrators fitted again), what chance gives (`chance`,
    `chance_high`, `calibrated`), `spread` (standard deviation of the scores), `dsc` and `auroc`.
    """
    measured = here.frame("selective_scores")
    chance = here.frame("chance").set_index(RESULT_KEYS)
    records = []
    if here.scores is None:
        raise MissingFrame("scores")
    for pair, scores in here.scores.scores.items():
        for (estimator, method), label in OVERVIEW.items():
            score = Score(estimator, method)
            if score not in scores:
                continue
            error = here.scores.measure_all_rows(pair, Measure(score))
            low, high = percentile_interval(error.draws)
            key = dict(zip(RESULT_KEYS, (*pair, estimator, method, "ece"), strict=True))
            by_chance = chance.loc[tuple(key.values())]
            own = measured[(measured[RESULT_KEYS[:4]] == list(key.values())[:4]).all(axis=1)]
            own = own.set_index("metric").value.astype(float)
            records.append(key | {
                "score": label, "n": len(scores[score].correct), "value": error.value, "low": low,
                "high": high, "chance": by_chance.chance, "chance_high": by_chance.chance_high,
                "calibrated": bool(by_chance.calibrated), "spread": scores[score].confidence.std(),
                "dsc": own.get("dsc", np.nan), "auroc": own.get("auroc", np.nan),
            })  # fmt: skip
    return pd.DataFrame(records)


def headline_errors(here: Results) -> pd.DataFrame:
    """Return the rows of `overview_scores` that the first figure draws."""
    shown = overview_scores(here)
    return shown[shown.score.isin(list(HEADLINE.values()))]


def list_overview(here: Results) -> ReportRecords:
    """List the `overview_scores`, with the accuracy of the pair."""
    right = here.frame("result_estimation", metric="acc").rename(columns={"value": "accuracy"})
    frame = overview_scores(here).merge(right[[*PAIR, "accuracy"]])
    frame = label_rows(frame, here.models, here.datasets).sort_values(PAIR, kind="stable")
    frame = frame.astype({"accuracy": float})
    texts = map(cells.format_overview, frame.value, frame.spread, frame.dsc)
    shown = frame.assign(text=list(texts), accuracy=frame.accuracy.round(3))
    shown = shown.pivot(index=[*PAIR, "accuracy"], columns="score", values="text")
    shown = shown[[label for label in OVERVIEW.values() if label in shown]]
    return ReportRecords(frame, shown.reset_index().rename_axis(columns=None))


def list_pooled(here: Results) -> ReportRecords:
    """List the mean differences over pairs, with their intervals and on how many pairs they are
    below 0.

    Columns as of `Pooled`, with the name of the `difference` and its `metric`.
    """
    records = []
    for name, (metric, first, second) in POOLED.items():
        pooled = pool_difference(here.scores, first, second, metric) if here.scores else None
        if pooled is not None:
            records.append({"difference": name, "metric": metric, **pooled._asdict()})
    frame = pd.DataFrame(records, columns=["difference", "metric", *Pooled._fields])
    return ReportRecords(frame, frame.round(3))


def list_splits(signals: Signals, here: Results) -> ReportRecords:
    """List by pair the accuracy of both splits, and isotonic regression beside a constant on random
    re-splits."""
    splits = experiments.describe_splits(signals.sets).drop(columns="confident_errors")
    again = experiments.compare_on_resplits(signals.sets, signals.choices.bins, seed=RESPLIT_SEED)
    frame = label_rows(splits.merge(again, on=PAIR), here.models, here.datasets)
    return ReportRecords(frame.sort_values(PAIR, kind="stable"), frame.round(3))


# ---- tables beyond the paper


def costs(results: Results) -> Table:
    """Return the table of tokens: those of the response, and the extra tokens of every
    estimator."""
    extra = {name: ESTIMATORS[name].label for name in EXTRA_TOKEN_ESTIMATORS}
    extra, note = mark_shared_masks(extra, results)
    columns = lines({"estimator": {RESPONSE_ITSELF: "Response"} | extra}, metric="tokens")
    rows = pair_lines(results.models, results.datasets)
    numbers = place(results.frames["costs"], rows, columns)
    numbers["text"] = cells.format_values(numbers.value, "{:,.0f}".format)
    return set_table(numbers, rows, columns, "ll" + "c" * len(columns), results.title + note)


def selective(results: Results) -> Table:
    """Return the table of a pair's base rate and estimators, a row each: scores raw, after isotonic
    regression, and the share answered at each guaranteed precision.

    Bold is a pair's lowest Brier score, raw and isotonic, and its lowest AUGRC. No share answered
    is bold: a guarantee holds for each estimator, not for the best of ten.
    """
    scores, thresholds = results.frames["selective_scores"], results.frames["selective_thresholds"]
    precisions = {
        f"answered_{t:g}": cells.format_3dp(t).rstrip("0")
        for t in sorted(thresholds.target.unique())
    }
    metric = thresholds.target.map("answered_{:g}".format)
    answered = thresholds.assign(metric=metric, value=thresholds.answered, method="")
    labels = {BASE: "Base rate"} | {e.name: e.label for e in cells.estimators_shown(scores)}
    labels, note = mark_shared_masks(labels, results)
    rows = pair_lines(results.models, results.datasets, estimator=labels)
    rows = rows[pd.MultiIndex.from_frame(rows).isin(scores.set_index(SCORE_CELL).index)]
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
    bold = cells.lowest(numbers, numbers.metric.isin(["augrc", "brier"]), *PAIR, "column")
    spec = " ".join(
        ["lll", "c" * len(RAW_LABELS), "c" * len(AFTER_ISOTONIC), "c" * len(precisions)]
    )
    return set_table(
        numbers.assign(text=texts, bold=bold), rows, columns, spec, results.title + note
    )


def mark_shared_masks(labels: dict[str, str], results: Results) -> tuple[dict[str, str], str]:
    """Return the labels of estimators, c_BALD marked if all questions share dropout masks, and the
    note that explains the mark."""
    if not results.shared_masks or "c_bald" not in labels:
        return labels, ""
    marked = labels | {"c_bald": labels["c_bald"] + r"$^{*}$"}
    return marked, " * All questions share dropout masks."


def list_ablation(here: Results) -> ReportRecords:
    """List the results of 04b by pair and arm, with the run's labels; empty if it was not run."""
    frame = label_rows(here.frames.get("ablation", pd.DataFrame()), here.models, here.datasets)
    return ReportRecords(frame, frame.round(3))


# ---- numbers beside the paper's


def printed_numbers(results: Results) -> pd.DataFrame:
    """Return the numbers that the paper's tables print.

    Columns: NUMBER_KEY (labels, "" where a part does not apply), QUANTITIES, and the `key` of each
    within its table in one word, as in cells.
    """
    numbers = pd.concat(
        [build(results).numbers.assign(table=name) for name, build in TABLES.items()]
    )
    numbers = numbers.dropna(subset="value").reindex(columns=[*NUMBER_KEY, *QUANTITIES, "key"])
    settings = numbers[["rate", "bins"]].astype(object).map("{:g}".format, na_action="ignore")
    parts = numbers.assign(**settings)[NUMBER_KEY].fillna("")
    return label_key(numbers.assign(**parts), results).reset_index(drop=True)


def label_key(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return a frame with labels of models, datasets and estimators in place of their names, as
    words."""
    models, datasets = dict(results.models), dict(results.datasets)
    labels = {
        "model": models,
        "dataset": datasets,
        "source_model": models,
        "source_dataset": datasets,
    }
    return frame.replace(labels | {"estimator": {name: e.plain for name, e in ESTIMATORS.items()}})


def compare_with_paper(here: Results, paper: Results) -> ReportRecords:
    """List every number of a run's tables with the paper's number from the same table.

    It has the difference, the paper's interval if any of its tables prints one for this quantity,
    whether the run's number is inside, and beside an ECE what chance gives (CHANCE_COLUMNS, from
    the frame `chance`).
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
    verdicts = [
        NOT_COMPARABLE + reasons.fillna(""),
        "not in the paper",
        "no interval printed",
        "inside",
    ]
    both["verdict"] = np.select(conditions, verdicts, "outside")
    both.loc[reasons.notna(), PAPER_NUMBERS] = np.nan
    both["variant"] = [" ".join(filter(None, parts)) for parts in both[VARIANT].to_numpy()]
    both["difference"] = both["value"] - both["value_paper"]
    columns = [
        "table",
        "key",
        *SCORE_CELL,
        "metric",
        "variant",
        *COMPARED_NUMBERS,
        *CHANCE_COLUMNS,
        "verdict",
    ]
    frame = both[columns].astype(dict.fromkeys(COMPARED_NUMBERS, float))
    counts = frame.groupby(["table", "verdict"], sort=False).size().unstack(fill_value=0)
    return ReportRecords(frame, counts.rename_axis(columns=None).reset_index())


def find_foreign(here: Results, paper: Results) -> dict[str, str]:
    """Return why numbers of a model or dataset of a run cannot be compared with the paper's, by its
    label."""
    decoding = [*DECODING_SETTINGS.values(), "system_prompt"]
    printed, facts, reasons = {spec.label: spec for spec in paper.settings}, paper_facts(), {}
    for spec in here.settings:
        if spec.source != facts["models"].get(spec.label):
            reasons[spec.label] = "another model"
        elif any(
            getattr(spec, setting) != getattr(printed[spec.label], setting) for setting in decoding
        ):
            reasons[spec.label] = "other decoding settings"
    for name, (source, *rows) in here.questions.items():
        known = facts["questions"].get(label := here.datasets[name], {"source": None})
        if source != known["source"]:
            reasons[label] = "other questions"
        elif rows != [known["calibration"], known["evaluation"]]:
            reasons[label] = "other numbers of questions"
    return reasons


# ---- notes on all tables

NOT_AT_HAND = (
    "from a file, the model not at hand: nothing is known of passes with dropout and temperature"
)


def list_notes(run: str, signals: Signals, results: Results) -> ReportRecords:
    """List the notes on a run's tables, a row each."""
    counted = answer_coverage(signals.generations)
    rows = counted["rows"].sum()
    unparsed, cut = ((counted[name] * counted["rows"]).sum() / rows for name in ("unparsed", "cut"))
    shares = (
        f"Of {rows} responses to evaluation questions are {unparsed:.1%} without a parsable answer"
    )
    told = [*describe_sources(run, results), f"{shares}, {cut:.1%} cut by length."]
    if unread := describe_unread_lines(store.evaluation_rows(signals.generations)):
        told.append(unread)
    frame = pd.DataFrame(
        {"note": [*told, *describe_row_counts(results), *explain_empty_cells(run, results)]}
    )
    return ReportRecords(frame, frame)


def describe_sources(run: str, results: Results) -> list[str]:
    """Return a line for each model: its source and revision, and the device and precision, from its
    manifests."""
    pairs, told = store.pair_names(list(results.models), list(results.datasets)), []
    for pair, facts in store.read_manifests(run, "generations", pairs):
        said = NOT_AT_HAND
        if loaded := facts.get("loaded"):
            revision = f"@{loaded['revision'][:12]}" if loaded["revision"] else ""
            said = f"{loaded['source']}{revision}, on {loaded['device']}, {loaded['dtype']}"
        told.append(f"{results.models[pair.split('__')[0]]}: {said}.")
    return list(dict.fromkeys(told))


def describe_row_counts(results: Results) -> Iterator[str]:
    """Yield the number of evaluation rows, and a line for each pair in which some estimators have
    fewer."""
    rows = results.frames["result_estimation"].query("metric == 'ece'")
    rows = label_rows(rows, results.models, results.datasets).assign(
        most=rows.groupby(PAIR).n.transform("max")
    )
    counts = (
        f"{n} of {dataset}" for dataset, n in rows.groupby("dataset", observed=True).n.max().items()
    )
    yield f"Evaluation rows: {', '.join(counts)}."
    fewer = rows[rows.n < rows.most].groupby([*PAIR, "n", "most"], observed=True)
    for (model, dataset, n, most), part in fewer:
        yield f"{', '.join(part.estimator)} on {model} on {dataset}: {n} of {most} rows."


def explain_empty_cells(run: str, results: Results) -> Iterator[str]:
    """Yield why a pair has no passes with dropout, what a server did not tell, and other reasons,
    each once."""
    pairs = store.pair_names(list(results.models), list(results.datasets))
    labels = [
        f"{model} on {dataset}"
        for model in results.models.values()
        for dataset in results.datasets.values()
    ]
    named, at_hand = (
        dict(zip(pairs, labels, strict=True)),
        params.models_at_hand(list(results.models)),
    )
    made = dict(store.read_manifests(run, "dropout", pairs))
    for pair, label in named.items():
        reason = made.get(pair, {"missing": "not made yet"}).get("missing")
        if reason and pair.split("__")[0] in at_hand:
            yield f"No dropout passes of {label}: {reason}."
    for pair, facts in store.read_manifests(run, "verification", pairs):
        yield from (f"P(True) of {named[pair]}: {remark}." for remark in facts.get("remarks", ()))
    told = [frame for frame in results.frames.values() if "reason" in frame]
    reasons = pd.concat(
        [frame.reason[frame.filter(["value", "answered"]).isna().any(axis=1)] for frame in told]
    )
    if said := ", ".join(filter(None, reasons.dropna().unique())):
        yield f"--: {said}."
