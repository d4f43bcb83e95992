"""A third way to calibrate, declared: a group of columns, rows, a curve and a panel of its own, everywhere."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib.calibrate.calibrators import METHODS
from lib.paper import calibration_figures, calibration_tables, results, transfer_figures, transfer_tables
from lib.paper.table import Rule

MEAN = SimpleNamespace(name="mean", label="Mean", plain="mean", takes={"confidence": object}, of_answers="confidence")
CALIBRATED = ("result_calibration", "result_calibration_full", "result_isotonic")
MOVED = ("calibration_transfer_full", "calibration_transfer_summary")


@pytest.fixture(scope="module")
def paper():
    return results.published()


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


def texts(row):
    return [cell.text for cell in row if cell]


def rows(table):
    return [row for row in table.body if not isinstance(row, Rule)]


@pytest.mark.parametrize("name", CALIBRATED[:2])
def test_columns_of_its_own(paper, third, name):
    build = getattr(calibration_tables, name)
    before, after = build.of(paper), build.of(third)
    assert before.columns == "ll | ccc | ccccc" and after.columns == "ll | ccc | ccccc | ccc"
    assert texts(after.head[0])[2:] == ["Isotonic Regression", "Platt Scaling", "Mean"]
    assert texts(after.head[2])[-3:] == texts(after.head[2])[:3] == ["Ans Avg", "Ans Joint", "P(True)"]
    assert after.head[1] == Rule(((3, 5), (6, 10), (11, 13)))
    mean = [number for number in after.numbers if number.key["method"] == "mean"]
    assert len(mean) == 15 * 3 and len(after.numbers) == len(before.numbers) + len(mean)
    assert all(len(row) == after.width for row in rows(after))
    assert r"\multicolumn{3}{c}{Mean}" in after.latex and r"\cmidrule(lr){11-13}" in after.latex


def test_the_best_of_three_is_bold(third):
    for row in rows(calibration_tables.result_calibration.of(third)):
        errors = {"isotonic": row[2:5], "platt": [row[6], row[7], row[9]], "mean": row[10:13]}
        for at in range(3):
            values = {method: cells[at].numbers[0].value for method, cells in errors.items()}
            bold = {method for method, cells in errors.items() if cells[at].bold}
            assert len(bold) == 1 and values[bold.pop()] == min(values.values()), "isotonic is never the lowest now"
            assert not errors["isotonic"][at].bold


def test_what_it_learned_stands_before_its_errors(third):
    frame = third.frames["result_calibration"]
    share = frame[(frame["method"] == "mean") & (frame.estimator == "p_true")].assign(metric="c", value=0.25)
    table = calibration_tables.result_calibration(pd.concat([frame, share], ignore_index=True))
    assert table.columns == "ll | ccc | ccccc | cccc"
    assert texts(table.head[2])[-4:] == ["Ans Avg", "Ans Joint", "c", "P(True)"]
    assert [row[-2].text for row in rows(table)] == ["0.25"] * 15


def test_rows_and_columns_of_transfer(third):
    full = transfer_tables.calibration_transfer_full.of(third)
    assert r"\multirow{4}{*}{Mean}" in full.latex
    assert len(rows(full)) == 1 + 3 * 4 and len({number.name for number in full.numbers}) == 12 + 3 * 4 * 12
    summary = transfer_tables.calibration_transfer_summary.of(third)
    assert summary.columns == "lrrr" and texts(summary.head[0])[1:] == ["Isotonic", "Platt", "Mean"]
    assert all("--" not in row[-1].text for row in rows(summary))


def test_the_table_of_one_method_is_still_its_own(paper, third):
    tables = [calibration_tables.result_isotonic.of(side).latex for side in (paper, third)]
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
    figure = transfer_figures.transfer_map(frame, pairs)
    assert [title for title in titles(figure) if title] == ["isotonic", "temperature", "mean"]
    assert [len(ax.texts) for ax in figure.canvas.axes[:3]] == [2, 2, 2]
