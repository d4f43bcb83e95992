"""Whole runs of the small project: what the user sees, what is kept, and that nothing outlives a killed run."""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from small_project import NOTEBOOKS, PAIR, Project, build, write, write_notebook

from lib.paths import UserError
from workflow import locks
from workflow.export import TARGETS

JOB = f"01_generate__{PAIR}"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked there")
TICKING = """
import time
for i in range(600):
    with open('ticks', 'a') as file:
        _ = file.write('.')
    time.sleep(0.1)
"""


def of_the_site(folder: Path) -> Path:
    """What a Jupyter of a cluster brings: a kernel of the same name, by another interpreter and provisioner."""
    given = {"argv": ["/bin/false", "-f", "{connection_file}"], "display_name": "x", "language": "python",
             "metadata": {"kernel_provisioner": {"provisioner_name": "local-provisioner"}}}  # fmt: skip
    write(folder / "jupyter/kernels/python3/kernel.json", json.dumps(given))
    return folder / "jupyter"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Project:
    """The small project after ./run_all.sh, called from elsewhere, with a folder of the user's own in the way."""
    project = Project(build(tmp_path_factory.mktemp("runs") / "a project"))
    own = {"MPLBACKEND": "agg", "PYTHONPATH": "/nowhere", "JUPYTER_PATH": str(of_the_site(project.root.parent))}
    code, text = project.shell(cwd=project.root.parent, **own)
    assert code == 0, text
    project.text = text
    return project


def test_what_the_user_sees(finished):
    lines = finished.text.strip().splitlines()
    assert lines[0].startswith("demo: 3 of 3 jobs to do")
    assert [line.split()[1] for line in lines if line.startswith("[")] == ["01_generate", "02_single_pass", "08_tables"]
    assert any("shard 1/1: done" in line for line in lines)
    assert lines[-3].startswith("demo: 3 made, 0 kept") and "figures/demo/report.html" in lines[-2]
    assert "figures/demo/" in lines[-1] and "artifacts/demo/notebooks/" in lines[-1]
    assert "TCP" not in finished.text + finished.read("artifacts/demo/snakemake.log")


