"""What 08 and 09 tell the report beside tables, figures and claims: each number beside the paper's, verdicts under
other choices, notes.

Only the paper's own models, with its sampling and its questions, can reproduce the paper. Numbers of other models are
not compared.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pandas as pd
from scipy.stats import norm

from lib import params, store
from lib.analysis.results import NUMBER_KEY, QUANTITIES, Results
from lib.analysis.run_results import Signals, calibration_frames, raw_frames
from lib.calibrate.experiments import SOURCE
from lib.paper import beyond_tables, tables
from lib.paper.booktabs import CAPTIONS, OF_PAPER, ReportRecords, Table
from lib.paper.cells import label_rows
from lib.paper.numbers_of_paper import DECODING_SETTINGS, paper_facts
from lib.paper.verdicts import Verdict, judge_all
from lib.params import EvaluationChoices
from lib.paths import UserError
from lib.score.estimators import ESTIMATORS
from lib.score.evaluation import RESULT_KEYS
from lib.score.interpretation import answer_coverage
from lib.store import PAIR

BUILDERS = vars(tables) | vars(beyond_tables)
TABLES: dict[str, Callable[[Results], Table]] = {
    name: BUILDERS[name.removeprefix("tab_")] for name in CAPTIONS if name.startswith("tab_")
}
# Both a faithful rerun's numbers and the paper's vary, so a 95% interval around one contains fewer of the other.
EXPECTED_CAPTURE_RATE = 2 * float(norm.cdf(norm.ppf(0.975) / 2**0.5)) - 1
NOT_COMPARABLE = "not comparable: "  # how such a verdict begins
HALF_DIGIT = 0.0005  # half of the last decimal in the paper
WITH_BOUNDS = ["value", "low", "high"]
PAPER_NUMBERS = [f"{name}_paper" for name in WITH_BOUNDS]
COMPARED_NUMBERS = [*WITH_BOUNDS, *PAPER_NUMBERS, "difference"]
CHANCE_COLUMNS = ["chance", "chance_high", "calibrated"]  # of `compare_with_chance`
VARIANT = ["method", "source_model_label", "source_dataset_label", "rate", "bins"]
# Key of a number, here and in the paper
SHARED_KEY = ["model_label", "dataset_label", "estimator", "metric", *VARIANT]

# ---- numbers


def printed_numbers(results: Results) -> pd.DataFrame:
    """Return the numbers that the paper's tables print.

    Columns: NUMBER_KEY and QUANTITIES, labels of models and datasets (`..._label`), the `key` of each within its table
    in one word, as in cells, and its `text`.
    """
    shown = {name: build(results).numbers for name, build in TABLES.items() if name in OF_PAPER}
    numbers = pd.concat([part.assign(table=name) for name, part in shown.items() if len(part)], ignore_index=True)
    numbers = numbers.dropna(subset="value").reindex(columns=[*NUMBER_KEY, *QUANTITIES, "key", "text"])
    words = [name for name in NUMBER_KEY if name not in ("rate", "bins")]
    numbers[words] = numbers[words].fillna("")
    labels = {"model": dict(results.models), "dataset": dict(results.datasets)}
    labels |= {f"source_{name}": known for name, known in labels.items()}
    return numbers.assign(**{f"{name}_label": numbers[name].replace(known) for name, known in labels.items()})


def compare_with_paper(here: Results, paper: Results) -> ReportRecords:
    """List every number of a run's tables with the paper's number from the same table.

    It has the difference, the paper's interval if any of its tables prints one for this quantity, whether the run's
    number is inside, and beside an ECE what chance gives (CHANCE_COLUMNS, from the frame `chance`).
    """
    ours, printed = printed_numbers(here), printed_numbers(paper)
    intervals = printed.groupby(SHARED_KEY, dropna=False)[["low", "high"]].transform("last")
    printed = printed.fillna(intervals)[["table", *SHARED_KEY, *WITH_BOUNDS]]
    both = ours.merge(printed, "left", ["table", *SHARED_KEY], suffixes=("", "_paper"))
    chance = here.frames.get("chance", pd.DataFrame(columns=[*RESULT_KEYS, *CHANCE_COLUMNS]))
    both = both.merge(chance[[*RESULT_KEYS, *CHANCE_COLUMNS]], "left", RESULT_KEYS)
    both.loc[both[["rate", "bins"]].notna().any(axis=1) | (both.source_model != ""), CHANCE_COLUMNS] = None
    inside = both["value"].between(both["low_paper"] - HALF_DIGIT, both["high_paper"] + HALF_DIGIT)
    reasons = both[[*PAIR, *SOURCE]].map(find_foreign(here, paper).get).bfill(axis=1).iloc[:, 0]
    conditions = [reasons.notna(), both["value_paper"].isna(), both["low_paper"].isna(), inside]
    verdicts = [NOT_COMPARABLE + reasons.fillna(""), "not in the paper", "no interval printed", "inside"]
    both["verdict"] = np.select(conditions, verdicts, "outside")
    both.loc[reasons.notna(), PAPER_NUMBERS] = np.nan
    both = both.assign(
        model=both["model_label"],
        dataset=both["dataset_label"],
        variant=[" ".join(filter(None, map(format_key_part, parts))) for parts in both[VARIANT].to_numpy()],
        estimator=both["estimator"].replace({name: e.plain for name, e in ESTIMATORS.items()}),
        difference=both["value"] - both["value_paper"],
    )
    columns = ["table", "key", *PAIR, "estimator", "metric", "variant", *COMPARED_NUMBERS, *CHANCE_COLUMNS, "verdict"]
    frame = both[columns].astype(dict.fromkeys(COMPARED_NUMBERS, float))
    counts = frame.groupby(["table", "verdict"], sort=False).size().unstack(fill_value=0)
    return ReportRecords(frame, counts.rename_axis(columns=None).reset_index())


def format_key_part(part: Any) -> str:
    """Return a part of a key: empty if it does not apply, 10 for 10.0."""
    return "" if pd.isna(part) else part if isinstance(part, str) else f"{part:g}"


def find_foreign(here: Results, paper: Results) -> dict[str, str]:
    """Return why numbers of a model or dataset of a run cannot be compared with the paper's, by its name."""
    decoding = [*DECODING_SETTINGS.values(), "system_prompt"]
    printed, facts, reasons = {spec.label: spec for spec in paper.settings}, paper_facts(), {}
    for name, spec in zip(here.models, here.settings, strict=True):
        if spec.source != facts["models"].get(spec.label):
            reasons[name] = "another model"
        elif any(getattr(spec, setting) != getattr(printed[spec.label], setting) for setting in decoding):
            reasons[name] = "other decoding settings"
    for name, (source, *rows) in here.questions.items():
        known = facts["questions"].get(here.datasets[name], {"source": None})
        if source != known["source"]:
            reasons[name] = "other questions"
        elif rows != [known["calibration"], known["evaluation"]]:
            reasons[name] = "other numbers of questions"
    return reasons


