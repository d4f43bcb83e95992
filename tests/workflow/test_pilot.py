"""The pilot: the paper's run in little, by the same parameters. It goes through every notebook in
tests/runs/test_new_models.py."""

from lib import params

LESS = {"title", "models", "datasets", "limit", "n_tuning_examples", "ablation_limit", "calibration_sizes"}
FOLLOWS = {"bin_models", "main_figure_model", "main_figure_dataset", "figure_model", "figure_dataset",
           "transfer_models", "transfer_datasets"}  # fmt: skip


def test_it_is_the_papers_run_with_fewer_rows():
    pilot, paper = (params.load_profile(name).model_dump() for name in ("pilot", "paper"))
    assert {name for name in paper if pilot[name] != paper[name]} == LESS | FOLLOWS
    assert set(pilot["models"]) < set(paper["models"]) and set(pilot["datasets"]) < set(paper["datasets"])
    assert 0 < pilot["limit"] <= 8