def test_what_the_kernel_sees(finished):
    facts = json.loads(finished.read(f"artifacts/demo/generations/{PAIR}.json"))
    env = facts["environment"]
    assert facts["cwd"] == str(finished.root / "notebooks")
    assert env["PYTHONPATH"] == str(finished.root)
    assert "inline" in env.get("MPLBACKEND", "inline") and "JUPYTER_PATH" not in env
    for name, value in {"PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "0", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
                        "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}.items():  # fmt: skip
        assert env[name] == value
    assert [len(name) for name in facts["code"]] == [16, 16], "of shards, and of the code that makes rows"
    assert facts["names"] == [], "nothing of the start-up is left among the notebook's own names"
    assert not os.path.exists(env["JUPYTER_RUNTIME_DIR"])


def test_the_folder_of_published_questions_reaches_the_notebook(project):
    """Named from where the user stands; what is wrong with it is said before any job."""
    questions = project.root.parent / "my questions"
    (questions / "easy").mkdir(parents=True)
    (questions / "easy/all.jsonl").write_text("{}")
    sum_of = hashlib.sha256(b"{}").hexdigest()
    text = f"label: Easy\nsource: someone/easy\nfiles: {{all: {{path: easy/all.jsonl, sha256: {sum_of}}}}}\n"
    write(project.root / "params/datasets/easy.yaml", f"{text}calibration: 1\nevaluation: 1\n")
    code, text = project.shell("--data-dir", "my questions", cwd=questions.parent)
    assert code == 0, text
    facts = json.loads(project.read(f"artifacts/demo/generations/{PAIR}.json"))
    assert facts["environment"]["DATA_FOLDER"] == str(questions)
    assert facts["environment"]["HF_HUB_OFFLINE"] == "1"
    (questions / "easy/all.jsonl").write_text("{ }")
    assert project.shell("--data-dir", "my questions", cwd=questions.parent)[0] == 0, "nothing is read again"
    before = files(project)
    code, text = project.shell("--data-dir", "my questions", "--force", "01", cwd=questions.parent)
    assert files(project) == before
    assert code == 2 and "is not the file of dataset 'Easy'" in text.splitlines()[-1]
    assert "started" not in text


def test_executed_notebooks_and_exports_are_there(finished):
    names = {path.stem for path in (finished.root / "artifacts/demo/notebooks").iterdir()}
    assert names == {JOB, "02_single_pass", "08_tables"}
    executed = json.loads(finished.read(f"artifacts/demo/notebooks/{JOB}.ipynb"))
    assert str(finished.root) not in json.dumps(executed["metadata"])
    made = {path.name for path in (finished.root / "figures/demo").iterdir()} - {"results.pdf", "results.log"}
    files = sum({"tab": 1, "fig": 2, "num": 1, "rep": 0}[target[:3]] for target in TARGETS)
    assert len(made) == files + 2 and {"results.tex", "report.html"} <= made


def kept(project: Project, count: int = 3) -> None:
    """A run of `project` does nothing, and fast, without Snakemake."""
    log = project.root / "artifacts/demo/snakemake.log"
    before, started = log.stat().st_mtime_ns, time.monotonic()
    code, text = project.shell()
    assert code == 0 and f"demo: 0 made, {count} kept" in text
    assert log.stat().st_mtime_ns == before
    assert time.monotonic() - started < 15


def test_a_second_run_does_nothing(finished):
    kept(finished)
    shutil.rmtree(finished.root / ".snakemake")
    for path in finished.root.rglob("*"):
        os.utime(path)
    kept(finished)


def test_a_copy_does_nothing(finished, tmp_path):
    copy = tmp_path / "another project"
    shutil.copytree(finished.root, copy)
    kept(Project(copy))


def test_a_changed_line_remakes_what_hangs_on_it(finished, tmp_path):
    project = Project(tmp_path / "copy")
    shutil.copytree(finished.root, project.root)
    project.replace("lib/gamma.py", "len(text)", "len(text) + 1")
    for path in (project.root / "artifacts/demo/jobs").iterdir():
        os.utime(path, (time.time() + 5000, time.time() + 5000))  # as from a machine whose clock is ahead
    code, text = project.run()
    assert code == 0 and "demo: 2 made, 1 kept" in text
    assert "02_single_pass: to be made (changed: code lib/gamma.py)" in text
    assert json.loads(project.read("figures/demo/tab_estimators.tex"))["letters"] == 12
    assert json.loads(finished.read("figures/demo/tab_estimators.tex"))["letters"] == 11
    assert list(project.root.glob("artifacts/demo/stale/*/figures/demo/tab_estimators.tex"))


def test_replay_gives_the_same_tables(finished, tmp_path):
    project = Project(tmp_path / "copy")
    shutil.copytree(finished.root, project.root)
    (project.root / "artifacts/shipped").mkdir()
    os.rename(project.root / "artifacts/demo", project.root / "artifacts/shipped/demo")
    code, text = project.run("replay")
    assert code == 0 and "replay: 2 made, 0 kept" in text
    for path in (finished.root / "figures/demo").glob("tab_*"):
        assert path.read_bytes() == (project.root / "figures/replay" / path.name).read_bytes()


def test_replay_of_another_profile_and_of_what_is_shipped_of_it(finished, tmp_path):
    """Signals of their own; a dataset that is not shipped yet is named and left out, and none at all is one line."""
    project = Project(tmp_path / "copy")
    shutil.copytree(finished.root, project.root)
    other = project.read("params/demo.yaml").replace("datasets: [easy]", "datasets: [easy, hard]")
    (project.root / "params/other.yaml").write_text(other, encoding="utf-8")
    shutil.copyfile(project.root / "params/datasets/easy.yaml", project.root / "params/datasets/hard.yaml")
    code, text = project.run("replay", "other")
    assert code == 2 and "no signals of tiny are shipped in artifacts/shipped/other/" in text
    (project.root / "artifacts/shipped").mkdir()
    shutil.copytree(project.root / "artifacts/demo", project.root / "artifacts/shipped/other")
    code, text = project.run("replay", "other")
    assert code == 0 and "hard: not shipped yet, left out" in text and "replay-other: 2 made, 0 kept" in text
    assert (project.root / "figures/replay-other/tab_estimators.tex").exists()


def files(project: Project) -> dict:
    """What a run has left, but for the lock, which holds the number of the last process."""
    paths = [path for folder in ("artifacts", "figures") for path in (project.root / folder).rglob("*")]
    return {path: path.read_bytes() for path in paths if path.is_file() and path.name != ".lock"}


# ---- mistakes and failures -------------------------------------------------------------------------------


def with_cell(project: Project, name: str, source: str) -> None:
    """Put a cell in a notebook, after its parameters."""
    parameters, *code = NOTEBOOKS[name]
    write_notebook(project.root / f"notebooks/{name}.ipynb", parameters, source, *code)


@pytest.mark.parametrize(
    "source, code, line",
    [
        (
            "x = 1\nraise KeyError('what')",
            1,
            f"run_all.sh: artifacts/demo/notebooks/{JOB}.ipynb failed in cell [3] `x = 1`: KeyError: 'what'",
        ),
        ("from lib.paths import UserError\nraise UserError('mend this')", 2, "run_all.sh: mend this"),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
            1,
            f"run_all.sh: artifacts/demo/notebooks/{JOB}.ipynb: the kernel died in the cell `import os, signal`",
        ),
        (
            "raise SystemExit(0)",
            2,
            "run_all.sh: notebooks/01_generate.ipynb ended without having written artifacts/demo/generations/",
        ),
    ],
)
def test_a_failing_cell(project, source, code, line):
    with_cell(project, "01_generate", source)
    found, text = project.run()
    lines = text.strip().splitlines()
    assert found == code
    assert lines[-1].startswith(line)
    (at_once,) = [said for said in lines[:-1] if "01_generate tiny easy" in said and "failed" in said]
    assert at_once.endswith(f"  failed: {lines[-1].removeprefix('run_all.sh: ')}")
    assert "Traceback" not in text
    assert source.splitlines()[-1] in "".join(
        "".join(cell["source"]) for cell in json.loads(project.read(f"artifacts/demo/notebooks/{JOB}.ipynb"))["cells"]
    )
    assert not (project.root / f"artifacts/demo/jobs/{JOB}.json").exists()
    assert not (project.root / "artifacts/demo/notebooks/02_single_pass.ipynb").exists()


