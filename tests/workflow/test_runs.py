"""Whole runs of the small project: what the user sees, what is kept, and that nothing outlives a
killed run."""

import json
import os
import signal
import tempfile
import time
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from clone import until
from small_project import PAIR, Project, write

from lib import params
from workflow import machine, run
from workflow.engine import jobs
from workflow.engine.jobs_of_run import Run
from workflow.engine.progress import Board

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
    contents = {}
    for folder in ("artifacts", "figures"):
        for path in (project.root / folder).rglob("*"):
            if path.is_file() and path.name != ".lock":
                contents[path] = path.read_bytes()
    return contents


def test_what_the_user_and_the_kernel_see(finished):
    first, *lines, ran, report, places = finished.text.strip().splitlines()
    assert first.startswith("demo: 4 of 4 jobs to do")
    notebooks = [line.split()[1] for line in lines if line.startswith("[")]
    assert notebooks == ["01_generate", "02_single_pass", "08_tables", "report"]
    assert any("shard 1/1: done" in line for line in lines)
    assert ran.startswith("demo: 4 of 4 jobs ran, 0 up to date")
    assert "figures/demo/report.html" in report
    assert "figures/demo/" in places and "artifacts/demo/notebooks/" in places
    assert not list((finished.root / "artifacts/demo/logs").glob("*")), "no warning of the jobs"

    facts = json.loads(finished.read(f"artifacts/demo/generations/{PAIR}.json"))
    env = facts["environment"]
    assert facts["cwd"] == str(finished.root / "notebooks")
    assert "inline" in env.get("MPLBACKEND", "inline") and "JUPYTER_PATH" not in env
    assert env["DATA_FOLDER"] == str(finished.root.parent / "my questions")
    for name in ("PYTHONHASHSEED", "SOURCE_DATE_EPOCH"):
        assert env[name] == "0"
    for name in ("OMP_NUM_THREADS", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        assert env[name] == "1"
    assert env["PYTHONPATH"] == str(finished.root)
    assert len(facts["code"]) == 16, "of the code that makes rows"
    assert facts["forked"], "from a process that has imported what takes long"
    assert not os.path.exists(env["JUPYTER_RUNTIME_DIR"])


def test_a_changed_line_remakes_what_hangs_on_it_and_notebooks_may_be_opened_and_saved(copy):
    """What follows is left as it is where the result is the same; and the report is still what the
    run showed, though nothing is left in the notebooks that were executed."""
    copy.replace("lib/gamma.py", "len(text)", "len(text) + 1 - 1")
    for path in (copy.root / "artifacts/demo/jobs").iterdir():
        # as from a machine whose clock is ahead
        os.utime(path, (time.time() + 5000, time.time() + 5000))
    report = copy.root / "figures/demo/report.html"
    before = report.read_bytes()
    report.unlink()
    for path in (copy.root / "artifacts/demo/notebooks").iterdir():
        path.write_text("{}")
    code, text = copy.run()
    assert code == 0 and "02_single_pass: will run (changed: code lib/gamma.py)" in text
    assert "demo: 2 of 4 jobs to do" in text and "and 1 if their inputs change" in text
    assert "demo: 2 of 4 jobs ran, 2 up to date" in text and report.read_bytes() == before


# ---- mistakes and failures


KILL = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"


DIED = f"{JOB}.ipynb: the kernel died, most likely out of memory: "
WITHOUT_WRITING = "01_generate.ipynb ended without writing "


@pytest.mark.parametrize("source, code, message", [
    ("x = 1\nraise KeyError('what')", 1,
     f"{JOB}.ipynb failed in cell [3] `x = 1`: KeyError: 'what'"),
    pytest.param(KILL, 1, DIED, marks=pytest.mark.slow),
    pytest.param("raise SystemExit(0)", 2, WITHOUT_WRITING, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_failing_cell(project, source, code, message):
    project.add_cells("01_generate", source)
    ended, text = project.run(HOME="/proc/nowhere")  # no home that can be written to is needed
    *lines, last = text.strip().splitlines()
    assert ended == code
    assert message in last
    assert "Traceback" not in text
    (line,) = [line for line in lines if "01_generate tiny easy" in line and "failed" in line]
    assert line.endswith(f"  failed: {last.removeprefix('run_all.sh: ')}"), "said at once"
    cells = json.loads(project.read(f"artifacts/demo/notebooks/{JOB}.ipynb"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    assert source.splitlines()[-1] in "\n".join(sources)
    assert not (project.root / f"artifacts/demo/jobs/{JOB}.json").exists()
    assert not (project.root / "artifacts/demo/notebooks/02_single_pass.ipynb").exists()


def test_a_report_of_before_does_not_stay_beside_tables_that_could_not_be_made(copy):
    """Without a mark nobody would see that it is old. Once the tables are as before, it comes
    back."""
    report, tables = "figures/demo/report.html", copy.root / "notebooks/08_tables.ipynb"
    before, notebook = copy.read(report), tables.read_text()
    copy.add_cells("08_tables", "1 / 0")
    code, text = copy.run()
    assert code == 1
    assert text.strip().endswith("ZeroDivisionError: division by zero")
    assert f"{report} had earlier results: it was moved to artifacts/demo/stale/\n" in text
    (moved,) = copy.root.glob(f"artifacts/demo/stale/*/{report}")
    assert moved.read_text() == before and not (copy.root / report).exists()
    assert copy.run()[1].count("it was moved") == 0
    tables.write_text(notebook)
    code, text = copy.run()
    assert code == 0 and copy.read(report) == before and "report: figures/demo/report.html" in text


@pytest.mark.parametrize("codes, ends", [([2, 1], 1), ([1, 2], 1), ([2, 2], 2), ([1, 1], 1)])
def test_a_run_ends_with_one_if_any_failure_is_not_the_users(
    inside, monkeypatch, capsys, codes, ends
):
    """And with 2 if the user can mend all of them; the first failure is said last."""

    def fail(schedule):
        for job, code in zip(schedule.board.jobs, codes, strict=False):
            schedule.board.show(job, "fail", f"{job.title} failed", code)

    monkeypatch.setattr(run.Schedule, "run_jobs", fail)
    monkeypatch.setattr(run, "start_fork_server", lambda *words: None)
    assert run.main([]) == ends
    assert capsys.readouterr().err.splitlines()[-1].endswith("01_generate tiny easy failed")


def test_a_mistake_in_a_file_is_one_line_before_any_work(inside, capsys):
    mistakes = {
        "notebooks/02_single_pass.ipynb": "02_single_pass.ipynb, line 1: not JSON",
        "lib/beta.py": "lib/beta.py, line 1: '(' was never closed: def f(",
    }
    for path, message in mistakes.items():
        (inside.root / path).write_text("def f(")
        assert run.main([]) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert len(printed.err.splitlines()) == 1
        assert printed.out == ""


def test_a_signal_that_a_model_cannot_give_ends_its_notebook_and_not_the_run(copy):
    """Its frame, written before, serves the notebooks that read it; once it has ended it is up to
    date."""
    missing = (
        "from lib.errors import UserError\n"
        "class MissingSignalError(UserError): ...\n"
        "raise MissingSignalError('it has none')"
    )
    copy.add_cells("01_generate", missing, "never = 1 / 0", place=9)
    code, text = copy.run()
    assert code == 0, text
    assert "it has none" in copy.read("artifacts/demo/notebooks/01_generate__tiny__easy.ipynb")
    code, text = copy.run()
    assert code == 0 and "0 of 4 jobs ran" in text


def test_a_refused_command_changes_no_file(copy):
    """Whether results are to be made anew, or a model is added to a run: those that are there stay
    where they are."""
    write(copy.root / "mine/easy/all.jsonl", "{ }")
    file = f"{{path: easy/all.jsonl, sha256: {'a' * 64}}}"
    published = f"source: someone/easy\nfiles: {{all: {file}}}"
    copy.replace("params/datasets/easy.yaml", "source: {all: questions.jsonl}", published)
    before = files(copy)
    for words in (["--force", "01"], ["--add-models", "other"]):
        code, text = copy.run("--data-dir", str(copy.root / "mine"), *words)
        assert files(copy) == before
        assert code == 2
        assert " is not that of dataset 'Easy': " in text
        assert text.count("\n") == 1, text


# ---- two runs, and killed ones


def test_jobs_at_once_share_cores_and_gpus_and_the_longest_chains_begin(monkeypatch, tmp_path):
    started, together = {}, []

    def process(target, args):
        """A job that has ended once it is started."""
        job, gpus, _, end = args
        started[job] = gpus.split(",") if gpus else []
        others = [running[0] for running in schedule.running.values()]
        together.append([job, *others])
        end.send(("end", {"text": ""}))
        return Mock()

    demo = Run("demo", params.load_profile("demo").model_dump(), cores=2, gpus=2)
    demo.specs["tiny-llama"] = demo.specs["tiny-llama"].model_copy(update={"gpus": "all"})
    monkeypatch.setattr(jobs, "CONTEXT", SimpleNamespace(Pipe=jobs.CONTEXT.Pipe, Process=process))
    monkeypatch.setattr(machine, "list_gpus", lambda: ["a", "b"])
    schedule = jobs.Schedule(demo, Board(demo.jobs), tmp_path)
    schedule.run_jobs()
    order = list(started)
    assert len(order) == len(demo.jobs)
    first = order[0]
    assert first.notebook.number == "01"
    assert first.model == "tiny-qwen", "its chains are longer: it thinks"
    for place, job in enumerate(order):
        assert set(job.upstream) <= set(order[:place])
    threads = set()
    for running in together:
        threads.add(sum(job.threads for job in running if not job.gpus))
        gpus = []
        for job in running:
            assert len(started[job]) == job.gpus
            gpus += started[job]
        assert len(set(gpus)) == len(gpus)
    assert threads == {0, 1, 2}, "a core each, two at once, and jobs on GPUs take none of them"


def test_a_job_on_a_gpu_leaves_the_cores_to_others_and_no_gpu_waits_for_a_core(
    monkeypatch, tmp_path
):
    def titles_at_once(cores, gpus, small):
        names = [str(number) for number in range(gpus)]
        monkeypatch.setattr(machine, "list_gpus", lambda: names)
        values = params.load_profile("demo").model_dump()
        demo = Run("demo", values, cores=cores, gpus=gpus, small=small)
        schedule = jobs.Schedule(demo, Board(demo.jobs), tmp_path)
        monkeypatch.setattr(jobs, "CONTEXT", Mock(Pipe=lambda duplex: (object(), Mock())))
        schedule.start_jobs()
        return [running.job.title for running in schedule.running.values()]

    beside = titles_at_once(cores=16, gpus=1, small=("tiny-llama",))
    assert len([title for title in beside if "tiny-qwen" in title]) == 1
    assert len([title for title in beside if "tiny-llama" in title]) == 3
    assert "00_overview" in beside
    many = titles_at_once(cores=2, gpus=5, small=())
    assert len([title for title in many if "01_generate" in title]) == 5


def test_a_run_has_its_lock_and_its_scratch_folder_to_itself(inside, capsys, monkeypatch, tmp_path):
    """One that somebody else has made is not used, not even by a link, which would have what is in
    it removed."""
    monkeypatch.setattr(machine, "short_tempdir", lambda: tmp_path)
    with machine.run_lock(Run("demo", {})) as scratch:
        assert run.main([]) == 2 and scratch.stat().st_mode & 0o777 == 0o700
    message = "run_all.sh: run 'demo' is running already: wait for its end, or stop it\n"
    assert capsys.readouterr().err == message
    assert not scratch.exists()
    write(tmp_path / "theirs/precious", "")
    scratch.symlink_to(tmp_path / "theirs")
    with pytest.raises(FileExistsError), machine.run_lock(Run("demo", {})):
        pass
    assert (tmp_path / "theirs/precious").exists()


HELPED = """
import os, time
from pathlib import Path
from lib.errors import HelperEnds
if os.environ['CALIBRATION_HELPS']:
    first = not list(Path().glob('helped-*'))
    Path(f'helped-{os.getpid()}').touch()
    if first:
        raise HelperEnds
    time.sleep(600)
while len(list(Path().glob('helped-*'))) < 2:
    time.sleep(0.1)
"""


def test_processes_that_help_a_job_end_with_it_and_write_nothing(project):
    """One of them where its frame is written, the other when it has ended."""
    project.add_cells("01_generate", HELPED)
    code, text = project.run("--jobs-per-pair", "3", "--cores", "3")
    assert code == 0 and "4 of 4 jobs ran, 0 up to date" in text, text
    assert text.count("another process helps with its rows") == 2
    until(lambda: not project.family(), 10)
    made = [path.name for path in (project.root / "artifacts/demo").rglob("*") if "+" in path.name]
    assert made == []
    code, text = project.run("--jobs-per-pair", "3")
    assert code == 0 and "0 of 4 jobs ran" in text


STOPPED = "stopped; the same command goes on from here"
PRESSED = {"Ctrl-C": 1, "Ctrl-C again and again": 9}  # while its processes end


@pytest.mark.parametrize("victim, code, message", [
    ("run", -9, ""),
    pytest.param("job", 1, "killed before it could say why", marks=pytest.mark.slow),
    pytest.param("server", 0, "4 of 4 jobs ran", marks=pytest.mark.slow),
    *(pytest.param(keys, 130, STOPPED, marks=pytest.mark.slow) for keys in PRESSED),
])  # fmt: skip
def test_nothing_outlives_kill_9_or_ctrl_c(project, victim, code, message):
    """Neither processes nor, once the same command has gone on, files in the temporary folder,
    whose path is short. Without the server that has forked a job the job goes on, and those that
    follow are forked by another."""
    starts = project.root / "notebooks/starts"
    go = project.root / "notebooks/go"
    project.add_cells("01_generate", WAITING)
    with tempfile.TemporaryDirectory() as temporary:
        process = project.start(TMPDIR=temporary)
        until(starts.exists, 150)
        children = psutil.Process(process.pid).children()
        servers = [child for child in children if "forkserver" in " ".join(child.cmdline())]
        (server,) = servers
        (job,) = server.children()
        if victim in PRESSED:
            for _ in range(PRESSED[victim]):
                process.send_signal(signal.SIGINT)
                time.sleep(0.05)
        else:
            {"run": process, "job": job, "server": server}[victim].kill()
        if victim == "server":
            go.touch()
        text, _ = process.communicate(timeout=60)
        until(lambda: not project.family(), 10)
        assert process.returncode == code, text
        assert message in text and "Traceback" not in text, text
        go.touch()
        assert project.run(TMPDIR=temporary)[0] == 0
        assert starts.read_text() == ("." if victim == "server" else "..")
        assert not os.listdir(temporary)
