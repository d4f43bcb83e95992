"""Beside the paper: estimators of ours through one row each, the table, the figure, and runs that lack things."""

import numpy as np
import pandas as pd
import pytest
import synthetic
from test_edits import SHIPPED_ONLY, play
from test_experiments import with_margins

from lib import params, store
from lib.analysis import run_results
from lib.calibrate import fitting
from lib.paper import beyond_figures, beyond_paper, exhibits
from lib.paths import SHIPPED
from lib.score import estimators
from lib.score import selective as when
from lib.score.confidence import confidence_frame
from lib.score.estimators import EXTRAS

PLUG_INS = ("seq_window", "ans_margin", "ans_entropy")


# ---- estimators of ours


def test_the_lowest_window_by_a_loop():
    rng = np.random.default_rng(0)
    for n in (1, 5, estimators.WINDOW, 60):
        p = rng.random(n)
        width = min(n, estimators.WINDOW)
        least = min(np.mean(p[i : i + width]) for i in range(n - width + 1))
        assert estimators.min_window_mean(np.log(p)) == pytest.approx(least, abs=1e-12)


def test_margins_and_entropies_are_those_of_the_whole_vocabulary():
    """From the kept logits and the curve of the rest, against all 300 logits."""
    frame = synthetic.generations(rows=20)
    responses = synthetic.responses(frame)
    scores = confidence_frame(responses, names=["ans_margin", "ans_entropy"],
                              further=fitting.token_signals(fitting.calibration_data(frame, responses)))  # fmt: skip
    found = scores.set_index(["estimator", "example_id"]).confidence
    assert len(found) == 2 * len(frame)
    for row in frame.itertuples():
        p = np.exp(np.stack(row.logits).astype(float))
        p /= p.sum(axis=1, keepdims=True)
        top = np.sort(p, axis=1)[:, ::-1]
        assert found["ans_margin", row.example_id] == pytest.approx((top[:, 0] - top[:, 1]).min(), abs=1e-5)
        entropy = -(p * np.log(p)).sum(axis=1).mean()
        assert found["ans_entropy", row.example_id] == pytest.approx(np.exp(-entropy), abs=1e-4)


def test_each_is_one_row_and_nothing_of_the_papers():
    assert set(PLUG_INS) < set(EXTRAS) and all(EXTRAS[name].extra for name in PLUG_INS)
    frame = synthetic.generations(rows=6)
    assert not set(synthetic.single_pass(frame).estimator) & set(EXTRAS)
    without = synthetic.responses(frame, missing="zero")
    scores = confidence_frame(
        without, names=PLUG_INS, further=fitting.token_signals(fitting.calibration_data(frame, without))
    )
    lost = set(without.example_id[without.answer.isna()])
    tokens = scores[scores.estimator != "seq_window"]
    assert lost and (tokens.confidence[tokens.example_id.isin(lost)] == 0).all()
    assert set(scores.estimator) == set(PLUG_INS) and scores.confidence.between(0, 1).all()


# ---- the table and the figure


@pytest.fixture(scope="module")
def made():
    frame = synthetic.run(rows=60)
    responses = synthetic.responses(frame)
    sets = fitting.calibration_data(frame, responses)
    raw = with_margins(confidence_frame(responses, names=["seq_avg", "ans_avg", *PLUG_INS],
                                        further=fitting.token_signals(sets)))  # fmt: skip
    calibrated, *_ = fitting.calibrate(raw, sets, fitting.fit_answers(sets))
    scores, constants = when.add_base_rate(raw, calibrated)
    compared = when.compare_with_base_rate(scores, constants, resamples=50)
    return compared, when.selective_thresholds(raw, [0.5, 0.8, 0.99]), when.risk_coverage_curves(scores)


def lines(table):
    return [line.split("  ") for line in str(table).splitlines()]


