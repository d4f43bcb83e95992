"""Slow tests are left out unless they are asked for, and one line says so."""

import os
import subprocess
import sys

import pytest

from lib.paths import ROOT

LINE = "slow tests were left out: ./run_all.sh test -- --all runs them, too"


def collected(*options):
    """What pytest says of a file of slow tests alone, none of which is run."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", *options, "tests/test_new_models.py"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True).stdout


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n1", marks=pytest.mark.slow)])
def test_one_line_says_how_many_and_how_to_run_them(workers):
    said = collected(workers)
    assert [line.split(maxsplit=1)[1] for line in said.splitlines() if "slow tests" in line] == [LINE], said
    assert "SKIPPED" not in said and "passed" not in said


def test_all_leaves_none_out():
    said = collected("-n0", "--all", "--collect-only")
    assert "test_check_says_they_are_ready" in said and LINE not in said
