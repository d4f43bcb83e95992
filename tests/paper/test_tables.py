"""Tables made here: bold cells, missing ones, both languages; and the paper's macros, where its LaTeX is at hand."""

import html
import re

import pandas as pd
import pytest
from latex import PAPER, paper
from synthetic import results_of

from lib.paper import tables
from lib.paper.booktabs import DEFINITIONS, as_html, escape
from lib.paper.numbers_of_paper import published
from lib.paper.report_contents import TABLES

HOSTILE = r"a_b & <c> 100% #1 $x$ {y} \z ~ ^ | "


# ---- against the paper, where test_published.py does not look


@paper
def test_commands_and_macros_are_the_papers():
    text = re.sub(r"%\n|\n|  +", "", PAPER.read_text(encoding="utf-8"))
    for one in DEFINITIONS:
        assert one[0].replace("provide", "new").removesuffix("%") in text
    assert len(DEFINITIONS) == 9


# ---- results made here


def results(models=("m",), names=("seq_avg", "seq_joint")):
    rows = []
    for model in models:
        rows.append((model, "", "acc", 0.5))
        for place, name in enumerate(names):
            rows += [(model, name, metric, 0.1 + place / 100) for metric in ("ece", "mce", "brier", "auroc")]
    return pd.DataFrame(rows, columns=["model", "estimator", "metric", "value"]).assign(dataset="d", reason="")


def bold(table):
    """The positions of the bold cells."""
    return [(i, j) for i, row in enumerate(table.cells.to_numpy()) for j, cell in enumerate(row) if "textbf" in cell]


def test_bold_goes_by_the_unrounded_value():
    frame = results(names=("seq_avg", "seq_joint", "ans_avg"))
    frame.loc[frame.metric == "ece", "value"] = [0.0530004, 0.0530001, 0.0530002]
    table = tables.result_estimation(results_of(result_estimation=frame))
    assert bold(table) == [(0, 3)]
    assert table.latex.count("0.053") == 3 and table.latex.count(r"\textbf{0.053}") == 1
    frame.loc[frame.metric == "ece", "value"] = 0.05  # equal to the last bit: all of them
    assert bold(tables.result_estimation(results_of(result_estimation=frame))) == [(0, 1), (0, 3), (0, 5)]


def test_what_is_missing_is_a_dash():
    frame = results(models=("x", "y"))
    frame["value"] = frame["value"].astype("Float64")
    frame.loc[(frame.model == "x") & (frame.metric == "mce"), "value"] = pd.NA
    some = results_of(result_estimation=frame[~((frame.model == "y") & (frame.metric == "acc"))])
    latex = tables.result_estimation(some).latex
    assert "nan" not in latex.lower() and "NA" not in latex
    assert latex.count("-- &") + latex.count(r"-- \\") == 3
    assert latex.count(r"\textit{") == 1 and r"\multicolumn{7}{l}{\textit{Demo models.}} \\" in latex


# ---- what is printed is what is compared


@pytest.mark.parametrize("name", TABLES)
def test_every_number_of_a_table_is_the_one_in_its_cell(name):
    """Read back from the LaTeX, to its last digit; and its key is where the report looks for a link."""
    table = TABLES[name](published())
    shown = table.cells.to_numpy()
    page = table._repr_html_()
    for one in table.numbers.itertuples():
        printed = re.findall(r"[+-]?\d*\.\d+|--", shown[one.row][one.column])
        assert any(abs(float(text) - one.value) < 0.0051 for text in printed if text != "--"), one
        assert f'data-key="{one.key}"' in page or one.metric == "b"  # the second parameter of a cell
    assert table.latex.count("0.") == 0 or len(table.numbers) or name in ("tab_estimators", "tab_inference_settings")


# ---- both languages


def test_words_of_others_are_escaped_in_both_languages():
    assert as_html(escape(HOSTILE)) == html.escape(HOSTILE.strip())
    table = tables.result_estimation(results_of(result_estimation=results(models=("x", HOSTILE))))
    assert "<c>" not in table._repr_html_() and html.escape(HOSTILE.strip()) in table._repr_html_()
    assert r"a\_b \& \textless{}c\textgreater{}" in table.latex


def test_formulas_are_mathml_without_the_papers_macros():
    page = as_html(r"\textbf{In-situ $\frac{1}{2}\yans$ \& \textsc{more}}")
    assert page.startswith("<b>In-situ <math") and page.endswith("</math> &amp; more</b>")
    assert "<mfrac>" in page and "yans" not in page and "bm" not in page