def test_the_table_begins_each_pair_with_the_base_rate(made):
    compared, thresholds, _ = made
    table = beyond_paper.selective(compared, thresholds, {"m": "M", "n": "N"}, {"d": "D", "e": "E"})
    shown = [line[2] for line in lines(table)[2:]]
    names = ["Base rate", "Seq Avg", "Ans Avg", "P(True)", "Seq Window", "Ans Margin", "Ans Entropy"]
    assert shown == names * 4
    values = compared.set_index(["model", "dataset", "estimator", "method", "metric"]).value
    answered = table.numbers[table.numbers.metric.str.startswith("answered")]
    scores = table.numbers.drop(answered.index)
    keys = scores[["model", "dataset", "estimator", "method", "metric"]].itertuples(index=False, name=None)
    assert scores.value.tolist() == [values[key] for key in keys]
    assert len(answered) == thresholds.answered.notna().sum() > 0
    assert "&ndash;" in table._repr_html_() and f"--: {when.TOO_FEW_ROWS}" in table._repr_html_(), "and why"
    assert "tabular" in table.latex and "nan" not in table.latex.lower()


def test_bold_is_the_best_of_a_pair(made):
    compared, thresholds, _ = made
    table = beyond_paper.selective(compared, thresholds)
    raw = compared[(compared.method == "") & (compared.metric == "skill") & (compared.dataset == "d")]
    best = raw[raw.model == "m"].astype({"value": float}).set_index("estimator").value.idxmax()
    skills = table.numbers[table.numbers.estimator == best].query("metric == 'skill' and method == ''")
    cell = table.cells.iat[skills.row.iloc[0], skills.column.iloc[0]]
    assert "<b>" in cell.html and r"\best" in cell.latex


def test_the_figure_has_a_column_per_dataset(made):
    _, thresholds, curves = made
    figure = beyond_figures.when_to_answer(curves, thresholds, "m", {"d": "D", "e": "E"}, "M")
    axes = figure.canvas.axes
    assert len(axes) == 4 and [ax.get_title(loc="left") for ax in axes[:2]] == ["D", "E"]
    dashes = {line.get_linestyle() for line in axes[0].lines if len(line.get_xdata()) > 2}
    assert len(dashes) == 3, "estimators differ without colour, too"
    rings = [line for ax in axes[:2] for line in ax.lines if line.get_markerfacecolor() == "none"]
    drawn = thresholds[(thresholds.model == "m") & (thresholds.target == 0.8) & thresholds.answered.notna()]
    assert len(rings) == drawn.estimator.isin(beyond_figures.DRAWN).sum()
    assert beyond_figures.when_to_answer(curves.head(0), thresholds.head(0), "m", {"d": "D"}).png


def test_both_are_declared_not_in_the_paper():
    for name in ("tab_selective", "fig_selective"):
        assert "not in the paper" in exhibits.BY_NAME[name].short and not exhibits.BY_NAME[name].published
    assert exhibits.BY_NAME["tab_selective"].extra and set(beyond_paper.ALL_ESTIMATORS) >= set(PLUG_INS)


# ---- whole notebooks


@SHIPPED_ONLY
def test_shipped_frames_are_what_the_notebook_makes(monkeypatch, tmp_path):
    """The numbers of `artifacts/shipped/demo/selective`, which 08 shows in a fresh clone; a calibrator for each fit."""
    play("10", monkeypatch, tmp_path, resamples=5000)
    for kind in run_results.SELECTIVE_KINDS:
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


@SHIPPED_ONLY
def test_the_small_real_run(monkeypatch, tmp_path):
    """The signals of a real model, as far as they are shipped: no passes over whole responses."""
    if not (SHIPPED.parent / "small" / "verification").exists():
        pytest.skip("the signals of the small real model are not in this copy")
    small = params.load_profile("small")
    folder = SHIPPED.parent / "small" / "verification"
    there = [name for name in small.datasets if (folder / f"{small.models[0]}__{name}.parquet").exists()]
    space, _ = play("10", monkeypatch, tmp_path, run="replay-small", models=small.models, datasets=there,
                    figure_model=small.models[0])  # fmt: skip
    compared = space["compared"].set_index(["dataset", "estimator", "method", "metric"]).value
    assert compared["svamp", when.BASE, "", "skill"] == 0
    assert compared["svamp", "ans_avg", "", "skill"] < 0, "a raw score worse than a constant"
    assert {"ans_margin", "ans_entropy", "seq_window"} <= set(space["compared"].estimator)
    assert list((tmp_path / "calibrators").glob(f"{small.models[0]}__svamp__p_true__platt.json"))
