"""A third way to calibrate, declared: a group of columns, rows, a curve and a panel of its own, everywhere."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib.calibrate.calibrators import METHODS
from lib.paper import calibration_figures, calibration_tables, exhibits, exploratory_plots, reference
from lib.paper.booktabs import Cell

MEAN = SimpleNamespace(name="mean", label="Mean", plain="mean", takes={"confidence": object}, of_answers="confidence")
CALIBRATED = ("result_calibration", "result_calibration_full", "result_isotonic")
MOVED = ("calibration_transfer_full", "calibration_transfer_summary")


@pytest.fixture(scope="module")
def paper():
    return reference.published()


@pytest.fixture
def third(paper, monkeypatch):
    """The paper's results, and those of a method that does a little better than isotonic regression."""
    monkeypatch.setitem(METHODS, "mean", MEAN)
    frames = {}
    for name in (*CALIBRATED, *MOVED):
        frame = paper.frames[name]
        rows = frame[frame["method"] == "isotonic"].assign(method="mean")
        frames[name] = pd.concat([frame, rows.assign(value=rows.value - 0.0005)], ignore_index=True)
    return replace(paper, frames={**paper.frames, **frames})


def heads(table, level):
    """Labels of the columns at a level, each group's once."""
    labels = table.cells.columns.get_level_values(level)
    return [
        label.text if isinstance(label, Cell) else label for label in (dict.fromkeys(labels) if level == 0 else labels)
    ]


@pytest.mark.parametrize("name", CALIBRATED[:2])
def test_columns_of_its_own(paper, third, name):
    before, after = (exhibits.build(f"tab_{name}", side) for side in (paper, third))
    assert before.columns == "ll | ccc | ccccc" and after.columns == "ll | ccc | ccccc | ccc"
    assert heads(after, 0) == ["Isotonic Regression", "Platt Scaling", "Mean"]
    assert heads(after, 1)[-3:] == heads(after, 1)[:3] == ["Ans Avg", "Ans Joint", "P(True)"]
    mean = after.numbers[after.numbers["method"] == "mean"]
    assert len(mean) == 15 * 3 and len(after.numbers) == len(before.numbers) + len(mean)
    assert r"\cmidrule(lr){3-5} \cmidrule(lr){6-10}" in after.latex
    assert r"\multicolumn{3}{c}{Mean}" in after.latex and r"\cmidrule(lr){11-13}" in after.latex


def test_the_best_of_three_is_bold(third):
    errors = exhibits.build("tab_result_calibration", third).numbers.query("metric == 'ece'")
    assert len(errors) == 15 * 3 * 3
    for _, part in errors.groupby(["row", "estimator"]):
        assert part["method"][part.bold].tolist() == part["method"][part.value == part.value.min()].tolist()
        assert part.bold.sum() == 1 and "isotonic" not in set(part["method"][part.bold]), "never the lowest now"


def test_what_it_learned_stands_before_its_errors(third):
    frame = third.frames["result_calibration"]
    share = frame[(frame["method"] == "mean") & (frame.estimator == "p_true")].assign(metric="c", value=0.25)
    table = calibration_tables.result_calibration(pd.concat([frame, share], ignore_index=True))
    assert table.columns == "ll | ccc | ccccc | cccc"
    assert heads(table, 1)[-4:] == ["Ans Avg", "Ans Joint", "c", "P(True)"]
    assert [cell.text for cell in table.cells.iloc[:, -2]] == ["0.25"] * 15


def test_rows_and_columns_of_transfer(third):
    full = exhibits.build("tab_calibration_transfer_full", third)
    assert r"\multirow{4}{*}{Mean}" in full.latex
    assert len(full.cells) == 1 + 3 * 4 and full.numbers.key.nunique() == 12 + 3 * 4 * 12
    summary = exhibits.build("tab_calibration_transfer_summary", third)
    assert summary.columns == "lrrr" and heads(summary, 0) == ["Isotonic", "Platt", "Mean"]
    assert all("--" not in cell.text for cell in summary.cells.iloc[:, -1])


def test_the_table_of_one_method_is_still_its_own(paper, third):
    tables = [exhibits.build("tab_result_isotonic", side).latex for side in (paper, third)]
    assert tables[0] == tables[1]


# ---- figures


def diagrams():
    lower = np.arange(0, 1, 0.1)
    columns = {"lower": lower, "upper": lower + 0.1, "count": 9, "confidence": lower + 0.05, "accuracy": lower}
    return {method: pd.DataFrame(columns) for method in ("", *METHODS)}


def curves():
    parts = [pd.DataFrame({"method": method, "n": [10, 20, 50], "mean": 0.1, "low": 0.05, "high": 0.2})
             for method in ("", *METHODS)]  # fmt: skip
    return pd.concat(parts).assign(model="m", dataset="d", sampling="uniform", one_class=0)


def legend(figure):
    return [text.get_text() for text in figure.canvas.legends[0].get_texts()]


def titles(figure):
    return [ax.get_title(loc="left") for ax in figure.canvas.axes]


def test_a_panel_and_a_curve_of_its_own(monkeypatch):
    two = calibration_figures.calibration_analysis(diagrams(), curves(), where="D")
    assert titles(two) == ["(a) isotonic", "", "(b) temperature", "", "(c) d"]
    assert legend(two) == ["raw", "isotonic", "temperature"]
    monkeypatch.setitem(METHODS, "mean", MEAN)
    three = calibration_figures.calibration_analysis(diagrams(), curves(), where="D")
    assert titles(three) == ["(a) isotonic", "", "(b) temperature", "", "(c) mean", "", "(d) d"]
    assert legend(three) == ["raw", "isotonic", "temperature", "mean"]
    assert len(three.canvas.axes[-1].lines) == 4, "a curve for each method, and the raw score"
    looks = {(line.get_linestyle(), line.get_color()) for line in three.canvas.axes[-1].lines}
    assert len(looks) == 4
    sizes = calibration_figures.sample_efficiency(curves(), {"d": "D"})
    assert legend(sizes)[-1] == "mean" and len(sizes.canvas.axes[0].lines) == 4


def test_a_map_of_its_own(third):
    pairs = {("Llama", "GSM8K"): "A", ("Qwen", "GSM8K"): "B"}
    frame = third.frames["calibration_transfer_summary"].query("method != ''")
    figure = exploratory_plots.transfer_map(frame, pairs)
    assert [title for title in titles(figure) if title] == ["isotonic", "temperature", "mean"]
    assert [len(ax.texts) for ax in figure.canvas.axes[:3]] == [2, 2, 2]
