"""How runs on a real SLURM end, with a notebook that only waits: stopped, canceled, killed, out of time."""

import signal
import subprocess
from collections.abc import Callable

import pytest
import slurm_cluster
from clone import until, wait_for
from small_project import Project, build

pytestmark = pytest.mark.slow

WAITING = "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'):\n    time.sleep(0.1)"
SHARDS = """
import os, time
for shard in range(1, 1000):
    print(f'shard {shard}', flush=True)
    time.sleep(0.2)
    if os.path.exists('go'):
        break
"""


@pytest.fixture
def words(project) -> list[str]:
    project.add_cells("01_generate", WAITING)
    project.replace("workflow/slurm.py", "POLL_SECONDS = 5", "POLL_SECONDS = 1")
    return ["demo", "--slurm", slurm_cluster.options(project.root)]


@pytest.fixture
def begin(project, words, slurm) -> Callable[[], tuple[subprocess.Popen, str]]:
    def start() -> tuple[subprocess.Popen, str]:
        """A run whose first job has begun on a node, and that job."""
        begun = project.root / "notebooks/begun"
        begun.unlink(missing_ok=True)
        process = project.start(*words, **slurm.environment)
        wait_for(process, begun.exists, 120)
        job, *_ = slurm.says("squeue", "-h", "-t", "running", "-o", "%A").split()
        return process, job

    return start


def last_line(process: subprocess.Popen, code: int) -> str:
    """The last line of a run that ends with a code."""
    said, _ = process.communicate(timeout=300)
    assert process.returncode == code and "Traceback" not in said, said
    return said.strip().splitlines()[-1]


def finish(project: Project, words: list[str], slurm) -> str:
    (project.root / "notebooks/go").touch()
    code, said = project.run(*words, **slurm.environment)
    assert code == 0 and "demo: 4 of 4 jobs ran, 0 up to date" in said, said
    return said


def test_a_run_that_is_stopped_or_canceled_says_so_and_the_same_command_goes_on(project, words, begin, slurm):
    process, _ = begin()
    process.send_signal(signal.SIGINT)
    assert last_line(process, 130) == "run_all.sh: stopped; the same command goes on from here"
    assert slurm.jobs() == []
    until(lambda: not project.family(), 30)

    process, job = begin()
    slurm.says("scancel", job)
    last = last_line(process, 1)
    assert "01_generate tiny easy: ended by the cluster: CANCELLED" in last and f"(job {job})" in last
    assert slurm.jobs() == []
    finish(project, words, slurm)


def test_jobs_outlive_a_run_that_is_killed_and_the_next_takes_on_what_is_still_wanted(project, words, begin, slurm):
    process, job = begin()
    process.kill()
    process.wait()
    assert job in slurm.jobs() and len(slurm.jobs()) == 4
    resumed = project.start(*words, **slurm.environment)
    assert any("01_generate tiny easy  started" in line for line in iter(resumed.stdout.readline, ""))
    (project.root / "notebooks/go").touch()
    assert "tables and figures" in last_line(resumed, 0)
    history = slurm.says("squeue", "-h", "-t", "all", "-o", "%A %j %Z").splitlines()
    generating = [line.split()[0] for line in history if "01_generate" in line and str(project.root) in line]
    assert generating == [job], "it ran once"

    (project.root / "notebooks/go").unlink()
    project.replace("lib/alpha.py", "str(seed)", "str(seed + 1)")
    process, job = begin()
    process.kill()
    process.wait()
    project.replace("lib/alpha.py", "str(seed + 1)", "str(seed + 2)")
    resumed = project.start(*words, **slurm.environment)
    assert any("01_generate tiny easy  started" in line for line in iter(resumed.stdout.readline, ""))
    (project.root / "notebooks/go").touch()
    assert "tables and figures" in last_line(resumed, 0)
    assert job not in slurm.jobs() and "CANCELLED" in slurm.says("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")


def test_a_job_whose_node_fails_runs_on_another(project, words, begin, slurm):
    process, job = begin()
    node = slurm.says("squeue", "-h", "-j", job, "-o", "%N").strip()
    try:
        slurm.says("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        (project.root / "notebooks/go").touch()
        said, _ = process.communicate(timeout=400)
        assert process.returncode == 0 and said.count("01_generate tiny easy  started") == 2, said
    finally:
        slurm.says("scontrol", "update", f"NodeName={node}", "State=RESUME")


def test_a_job_at_its_time_limit_goes_back_into_the_queue_if_it_has_got_on(project, tmp_path, slurm):
    """SLURM may signal thirty seconds early: of two minutes one is left to get on, however loaded the machine is."""
    idle = Project(build(tmp_path / "another"))
    processes = []
    for one, minutes, cell in ((project, 2, SHARDS), (idle, 1, "import time\ntime.sleep(600)")):
        one.replace("workflow/slurm.py", "signal.SIGUSR1, 120", "signal.SIGUSR1, 30")
        one.add_cells("01_generate", cell)
        options = slurm_cluster.options(one.root, time=minutes)
        processes.append(one.start("demo", "--slurm", options, **slurm.environment))
    lines = iter(processes[0].stdout.readline, "")
    assert any("back into the queue" in line for line in lines)
    (project.root / "notebooks/go").touch()
    assert "01_generate tiny easy: ended by the cluster: TIMEOUT" in last_line(processes[1], 1)
    said, _ = processes[0].communicate(timeout=400)
    assert processes[0].returncode == 0 and "4 of 4 jobs ran" in said, said
