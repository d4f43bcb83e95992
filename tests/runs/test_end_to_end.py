"""A small demo repeated and replayed; and what the replay of the whole demo leaves for its
readers."""

import os
import re
import shutil
import subprocess

import pytest
from browser import check_in_browser, check_links, chromium
from clone import JOBS, counts, run, tables

from workflow.run import typeset

NUMBER = "tab_result_estimation--tiny-llama_demo-hard_seq_avg_ece"  # a cell's row in the report
SIGNALS = ("generations", "in_situ", "verification", "dropout", "ablation")

pytestmark = pytest.mark.slow


def test_a_copy_is_up_to_date_and_its_replay_gives_its_tables(alone, tmp_path):
    """In another folder, with other times of files and a comment more; and byte for byte, from the
    signals alone."""
    project = shutil.copytree(alone[0], tmp_path / "a folder", symlinks=True)
    for path in project.rglob("*"):
        if path.is_file():
            os.utime(path)
    with (project / "lib" / "score" / "metrics.py").open("a") as file:
        file.write("# a comment changes nothing\n")
    assert counts(run(project)) == (0, JOBS)
    for path in (project / "artifacts/demo").glob("*/*.json"):
        assert str(alone[0]) not in path.read_text(), path
    shipped = project / "artifacts" / "shipped" / "demo"
    (shipped / "SHA256SUMS").unlink()
    for kind in SIGNALS:
        shutil.copytree(project / "artifacts/demo" / kind, shipped / kind, dirs_exist_ok=True)
    shutil.rmtree(project / "demo" / "models")
    run(project, "replay")
    assert tables(project, "replay") == tables(project)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not on this machine")
def test_results_are_one_document_with_its_fonts_and_the_same_bytes_again(replayed, tmp_path):
    copy = shutil.copytree(replayed / "figures" / "replay", tmp_path / "a copy")
    document = copy / "results.pdf"
    listed = subprocess.run(["pdffonts", document], capture_output=True, text=True).stdout
    fonts = listed.splitlines()[2:]
    assert len(fonts) > 5
    for font in fonts:
        assert re.search(r"\byes +(yes|no) +(yes|no) +\d+ +\d+$", font), "embedded"
        assert "Type 3" not in font
    before = document.read_bytes()
    document.unlink()
    assert typeset(copy) == ""
    assert document.read_bytes() == before


def test_every_link_of_the_report_leads_somewhere_on_it(replayed):
    assert check_links(replayed / "figures" / "replay" / "report.html") > 50


@pytest.mark.skipif(chromium is None, reason="no chromium on this machine")
def test_the_report_in_a_browser(replayed):
    check_in_browser(replayed / "figures" / "replay" / "report.html", NUMBER)