# ---- sensitivity: other choices, one at a time, without a model

CHOICES = {  # that move results and need no model, and what each decides
    "missing": "a response without an answer",
    "logprobs_from": "whose probabilities are read",
    "include_thinking": "the thinking block is part of the response",
    "options": "the words whose mass P(True) compares",
    "phi": "from BALD to confidence",
    "fit_on_tuning_rows": "c_BALD's calibrators see the rows that chose its rate",
    "grader": "what counts as right",
    "bins": "the bins of ECE and MCE",
}
OF_SCORES = ("options", "phi", "fit_on_tuning_rows", "bins")  # they leave the reading of responses as it is
BINS = (10, 20, 30)  # the paper's


def alternative_choices(now: EvaluationChoices) -> Iterator[tuple[str, Any]]:
    """Yield each of CHOICES with every value except the current one (`now`)."""
    for name in CHOICES:
        kind = EvaluationChoices.model_fields[name].annotation
        values = BINS if name == "bins" else (True, False) if kind is bool else get_args(kind)
        yield from ((name, value) for value in values if value != getattr(now, name))


def change_choice(signals: Signals, name: str, value: Any) -> Signals:
    """Return the signals under another choice."""
    changed = replace(signals, choices=signals.choices.model_copy(update={name: value}))
    if name in OF_SCORES:
        changed.responses, changed.sets = signals.responses, signals.sets
    return changed


