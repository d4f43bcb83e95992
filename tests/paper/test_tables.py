"""Tables made here: bold cells, notes and escaping; and the paper's macros, where its LaTeX is at hand."""

import re

import pandas as pd
from latex import PAPER, paper
from synthetic import own_labels

from lib.paper import tables
from lib.paper.booktabs import Cell
from lib.paper.exhibits import captions
from lib.paper.latex import COMMANDS, MACROS, escape
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


@paper
def test_captions_are_in_the_order_of_the_paper():
    lines = [line for line in PAPER.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("%")]
    floats = re.findall(r"\\label\{(tab|fig):(\w+)\}", "\n".join(lines))
    assert list(captions())[: len(floats)] == ["_".join(label) for label in floats]


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
