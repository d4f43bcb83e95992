"""What a calibrator's file says of how its rows were asked, so that others can ask the same way."""

import pytest

from lib.analysis.generation_settings import describe_generation_settings, read_manifest_settings
from lib.store import pair_names, read_manifests


def a_manifest(own_limit=None, source="org/model", **parameters):
    """Of responses of a model that may have its own limit of tokens."""
    decoding = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "thinking": False}
    model = {"source": source, "label": "A model", "revision": "f00", "system_prompt": True}
    model |= decoding | {"max_new_tokens": own_limit}
    return {"model": model, "parameters": parameters}


@pytest.mark.parametrize("of_model, of_run, limit", [(None, 512, 512), (4096, 512, 4096)])
def test_a_models_own_limit_of_tokens_counts_before_that_of_the_run(of_model, of_run, limit):
    asking = read_manifest_settings(a_manifest(of_model, max_new_tokens=of_run))
    assert asking["decoding"]["max_new_tokens"] == limit


def test_responses_of_a_server_tell_no_prompt_and_no_source():
    """01b writes neither; the model is named by its label."""
    asking = read_manifest_settings(a_manifest(source=None))
    assert set(asking) == {"model", "revision", "decoding"}
    assert asking["model"] == "A model"
    assert asking["decoding"]["max_new_tokens"] is None


def test_prompts_are_told_apart_by_the_demonstration_and_the_system_message():
    digests = set()
    for system in (True, False):
        for demonstration in ("one", "none"):
            manifest = a_manifest(demonstration=demonstration)
            manifest["model"]["system_prompt"] = system
            asking = read_manifest_settings(manifest)
            assert asking["demonstration"] == demonstration
            digests.add(asking["prompt_sha256"])
    assert len(digests) == 4


def test_each_pair_has_the_settings_of_its_own_manifest():
    datasets = ["demo-easy", "demo-medium"]
    asking = describe_generation_settings("shipped", ["tiny-llama"], datasets)
    assert set(asking) == {("tiny-llama", dataset) for dataset in datasets}
    names = pair_names(["tiny-llama"], datasets)
    for name, manifest in read_manifests("shipped", "generations", names):
        settings = asking["tiny-llama", name.removeprefix("tiny-llama__")]
        assert settings["decoding"]["temperature"] == manifest["model"]["temperature"]
        assert settings["demonstration"] == manifest["parameters"]["demonstration"]
