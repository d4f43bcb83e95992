"""What notebooks draw beside the paper's figures, and the sentences under them: by hand on small frames."""

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection

from lib import random_streams
from lib.analysis import (
    ablation_statistics,
    calibration_statistics,
    dropout_statistics,
    token_statistics,
    verification_statistics,
)
from lib.paper import (
    calibration_figures,
    exploratory_plots,
    figures,
    prompt_figures,
    reliability,
    verdicts,
)
from lib.paper.booktabs import Cell, Table
from lib.params import Reading
from lib.score import ablation, bootstrap, running_example


def bins(count=(4, 96), mean=(0.15, 0.95), accuracy=(0.5, 0.75)):
    lower = np.floor(np.array(mean) * 10) / 10
    columns = {"lower": lower, "upper": lower + 0.1, "count": count, "confidence": mean, "accuracy": accuracy}
    return pd.DataFrame(columns)


def points(ax):
    return [part for part in ax.collections if isinstance(part, PathCollection)]


def words(canvas):
    return [text.get_text() for ax in canvas.axes for text in ax.texts]


# ---- reliability


def test_reliability_after_guo():
    """ECE by hand: .04 * .35 + .96 * .2 = .206; four of five hundred points are hollow, and the areas follow n."""
    assert reliability.error(bins()) == pytest.approx(0.206)
    canvas = reliability.reliability_panels({"": bins(), "platt": bins(accuracy=(0.25, 0.95))}, "a_$b$").canvas
    assert [ax.get_title(loc="left") for ax in canvas.axes] == ["Raw", "Platt", "", ""]
    assert words(canvas) == ["ECE .206", "ECE .004"]
    few, many = sorted(points(canvas.axes[0]), key=lambda part: part.get_sizes()[0])
    assert few.get_facecolor()[0].tolist() == [1, 1, 1, 1] and many.get_facecolor()[0].tolist() != [1, 1, 1, 1]
    gaps = [part for part in canvas.axes[0].collections if isinstance(part, LineCollection)][0]
    ends = [sorted(segment[:, 1]) for segment in gaps.get_segments()]
    np.testing.assert_allclose(ends, [[0.15, 0.5], [0.75, 0.95]])


def test_intervals_are_wilsons():
    """Two of four, z = 1.96: centre .5, half z sqrt(n / 4 + z^2 / 4) / (n + z^2)."""
    z = 1.959964
    half = z * np.sqrt(4 * 0.25 + z**2 / 4) / (4 + z**2)
    ends = reliability.wilson_intervals(bins()).iloc[0]
    np.testing.assert_allclose(ends, [0.5 - half, 0.5 + half], atol=1e-6)


def test_every_reliability_panel_says_both_errors():
    both = {"": bins(), "isotonic": bins(accuracy=(0.25, 0.95)), "platt": bins()}
    said_there = words(calibration_figures.calibration_analysis(both).canvas)
    assert said_there == ["ECE .206 \u2192 .004", "ECE .206 \u2192 .206"]


def test_curves_are_drawn_of_the_datasets_that_have_some():
    """A model may have none: 06 draws one model's, and 08 may be asked for another's."""
    both = {"": bins(), "isotonic": bins(accuracy=(0.25, 0.95))}
    rows = [("d", method, n, 0.1, 0.05, 0.2, 0) for method in ("", "isotonic") for n in (5, 50)]
    bands = pd.DataFrame(rows, columns=["dataset", "method", "n", "mean", "low", "high", "one_class"])
    names = {"d": "D", "e": "E"}
    panels = [len(calibration_figures.calibration_analysis(both, part, names).canvas.axes)
              for part in (None, bands.iloc[:0], bands)]  # fmt: skip
    assert panels == [2, 2, 3]


def test_reliability_of_another_estimator():
    rows = [("m", "d", name, "", 0.95, True) for name in ("ans_avg", "p_true")] + [("m", "d", "p_true", "", 0.2, False)]
    frame = pd.DataFrame(rows, columns=["model", "dataset", "estimator", "method", "confidence", "correct"])
    found = [
        calibration_statistics.reliability_by_method(frame, "m", "d", **how)[""]["count"].sum()
        for how in ({}, {"estimator": "p_true"})
    ]
    assert found == [1, 2]


