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
    of_lib = {"lib.paths", "lib.run_names"}
    places = [f"{name.replace('.', '/')}.py" for name in sorted(of_lib)]
    for file in ("workflow/cli.py", "workflow/environment.py", "workflow/__init__.py", *places):
        for node in ast.walk(ast.parse((ROOT / file).read_text(), feature_version=(3, 8))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            outside = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
            assert outside <= of_lib, file


def test_the_first_python_runs_nothing_that_a_variable_names(inside, tmp_path):
    """Nor what lies where the user stands; and the command may be called by a link."""
    for name in ("sitecustomize", "random", "json"):
        write(tmp_path / f"{name}.py", "raise SystemExit('ran')")
    given = {"PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": "abc"}
    said = "artifacts/shipped/demo/generations/tiny__easy.parquet is not shipped: ./run_all.sh demo computes it"
    for verb in ("replay", "verify"):
        assert inside.run(verb, shell=True, cwd=tmp_path, **given) == (2, f"run_all.sh: {said}\n")
    (tmp_path / "go").symlink_to(inside.root / "run_all.sh")
    assert subprocess.check_output([tmp_path / "go", "help"], text=True) == f"{cli.help_text()}\n"
