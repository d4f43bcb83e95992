"""Statistics of calibration: the calibration rows before fitting, reliability diagrams, bands of learning curves, and
the ECE of both prompts of verification."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.special import logit
from scipy.stats import chi2
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from lib.calibrate.fitting import DataByPair
from lib.score.metrics import reliability_diagram

CONFIDENT_SCORE = 0.9
SCORE_PRECISION = 1e-7  # minimum distance from 0 and 1, the precision of float32


def describe_calibration_split(sets: DataByPair) -> pd.DataFrame:
    """Return statistics of the calibration rows by pair.

    `confident_errors` is the number of wrong rows above CONFIDENT_SCORE per 50 rows. `curved` is the p-value
    (likelihood ratio) of a quadratic term in the logit of the confidence, NaN if it cannot be fitted.
    """
    records = []
    for (model, dataset), (rows, _) in sets.items():
        confident_errors = (rows.confidence > CONFIDENT_SCORE) & ~rows.correct
        errors = 50 * float(np.mean(confident_errors)) if len(confident_errors) else np.nan
        records.append((model, dataset, errors, test_curvature(rows.confidence, rows.correct)))
    return pd.DataFrame(records, columns=["model", "dataset", "confident_errors", "curved"])


def test_curvature(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Return the p-value of the quadratic term of a logistic regression on the logit of n scores.

    NaN for one class, or fewer than three different scores.
    """
    x = logit(np.clip(np.asarray(confidence, dtype=float), SCORE_PRECISION, 1 - SCORE_PRECISION))
    if len(set(correct)) < 2 or len(np.unique(x)) < 3:
        return np.nan
    x = (x - x.mean()) / x.std()
    losses = []
    for columns in (x[:, None], np.column_stack([x, x**2])):
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8, max_iter=200)
        losses.append(log_loss(correct, model.fit(columns, correct).predict_proba(columns), normalize=False))
    return float(chi2.sf(max(2 * (losses[0] - losses[1]), 0), 1))


def reliability_by_method(
    calibrated: pd.DataFrame,
    model: str,
    dataset: str,
    n_bins: int = 10,
    estimator: str = "ans_avg",
) -> dict[str, pd.DataFrame]:
    """Return the reliability diagram of an estimator on one pair, by method."""
    here = calibrated[(calibrated[["model", "dataset", "estimator"]] == [model, dataset, estimator]).all(axis=1)]
    groups = here.groupby("method", sort=False)
    return {how: reliability_diagram(part.confidence, part.correct, n_bins) for how, part in groups}


def summarize_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over draws, the band of the middle 80%, and the number of one-class draws."""
    curves = curves.astype({"ece": float})  # an empty frame may have dtype object
    groups = curves.groupby(["model", "dataset", "sampling", "method", "n"], sort=False)
    bands = groups.agg(mean=("ece", "mean"), one_class=("one_class", "sum"))
    return bands.assign(low=groups.ece.quantile(0.1), high=groups.ece.quantile(0.9)).reset_index()


def ece_by_prompt(results: pd.DataFrame, model: str, datasets: Mapping[str, str]) -> pd.DataFrame:
    """Return the data of `fig:main_analysis` (c): dataset (its label), standard, in situ (both raw ECE) of one model.

    `results` are from `bootstrap`; the ends of their intervals are included (standard low, standard high, and so on).
    Models without P(True) and datasets without a value have no row.
    """
    bars = {"p_true": "standard", "p_true_insitu": "in situ"}
    part = results.query("metric == 'ece' and model == @model and method == '' and estimator in @bars")
    wide = part.pivot(index="dataset", columns="estimator", values=["value", "low", "high"]).astype(float)
    wide = wide.reindex(index=[name for name in datasets if name in wide.index])
    columns = {f"{bars[name]} {end}".removesuffix(" value"): wide[end, name].array for end, name in wide}
    return pd.DataFrame({"dataset": [datasets[name] for name in wide.index], **columns})
