"""What 10_judge says first of a table of scores, in sentences.

Names of columns are a user's: the page escapes the sentences.
"""

from collections.abc import Iterator

import pandas as pd

from lib.analysis.judged_scores import CONSTANT, CalibratedNumbers, RawNumbers, warn_of_few_rows
from lib.paper.cells import format_3dp
from lib.paper.judged import HEADS, describe_more_labels, excludes_zero, join_words
from lib.paper.report_records import ReportRecords
from lib.score.score_files import ScoreTable

METHOD_WORDS = {"isotonic": "isotonic regression", "platt": "Platt scaling", CONSTANT: "a constant"}


def list_answers(
    table: ScoreTable, raw: RawNumbers, after: CalibratedNumbers, thresholds: pd.DataFrame
) -> ReportRecords:
    """List what a table says first: a warning, if any (`kind`), and sentences (`text`)."""
    records = []
    warning = warn_of_few_rows(table.rows)
    if warning:
        records.append(("warning", f"These rows can tell little: {warning}."))
    sentences = [
        describe_table_rows(table),
        describe_best(raw, "ece"),
        describe_best(raw, "auroc"),
        *describe_methods(after.results),
        *describe_thresholds(thresholds),
    ]
    records += [("sentence", sentence) for sentence in sentences]
    frame = pd.DataFrame(records, columns=["kind", "text"])
    return ReportRecords(frame, frame[["text"]])


def describe_table_rows(table: ScoreTable) -> str:
    """Say how many rows and groups a table has, and how many are right."""
    rows = f"{len(table.rows):,} rows"
    groups = table.rows.group.nunique()
    if groups < len(table.rows):
        rows += f" in {groups:,} groups"
    return f"{rows}, {table.rows.correct.mean():.1%} right."


def describe_best(raw: RawNumbers, metric: str) -> str:
    """Say which column is best by a metric on all rows, and which cannot be told from it."""
    rows = raw.results[raw.results.metric == metric].set_index("column")
    if metric == "auroc":
        kind = "highest"
        best = rows.value.idxmax()
    else:
        kind = "lowest"
        best = rows.value.idxmin()
    number = rows.loc[best]
    head = HEADS[metric]
    low = format_3dp(number.low)
    high = format_3dp(number.high)
    value = f"{format_3dp(number.value)} [{low}, {high}]"
    sentence = f"{best} has the {kind} {head}, {value}"
    if len(rows) == 1:
        sentence = f"The {head} of {best} is {value}"
    if metric == "ece":
        sentence += f"; chance alone gives calibrated scores up to {format_3dp(number.chance_high)}"
    of_metric = raw.differences[raw.differences.metric == metric]
    alike = list_alike(best, of_metric)
    if alike:
        sentence += f"; {join_words(alike)} cannot be told from it"
    return f"{sentence}."


def list_alike(best: str, differences: pd.DataFrame) -> list[str]:
    """Return the columns whose difference to the best one may be 0."""
    alike = []
    for row in differences.itertuples():
        if excludes_zero(row.low, row.high):
            continue
        if row.column == best:
            alike.append(row.than)
        elif row.than == best:
            alike.append(row.column)
    return alike


def describe_methods(calibrated: pd.DataFrame) -> Iterator[str]:
    """Say whose Brier score each method lowers on the second half, by its interval."""
    rows = calibrated[(calibrated.metric == "brier") & (calibrated["method"] != "")]
    for method, part in rows.groupby("method", sort=False):
        lower = part[part.difference_high < 0]["column"]
        whose = join_words(lower) if len(lower) else "no column"
        yield f"On the second half, {METHOD_WORDS[method]} lowers the Brier score of {whose}."


def describe_thresholds(thresholds: pd.DataFrame) -> Iterator[str]:
    """Say for each target which columns have a guaranteed threshold, or what it would take."""
    for target, rows in thresholds.groupby("target", sort=False):
        made = rows.dropna(subset="threshold")
        precision = f"{100 * target:g}%"
        if len(made):
            ways = []
            for row in made.to_dict("records"):
                share = f"{100 * row['answered']:.0f}% answered"
                ways.append(f"{row['column']} from {row['threshold']:.4g} up ({share})")
            yield f"A precision of {precision} is guaranteed by {join_words(ways)}."
            continue
        possible = rows.dropna(subset="more_labels")
        if possible.empty:
            yield f"No threshold gives {precision}: at none are answers right so often."
            continue
        least = possible.loc[possible.more_labels.astype(int).idxmin()]
        count = describe_more_labels(least.more_labels)
        yield (
            f"No threshold guarantees {precision} yet: "
            f"with {least['column']} it takes {count} more labels."
        )
