"""Figures beyond the paper's: what is drawn of small frames."""

import pandas as pd
import pytest
from drawing import (
    assert_places,
    bands,
    bars,
    curve,
    is_hollow,
    labels,
    legend_of_points,
    places,
    points,
    segments,
    ticks,
    titles,
)

from lib.paper.beyond_figures import (
    answer_density,
    confidence_histograms,
    cost_quality_plot,
    forest_plot,
    overview,
    risk_coverage_plot,
)

# ---- all pairs at once


@pytest.fixture(scope="module")
def overview_panels():
    """Of two datasets, the second without a constant."""
    scores = [
        ("d", "seq_avg", "", 0.1, 0.2, True),
        ("d", "ans_avg", "", 0.2, 0.3, True),
        ("d", "ans_avg", "isotonic", 0.3, 0.4, True),
        ("d", "base", "", 0.4, 0.5, True),
        ("e", "seq_avg", "", 0.1, 0.05, False),
        ("e", "ans_avg", "", 0.2, 0.05, False),
        ("e", "ans_avg", "isotonic", 0.3, 0.05, False),
    ]
    columns = ["dataset", "estimator", "method", "value", "chance_high", "calibrated"]
    errors = pd.DataFrame(scores, columns=columns).assign(model="m")
    errors = errors.assign(low=errors.value - 0.1, high=errors.value + 0.1)
    return overview(errors, {"m": "M"}, {"d": "D", "e": "E"}).canvas


def test_the_overview_has_a_panel_for_each_dataset_and_a_line_for_each_score(overview_panels):
    (row,) = overview_panels.subfigs
    assert row.get_suptitle() == "M"
    assert [ax.get_title() or ax.get_title("left") for ax in overview_panels.axes] == ["D", "E"]
    first, second = overview_panels.axes
    names = ["Seq Avg", "Ans Avg", "Ans Avg, isotonic", "a constant", "P(True)"]
    assert ticks(first.yaxis) == names
    assert first.get_ylim() == second.get_ylim() == (4.5, -0.5)
    assert first.get_xlim() == second.get_xlim() == pytest.approx((0, 1.05 * 0.5))


def places_of_points(ax):
    every_place = []
    for group in points(ax):
        every_place += list(places(group))
    return every_place


def test_the_overview_has_scores_with_intervals_on_what_chance_gives(overview_panels):
    first, second = overview_panels.axes
    assert_places(places_of_points(first), [(0.1, 0), (0.2, 1), (0.3, 2), (0.4, 3)])
    assert_places(segments(first)[0], [(0, 0, 0.2, 0)])
    assert_places(bars(first)[:4, 2], [0.2, 0.3, 0.4, 0.5])
    assert_places(bars(first)[:4, 1::2].mean(axis=1), [0, 1, 2, 3])
    assert_places(places_of_points(second), [(0.1, 0), (0.2, 1), (0.3, 2)])


def test_a_score_that_could_be_calibrated_is_hollow(overview_panels):
    for ax, expected in zip(overview_panels.axes, ([True], [False]), strict=True):
        seq, *_ = points(ax)
        assert is_hollow(seq) == expected


def test_small_errors_are_drawn_on_an_axis_that_has_room_for_its_ticks():
    errors = pd.DataFrame({"dataset": ["d"], "estimator": "seq_avg", "method": "", "value": 0.001})
    errors = errors.assign(model="m", low=0.0, high=0.002, chance_high=0.003, calibrated=True)
    (ax,) = overview(errors, {"m": "M"}, {"d": "D"}).canvas.axes
    assert ax.get_xlim() == (0, 0.1)
    assert len(ticks(ax.xaxis)) <= 3


# ---- right and wrong responses separately


def filled_bins(ax):
    """The left ends and shares of the bins of right responses that are not empty."""
    (band,) = bands(ax)
    return band[band[:, 2] > 0]


def test_tokens_are_counted_by_the_power_of_their_doubt():
    """Of two right ones, one at 1 - 1e-10 and one at .905; of a wrong one at .135."""
    tokens = pd.DataFrame({"correct": [True, True, False], "logprob": [-1e-10, -0.1, -2]})
    (ax,) = answer_density(tokens, "T").canvas.axes
    right = filled_bins(ax)
    assert set(right[:, 0]) == {1, 1.5, 7, 7.5}, "from 1 to 1.5, and all below 1e-7"
    assert set(right[:, 2]) == {0.5}
    wrong = curve(ax, "incorrect (n = 1)")
    assert_places(wrong[wrong[:, 1] > 0], [(0, 1)])
    assert ticks(ax.xaxis)[0] == "1"
    assert ticks(ax.xaxis)[-1] == "\u22641e-7"


def test_responses_are_counted_by_confidence_in_a_panel_for_each_estimator():
    """Calibration rows do not count."""
    scores = pd.DataFrame(
        {
            "split": ["evaluation", "evaluation", "calibration", "evaluation"],
            "estimator": ["p_true", "p_true", "p_true", "ans_avg"],
            "confidence": [0.1, 0.99, 0.5, 0.5],
            "correct": [False, True, True, True],
        }
    )
    canvas = confidence_histograms(scores, {"p_true": "standard", "ans_avg": "Ans Avg"}).canvas
    assert titles(canvas) == ["standard", "Ans Avg"]
    p_true, ans_avg = canvas.axes
    assert_places(filled_bins(p_true), [(0.95, 0, 1), (1, 0, 1)])
    wrong = curve(p_true, "incorrect (n = 1)")
    assert_places(wrong[wrong[:, 1] > 0], [(0.1, 1)])
    assert_places(filled_bins(ans_avg), [(0.5, 0, 1), (0.55, 0, 1)])
    assert not labels(ans_avg), "no wrong one"


