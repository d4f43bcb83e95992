"""`./run_all.sh judge`: its words, the page, and whole runs on a user's own table."""

import base64
import json
import re

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from clone import ROOT, copy_of_project, counts, refusal, run

from lib.analysis import judged_scores as judging
from lib.analysis.answer_thresholds import judge_thresholds
from lib.calibrate.calibrator_files import name_file
from lib.calibrate.one_response import score_confidence
from lib.errors import UserError
from lib.paper import judged
from lib.paper.booktabs import TABLE_CAPTIONS
from lib.paper.judged_sentences import list_answers
from lib.params import TableJudgment
from lib.score.score_files import read_score_table
from lib.tasks.question_files import FILE_ENDINGS
from workflow import cli, judge
from workflow.engine.jobs_of_run import Run
from workflow.output.table_report import table_report_page

HOSTILE = json.loads((ROOT / "tests" / "hostile.json").read_text(encoding="utf-8"))
TABLE = "correct,stated\n" + "true,0.9\nfalse,0.6\ntrue,0.8\nfalse,0.7\n" * 20


def parse(*words):
    return cli.parse_and_check(["judge", *map(str, words)])


# ---- its words


def test_a_table_gives_the_run_its_name(tmp_path):
    for name, run_name in {
        "scores.csv": "scores",
        "May 2026.jsonl": "May-2026",
        "a.b.parquet": "a.b",
        "x.CSV.gz": "x",
    }.items():
        path = tmp_path / name
        path.write_text(TABLE)
        args = parse(path)
        assert (args.verb, args.name, args.table) == ("judge", run_name, str(path))
    assert parse(path, "--name", "mine").name == "mine"


@pytest.mark.parametrize(
    "file, words, message",
    [
        ("scores.csv", [], "judge takes a table of scores, as ./run_all.sh judge scores.csv"),
        ("scores.csv", ["--force", "10"], "judge takes a table of scores"),
        ("scores.csv", ["nowhere.csv"], "there is no file or folder 'nowhere.csv'"),
        ("scores.xlsx", ["scores.xlsx"], "a table of scores is a .csv, .tsv, .jsonl or .parquet"),
        ("scores.csv", ["."], "a table of scores is a .csv"),
        ("demo.csv", ["demo.csv"], "run 'demo': a profile, a verb"),
        ("judge.csv", ["judge.csv"], "run 'judge': a profile, a verb"),
        ("replay-x.csv", ["replay-x.csv"], "run 'replay-x'"),
        ("stale.csv", ["stale.csv"], "run 'stale'"),
        ("scores.csv", ["scores.csv", "more.csv"], "unrecognized arguments: more.csv"),
        ("scores.csv", ["scores.csv", "--models", "x"], "judge takes no --models"),
    ],
)
def test_wrong_words_are_one_line(tmp_path, monkeypatch, file, words, message):
    (tmp_path / file).write_text(TABLE)
    monkeypatch.setenv("CALLED_FROM", str(tmp_path))
    with pytest.raises(UserError) as refused:
        parse(*words)
    assert message in str(refused.value)


def test_the_command_line_knows_the_kinds_of_tables():
    assert set(cli.TABLE_ENDINGS) == set(FILE_ENDINGS)


def test_a_folder_of_a_run_of_models_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "ROOT", tmp_path)
    judge.check_folder("mine")
    notebooks = tmp_path / "artifacts" / "mine" / "notebooks"
    notebooks.mkdir(parents=True)
    (notebooks / "10_judge.ipynb").touch()
    judge.check_folder("mine")
    (notebooks / "08_tables.ipynb").touch()
    with pytest.raises(UserError, match="^artifacts/mine/ holds the results of a run of models"):
        judge.check_folder("mine")


def test_a_run_says_first_what_its_report_does(tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "ROOT", tmp_path)
    path = tmp_path / "artifacts" / "mine" / "exported" / "10_judge.json"
    path.parent.mkdir(parents=True)
    rows = [{"kind": "warning", "text": "Few."}, {"kind": "sentence", "text": "Many."}]
    path.write_text(json.dumps({"outputs": {"rep_answer": {"application/json": rows}}}))
    assert judge.answer_lines(Run("mine", {})) == ["Few.", "Many."]


