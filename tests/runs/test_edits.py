"""The first edits that a reader makes to a notebook's parameters: each answers, or says in one line what to change."""

import ast
import json
import re
import subprocess
import sys

import pandas as pd
import pytest
from playing import SHIPPED_ONLY, play

from lib import random_streams
from lib.paths import ROOT, UserError
from lib.tasks import datasets
from lib.tasks.datasets import Example


@SHIPPED_ONLY
@pytest.mark.parametrize("name, edits", [
    ("02", {"models": ["tiny-qwen"], "bin_models": ["tiny-llama"], "grader": "exact", "bins": 5}),
    pytest.param("05", {"models": ["tiny-qwen"], "phi": "top_k", "grader": "relative"}, marks=pytest.mark.slow),
    pytest.param("06", {"seed": 1, "datasets": ["demo-easy"]}, marks=pytest.mark.slow),
    ("07", {"models": ["tiny-llama"], "datasets": ["demo-easy"]}),
    pytest.param("07", {"closed": "left", "transfer_models": []}, marks=pytest.mark.slow),
    # of a model without learning curves: those that are shipped are of the other
    pytest.param("08", {"models": ["tiny-qwen"], "datasets": ["demo-easy"]}, marks=pytest.mark.slow),
    pytest.param("10", {"models": ["tiny-llama"], "datasets": ["demo-easy"]}, marks=pytest.mark.slow),
], ids=str)  # fmt: skip
def test_other_rows_and_choices_answer(name, edits, monkeypatch, tmp_path):
    _, shown = play(name, monkeypatch, tmp_path, **edits)
    assert len(shown) > 2


@pytest.mark.slow
@SHIPPED_ONLY
@pytest.mark.filterwarnings("error::FutureWarning", "error::pandas.errors.Pandas4Warning")
def test_no_warning_stands_among_the_tables(monkeypatch, tmp_path):
    """A column may be empty: no promise can be made, or a method is not for an estimator."""
    play("10", monkeypatch, tmp_path, target_precisions=[0.99], datasets=["demo-hard"])
    play("05", monkeypatch, tmp_path, models=["tiny-qwen"], datasets=["demo-hard"])


@SHIPPED_ONLY
@pytest.mark.parametrize("name, edits, said", [
    ("02", {"closed": "both"}, "'closed' can't be 'both'; there is: left, right"),
    ("02", {"main_figure_dataset": "demo-eazy"}, "no dataset 'demo-eazy' in params/datasets/; did you mean 'demo"),
    ("07", {"datasets": []}, "'datasets' is []"),
    ("07", {"transfer_models": ["tiny-qwen", "tiny-qwen"]}, "'transfer_models' holds 'tiny-qwen' twice"),
    ("08", {"models": None}, "'models' is None"),
    ("05", {"resamples": 0}, "'resamples' is 0"),
    ("03", {"seed": -1, "limit": 2}, "'seed' is -1"),
    ("01b", {"limit": -1}, "'limit' is -1"),
    ("06", {"incorrect_fraction": float("nan")}, "'incorrect_fraction' is nan"),
    ("10", {"target_precisions": [2.0]}, "'target_precisions.0' is 2.0"),
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


@pytest.mark.slow
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


@pytest.mark.slow
@SHIPPED_ONLY
@pytest.mark.parametrize("name, edits", closing_edits(), ids=str)
def test_the_edits_that_a_notebook_proposes_answer_in_seconds(name, edits, monkeypatch, tmp_path):
    monkeypatch.setattr("lib.row_cache.ARTIFACTS", tmp_path)
    space, shown = play(name, monkeypatch, tmp_path, **edits)
    assert len(shown) > 2
    if "limit" in edits:  # the followed row is among the few, so that notebooks agree
        assert space["one"].example_id == "medium-0355"
