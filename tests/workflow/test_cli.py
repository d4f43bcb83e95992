"""A wrong word: one line that names the nearest right one, exit code 2, nothing run, nothing installed."""

import ast
import subprocess
import sys

import pytest
from small_project import ROOT

from workflow import cli


@pytest.mark.parametrize(
    "line, hint",
    [
        ("dmo", "unknown profile or verb 'dmo': did you mean 'demo'?"),
        ("chek demo", "unknown profile or verb 'chek': did you mean 'check'?"),
        ("repaly", "did you mean 'replay'?"),
        ("publshed", "unknown profile or verb 'publshed': did you mean 'published'?"),
        ("published --models tiny", "it takes no --models, --datasets"),
        ("check tiny", "unknown profile or verb 'tiny'"),
        ("check demo tiny", "one profile or verb at a time: 'tiny' is one too many"),
        ("--model tiny", "unknown option '--model': did you mean '--models'?"),
        ("demo --add-models tinny", "unknown model 'tinny': did you mean 'tiny'?"),
        ("demo --models tiny othr", "unknown model 'othr': did you mean 'other'?"),
        ("demo --datasets eazy", "unknown dataset 'eazy': did you mean 'easy'?"),
        ("demo --datasets qqqq", "unknown dataset 'qqqq': there is: easy"),
        ("demo --force 11", "unknown notebook '11'"),
        ("demo --cores none", "--cores takes a whole number from 1 up, not 'none'"),
        ("demo --cores 0", "--cores takes a whole number from 1 up, not '0'"),
        ("demo replay", "one profile or verb at a time: 'replay' is one too many"),
        ("replay demo demo", "one profile or verb at a time: 'demo' is one too many"),
        ("replay demmo", "unknown profile 'demmo': did you mean 'demo'?"),
        ("verify demmo", "unknown profile 'demmo': did you mean 'demo'?"),
        ("verify demo demo", "one profile or verb at a time: 'demo' is one too many"),
        ("verfy", "unknown profile or verb 'verfy': did you mean 'verify'?"),
        ("--add-models tiny demo", "'demo' is no model: the profile or verb comes before the options"),
        ("demo --add-models", "argument --add-models: expected at least one argument"),
        (
            "demo --data-dir nowhere",
            "--data-dir needs the folder of the published files, and there is no folder",
        ),
        ("demo --dta nowhere", "unknown option '--dta': did you mean '--datasets'?"),
        ("replay --data-dir .", "replay asks no questions: it takes no --data-dir"),
        ("published --data-dir .", "published asks no questions: it takes no --data-dir"),
        ("lab --data-dir .", "lab takes no --data-dir"),
        ("lab --cpu", "lab takes no --cpu"),
        ("replay --cpu", "replay runs no model: it takes no --cpu"),
        ("demo --cpus", "unknown option '--cpus': did you mean '--cpu'?"),
        ("check demo --gpu", "there is no option '--gpu' any more: ./run_all.sh pilot runs"),
        ("demo --only tiny", "there is no option '--only' any more: --models A B takes these instead of the profile's"),
        ("demo --remake=01", "there is no option '--remake' any more: it is --force 01 now"),
        ("demo --data .", "there is no option '--data' any more: it is --data-dir FOLDER now"),
        ("lab --cores 2", "lab takes no --cores; its own options come after --"),
        ("finding", "finding takes the number of one, 1, 2, 3, 4, as ./run_all.sh finding 3"),
        ("finding 7", "finding takes the number of one, 1, 2, 3, 4, not '7'"),
        ("finding 3 dmo", "unknown profile or verb 'dmo': did you mean 'demo'?"),
        ("finding 3 published", "finding 3 is followed by a profile, or by replay, not by published"),
        ("finding 3 check demo", "finding 3 is followed by a profile, or by replay, not by check"),
        ("demo -- --port 1", "only lab and test take words after --"),
        ("book bok", "unknown profile or verb 'bok': did you mean 'book'?"),
        ("book lab", "book is followed by a profile, by replay or by published, not by lab"),
        ("book check demo", "book is followed by a profile, by replay or by published, not by check"),
        ("finding 3 book", "finding 3 is followed by a profile, or by replay, not by book"),
    ],
)
def test_a_wrong_word_is_one_line(project, line, hint):
    code, text = project.shell(*line.split(), PATH="/usr/bin:/bin:" + sys.prefix + "/bin")
    assert code == 2
    assert hint in text
    assert len(text.strip().splitlines()) == 1
    assert not (project.root / "artifacts").exists()


