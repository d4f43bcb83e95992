"""What 10_judge says first of a table of scores, in sentences.

Names of columns are a user's: the page escapes the sentences.
"""

from collections.abc import Iterator

import pandas as pd

from lib.analysis.judged_scores import CONSTANT, CalibratedNumbers, RawNumbers, warn_of_few_rows
from lib.paper.booktabs import ReportRecords
from lib.paper.cells import format_3dp
from lib.paper.judged import HEADS, describe_more_labels, excludes_zero, join_words
from lib.score.score_files import ScoreTable

METHOD_WORDS = {"isotonic": "isotonic regression", "platt": "Platt scaling", CONSTANT: "a constant"}


def list_answers(
    table: ScoreTable, raw: RawNumbers, after: CalibratedNumbers, thresholds: pd.DataFrame
) -> ReportRecords:
    """List what a table says first: a warning, if any (`kind`), and sentences (`text`)."""
    records = []
    warning = warn_of_few_rows(table.rows.correct)
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
    best = rows.value.idxmax() if metric == "auroc" else rows.value.idxmin()
    number = rows.loc[best]
    ends = f"[{format_3dp(number.low)}, {format_3dp(number.high)}]"
    kind = "highest" if metric == "auroc" else "lowest"
    sentence = f"{best} has the {kind} {HEADS[metric]}, {format_3dp(number.value)} {ends}"
    if len(rows) == 1:
        sentence = f"The {HEADS[metric]} of {best} is {format_3dp(number.value)} {ends}"
    if metric == "ece":
        sentence += f"; chance alone gives calibrated scores up to {format_3dp(number.chance_high)}"
    alike = []
    of_metric = raw.differences[raw.differences.metric == metric]
    for row in of_metric.itertuples():
        if best in (row.column, row.than) and not excludes_zero(row.low, row.high):
            alike.append(row.than if row.column == best else row.column)
    if alike:
        sentence += f"; {join_words(alike)} cannot be told from it"
    return f"{sentence}."


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
