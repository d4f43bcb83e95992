"""Finding 4 on Ans Avg: calibrators fitted on one model and dataset, applied unchanged to others
(`tab:calibration_transfer_full`)."""

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from sklearn.preprocessing import MultiLabelBinarizer

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
    closed: str = "right",
    keep: Mapping[Pair, Collection[str]] | None = None,
) -> pd.DataFrame:
    """Apply calibrators fitted on one pair to every pair (`tab:calibration_transfer_full`).

    Parameters
    ----------
    sets : dict
        As `calibration_data` returns it.
    fitted : dict
        As `fit_answers` returns it.
    n_bins, closed
        As for `ece`.
    keep : dict of (source, target) dataset to evaluation ids, optional
        Rows to include; all by default.

    Returns
    -------
    DataFrame
        The target's model and dataset, source_model and source_dataset ("" for the raw score), method, metric
        (TRANSFER_METRICS, and `delta_ece` against the raw score), value, n.
    """
    rows: list[tuple] = []
    for target, (_, new) in sets.items():
        for (*source, method), scores in scores_by_source(new, fitted).items():
            mask = np.full(len(new.correct), True)
            if keep is not None and method:
                mask = scores.index.isin(keep[source[1], target[1]])
            if not mask.any():
                continue
            y = new.correct[mask]
            values = {name: METRICS[name](scores[mask], y, n_bins, closed) for name in TRANSFER_METRICS}
            values["delta_ece"] = values["ece"] - METRICS["ece"](new.confidence[mask], y, n_bins, closed)
            rows += [(*target, *source, method, metric, value, len(y)) for metric, value in values.items()]
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


def rows_without_near_duplicates(generations: pd.DataFrame) -> dict[Pair, set[str]]:
    """Find evaluation questions without a near duplicate among calibration questions.

    Near duplicates have a Jaccard similarity of at least 0.9.

    Parameters
    ----------
    generations : DataFrame
        Its column `words` has each question's hashed words, without numbers.

    Returns
    -------
    dict of (source, target) dataset to set of example ids
    """
    texts = generations.drop_duplicates(["dataset", "split", "example_id"])
    coder = MultiLabelBinarizer(sparse_output=True).fit(texts.words)
    parts = {key: part for key, part in texts.groupby(["dataset", "split"], sort=False)}
    words = {key: coder.transform(part.words).astype(int) for key, part in parts.items()}
    datasets, rows = texts.dataset.unique(), {}
    for source in datasets:
        for target in datasets:
            new, seen = words[target, "evaluation"], words[source, "calibration"]
            shared = (new @ seen.T).toarray()
            either = new.sum(axis=1).reshape(-1, 1) + seen.sum(axis=1).reshape(1, -1) - shared
            has_twin = (np.asarray(shared / np.maximum(either, 1)) >= 0.9).any(axis=1)
            rows[source, target] = set(parts[target, "evaluation"].example_id[~has_twin])
    return rows