# ---- differences


@pytest.fixture(scope="module")
def forest():
    """Differences above 0, below it, and from 0 on; the second contrast has one pair."""
    rows = [
        ("d", "seq_avg", "ans_avg", "isotonic", 0.2, 0.1, 0.3),
        ("e", "seq_avg", "ans_avg", "isotonic", -0.2, -0.3, -0.1),
        ("d", "ans_avg", "p_true", "platt", 0.1, 0, 0.3),
    ]
    columns = ["dataset", "estimator", "than", "than_method", "difference", "low", "high"]
    differences = pd.DataFrame(rows, columns=columns).assign(model="m", method="")
    return forest_plot(differences, {("m", "d"): "M on D", ("m", "e"): "M on E"}).canvas


def test_each_contrast_has_a_panel_and_each_pair_a_line(forest):
    assert titles(forest) == [
        "Seq Avg, raw\n\N{MINUS SIGN} Ans Avg, isotonic",
        "Ans Avg, raw\n\N{MINUS SIGN} P(True), Platt",
    ]
    first, second = forest.axes
    (differences,) = points(first)
    assert_places(places(differences), [(0.2, 0), (-0.2, 1)])
    assert_places(segments(first)[0], [(0.1, 0, 0.3, 0), (-0.3, 1, -0.1, 1)])
    assert ticks(first.yaxis) == ["M on D", "M on E"]
    (differences,) = points(second)
    assert_places(places(differences), [(0.1, 0)])


def test_a_forest_is_as_high_as_its_lines(forest):
    """.15 inches a pair below the titles, as wide as two columns."""
    assert forest.get_size_inches() == pytest.approx([2 * 3.3, 0.75 + 2 * 0.15])


def test_a_difference_whose_interval_holds_zero_is_hollow(forest):
    first, second = forest.axes
    (apart,) = points(first)
    (together,) = points(second)
    assert is_hollow(apart) == [False, False]
    assert is_hollow(together)[0]


# ---- costs


def test_costs_are_drawn_by_pair_and_as_means_over_the_pairs_that_have_both():
    """The mean of tokens is geometric. Of the third pair P(True) has no tokens."""
    frame = pd.DataFrame(
        {
            "model": "m",
            "dataset": ["d", "d", "e", "e", "f", "f"],
            "estimator": ["seq_avg", "p_true"] * 3,
            "tokens": [100, 400, 400, 1600, 900, None],
            "ece": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            "auroc": [0.7, 0.8, 0.6, 0.9, 0.5, 0.5],
        }
    )
    ece, auroc = cost_quality_plot(frame).canvas.axes
    seq, mean_seq, p_true, mean_p_true = points(ece)
    assert_places(places(seq), [(100, 0.1), (400, 0.3), (900, 0.5)])
    assert_places(places(mean_seq), [(200, 0.2)])
    assert_places(places(p_true), [(400, 0.2), (1600, 0.4)])
    assert_places(places(mean_p_true), [(800, 0.3)])
    assert seq.get_sizes() < mean_seq.get_sizes()
    _, mean_seq, _, mean_p_true = points(auroc)
    assert_places(places(mean_seq), [(200, 0.65)])
    assert_places(places(mean_p_true), [(800, 0.85)])
    assert legend_of_points(auroc) == ["Seq Avg", "P(True)", "small: a pair", "large: mean"]
    assert ece.get_xscale() == "log"


# ---- when to answer


@pytest.fixture(scope="module")
def risk_coverage():
    """Of two datasets, the second without curves; a model n is in the frames, too."""
    curves = pd.DataFrame(
        {
            "model": ["m", "m", "m", "m", "n"],
            "dataset": "d",
            "estimator": "seq_avg",
            "method": ["", "", "", "isotonic", ""],
            "answered": [1, 0.5, 0.04, 1, 1],
            "accuracy": [0.6, 0.8, 1, 0.7, 0.1],
        }
    )
    thresholds = pd.DataFrame(
        {
            "model": ["m", "m", "m", "m", "n"],
            "dataset": ["d", "d", "d", "e", "d"],
            "estimator": "seq_avg",
            "target": [0.8, 0.9, 0.95, 0.9, 0.9],
            "answered": [0.5, 0.4, 0.3, None, 0.3],
            "precision": [0.85, 0.95, 0.96, None, 0.9],
        }
    )
    return risk_coverage_plot(curves, thresholds, "m", {"d": "D", "e": "E"}).canvas


def test_risk_and_coverage_have_a_row_for_raw_and_for_calibrated_scores(risk_coverage):
    assert titles(risk_coverage) == ["D", "E", "", ""]
    raw, _, isotonic, _ = risk_coverage.axes
    assert raw.get_ylabel() == "accuracy, raw"
    assert isotonic.get_ylabel() == "accuracy, isotonic"
    assert_places(curve(raw, "Seq Avg"), [(0.5, 0.8), (1, 0.6)])  # from .05 answered
    assert_places(curve(isotonic, "Seq Avg"), [(1, 0.7)])


def test_every_panel_shows_the_middle_target(risk_coverage):
    for ax in risk_coverage.axes:
        assert_places(curve(ax, "accuracy 0.9"), [(0, 0.9), (1, 0.9)])


def test_a_guaranteed_threshold_is_a_ring_at_the_raw_score(risk_coverage):
    raw, *others = risk_coverage.axes
    (ring,) = points(raw)
    assert ring.get_label() == "guaranteed 0.9"
    assert_places(places(ring), [(0.4, 0.95)])
    assert is_hollow(ring) == [True]
    for ax in others:
        assert not points(ax)
