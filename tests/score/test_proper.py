"""Scores beside a constant: each measure against scikit-learn, MAPIE or a plain loop; intervals of the same draws."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import d2_brier_score, log_loss, roc_auc_score

from lib.score import metrics, proper_scores
from lib.score.bootstrap import bootstrap, draw_resample_counts

scores_and_outcomes = st.lists(
    st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.5000001, 0.9, 1.0]), st.booleans()), min_size=2, max_size=40
)


def rows(n=200, seed=0, ties=True):
    rng = np.random.default_rng(seed)
    c = rng.beta(5, 2, n)
    return (np.round(c, 1) if ties else c), rng.random(n) < c**2


def frame(**models):
    """A raw frame of one dataset, models as (confidence, correct): half of the rows calibrate. Ids sort otherwise as
    text than as numbers."""
    parts = []
    for model, (c, y) in models.items():
        half = len(c) // 2
        split = np.array(["calibration"] * half + ["evaluation"] * (len(c) - half))
        ids = [f"{name}-{i % half}" for i, name in enumerate(split)]
        part = pd.DataFrame({"split": split, "example_id": ids, "confidence": c, "correct": y})
        parts.append(part.assign(model=model, dataset="d", estimator="seq_avg", method=""))
    return pd.concat(parts, ignore_index=True)


def compared(raw, **more):
    scores, constants = proper_scores.add_base_rate(raw, raw[raw.split == "evaluation"])
    return proper_scores.compare_with_base_rate(scores, constants, **more), constants


def test_the_constant_by_hand():
    assert proper_scores.base_rate([True, True, False]) == 3 / 5 and proper_scores.base_rate([]) == 0.5


def test_skill_is_that_of_scikit_learn_against_the_constant():
    """1 - skill is the ratio of what both leave of d2_brier_score; and skill is d2 itself, where the constant is the
    evaluation rows' own accuracy."""
    c, y = rows()
    for base in (0.3, float(y.mean())):
        found = proper_scores.proper_measures(c, y, base)
        own, constant = (1 - d2_brier_score(y, values) for values in (c, np.full_like(c, base)))
        assert 1 - found["skill"] == pytest.approx(own / constant, abs=1e-12)
    assert found["skill"] == pytest.approx(d2_brier_score(y, c), abs=1e-12)


def test_log_loss_is_that_of_scikit_learn():
    for c, y in (rows(), (np.array([0.0, 1.0, 1.0]), np.array([1, 1, 0]))):
        found = proper_scores.proper_measures(c, y, 0.5)
        assert found["log_loss"] == pytest.approx(log_loss(y, c, labels=[0, 1]), rel=1e-12)
        assert found == proper_scores.proper_measures(c, y, 0.5, 10, "right")


@given(scores_and_outcomes, st.integers(0, 9))
def test_auroc_is_that_of_scikit_learn_under_any_weights(pairs, seed):
    c, y = np.array([c for c, _ in pairs]), np.array([y for _, y in pairs])
    w = np.random.default_rng(seed).integers(0, 4, (3, len(c))).astype(float)
    for found, weight in zip(metrics.auroc(c, y, w), w, strict=True):
        if weight[y].sum() and weight[~y].sum():
            assert found == pytest.approx(roc_auc_score(y, c, sample_weight=weight), abs=1e-12)
        else:
            assert np.isnan(found)


@given(scores_and_outcomes)
def test_augrc_is_the_area_that_a_loop_walks(pairs):
    """From the surest score down; equal scores are answered in any order, so the curve is straight between them."""
    c, y = np.array([c for c, _ in pairs]), np.array([y for _, y in pairs])
    area = risk = 0.0
    for score in sorted(set(c), reverse=True):
        group = c == score
        added = (group & ~y).sum() / len(c)
        area += group.sum() / len(c) * (risk + added / 2)
        risk += added
    assert proper_scores.augrc(metrics.auroc(c, y), y.mean()) == pytest.approx(area, abs=1e-12)


def test_bins_of_equally_many_rows_by_a_loop_and_by_mapie():
    """Its `array split` cuts rows as they stand, so they are sorted first."""
    from mapie.metrics import calibration

    c, y = rows(100, ties=False)
    order = np.argsort(c)
    total = sum(abs(y[part].sum() - c[part].sum()) / 100 for part in np.split(order, 10))
    assert proper_scores.equal_mass_ece(c, y) == pytest.approx(total, abs=1e-12)
    theirs = calibration.expected_calibration_error(
        y[order].astype(int), c[order], num_bins=10, split_strategy="array split"
    )
    assert total == pytest.approx(theirs, abs=1e-9)


@given(scores_and_outcomes, st.randoms())
def test_the_order_of_rows_does_not_count(pairs, random):
    """Of the same rows in another order every measure is the same, equal scores or not."""
    mixed = random.sample(pairs, len(pairs))
    one, other = (
        proper_scores.proper_measures(np.array([c for c, _ in some]), np.array([y for _, y in some]), 0.4)
        for some in (pairs, mixed)
    )
    for name in one:
        assert one[name] == pytest.approx(other[name], abs=1e-12, nan_ok=True)


def test_intervals_are_of_the_same_draws_as_the_other_tables():
    raw = frame(m=rows())
    found = compared(raw, resamples=300, seed=3)[0].query("estimator == 'seq_avg'").set_index("metric")
    theirs = bootstrap(raw, resamples=300, seed=3).results.set_index("metric")
    for metric in ("ece", "brier"):
        for column in ("value", "low", "high"):
            assert found.loc[metric, column] == pytest.approx(theirs.loc[metric, column], abs=1e-12)
    evaluation = raw[raw.split == "evaluation"].sort_values("example_id")
    c, y = evaluation.confidence.to_numpy(), evaluation.correct.to_numpy(bool)
    drawn = [roc_auc_score(y, c, sample_weight=w) for block in draw_resample_counts(100, 300, 3) for w in block]
    assert list(found.loc["auroc", ["low", "high"]]) == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=1e-12)


def test_a_base_rate_stands_in_every_comparison():
    raw = frame(m=rows(), n=rows(seed=1))
    table, constants = compared(raw, resamples=50)
    base = table[table.estimator == proper_scores.BASE].set_index(["model", "metric"]).value
    for model, part in raw.groupby("model"):
        right = part.correct[part.split == "calibration"]
        constant, y = (right.sum() + 1) / (len(right) + 2), part.correct[part.split == "evaluation"]
        assert constants[model, "d"] == constant
        assert base[model, "skill"] == 0 and base[model, "auroc"] == 0.5
        assert base[model, "ece"] == pytest.approx(abs(y.mean() - constant))
        assert base[model, "brier"] == pytest.approx(((constant - y) ** 2).mean())


def test_one_class_is_said_and_never_a_nan():
    raw = frame(m=(np.linspace(0.1, 1, 20), np.ones(20, bool)))
    table = compared(raw, resamples=50)[0]
    missing = table[table.value.isna()]
    assert set(missing.metric) == {"auroc"} and set(missing.reason) == {"one class only"}
    assert not table[["value", "low", "high"]].astype(float).isin([np.inf, -np.inf]).any(axis=None)
    assert table.set_index(["estimator", "metric"]).value["seq_avg", "augrc"] == 0
