"""LaTeX of tables: text that stays text, and the same on a page."""

import shutil
import subprocess

import pandas as pd
import pytest

from lib.paper.booktabs import Table, as_html, escape
from lib.paper.report_records import ReportRecords
from workflow.output.paper_files import results_document
from workflow.run import typeset

TEXT = r"a_b & <c> 100% #1 $x$ {y} \z ~ ^ |"
LATEX = (
    r"a\_b \& \textless{}c\textgreater{} 100\% \#1 \$x\$ \{y\} "
    r"\textbackslash{}z \textasciitilde{} \textasciicircum{} \textbar{}"
)
HTML = r"a_b &amp; &lt;c&gt; 100% #1 $x$ {y} \z ~ ^ |"


def test_text_stays_text_in_latex_and_on_a_page():
    assert escape(TEXT) == LATEX
    assert as_html(LATEX) == HTML


def test_a_line_break_in_a_text_is_a_blank():
    assert escape("50%\n#1 $ {} ~^\\") == (
        r"50\% \#1 \$ \{\} \textasciitilde{}\textasciicircum{}\textbackslash{}"
    )


@pytest.mark.parametrize(
    "latex, html",
    [
        (r"\scoreci{.104}{.058}{.154}", ".104 [.058, .154]"),
        (r"\bestcalci{0.1}{0.0}{0.2}{+66\%}", "<b>0.1 [0.0, 0.2] (66% lower)</b>"),
        (r"0.7 (-82\%)", "0.7 (82% higher)"),
        (r"$\bm{-.209}$", "<b>-.209</b>"),
        (r"$(0.61,-1.20)$", "(0.61,-1.20)"),
        (r"\textsc{Seq Avg}", "Seq Avg"),
        (r"\textasciitilde{}\textbf\{x\}", r"~\textbf{x}"),
    ],
)
def test_a_cell_on_a_page(latex, html):
    assert as_html(latex) == html


def test_a_formula_is_mathml_without_the_papers_macros():
    half = "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></mfrac>"
    answer = '<mrow><mi mathvariant="bold-italic">y</mi></mrow><mrow><mtext>ans</mtext></mrow>'
    formula = (
        '<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">'
        f"<mrow>{half}<msup>{answer}</msup></mrow></math>"
    )
    latex = r"\textbf{In-situ $\frac{1}{2}\yans$ \& \textsc{more}}"
    assert as_html(latex) == f"<b>In-situ {formula} &amp; more</b>"


def test_records_for_the_report_are_not_printed_in_a_notebook():
    """Which prints the frame for its reader, as text and on a page."""
    both = ReportRecords(pd.DataFrame({"x": ["of the report"]}), pd.DataFrame({"x": ["to read"]}))
    for text in repr(both), both._repr_html_():
        assert "to read" in text and "of the report" not in text
    assert both._repr_json_() == [{"x": "of the report"}]


# ---- tables of several pages


def table_of_models(models, title="many models"):
    """A table of two parts, with three rows a model."""
    names = [f"Model {number}" for number in range(models)]
    index = pd.MultiIndex.from_product([names, ["easy", "medium", "hard"]], names=["Model", "Set"])
    cells = pd.DataFrame({"ECE": ".123", "Brier": ".045", "AUROC": ".678"}, index)
    return Table(cells, {"Errors": "ll|cc", "Ranks": "ll|c"}, title=title)


def test_a_table_of_a_page_is_a_tabular_and_a_longer_one_runs_over_pages():
    """Its head stands on each page; its rows and its title occur once in each part."""
    assert "longtable" not in table_of_models(33).latex
    latex = table_of_models(60).latex
    assert latex.count(r"\begin{longtable}") == 2
    assert r"\begin{tabular}" not in latex
    assert "longtable}" in latex.splitlines()[0], "the packages"
    for part in latex.split(r"\begin{longtable}")[1:]:
        assert part.count("{Model 59}") == 1
        assert part.count("Model & Set") == 2, "on the first page, and on each other"
    assert latex.count(r"\textit{many models}") == 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_a_long_table_compiles(tmp_path):
    latex = table_of_models(60).latex
    document = results_document("x", {"tab_selective.tex": latex.encode()})
    (tmp_path / "tab_selective.tex").write_text(latex)
    (tmp_path / "results.tex").write_text(document)
    assert typeset(tmp_path) == "", (tmp_path / "results.log").read_text()[-2000:]
    words = subprocess.check_output(["pdftotext", tmp_path / "results.pdf", "-"], text=True)
    assert words.count("Model 59") == 2
    assert words.count("\f") > 2, "pages"
