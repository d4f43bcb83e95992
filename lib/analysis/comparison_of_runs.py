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

from lib.analysis.run_results import Frames, calibration_frames, raw_frames
from lib.analysis.signals import Signals
from lib.errors import UserError
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
    here, shipped = (side.generations[[*KEYS, "token_ids"]] for side in (ours, theirs))
    rows = here.merge(shipped, on=KEYS, how="outer", suffixes=("", "_shipped"), indicator="outcome")
    same = np.array(
        [
            np.array_equal(*tokens)
            for tokens in zip(rows.token_ids, rows.token_ids_shipped, strict=True)
        ]
    )
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
    generations, verification, dropout = (
        frame.merge(keys, on=KEYS) for frame in (side.generations, side.verification, side.dropout)
    )
    uses = ["tuning", "selected"]
    dropout = dropout.merge(
        other_passes[[*KEYS, "rate", *uses]], on=[*KEYS, "rate"], suffixes=("", "_there")
    )
    both = {use: dropout[use] & dropout[f"{use}_there"] for use in uses}
    return Signals(generations, verification, dropout.assign(**both), side.choices)


def list_differing_rates(ours: Signals, theirs: Signals) -> list[str]:
    """Return a line for each pair with different selected dropout rates."""
    rates = [
        side.dropout[side.dropout.selected].groupby(PAIR, sort=False).rate.min()
        for side in (ours, theirs)
    ]
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
    """Return a row per number of the tables: table, key, here, shipped, difference, and whether it
    is `within`.

    Parameters
    ----------
    ours, theirs
        The numbers of a run and of the shipped one, from
        `lib.paper.comparison_with_paper.printed_numbers`.
    """
    here, shipped = (side.set_index(["table", "key"]).value for side in (ours, theirs))
    table = pd.DataFrame({"here": here, "shipped": shipped}).reset_index()
    difference = (table.here - table.shipped).abs()
    unstable = table.key.str.contains(UNSTABLE_METHOD) & difference.notna()
    return table.assign(difference=difference, within=(difference <= TOLERANCE) | unstable)
