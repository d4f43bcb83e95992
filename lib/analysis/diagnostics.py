"""What a pair's calibration rows show before anything is fitted on them: how often they hold a confident error, and
whether their reliability curve is a sigmoid's (Ans Avg)."""

import numpy as np
import pandas as pd
from scipy.special import logit
from scipy.stats import chi2
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from lib.calibrate.fitting import DataByPair

CONFIDENT = 0.9
NEAREST = 1e-7  # to 0 and 1; float32 tells no more


def summarize_calibration_rows(sets: DataByPair) -> pd.DataFrame:
    """By pair: `confident_errors`, wrong rows above CONFIDENT per 50 rows; `curved`, the p-value of a quadratic term in
    the logit of the confidence (likelihood ratio), NaN where it cannot be fitted."""
    records = []
    for (model, dataset), (rows, _) in sets.items():
        errors = 50 * float(np.mean((rows.confidence > CONFIDENT) & ~rows.correct)) if len(rows.correct) else np.nan
        records.append((model, dataset, errors, test_curvature(rows.confidence, rows.correct)))
    return pd.DataFrame(records, columns=["model", "dataset", "confident_errors", "curved"])


def test_curvature(confidence: np.ndarray, correct: np.ndarray) -> float:
    """p-value of the quadratic term of a logistic regression on the logit of n scores; NaN for one class, or fewer
    than three different scores."""
    x = logit(np.clip(np.asarray(confidence, dtype=float), NEAREST, 1 - NEAREST))
    if len(set(correct)) < 2 or len(np.unique(x)) < 3:
        return np.nan
    x = (x - x.mean()) / x.std()
    losses = []
    for columns in (x[:, None], np.column_stack([x, x**2])):
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8, max_iter=200)
        losses.append(log_loss(correct, model.fit(columns, correct).predict_proba(columns), normalize=False))
    return float(chi2.sf(max(2 * (losses[0] - losses[1]), 0), 1))
