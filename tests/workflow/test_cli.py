"""A wrong word: one line that names the nearest right one, exit code 2, nothing run, nothing installed."""

import ast
import subprocess
import sys

import pytest
from small_project import ROOT

from workflow import cli


def test_a_wrong_word_installs_nothing(project):
    command, env = [project.root / "run_all.sh", "demmo"], {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (project.root / ".venv").exists() and not (project.root / ".venv.lock").exists()


def test_right_words(project):
    line = "verify demo --models tiny --add-models other --datasets easy --force 1 02_single_pass --cores=3"
    found = cli.check(line.split(), project.root)
    assert (found.verb, found.profile, found.run) == ("verify", "demo", "demo")
    assert (found.models, found.add_models, found.datasets) == (["tiny"], ["other"], ["easy"])
    assert (found.force, found.cores) == (["01", "02"], 3)
    found = cli.check(["test", "--", "-k", "x"], project.root)
    assert (found.verb, found.rest, cli.check([], project.root).profile) == ("test", ["-k", "x"], "demo")


def test_the_folder_is_seen_from_where_the_user_is(project, monkeypatch):
    """Python alone: from the current folder; run_all.sh goes elsewhere, and says from where."""
    (project.root / "questions").mkdir()
    monkeypatch.delenv("CALLED_FROM", raising=False)  # as these tests' own run_all.sh left it
    monkeypatch.chdir(project.root)
    there = str(project.root / "questions")
    assert cli.check(["--data-dir", "questions"], project.root).data_dir == there
    monkeypatch.chdir("/")
    monkeypatch.setenv("CALLED_FROM", str(project.root))
    assert cli.check(["check", "demo", "--data-dir=questions"], project.root).data_dir == there
    assert cli.check([], project.root).data_dir is None


def test_a_profile_a_model_and_a_dataset_may_share_a_name(project):
    for folder in ("params", "params/models", "params/datasets"):
        (project.root / folder / "mine.yaml").touch()
    asked = cli.check(["mine", "--models", "mine", "--datasets", "mine"], project.root)
    assert (asked.profile, asked.models, asked.datasets) == ("mine", ["mine"], ["mine"])


@pytest.mark.parametrize("line", ["replay-x", "published", "check check", "verify replay-x"])
def test_a_profile_with_the_name_of_a_verb_is_refused(project, line):
    """It would never be run, or as a replay of what is shipped."""
    for name in ("replay-x", "published", "check"):
        (project.root / f"params/{name}.yaml").write_text("models: [tiny]\ndatasets: [easy]\n")
    with pytest.raises(cli.WordError, match=r"^params/[\w-]+.yaml has the name of a verb"):
        cli.check(line.split(), project.root)
    assert cli.check(["replay"], project.root).run == "replay"


@pytest.mark.parametrize("name", ["cli.py", "environment.py"])
def test_bootstrap_is_standard_library_and_old_syntax(name):
    for node in ast.walk(ast.parse((ROOT / "workflow" / name).read_text(), feature_version=(3, 8))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert {one.split(".")[0] for one in names} <= sys.stdlib_module_names


def test_shell_script_is_old_bash():
    source = (ROOT / "run_all.sh").read_text()
    for newer in ("mapfile", "readarray", "declare -A", "${verb,,}", "readlink -f", "setsid", "timeout "):
        assert newer not in source
    assert subprocess.run(["bash", "-n", str(ROOT / "run_all.sh")]).returncode == 0


@pytest.mark.parametrize("name", ["sitecustomize.py", "notebooks/types.py", "yaml/__init__.py"])
def test_modules_that_every_python_would_run_are_refused(project, name):
    """They would stand before the standard library's, in every job."""
    path = project.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("raise SystemExit('ran')")
    code, text = project.shell("replay")
    shown = name.removesuffix("/__init__.py")
    assert code == 2 and text.startswith(f"run_all.sh: every Python started here would import '{shown}'")


def test_the_first_python_runs_nothing_that_a_variable_names(project, tmp_path):
    for name in ("sitecustomize", "random", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('ran')")
    given = {"PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": "abc"}
    assert project.shell("help", cwd=tmp_path, **given) == (0, f"{cli.help_text(project.root)}\n")
    said = "run_all.sh: no signals of tiny are shipped in artifacts/shipped/demo/: ./run_all.sh demo computes them\n"
    assert project.shell("replay", cwd=tmp_path, **given) == (2, said)


def test_a_symbolic_link_to_the_script_itself(project, tmp_path):
    inside, outside = project.root / "go", tmp_path / "go"
    inside.symlink_to("run_all.sh")
    outside.symlink_to(inside)
    done = subprocess.run([str(outside), "help"], capture_output=True, text=True, env=project.environment())
    assert done.returncode == 0 and done.stdout.startswith("./run_all.sh [PROFILE]"), done.stderr
