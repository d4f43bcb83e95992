"""An estimator of one's own is a function and a row in the table of estimators: everything else
follows."""

import numpy as np
import pytest
from scipy.special import expit
from synthetic import results_of

from lib.analysis import run_results
from lib.analysis.signals import load_signals
from lib.calibrate.fit_methods import calibrate
from lib.paper.tables import estimators, result_estimation, result_isotonic
from lib.params import EvaluationChoices, load_profile
from lib.score.estimators import ESTIMATORS, Estimator
from lib.score.evaluation import evaluate


def seq_mean(logprobs):
    return np.exp(logprobs).mean()


def ans_min(logprobs):
    return np.exp(logprobs).min()


def p_half(margin):
    return expit(margin / 2)


def c_worst(bald):
    return max(0, 1 - bald.max())


MINE = [
    Estimator("seq_mean", "Seq Mean", "Seq Mean", "$y$", "single_pass", "response", seq_mean),
    Estimator("ans_min", "Ans Min", "Ans Min", r"$\min y_j$", "single_pass", "answer", ans_min),
    Estimator("p_half", "P Half", "P Half", "$m/2$", "multi_pass", "standard_margin", p_half),
    Estimator("c_worst", "c Worst", "c Worst", r"$\max_j$", "multi_pass", "bald", c_worst),
]


@pytest.fixture
def signals(monkeypatch):
    """Those of a pair of the demo, with four estimators more."""
    for estimator in MINE:
        monkeypatch.setitem(ESTIMATORS, estimator.name, estimator)
    demo = load_profile("demo")
    return load_signals("shipped", demo.models[:1], demo.datasets[:1], EvaluationChoices())


def test_every_kind_is_computed_and_calibrated_and_has_its_column(signals):
    scores = signals.confidence.pivot(
        index="example_id", columns="estimator", values="confidence"
    ).dropna()
    assert len(scores)
    assert scores.seq_mean.to_numpy() == pytest.approx(scores.seq_avg.to_numpy())
    assert (scores.ans_min <= scores.ans_joint + 1e-9).all()
    assert (scores.c_worst <= scores.c_bald + 1e-9).all()

    calibrated, learned, _ = calibrate(signals.confidence, signals.sets)
    methods = calibrated.groupby("estimator").method.unique()
    assert "platt" in methods["p_half"], "it has a margin"
    assert "p_half" in set(learned.estimator)

    raw = results_of(**run_results.raw_frames(signals))
    mended = results_of(result_isotonic=evaluate(calibrated, resamples=20))
    for estimator in MINE:
        assert {"", "isotonic"} <= set(methods[estimator.name])
        assert f"{estimator.label} & {estimator.definition}" in estimators().latex
        assert estimator.label in result_estimation(raw).latex
        assert estimator.label in result_isotonic(mended).latex
