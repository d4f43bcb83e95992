"""The first edits that a reader makes to a notebook's parameters: each answers, or says in one line
what to change."""

import ast
import json
import re

import pytest
from playing import play

from lib.errors import UserError
from lib.paths import ROOT

# An empty column warns: no promise can be made, or a method is not for an estimator.
pytestmark = pytest.mark.filterwarnings(
    "error::FutureWarning", "error::pandas.errors.Pandas4Warning"
)


MISTAKES = [
    ("02", {"missing": "last"},
     "'missing' is 'last'; input should be 'last_number', 'drop' or 'zero'"),
    ("02", {"main_figure_dataset": "demo-eazy"},
     "no dataset 'demo-eazy' in params/datasets/; did you mean 'demo"),
    ("07", {"transfer_models": ["tiny-qwen", "tiny-qwen"]},
     "a list of models holds 'tiny-qwen' twice"),
    ("03", {"seed": -1, "limit": 2}, "'seed' is -1"),
    ("06", {"incorrect_fraction": float("nan")}, "'incorrect_fraction' is nan"),
]  # fmt: skip


@pytest.mark.parametrize("number, edits, message", MISTAKES, ids=str)
def test_a_mistake_is_one_line(number, edits, message, monkeypatch, tmp_path):
    with pytest.raises(UserError) as error:
        play(number, monkeypatch, tmp_path, **edits)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def closing_edits() -> list[tuple[str, dict]]:
    """Of every notebook but 08, which sets what the others made, the edits that its last paragraph
    proposes."""
    edits = []
    for path in sorted((ROOT / "notebooks").glob("[01][!8]*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        last = "".join(cells[-1]["source"])
        lines = re.findall(r"^- `([^`]+)`: \w", last, flags=re.M)
        assert last.startswith("## Exercises\n") and lines, path.stem
        for line in lines:
            values = {}
            for node in ast.parse(line).body:
                values[node.targets[0].id] = ast.literal_eval(node.value)
            edits.append((path.stem.split("_")[0], values))
    return edits


OTHER_MODEL = {"models": ["tiny-qwen"], "bin_models": ["tiny-llama"], "grader": "exact", "bins": 5}
SLOW_EDITS = [
    ("09", {"target_precisions": [0.99], "datasets": ["demo-hard"]}),
    ("05", {"models": ["tiny-qwen"], "datasets": ["demo-hard"]}),
    # of a model without learning curves: those that are shipped are of the other
    ("08", {"models": ["tiny-qwen"], "datasets": ["demo-easy"]}),
    *closing_edits(),
]
EDITS = [
    ("02", OTHER_MODEL),
    *(pytest.param(*edits, marks=pytest.mark.slow) for edits in SLOW_EDITS),
]


@pytest.mark.parametrize("number, edits", EDITS, ids=str)
def test_edits_answer_in_seconds(number, edits, monkeypatch, tmp_path):
    monkeypatch.setattr("lib.store.run_folder", lambda run: tmp_path / run)
    # which reads every frame again for each choice
    fewer = {"datasets": ["demo-hard"]} if number == "09" else {}
    played = play(number, monkeypatch, tmp_path, **fewer | edits)
    assert len(played.outputs) > 2
    if "limit" in edits:  # the followed row is among the few, so that notebooks agree
        assert played.names["followed"].example_id == "medium-0355"
