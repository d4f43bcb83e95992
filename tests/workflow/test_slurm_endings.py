"""How runs on a real SLURM end, with a notebook that only waits: stopped and canceled."""

import signal
import subprocess

import pytest
import slurm_cluster
from clone import until, wait_for
from small_project import family, with_cell

pytestmark = pytest.mark.slow

WAITING = "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'):\n    time.sleep(0.1)"


def test_a_run_that_is_stopped_or_canceled_says_so_and_the_same_command_goes_on(project, slurm):
    with_cell(project, "01_generate", WAITING)
    words, begun = ["demo", "--profile", slurm_cluster.profile(project.root)], project.root / "notebooks/begun"

    def begin() -> tuple[subprocess.Popen, str]:
        """A run whose first job has begun on a node, and that job."""
        begun.unlink(missing_ok=True)
        process = project.start(*words, **slurm.environment)
        wait_for(process, begun.exists, 120)
        (job,) = slurm.jobs()
        return process, job

    def ending(process: subprocess.Popen, code: int) -> str:
        """The last line of a run that ends with a code."""
        said, _ = process.communicate(timeout=300)
        assert process.returncode == code and "Traceback" not in said, said
        return said.strip().splitlines()[-1]

    process, _ = begin()
    process.send_signal(signal.SIGINT)
    assert ending(process, 130) == "run_all.sh: stopped; the same command goes on from here"
    assert slurm.jobs() == []
    until(lambda: not family(project), 30)

    process, job = begin()
    slurm.says("scancel", job)
    last = ending(process, 1)
    assert "01_generate tiny easy: ended by the cluster: CANCELLED" in last and f"(job {job})" in last

    (project.root / "notebooks/go").touch()
    code, said = project.run(*words, **slurm.environment)
    assert code == 0 and "demo: 3 of 3 jobs ran, 0 up to date" in said, said
