"""Tables against the paper cell by cell, where its LaTeX is at hand; escaping, notes, HTML; pdflatex."""

import re

import pandas as pd
from latex import PAPER, paper
from synthetic import keyed, own_labels

from lib.paper import tables
from lib.paper.booktabs import Cell, Table
from lib.paper.latex import COMMANDS, MACROS, escape
from lib.score import metrics
from lib.score.estimators import ESTIMATORS

HOSTILE = r"a_b & <c> 100% #1 $x$ {y} \z ~ ^ | "


# ---- against the paper, where test_published.py does not look


@paper
def test_commands_and_macros_are_the_papers():
    text = PAPER.read_text(encoding="utf-8")
    for macro, meaning in MACROS.items():
        assert rf"\newcommand{{{macro}}}{{{meaning}}}" in text
    text = re.sub(r"%\n|\n|  +", "", text)
    for command, (count, meaning) in COMMANDS.items():
        assert rf"\newcommand{{{command}}}[{count}]{{{meaning}}}" in text


def test_the_selected_rate_is_one_row():
    """Of equal errors the lower rate's, and every cell of its row is bold, whatever the other metrics say."""
    rates = {0.1: (0.2, 0.5, 0.3), 0.15: (0.1, 0.9, 0.3), 0.2: (0.1, 0.1, 0.3)}
    frame = pd.DataFrame(rates, index=["ece", "mce", "brier"]).rename_axis("metric").reset_index()
    results = frame.melt("metric", var_name="rate").assign(model="m", dataset="d", estimator="c_bald")
    assert bold(tables.dropout_grid_search(results, *own_labels(results))) == [[False] * 4, [True] * 4, [False] * 4]


# ---- results made here


def results(models=("m",), names=("seq_avg", "seq_joint")):
    rows = []
    for model in models:
        rows.append((model, "", "acc", 0.5))
        for place, name in enumerate(names):
            rows += [(model, name, metric, 0.1 + place / 100) for metric in ("ece", "mce", "brier", "auroc")]
    return pd.DataFrame(rows, columns=["model", "estimator", "metric", "value"]).assign(dataset="d", reason="")


def bold(table):
    """Of the last label and the cells of each row."""
    labels = [key[-1] for key in table.cells.index]
    return [
        [isinstance(label, Cell) and label.bold, *(cell.bold for cell in row)]
        for label, row in zip(labels, table.cells.to_numpy(), strict=True)
    ]


def test_bold_goes_by_the_unrounded_value():
    frame = results(names=("seq_avg", "seq_joint", "ans_avg"))
    frame.loc[frame.metric == "ece", "value"] = [0.0530004, 0.0530001, 0.0530002]
    table = tables.result_estimation(frame, *own_labels(frame))
    assert bold(table) == [[False] * 4 + [True] + [False] * 3]
    assert table.latex.count("0.053") == 3 and table.latex.count(r"\textbf{0.053}") == 1
    frame.loc[frame.metric == "ece", "value"] = 0.05  # equal to the last bit: all of them
    assert sum(bold(tables.result_estimation(frame, *own_labels(frame)))[0]) == 3


def test_what_is_missing_says_why():
    frame = results(models=("x", "y"))
    frame["value"] = frame["value"].astype("Float64")
    lost = (frame.model == "x") & (frame.metric == "mce")
    frame.loc[lost, ["value", "reason"]] = [pd.NA, "one class only"]
    some = frame[~((frame.model == "y") & (frame.metric == "acc"))]
    table = tables.result_estimation(some, *own_labels(some), notes=["Demo models."])
    assert "nan" not in table.latex.lower() and "NA" not in table.latex
    assert table.latex.count("-- &") + table.latex.count(r"-- \\") == 3
    assert list(table.notes) == ["Demo models.", "--: one class only, not computed."]
    assert "one class only" in table._repr_html_()


