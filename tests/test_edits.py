"""The first edits that a reader makes to a notebook's parameters: each answers, or says in one line what to change."""

import ast
import json
import re
import subprocess
import sys
import time

import pandas as pd
import pytest

from lib import random_streams
from lib.paths import ROOT, SHIPPED, UserError
from lib.tasks import datasets
from lib.tasks.datasets import Example
from workflow.pipeline import NOTEBOOKS

SHIPPED_ONLY = pytest.mark.skipif(not SHIPPED.exists(), reason="the shipped demo signals are not in this copy")
QUICK = {"resamples": 100, "draws": 2, "run": "lab-edits"}


def play(name, monkeypatch, tmp_path, **edits):
    """The code cells of a notebook in one process, its parameters edited; what cells show is drawn and kept."""
    monkeypatch.setattr("lib.store.frame_path", lambda run, kind, part: tmp_path / kind / f"{part}.parquet")
    monkeypatch.chdir(ROOT / "notebooks")
    (path,) = (ROOT / "notebooks").glob(f"{name}_*.ipynb")
    shown: list = []
    space = {"display": lambda thing, **_: shown.append(thing)}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), path.stem, "exec"), space)
        if "parameters" in cell["metadata"].get("tags", []):
            (takes,) = [row.takes for row in NOTEBOOKS if row.name == path.stem]
            assert edits.keys() <= {*space, *takes}, "parameters of this notebook"
            space |= {key: value for key, value in (QUICK | edits).items() if key in space or key in takes}
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), path.stem, "eval"), space))
    for thing in shown:
        getattr(thing, "_repr_mimebundle_", getattr(thing, "_repr_html_", str))()
    return space, shown


@SHIPPED_ONLY
@pytest.mark.parametrize("name, edits", [
    ("02", {"datasets": ["demo-easy"]}),
    ("02", {"models": ["tiny-qwen"], "bin_models": ["tiny-llama"]}),
    ("05", {"datasets": ["demo-easy"]}),
    ("05", {"models": ["tiny-qwen"]}),
    ("06", {"datasets": ["demo-easy"]}),
    ("07", {"datasets": ["demo-easy", "demo-medium"]}),
    ("07", {"models": ["tiny-qwen"]}),
    ("07", {"models": ["tiny-llama"], "datasets": ["demo-easy"]}),
    ("02", {"grader": "exact", "bins": 5}),
    ("05", {"phi": "top_k", "grader": "relative"}),
    ("05", {"models": ["tiny-llama"], "datasets": ["demo-easy"], "figure_dataset": "demo-easy"}),
    ("06", {"seed": 1, "datasets": ["demo-medium"]}),
    ("07", {"closed": "left", "transfer_models": []}),
    ("10", {"models": ["tiny-llama"], "datasets": ["demo-easy"]}),
], ids=str)  # fmt: skip
def test_other_rows_and_choices_answer(name, edits, monkeypatch, tmp_path):
    started = time.monotonic()
    play(name, monkeypatch, tmp_path, **edits)
    assert time.monotonic() - started < 60


@pytest.mark.slow
@SHIPPED_ONLY
def test_tables_are_set_of_a_model_without_learning_curves(monkeypatch, tmp_path):
    """Those that are shipped are of the other model."""
    play("08", monkeypatch, tmp_path, models=["tiny-qwen"], datasets=["demo-easy"])


@SHIPPED_ONLY
@pytest.mark.filterwarnings("error::FutureWarning", "error::pandas.errors.Pandas4Warning")
def test_no_warning_stands_among_the_tables(monkeypatch, tmp_path):
    """A column may be empty: no promise can be made, or a method is not for an estimator."""
    play("10", monkeypatch, tmp_path, target_precisions=[0.99], datasets=["demo-hard"])
    play("05", monkeypatch, tmp_path, models=["tiny-qwen"], datasets=["demo-hard"])


