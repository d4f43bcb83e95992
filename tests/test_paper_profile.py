"""The paper's run, as its files describe it: settings, revisions, and what it covers."""

import json
import re

import numpy as np
import pytest
import yaml
from realmodels import FOLDERS

from lib import params
from lib.generate.batching import batch_by_length
from lib.paper import reference

PAPER = params.load_profile("paper")


def test_decoding_settings_are_the_papers():
    printed = reference.printed_numbers("inference_settings").pivot(index="model", columns="metric", values="text")
    assert len(printed) == len(PAPER.models) == 5
    for name in PAPER.models:
        spec = params.load_model_config(name)
        row = printed.loc[spec.label]
        assert [spec.temperature, spec.top_p, spec.top_k, spec.min_p] == [
            float(row[c]) for c in ("Temperature", "Top-$p$", "Top-$k$", "Min-$p$")]  # fmt: skip
        assert spec.system_prompt == (row["System prompt"] == "Yes")
        assert re.fullmatch("[0-9a-f]{40}", spec.revision)
    assert {params.load_model_config(name).source for name in PAPER.models} == set(
        reference.paper_facts()["models"].values()
    )
    thinking = [name for name in PAPER.models if params.load_model_config(name).thinking]
    assert thinking == ["deepseek-r1-8b", "qwen3-8b-thinking"]


def test_the_profile_names_every_choice():
    """For by hand, through papermill, the notebooks' own defaults would stand in: those of the demo."""
    given = yaml.safe_load((params.PARAMS / "paper.yaml").read_text())
    assert set(params.Profile.model_fields) - set(given) == {"limit", "dropout_limit", "save_texts", "cpu"}
    defaults = params.Profile(models=["x"], datasets=["x"])
    own = {
        "models",
        "datasets",
        "on_code_change",
        "rows_per_shard",
        "max_batch_tokens",
        "dropout_scope",
        "max_dropout_tokens",
        "engine",
        "bin_models",
        "main_figure_model",
        "main_figure_dataset",
        "figure_model",
        "figure_dataset",
        "transfer_models",
        "transfer_datasets",
    }
    assert {name for name in given if getattr(PAPER, name) != getattr(defaults, name)} == own


def test_the_profile_covers_what_the_paper_shows():
    printed = reference.printed_numbers()
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


@pytest.mark.parametrize("name", FOLDERS)
def test_generation_configs_that_differ_are_said_in_the_file(name, shared):
    own = json.loads((shared / "tokenizers" / FOLDERS[name] / "generation_config.json").read_text())
    spec = params.load_model_config(name)
    same = (own["temperature"], own["top_p"], own.get("top_k", -1)) == (spec.temperature, spec.top_p, spec.top_k)
    text = (params.PARAMS / "models" / f"{name}.yaml").read_text()
    assert ("as in the model's own generation_config" in text) == same
    assert same or f"temperature {own['temperature']}" in text.replace("\n# ", " ")


def test_shards_are_whole_batches():
    """A shard of the models that do not think falls into batches of about one size: a short last one would take as many
    steps as a full one."""
    profile = params.load_profile("paper")
    lengths = np.random.default_rng(0).integers(330, 480, profile.rows_per_shard).tolist()
    sizes = [len(group) for group in batch_by_length(lengths, profile.max_batch_tokens, profile.max_new_tokens)]
    assert len(sizes) == 3 and min(sizes) > 0.8 * max(sizes)