def test_fewer_rows_are_said():
    """P(True) or c_BALD on some rows only: never beside the others without a word."""
    frame = results(names=("seq_avg", "c_bald", "p_true"))
    notes = tables.result_estimation(frame.assign(n=200), *own_labels(frame)).notes
    assert notes == ["n = 200 evaluation rows of each model and dataset."]
    uneven = frame.assign(n=frame.estimator.map({"c_bald": 50}).fillna(200).astype(int))
    notes = tables.result_estimation(uneven, {"m": "Mine"}, {"d": "Data"}).notes
    assert notes[1:] == ["c_BALD on Mine on Data: 50 of 200 rows."]


# ---- both languages


def test_words_of_others_are_escaped_in_both_languages():
    assert escape("50%\n#1 $ {} ~^\\") == r"50\% \#1 \$ \{\} \textasciitilde{}\textasciicircum{}\textbackslash{}"
    frame = results(models=("x", HOSTILE))
    table = tables.result_estimation(frame, *own_labels(frame), notes=["a < b & c"])
    assert "<c>" not in table._repr_html_() and "a &lt; b &amp; c" in table._repr_html_()
    assert r"a\_b \& \textless{}c\textgreater{}" in table.latex


def masses(*pairs):
    """Rows of `verification_statistics.option_mass`: (dataset, estimator, median, share below .5, rows)."""
    frame = pd.DataFrame(pairs, columns=["dataset", "estimator", "option_mass", "option_mass_low", "n"])
    return frame.melt(["dataset", "estimator", "n"], var_name="metric").assign(model="m", reason="")


def test_the_options_mass_stands_below_in_situ_verification():
    frame = masses(("d", "p_true_insitu", 0.95, 0.1, 100), ("e", "p_true_insitu", 0.4, 0.7, 300),
                   ("d", "p_true", 1.0, 0.0, 100), ("e", "p_true", 0.99, 0.0, 300))  # fmt: skip
    table = tables.insitu_ptrue(frame, {"m": "My-Model"}, {"d": "D", "e": "E"}, ["Mine."])
    in_situ, standard = (ESTIMATORS[name].plain for name in ("p_true_insitu", "p_true"))
    assert list(table.notes[-2:]) == [
        f"Probability of both options, {in_situ}: median 0.400 (My-Model on E) to 0.950; "
        "below .5 in 55.0% of 400 responses (at most 70.0%, My-Model on E).",
        f"Probability of both options, {standard}: median 0.990 (My-Model on E) to 1.000; "
        "below .5 in 0.0% of 400 responses.",
    ]
    one = tables.insitu_ptrue(masses(("d", "p_true", 0.3, 1.0, 7)), {"m": "My-Model"}, {"d": "D"})
    assert one.notes[-1].endswith("median 0.300; below .5 in 100.0% of 7 responses.")


def test_an_mce_of_next_to_no_rows_is_marked_on_screen_and_counted():
    scores = keyed(12, estimator=["seq_avg"] * 12, confidence=[0.95] * 8 + [0.15] * 4, correct=[True] * 12)
    labels = own_labels(scores)
    few = tables.result_estimation(metrics.evaluate(scores), *labels)
    assert few.notes[-1] == "MCE from a bin of fewer than 5 rows: 1 of 1 (* on screen)."
    assert "0.850<sup>*</sup>" in few._repr_html_() and "sup" not in few.tabular
    more = tables.result_estimation(metrics.evaluate(pd.concat([scores, scores.assign(example_id="x")])), *labels)
    assert "fewer than 5" not in " ".join(more.notes) and "<sup>" not in more._repr_html_()


def test_a_name_longer_than_a_line_breaks_at_its_hyphens():
    note = "Made on cpu: Small (someone/A-Name-That-Is-Longer-Than-A-Line-Can-Be@0123456789ab), in-situ"
    table = Table("l", pd.DataFrame([[Cell("b")]], columns=["a"]), [note])
    lines = [line.split(r"\textit{")[1].split("}}")[0] for line in table.latex.splitlines() if "textit" in line]
    assert all(line.endswith("-") for line in lines[:-1]) and "".join(lines).replace(" ", "") == note.replace(" ", "")
