"""A run with models or datasets of the user has a name and folders of its own, which every verb
finds again by the same words."""

import pytest
import yaml
from small_project import write

from lib import parameter_schemas, params
from lib.tasks import datasets
from workflow import dataset_file, lab
from workflow.cli import parse_and_check
from workflow.run import main
from workflow.run_plan import plan


@pytest.fixture
def own(inside):
    """The small project, whose profile has the model `tiny` and the dataset `easy`, with two
    datasets of the user."""
    for name in ("sums", "bills"):
        text = inside.read("params/datasets/easy.yaml").replace("Easy", name.title())
        write(inside.root / f"params/datasets/{name}.yaml", text)
    return inside


@pytest.mark.parametrize("words, name", [
    ("demo", "demo"),
    ("--models tiny", "demo"),
    ("--models tiny --datasets easy", "demo"),
    ("--add-models other", "demo"),
    ("--add-datasets sums", "demo"),
    ("demo --models other", "other"),
    ("--models other tiny", "other"),
    ("--models other --add-datasets sums", "other-sums"),
    ("--datasets sums", "sums"),
    ("--datasets bills sums --models other", "other-bills-sums"),
    ("--datasets bills --models other --name mine", "mine"),
    ("--name mine", "mine"),
])  # fmt: skip
def test_the_name_of_a_run(own, words, name):
    run = plan(parse_and_check(words.split()))
    assert (run.name, run.folder, run.figures) == (name, f"artifacts/{name}", f"figures/{name}")
    if name != "demo":
        again = plan(parse_and_check(run.command.split()))
        assert again == run and again.values == run.values


@pytest.mark.parametrize("verb", [["check"], ["requests"], ["finding", "1"], ["lab"]])
def test_every_verb_finds_the_same_run(own, verb):
    words = ["demo", "--models", "other", "--datasets", "sums"]
    assert plan(parse_and_check([*verb, *words])).name == "other-sums"
    assert plan(parse_and_check([*verb, *words, "--name", "mine"])).name == "mine"


@pytest.mark.parametrize("words, message", [
    ("--name replay-x", "run 'replay-x': a profile, a verb or a folder of the project has this"),
    ("--models other --name lab", "run 'lab': a profile, a verb or a folder"),
    ("--name DEMO", "run 'DEMO': a profile"),
    ("--name a/b", "run 'a/b': its name needs letters"),
    ("replay --name mine", "replay takes no --name"),
    ("published --name mine", "published takes no --name"),
    ("verify --models other", "other__easy.parquet is not shipped: ./run_all.sh demo --models oth"),
])  # fmt: skip
def test_a_name_that_is_taken_is_one_line(own, capsys, words, message):
    assert main(words.split()) == 2
    text = "".join(capsys.readouterr())
    assert text.count("\n") == 1 and message in text


def test_a_model_named_as_a_profile_needs_another_name(own, capsys):
    write(own.root / "params/models/check.yaml", own.read("params/models/other.yaml"))
    assert main(["--models", "check"]) == 2
    assert "run 'check': a profile, a verb" in capsys.readouterr().err
    assert main(["--models", "check", "--name", "mine", "--dry-run"]) == 0
    assert "mine: 4 of 4 jobs would run" in capsys.readouterr().out


def test_own_runs_leave_the_results_of_others(copy):
    """Two runs on different questions do not replace each other's files, nor the demo's."""
    before = {path: path.read_bytes() for path in (copy.root / "figures/demo").iterdir()}
    for name in ("sums", "bills"):
        text = copy.read("params/datasets/easy.yaml").replace("Easy", name.title())
        write(copy.root / f"params/datasets/{name}.yaml", text)
        code, text = copy.run("--datasets", name)
        assert code == 0 and f"report: figures/{name}/report.html" in text
    assert {path: path.read_bytes() for path in (copy.root / "figures/demo").iterdir()} == before
    code, text = copy.run("demo")
    assert code == 0 and "demo: 0 of 4 jobs ran" in text
    for name in ("sums", "bills"):
        code, text = copy.run("--datasets", name)
        assert code == 0 and f"{name}: 0 of 4 jobs ran" in text
    code, text = copy.run("--datasets", "sums", "--force", "02", "--dry-run")
    assert code == 0 and text.splitlines()[0].startswith("02_single_pass")