# ---- main figure


def running(kind, mean, half):
    x = np.linspace(0, 1, 11)
    return pd.DataFrame({"correct": kind, "position": x, "mean": mean, "low": mean - half, "high": mean + half, "n": 9})


def test_the_difference_has_the_interval_of_two_means():
    gap = token_statistics.right_minus_wrong(pd.concat([running(True, 0.9, 0.03), running(False, 0.8, 0.04)]))
    np.testing.assert_allclose(gap[["mean", "low", "high"]].iloc[0], [0.1, 0.05, 0.15])
    cut = running(True, 0.99, 0.03).assign(high=1.0)  # at what is possible
    gap = token_statistics.right_minus_wrong(pd.concat([cut, running(False, 0.8, 0.04)]))
    np.testing.assert_allclose(gap[["low", "high"]].iloc[0], [0.14, 0.24])


def test_the_running_mean_is_zoomed_to_where_it_has_settled():
    steep = np.where(np.linspace(0, 1, 11) < 0.2, 0.3, 0.95)
    both = pd.concat([running(True, steep, 0.01), running(False, steep - 0.02, 0.01)])
    low, high = figures.main_analysis(both).canvas.axes[0].get_ylim()
    assert 0.88 < low < 0.92 < 0.96 < high < 0.98


def test_whiskers_are_the_bootstraps():
    rows = [
        ("m", "d", name, method, "ece", value, value - 0.02, value + 0.03)
        for name, method, value in (("p_true", "", 0.1), ("p_true", "platt", 0.9), ("p_true_insitu", "", 0.2))
    ]
    columns = ["model", "dataset", "estimator", "method", "metric", "value", "low", "high"]
    errors = verification_statistics.in_situ_errors(pd.DataFrame(rows, columns=columns), "m", {"d": "D"})
    assert errors.iloc[0].to_dict() == pytest.approx({"dataset": "D", "standard": 0.1, "standard low": 0.08,
            "standard high": 0.13, "in situ": 0.2, "in situ low": 0.18, "in situ high": 0.23})  # fmt: skip
    (ax,) = figures.main_analysis(in_situ=errors).canvas.axes
    ends = [segment[:, 1].tolist() for part in ax.collections for segment in part.get_segments()]
    np.testing.assert_allclose(ends, [[0.08, 0.13], [0.18, 0.23]])


@pytest.mark.parametrize("labels", [["Easy", "Hard"], ["SVAMP", "GSM8K", "GSMHard"], ["Demo-Easy", "Demo-Medium"]])
def test_no_dataset_is_written_over_the_next(labels):
    """In half a column, beside the passes."""
    errors = pd.DataFrame({"dataset": labels, "standard": 0.1, "in situ": 0.2})
    entropies = pd.DataFrame([(term, n, 0.1, 0.1, 0.1) for term in ("predictive", "conditional") for n in (1, 2)],
                             columns=["term", "passes", "mean", "low", "high"])  # fmt: skip
    means = pd.DataFrame([(right, x, 0.9, 0.9, 0.9, 5) for right in (True, False) for x in (0.0, 1.0)],
                         columns=["correct", "position", "mean", "low", "high", "n"])  # fmt: skip
    canvas = figures.main_analysis(means, entropies, errors).canvas
    FigureCanvasAgg(canvas).draw()
    texts = [text for text in canvas.axes[-1].get_xticklabels() if text.get_text()]
    edges = [[float(x) for x in text.get_window_extent().intervalx] for text in texts]
    if texts[0].get_rotation():  # slanted lines of text lie above one another where their ends stand apart
        edges = [[right - 10, right] for _, right in edges]
    assert [text.get_text() for text in texts] == labels
    assert all(one[1] + 3 < other[0] for one, other in itertools.pairwise(edges))


# ---- histograms, and what is new in a prompt