def test_a_missing_target_is_one_line_and_the_rest_is_kept(finished, tmp_path):
    project = Project(tmp_path / "copy")
    shutil.copytree(finished.root, project.root)
    project.replace("notebooks/08_tables.ipynb", "in TARGETS", "in TARGETS[1:]")
    code, text = project.run()
    assert code == 2
    assert text.strip().splitlines()[-1] == "run_all.sh: no output has the target tab_estimators"
    assert not list((project.root / "figures/demo").iterdir())
    project.replace("notebooks/08_tables.ipynb", "in TARGETS[1:]", "in TARGETS")
    code, text = project.run()
    assert code == 0 and "08_tables: restored (made before from the same)" in text and "demo: 0 made, 3 kept" in text


def test_a_home_that_cannot_be_written_to(project):
    write_notebook(project.root / "notebooks/01_generate.ipynb", "run = ''", "raise KeyError('reached')")
    assert "KeyError: 'reached'" in project.run(HOME="/proc/nowhere")[1]


@pytest.mark.parametrize(
    "path, content, line",
    [
        ("params/demo.yaml", "models: [tiny]\ndatasets: [easy]\nbinz: 3\n", "did you mean 'bins'"),
        ("params/demo.yaml", "models: [tinny]\ndatasets: [easy]\n", "did you mean 'tiny'"),
        ("params/models/tiny.yaml", "label: x\nsource: y\ntemprature: 1\n", "did you mean 'temperature'"),
        ("params/models/a__b.yaml", "label: x\nsource: y\n", "needs letters, digits"),
        ("params/shipped.yaml", "models: [tiny]\ndatasets: [easy]\n", "not 'shipped'"),
        ("params/lab-x.yaml", "models: [tiny]\ndatasets: [easy]\n", "is kept for what is run by hand"),
        ("params/datasets/easy.yaml", "label: x\n", "are missing"),
        ("notebooks/02_single_pass.ipynb", "{", "cannot be read as a notebook"),
        ("lib/beta.py", "def f(:\n", "lib/beta.py, line 1: invalid syntax: def f(:"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_before_any_work(project, path, content, line):
    (project.root / path).write_text(content)
    words = {"params/models/a__b.yaml": ["--add-models", "a__b"], "params/shipped.yaml": ["shipped"],
             "params/lab-x.yaml": ["lab-x"]}.get(path, [])  # fmt: skip
    code, text = project.run(*words)
    assert code == 2 and line in text and len(text.strip().splitlines()) == 1
    assert not (project.root / "artifacts/demo/jobs").exists()


def test_a_refused_command_changes_no_file(finished, tmp_path):
    """Whether results are to be made anew, or a model is added to a run: those that are there stay where they are."""
    project = Project(tmp_path / "copy")
    shutil.copytree(finished.root, project.root)
    with (project.root / "workflow/usable.py").open("a") as file:
        file.write("\n\ndef find_unusable(run, names):\n    return [f'{name}: no' for name in names]\n")
    before = files(project)
    for words, model in ((["--force", "01"], "tiny"), (["--add-models", "other"], "other")):
        code, text = project.run(*words)
        assert files(project) == before
        assert (code, text.strip()) == (2, f"run_all.sh: {model}: no")


def test_a_broken_schedule_is_one_line(project):
    with open(project.root / "workflow/Snakefile", "a") as file:
        file.write("\nnonsense nonsense\n")
    code, text = project.run()
    assert code == 1 and "see artifacts/demo/snakemake.log: " in text.strip().splitlines()[-1]


# ---- two runs, and killed ones ---------------------------------------------------------------------------


def test_a_second_run_at_the_same_time_is_refused(project):
    lock = project.root / "artifacts/demo/.lock"
    lock.parent.mkdir(parents=True)
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        note = {"pid": os.getpid(), "scratch": "jobabc", "machine": platform.node()}
        (lock.parent / ".running").write_text(json.dumps(note))
        code, text = project.run()
    assert code == 2
    assert text.strip() == f"run_all.sh: run 'demo' is going on already, in process {os.getpid()}"


def test_a_run_on_another_machine_is_refused_where_locks_are_of_one_machine(inside):
    """And goes on where that one has shown no sign of life for a while, or has come to its end."""
    from workflow.pipeline import Run

    run, note = Run("demo", {}), inside.root / "artifacts/demo/.running"
    with locks.run_lock(run):
        held = json.loads(note.read_text())
        assert (held["pid"], held["machine"]) == (os.getpid(), platform.node())
    assert not note.exists()
    note.write_text(json.dumps(held | {"pid": 123, "machine": "another-node"}))
    line = "^run 'demo' is going on already, in process 123 on another-node, or was killed there less than 2"
    with pytest.raises(UserError, match=line), locks.run_lock(run, patience=0):
        pass
    assert "another-node" in note.read_text()
    os.utime(note, (time.time() - locks.SILENT - 1,) * 2)
    with locks.run_lock(run, patience=0):
        pass


def test_a_live_run_touches_its_lock(inside, monkeypatch):
    from workflow.pipeline import Run

    monkeypatch.setattr(locks, "BEAT", 0.05)
    note = inside.root / "artifacts/demo/.running"
    with locks.run_lock(Run("demo", {})):
        os.utime(note, (0, 0))
        until(lambda: note.stat().st_mtime > 0, 10)


def family(project: Project) -> list[psutil.Process]:
    """Processes that work for the project, kernels included."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(project.root)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def named(project: Project, word: str) -> list[psutil.Process]:
    """Those that have been started with a word."""
    found = []
    for process in family(project):
        with contextlib.suppress(psutil.Error):
            if word in process.cmdline():
                found.append(process)
    return found


def until(condition, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.1)


def ticking(project: Project) -> subprocess.Popen:
    """Start a run whose first notebook writes on and on; returns once it does."""
    with_cell(project, "01_generate", TICKING)
    process = project.start()
    until((project.root / "notebooks/ticks").exists)
    return process


def preloaded(run: subprocess.Popen) -> psutil.Process:
    """The process of a run that forks its jobs."""
    (process,) = [child for child in psutil.Process(run.pid).children() if "workflow.preload" in child.cmdline()]
    return process


@pytest.mark.parametrize("victim", ["workflow.run", "snakemake", "job"])
def test_nothing_outlives_kill_9(project, victim, monkeypatch, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    process = ticking(project)
    jobs = preloaded(process).children()
    (target,) = jobs if victim == "job" else named(project, victim)
    target.kill()
    until(lambda: not family(project) or victim == "job" and process.poll() is not None, 30)
    until(lambda: not family(project), 10)
    ticks = (project.root / "notebooks/ticks").stat().st_size
    time.sleep(1)
    assert (project.root / "notebooks/ticks").stat().st_size == ticks
    text, _ = process.communicate(timeout=30)
    assert process.returncode in ((-9,) if victim == "workflow.run" else (1,)), text
    if victim != "workflow.run":
        last = text.strip().splitlines()[-1]
        assert "01_generate tiny easy" in last and "killed" in last and "the same command goes on" in last
    if victim == "workflow.run":  # and the next run goes on at once
        with_cell(project, "01_generate", "pass")
        code, text = project.run()
        assert code == 0 and "3 made" in text
    assert not list(temporary.iterdir()), "nothing is left in the temporary folder"


@LINUX
def test_nothing_outlives_kill_9_before_the_first_job(project):
    """When no job is there yet that could notice; the preloaded process is held up so that none can come."""
    process = project.start()
    until(lambda: [child for child in psutil.Process(process.pid).children() if "workflow.preload" in child.cmdline()])
    held = preloaded(process)
    held.suspend()
    until(lambda: named(project, "workflow/preload.py"))
    process.kill()
    until(lambda: not named(project, "snakemake"), 10)
    held.resume()
    until(lambda: not family(project), 30)
    code, text = project.run()
    assert code == 0 and "3 made" in text


def test_what_a_kill_leaves_is_cleared_by_the_next_run(finished, tmp_path):
    """But for what another process is writing, which lives, and the shards of what has no record yet."""
    project = Project(tmp_path / "copy")
    shutil.copytree(finished.root, project.root)
    folder, dead = project.root / "artifacts/demo", 4194305  # larger than any process id
    left = [f"generations/.{PAIR}.parquet.{dead}.partial", f"jobs/.{JOB}.json.{dead}", f".run.json.{dead}",
            f"shards/{JOB}-0/.00000.parquet.{dead}.partial", f"../../figures/demo/.export-{dead}-x/a.tex"]  # fmt: skip
    kept = [f"generations/.{PAIR}.parquet.{os.getpid()}.partial", f"shards/{JOB}-0/00000-0.parquet",
            f"shards/{JOB}-1/written"]  # fmt: skip
    done = json.loads(project.read(f"artifacts/demo/generations/{PAIR}.json"))["code"][0]
    for name, text in [*((name, "half") for name in left + kept), (f"shards/{JOB}-2/written", done)]:
        write(folder / name, text)
    code, text = project.run()
    assert code == 0 and "0 made, 3 kept" in text
    assert not [name for name in left if (folder / name).exists()] and not (folder / f"shards/{JOB}-2").exists()
    assert not (project.root / f"figures/demo/.export-{dead}-x").exists()
    assert all((folder / name).exists() for name in kept)


WAITING = """
import os, time
with open('starts', 'a') as file:
    _ = file.write('.')
while not os.path.exists('go'):
    time.sleep(0.1)
"""


def test_a_run_goes_on_without_its_preloaded_process(project):
    """Its job, killed with it, is done again in a process of its own, and so are those that follow."""
    with_cell(project, "01_generate", WAITING)
    process, starts = project.start(), project.root / "notebooks/starts"
    until(starts.exists)
    first = preloaded(process).children(recursive=True)  # the job and its kernel
    preloaded(process).kill()
    until(lambda: starts.read_text() == "..")
    assert len(first) == 2 and not any(locks.alive(one.pid) for one in first)
    assert named(project, "workflow.notebook")
    (project.root / "notebooks/go").touch()
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "3 made" in text
    until(lambda: not family(project), 5)


LOST = """

import os, signal, time


def forget_shards(job, code):
    if job.model and not (ROOT / "lost").exists():
        (ROOT / "lost").touch()
        os.kill(os.{victim}(), signal.SIGKILL)
        time.sleep(1)
"""


@pytest.mark.parametrize("victim", ["getpid", pytest.param("getppid", marks=LINUX)])
def test_a_job_killed_after_its_record_is_not_made_again(project, victim):
    """When its shards are no more: by whoever is killed, the job itself or the preloaded process that forked it."""
    with open(project.root / "workflow/records.py", "a") as file:
        file.write(LOST.format(victim=victim))
    with_cell(project, "01_generate", "with open('starts', 'a') as file:\n    _ = file.write('.')")
    code, text = project.run()
    if code:
        code, text = project.run()
    assert code == 0, text
    assert (project.root / "lost").exists() and (project.root / "notebooks/starts").read_text() == ".", text
    assert project.run()[1].count("0 made, 3 kept") == 1


def test_a_light_job_that_fails(finished, tmp_path):
    project = Project(tmp_path / "copy")
    shutil.copytree(finished.root, project.root)
    with_cell(project, "02_single_pass", "raise KeyError('what')")
    executed = (project.root / "artifacts/demo/notebooks/08_tables.ipynb").read_bytes()
    code, text = project.run()
    failure = "run_all.sh: artifacts/demo/notebooks/02_single_pass.ipynb failed in cell [3] `raise KeyError('what')`"
    assert code == 1 and text.strip().splitlines()[-1].startswith(failure)
    assert executed == (project.root / "artifacts/demo/notebooks/08_tables.ipynb").read_bytes()


@pytest.mark.slow
def test_what_cannot_be_forked_is_run_in_processes_of_its_own(project):
    """Here for want of a module that starts no thread."""
    threaded = "import threading\nimport time\nthreading.Thread(target=time.sleep, args=[999], daemon=True).start()\n"
    (project.root / "threaded.py").write_text(threaded)
    with_cell(project, "01_generate", f"import threaded\n{WAITING}")
    process = project.start()
    until((project.root / "notebooks/starts").exists)
    assert named(project, "workflow.notebook")
    (project.root / "notebooks/go").touch()
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "3 made" in text


def test_a_change_that_changes_no_result_remakes_one_notebook(finished, tmp_path):
    project = Project(tmp_path / "copy")
    shutil.copytree(finished.root, project.root)
    project.replace("lib/gamma.py", "len(text)", "len(text) + 0")
    figures = {path: path.stat().st_mtime_ns for path in (project.root / "figures/demo").glob("tab_*")}
    code, text = project.run()
    assert code == 0 and "demo: 1 made, 2 kept" in text
    assert "demo: 1 of 3 jobs to do" in text and "and 1 if what they read changes" in text
    assert "08_tables: to be made if what it reads changes (follows 02_single_pass)" in text
    assert figures == {path: path.stat().st_mtime_ns for path in (project.root / "figures/demo").glob("tab_*")}
    kept(project)


def test_a_model_run_again_with_the_same_result(finished, tmp_path):
    project = Project(tmp_path / "copy")
    shutil.copytree(finished.root, project.root)
    project.replace("notebooks/01_generate.ipynb", "'environment': dict(os.environ)", "'environment': {}")
    assert "demo: 3 made, 0 kept" in project.run()[1]
    left = [*(project.root / "figures/demo").iterdir(), project.root / "artifacts/demo/notebooks/08_tables.ipynb"]
    before = {path: path.read_bytes() for path in left}
    code, text = project.run("--force", "01")
    assert code == 0 and "demo: 1 made, 2 kept" in text and "kept: what it reads is as before" in text
    assert before == {path: path.read_bytes() for path in left}
    kept(project)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_ends_in_good_order(project, number, code):
    process = ticking(project)
    process.send_signal(number)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == code, text
    assert text.strip().splitlines()[-1] == "run_all.sh: stopped; the same command goes on from here"
    until(lambda: not family(project), 5)


def test_a_job_by_hand_that_runs_already(inside):
    from workflow.pipeline import Run

    job = Run("demo", {"models": ["tiny"], "datasets": ["easy"]}).jobs[0]
    with locks.job_lock(job), pytest.raises(UserError, match="is running already"), locks.job_lock(job, patience=0):
        pass


def test_a_listener_who_leaves_gets_no_traceback(tmp_path):
    """As `./run_all.sh | head -1` does."""
    project = Project(build(tmp_path / "a project"))
    process = subprocess.Popen([sys.executable, "-m", "workflow.run"], cwd=project.root, text=True,
                               env=project.environment(PYTHONPATH=str(project.root)),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(60) == 141 and said == ""
    assert project.run()[0] == 0, "and the same command goes on"
