"""The paper's run, as its files describe it: settings, revisions, and what it covers."""

import re

from lib import params
from lib.paper import numbers_of_paper

PAPER = params.load_profile("paper")
MODELS = {name: params.load_model_config(name) for name in PAPER.models}


PRINTED = numbers_of_paper.reference_numbers()


def test_decoding_settings_are_the_papers():
    printed = PRINTED.query("table == 'inference_settings'").pivot(index="model", columns="metric", values="text")
    assert len(printed) == len(MODELS) == 5
    for spec in MODELS.values():
        row = printed.loc[spec.label]
        numbers = map(float, row[["Temperature", "Top-$p$", "Top-$k$", "Min-$p$"]])
        assert [spec.temperature, spec.top_p, spec.top_k, spec.min_p] == list(numbers)
        assert spec.system_prompt == (row["System prompt"] == "Yes") and re.fullmatch("[0-9a-f]{40}", spec.revision)
    assert {spec.source for spec in MODELS.values()} == set(numbers_of_paper.paper_facts()["models"].values())
    assert [name for name, spec in MODELS.items() if spec.thinking] == ["deepseek-r1-8b", "qwen3-8b-thinking"]


def test_the_profile_covers_what_the_paper_shows():
    labels = {spec.label: name for name, spec in MODELS.items()}
    datasets = {name: params.load_dataset_config(name) for name in PAPER.datasets}
    main, bins = (PRINTED[PRINTED.table == table] for table in ("result_estimation", "bin_ablation"))
    assert [labels[label] for label in main.model.unique()] == PAPER.models
    assert list(main.dataset.unique()) == [one.label for one in datasets.values()]
    assert [labels[label] for label in bins.model.unique()] == PAPER.bin_models
    assert sorted(bins.bins.unique()) == PAPER.n_bins_ablation
    assert sorted(PRINTED.rate.dropna().unique()) == PAPER.dropout_rates
    assert (PAPER.main_figure_model, PAPER.figure_dataset) == ("llama-3.1-8b", "gsmhard")
    assert PAPER.transfer_models == ["llama-3.1-8b", "qwen3-4b-instruct"] and PAPER.demonstration == "one"
    sizes = {name: (one.calibration, one.evaluation) for name, one in datasets.items()}
    assert sizes == {"gsm8k": (7473, 1319), "gsmhard": (919, 400), "svamp": (700, 300)}


def test_the_pilot_is_the_papers_run_with_fewer_rows():
    """Of fewer models and datasets; whatever names one of them follows."""
    pilot, paper = params.load_profile("pilot").model_dump(), PAPER.model_dump()
    less = {"title", "limit", "n_tuning_examples", "ablation_limit", "calibration_sizes"}
    assert less == {name for name in paper if pilot[name] != paper[name] and not re.search("models?$|datasets?$", name)}
    assert set(pilot["models"]) < set(paper["models"]) and set(pilot["datasets"]) < set(paper["datasets"])
    assert 0 < pilot["limit"] <= 8