def test_histograms_count_every_response_of_the_evaluation_split():
    scores = pd.DataFrame(
        {
            "split": ["evaluation"] * 5 + ["calibration"],
            "estimator": "p_true",
            "confidence": [0.0, 0.2, 0.2, 0.9, 1.0, 0.5],
            "correct": np.array([1, 0, 0, 1, 1, 1], dtype=bool),
        }
    )
    canvas = exploratory_plots.confidence_histograms(scores, {"p_true": "standard"}).canvas
    (wrong,), (right,) = canvas.axes[0].lines, canvas.axes[0].collections
    assert wrong.get_ydata().max() == 1 and right.get_paths()[0].vertices[:, 1].max() == pytest.approx(1 / 3)
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == ["right (n = 3)", "wrong (n = 2)"]


def test_option_masses_fill_the_whole():
    columns = {"A": [0.2, 0.1], "B": [0.6, 0.9], "P(True)": 0.25, "tokens": 3}
    table = pd.DataFrame(columns, index=["standard", "in situ"])
    (ax,) = exploratory_plots.option_mass_bars(table).canvas.axes
    widths = np.array([bar.get_width() for bar in ax.patches]).reshape(3, 2)
    np.testing.assert_allclose(widths, [[0.2, 0.1], [0.6, 0.9], [0.2, 0.0]], atol=1e-12)


def passed():
    row = {
        "example_id": "a",
        "split": "evaluation",
        "correct": False,
        "predictive": [np.array([9.0, 9.0]), np.array([1.0, 2.5])],
        "conditional": [np.array([9.0, 9.0]), np.array([0.75, 0.5])],
    }
    return pd.DataFrame([row])


def test_bald_is_drawn_and_written_out_as_phi_reads_it():
    tokens = dropout_statistics.answer_tokens(passed())
    assert tokens.bald.tolist() == [0.25, 2.0] and exploratory_plots.clipped_in_words(tokens) == "50.0% clipped to 0"
    canvas = exploratory_plots.bald_histogram(tokens).canvas
    (line,) = canvas.axes[1].lines
    assert np.interp([0.25, 2.0], *line.get_data()).tolist() == [0.75, 0.0] and "50.0% clipped to 0" in words(canvas)
    written = running_example.describe_c_bald(running_example.bald_by_token(passed(), Reading()))
    assert written.endswith("clip(1 - 2.000, 0, 1) = 0.000; c_BALD = (0.750 + 0.000) / 2 = 0.375")


def test_only_what_is_new_is_shaded():
    new = "\n\nIs it?\nSay so."
    canvas = prompt_figures.prompt_comparison("one\ntwo", f"long\nago{new}", new).canvas
    heights = [ax.patches[1].get_height() / prompt_figures.LEADING for ax in canvas.axes]
    assert heights == pytest.approx([2, 2]) and all(len(ax.patches) == 2 for ax in canvas.axes)
    plain = prompt_figures.prompt_comparison("one", "two").canvas
    assert [len(ax.patches) for ax in plain.axes] == [1, 1]


def test_responses_of_one_question_beside_each_other():
    answers = ("a", "none", "5"), ("a", "one", "5"), ("b", "none", "5"), ("b", "one", "7")
    rows = [("m", "d", "evaluation", name, "5", answer, None, "stop", arm, False) for name, arm, answer in answers]
    frame = pd.DataFrame(rows, columns=[*ablation.ABLATION_COLUMNS, "demonstration", "profile"])
    assert ablation_statistics.find_changed_answer(frame, "none") == ("b", "one")
    assert ablation_statistics.graded_by_arm(frame).loc["b"].tolist() == [True, False]
    alone = frame[frame.demonstration == "none"]
    assert ablation_statistics.find_changed_answer(alone, "none") == ("a", "none")
    kept = {
        "none": pd.DataFrame({"example_id": ["b"], "text": ["#### 5"]}),
        "one": pd.DataFrame({"example_id": ["b"], "text": [None]}),
    }
    assert ablation_statistics.responses_to("b", kept, ["none", "one"]) == {"none": "#### 5", "one": "(not kept)"}
    assert len(prompt_figures.responses_beside({"none": "#### 5"}).canvas.axes) == 1


# ---- forests, maps and folds


