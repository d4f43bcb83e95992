"""How the responses of a run were asked: what the file of a calibrator says of its rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from lib import store
from lib.calibrate.calibration_sets import Pair
from lib.files import digest
from lib.tasks.prompts import question_messages

DECODING = ("temperature", "top_p", "top_k", "min_p", "thinking", "max_new_tokens")


def describe_generation_settings(
    run: str, models: Sequence[str], datasets: Sequence[str]
) -> dict[Pair, dict[str, Any]]:
    """Return how the responses of each pair of a run were asked, from the manifests of 01 and 01b.

    Each has `model` (its source, or its label if only a server has it), `revision` and `decoding`;
    of responses that 01 generated also `demonstration` and `prompt_sha256`.

    Examples
    --------
    >>> asking = describe_generation_settings("replay-small", ["qwen2.5-coder-1.5b"], ["gsm8k"])
    >>> asking["qwen2.5-coder-1.5b", "gsm8k"]["decoding"]["temperature"]
    0.6
    """
    described = {}
    pairs = store.pair_names(models, datasets)
    for name, manifest in store.read_manifests(run, "generations", pairs):
        model, _, dataset = name.partition("__")
        described[model, dataset] = read_manifest_settings(manifest)
    return described


def read_manifest_settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the responses of a manifest of generations were asked."""
    spec = manifest["model"]
    parameters = manifest["parameters"]
    decoding = {name: spec[name] for name in DECODING}
    if decoding["max_new_tokens"] is None:
        decoding["max_new_tokens"] = parameters.get("max_new_tokens")
    source = spec["source"] if spec["source"] else spec["label"]
    asking = {"model": source, "revision": spec["revision"], "decoding": decoding}
    if "demonstration" in parameters:
        demonstration = parameters["demonstration"]
        asking["demonstration"] = demonstration
        asking["prompt_sha256"] = prompt_digest(spec["system_prompt"], demonstration)
    return asking


def prompt_digest(system: bool, demonstration: Any) -> str:
    """Return the SHA-256 of the messages around a question: it tells whether two prompts are the
    same.

    Examples
    --------
    >>> prompt_digest(True, "one") == prompt_digest(True, "none")
    False
    """
    return digest(question_messages("", system, demonstration))
