"""Finding 4 on Ans Avg: calibrators fitted on one model and dataset, applied unchanged to others
(`tab:calibration_transfer_full`)."""

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from sklearn.preprocessing import MultiLabelBinarizer

from lib.calibrate.calibrators import METHODS, Calibrator
from lib.calibrate.fitting import DataByPair, Pair, ScoredSplit
from lib.score.metrics import METRICS

TRANSFER_METRICS = ("ece", "mce", "brier")
TRANSFER_COLUMNS = ["model", "dataset", "source_model", "source_dataset", "method", "metric", "value", "n"]
RAW_SOURCE: Pair = ("", "")  # the source of the raw score


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
        Rows that count; all by default.

    Returns
    -------
    DataFrame
        The target's model and dataset, source_model and source_dataset ("" for the raw score), method, metric
        (TRANSFER_METRICS, and `delta_ece` against the raw score), value, n.
    """
    rows: list[tuple] = []
    for target, pair in sets.items():
        new = pair.evaluation
        everything = np.full(len(new.correct), True)
        rows += _measured(target, RAW_SOURCE, "", new, new.confidence, everything, n_bins, closed)
        for source, calibrators in fitted.items():
            mask = everything
            if keep is not None:
                mask = new.keys.example_id.isin(keep[source[1], target[1]]).to_numpy()
            if not mask.any():
                continue
            for method, calibrator in calibrators.items():
                if (taken := getattr(new, METHODS[method].of_answers)) is None:
                    continue
                scores = calibrator.predict(taken)
                rows += _measured(target, source, method, new, scores, mask, n_bins, closed)
    return pd.DataFrame(rows, columns=TRANSFER_COLUMNS)


def _measured(target: Pair, source: Pair, method: str, new: ScoredSplit, scores: np.ndarray, mask: np.ndarray,
              n_bins: int, closed: str) -> list[tuple]:  # fmt: skip
    """Rows of TRANSFERRED for the target's rows of `mask`."""
    y = new.correct[mask]
    values = {name: METRICS[name](scores[mask], y, n_bins, closed) for name in TRANSFER_METRICS}
    values["delta_ece"] = values["ece"] - METRICS["ece"](new.confidence[mask], y, n_bins, closed)
    return [(*target, *source, method, metric, value, len(y)) for metric, value in values.items()]


def rows_without_near_duplicates(generations: pd.DataFrame, likeness: float = 0.9) -> dict[Pair, set[str]]:
    """Find evaluation questions that no calibration question resembles.

    Parameters
    ----------
    generations : DataFrame
        Its column `words` holds a question's hashed words, without numbers.
    likeness : float
        Two questions are near duplicates where the words they share, over all their words, reach this.

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
            has_twin = (np.asarray(shared / np.maximum(either, 1)) >= likeness).any(axis=1)
            rows[source, target] = set(parts[target, "evaluation"].example_id[~has_twin])
    return rows


def predict_example_by_source(
    sets: DataByPair, fitted: Mapping[Pair, Mapping[str, Calibrator]], target: Pair, place: int
) -> pd.DataFrame:
    """What the calibrators of every pair make of one evaluation row of the `target`, Ans Avg at `place`: source_model,
    source_dataset ("" for the raw score), method, confidence."""
    new = sets[target].evaluation
    rows: list[tuple] = [(*RAW_SOURCE, "", float(new.confidence[place]))]
    for source, calibrators in fitted.items():
        for method, calibrator in calibrators.items():
            if (taken := getattr(new, METHODS[method].of_answers)) is None:
                continue
            scores = calibrator.predict(taken)
            rows.append((*source, method, float(scores[place])))
    return pd.DataFrame(rows, columns=["source_model", "source_dataset", "method", "confidence"])
