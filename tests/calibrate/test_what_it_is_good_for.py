"""Beside the paper: estimators of ours, and notebook 10 on what is shipped and on runs that lack things."""

import numpy as np
import pandas as pd
import pytest
import synthetic
from playing import SHIPPED_ONLY, play

from lib import params, store
from lib.calibrate import fitting
from lib.paths import SHIPPED
from lib.score import selective as when
from lib.score.confidence import confidence_frame
from lib.score.estimators import EXTRAS


def test_margins_and_entropies_are_those_of_the_whole_vocabulary():
    """From the kept logits and the curve of the rest, against all 300 logits."""
    frame = synthetic.generations(rows=20)
    responses = synthetic.responses(frame)
    scores = confidence_frame(
        responses,
        names=["ans_margin", "ans_entropy"],
        further=fitting.token_signals(fitting.calibration_data(frame, responses)),
    )
    found = scores.set_index(["estimator", "example_id"]).confidence
    assert len(found) == 2 * len(frame)
    for row in frame.itertuples():
        p = np.exp(np.stack(row.logits).astype(float))
        p /= p.sum(axis=1, keepdims=True)
        top = np.sort(p, axis=1)[:, ::-1]
        assert found["ans_margin", row.example_id] == pytest.approx((top[:, 0] - top[:, 1]).min(), abs=1e-5)
        entropy = -(p * np.log(p)).sum(axis=1).mean()
        assert found["ans_entropy", row.example_id] == pytest.approx(np.exp(-entropy), abs=1e-4)
    assert {"seq_window", "ans_margin", "ans_entropy"} < set(EXTRAS)
    assert not set(synthetic.single_pass(frame).estimator) & set(EXTRAS), "nothing of the paper's"


# ---- whole notebooks


@SHIPPED_ONLY
@pytest.mark.slow
def test_shipped_frames_are_what_the_notebook_makes(monkeypatch, tmp_path):
    """The numbers of `artifacts/shipped/demo/selective`, which 08 shows in a fresh clone; a calibrator for each fit."""
    play("10", monkeypatch, tmp_path, resamples=5000)
    for kind in ("scores", "thresholds", "curves"):
        here, there = (store.read_frame(folder / "selective" / f"{kind}.parquet") for folder in (tmp_path, SHIPPED))
        pd.testing.assert_frame_equal(here, there, rtol=1e-9)
    demo = params.load_profile("demo")
    files = {path.name for path in (tmp_path / "calibrators").glob("*.json")}
    assert len(files) == 14 * len(demo.models) * len(demo.datasets)


@SHIPPED_ONLY
def test_a_run_without_passes_of_one_model_and_few_rows(monkeypatch, tmp_path):
    """As a first look has it: ten rows, one model, no passes anywhere. Dashes, and no failure."""
    gather = store.load_frames

    def few(run, kind, models, datasets, may_lack=False):
        frame, source = gather(run, kind, models, datasets, may_lack)
        if may_lack:
            return frame.head(0), source.head(0)
        kept = frame.groupby(["model", "dataset", "split"], sort=False).head(5)
        return kept.reset_index(drop=True), source

    monkeypatch.setattr(store, "load_frames", few)
    space, shown = play("10", monkeypatch, tmp_path, models=["tiny-qwen"], datasets=["demo-easy"], seed=1)
    assert space["thresholds"].threshold.isna().all()
    assert set(space["thresholds"].reason) == {when.TOO_FEW_ROWS}
    assert not {"c_bald", "c_bald_insitu"} & set(space["compared"].estimator)
