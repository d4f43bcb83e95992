"""The paper's run, as its files describe it: settings, revisions, and what it covers."""

import re

from lib import params
from lib.paper import reference

PAPER = params.load_profile("paper")


def test_decoding_settings_are_the_papers():
    printed = reference.reference_numbers().query("table == 'inference_settings'")
    printed = printed.pivot(index="model", columns="metric", values="text")
    assert len(printed) == len(PAPER.models) == 5
    for name in PAPER.models:
        spec = params.load_model_config(name)
        row = printed.loc[spec.label]
        assert [spec.temperature, spec.top_p, spec.top_k, spec.min_p] == [
            float(row[c]) for c in ("Temperature", "Top-$p$", "Top-$k$", "Min-$p$")
        ]
        assert spec.system_prompt == (row["System prompt"] == "Yes")
        assert re.fullmatch("[0-9a-f]{40}", spec.revision)
    assert {params.load_model_config(name).source for name in PAPER.models} == set(
        reference.paper_facts()["models"].values()
    )
    thinking = [name for name in PAPER.models if params.load_model_config(name).thinking]
    assert thinking == ["deepseek-r1-8b", "qwen3-8b-thinking"]


def test_the_profile_covers_what_the_paper_shows():
    printed = reference.reference_numbers()
    labels = {params.load_model_config(name).label: name for name in PAPER.models}
    sets = {params.load_dataset_config(name).label: name for name in PAPER.datasets}
    main = printed[printed.table == "result_estimation"]
    assert [labels[label] for label in main.model.unique()] == PAPER.models
    assert [sets[label] for label in main.dataset.unique()] == PAPER.datasets
    bins = printed[printed.table == "bin_ablation"]
    assert [labels[label] for label in bins.model.unique()] == PAPER.bin_models
    assert sorted(bins.bins.unique()) == PAPER.n_bins_ablation
    assert sorted(printed.rate.dropna().unique()) == PAPER.dropout_rates
    assert (PAPER.main_figure_model, PAPER.figure_dataset) == ("llama-3.1-8b", "gsmhard")
    assert PAPER.transfer_models == ["llama-3.1-8b", "qwen3-4b-instruct"] and PAPER.demonstration == "one"
    loaded = {name: params.load_dataset_config(name) for name in sets.values()}
    sizes = {name: (one.calibration, one.evaluation) for name, one in loaded.items()}
    assert sizes == {"gsm8k": (7473, 1319), "gsmhard": (919, 400), "svamp": (700, 300)}
