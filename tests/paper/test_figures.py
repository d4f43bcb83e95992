"""The paper's figures: what is drawn of small frames; same data, same bytes; fonts embedded;
readable sizes."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import matplotlib
import numpy as np
import pandas as pd
import pytest
from drawing import (
    assert_places,
    bands,
    bars,
    curve,
    guides,
    is_hollow,
    labels,
    places,
    points,
    segments,
    ticks,
    titles,
)
from matplotlib.text import Text

from lib.paper.figures import (
    calibration_analysis,
    draw_learning_curves,
    main_analysis,
    sampling_curves,
    wilson_intervals,
)

# ---- fig:main_analysis

# of a right and of a wrong response
CURVES = pd.DataFrame(
    {
        "position": [0, 0.5, 1, 0, 0.5, 1],
        "correct": [True] * 3 + [False] * 3,
        "n": [9] * 3 + [7] * 3,
        "mean": [0.5, 0.8, 0.9, 0.6, 0.7, 0.5],
        "low": [0.4, 0.7, 0.8, 0.5, 0.6, 0.4],
        "high": [0.6, 0.9, 1, 0.7, 0.8, 0.6],
    }
)
# after one to six passes, the first two exchanged
PREDICTIVE = [(2, 0.2), (1, 0.1), (3, 0.3), (4, 0.4), (5, 0.4), (6, 0.4)]
ENTROPIES = pd.DataFrame(
    {
        "term": ["predictive"] * 6 + ["conditional"] * 6,
        "passes": [passes for passes, _ in PREDICTIVE] + [1, 2, 3, 4, 5, 6],
        "mean": [entropy for _, entropy in PREDICTIVE] + [0.1] * 6,
    }
)
ENTROPIES = ENTROPIES.assign(low=ENTROPIES["mean"] - 0.1, high=ENTROPIES["mean"] + 0.1)
IN_SITU = pd.DataFrame(
    {
        "dataset": ["a_$b$", "c"],
        "standard": [0.1, 0.3],
        "standard low": [0.05, 0.2],
        "standard high": [0.15, 0.4],
        "in situ": [0.2, 0.1],
        "in situ low": [0.1, 0],
        "in situ high": [0.3, 0.2],
    }
)


@pytest.fixture(scope="module")
def main_figure():
    return main_analysis(CURVES, ENTROPIES, IN_SITU, "a_b & $c$ on <d>").canvas


def test_the_main_figure_has_three_lettered_panels_and_a_difference(main_figure):
    assert titles(main_figure) == [
        "(a) token probability",
        "",
        "(b) dropout passes",
        "(c) P(True), raw",
    ]
    assert main_figure.get_size_inches() == pytest.approx([3.3, 0.3 + 1.95 * 2.55], abs=0.01)


def test_running_means_are_drawn_with_their_bands_and_numbers_of_responses(main_figure):
    means, *_ = main_figure.axes
    assert labels(means) == ["correct (n = 9)", "incorrect (n = 7)"]
    assert_places(curve(means, "correct (n = 9)"), [(0, 0.5), (0.5, 0.8), (1, 0.9)])
    assert_places(curve(means, "incorrect (n = 7)"), [(0, 0.6), (0.5, 0.7), (1, 0.5)])
    right, wrong = bands(means)
    assert_places(right, [(0, 0.4, 0.6), (0.5, 0.7, 0.9), (1, 0.8, 1)])
    assert_places(wrong, [(0, 0.5, 0.7), (0.5, 0.6, 0.8), (1, 0.4, 0.6)])


def test_running_means_are_zoomed_to_what_comes_after_the_first_fifth(main_figure):
    """From .4 to 1, with some room, more below for the legend."""
    means, *_ = main_figure.axes
    room = 0.08 * 0.6
    assert means.get_xlim() == (0, 1)
    assert means.get_ylim() == pytest.approx((0.4 - 3 * room, 1 + room))


def test_the_difference_is_drawn_beside_zero(main_figure):
    _, difference, *_ = main_figure.axes
    zero, line = guides(difference)
    assert_places(zero, [(0, 0), (1, 0)])
    assert_places(line, [(0, -0.1), (0.5, 0.1), (1, 0.4)])
    (band,) = bands(difference)
    half = np.hypot(0.1, 0.1)
    assert_places(band[:, 1], np.array([-0.1, 0.1, 0.4]) - half)
    assert_places(band[:, 2], np.array([-0.1, 0.1, 0.4]) + half)


def test_both_entropies_are_drawn_by_passes_with_bald_between_them(main_figure):
    entropies = main_figure.axes[2]
    assert_places(curve(entropies, "predictive"), sorted(PREDICTIVE))
    assert_places(curve(entropies, "conditional")[:, 1], [0.1] * 6)
    predictive, conditional = bands(entropies)
    assert_places(predictive[-1], (6, 0.3, 0.5))
    assert_places(conditional[-1], (6, 0, 0.2))
    bald, five_passes = guides(entropies)
    assert_places(bald, [(6.42, 0.4), (6.42, 0.1)])
    assert_places(five_passes[:, 0], [5, 5])
    assert [text.get_text() for text in entropies.texts] == ["BALD"]
    assert ticks(entropies.xaxis) == ["1", "5", "6"]


def test_both_prompts_are_bars_side_by_side(main_figure):
    """A name of a dataset is no formula."""
    in_situ = main_figure.axes[3]
    assert ticks(in_situ.xaxis) == ["a_$b$", "c"]
    assert_places(
        bars(in_situ),
        [(-0.39, 0, -0.01, 0.1), (0.61, 0, 0.99, 0.3), (0.01, 0, 0.39, 0.2), (1.01, 0, 1.39, 0.1)],
    )
    standard, query = segments(in_situ)
    assert_places(standard, [(-0.2, 0.05, -0.2, 0.15), (0.8, 0.2, 0.8, 0.4)])
    assert_places(query, [(0.2, 0.1, 0.2, 0.3), (1.2, 0, 1.2, 0.2)])


def test_a_single_panel_has_no_letter():
    one_pass = ENTROPIES[ENTROPIES.passes == 1]
    canvas = main_analysis(entropies=one_pass).canvas
    assert titles(canvas) == ["dropout passes"]
    assert canvas.get_size_inches() == pytest.approx([3.3, 2.25])


def test_of_one_pass_there_is_no_bald():
    one_pass = ENTROPIES[ENTROPIES.passes == 1]
    (ax,) = main_analysis(entropies=one_pass).canvas.axes
    assert labels(ax) == ["predictive", "conditional"]
    assert not guides(ax)
    assert ticks(ax.xaxis) == ["1"]


def test_errors_in_situ_are_drawn_without_intervals_if_there_are_none():
    in_situ = pd.DataFrame({"dataset": ["d"], "standard": [0], "in situ": [0]})
    (ax,) = main_analysis(in_situ=in_situ).canvas.axes
    assert_places(bars(ax), [(-0.39, 0, -0.01, 0), (0.01, 0, 0.39, 0)])
    for ends in segments(ax):
        assert np.isnan(ends).all()


def test_of_right_responses_alone_there_is_no_difference():
    right = CURVES[CURVES.correct].assign(mean=0.5, low=0.5, high=0.5)
    (ax,) = main_analysis(curves=right).canvas.axes
    assert labels(ax) == ["correct (n = 9)"]
    assert ax.get_ylim() == pytest.approx((0.5, 0.5), abs=0.001), "though nothing varies"


def test_of_nothing_there_is_no_panel():
    canvas = main_analysis().canvas
    assert not canvas.axes
    assert canvas.get_size_inches() == pytest.approx([3.3, 0.3])


# ---- learning curves


def bands_of(rows):
    """Bands from (dataset, method, n, mean), .1 wide."""
    frame = pd.DataFrame(rows, columns=["dataset", "method", "n", "mean"])
    half = np.where(frame["method"] == "", 0, 0.05)
    return frame.assign(low=frame["mean"] - half, high=frame["mean"] + half)


@pytest.fixture(scope="module")
def learning_curves():
    """Of three datasets; there is a fourth in the frame."""
    frame = bands_of(
        [
            ("d", "", 50, 0.3),
            ("d", "isotonic", 50, 0.1),
            ("d", "isotonic", 10, 0.2),
            ("d", "platt", 50, 0.15),
            ("e", "", 50, 0.4),
            ("e", "platt", 50, 0.2),
            ("f", "", 50, 0.9),
            ("f", "isotonic", 50, 0.9),
        ]
    )
    datasets = {"d": "D", "e": "E", "g": "without rows"}
    return draw_learning_curves(frame, datasets, "M").canvas


def test_each_dataset_with_rows_has_a_panel(learning_curves):
    assert titles(learning_curves) == ["D", "E"]


def test_each_method_has_a_curve_and_the_raw_score_a_line(learning_curves):
    first, second = learning_curves.axes
    assert labels(first) == ["isotonic", "temperature", "raw"]
    assert_places(curve(first, "isotonic"), [(10, 0.2), (50, 0.1)])
    assert_places(curve(first, "temperature"), [(50, 0.15)])
    assert_places(curve(first, "raw"), [(0, 0.3), (1, 0.3)])
    isotonic, temperature = bands(first)
    assert_places(isotonic, [(10, 0.15, 0.25), (50, 0.05, 0.15)])
    assert_places(temperature, [(50, 0.1, 0.2)])
    assert labels(second) == ["temperature", "raw"]
    assert_places(curve(second, "raw")[:, 1], [0.4, 0.4])


def test_panels_share_an_axis_to_the_largest_error_that_is_drawn(learning_curves):
    """The fourth dataset has .9."""
    for ax in learning_curves.axes:
        assert ax.get_xscale() == "log"
        assert ax.get_ylim() == pytest.approx((0, 1.05 * 0.4))
        assert ax.get_xlabel() == "calibration rows"
    assert sorted(ticks(learning_curves.axes[0].xaxis)) == ["10", "50"]


def test_four_datasets_stand_in_two_rows():
    frame = bands_of([(name, "isotonic", 10, 0.1) for name in "abcd"])
    datasets = {"a": "A", "b": "B", "c": "C", "d": "D"}
    canvas = draw_learning_curves(frame, datasets).canvas
    assert titles(canvas)[:4] == ["A", "B", "C", "D"]
    assert canvas.get_size_inches() == pytest.approx([3.3, 0.9 + 2 * 1.3])


def test_ways_of_sampling_are_curves_by_method():
    frame = bands_of(
        [
            ("d", "isotonic", 10, 0.2),
            ("d", "isotonic", 50, 0.1),
            ("d", "platt", 50, 0.3),
            ("d", "isotonic", 10, 0.4),
        ]
    ).assign(sampling=["uniform", "uniform", "uniform", "wrong"])
    canvas = sampling_curves(frame).canvas
    assert titles(canvas) == ["isotonic", "temperature"]
    isotonic, temperature = canvas.axes
    assert_places(curve(isotonic, "uniform"), [(10, 0.2), (50, 0.1)])
    assert_places(curve(isotonic, "incorrect"), [(10, 0.4)])
    assert_places(curve(temperature, "uniform"), [(50, 0.3)])


# ---- fig:calibration_analysis


def test_intervals_of_bins_are_wilsons():
    """Center 1/2, half z sqrt(n / 4 + z^2 / 4) / (n + z^2)."""
    z = 1.9599639845
    half = z * np.sqrt(1 + z**2 / 4) / (4 + z**2)
    (row,) = wilson_intervals(pd.DataFrame({"count": [4], "accuracy": [0.5]})).itertuples()
    assert row.low == pytest.approx(0.5 - half)
    assert row.high == pytest.approx(0.5 + half)


def bins_of(*rows):
    """Bins from (lower, upper, count, confidence, accuracy)."""
    frame = pd.DataFrame(rows, columns=["lower", "upper", "count", "confidence", "accuracy"])
    gaps = (frame["confidence"] - frame["accuracy"]).abs()
    return frame.assign(product=gaps * frame["count"] / frame["count"].sum())


@pytest.fixture(scope="module")
def calibration_figure():
    bins = {
        "": bins_of((0.1, 0.2, 4, 0.15, 0.5), (0.9, 1, 96, 0.95, 0.75)),
        "platt": bins_of((0.9, 1, 5, 0.9, 0.8)),
    }
    curves = bands_of([("d", "", 50, 0.3), ("d", "isotonic", 50, 0.1), ("d", "isotonic", 10, 0.2)])
    return calibration_analysis(bins, curves, {"d": "D"}, "M").canvas


def test_the_calibration_figure_has_a_diagram_for_each_method_and_learning_curves(
    calibration_figure,
):
    """Below each diagram stand the numbers of rows."""
    assert titles(calibration_figure) == [
        "raw\nECE .206",
        "(a) temperature\nECE .100",
        "",
        "",
        "(b) D",
    ]
    learning = calibration_figure.axes[4]
    assert_places(curve(learning, "isotonic"), [(10, 0.2), (50, 0.1)])


def test_a_bin_of_five_rows_or_more_is_a_point_of_its_share_with_gap_and_interval(
    calibration_figure,
):
    raw, temperature, *_ = calibration_figure.axes
    assert_places(curve(raw, "calibrated"), [(0, 0), (1, 1)])
    assert raw.get_xticks().tolist() == raw.get_yticks().tolist() == [0, 0.5, 1]
    (bins,) = points(raw)
    assert bins.get_label() == "bin of 5 rows or more"
    assert_places(places(bins), [(0.95, 0.75)])
    assert bins.get_sizes() == pytest.approx([8 + 50 * 0.96])
    assert is_hollow(bins) == [False]
    gap, interval = segments(raw)
    assert_places(gap, [(0.95, 0.75, 0.95, 0.95)])
    assert_places(interval, [(0.95, 0.655, 0.95, 0.826)])
    (only_bin,) = points(temperature)
    assert only_bin.get_sizes() == pytest.approx([58])


def test_rows_of_every_bin_are_counted(calibration_figure):
    _, _, raw, temperature, _ = calibration_figure.axes
    assert_places(bars(raw), [(0.108, 0, 0.192, 4), (0.908, 0, 0.992, 96)])
    assert_places(bars(temperature), [(0.908, 0, 0.992, 5)])


def test_platt_scaling_of_a_margin_is_called_so():
    bins = bins_of((0, 0.5, 10, 0.25, 0.25))
    canvas = calibration_analysis({"isotonic": bins, "platt": bins}, estimator="p_true").canvas
    assert titles(canvas) == ["(a) isotonic\nECE .000", "(b) Platt\nECE .000", "", ""]
    _, interval = segments(canvas.axes[0])
    assert_places(interval, [(0.25, 0.0567, 0.25, 0.51)])


def test_without_bins_it_is_said_that_nothing_was_measured():
    assert titles(calibration_analysis({}).canvas) == ["nothing was measured", ""]


# ---- files


def save_main_figure(settings):
    matplotlib.rcParams |= settings
    figure = main_analysis(CURVES, ENTROPIES, IN_SITU, "a_b & $c$ on <d>")
    return figure.save("pdf"), figure.save("png")


@pytest.fixture(scope="module")
def saved():
    return save_main_figure({})


def test_same_bytes_in_another_process_whatever_a_notebook_has_set_there(saved, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "123")
    settings = {"font.size": 20, "savefig.dpi": 50, "pdf.fonttype": 3}
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        assert other.submit(save_main_figure, settings).result() == saved


def test_a_file_is_for_print_and_without_a_date(saved):
    """Fonts are embedded as TrueType."""
    pdf, png = saved
    assert b"CreationDate" not in pdf
    assert b"matplotlib" not in png
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf


def test_every_text_has_seven_points_or_more(main_figure):
    texts = [text for text in main_figure.findobj(Text) if text.get_text().strip()]
    sizes = [text.get_fontsize() for text in texts if text.get_visible()]
    assert min(sizes) >= 7
