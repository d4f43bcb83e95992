"""A small demo repeated, changed and replayed; and what the replay of the whole demo leaves for its readers."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from browser import check_in_browser, check_keyboard, check_links, chromium
from clone import JOBS, counts, edit, run, tables

from workflow.export import TARGETS

RUN_MODELS = 4  # jobs: 01, 03, 04 and 04b of its one pair
NUMBER = "tab_result_estimation--tiny-llama_demo-hard_seq_avg_ece"  # a cell's row in the report
SIGNALS = ("generations", "in_situ", "verification", "dropout", "dropout_answer", "ablation")

pytestmark = pytest.mark.slow
needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not on this machine")


@pytest.fixture(scope="module")
def project(alone, tmp_path_factory) -> Path:
    """A finished small demo in another folder, with other times of files and a comment more."""
    folder = tmp_path_factory.mktemp("end to end") / "a folder"
    shutil.copytree(alone[0], folder, symlinks=True)
    shutil.rmtree(folder / ".snakemake", ignore_errors=True)
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path)
    with (folder / "lib" / "score" / "metrics.py").open("a") as file:
        file.write("# a comment changes nothing\n")
    return folder


def test_a_second_run_does_nothing_even_after_a_copy_and_touch(project):
    before = tables(project)
    assert counts(run(project)) == (0, JOBS)
    assert tables(project) == before
    assert str(project) not in "".join(p.read_text() for p in (project / "artifacts/demo").glob("*/*.json"))


def test_a_change_remakes_exactly_what_depends_on_it(project):
    before = tables(project)
    profile = project / "params" / "demo.yaml"
    text = profile.read_text()
    edit(profile, logprobs_from="sampling")
    assert counts(run(project)) == (JOBS - RUN_MODELS, RUN_MODELS), "no model runs"
    assert tables(project) != before
    profile.write_text(text)
    said = run(project)
    assert tables(project) == before, said


def test_replay_gives_the_tables_of_the_run(project):
    """Byte for byte, from the signals alone: there is no model in the folder."""
    shipped = project / "artifacts" / "shipped" / "demo"
    shutil.rmtree(shipped, ignore_errors=True)
    for kind in SIGNALS:
        shutil.copytree(project / "artifacts/demo" / kind, shipped / kind)
    shutil.rmtree(project / "demo" / "models")
    run(project, "replay")
    assert tables(project, "replay") == tables(project)


@pytest.fixture(scope="module")
def figures(replayed) -> Path:
    return replayed / "figures" / "replay"


def test_everything_declared_is_exported(figures):
    names = {p.name for p in figures.iterdir()}
    wanted = {"tab": (".tex",), "fig": (".pdf", ".png"), "num": (".tex",), "rep": ()}
    assert {"report.html", "results.tex"} <= names
    assert {f"{name}{suffix}" for name in TARGETS for suffix in wanted[name[:3]]} <= names
    text = (figures / "tab_result_estimation.tex").read_text()
    assert "demo models" in text.lower() and "nan" not in text.lower()


@needs_latex
def test_results_are_one_document_with_its_fonts(replayed, tmp_path):
    copy = shutil.copytree(replayed, tmp_path / "a copy", symlinks=True)
    made = copy / "figures" / "replay" / "results.pdf"
    fonts = subprocess.run(["pdffonts", made], capture_output=True, text=True).stdout.splitlines()[2:]
    embedded = r"\byes +(yes|no) +(yes|no) +\d+ +\d+$"
    assert len(fonts) > 5 and all(re.search(embedded, line) for line in fonts)
    assert not any("Type 3" in line for line in fonts)
    before = made.read_bytes()
    made.unlink()
    made_again, _ = counts(run(copy, "replay"))
    assert made_again == 0 and made.read_bytes() == before


def test_the_report(figures):
    report = (figures / "report.html").read_text()
    check_links(report)
    assert "The models of this run are not" in report
    assert report.count("<img ") == 6
    assert not re.search("https?://", re.sub(r"http://www\.w3\.org/\d+/Math/MathML", "", report)), "self-contained"
    assert f'<a href="#{NUMBER}">' in report, "a cell leads to its row"


@pytest.mark.skipif(chromium is None, reason="no chromium on this machine")
def test_the_report_in_a_browser(figures):
    check_in_browser(figures / "report.html", NUMBER)
    check_keyboard(figures / "report.html")
