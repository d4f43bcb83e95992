"""A third way to calibrate, declared: a group of columns, rows, a curve and a panel of its own, everywhere."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from lib.calibrate.calibrators import METHODS
from lib.paper import numbers_of_paper, tables
from lib.paper.report_contents import printed_numbers

MEAN = SimpleNamespace(
    name="mean", label="Mean", answer_label="mean", inputs={"confidence": object}, answer_input="confidence"
)
CALIBRATED = ("result_calibration", "result_calibration_full", "result_isotonic")


@pytest.fixture(scope="module")
def paper():
    return numbers_of_paper.published()


@pytest.fixture
def third(paper, monkeypatch):
    """The paper's results, and those of a method that does a little better than isotonic regression."""
    monkeypatch.setitem(METHODS, "mean", MEAN)
    frames = {}
    for name in CALIBRATED:
        frame = paper.frames[name]
        rows = frame[frame["method"] == "isotonic"].assign(method="mean")
        frames[name] = pd.concat([frame, rows.assign(value=rows.value - 0.0005)], ignore_index=True)
    return replace(paper, frames={**paper.frames, **frames})


@pytest.mark.parametrize("name", CALIBRATED[:2])
def test_columns_of_its_own(paper, third, name):
    before, after = (getattr(tables, name)(side) for side in (paper, third))
    assert after.specs[""] == f"{before.specs['']} | ccc" and after.cells.shape == (15, before.cells.shape[1] + 3)
    assert r"\multicolumn{3}{c}{Mean}" in after.latex and r"\cmidrule(lr){11-13}" in after.latex
    assert r"$\ptrue$ & \textsc{Ans Avg} & \textsc{Ans Joint} & $\ptrue$ \\" in after.latex, "heads"
    numbers = printed_numbers(third).query("table == 'tab_' + @name and method == 'mean'")
    assert len(numbers) == after.cells.iloc[:, -3:].size
