"""What notebooks draw, and the rows that they follow: by hand on small frames."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection

from lib import random_streams
from lib.analysis import multi_pass_statistics
from lib.paper import beyond_figures, figures
from lib.paper.cells import HEADLINE
from lib.score import metrics

CORRECT = np.repeat([True, False, True, False], [2, 2, 72, 24])
BINS = metrics.reliability_diagram(np.repeat([0.15, 0.95], [4, 96]), CORRECT)  # of 4 and of 96 rows

# ---- reliability


def test_bins_of_few_rows_are_counted_and_not_drawn():
    """The bin of four rows has a bar, and no point. ECE by hand: .04 * .35 + .96 * .2 = .206."""
    canvas = figures.calibration_analysis({"": BINS}).canvas
    diagram, below = canvas.axes
    assert diagram.get_title("left") == "raw\nECE .206"
    (points,) = (part for part in diagram.collections if isinstance(part, PathCollection))
    np.testing.assert_allclose(points.get_offsets(), [[0.95, 0.75]])
    assert [bar.get_height() for bar in below.patches] == [4, 96]


# ---- all pairs at once


def test_the_overview_is_hollow_where_chance_could_give_the_error():
    """Of two datasets of a model, one without a constant."""
    rows = [
        ("m", dataset, *key, 0.1 * place, 0.05, dataset == "d")
        for dataset in ("d", "e") for place, key in enumerate(HEADLINE, 1) if (dataset, key[0]) != ("e", "base")
    ]  # fmt: skip
    columns = ["model", "dataset", "estimator", "method", "value", "chance_high", "calibrated"]
    frame = pd.DataFrame(rows, columns=columns).assign(low=0.0, high=1.0)
    (ax,) = beyond_figures.overview(frame, {"m": "M"}, {"d": "D", "e": "E"}).canvas.axes
    drawn = [part for part in ax.collections if isinstance(part, PathCollection) and len(part.get_offsets()) == 2]
    assert [part.get_facecolor()[0].tolist() for part in drawn] == [[1, 1, 1, 1]] * 4
    assert [part.get_offsets()[0][0] for part in drawn] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert all(part.get_facecolor()[1].tolist() != [1, 1, 1, 1] for part in drawn)
    assert ax.get_xlabel() == "ECE (lower is better)" and ax.get_title("left") == "M"


# ---- main figure


def test_whiskers_are_the_bootstraps():
    rows = [("p_true", "", 0.1), ("p_true", "platt", 0.9), ("p_true_insitu", "", 0.2)]
    frame = pd.DataFrame(rows, columns=["estimator", "method", "value"]).assign(model="m", dataset="d", metric="ece")
    frame = frame.assign(low=frame.value - 0.02, high=frame.value + 0.03)
    (errors,) = multi_pass_statistics.ece_by_prompt(frame, "m", {"d": "D"}).to_dict("records")
    ends = {"standard low": 0.08, "standard high": 0.13, "in situ low": 0.18, "in situ high": 0.23}
    assert errors.pop("dataset") == "D" and errors == pytest.approx({"standard": 0.1, "in situ": 0.2} | ends)


# ---- rows


def test_the_followed_row_is_in_every_part():
    """So that a notebook with a limit follows the same row as one without."""
    splits = ["calibration"] * 9 + ["evaluation"] * 9
    frame = pd.DataFrame({"dataset": "d", "split": splits, "example_id": map(str, range(18))})
    last = random_streams.first_rows(frame, 9, 0).example_id[9:].tolist()
    for followed in last:
        few, more = (random_streams.first_rows(frame, count, 0, followed) for count in (2, 5))
        assert followed in set(few.example_id) < set(more.example_id)
        assert few.groupby("split").size().tolist() == [2, 2]
