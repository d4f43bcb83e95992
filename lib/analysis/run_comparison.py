"""Compare two runs of the same models on the same questions, up to rounding.

CPUs round differently, and occasionally another token is sampled. So responses that diverged are counted and excluded
from both runs. The remaining numbers may differ by as much as noise changes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.analysis.run_signals import RunSignals
from lib.paths import UserError
from lib.store import KEYS, PAIR

LEAST_MATCHED = 0.97  # minimum share of identical responses
TIMES_NOISE = 3  # a number may differ by this multiple of its largest change in ten noisy draws,
LEAST_TOLERANCE = 1e-4  # or by a tenth of the last printed digit
STEP_METHOD = "isotonic"  # results of this method jump if two close scores swap, too rarely to appear in few draws
LISTED_NUMBERS = 20  # at most


@dataclass(frozen=True)
class MatchedRows:
    """The signals of both runs on the rows with identical tokens.

    `rows` are in both runs, `other` of them with diverged responses. `rates` lists dropout rates that differ. `noise`
    is the difference of log-probabilities (root mean square, and maximum). `alone` counts rows in only one of the runs.
    """

    ours: RunSignals
    theirs: RunSignals
    rows: int
    other: int
    rates: Sequence[str]
    noise: tuple[float, float]
    alone: tuple[int, int]

    @property
    def summary(self) -> list[str]:
        """What is equal and what is not, a line each."""
        typical, most = self.noise
        lines = [f"log-probabilities of the same tokens differ by {typical:.1e} (root mean square), at most {most:.1e}"]
        if self.other:
            lines.append(f"{self.other} of {self.rows} responses were written otherwise: left out on both sides")
        return lines + [f"dropout rate of {where}: c_BALD is left out there" for where in self.rates]


def match_rows(ours: RunSignals, theirs: RunSignals) -> MatchedRows:
    """Match the rows of both runs. Raise UserError if no response is identical."""
    rows = ours.generations.merge(theirs.generations, on=KEYS, suffixes=("", "_theirs"))
    same = [np.array_equal(*tokens) for tokens in zip(rows.token_ids, rows.token_ids_theirs, strict=True)]
    kept = rows[np.array(same, dtype=bool)]
    if kept.empty:
        raise UserError("no response in common with what is shipped: these are other models or questions")
    old, new = (np.concatenate(list(kept[name])) for name in ("token_logprobs_theirs", "token_logprobs"))
    gap = np.abs(new.astype(float) - old)
    passes = ours.dropout.merge(theirs.dropout, on=[*KEYS, "rate"], suffixes=("", "_theirs"))
    return MatchedRows(
        ours=select_rows_of_run(ours, kept[KEYS], passes),
        theirs=select_rows_of_run(theirs, kept[KEYS], passes),
        rows=len(rows),
        other=len(rows) - len(kept),
        rates=list_differing_rates(ours, theirs),
        noise=(float(np.sqrt(np.mean(gap**2))), float(gap.max())),
        alone=(len(ours.generations) - len(rows), len(theirs.generations) - len(rows)),
    )


def select_rows_of_run(side: RunSignals, keys: pd.DataFrame, passes: pd.DataFrame) -> RunSignals:
    """Return the signals of these rows, and the passes that both runs have and use in the same way."""
    generations, verification, dropout = (
        frame.merge(keys, on=KEYS) for frame in (side.generations, side.verification, side.dropout)
    )
    both = {name: passes[name] & passes[f"{name}_theirs"] for name in ("tuning", "selected")}
    use = passes[[*KEYS, "rate"]].assign(**both)
    dropout = dropout.drop(columns=["tuning", "selected"]).merge(use, on=[*KEYS, "rate"])
    return RunSignals.from_frames(generations, verification, dropout, side.reading)


def list_differing_rates(ours: RunSignals, theirs: RunSignals) -> list[str]:
    """Describe the pairs with different selected dropout rates."""
    rates = [side.dropout[side.dropout.selected].groupby(PAIR, sort=False).rate.min() for side in (ours, theirs)]
    both = pd.concat(rates, axis=1, keys=["here", "there"]).dropna().query("here != there")
    return [
        f"{model} on {dataset} is {here:.2f}, shipped {there:.2f}"
        for (model, dataset), here, there in both.itertuples()
    ]


def compare_numbers(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per number of the tables.

    Columns: table, key, here, shipped, difference, tolerance, moves (under noise), within, and `reads`, whether its
    printed form differs.

    Parameters
    ----------
    ours
        The run's numbers, from `lib.analysis.printed_numbers.printed_numbers`.
    theirs
        The shipped numbers with their change under noise, from `lib.analysis.rounding.measure_noise_effect`.
    """
    ours, theirs = (side.rename(columns={"value": name}) for side, name in ((ours, "here"), (theirs, "shipped")))
    table = ours[["table", "key", "here", "text"]].merge(
        theirs[["table", "key", "shipped", "text", "moves"]], on=["table", "key"], how="outer", suffixes=("", "_theirs")
    )
    table = table.fillna({"moves": 0.0})
    gap, reads = (table.here - table.shipped).abs(), table.text != table.text_theirs
    steps = table.moves.where(table.key.str.contains(STEP_METHOD))  # the largest of the same metric in its table
    far = steps.groupby([table.table, table.key.str.split("/").str[3]]).transform("max").where(steps.notna()).fillna(0)
    tolerance = np.maximum(np.maximum(TIMES_NOISE * table.moves, LEAST_TOLERANCE), far)
    table = table.drop(columns=["text", "text_theirs"])
    within = gap <= tolerance  # false for a missing number
    return table.assign(difference=gap, tolerance=tolerance, within=within, reads=reads)


def list_differing_numbers(table: pd.DataFrame, file: str) -> list[str]:
    """Return a line for each number whose printed form differs or that differs by too much, largest excess first."""
    shown = table[table.reads | ~table.within].sort_values(["within", "difference"], ascending=[True, False])
    lines = [
        f"{row.table} {row.key}: {row.here:.4f} here, {row.shipped:.4f} shipped, differs by {row.difference:.2g}, "
        f"{'within' if row.within else 'MORE than'} what rounding moves ({row.tolerance:.2g})"
        for row in shown.head(LISTED_NUMBERS).itertuples()
    ]
    more = len(shown) - LISTED_NUMBERS
    return [*lines, f"and {more} more, all in {file}" if more > 0 else f"every number: {file}"]


def judge_reproduction(table: pd.DataFrame, matched: MatchedRows, wrong: Sequence[str] = ()) -> tuple[bool, str]:
    """Return whether the run reproduces the shipped one, with one line of explanation.

    `wrong`: tables of the run that its signals do not reproduce.
    """
    beyond, read = int((~table.within).sum()), int((table.reads & table.within).sum())
    if matched.other > (1 - LEAST_MATCHED) * matched.rows:
        return False, f"NOT the same: {matched.other} of {matched.rows} responses were written otherwise"
    if any(matched.alone):
        return False, "NOT the same: {} responses are here alone, {} are shipped alone".format(*matched.alone)
    if wrong:
        return False, f"NOT the same: {len(wrong)} of the run's tables are not what its signals give"
    if beyond:
        return False, f"NOT the same: {beyond} of {len(table)} numbers differ by more than rounding moves them"
    rows = f"{matched.rows - matched.other} of {matched.rows} responses alike"
    how = f"{read} read otherwise, by no more than rounding moves them" if read else "all read alike"
    return True, f"the same: {len(table)} numbers, {how}; {rows}"