def resampled():
    rng = np.random.default_rng(0)
    correct = rng.random(80) < 0.6
    rows = [
        ("m", "d", "evaluation", f"{i}", name, method, value, correct[i])
        for i in range(80)
        for name, method, value in (("ans_avg", "", 0.99), ("ans_avg", "isotonic", 0.6), ("seq_avg", "", 0.98))
    ]
    columns = ["model", "dataset", "split", "example_id", "estimator", "method", "confidence", "correct"]
    return bootstrap.bootstrap(pd.DataFrame(rows, columns=columns), resamples=200)


def test_a_forest_has_a_line_for_each_pair_and_is_hollow_where_undecided():
    contrasts = [(("ans_avg", "isotonic"), ("ans_avg", "")), (("seq_avg", ""), ("seq_avg", ""))]
    differences = resampled().differences(contrasts)
    canvas = exploratory_plots.forest_plot(differences, {("m", "d"): "a_$b$"}).canvas
    assert [ax.get_title() for ax in canvas.axes] == ["", ""]
    assert canvas.axes[0].get_title(loc="left") == "Ans Avg, isotonic\n\u2212 Ans Avg, raw"
    fills = [points(ax)[0].get_facecolor()[0][:3].tolist() for ax in canvas.axes]
    assert fills == [[0, 0, 0], [1, 1, 1]]


def test_the_map_begins_with_the_most_accurate_pair():
    accuracy = pd.DataFrame([("m", "d", "acc", 0.2), ("m", "e", "acc", 0.9), ("m", "e", "ece", 1.0)],
                            columns=["model", "dataset", "metric", "value"])  # fmt: skip
    pairs = exploratory_plots.order_by_accuracy(accuracy, {"m": "M"}, {"d": "D", "e": "E"})
    assert pairs == {("m", "e"): "M / E (90%)", ("m", "d"): "M / D (20%)"}


def test_where_no_row_is_left_nothing_is_drawn():
    both = pd.DataFrame({"method": ["isotonic"] * 2, "model": "M", "source_dataset": ["D", "E"], "dataset": ["E", "D"],
                         "value": [0.1, -0.2], "value_unseen": [0.12, np.nan]})  # fmt: skip
    unseen, every = points(exploratory_plots.deduplicated_transfer_plot(both).canvas.axes[0])
    drawn = np.isfinite(np.ma.filled(unseen.get_offsets(), np.nan)).all(axis=1)
    assert (len(every.get_offsets()), drawn.sum()) == (2, 1)
    (text,) = exploratory_plots.deduplicated_transfer_plot(both.iloc[:0]).canvas.texts
    assert "one dataset" in text.get_text()


def test_words_stand_to_the_left():
    page = verdicts.in_sentences(pd.DataFrame({"claim": ["a < b, " * 40 + "d", "c"]}))
    assert page.count('style="text-align: left"') == 3 and "a &lt; b, " * 40 + "d" in page and "<td>" not in page


def test_macros_are_folded_for_the_reader_and_whole_for_the_paper():
    page = verdicts.LatexOutput("% a < b\n\\newcommand{\\X}{1}\n", "1 macro")._repr_mimebundle_()
    assert page["text/html"].startswith("<details><summary>1 macro</summary><pre>% a &lt; b\n")
    assert page["text/latex"] == "% a < b\n\\newcommand{\\X}{1}\n"


def test_notes_are_one_paragraph_on_screen():
    one = pd.DataFrame([[Cell("a")]], columns=["x"])
    page = Table("l", one, ["One < two.", "Three."])._repr_html_()
    assert page.count("<p") == 1 and "<i>One &lt; two. Three.</i>" in page
    assert "<p" not in Table("l", one)._repr_html_()


def test_the_followed_row_is_in_every_part():
    """So that a notebook with a limit follows the same row as one without."""
    frame = pd.DataFrame({"dataset": "d", "split": ["calibration"] * 9 + ["evaluation"] * 9,
                          "example_id": [f"{i}" for i in range(18)]})  # fmt: skip
    last = random_streams.first_rows(frame, 9, 0).example_id[9:].tolist()
    for followed in last:
        few, more = (random_streams.first_rows(frame, count, 0, followed) for count in (2, 5))
        assert followed in set(few.example_id) < set(more.example_id)
        assert few.groupby("split").size().tolist() == [2, 2]
    assert random_streams.first_rows(frame, 2, 0, "").equals(random_streams.first_rows(frame, 2, 0))
