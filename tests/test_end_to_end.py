"""A small demo in a copy of the project whose path holds a space: killed, resumed, repeated, changed, replayed."""

import os
import re
import shutil
import signal
import subprocess
import time

import psutil
import pytest
from browser import check_in_browser, check_keyboard, check_links, chromium
from clone import copy_of_project, counts, edit, refusal, run, start, tables

from lib.paths import ROOT
from workflow.export import TARGETS

SMALL = {"datasets": ["demo-hard"], "limit": 20, "rows_per_shard": 10, "n_tuning_examples": 6, "dropout_passes": 3,
         "resamples": 200, "draws": 4, "calibration_sizes": [5, 10], "ablation_limit": 2}  # fmt: skip
PAIRS = ["tiny-llama__demo-hard", "tiny-qwen__demo-hard"]
JOBS = 4 * len(PAIRS) + 6  # 01, 03, 04 and 04b for each pair; 02, 05 to 08 and 10
NUMBER = "tab_result_estimation--tiny-llama_demo-hard_seq_avg_ece"  # a cell's row in the report
SIGNALS = ("generations", "in_situ", "verification", "dropout", "dropout_answer", "ablation")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project whose demo was killed with -9 in the middle of generation, and then run to its end."""
    folder = copy_of_project(tmp_path_factory.mktemp("end to end") / "a folder")
    edit(folder / "params" / "demo.yaml", **SMALL)
    process = start(folder)
    shards = folder / "artifacts" / "demo" / "shards"
    until = time.time() + 300
    while not list(shards.glob("*/*.parquet")):
        assert process.poll() is None and time.time() < until, process.stdout.read()
        time.sleep(0.2)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3, "scheduler, jobs and kernels"
    process.send_signal(signal.SIGKILL)
    kept = {p: p.stat().st_mtime_ns for p in shards.glob("*/*.parquet")}
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive, "orphans must end by themselves"
    said = run(folder)
    assert "kept from before" in said, said
    assert all(not p.exists() or p.stat().st_mtime_ns == then for p, then in kept.items())
    assert counts(said)[0] == JOBS
    return folder


def test_everything_declared_is_exported(project):
    names = {p.name for p in (project / "figures" / "demo").iterdir()}
    wanted = {"tab": (".tex",), "fig": (".pdf", ".png"), "num": (".tex",), "rep": ()}
    assert {"report.html", "results.tex"} <= names
    assert {f"{name}{suffix}" for name in TARGETS for suffix in wanted[name[:3]]} <= names
    text = (project / "figures" / "demo" / "tab_result_estimation.tex").read_text()
    assert "demo models" in text.lower() and "nan" not in text.lower()
    assert str(project) not in "".join(p.read_text() for p in (project / "artifacts/demo").glob("*/*.json"))


def test_an_interrupted_run_gives_what_an_uninterrupted_one_gives(project, tmp_path):
    """The same pair generated again from nothing: the same bytes."""
    before = {p: (project / f"artifacts/demo/generations/{p}.parquet").read_bytes() for p in PAIRS[:1]}
    moved = copy_of_project(tmp_path / "b")
    edit(moved / "params" / "demo.yaml", **SMALL)
    process = start(moved, "demo", "--only", "tiny-llama")
    record = moved / f"artifacts/demo/jobs/01_generate__{PAIRS[0]}.json"
    while not record.exists():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.2)
    process.terminate()
    assert process.wait(60) == 143, "stopped in good order, with the rest left for another time"
    assert (moved / f"artifacts/demo/generations/{PAIRS[0]}.parquet").read_bytes() == before[PAIRS[0]]


def test_a_second_run_does_nothing_even_after_a_copy_and_touch(project, tmp_path):
    before = tables(project)
    started = time.time()
    assert counts(run(project)) == (0, JOBS)
    assert time.time() - started < 15
    moved = tmp_path / "moved"
    shutil.copytree(project, moved, symlinks=True)
    shutil.rmtree(moved / ".snakemake", ignore_errors=True)
    for path in moved.rglob("*"):
        if path.is_file():
            os.utime(path)
    with (moved / "lib" / "score" / "metrics.py").open("a") as file:
        file.write("# a comment changes nothing\n")
    assert counts(run(moved)) == (0, JOBS)
    assert tables(moved) == before


def test_a_change_remakes_exactly_what_hangs_on_it(project):
    before = tables(project)
    profile = project / "params" / "demo.yaml"
    text = profile.read_text()
    edit(profile, logprobs_from="sampling")
    assert counts(run(project)) == (6, JOBS - 6), "02, 05 to 08 and 10, no model runs"
    assert tables(project) != before
    profile.write_text(text)
    said = run(project)
    assert tables(project) == before, said
    notebook = project / "notebooks" / "02_single_pass.ipynb"
    code = notebook.read_text()
    notebook.write_text(code.replace(".round(3)", ".round(2)", 1))
    made, _ = counts(run(project))
    assert 1 <= made <= 2, "02, and 08 only if what 02 wrote has changed"
    notebook.write_text(code)
    run(project)


def test_replay_gives_the_tables_of_the_run(project):
    """Byte for byte, from the signals alone: there is no model in the folder."""
    shipped = project / "artifacts" / "shipped" / "demo"
    shutil.rmtree(shipped, ignore_errors=True)
    for kind in SIGNALS:
        shutil.copytree(project / "artifacts/demo" / kind, shipped / kind)
    shutil.move(project / "demo" / "models", project / "models elsewhere")
    try:
        run(project, "replay")
        assert tables(project, "replay") == tables(project)
    finally:
        shutil.move(project / "models elsewhere", project / "demo" / "models")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not on this machine")
def test_results_are_one_document_with_its_fonts(project):
    made = project / "figures" / "demo" / "results.pdf"
    fonts = subprocess.run(["pdffonts", made], capture_output=True, text=True).stdout.splitlines()[2:]
    embedded = r"\byes +(yes|no) +(yes|no) +\d+ +\d+$"
    assert len(fonts) > 5 and all(re.search(embedded, line) for line in fonts)
    assert not any("Type 3" in line for line in fonts)
    before = made.read_bytes()
    made.unlink()
    records = list((project / "artifacts/demo/jobs").glob("*.json"))
    assert counts(run(project)) == (0, len(records))
    assert made.read_bytes() == before


def test_the_report(project):
    report = (project / "figures" / "demo" / "report.html").read_text()
    check_links(report)
    assert "The models of this run are not" in report
    assert report.count("<img ") == 6
    assert not re.search("https?://", re.sub(r"http://www\.w3\.org/\d+/Math/MathML", "", report)), "self-contained"
    assert f'<a href="#{NUMBER}">' in report, "a cell leads to its row"


@pytest.mark.skipif(chromium is None, reason="no chromium on this machine")
def test_the_report_in_a_browser(project):
    check_in_browser(project / "figures" / "demo" / "report.html", NUMBER)
    check_keyboard(project / "figures" / "demo" / "report.html")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not on this machine")
def test_tables_and_figures_compile_in_a_document(project, tmp_path):
    exported = project / "figures" / "demo"
    wide = r"\begin{table}\resizebox{\textwidth}{!}{\input{%s}}\end{table}"
    inputs = [wide % name for name in tables(project) if name.startswith("tab_")]
    pictures = [f"\\includegraphics{{{p.name}}}" for p in sorted(exported.glob("*.pdf"))]
    packages = "booktabs,multirow,graphicx,amsmath,amssymb,bm"
    document = [r"\documentclass{article}", f"\\usepackage{{{packages}}}", r"\begin{document}", *inputs, *pictures]
    shutil.copytree(exported, tmp_path / "doc")
    (tmp_path / "doc" / "main.tex").write_text("\n".join([*document, r"\end{document}"]))
    done = subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"], cwd=tmp_path / "doc",
                          capture_output=True, text=True, errors="replace")  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dmo"], "'demo'"),
        (["--only", "tiny-lama"], "'tiny-llama'"),
        (["--datasets", "demo-esy"], "'demo-easy'"),
        (["replai"], "'replay'"),
    ],
)
def test_a_misspelt_word_names_the_nearest_right_one(words, said):
    assert said in refusal(ROOT, *words)


def test_a_misspelt_parameter_runs_nothing(tmp_path):
    folder = copy_of_project(tmp_path / "c")
    (folder / "params" / "mine.yaml").write_text((folder / "params" / "demo.yaml").read_text() + "sed: 1\n")
    assert "did you mean 'seed'" in refusal(folder, "mine")
    assert not (folder / "artifacts" / "mine").exists()
