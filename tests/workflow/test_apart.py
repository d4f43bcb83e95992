"""What needs PyTorch once before the first job runs in a process that ends: the run's own never
imports it."""

import os
import subprocess
import sys
import time

import psutil
import pytest
from clone import until

from lib.paths import ROOT
from workflow.engine import apart

START = """
import os, signal, sys, time
from workflow.engine import apart
from lib.errors import UserError
"""
pytestmark = pytest.mark.skipif(not apart.CAN_FORK, reason="a child is forked on Linux alone")


def start(program: str) -> subprocess.Popen:
    """A Python in which nothing is imported yet."""
    spoken = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-c", START + program], cwd=ROOT, **spoken)


def output_of(program: str) -> list[str]:
    return start(program).communicate(timeout=120)[0].split("\n")[:-1]


def test_a_run_looks_at_its_models_and_imports_no_pytorch():
    program = """
from lib import params
from workflow import run
from workflow.engine.jobs_of_run import Run
demo = Run("demo", params.load_profile("demo").model_dump(), 2, 0)
print(run.prepare_models(demo, [], ["tiny-llama", "tiny-qwen"]))
print({"torch", "transformers", "pandas"} & set(sys.modules))
"""
    assert output_of(program) == ["('tiny-llama', 'tiny-qwen')", "set()"]


def test_what_is_returned_and_raised_there_is_here():
    program = """
print(apart.call(os.getpid) != os.getpid())
for error in (UserError("no such model"), PermissionError(13, "Permission denied", "weights")):
    def fail():
        raise error
    try:
        apart.call(fail)
    except type(error) as raised:
        print(raised)
try:
    apart.call(lambda: os.kill(os.getpid(), signal.SIGKILL))
except UserError as killed:
    print(killed)
"""
    killed = "the models could not be looked at: killed, most likely out of memory"
    assert output_of(program) == [
        "True",
        "no such model",
        "[Errno 13] Permission denied: 'weights'",
        killed,
    ]


def test_a_process_that_has_pytorch_calls_it_itself():
    """A child would save nothing."""
    import torch  # noqa: F401

    assert apart.call(os.getpid) == os.getpid()


@pytest.mark.parametrize("ending", ["kill", "terminate"])
def test_the_child_ends_with_the_run(ending):
    program = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
apart.call(lambda: time.sleep(600))
"""
    parent = start(program)
    (child,) = until(lambda: psutil.Process(parent.pid).children(), process=parent)
    time.sleep(0.3)  # until it watches its parent
    getattr(parent, ending)()
    assert parent.wait(20) in (-9, 143)
    assert psutil.wait_procs([child], timeout=20)[1] == []
