"""LaTeX of tables: text that stays text, and the same on a page."""

import pandas as pd
import pytest

from lib.paper.booktabs import ReportRecords, as_html, escape

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