def test_a_wrong_word_installs_nothing(project):
    done = subprocess.run(
        [str(project.root / "run_all.sh"), "demmo"],
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert not (project.root / ".venv").exists() and not (project.root / ".venv.lock").exists()


@pytest.mark.parametrize(
    "line, verb", [("", "demo"), ("replay", "replay"), ("lab -- --no-browser", "lab"), ("test -- -k x", "test")]
)
def test_right_words(project, line, verb):
    found = cli.check(line.split(), project.root)
    assert found.verb == verb
    assert found.rest == (line.split("-- ")[1].split() if "-- " in line else [])


def test_verify_is_of_a_profile_and_takes_its_options(project):
    for line, profile in (("verify", "demo"), ("verify demo --models tiny", "demo")):
        found = cli.check(line.split(), project.root)
        assert (found.verb, found.profile, found.run, found.verify) == ("verify", profile, profile, True)
    assert not cli.check(["demo"], project.root).verify


def test_options(project):
    line = "demo --models tiny --add-models other --datasets easy --force 1 02_single_pass --cores=3"
    found = cli.check(line.split(), project.root)
    assert (found.models, found.add_models, found.datasets) == (["tiny"], ["other"], ["easy"])
    assert (found.force, found.cores) == (["01", "02"], 3)


def test_the_folder_is_seen_from_where_the_user_is(project, monkeypatch):
    """Python alone: from the current folder; run_all.sh goes elsewhere, and says from where."""
    (project.root / "questions").mkdir()
    monkeypatch.delenv("CALLED_FROM", raising=False)  # as these tests' own run_all.sh left it
    monkeypatch.chdir(project.root)
    assert cli.check(["--data-dir", "questions"], project.root).data_dir == str(project.root / "questions")
    monkeypatch.chdir("/")
    monkeypatch.setenv("CALLED_FROM", str(project.root))
    assert cli.check(["check", "demo", "--data-dir=questions"], project.root).data_dir == str(
        project.root / "questions"
    )
    assert cli.check([], project.root).data_dir is None


@pytest.mark.parametrize(
    "word, number", [("1", "01"), ("01", "01"), ("4b", "04b"), ("04b_ablation", "04b"), ("12", "12"), ("x", "x")]
)
def test_numbers_of_notebooks(word, number):
    assert cli.number(word) == number


def test_a_profile_a_model_and_a_dataset_may_share_a_name(tmp_path):
    for folder in ("params", "params/models", "params/datasets", "notebooks"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "mine.yaml").touch()
    asked = cli.check(["mine", "--models", "mine", "--datasets", "mine"], tmp_path)
    assert (asked.profile, asked.models, asked.datasets) == ("mine", ["mine"], ["mine"])


@pytest.mark.parametrize("line", ["replay-x", "published", "check", "check check", "verify replay-x", "book replay-x"])
def test_a_profile_with_the_name_of_a_verb_is_refused(project, line):
    """It would never be run, or as a replay of what is shipped."""
    for name in ("replay-x", "published", "check"):
        (project.root / f"params/{name}.yaml").write_text("models: [tiny]\ndatasets: [easy]\n")
    with pytest.raises(cli.WordError, match=r"^params/[\w-]+.yaml bears a name that is kept for a verb"):
        cli.check(line.split(), project.root)
    assert cli.check(["replay"], project.root).run == "replay"


def test_help_fits_a_screen():
    done = subprocess.run([str(ROOT / "run_all.sh"), "help"], capture_output=True, text=True)
    lines = done.stdout.rstrip("\n").split("\n")
    assert done.returncode == 0 and len(lines) <= 24 and max(map(len, lines)) <= 80
    for word in (*cli.VERBS, "demo", *cli.OPTIONS[:-1]):
        assert word in done.stdout


@pytest.mark.parametrize("name", ["cli.py", "environment.py"])
def test_bootstrap_is_standard_library_and_old_syntax(name):
    source = (ROOT / "workflow" / name).read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert {one.split(".")[0] for one in names} <= sys.stdlib_module_names


def test_shell_script_is_old_bash():
    source = (ROOT / "run_all.sh").read_text()
    for newer in ("mapfile", "readarray", "declare -A", "${verb,,}", "readlink -f", "setsid", "timeout "):
        assert newer not in source
    assert subprocess.run(["bash", "-n", str(ROOT / "run_all.sh")]).returncode == 0


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize.py", "json.py", "random/__init__.py",
                                  "notebooks/types.py", "notebooks/sitecustomize/__init__.py", "workflow/json.py",
                                  "psutil.py", "yaml/__init__.py"])  # fmt: skip
def test_modules_that_every_python_would_run_are_refused(project, name):
    """They would stand before the standard library's, in every job."""
    path = project.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("raise SystemExit('ran')")
    code, text = project.shell("replay")
    shown = name.removesuffix("/__init__.py")
    assert code == 2 and text.startswith(f"run_all.sh: '{shown}' would be run by every Python that works here")
    assert len(text.strip().splitlines()) == 1


def test_the_first_python_runs_nothing_that_a_variable_names(project, tmp_path):
    for name in ("sitecustomize", "random", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('ran')")
    given = {"PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": "abc"}
    assert project.shell("help", cwd=tmp_path, **given) == (0, f"{cli.help_text(project.root)}\n")
    said = "run_all.sh: no signals of tiny are shipped in artifacts/shipped/demo/: ./run_all.sh demo makes its own\n"
    assert project.shell("replay", cwd=tmp_path, **given) == (2, said)


def test_modules_of_other_names_may_be_there():
    assert cli.intruder(ROOT) is None


def test_escape_bytes_are_spelt_out(project):
    code, text = project.shell("\x1b[31mred\u202e\x07")
    assert code == 2 and text.startswith("run_all.sh: unknown profile or verb '\\x1b[31mred\\u202e\\x07'")


def test_a_symbolic_link_to_the_script_itself(project, tmp_path):
    inside, outside = project.root / "go", tmp_path / "elsewhere" / "go"
    inside.symlink_to("run_all.sh")
    outside.parent.mkdir()
    outside.symlink_to(inside)
    for link in (inside, outside):
        done = subprocess.run([str(link), "help"], capture_output=True, text=True, env=project.environment())
        assert done.returncode == 0 and done.stdout.startswith("./run_all.sh [PROFILE]"), done.stderr
