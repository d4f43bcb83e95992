"""A wrong word: one line that names the nearest right one, exit code 2, nothing run, nothing
installed."""

import ast
import subprocess
import sys

from small_project import ROOT, write

from workflow import cli


def test_a_wrong_word_installs_nothing(project):
    command, env = [project.root / "run_all.sh", "demmo"], {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (project.root / ".venv").exists() and not (project.root / ".venv.lock").exists()


def test_bootstrap_is_standard_library_and_old_syntax():
    of_lib = {"lib.errors", "lib.paths", "lib.run_names"}
    of_project = of_lib | {"workflow.serving.address"}
    places = [f"{name.replace('.', '/')}.py" for name in sorted(of_project)]
    packages = ["workflow/__init__.py", "workflow/serving/__init__.py"]
    for file in ("workflow/cli.py", "workflow/environment.py", *packages, *places):
        tree = ast.parse((ROOT / file).read_text(), feature_version=(3, 8))
        for name in modules_imported(tree):
            is_standard = name.split(".")[0] in sys.stdlib_module_names
            assert is_standard or name in of_project, file


def modules_imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_the_first_python_runs_nothing_that_a_variable_names(inside, tmp_path):
    """Nor what lies where the user stands; and the command may be called by a link."""
    for name in ("sitecustomize", "random", "json"):
        write(tmp_path / f"{name}.py", "raise SystemExit('ran')")
    env = {"PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": "abc"}
    frame = "artifacts/shipped/demo/generations/tiny__easy.parquet"
    message = f"run_all.sh: {frame} is not shipped: ./run_all.sh demo computes it\n"
    for verb in ("replay", "verify"):
        assert inside.run(verb, shell=True, cwd=tmp_path, **env) == (2, message)
    (tmp_path / "go").symlink_to(inside.root / "run_all.sh")
    assert subprocess.check_output([tmp_path / "go", "help"], text=True) == f"{cli.help_text()}\n"
