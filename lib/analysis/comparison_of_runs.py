"""Compare two runs of the same models on the same questions, up to rounding.

CPUs round differently, and occasionally another token is sampled. So responses that diverged are counted and excluded
from both runs. The remaining numbers may differ by TOLERANCE, but for those after isotonic regression, which jump where
two close scores swap.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.analysis.run_signals import Frames, RunSignals
from lib.paths import UserError
from lib.score.bootstrap import RESAMPLED
from lib.score.metrics import METRICS
from lib.store import KEYS, PAIR

LEAST_MATCHED = 0.97  # minimum share of identical responses
TOLERANCE = 0.002  # of a number, between machines
UNSTABLE_METHOD = "isotonic"  # numbers of this method may differ by more
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
    return RunSignals.from_frames(generations, verification, dropout, side.choices)


def list_differing_rates(ours: RunSignals, theirs: RunSignals) -> list[str]:
    """Describe the pairs with different selected dropout rates."""
    rates = [side.dropout[side.dropout.selected].groupby(PAIR, sort=False).rate.min() for side in (ours, theirs)]
    both = pd.concat(rates, axis=1, keys=["here", "there"]).dropna().query("here != there")
    return [
        f"{model} on {dataset} is {here:.2f}, shipped {there:.2f}"
        for (model, dataset), here, there in both.itertuples()
    ]


def recompute_frames(signals: RunSignals, n_bins_ablation: Sequence[int]) -> Frames:
    """Return the frames of every table that depends on log-probabilities, without intervals."""
    frames = signals.raw_frames(n_bins_ablation, [name for name in METRICS if name in RESAMPLED])
    frames |= signals.calibration_frames(RESAMPLED)
    return frames | {"result_estimation_full": frames["result_calibration"]}


def compare_numbers(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per number of the tables.

    Columns: table, key, here, shipped, difference, within, and `reads`, whether its printed form differs.

    Parameters
    ----------
    ours, theirs
        The numbers of a run and of the shipped one, from `lib.paper.report_contents.printed_numbers`.
    """
    ours, theirs = (side[["table", "key", "value", "text"]] for side in (ours, theirs))
    table = ours.merge(theirs, on=["table", "key"], how="outer", suffixes=("", "_theirs"))
    table = table.rename(columns={"value": "here", "value_theirs": "shipped"})
    gap, reads = (table.here - table.shipped).abs(), table.text != table.text_theirs
    unstable = table.key.str.contains(UNSTABLE_METHOD)
    within = (gap <= TOLERANCE) | (unstable & gap.notna())  # false for a missing number
    return table.drop(columns=["text", "text_theirs"]).assign(difference=gap, within=within, reads=reads)


def list_differing_numbers(table: pd.DataFrame, file: str) -> list[str]:
    """Return a line for each number whose printed form differs or that differs by too much, largest excess first."""
    shown = table[table.reads | ~table.within].sort_values(["within", "difference"], ascending=[True, False])
    lines = [
        f"{row.table} {row.key}: {row.here:.4f} here, {row.shipped:.4f} shipped, differs by {row.difference:.2g}"
        + ("" if row.within else f", MORE than {TOLERANCE}")
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
        return False, f"NOT the same: {beyond} of {len(table)} numbers differ by more than {TOLERANCE}"
    far = int((table.difference > TOLERANCE).sum())
    rows = f"{matched.rows - matched.other} of {matched.rows} responses alike"
    how = f"{read} read otherwise, by at most {TOLERANCE}" if read else "all read alike"
    how += f" ({far} by more, after isotonic regression)" if far else ""
    return True, f"the same: {len(table)} numbers, {how}; {rows}"
