"""Whole runs of the small project: what the user sees, what is kept, and that nothing outlives a killed run."""

import hashlib
import json
import os
import signal
import subprocess
import tempfile
import time

import nbformat
import psutil
import pytest
from clone import until
from small_project import NOTEBOOKS, PAIR, Project, write, write_notebook

from workflow import machine, run
from workflow.pipeline import Run

JOB = f"01_generate__{PAIR}"
WAITING = """
import os, time
with open('starts', 'a') as file:
    _ = file.write('.')
while not os.path.exists('go'):
    time.sleep(0.1)
"""


def files(project: Project) -> dict:
    """What a run has left, but for the lock, which holds the number of the last process."""
    paths = [path for folder in ("artifacts", "figures") for path in (project.root / folder).rglob("*")]
    return {path: path.read_bytes() for path in paths if path.is_file() and path.name != ".lock"}


def test_what_the_user_and_the_kernel_see(finished):
    first, *lines, ran, report, places = finished.text.strip().splitlines()
    assert first.startswith("demo: 4 of 4 jobs to do")
    notebooks = [line.split()[1] for line in lines if line.startswith("[")]
    assert notebooks == ["01_generate", "02_single_pass", "08_tables", "report"]
    assert any("shard 1/1: done" in line for line in lines)
    assert ran.startswith("demo: 4 of 4 jobs ran, 0 up to date") and "figures/demo/report.html" in report
    assert "figures/demo/" in places and "artifacts/demo/notebooks/" in places
    assert not list((finished.root / "artifacts/demo/logs").glob("*")), "no warning of the jobs"

    facts = json.loads(finished.read(f"artifacts/demo/generations/{PAIR}.json"))
    env = facts["environment"]
    assert facts["cwd"] == str(finished.root / "notebooks")
    assert "inline" in env.get("MPLBACKEND", "inline") and "JUPYTER_PATH" not in env
    names = ["PYTHONHASHSEED", "SOURCE_DATE_EPOCH", "OMP_NUM_THREADS", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"]
    assert [env[name] for name in names] == ["0", "0", "1", "1", "1"] and env["PYTHONPATH"] == str(finished.root)
    assert len(facts["code"]) == 16, "of the code that makes rows"
    assert not os.path.exists(env["JUPYTER_RUNTIME_DIR"])


def test_a_changed_line_remakes_what_hangs_on_it_and_notebooks_may_be_opened_and_saved(copy):
    """What follows is left as it is where the result is the same; and the report is still what the run showed, though
    the outputs of all notebooks were cleared."""
    copy.replace("lib/gamma.py", "len(text)", "len(text) + 1 - 1")
    for path in (copy.root / "artifacts/demo/jobs").iterdir():
        os.utime(path, (time.time() + 5000, time.time() + 5000))  # as from a machine whose clock is ahead
    report = copy.root / "figures/demo/report.html"
    before = report.read_bytes()
    report.unlink()
    for path in (copy.root / "artifacts/demo/notebooks").iterdir():
        nb = nbformat.read(path, as_version=4)
        nb.metadata["language_info"] = {"name": "python", "version": "another"}
        for cell in nb.cells:
            cell.metadata["execution"] = {}
            if cell.cell_type == "code":
                cell.outputs = []
        nbformat.write(nb, path)
    code, text = copy.run()
    assert code == 0 and "02_single_pass: will run (changed: code lib/gamma.py)" in text
    assert "demo: 2 of 4 jobs to do" in text and "and 1 if their inputs change" in text
    assert "demo: 2 of 4 jobs ran, 2 up to date" in text and report.read_bytes() == before


@pytest.mark.slow
def test_the_folder_of_published_questions_reaches_the_notebook(project):
    """Named from where the user stands; what is wrong with it is said before any job."""
    questions = project.root.parent / "my questions"
    file, sha256 = questions / "easy/all.jsonl", hashlib.sha256(b"{}").hexdigest()
    write(file, "{}")
    published = f"source: someone/easy\nfiles: {{all: {{path: easy/all.jsonl, sha256: {sha256}}}}}"
    project.replace("params/datasets/easy.yaml", "source: {all: questions.jsonl}", published)
    code, text = project.run("--data-dir", "my questions", shell=True, cwd=questions.parent)
    assert code == 0, text
    env = json.loads(project.read(f"artifacts/demo/generations/{PAIR}.json"))["environment"]
    assert (env["DATA_FOLDER"], env["HF_HUB_OFFLINE"]) == (str(questions), "1")
    file.write_text("{ }")
    before = files(project)
    code, text = project.run("--data-dir", "my questions", "--force", "01", shell=True, cwd=questions.parent)
    assert files(project) == before
    assert code == 2 and "is not that of dataset 'Easy'" in text.splitlines()[-1] and "started" not in text


# ---- mistakes and failures -------------------------------------------------------------------------------


@pytest.mark.parametrize("source, code, line", [
    ("x = 1\nraise KeyError('what')", 1,
     f"run_all.sh: artifacts/demo/notebooks/{JOB}.ipynb failed in cell [3] `x = 1`: KeyError: 'what'"),
    pytest.param("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", 1, f"run_all.sh: artifacts/demo/notebooks/"
                 f"{JOB}.ipynb: the kernel died, most likely out of memory: ", marks=pytest.mark.slow),
    pytest.param("raise SystemExit(0)", 2, "run_all.sh: notebooks/01_generate.ipynb ended without writing "
                 "artifacts/demo/generations/", marks=pytest.mark.slow),
])  # fmt: skip
def test_a_failing_cell(project, source, code, line):
    project.add_cell("01_generate", source)
    found, text = project.run(HOME="/proc/nowhere")  # no home that can be written to is needed
    lines = text.strip().splitlines()
    assert found == code and lines[-1].startswith(line) and "Traceback" not in text
    (at_once,) = [said for said in lines[:-1] if "01_generate tiny easy" in said and "failed" in said]
    assert at_once.endswith(f"  failed: {lines[-1].removeprefix('run_all.sh: ')}")
    cells = json.loads(project.read(f"artifacts/demo/notebooks/{JOB}.ipynb"))["cells"]
    assert source.splitlines()[-1] in "".join("".join(cell["source"]) for cell in cells)
    assert not (project.root / f"artifacts/demo/jobs/{JOB}.json").exists()
    assert not (project.root / "artifacts/demo/notebooks/02_single_pass.ipynb").exists()


def test_a_mistake_in_a_file_is_one_line_before_any_work(inside, capsys):
    for path, line in (("notebooks/02_single_pass.ipynb", "02_single_pass.ipynb, line 1: not JSON"),
                       ("lib/beta.py", "lib/beta.py, line 1: '(' was never closed: def f(")):  # fmt: skip
        (inside.root / path).write_text("def f(")
        assert run.main([]) == 2
        said = capsys.readouterr()
        assert line in said.err and len(said.err.splitlines()) == 1 and said.out == ""


def test_a_signal_that_a_model_cannot_give_ends_its_notebook_and_not_the_run(copy):
    """Its frame, written before, serves the notebooks that read it; once it has ended it is up to date."""
    parameters, *code = NOTEBOOKS["01_generate"]
    missing = "from lib.paths import UserError\nclass MissingSignal(UserError): ...\nraise MissingSignal('it has none')"
    write_notebook(copy.root / "notebooks/01_generate.ipynb", parameters, *code, missing, "never = 1 / 0")
    code, text = copy.run()
    assert code == 0, text
    assert "it has none" in copy.read("artifacts/demo/notebooks/01_generate__tiny__easy.ipynb")
    code, text = copy.run()
    assert code == 0 and "0 of 4 jobs ran" in text


def test_a_refused_command_changes_no_file(copy):
    """Whether results are to be made anew, or a model is added to a run: those that are there stay where they are."""
    with (copy.root / "workflow/check.py").open("a") as file:
        file.write("def refuse_unusable(run, names):\n    for name in names:\n        raise UserError(name)\n")
    before = files(copy)
    for words, model in ((["--force", "01"], "tiny"), (["--add-models", "other"], "other")):
        code, text = copy.run(*words)
        assert files(copy) == before
        assert (code, text) == (2, f"run_all.sh: {model}\n")


# ---- two runs, and killed ones ---------------------------------------------------------------------------


def test_a_second_run_at_the_same_time_is_refused(inside, capsys):
    with machine.run_lock(Run("demo", {})) as scratch:
        assert run.main([]) == 2 and scratch.exists()
    assert capsys.readouterr().err == "run_all.sh: run 'demo' is running already: wait for its end, or stop it\n"
    assert not scratch.exists()


def test_a_folder_for_temporary_files_that_somebody_else_has_made_is_not_used(inside, monkeypatch, tmp_path):
    """Not even by a link, which would have what is in it removed."""
    monkeypatch.setattr(machine, "short_tempdir", lambda: tmp_path)
    with machine.run_lock(Run("demo", {})) as scratch:
        assert scratch.stat().st_mode & 0o777 == 0o700
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/precious").touch()
    scratch.symlink_to(tmp_path / "theirs")
    with pytest.raises(FileExistsError), machine.run_lock(Run("demo", {})):
        pass
    assert (tmp_path / "theirs/precious").exists()


def waiting(project: Project, **env: str) -> subprocess.Popen:
    """Start a run whose first notebook waits; returns once it does."""
    project.add_cell("01_generate", WAITING)
    process = project.start(**env)
    until((project.root / "notebooks/starts").exists, 150)
    return process


def fork_server(process: subprocess.Popen) -> psutil.Process:
    """The process of a run that forks its jobs."""
    children = psutil.Process(process.pid).children()
    (found,) = [one for one in children if "multiprocessing.forkserver" in " ".join(one.cmdline())]
    return found


@pytest.mark.parametrize("victim", ["run", *(pytest.param(it, marks=pytest.mark.slow) for it in ("job", "server"))])
def test_nothing_outlives_kill_9(project, victim):
    """Neither processes nor, once the same command has gone on, files in the temporary folder, whose path is short.
    Without the server that has forked a job the job goes on, and those that follow are forked by another."""
    starts, go = project.root / "notebooks/starts", project.root / "notebooks/go"
    with tempfile.TemporaryDirectory() as temporary:
        process = waiting(project, TMPDIR=temporary)
        server = fork_server(process)
        (job,) = server.children()
        {"run": process, "job": job, "server": server}[victim].kill()
        if victim == "server":
            go.touch()
        text, _ = process.communicate(timeout=60)
        until(lambda: not project.family(), 10)
        assert process.returncode == {"run": -9, "job": 1, "server": 0}[victim], text
        if victim == "job":
            last = text.strip().splitlines()[-1]
            assert "01_generate tiny easy" in last and "killed" in last and "the same command goes on" in last
        if victim == "server":
            assert "4 of 4 jobs ran" in text and starts.read_text() == "."
        else:
            go.touch()
            assert project.run(TMPDIR=temporary)[0] == 0
        assert not os.listdir(temporary)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 9])
def test_a_stopped_run_ends_in_good_order(project, times):
    """Also where Ctrl-C is pressed again while its processes end."""
    process = waiting(project)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130, text
    assert text.strip().splitlines()[-1] == "run_all.sh: stopped; the same command goes on from here"
    until(lambda: not project.family(), 5)
