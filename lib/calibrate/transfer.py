"""Finding 4 on Ans Avg: calibrators fitted on one model and dataset, applied unchanged to others
(`tab:calibration_transfer_full`)."""

from collections.abc import Mapping

import pandas as pd

from lib.calibrate.base_calibrator import Calibrator
from lib.calibrate.calibrators import METHODS
from lib.calibrate.fitting import DataByPair, Pair, ScoredSplit
from lib.score.metrics import METRICS

TRANSFER_METRICS = ("ece", "mce", "brier")
SOURCE = ["source_model", "source_dataset"]


def transfer(
    sets: DataByPair,
    fitted: Mapping[Pair, Mapping[str, Calibrator]],
    n_bins: int = 10,
) -> pd.DataFrame:
    """Apply calibrators fitted on one pair to every pair (`tab:calibration_transfer_full`).

    Parameters
    ----------
    sets : dict
        As `calibration_data` returns it.
    fitted : dict
        As `fit_answers` returns it.
    n_bins
        As for `ece`.

    Returns
    -------
    DataFrame
        The target's model and dataset, source_model and source_dataset ("" for the raw score), method, metric
        (TRANSFER_METRICS, and `delta_ece` against the raw score), value, n.
    """
    rows: list[tuple] = []
    for target, (_, new) in sets.items():
        if not len(new.correct):
            continue
        for (*source, method), scores in scores_by_source(new, fitted).items():
            values = {name: METRICS[name](scores, new.correct, n_bins) for name in TRANSFER_METRICS}
            values["delta_ece"] = values["ece"] - METRICS["ece"](new.confidence, new.correct, n_bins)
            rows += [(*target, *source, method, metric, value, len(scores)) for metric, value in values.items()]
    columns = ["model", "dataset", *SOURCE, "method", "metric", "value", "n"]
    return pd.DataFrame(rows, columns=columns)


def scores_by_source(new: ScoredSplit, fitted: Mapping[Pair, Mapping[str, Calibrator]]) -> pd.DataFrame:
    """Return Ans Avg of evaluation rows, raw and calibrated by every pair's calibrators.

    The frame has a row per example_id and a column per (source_model, source_dataset, method). The raw score comes
    first, with empty names.
    """
    scores = {("", "", ""): new.confidence}
    for source, calibrators in fitted.items():
        for method, calibrator in calibrators.items():
            if (taken := getattr(new, METHODS[method].of_answers)) is not None:
                scores[*source, method] = calibrator.predict(taken)
    return pd.DataFrame(scores, index=new.keys.example_id).rename_axis(columns=[*SOURCE, "method"])
