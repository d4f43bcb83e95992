"""What rounding moves: isotonic regression that stands, noise as it was measured, and the report's column."""

import numpy as np
import pytest

from lib import params
from lib.analysis import results, rounding, run_signals
from lib.calibrate.calibrators import Isotonic
from lib.paper import comparison
from lib.paper.reference import published

DEMO = params.load_profile("demo")
READING, CHOICES = params.Reading.of(DEMO.model_dump()), params.Calibration.of(DEMO.model_dump())
MODEL, DATASETS = DEMO.models[:1], DEMO.datasets[1:]


def sure(n=400, seed=0):
    """Scores as of answers whose tokens are sure: spread over the decades below 1e-2 from 1, and hardly informative."""
    rng = np.random.default_rng(seed)
    scores = 1 - 10 ** rng.uniform(-8, -2, n)
    return scores, rng.random(n) < 0.6


# ---- isotonic regression


@pytest.mark.parametrize("decimals, least, most", [(3, 0, 0.01), (None, 0.05, 1)])
def test_isotonic_regression_on_rounded_scores_stands_under_noise(decimals, least, most):
    """How many calibrated scores move when scores move by less than two processors differ: many, and hardly any where
    scores are rounded first."""
    c, y = sure()
    other = np.minimum(c + 1.5e-7 * np.random.default_rng(1).standard_normal(len(c)), 1)
    plain, again = Isotonic(decimals=decimals).fit(c, y), Isotonic(decimals=decimals).fit(other, y)
    assert least <= np.mean(np.abs(plain.predict(c) - again.predict(other)) > 0.01) <= most


def test_scores_that_are_rounded_alike_are_one():
    fitted = Isotonic(decimals=3).fit([0.5001, 0.5004, 0.9], [1, 0, 1])
    assert fitted.predict([0.5, 0.50049, 0.4996]).tolist() == [0.5, 0.5, 0.5]
    assert Isotonic().fit([0.5001, 0.5004, 0.9], [0, 1, 1]).predict([0.5001, 0.5004]).tolist() == [0, 1]


# ---- noise


@pytest.fixture(scope="module")
def signals():
    return run_signals.RunSignals.of("shipped", MODEL, DATASETS, READING)


@pytest.fixture(scope="module")
def shaken(signals):
    return rounding.shaken(signals, np.random.default_rng(0))


def flat(frame, column):
    return np.concatenate([np.ravel(values) for values in frame[column]]).astype(float)


def spread(values):
    return float(np.sqrt(np.mean(values**2)))


def test_noise_is_as_large_as_was_measured(signals, shaken):
    other = shaken
    old, new = flat(signals.responses, "response"), flat(other.responses, "response")
    for low, high, size in ((1e-6, 1e-3, 1.5e-7), (2, 90, 2.1e-6)):  # of tokens that are sure, and of others
        chosen = (-old > low) & (-old < high)
        assert spread((new - old)[chosen]) == pytest.approx(size, rel=0.15)
    assert (new <= 0).all() and (new != old).mean() > 0.5
    for name in ("standard_logits", "in_situ_logits"):
        moved = flat(other.verification, name) - flat(signals.verification, name)
        assert spread(moved) == pytest.approx(rounding.LOGIT, rel=0.05)
    last = [
        np.concatenate([p[-1] - c[-1] for p, c in zip(f.predictive, f.conditional, strict=True)])
        for f in (signals.dropout, other.dropout)
    ]
    share = (last[1] - last[0])[last[0] > 1e-6] / last[0][last[0] > 1e-6]
    assert spread(share) == pytest.approx(rounding.BALD, rel=0.1)


def test_noise_changes_no_answer_and_no_row(signals, shaken):
    other = shaken
    for frame in ("responses", "confidence"):
        old, new = getattr(signals, frame), getattr(other, frame)
        assert old.drop(columns=["response", "answer", "confidence", "margin"], errors="ignore").equals(
            new.drop(columns=["response", "answer", "confidence", "margin"], errors="ignore")
        )
    moved = np.abs(other.confidence.confidence - signals.confidence.confidence)
    assert 0 < moved.max() < 1e-4 and moved.groupby(other.confidence.estimator).max().gt(0).all()
    for pair, splits in other.sets.items():
        for rows, before in zip(splits, signals.sets[pair], strict=True):
            assert rows.keys.equals(before.keys) and (rows.correct == before.correct).all()
            assert np.abs(rows.confidence - before.confidence).max() < 1e-5
            stays = before.answers.chosen == 0
            assert (rows.answers.chosen[stays] == 0).all() and (rows.answers.top[:, 0] == 0).all()
            assert np.abs(rows.answers.logprobs(1.0) - before.answers.logprobs(1.0)).max() < 1e-4


# ---- what it moves


def of_run(signals):
    frames = rounding.frames_of(signals, CHOICES, DEMO.n_bins_ablation)
    names, sets = {name: name for name in MODEL}, {name: name for name in DATASETS}
    specs = [params.load_model_config(name) for name in MODEL]
    return results.Results(names, sets, names, (names, sets), specs, frames)


@pytest.fixture(scope="module")
def here(signals):
    return of_run(signals)


@pytest.fixture(scope="module")
def moved(signals, here):
    return rounding.moves(here, signals, CHOICES, DEMO.n_bins_ablation, draws=3)


def test_every_printed_number_is_judged(here, moved):
    shown = comparison.stability(moved).records
    assert len(comparison.beside(here, published()).records) == len(shown) == len(moved) > 200
    assert not moved.duplicated(["table", "key"]).any()
    assert np.isfinite(moved.moves).all() and shown["moves"].notna().all()
    assert moved.moves.max() > 0 and (moved.moved == 0).mean() > 0.9


def test_nothing_moves_without_noise(signals, here, monkeypatch):
    for name in ("LOGPROB", "DOUBT", "LOGIT", "BALD"):
        monkeypatch.setattr(rounding, name, 0.0)
    still = rounding.moves(here, signals, CHOICES, DEMO.n_bins_ablation, draws=1)
    assert still.moves.max() < 1e-12 and not still.moved.any()


def test_what_moves_is_told_with_how_often_and_by_how_much(signals, here, monkeypatch):
    before = rounding.printed_numbers(here)
    first, second = before.copy(), before.copy()
    first.loc[0, ["value", "text"]] = [before.value[0] + 0.25, "otherwise"]
    second.loc[1, "value"] += 1e-7
    monkeypatch.setattr(rounding, "draw_with_noise", lambda *_: iter([before, first, second]))
    moved = rounding.moves(here, signals, CHOICES, draws=2)
    assert moved.moves[:3].tolist() == pytest.approx([0.25, 1e-7, 0]) and moved.moved[:3].tolist() == [1, 0, 0]
    listed = comparison.stability(moved)
    words = listed.records.moves
    assert words.iloc[0] == "1 of 2, by 0.2" and (words.iloc[1:] == comparison.STANDS).all()
    assert listed.shown[comparison.MOVES].sum() == 1 and listed.shown.numbers.sum() == len(moved)
