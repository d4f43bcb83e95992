"""Compare two runs of the same models on the same questions, up to rounding.

CPUs round differently, and occasionally another token is sampled. So responses that diverged are
counted and excluded from both runs. The remaining numbers may differ by TOLERANCE, but for those
after isotonic regression, which jump where two close scores swap.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from lib.analysis.pair_frames import Frames
from lib.analysis.run_results import calibration_frames, raw_frames
from lib.analysis.signals import Signals
from lib.errors import UserError
from lib.score.confidence import evaluate_rate_grid
from lib.store import KEYS, PAIR

TOLERANCE = 0.002  # of a number, between machines
UNSTABLE_METHOD = "isotonic"  # numbers of this method may differ by more
# by pandas' words
OUTCOMES = {"both": "diverged", "left_only": "only here", "right_only": "only shipped"}


class MatchedRuns(NamedTuple):
    """The signals of both runs on the rows with identical tokens.

    `outcomes` counts the rows of either run: same, diverged (other tokens), only here, only
    shipped. `left_out` has a line for all else that is left out on both sides.
    """

    ours: Signals
    theirs: Signals
    outcomes: Counter[str]
    left_out: Sequence[str]


def match_rows(ours: Signals, theirs: Signals) -> MatchedRuns:
    """Match the rows of both runs. Raise UserError if no response is identical."""
    here = ours.generations[[*KEYS, "token_ids"]]
    shipped = theirs.generations[[*KEYS, "token_ids"]]
    rows = here.merge(shipped, on=KEYS, how="outer", suffixes=("", "_shipped"), indicator="outcome")
    is_same = []
    for tokens, others in zip(rows.token_ids, rows.token_ids_shipped, strict=True):
        is_same.append(np.array_equal(tokens, others))
    same = np.array(is_same)
    outcome = rows.outcome.astype(str).replace(OUTCOMES)
    if not same.any():
        raise UserError(
            "no response in common with what is shipped: these are other models or questions"
        )
    return MatchedRuns(
        ours=keep_shared_rows(ours, theirs.dropout, rows.loc[same, KEYS]),
        theirs=keep_shared_rows(theirs, ours.dropout, rows.loc[same, KEYS]),
        outcomes=Counter(outcome.mask(same, "same")),
        left_out=list_differing_rates(ours, theirs),
    )


def keep_shared_rows(side: Signals, other_passes: pd.DataFrame, keys: pd.DataFrame) -> Signals:
    """Return the signals of these rows, and the passes that the other run has, too, and uses in the
    same way."""
    uses = ["tuning", "selected"]
    rate = [*KEYS, "rate"]
    dropout = side.dropout.merge(keys, on=KEYS)
    uses_there = other_passes[[*rate, *uses]]
    dropout = dropout.merge(uses_there, on=rate, suffixes=("", "_there"))
    for use in uses:
        dropout[use] &= dropout[f"{use}_there"]
    return Signals(
        generations=side.generations.merge(keys, on=KEYS),
        verification=side.verification.merge(keys, on=KEYS),
        dropout=dropout,
        choices=side.choices,
    )


def list_differing_rates(ours: Signals, theirs: Signals) -> list[str]:
    """Return a line for each pair with different selected dropout rates."""
    rates = {}
    for name, side in {"here": ours, "shipped": theirs}.items():
        passes = side.dropout[side.dropout.selected]
        rates[name] = passes.groupby(PAIR, sort=False).rate.min()
    both = pd.concat(rates, axis=1).dropna()
    lines = []
    for (model, dataset), here, shipped in both[both.here != both.shipped].itertuples():
        lines.append(
            f"dropout rate of {model} on {dataset} is {here:.2f}, shipped {shipped:.2f}: "
            "c_BALD is left out there"
        )
    return lines


def recompute_frames(
    signals: Signals, n_bins_ablation: Sequence[int], all_transfers: bool = False
) -> Frames:
    """Return the frames of every table that depends on log-probabilities, without intervals."""
    frames = raw_frames(signals, n_bins_ablation) | calibration_frames(signals, all_transfers)
    grid = evaluate_rate_grid(signals.responses, signals.dropout, signals.choices)
    frames["dropout_grid_search"] = grid
    frames["result_estimation_full"] = frames["result_calibration"]
    return frames


def compare_numbers(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per number of the tables: table, key, here, shipped, difference, and whether it
    is `within`.

    Parameters
    ----------
    ours, theirs
        The numbers of a run and of the shipped one, from
        `lib.paper.comparison_with_paper.printed_numbers`.
    """
    here = ours.set_index(["table", "key"]).value
    shipped = theirs.set_index(["table", "key"]).value
    table = pd.DataFrame({"here": here, "shipped": shipped}).reset_index()
    difference = (table.here - table.shipped).abs()
    unstable = table.key.str.contains(UNSTABLE_METHOD) & difference.notna()
    return table.assign(difference=difference, within=(difference <= TOLERANCE) | unstable)
