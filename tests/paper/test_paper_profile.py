"""The paper's run, as its files describe it: settings, revisions, and what it covers."""

import re
from dataclasses import replace

from lib import params
from lib.analysis.run_results import results_without_frames
from lib.paper import numbers_of_paper, report_contents

PAPER = params.load_profile("paper")
PUBLISHED = numbers_of_paper.published()


def test_its_models_settings_questions_and_tables_are_the_papers():
    here = results_without_frames(PAPER.models, PAPER.datasets, bin_models=PAPER.bin_models)
    files = {name: params.load_dataset_config(name) for name in PAPER.datasets}
    questions = {name: (one.source, one.calibration, one.evaluation) for name, one in files.items()}
    assert report_contents.find_foreign(replace(here, questions=questions), PUBLISHED) == {}
    for labels in ("models", "datasets", "bin_labels"):
        assert [*getattr(here, labels).values()] == [*getattr(PUBLISHED, labels)]
    assert all(re.fullmatch("[0-9a-f]{40}", spec.revision) for spec in here.settings)
    assert [spec.label for spec in here.settings if spec.thinking] == ["DeepSeek-R1-8B", "Qwen3-8B-Thinking"]


def test_its_rates_bins_and_figures_are_the_papers():
    printed = numbers_of_paper.reference_numbers()
    assert sorted(printed.bins.dropna().unique()) == PAPER.n_bins_ablation
    assert sorted(printed.rate.dropna().unique()) == PAPER.dropout_rates
    assert (PAPER.main_figure_model, PAPER.figure_dataset) == ("llama-3.1-8b", "gsmhard")
    assert PAPER.transfer_models == ["llama-3.1-8b", "qwen3-4b-instruct"] and PAPER.demonstration == "one"
    assert PAPER.transfer_datasets == ["gsm8k", "gsmhard"]


def test_the_pilot_is_the_papers_run_with_fewer_rows():
    """Of fewer models and datasets; whatever names one of them follows."""
    pilot, paper = params.load_profile("pilot").model_dump(), PAPER.model_dump()
    less = {"title", "limit", "n_tuning_examples", "ablation_limit", "calibration_sizes"}
    assert less == {name for name in paper if pilot[name] != paper[name] and not re.search("models?$|datasets?$", name)}
    assert set(pilot["models"]) < set(paper["models"]) and set(pilot["datasets"]) < set(paper["datasets"])
    assert 0 < pilot["limit"] <= 8
