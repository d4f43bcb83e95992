"""An estimator of one's own is a function and a row in the table of estimators: everything else
follows."""

import numpy as np
from scipy.special import expit
from synthetic import results_of

from lib import params
from lib.analysis import run_results
from lib.analysis.signals import load_signals
from lib.calibrate import fit_methods
from lib.paper import tables
from lib.score.estimators import ESTIMATORS, Estimator
from lib.score.evaluation import evaluate

MINE = (
    Estimator(
        "seq_mean",
        "Seq Mean",
        "Seq Mean",
        "$y$",
        "single_pass",
        "response",
        lambda y: np.exp(y).mean(),
    ),
    Estimator(
        "ans_min",
        "Ans Min",
        "Ans Min",
        r"$\min y_j$",
        "single_pass",
        "answer",
        lambda y: np.exp(y).min(),
    ),
    Estimator(
        "p_half",
        "P Half",
        "P Half",
        "$m/2$",
        "multi_pass",
        "standard_margin",
        lambda m: expit(m / 2),
    ),
    Estimator(
        "c_worst",
        "c Worst",
        "c Worst",
        r"$\max_j$",
        "multi_pass",
        "bald",
        lambda bald: max(0, 1 - bald.max()),
    ),
)
BELOW = (
    ("ans_min", "ans_joint"),
    ("c_worst", "c_bald"),
    ("seq_mean", "seq_avg"),
    ("seq_avg", "seq_mean"),
)


def test_every_kind_is_computed_and_calibrated_and_has_its_column(monkeypatch):
    for estimator in MINE:
        monkeypatch.setitem(ESTIMATORS, estimator.name, estimator)
    demo = params.load_profile("demo")
    signals = load_signals(
        "shipped", demo.models[:1], demo.datasets[:1], params.EvaluationChoices()
    )
    scores = signals.confidence.pivot(
        index="example_id", columns="estimator", values="confidence"
    ).dropna()
    assert len(scores) and all((scores[low] <= scores[high] + 1e-9).all() for low, high in BELOW)
    calibrated, learned, _ = fit_methods.calibrate(signals.confidence, signals.sets)
    methods = calibrated.groupby("estimator").method.unique().map(set)
    assert "platt" in methods["p_half"] and "p_half" in set(learned.estimator), "it has a margin"
    raw = results_of(**run_results.raw_frames(signals))
    mended = results_of(result_isotonic=evaluate(calibrated, resamples=20))
    for estimator in MINE:
        assert {"", "isotonic"} <= methods[estimator.name]
        assert f"{estimator.label} & {estimator.definition}" in tables.estimators().latex
        assert estimator.label in tables.result_estimation(raw).latex
        assert estimator.label in tables.result_isotonic(mended).latex
