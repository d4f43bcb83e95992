"""Helpers for views of claims: rows of results, pivoted or compared with the hardest dataset; and summaries."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from lib.analysis.results import Results, tidy_numbers
from lib.store import PAIR

CELL = [*PAIR, "estimator"]
MIN_CASES = 20  # minimum number of rows for a statement


class NotApplicable(Exception):
    """Why results cannot decide a claim although they have its frames."""


# ---- rows of results


def pivot_values(rows: pd.DataFrame, columns: str, values: str = "value", index: list[str] = PAIR) -> pd.DataFrame:
    """Return a row per `index` and a column for each of `columns`."""
    return rows.pivot(index=index, columns=columns, values=values).astype(float).rename_axis(columns=None)


def rows_of_table(results: Results, table: str, metric: str = "ece") -> pd.DataFrame:
    """Return the rows of a table with a metric, as `tidy_numbers` does. Raise MissingFrame if the table is missing."""
    return tidy_numbers({table: results.frame(table, metric=metric)})


def uncalibrated(results: Results, table: str = "result_estimation", metric: str = "ece") -> pd.DataFrame:
    """Return a metric before calibration by pair, an estimator per column."""
    rows = rows_of_table(results, table, metric)
    return pivot_values(rows[rows.method == ""], "estimator")


def on_same_rows(results: Results, table: str, names: list[str]) -> pd.DataFrame:
    """Return the raw ECE of these estimators on the same rows.

    If some have fewer rows (dropout passes), the ECE of the others is on the shared rows (`ece_on_shared_rows`).
    """
    errors = uncalibrated(results, table).reindex(columns=names)
    shared = uncalibrated(results, table, "ece_shared").reindex(index=errors.index, columns=names)
    errors.update(shared[shared.isna().any(axis=1)])
    return errors


# ---- comparison with the hardest dataset


def hardest_dataset(results: Results) -> str:
    """Return the dataset with the lowest accuracy. Raise NotApplicable if there is only one dataset."""
    hardest = results.hardest_dataset
    if len(results.datasets) < 2:
        raise NotApplicable("one dataset")
    return hardest


def compare_with_hardest(results: Results, table: pd.DataFrame) -> pd.DataFrame:
    """Return the hardest dataset of a table (datasets in columns), and the largest of the others."""
    hardest = hardest_dataset(results)
    table = table.reindex(columns=table.columns.union([hardest], sort=False))
    return pd.DataFrame({"hard": table[hardest], "elsewhere": table.drop(columns=hardest).max(axis=1)})


def compare_medians_with_hardest(results: Results, margin: pd.Series) -> pd.DataFrame:
    """Return one case: the median of a margin by pair on the hardest dataset, and elsewhere."""
    hard = margin.index.get_level_values("dataset") == hardest_dataset(results)
    if hard.all() or not hard.any():
        raise NotApplicable("no case elsewhere" if hard.any() else "no case on the hard dataset")
    return pd.DataFrame([{"hard": margin[hard].median(), "elsewhere": margin[~hard].median()}])


# ---- over a row


def range_of_row(table: pd.DataFrame) -> pd.Series:
    """Return the largest minus the smallest of a row."""
    return table.max(axis=1) - table.min(axis=1)


def last_column(table: pd.DataFrame) -> pd.Series:
    """Return the last column, NaN if there is none."""
    return table.iloc[:, -1] if table.shape[1] else pd.Series(float("nan"), table.index)


# ---- summaries where a count is not enough


def count_by(column: str, equal: str = "") -> Callable[[pd.DataFrame], str]:
    """Count the agreeing cases by value of a column, with `equal` ones: "Seq 11 of 15, Ans 6 of 15 (8 equal)"."""

    def count(rows: pd.DataFrame) -> str:
        said = []
        for value, part in rows.groupby(column, sort=False):
            same = int(part.eval(equal).sum()) if equal else 0
            said.append(f"{value} {part.agrees.sum()} of {len(part)}" + (f" ({same} equal)" if same else ""))
        return ", ".join(said)

    return count


def count_directions(rows: pd.DataFrame) -> str:
    """Count the pairs in which the demonstration raises or lowers a share by more than chance."""
    clear = rows[rows.p < 0.05]
    more = int((clear.only_with > clear.only_without).sum())
    return f"more on {more}, less on {len(clear) - more}"


def fill_template(template: str) -> Callable[[pd.DataFrame], Any]:
    """Write the numbers of each case: "hard 0.137, elsewhere 0.013"."""
    return lambda rows: ", ".join(template.format(**row) for row in rows.to_dict("records"))
