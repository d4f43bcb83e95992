"""The report from outputs made by hand: links, counts, what a run lacks; and that hostile words stay words, in the page
and in LaTeX."""

import base64
import hashlib
import re
import shutil
import subprocess
from types import SimpleNamespace

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from cases import STRINGS

from lib.paper import tables, verdicts
from lib.paper.booktabs import ReportRecords
from lib.paper.verdicts import CLAIMS, Verdict
from lib.paths import show_hidden
from workflow import cli
from workflow.export import results_document
from workflow.report import report_page


def finding(**changed):
    rows = {"columns": ["model", "ece"], "data": [["<m>", 0.12345], ["m", None]]}
    claim = dict(name="One", group="Finding 1", counted="the ECE is low")
    told = dict(quote="as it says", quantifier="all", place="tab_result_estimation", paper="holds")
    return claim | told | dict(paper_said="1 of 2 pairs", paper_rows=rows) | changed


def row(key="m/d/seq_avg/ece", **changed):
    cell = dict(table="tab_result_estimation", key=key, model="m", dataset="d", estimator="Seq Avg", metric="ece")
    absent = dict.fromkeys(("low", "high", "value_paper", "low_paper", "high_paper", "difference"))
    return cell | absent | dict(variant="", value=0.1, verdict="inside") | changed


def made(**outputs):
    data = {name: {"application/json": one} for name, one in outputs.items()}
    return report_page({}, {"tab_result_estimation": {"text/html": "<table></table>"}} | data)


def test_a_number_is_rounded_once():
    """.13246 is .132 in every table, and would be .133 after a detour over four decimals."""
    shown = ReportRecords(pd.DataFrame({"value": [0.13246]}), pd.DataFrame())._repr_json_()
    claim = CLAIMS[0]
    verdict = Verdict(claim, True, rows=pd.DataFrame({"ece": [0.13246], "agrees": [True]}))
    (record,) = verdicts.list_claims({claim.name: verdict}).records.paper_rows
    text = made(rep_findings=[finding(paper_rows=record)], rep_numbers=[row(value=shown[0]["value"])])
    assert text.count(">0.132<") == 2 and "0.133" not in text
    assert ">yes<" in text and "True" not in text


def test_no_headline_counts_what_cannot_be_compared():
    foreign = [row(f"m/{i}", verdict="not comparable: another model") for i in range(7)]
    both = made(rep_findings=[finding()], rep_numbers=[*foreign, row()])
    assert "<b>1 of 1</b>" in both and "not comparable" not in both[: both.index('id="findings"')]
    assert "<th>verdict</th>" in both and "8 numbers, compared with the paper" in both
    other = made(rep_findings=[finding()], rep_numbers=[row(verdict="not comparable: other questions")])
    assert "This run is not the paper's (other questions)" in other


@pytest.mark.parametrize("words", ["demo", "small", "paper", "pilot", "replay", "replay small", "published"])
def test_the_command_at_the_foot_makes_this_run(words):
    """As the command line reads it: it is the one that names the run so. A run by hand has none."""
    run = cli.parse_and_check(words.split()).run
    (printed,) = re.findall(r"<code>\./run_all\.sh ([^<]*)</code>", report_page({"run": run}, {}))
    assert cli.parse_and_check(printed.split()).run == run and f"artifacts/{run}/" in report_page({"run": run}, {})
    assert "run_all.sh" not in report_page({}, {}) and "run_all.sh" not in report_page({"run": "lab-2"}, {})


# ---- hostile words

WORDS = [show_hidden(" ".join(text.split())) for text in STRINGS]


def settings():
    """A table whose head holds every one of them."""
    sampling = dict(temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0, system_prompt=True)
    models = [SimpleNamespace(label=text, **sampling) for text in STRINGS]
    return tables.inference_settings(SimpleNamespace(settings=models, title=" ".join(STRINGS)))


def hostile_report() -> str:
    """A page of which every word may be hostile."""
    table, by_text = "tab_inference_settings", list(enumerate(STRINGS))
    turn = dict(finding="f", name="One", here="1 of 2", then="2 of 2")
    found = dict(
        rep_findings=[finding(counted=text, name=f"f{i}", paper_said=text) for i, text in by_text],
        rep_numbers=[row(f"{text}/d/x/ece", model=text, dataset=text, table=table) for text in STRINGS],
        rep_notes=[{"note": text} for text in STRINGS],
        rep_sensitivity=[turn | dict(choice=text, flips=bool(i % 2)) for i, text in by_text],
    )
    outputs = {name: {"application/json": data} for name, data in found.items()}
    shown = {table: settings(), "tab_estimators": tables.estimators()}
    outputs |= {name: {"text/html": one._repr_html_()} for name, one in shown.items()}
    return report_page({"run": "mine", "title": " ".join(STRINGS)}, outputs)


def test_no_word_is_lost_or_becomes_an_element_and_formulas_are_only_where_declared():
    text = hostile_report()
    soup = BeautifulSoup(text, "html.parser")
    shown = [" ".join(cell.get_text().split()) for cell in soup.find_all(["td", "th"])]
    for word in WORDS:
        assert shown.count(word) >= 3, word  # in the table's head, and as model and dataset of a number
    assert len(soup.find_all("script")) == 1 and not soup.find_all(["svg", "object", "iframe", "img"])
    assert 'addEventListener("hashchange", unfold)' in text, "the page's own script"
    own = base64.b64encode(hashlib.sha256(soup.script.string.encode()).digest()).decode()
    assert f"; script-src 'sha256-{own}'\">" in text, "the template states the checksum of its script"
    before, _, settings_and_more = text.partition('<article id="tab_inference_settings"')
    assert before.count("<math ") == 8 and settings_and_more.count("<math ") == 3, "definitions; Top-p and the like"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not on this machine")
def test_latex_sets_them(tmp_path):
    latex = settings().latex
    (tmp_path / "tab_inference_settings.tex").write_text(latex, encoding="utf-8")
    document = results_document(" ".join(STRINGS), {"tab_inference_settings.tex": latex.encode()})
    (tmp_path / "results.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-no-shell-escape", "results.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert (tmp_path / "results.pdf").exists(), done.stdout[-2000:]
    assert not list(tmp_path.rglob("ran")) and "root:" not in done.stdout
