"""The pilot: the paper's run in little, by the same parameters, through the whole pipeline."""

import sys

import pytest
from small_project import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from clone import copy_of_project, edit, walk_through

from lib import params

LESS = {"title", "models", "datasets", "limit", "n_tuning_examples", "ablation_limit", "calibration_sizes"}
FOLLOWS = {"bin_models", "main_figure_model", "main_figure_dataset", "figure_model", "figure_dataset",
           "transfer_models", "transfer_datasets"}  # fmt: skip


def test_it_is_the_papers_run_with_fewer_rows():
    pilot, paper = (params.load_profile(name).model_dump() for name in ("pilot", "paper"))
    assert {name for name in paper if pilot[name] != paper[name]} == LESS | FOLLOWS
    assert set(pilot["models"]) < set(paper["models"]) and set(pilot["datasets"]) < set(paper["datasets"])
    assert 0 < pilot["limit"] <= 8


@pytest.mark.slow
def test_eight_questions_go_through_everything(tmp_path):
    """With the demo's model, as transformers draws: neither vLLM nor the hub is here."""
    root = copy_of_project(tmp_path)
    edit(
        root / "params" / "pilot.yaml",
        engine="transformers",
        max_new_tokens=256,
        models=["tiny-llama"],
        datasets=["demo-easy"],
    )
    walk_through(root, "pilot")
    assert len(list((root / "figures" / "pilot").glob("tab_*.tex"))) >= 10
