"""The page of a user's model: which run gets it, what it shows first, and that it escapes what is
written by users."""

import json
from dataclasses import replace

import pytest
from browser import check_links
from bs4 import BeautifulSoup

from lib import params
from lib.analysis.model_answers import ModelAnswer, answer_for_pairs
from lib.analysis.signals import load_signals
from lib.paper.explorer import policy_hash
from lib.params import EvaluationChoices, SelectivePrediction
from lib.paths import ROOT
from lib.run_names import shows_paper
from lib.score.selective import selective_thresholds
from workflow.engine.jobs_of_run import Run
from workflow.output import model_report

VALUES = params.load_profile("try").model_dump(mode="json") | {"datasets": ["demo-hard"]}
RUN = Run("mine", VALUES, profile="try", words="try --models tiny-llama --name mine")
OUTPUTS = {
    "rep_notes": {"application/json": [{"note": "<b>a note</b>"}]},
    "rep_findings": {"application/json": [
        {"group": "Finding 1", "quote": "a quote", "counted": "what", "quantifier": "all",
         "here": "holds", "here_said": "1 of 1"}]},
    "tab_result_estimation": {"text/html": "<table class='dataframe'></table>"},
    "fig_costs": {"image/png": "AAAA"},
}  # fmt: skip


@pytest.fixture(scope="module")
def answers():
    signals = load_signals("shipped", ["tiny-llama"], ["demo-hard"], EvaluationChoices())
    thresholds = selective_thresholds(signals.confidence, [0.8], 0.9, 0)
    return answer_for_pairs(signals, thresholds, SelectivePrediction(resamples=200))


def page_of(tmp_path, answers, run=RUN, outputs=OUTPUTS):
    path = tmp_path / "report.html"
    path.write_text(model_report.model_report_page(run, answers, outputs))
    return path, BeautifulSoup(path.read_text(), "html.parser")


def test_the_answer_comes_first_and_the_paper_last(answers, tmp_path):
    path, page = page_of(tmp_path, answers)
    check_links(path)
    heads = [head.text for head in page.find_all(["h1", "h2"])]
    assert heads == [
        "Tiny-Llama: which confidence, and how good",
        "Tiny-Llama on Demo-Hard",
        "Tables and figures",
        "The paper",
    ]
    topics = [topic.text for topic in page.select(".answer li b")]
    assert topics == ["Right.", "Ranking.", "Raw scores.", "Calibrated.", "When to answer."]
    assert "artifacts/mine/calibrators/tiny-llama__demo-hard__" in page.select_one("pre").text
    assert "./run_all.sh try --models tiny-llama --name mine" in page.footer.text
    assert not page.select(".warning")
    (claims,) = page.select("#claims ~ details")
    assert "open" not in claims.attrs and "a quote" in claims.text
    assert "open" in page.select_one("#tab_result_estimation").attrs
    assert "<b>a note</b>" in page.text, "what users write is text"


def test_a_report_is_of_what_its_run_exported(answers, monkeypatch, tmp_path):
    folders = []

    def read_exported(folder):
        folders.append(folder)
        return {}, OUTPUTS

    monkeypatch.setattr(model_report, "read_exported", read_exported)
    monkeypatch.setattr(model_report, "list_answers", lambda run: answers)
    model_report.write_model_report(RUN, tmp_path / "written.html")
    assert folders == [ROOT / "artifacts" / "mine" / "exported"]
    path, _ = page_of(tmp_path, answers)
    assert (tmp_path / "written.html").read_text() == path.read_text()


@pytest.mark.parametrize("evaluated, words", [
    (100, "A larger `limit` than 100 in params/try.yaml asks more of these questions, if there"),
    (60, "All questions were asked. ./run_all.sh try --models tiny-llama --datasets mine.csv asks"),
])  # fmt: skip
def test_a_red_line_says_what_lacks_and_what_helps(tmp_path, evaluated, words):
    answer = ModelAnswer(
        pair=("tiny-llama", "demo-hard"),
        choosing=33,
        calibrating=100,
        evaluated=evaluated,
        right=0,
        unread=0,
        shortage="fewer than 10 right answers (0)",
        has_calibrator=False,
    )
    _, page = page_of(tmp_path, [answer])
    (line,) = page.select(".warning")
    assert line.text.startswith("Nothing can be concluded: fewer than 10 right answers (0). ")
    assert words in line.text
    assert not page.select("pre") and not page.select(".answer img")


def test_names_of_users_are_text(answers, tmp_path, monkeypatch):
    labels = {"tiny-llama": "<script>x</script>", "demo-hard": "<i>Hard</i>"}
    monkeypatch.setattr(model_report, "labels_by_name", lambda kind, names: labels)
    _, page = page_of(tmp_path, answers, replace(RUN, words="try --name <b>x</b>"))
    assert not page.find_all(["script", "i"]) and "<script>x</script>" in page.h1.text


def test_a_reader_can_choose_a_score_where_the_run_exports_them(answers, tmp_path):
    pair = {"label": "</script>", "right": "1", "responses": []}
    data = {"bins": 10, "most_bins": 50, "first": 0, "pairs": [pair | {"scores": []}]}
    explored = OUTPUTS | {"rep_explorer": {"application/json": data}}
    _, page = page_of(tmp_path, answers, outputs=explored)
    shown, script = page.find_all("script")
    assert json.loads(shown.string) == data
    policy = page.find("meta", {"http-equiv": "Content-Security-Policy"})["content"]
    assert policy.endswith(f"; script-src {policy_hash(script.string)}")


@pytest.mark.parametrize("name, is_of_paper", [
    ("demo", True), ("small", True), ("paper", True), ("pilot", True), ("replay", True),
    ("replay-small", True), ("published", True), ("try", False), ("mine", False),
])  # fmt: skip
def test_the_paper_keeps_its_report(name, is_of_paper):
    assert shows_paper(name) == is_of_paper
    run = Run(name, params.load_profile("demo").model_dump(mode="json"))
    pages = [row.name for row in run.notebooks if row.module]
    assert pages == ["report" if is_of_paper else "report_of_model"]
