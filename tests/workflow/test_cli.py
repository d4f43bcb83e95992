"""A wrong word: one line that names the nearest right one, exit code 2, nothing run, nothing installed."""

import ast
import subprocess
import sys

import pytest
from small_project import ROOT, write

from workflow import cli

BOOTSTRAP = ("workflow/cli.py", "workflow/environment.py", "workflow/__init__.py", "lib/paths.py")


def test_a_wrong_word_installs_nothing(project):
    command, env = [project.root / "run_all.sh", "demmo"], {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (project.root / ".venv").exists() and not (project.root / ".venv.lock").exists()


def test_right_words(inside):
    line = "verify demo --models tiny --add-models other --datasets easy --force 01 02_single_pass --cores=3"
    found = cli.parse_and_check(line.split())
    assert (found.verb, found.profile, found.run) == ("verify", "demo", "demo")
    assert (found.models, found.add_models, found.datasets) == (["tiny"], ["other"], ["easy"])
    assert (found.force, found.cores) == (["01", "02"], 3)


@pytest.mark.parametrize("name", BOOTSTRAP)
def test_bootstrap_is_standard_library_and_old_syntax(name):
    for node in ast.walk(ast.parse((ROOT / name).read_text(), feature_version=(3, 8))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert {one.split(".")[0] for one in names} <= sys.stdlib_module_names or names in (["lib.paths"],)


def test_the_first_python_runs_nothing_that_a_variable_names(project, tmp_path):
    for name in ("sitecustomize", "random", "json"):
        write(tmp_path / f"{name}.py", "raise SystemExit('ran')")
    given = {"PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": "abc"}
    said = "artifacts/shipped/demo/generations/tiny__easy.parquet is not shipped: ./run_all.sh demo computes it"
    assert project.shell("replay", cwd=tmp_path, **given) == (2, f"run_all.sh: {said}\n")


def test_a_symbolic_link_to_the_script_itself(inside, tmp_path):
    (tmp_path / "go").symlink_to(inside.root / "run_all.sh")
    done = subprocess.run([tmp_path / "go", "help"], capture_output=True, text=True, env=inside.environment())
    assert done.stdout == f"{cli.help_text()}\n", done.stderr