def test_lab_opens_what_a_run_has_executed(own):
    assert lab.first_notebook(["lab"]) == "notebooks/00_overview.ipynb"
    assert lab.first_notebook(["lab", "--", "--port=1"]) == "notebooks/00_overview.ipynb"
    with pytest.raises(lab.UserError, match="run_all.sh demo --models other makes it"):
        lab.first_notebook(["lab", "demo", "--models", "other"])
    executed = "artifacts/other/notebooks/02_single_pass.ipynb"
    write(own.root / executed, "{}")
    assert lab.first_notebook(["lab", "demo", "--models", "other"]) == executed


# ---- a file of questions in place of a dataset's name

CSV = "question,answer\n" + "".join(f"How many is {n} and 1?,{n + 1}\n" for n in range(7))


def test_a_file_of_questions_is_a_dataset_of_two_halves(copy, tmp_path):
    """Named by its path from where the user stands; the next command may name the file or the
    dataset."""
    write(tmp_path / "my sums (2).csv", CSV)
    words = ("--datasets", "my sums (2).csv")
    code, text = copy.run(*words, "--dry-run", shell=True, cwd=tmp_path)
    assert code == 0 and "my-sums-2: 4 of 4 jobs would run" in text
    assert not (copy.root / "params/datasets/my-sums-2.yaml").exists()
    code, text = copy.run(*words, shell=True, cwd=tmp_path)
    assert code == 0 and "report: figures/my-sums-2/report.html" in text
    assert str(tmp_path) not in copy.read("params/datasets/my-sums-2.yaml")
    for again in (words, ("--datasets", "my-sums-2")):
        code, text = copy.run(*again, shell=True, cwd=tmp_path)
        assert code == 0 and "my-sums-2: 0 of 4 jobs ran" in text


@pytest.mark.parametrize("name, text, message", [
    ("mine.csv", "Ask,Gold\nHow many?,1\n", "mine.csv: no column 'question'; there is: Ask, Gold"),
    ("mine.csv", "question\nHow many?\n", "no column 'answer'; there is: question: rename it, or"),
    ("mine.csv", "question,answer\n", "mine.csv: no row with the columns question and answer"),
    ("mine.xlsx", "PK", "files of questions end in .jsonl"),
    ("easy.csv", CSV, "params/datasets/easy.yaml is of other questions than easy.csv"),
    ("?!.csv", CSV, "has no letters or digits: rename it"),
    ("mine.csv", "question,answer\nHow many?,some\nB?,2\n", "row 1: no number in the answer"),
    ("mine.csv", "question,answer\nHow many?,1\n", "expected halves of at least 1 questions"),
])  # fmt: skip
def test_a_file_that_holds_no_questions_is_one_line(own, tmp_path, name, text, message):
    before = sorted(path for path in own.root.rglob("*") if path.suffix != ".pyc")
    write(tmp_path / "given" / name, text)
    words = ["demo", "--datasets", str(tmp_path / "given" / name)]
    with pytest.raises(lab.UserError) as caught:
        run = plan(parse_and_check(words))
        for dataset in run.values["datasets"]:
            datasets.load_examples(params.load_dataset_config(dataset))
    assert message in str(caught.value)
    assert sorted(path for path in own.root.rglob("*") if path.suffix != ".pyc") == before


def test_a_file_that_is_not_there(own, capsys):
    assert main(["--datasets", "nowhere.csv"]) == 2
    message = "run_all.sh: --datasets: there is no file or folder 'nowhere.csv'\n"
    assert "".join(capsys.readouterr()) == message


def test_a_dataset_may_calibrate_alone_beside_another(own):
    own.replace("params/datasets/sums.yaml", "evaluation: ", "evaluation: 0  # ")
    with pytest.raises(lab.UserError, match="no question is left to evaluate: sums has `evaluatio"):
        plan(parse_and_check(["--datasets", "sums"]))
    assert plan(parse_and_check(["--datasets", "sums", "easy"])).values["datasets"]


def test_the_file_of_a_dataset_is_written_as_a_person_would(tmp_path, monkeypatch):
    """Its label first, then where its questions are."""
    mine = parameter_schemas.Dataset(label="Mine", source={"all": "my sums.csv"}, seed=0)
    monkeypatch.setattr(params, "UNWRITTEN", {"sums": mine})
    monkeypatch.setattr(dataset_file, "parameter_file", lambda name: tmp_path / f"{name}.yaml")
    dataset_file.write_files()
    values = yaml.safe_load((tmp_path / "sums.yaml").read_text())
    first, second, *_, last = values
    assert (first, second, last) == ("label", "source", "seed")
    assert not params.UNWRITTEN
