"""For which other pairs a calibrator holds (Finding 4).

Calibrators of Ans Avg are applied to other model-dataset pairs (`tab:calibration_transfer_full`).
"""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from lib.calibrate.calibration_sets import DataByPair, Pair, ScoredSplit
from lib.calibrate.fit_methods import Fit
from lib.score.metrics import ece, measure
from lib.store import PAIR

SOURCE = ["source_model", "source_dataset"]
MANY_PAIRS = 16  # the paper has 15


def transfer(
    sets: DataByPair, fits: Iterable[Fit], n_bins: int = 10, all_transfers: bool = False
) -> pd.DataFrame:
    """Apply calibrators of Ans Avg that were fitted on one pair to other pairs.

    Of many pairs, a calibrator moves to its neighbors only: pairs of the same model or of the same
    dataset. All pairs would be as many transfers as the square of their number.

    Parameters
    ----------
    sets : dict
        As `calibration_data` returns it.
    fits : iterable of Fit
        As `calibrate` returns them.
    n_bins
        As for `ece`.
    all_transfers
        Whether to apply each calibrator to every pair even if there are many (MANY_PAIRS).

    Returns
    -------
    DataFrame
        The target's model and dataset, source_model and source_dataset ("" for the raw score),
        method, metric (ece, mce, brier, and `delta_ece` against the raw score), value, n.

    Examples
    --------
    >>> from lib.calibrate.calibration_sets import CalibrationData
    >>> import numpy as np
    >>> keys = pd.DataFrame({"model": "m", "dataset": "d", "example_id": ["a", "b", "c"]})
    >>> correct = np.array([False, True, True])
    >>> split = ScoredSplit(keys, np.array([0.2, 0.9, 0.6]), None, correct)
    >>> sets = {("m", "d"): CalibrationData(split, split)}
    >>> errors = transfer(sets, [])
    >>> errors[errors.metric == "ece"].value.round(2).tolist()
    [0.23]
    """
    rows: list[tuple] = []
    every_pair = all_transfers or len(sets) < MANY_PAIRS
    fits = list(fits)
    for target, data in sets.items():
        new = data.evaluation
        raw_error = ece(new.confidence, new.correct, n_bins)
        applied = fits
        if not every_pair:
            applied = [fit for fit in fits if are_neighbors(fit.pair, target)]
        for source, scores in scores_by_source(new, applied).items():
            values = {}
            for metric in ("ece", "mce", "brier"):
                values[metric] = measure(metric, scores, new.correct, n_bins)
            values["delta_ece"] = values["ece"] - raw_error
            for metric, value in values.items():
                rows.append((*target, *source, metric, value, len(scores)))
    return pd.DataFrame(rows, columns=[*PAIR, *SOURCE, "method", "metric", "value", "n"])


def are_neighbors(pair: Pair, other: Pair) -> bool:
    """Return whether two pairs have the same model or the same dataset.

    Examples
    --------
    >>> are_neighbors(("m", "d"), ("n", "d")), are_neighbors(("m", "d"), ("n", "e"))
    (True, False)
    """
    return pair[0] == other[0] or pair[1] == other[1]


def scores_by_source(new: ScoredSplit, fits: Iterable[Fit]) -> pd.DataFrame:
    """Return Ans Avg of evaluation rows, raw and calibrated by every pair's calibrators.

    The frame has a row per example_id and a column per (source_model, source_dataset, method). The
    raw score comes first, with empty names.

    Examples
    --------
    >>> import numpy as np
    >>> keys = pd.DataFrame({"model": "m", "dataset": "d", "example_id": ["a"]})
    >>> new = ScoredSplit(keys, np.array([0.2]), None, np.array([False]))
    >>> scores_by_source(new, []).loc["a"].tolist()
    [0.2]
    """
    scores = {("", "", ""): new.confidence}
    inputs: dict[str, Any] = {"confidence": new.confidence, "answers": None}
    if new.answers is not None:
        inputs["answers"] = new.answers.without_caches()
    for fit in fits:
        kind = fit.method.answer_input
        values = inputs[kind]
        is_of_ans_avg = fit.serves_ans_avg and fit.kind == kind
        if is_of_ans_avg and values is not None:
            scores[*fit.pair, fit.method.name] = fit.calibrator.predict(values)
    return pd.DataFrame(scores, index=new.keys.example_id).rename_axis(columns=[*SOURCE, "method"])
