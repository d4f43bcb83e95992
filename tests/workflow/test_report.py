"""The report from outputs made by hand: escaping, links, what a run lacks."""

import base64

import nbformat
import pytest
from browser import check_links

from lib.paper.latex import mathjax
from workflow.report import anchor, linked, number, page

HEAD_OF_SCRIPT = "addEventListener(\"hashchange\", unfold)"
HOSTILE = '<script>alert("x")</script> & more'


def finding(**changed):
    rows = {"columns": ["model", "ece"], "data": [[HOSTILE, 0.12345], ["m", None]]}
    return {"name": "One", "group": "Finding 1", "kind": "claim", "statement": f"A finding {HOSTILE}",
            "quote": "as it says", "word": "all", "place": "tab_result_estimation", "paper": "holds",
            "paper_said": "1 of 2 pairs", "paper_rows": rows} | changed  # fmt: skip


def row(key="m/d/seq_avg/ece", **changed):
    return {"table": "tab_result_estimation", "key": key, "model": HOSTILE, "dataset": "d", "estimator": "Seq Avg",
            "metric": "ece", "variant": "", "value": 0.1, "low": None, "high": None, "value_paper": None,
            "low_paper": None, "high_paper": None, "difference": None, "verdict": "inside"} | changed  # fmt: skip


def made(**outputs):
    nb = nbformat.v4.new_notebook(metadata={"papermill": {"parameters": {"run": "mine", "title": HOSTILE}}})
    data = {name: one if isinstance(one, dict) else {"application/json": one} for name, one in outputs.items()}
    return page(nb, data)


CELLS = '<td data-key="m/d/seq_avg/ece" style="x">0.100</td><td data-key="no">1</td>'
TABLE = {"text/html": f"<table><tr>{CELLS}</tr></table>"}


def test_what_a_user_wrote_is_text():
    text = made(rep_findings=[finding()], rep_numbers=[row()], tab_result_estimation=TABLE)
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text and text.count("<script>") == 1


def test_a_cell_leads_to_its_row_and_a_finding_to_its_table():
    text = made(rep_findings=[finding()], rep_numbers=[row()], tab_result_estimation=TABLE)
    target = anchor("tab_result_estimation", "m/d/seq_avg/ece")
    assert f'<td style="x"><a href="#{target}">0.100</a></td><td>1</td>' in text and f'<tr id="{target}">' in text
    assert '(<a href="#tab_result_estimation">table</a>)' in text
    assert "0.123" in text and "0.12345" not in text


def test_numbers_say_whether_rounding_moves_them():
    rows = [row(moves="stands"), row("m/d/ans_avg/ece", moves="3 of 10, by 0.2")]
    text = made(rep_findings=[finding()], rep_numbers=rows, tab_result_estimation=TABLE)
    assert "<th>moves under rounding</th>" in text and "<td>stands</td>" in text and "<td>3 of 10, by 0.2</td>" in text
    assert "<b>1 of 2</b> numbers move under rounding" in text
    untried = made(rep_findings=[finding()], rep_numbers=[row(moves=None)], tab_result_estimation=TABLE)
    assert "rounding" not in untried


def test_what_is_not_there_is_not_linked():
    text = made(rep_findings=[finding(place="fig_main_analysis")])
    assert "#fig_main_analysis" not in text and "sensitivity" not in text.lower().replace("#sensitivity", "")
    assert "this run" not in text, "the paper alone has no second side"
    with pytest.raises(AssertionError):
        check_links('<a href="#nowhere">x</a>' * 60)


def test_it_opens_with_the_four_findings_and_counts_claims_alone():
    rows = [finding(name="A"), finding(name="B", paper="does not hold"),
            finding(name="C", paper="cannot be judged here"), finding(name="D", kind="consistency"),
            finding(name="E", kind="ours"),
            finding(name="F", group="Appendix")]  # fmt: skip
    text = made(rep_findings=rows)
    assert "<b>2 of 3</b>" in text and "1 more cannot be judged" in text, "neither consistency nor what is ours"
    opening = text[text.index('id="findings"') : text.index('id="finding_1"')]
    assert "1 of 2 claims hold" in opening and "Calibrated confidence arises" in opening
    parts = ("finding_1", "A", "appendix", "F", "consistency", "D", "ours", "E")
    order = [text.index(f'id="{part}"') for part in parts]
    assert order == sorted(order) and "chal-363" in text[text.index('id="twice"') :]
    assert "&ldquo;as it says&rdquo;" in text and "at least three quarters" in opening


def test_figures_are_on_the_page():
    picture = base64.b64encode(b"\x89PNG").decode()
    text = made(rep_findings=[finding()], fig_main_analysis={"image/png": picture + "\n"})
    assert f'src="data:image/png;base64,{picture}"' in text


def test_formulas_become_mathml():
    """In those cells that declare them, and nowhere else."""
    assert "<math" in linked("t", f"<td>{mathjax('$x_{<i}$')}</td>", set())
    assert linked("t", "<td>$x$ and $y$</td>", set()) == "<td>$x$ and $y$</td>"
    assert linked("t", "<td>no formula, 5$</td>", set()) == "<td>no formula, 5$</td>"


def test_numbers():
    assert [number(x) for x in (0.12349, 3, True, None, "x")] == ["0.123", "3", "True", "", "x"]
