"""What rounding moves: isotonic regression that stands, noise that changes no answer, and the report's column."""

from dataclasses import replace

import numpy as np
import pytest

from lib import params
from lib.analysis import rounding, run_results, run_signals
from lib.paper import comparison

DEMO = params.load_profile("demo")
READING = params.Reading.of(DEMO.model_dump())
MODEL, DATASETS = DEMO.models[:1], DEMO.datasets[1:]


# ---- noise


@pytest.fixture(scope="module")
def signals():
    return run_signals.RunSignals.of("shipped", MODEL, DATASETS, READING)


@pytest.fixture(scope="module")
def shaken(signals):
    return rounding.add_noise_to_signals(signals, np.random.default_rng(0))


def test_noise_changes_no_answer_and_no_row(signals, shaken):
    noisy = ["response", "answer", "confidence", "margin"]
    for frame in ("responses", "confidence"):
        old, new = (getattr(some, frame).drop(columns=noisy, errors="ignore") for some in (signals, shaken))
        assert old.equals(new)
    moved = np.abs(shaken.confidence.confidence - signals.confidence.confidence)
    assert 0 < moved.max() < 1e-4 and moved.groupby(shaken.confidence.estimator).max().gt(0).all()
    for pair, splits in shaken.sets.items():
        for rows, before in zip(splits, signals.sets[pair], strict=True):
            assert rows.keys.equals(before.keys) and (rows.correct == before.correct).all()
            assert np.abs(rows.confidence - before.confidence).max() < 1e-5
            assert (rows.answers.chosen[before.answers.chosen == 0] == 0).all() and (rows.answers.top[:, 0] == 0).all()
            assert np.abs(rows.answers.logprobs(1.0) - before.answers.logprobs(1.0)).max() < 1e-4


# ---- what it moves


@pytest.fixture(scope="module")
def here(signals):
    frames = rounding.recompute_frames(signals, DEMO.n_bins_ablation)
    return replace(run_results.results_without_frames(MODEL, DATASETS), frames=frames)


def test_nothing_moves_without_noise(signals, here, monkeypatch):
    for name in ("LOGPROB_NOISE", "UNCERTAINTY_FACTOR", "LOGIT_NOISE", "BALD_NOISE"):
        monkeypatch.setattr(rounding, name, 0.0)
    still = rounding.measure_noise_effect(here, signals, DEMO.n_bins_ablation, draws=1)
    assert len(still) > 200 and still.moves.max() < 1e-12 and not still.moved.any()


def test_what_moves_is_told_with_how_often_and_by_how_much(signals, here, monkeypatch):
    before = rounding.printed_numbers(here)
    first, second = before.copy(), before.copy()
    first.loc[0, ["value", "text"]] = [before.value[0] + 0.25, "otherwise"]
    second.loc[1, "value"] += 1e-7
    monkeypatch.setattr(rounding, "draw_with_noise", lambda *_: iter([before, first, second]))
    moved = rounding.measure_noise_effect(here, signals, draws=2)
    assert moved.moves[:3].tolist() == pytest.approx([0.25, 1e-7, 0]) and moved.moved[:3].tolist() == [1, 0, 0]
    listed = comparison.list_stability(moved)
    words = listed.records.moves
    assert words.iloc[0] == "1 of 2, by 0.2" and (words.iloc[1:] == comparison.STABLE).all()
    assert listed.shown[comparison.UNSTABLE].sum() == 1 and listed.shown.numbers.sum() == len(moved)
