"""Compare two runs of the same models on the same questions, up to rounding.

CPUs round differently, and occasionally another token is sampled. So responses that diverged are counted and excluded
from both runs. The remaining numbers may differ by TOLERANCE, but for those after isotonic regression, which jump where
two close scores swap.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.analysis.run_results import Frames, Signals, calibration_frames, interpret_signals, raw_frames
from lib.paths import UserError
from lib.store import KEYS, PAIR

LEAST_MATCHED = 0.97  # minimum share of identical responses
TOLERANCE = 0.002  # of a number, between machines
UNSTABLE_METHOD = "isotonic"  # numbers of this method may differ by more
LISTED_NUMBERS = 20  # at most


@dataclass(frozen=True)
class MatchedRuns:
    """The signals of both runs on the rows with identical tokens.

    `n_shared` rows are in both runs, `n_diverged` of them with other tokens; `n_only_here` and `n_only_there` are in
    one run alone. `differences` has a line for each thing that was left out.
    """

    ours: Signals
    theirs: Signals
    n_shared: int
    n_diverged: int
    n_only_here: int
    n_only_there: int
    differences: Sequence[str]


def match_rows(ours: Signals, theirs: Signals) -> MatchedRuns:
    """Match the rows of both runs. Raise UserError if no response is identical."""
    rows = ours.generations.merge(theirs.generations[[*KEYS, "token_ids"]], on=KEYS, suffixes=("", "_theirs"))
    same = [np.array_equal(*tokens) for tokens in zip(rows.token_ids, rows.token_ids_theirs, strict=True)]
    kept = rows.loc[np.array(same, dtype=bool), KEYS]
    if kept.empty:
        raise UserError("no response in common with what is shipped: these are other models or questions")
    diverged, differences = len(rows) - len(kept), list_differing_rates(ours, theirs)
    if diverged:
        differences = [f"{diverged} of {len(rows)} responses diverged: left out on both sides", *differences]
    return MatchedRuns(
        ours=select_rows(ours, kept, theirs.dropout),
        theirs=select_rows(theirs, kept, ours.dropout),
        n_shared=len(rows),
        n_diverged=diverged,
        n_only_here=len(ours.generations) - len(rows),
        n_only_there=len(theirs.generations) - len(rows),
        differences=differences,
    )


def select_rows(side: Signals, keys: pd.DataFrame, other_passes: pd.DataFrame) -> Signals:
    """Return the signals of these rows, and the passes that the other run has, too, and uses in the same way."""
    generations, verification, dropout = (
        frame.merge(keys, on=KEYS) for frame in (side.generations, side.verification, side.dropout)
    )
    uses = ["tuning", "selected"]
    dropout = dropout.merge(other_passes[[*KEYS, "rate", *uses]], on=[*KEYS, "rate"], suffixes=("", "_there"))
    both = {use: dropout[use] & dropout[f"{use}_there"] for use in uses}
    return interpret_signals(generations, verification, dropout.assign(**both), side.choices)


def list_differing_rates(ours: Signals, theirs: Signals) -> list[str]:
    """Return a line for each pair with different selected dropout rates."""
    rates = [side.dropout[side.dropout.selected].groupby(PAIR, sort=False).rate.min() for side in (ours, theirs)]
    both = pd.concat(rates, axis=1, keys=["here", "there"]).dropna().query("here != there")
    return [
        f"dropout rate of {model} on {dataset} is {here:.2f}, shipped {there:.2f}: c_BALD is left out there"
        for (model, dataset), here, there in both.itertuples()
    ]


def recompute_frames(signals: Signals, n_bins_ablation: Sequence[int]) -> Frames:
    """Return the frames of every table that depends on log-probabilities, without intervals."""
    frames = raw_frames(signals, n_bins_ablation) | calibration_frames(signals)
    return frames | {"result_estimation_full": frames["result_calibration"]}


def compare_numbers(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per number of the tables.

    Columns: table, key, here, shipped, difference, within (the tolerance), and `prints_differently`.

    Parameters
    ----------
    ours, theirs
        The numbers of a run and of the shipped one, from `lib.paper.comparison_with_paper.printed_numbers`.
    """
    ours, theirs = (side[["table", "key", "value", "text"]] for side in (ours, theirs))
    table = ours.merge(theirs, on=["table", "key"], how="outer", suffixes=("", "_there"))
    table = table.rename(columns={"value": "here", "value_there": "shipped"})
    difference = (table.here - table.shipped).abs()
    unstable = table.key.str.contains(UNSTABLE_METHOD)
    within = (difference <= TOLERANCE) | (unstable & difference.notna())  # false for a missing number
    prints_differently = table.pop("text") != table.pop("text_there")
    return table.assign(difference=difference, within=within, prints_differently=prints_differently)


def list_differing_numbers(table: pd.DataFrame, file: str) -> list[str]:
    """Return a line for each number whose printed form differs or that differs by too much, largest excess first."""
    shown = table[table.prints_differently | ~table.within]
    shown = shown.sort_values(["within", "difference"], ascending=[True, False])
    lines = [
        f"{row.table} {row.key}: {row.here:.4f} here, {row.shipped:.4f} shipped, differs by {row.difference:.2g}"
        + ("" if row.within else f", MORE than {TOLERANCE}")
        for row in shown.head(LISTED_NUMBERS).itertuples()
    ]
    more = len(shown) - LISTED_NUMBERS
    return [*lines, f"and {more} more, all in {file}" if more > 0 else f"every number: {file}"]


def judge_reproduction(table: pd.DataFrame, matched: MatchedRuns, wrong: Sequence[str] = ()) -> tuple[bool, str]:
    """Return whether the run reproduces the shipped one, with one line of explanation.

    `wrong`: tables of the run that its signals do not reproduce.
    """
    total, diverged = matched.n_shared, matched.n_diverged
    if diverged > (1 - LEAST_MATCHED) * total:
        return False, f"NOT the same: {diverged} of {total} responses diverged"
    if matched.n_only_here or matched.n_only_there:
        alone = f"{matched.n_only_here} responses are here alone, {matched.n_only_there} are shipped alone"
        return False, f"NOT the same: {alone}"
    if wrong:
        return False, f"NOT the same: {len(wrong)} of the run's tables are not what its signals give"
    if not table.within.all():
        beyond = (~table.within).sum()
        return False, f"NOT the same: {beyond} of {len(table)} numbers differ by more than {TOLERANCE}"
    printed, jumped = table.prints_differently.sum(), (table.difference > TOLERANCE).sum()
    how = f"{printed} print differently" if printed else "all print alike"
    how += f" ({jumped} differ by more than {TOLERANCE}, after isotonic regression)" if jumped else ""
    return True, f"the same: {len(table)} numbers, {how}; {total - diverged} of {total} responses alike"