# ---- the page


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A table whose columns are named by hostile words, and what 10_judge shows of it."""
    folder = tmp_path_factory.mktemp("hostile")
    names = [name for name in HOSTILE if name.strip()][::3]
    lines = []
    for row in range(24):
        line = {"correct": row % 3 > 0}
        for place, name in enumerate(names):
            line[name] = (row * (place + 3) % 24) / 24
        lines.append(json.dumps(line))
    (folder / "words.jsonl").write_text("\n".join(lines))
    table = read_score_table(str(folder / "words.jsonl"))
    settings = TableJudgment.of({"resamples": 20})
    raw = judging.judge_raw(table, settings)
    after = judging.judge_calibrated(table, settings)
    thresholds = judge_thresholds(table, settings)
    exhibits = {
        "tab_columns": judged.columns_table(raw.results),
        "tab_differences": judged.differences_table(raw.differences),
        "tab_calibrated": judged.calibrated_table(after.results),
        "tab_thresholds": judged.thresholds_table(thresholds),
        "fig_reliability": judged.reliability_figure(table),
        "fig_calibrated": judged.reliability_figure(table),
    }
    answers = list_answers(table, raw, after, thresholds)
    return names, exhibits, answers, raw


def test_a_user_s_words_are_escaped_on_the_page(hostile):
    names, exhibits, answers, _ = hostile
    outputs = {}
    for name, exhibit in exhibits.items():
        if name.startswith("tab_"):
            outputs[name] = {"text/html": exhibit._repr_html_()}
        else:
            picture = base64.b64encode(exhibit.save("png")).decode()
            outputs[name] = {"image/png": picture}
    files = [{"column": name, "calibrator": "platt", "rows": 24, "file": "f"} for name in names]
    outputs["rep_answer"] = {"application/json": answers._repr_json_()}
    outputs["rep_calibrators"] = {"application/json": files}
    page = BeautifulSoup(table_report_page({"run": names[0]}, outputs), "html.parser")
    assert not page.find_all(["script", "svg", "iframe", "input"])
    assert {image["src"][:22] for image in page.find_all("img")} == {"data:image/png;base64,"}
    for element in page.find_all(True):
        assert not [name for name in element.attrs if name.startswith("on")]
    warning = page.find(class_="warning").text
    assert warning == "These rows can tell little: only 24 rows: label 6 more."
    assert [heading.text for heading in page.find_all("h2")][:-1] == [
        short for short, _ in TABLE_CAPTIONS.values()
    ]


def test_a_user_s_words_are_escaped_in_latex(hostile):
    names, _, _, raw = hostile
    of_first = raw.results[raw.results.column == names[0]]
    rows = [of_first.assign(column=name) for name in HOSTILE if name.strip()]
    latex = judged.columns_table(pd.concat(rows)).latex
    assert r"\textbackslash{}write18" in latex
    assert r"\write18" not in latex.replace(r"\textbackslash{}write18", "")
    assert not re.search(r"(?<!\\)[$&]", latex.split(r"\midrule")[1].replace(" & ", ""))


def test_files_of_calibrators_have_plain_names():
    taken = []
    for name in HOSTILE:
        file = name_file(["", "t", name, "platt"], taken)
        assert "/" not in file
        assert "\n" not in file
        assert len(file) < 100
        assert file not in taken
        taken.append(file)


# ---- whole runs


@pytest.mark.slow
def test_a_table_from_elsewhere_is_judged(tmp_path):
    project = copy_of_project(tmp_path / "a project")
    table = tmp_path / "my scores.csv"
    table.write_text(TABLE)
    output = run(project, "judge", str(table))
    assert counts(output) == (2, 0)
    assert "80 rows, 50.0% right." in output
    folder = project / "artifacts" / "my-scores"
    notebook = (folder / "notebooks" / "10_judge.ipynb").read_text()
    assert str(tmp_path) not in notebook
    page = (project / "figures" / "my-scores" / "report.html").read_text()
    assert "my-scores: which confidence, and how good" in page
    calibrator = folder / "calibrators" / "my-scores__stated__isotonic.json"
    assert score_confidence(0.9, calibrator).calibrated == 1
    assert score_confidence(0.65, calibrator).calibrated == 0
    assert score_confidence(0.95, calibrator).outside_range
    assert score_confidence(0.9, calibrator).fitted_on["n"] == 80

    assert counts(run(project, "judge", str(table))) == (0, 2)
    table.write_text(TABLE + "true,0.1\n")
    assert "81 rows" in run(project, "judge", str(table))

    before = sorted(path for path in project.rglob("*") if path.is_file())
    table.write_text(TABLE + "true,1.1\n")
    assert "row 81: 'stated' is 1.1; a confidence lies in [0, 1]" in refusal(
        project, "judge", str(table)
    )
    assert "row 81" in refusal(project, "judge", str(table), "--name", "other")
    assert sorted(path for path in project.rglob("*") if path.is_file()) == before

    (project / "artifacts" / "mine" / "notebooks").mkdir(parents=True)
    (project / "artifacts" / "mine" / "notebooks" / "08_tables.ipynb").touch()
    table.write_text(TABLE)
    assert "holds the results of a run of models" in refusal(
        project, "judge", str(table), "--name", "mine"
    )
