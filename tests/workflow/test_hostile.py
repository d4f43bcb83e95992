"""Thirty hostile words as labels and titles: none runs, none loses a cell, none ends a run."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from types import SimpleNamespace

import nbformat
import pytest
from browser import _browse, chromium
from hostile import STRINGS
from test_report import HEAD_OF_SCRIPT, finding, row

from lib.paper import tables
from lib.paths import visible
from workflow.export import results
from workflow.report import page

SETTINGS = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "system_prompt": True}
WORDS = [visible(" ".join(text.split())) for text in STRINGS]


def settings():
    """A table whose head holds every one of them."""
    return tables.inference_settings([SimpleNamespace(label=text, **SETTINGS) for text in STRINGS], STRINGS)


def notebook():
    given = {"run": "mine", "title": " ".join(STRINGS)}
    return nbformat.v4.new_notebook(metadata={"papermill": {"parameters": given}})


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    rows = [row(f"{text}/d/x/ece", model=text, dataset=text, table="tab_inference_settings") for text in STRINGS]
    outputs = {
        "rep_findings": {
            "application/json": [
                finding(cases=text, predicate=text, name=f"f{i}", paper_said=text) for i, text in enumerate(STRINGS)
            ]
        },
        "rep_numbers": {"application/json": rows},
        "tab_inference_settings": settings()._repr_mimebundle_(),
        "tab_estimators": tables.estimators()._repr_mimebundle_(),
    }
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    path.write_text(page(notebook(), outputs), encoding="utf-8")
    return path


class Cells(HTMLParser):
    """The texts of a page's cells, and the names of its elements."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.names = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.names.append(tag)
        if tag in ("td", "th"):
            self.texts.append("")

    def handle_data(self, data):
        if self.texts:
            self.texts[-1] += data


def test_no_cell_is_lost_and_formulas_are_only_where_declared(report):
    text = report.read_text(encoding="utf-8")
    shown = [" ".join(cell.split()) for cell in Cells(text).texts]
    for word in WORDS:
        assert shown.count(word) >= 3, word  # in the table's head, and as model and dataset of a number
    declared = tables.estimators()._repr_html_().count("mathjax_process")
    assert declared > 5 and len(re.findall("<math ", text)) >= declared
    assert "<math" not in text.split('id="tab_inference_settings"')[1]


def test_the_page_has_one_script_and_its_policy_names_it(report):
    text = report.read_text(encoding="utf-8")
    names = Cells(text).names
    assert names.count("script") == 1 and not {"svg", "object", "iframe"} & set(names)
    assert names.count("img") == 0 and HEAD_OF_SCRIPT in text
    assert "script-src 'sha256-" in text and "script-src 'unsafe-inline'" not in text


@pytest.mark.slow
@pytest.mark.skipif(chromium is None, reason="no chromium on this machine")
def test_nothing_runs_in_a_browser_but_the_page_s_own_script(report):
    own = _browse(f"{report.as_uri()}#f3", "--dump-dom")
    assert 'class="ran"' not in own.stdout and "CONSOLE" not in own.stderr
    text = report.read_text(encoding="utf-8")
    smuggled = report.with_name("smuggled.html")
    smuggled.write_text(text.replace("</main>", f"</main>{STRINGS[0]}{STRINGS[5]}"), encoding="utf-8")
    refused = _browse(smuggled.as_uri(), "--dump-dom")
    assert 'class="ran"' not in refused.stdout and "Content Security Policy" in refused.stderr


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not on this machine")
def test_latex_sets_them(tmp_path):
    table = settings()
    files = {"tab_inference_settings.tex": table.latex.encode()}
    (tmp_path / "tab_inference_settings.tex").write_text(table.latex, encoding="utf-8")
    (tmp_path / "results.tex").write_text(results(notebook(), files), encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-no-shell-escape", "results.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert (tmp_path / "results.pdf").exists(), done.stdout[-2000:]
    assert not list(tmp_path.rglob("ran")) and "root:" not in done.stdout