def judge_errors(signals: Signals, labels: Results) -> dict[str, Verdict]:
    """Judge the claims on the raw and calibrated errors of a run; `labels`: its results without frames."""
    frames = raw_frames(signals) | calibration_frames(signals)
    return judge_all(replace(labels, frames=frames))


def judge_alternatives(signals: Signals, labels: Results) -> pd.DataFrame:
    """Judge the claims again under every alternative choice.

    Return a row for every choice and claim that can be judged here: the choice, the claim's quotation (`finding`) and
    name, its counts `here` and `then`, and whether the verdict `flips`.
    """
    before, records = list(judge_errors(signals, labels).values()), []
    for name, value in alternative_choices(signals.choices):
        said, now = ({True: "yes", False: "no"}.get(one, one) for one in (value, getattr(signals.choices, name)))
        choice = f"{CHOICES[name]} ({name}): {said}, not {now}"
        try:
            after = list(judge_errors(change_choice(signals, name, value), labels).values())
        except UserError as error:  # such as options that are not single tokens of the model
            after = []
            records.append((choice, str(error), "", "", "", False))
        for old, new in zip(before, after, strict=False):
            if old.held is not None:
                flips = new.held not in (None, old.held)
                records.append((choice, old.claim.quote, old.claim.name, old.said, new.said, flips))
    return pd.DataFrame(records, columns=["choice", "finding", "name", "here", "then", "flips"])


def list_changed_verdicts(records: pd.DataFrame) -> ReportRecords:
    """List the claims whose verdict changes, from the output of `judge_alternatives`."""
    changed = records.loc[records.flips, ["choice", "finding", "here", "then"]]
    none = pd.DataFrame([{"choice": "any of them", "finding": "none changes"}])
    return ReportRecords(records, changed if len(changed) else none)


# ---- notes on all tables

NOT_AT_HAND = "from a file, the model not at hand: nothing is known of passes with dropout and temperature"


def list_notes(run: str, signals: Signals, results: Results) -> ReportRecords:
    """List the notes on a run's tables, a row each."""
    counted = answer_coverage(signals.generations)
    rows = counted["rows"].sum()
    unparsed, cut = ((counted[name] * counted["rows"]).sum() / rows for name in ("unparsed", "cut"))
    shares = f"Of {rows} responses to evaluation questions are {unparsed:.1%} without a parsable answer"
    lines = [*describe_sources(run, results), f"{shares}, {cut:.1%} cut by length."]
    lines += [*describe_row_counts(results), *explain_empty_cells(run, results)]
    frame = pd.DataFrame({"note": lines})
    return ReportRecords(frame, frame)


def describe_sources(run: str, results: Results) -> list[str]:
    """Return a line for each model: its source and revision, and the device and precision, from its manifests."""
    pairs, lines = store.pair_names(list(results.models), list(results.datasets)), []
    for pair, facts in store.read_manifests(run, "generations", pairs):
        said = NOT_AT_HAND
        if loaded := facts.get("loaded"):
            revision = f"@{loaded['revision'][:12]}" if loaded["revision"] else ""
            said = f"{loaded['source']}{revision}, on {loaded['device']}, {loaded['dtype']}"
        lines.append(f"{results.models[pair.split('__')[0]]}: {said}.")
    return list(dict.fromkeys(lines))


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
    here = store.pair_names(params.models_at_hand(list(results.models)), list(results.datasets))
    made = dict(store.read_manifests(run, "dropout", here))
    for pair in here:
        model, dataset = pair.split("__")
        if reason := made[pair].get("missing") if pair in made else "not made yet":
            yield f"No dropout passes of {results.models[model]} on {results.datasets[dataset]}: {reason}."
    for pair, facts in store.read_manifests(run, "verification", pairs):
        model, dataset = pair.split("__")
        for remark in facts.get("remarks", ()):
            yield f"P(True) of {results.models[model]} on {results.datasets[dataset]}: {remark}."
    told = [frame for frame in results.frames.values() if "reason" in frame]
    reasons = pd.concat([frame.reason[frame.filter(["value", "answered"]).isna().any(axis=1)] for frame in told])
    if said := ", ".join(filter(None, reasons.dropna().unique())):
        yield f"--: {said}."
