"""The report from outputs made by hand: escaping, links, what a run lacks."""

import re

import nbformat
import pandas as pd

from lib.paper import comparison
from lib.paper.claims import CLAIMS
from lib.paper.comparison import Listing
from lib.paper.verdicts import Verdict
from workflow.report import anchor, number, page

HEAD_OF_SCRIPT = 'addEventListener("hashchange", unfold)'
HOSTILE = '<script>alert("x")</script> & more'


def finding(**changed):
    rows = {"columns": ["model", "ece"], "data": [[HOSTILE, 0.12345], ["m", None]]}
    return {
        "name": "One",
        "group": "Finding 1",
        "kind": "claim",
        "cases": f"Cases of {HOSTILE}",
        "predicate": "ece < 1",
        "where": "",
        "quote": "as it says",
        "quantifier": "all",
        "place": "tab_result_estimation",
        "paper": "holds",
        "paper_said": "1 of 2 pairs",
        "paper_rows": rows,
    } | changed


def row(key="m/d/seq_avg/ece", **changed):
    return {
        "table": "tab_result_estimation",
        "key": key,
        "model": HOSTILE,
        "dataset": "d",
        "estimator": "Seq Avg",
        "metric": "ece",
        "variant": "",
        "value": 0.1,
        "low": None,
        "high": None,
        "value_paper": None,
        "low_paper": None,
        "high_paper": None,
        "difference": None,
        "verdict": "inside",
    } | changed


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


def test_a_number_is_rounded_once():
    """.13246 is .132 in every table, and would be .133 after a detour over four decimals."""
    shown = Listing(pd.DataFrame({"value": [0.13246]}), pd.DataFrame())._repr_mimebundle_()["application/json"]
    claim = CLAIMS[0]
    verdict = Verdict(claim, True, rows=pd.DataFrame({"ece": [0.13246], "agrees": [True]}))
    (record,) = comparison.findings({claim.name: verdict}).records.paper_rows
    text = made(rep_findings=[finding(paper_rows=record)])
    assert number(shown[0]["value"]) == "0.132" and ">0.132<" in text and "0.133" not in text
    assert ">yes<" in text and "True" not in text


def test_no_headline_counts_what_cannot_be_compared():
    foreign = [row(f"m/{i}", verdict="not comparable: another model") for i in range(7)]
    text = made(rep_findings=[finding()], rep_numbers=foreign, tab_result_estimation=TABLE)
    opening = text[: text.index('id="findings"')]
    assert "7" not in re.sub(r"<style>.*?</style>|sha256-\S*", "", opening, flags=re.S)
    assert "The models of this run are not" in opening
    assert "not comparable" not in text and "<th>verdict</th>" not in text and "7 numbers one by one" in text
    both = made(rep_findings=[finding()], rep_numbers=[*foreign, row()], tab_result_estimation=TABLE)
    opening = both[: both.index('id="findings"')]
    assert "<b>1 of 1</b>" in opening and "not comparable" not in opening and "are not the paper" not in opening
    assert "<th>verdict</th>" in both and "8 numbers, compared with the paper" in both
    other = made(rep_findings=[finding()], rep_numbers=[row(verdict="not comparable: other questions")])
    assert "This run is not the paper's (other questions)" in other


def test_choices_are_named():
    turn = {"choice": "grader: exact", "words": "what counts as right (grader): exact, not numeric", "finding": "f",
            "name": "One", "here": "1 of 2", "then": "2 of 2", "flips": True}  # fmt: skip
    other = turn | {"words": HOSTILE, "choice": "x", "flips": False}
    text = made(rep_findings=[finding()], rep_sensitivity=[turn, other])
    assert "<td>what counts as right (grader): exact, not numeric</td>" in text and "<script>alert" not in text
    listed = text[text.index("the 2 choices") :]
    assert "exact, not numeric: 1 changed" in listed and "more: none changed" in listed