@SHIPPED_ONLY
@pytest.mark.parametrize("name, edits, said", [
    ("02", {"bins": 0}, "'bins' is 0"),
    ("02", {"closed": "both"}, "'closed' can't be 'both'; there is: left, right"),
    ("02", {"main_figure_dataset": "demo-eazy"}, "no dataset 'demo-eazy' in params/datasets/; did you mean 'demo"),
    ("05", {"options": "yes/no"}, "'options' can't be 'yes/no'; there is: A/B, True/False"),
    ("07", {"transfer_models": ["llama"]}, "there is no model 'llama'"),
    ("07", {"datasets": []}, "'datasets' is []"),
    ("02", {"models": ["tiny-llama", "tiny-llama"]}, "'models' holds 'tiny-llama' twice"),
    ("06", {"datasets": ["demo-easy", "demo-hard", "demo-easy"]}, "'datasets' holds 'demo-easy' twice"),
    ("07", {"transfer_models": ["tiny-qwen", "tiny-qwen"]}, "'transfer_models' holds 'tiny-qwen' twice"),
    ("05", {"models": None}, "'models' is None"),
    ("08", {"models": None}, "'models' is None"),
    ("10", {"datasets": "demo-easy"}, "'datasets' is 'demo-easy'"),
    ("05", {"resamples": 0}, "'resamples' is 0"),
    ("08", {"resamples": 0}, "'resamples' is 0"),
    ("05", {"seed": -1}, "'seed' is -1"),
    ("03", {"seed": -1, "limit": 2}, "'seed' is -1"),
    ("01b", {"limit": -1}, "'limit' is -1"),
    ("06", {"calibration_sizes": [-5]}, "'calibration_sizes.0' is -5"),
    ("06", {"draws": 0}, "'draws' is 0"),
    ("06", {"incorrect_fraction": 2}, "'incorrect_fraction' is 2"),
    ("06", {"incorrect_fraction": float("nan")}, "'incorrect_fraction' is nan"),
    ("10", {"target_precisions": [2.0]}, "'target_precisions.0' is 2.0"),
    ("10", {"precision_confidence": 0}, "'precision_confidence' is 0"),
], ids=str)  # fmt: skip
def test_a_mistake_is_one_line(name, edits, said, monkeypatch, tmp_path):
    with pytest.raises(UserError) as error:
        play(name, monkeypatch, tmp_path, **edits)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_limit_takes_the_first_of_one_random_order():
    """As 01 does with questions, so that a limit repeated in 03 or 04 takes nothing away."""
    splits = {f"{split[0]}{i}": split for split in ("calibration", "evaluation") for i in range(20)}
    frame = pd.DataFrame({"dataset": "d", "split": splits.values(), "example_id": splits.keys()})
    few, more = (random_streams.first_rows(frame, count, seed=3) for count in (4, 9))
    assert few.groupby("split").size().tolist() == [4, 4] and set(few.example_id) < set(more.example_id)
    examples = [Example(name, split, "q", "1") for name, split in splits.items()]
    assert set(few.example_id) == {example.example_id for example in datasets.select_examples(examples, 4, 3, "d")}
    assert list(more.example_id) == [name for name in frame.example_id if name in set(more.example_id)]
    assert random_streams.first_rows(few, 4, seed=3).equals(few) and random_streams.first_rows(frame, 0, seed=3).equals(
        frame
    )
    assert set(random_streams.first_rows(frame, 4, seed=4).example_id) != set(few.example_id)


def test_a_notebook_does_not_begin_with_a_warning_in_red():
    """As a kernel imports the model's libraries, without ipywidgets."""
    cells = json.loads((ROOT / "notebooks" / "01_generate.ipynb").read_text(encoding="utf-8"))["cells"]
    (imports,) = ["".join(cell["source"]) for cell in cells if "".join(cell["source"]).startswith("import ")]
    done = subprocess.run([sys.executable, "-c", f"import ipykernel.zmqshell\n{imports}\nimport tqdm.auto"], cwd=ROOT,
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stderr == ""


def closing_edits() -> list[tuple[str, dict]]:
    """Of every notebook, the edits that its last paragraph proposes."""
    found = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if path.stem == "08_tables":  # sets what the others made
            continue
        last = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][-1]["source"])
        assert last.startswith("## Exercises\n"), path.stem
        lines = re.findall(r"^- `([^`]+)`: \w", last, flags=re.M)
        assert len(lines) == 2, path.stem
        for line in lines:
            assigned = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(line).body}
            found.append((path.stem.split("_")[0], assigned))
    return found


@SHIPPED_ONLY
@pytest.mark.parametrize("name, edits", closing_edits(), ids=str)
def test_the_edits_that_a_notebook_proposes_answer_in_seconds(name, edits, monkeypatch, tmp_path):
    monkeypatch.setattr("lib.row_cache.ARTIFACTS", tmp_path)
    started = time.monotonic()
    space, _ = play(name, monkeypatch, tmp_path, **edits)
    assert time.monotonic() - started < 90
    if "limit" in edits:  # the followed row is among the few, so that notebooks agree
        assert space["one"].example_id == "medium-0355"
