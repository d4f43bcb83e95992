"""The report from outputs made by hand: links, counts, what a run lacks; and that hostile words
stay words, in the page and in LaTeX."""

import base64
import hashlib
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from cases import STRINGS

from lib.errors import show_hidden
from lib.paper import tables
from workflow.output.paper_files import results_document
from workflow.output.report import report_page


def finding(**changed):
    rows = {"columns": ["model", "ece"], "data": [["<m>", 0.12345], ["m", None]]}
    claim = {
        "name": "One",
        "group": "Finding 1",
        "counted": "the ECE is low",
        "quote": "as it says",
        "quantifier": "all",
    }
    verdict = {
        "place": "tab_result_estimation",
        "paper": "holds",
        "paper_said": "1 pair agrees",
        "paper_rows": rows,
    }
    verdict["paper_open"] = ""
    return claim | verdict | changed


def row(key="m/d/seq_avg/ece", **changed):
    cell = {
        "table": "tab_result_estimation",
        "key": key,
        "model": "m",
        "dataset": "d",
        "estimator": "Seq Avg",
        "metric": "ece",
    }
    absent = dict.fromkeys(("low", "high", "value_paper", "low_paper", "high_paper", "difference"))
    return cell | absent | {"variant": "", "value": 0.13246, "verdict": "inside"} | changed


NUMBERS = (
    '<span data-key="m/d/seq_avg/ece">0.132 [.1, .2]</span>, <span data-key="of no row">0.5</span>'
)


def page_of(parameters=None, **outputs):
    """The page of tables as HTML and of records, by their names."""
    content = {}
    for name, data in ({"tab_result_estimation": NUMBERS} | outputs).items():
        kind = "text/html" if isinstance(data, str) else "application/json"
        content[name] = {kind: data}
    return report_page(parameters or {}, content)


def test_no_headline_counts_what_cannot_be_compared():
    foreign = [row(f"m/{i}", verdict="not comparable: another model") for i in range(7)]
    both = page_of(rep_findings=[finding()], rep_numbers=[*foreign, row(calibrated=True)])
    assert '_seq_avg_ece">0.132° [.1,&nbsp;.2]</a>, 0.5' in both, "a link to its row, marked"
    assert "<b>1 of 1</b>" in both
    assert "not comparable" not in both[: both.index('id="findings"')]
    assert "<th>verdict</th>" in both
    assert "8 numbers, compared with the paper" in both
    assert both.count(">0.132<") == 8
    foreign = row(verdict="not comparable: other questions")
    other = page_of(rep_findings=[finding()], rep_numbers=[foreign])
    assert "This run is not the paper's (other questions)" in other
    assert "run_all.sh" not in other, "no command makes a run by hand"


# ---- hostile words

SETTINGS = "tab_inference_settings"


def settings():
    """A table whose head holds every one of them."""
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "system_prompt": True}
    models = [SimpleNamespace(label=text, **sampling) for text in STRINGS]
    return tables.inference_settings(SimpleNamespace(settings=models, title=" ".join(STRINGS)))


def test_no_word_is_lost_or_becomes_an_element_and_formulas_are_only_where_declared():
    """In a page of which every word may be hostile."""
    turn = {"finding": "f", "name": "One", "here": "1 of 2", "then": "2 of 2"}
    findings, numbers, turns = [], [], []
    for i, word in enumerate(STRINGS):
        findings.append(finding(counted=word, name=f"f{i}", paper_said=word))
        numbers.append(row(f"{word}/d/x/ece", model=word, dataset=word, table=SETTINGS))
        turns.append(turn | {"choice": word, "flips": bool(i % 2)})
    page = page_of(
        {"run": "mine", "title": " ".join(STRINGS)},
        tab_inference_settings=settings()._repr_html_(),
        tab_estimators=tables.estimators()._repr_html_(),
        rep_findings=findings,
        rep_numbers=numbers,
        rep_notes=[{"note": word} for word in STRINGS],
        rep_sensitivity=turns,
    )
    soup = BeautifulSoup(page, "html.parser")
    cells = [" ".join(cell.get_text().split()) for cell in soup.find_all(["td", "th"])]
    for word in STRINGS:
        plain = show_hidden(" ".join(word.split()))
        assert cells.count(plain) >= 3, "in a head, and as model and dataset of a number"
    assert len(soup.find_all("script")) == 1
    assert not soup.find_all(["svg", "object", "iframe", "img"])
    checksum = hashlib.sha256(soup.script.string.encode()).digest()
    stated = f"; script-src 'sha256-{base64.b64encode(checksum).decode()}'\">"
    assert stated in page, "the template states the checksum of its script"
    before, _, settings_and_more = page.partition(f'<article id="{SETTINGS}"')
    assert before.count("<math ") == 8, "definitions"
    assert settings_and_more.count("<math ") == 3, "Top-p and the like"


def test_the_document_of_all_results_is_lines_of_latex():
    """Each ends, the last one, too."""
    document = results_document("A title", {})
    assert "A title" in document and document.endswith("\\end{document}\n")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not on this machine")
def test_latex_sets_them(tmp_path):
    latex = settings().latex
    (tmp_path / f"{SETTINGS}.tex").write_text(latex, encoding="utf-8")
    document = results_document(" ".join(STRINGS), {f"{SETTINGS}.tex": latex.encode()})
    (tmp_path / "results.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-no-shell-escape", "results.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert (tmp_path / "results.pdf").exists(), done.stdout[-2000:]
    assert not list(tmp_path.rglob("ran")) and "root:" not in done.stdout
