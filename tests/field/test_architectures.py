"""Thirty architectures: what a run stores of a response is what plain forward passes say, without
cache or batch; and what `check` says of a kind of network, by one of random weights."""

import dataclasses
import types
from functools import partial

import architectures
import numpy as np
import pytest
import torch
from architectures import examples, plain_logits, requests, respond, warp
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer

from lib import params
from lib.errors import UserError
from lib.generate import generation, p_true, preflight, sampling
from lib.models import checkpoints, loading
from lib.parameter_schemas import Model

DATASET = "demo-easy"
DECODING = {"temperature": 1.5, "top_k": 200, "top_p": 0.99, "min_p": 0.001}
close = partial(np.testing.assert_allclose, rtol=1e-7, atol=1e-4)
QUICK = ["gpt2", "mistral", "qwen3", "gemma2", *architectures.STATEFUL]
OTHERS = [name for name in architectures.ATTENTION if name not in QUICK]
PARTS = list(architectures.PARTS)


def slow(names):
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(
    scope="module", params=["tiny-llama", *QUICK, *slow(["tiny-qwen", *OTHERS, *PARTS])]
)
def lm(request):
    return architectures.load(request.param)


def assert_plain(lm, frame):
    """Log-probabilities, kept logits, the verdict in situ (of the pass, and after a cache) and that
    of the standard prompt."""
    options = list(p_true.option_tokens(lm).values())
    query = p_true.query_ids(lm)

    def check_verdict(logits, logz, plain):
        close(logits, plain[options])
        close(logz, plain.double().logsumexp(-1))

    verdicts = p_true.verify_responses(lm, frame, max_batch_tokens=500).itertuples()
    for row, verdict in zip(frame.itertuples(), verdicts, strict=True):
        response = row.token_ids.tolist()
        standard = loading.encode(lm, verdict.standard_prompt)
        assert verdict.in_situ_tokens == len(query)
        assert verdict.standard_tokens == len(standard)
        whole = plain_logits(lm, p_true.trajectory_ids(lm, row) + query)
        logits = whole[row.prompt_tokens - 1 :][: len(response)]
        logprobs = logits.log_softmax(-1)
        close(row.token_logprobs, logprobs[range(len(response)), response])
        positions = row.kept_positions
        close(row.chosen_logit, logits[positions, row.token_ids[positions]])
        cached, seconds = p_true.ask_in_situ_on_cache(lm, row)
        assert 0 < cached["seconds"] < 60
        assert 0 < seconds < 60
        check_verdict(row.in_situ_logits, row.in_situ_logz, whole[-1])
        check_verdict(cached["logits"], cached["logz"], whole[-1])
        last = plain_logits(lm, standard)[-1]
        check_verdict(verdict.standard_logits, verdict.standard_logz, last)


def test_a_run_stores_what_plain_passes_say(lm):
    """Tokens were drawn in a batch whose rows end at different times: each is the one that its
    number finds among the logits of a plain pass over all before it, as transformers' temperature,
    top-k, top-p and min-p leave them."""
    lm = dataclasses.replace(lm, spec=lm.spec.model_copy(update=DECODING))
    frame = respond(lm, 6, DATASET, max_new_tokens=60)
    assert frame.token_ids.map(len).nunique() > 1
    for row, request in zip(frame.itertuples(), requests(lm, 6, DATASET), strict=True):
        response = row.token_ids.tolist()
        whole = plain_logits(lm, [*request.prompt_ids, *response])
        left = warp(whole[len(request.prompt_ids) - 1 : -1], DECODING)
        numbers = sampling.uniform_numbers([request.seed], len(response))[0]
        assert sampling.sample_inverse_cdf(left, numbers).tolist() == response
        plain = left.log_softmax(-1)[range(len(response)), response].numpy()
        off = np.abs(row.token_logprobs_sampling - plain)
        # the last digits of float32 decide on a token at the nucleus' edge
        assert np.quantile(off, 0.8) < 1e-4 and off.max() < 0.01
    assert_plain(lm, frame)


def test_so_it_does_of_rows_that_share_a_beginning_and_a_pass(lm):
    """After worked examples that are encoded once. Two lengths with the prompt, and many without;
    ended and cut; a thinking block, and an end token alone."""
    thought = loading.encode(lm, "<think>\n#### 5\n</think>\n\n#### 42")

    def sample(requested):
        end = lm.eos[0]
        responses = [[end], [*thought, end]]
        longest = max(len(request.prompt_ids) for request in requested) + 3
        for i, request in enumerate(requested[2:]):
            length = longest + i % 2 - len(request.prompt_ids)
            response = list(range(5, 5 + length))
            if i % 3 > 0:
                response.append(end)
            responses.append(response)
        return responses

    settings = architectures.SETTINGS.model_copy(update={"demonstration": "few"})
    engine = types.SimpleNamespace(sample=sample)
    passes = []

    def note_rows(model, inputs, output):
        passes.append(len(output.logits))

    with lm.model.register_forward_hook(note_rows):
        frame = generation.generate_responses(lm, DATASET, examples(DATASET, 9), settings, engine)
    assert max(passes) > 2, "rows of equal length share a pass"
    assert_plain(lm, frame)


# ---- what `check` says


@pytest.mark.parametrize("name", [*QUICK, *PARTS, *slow(OTHERS)])
def test_what_can_be_read_from_a_cache_is_ready(name):
    ((level, text),) = preflight.check_kind(architectures.random(name))
    assert level == "ok" and text.startswith("dropout sites: ")


@pytest.mark.parametrize("name", architectures.REFUSED)
def test_what_can_not_is_refused_in_one_line(name):
    level, text = next(iter(preflight.check_kind(architectures.random(name))))
    assert level == "wrong"
    assert "\n" not in text
    assert "can't be read from a cache of keys and values" in text


def test_a_network_is_tried_on_prompts_of_several_lengths_with_one_beginning():
    """Else a batch of them would have no padding, and nothing to read from a cache."""
    prompts = preflight.random_prompts(512)
    lengths = {len(prompt) for prompt in prompts}
    assert len(lengths) == len(prompts) and max(lengths) == preflight.TOKENS
    openings = {tuple(prompt[: preflight.SHARED]) for prompt in prompts}
    nexts = {prompt[preflight.SHARED] for prompt in prompts}
    assert len(openings) == 1 and len(nexts) > 1


def test_one_without_dropout_runs_with_empty_cells():
    (line,) = preflight.check_kind(architectures.random("falcon"))
    text = "dropout takes no effect anywhere in a FalconForCausalLM: c_BALD stays empty"
    assert line == ("note", text)


def test_a_large_network_is_tried_with_every_type_of_layer():
    lm = architectures.random("qwen3_next")
    config = lm.model.config
    layers = {"num_hidden_layers": 48, "layer_types": None}
    large = config.to_dict() | layers | {"num_experts": 512, "vocab_size": 150_000}
    network = checkpoints.outline_network(type(config)(**large))
    few = preflight.random_twin(dataclasses.replace(lm, model=network)).model.config
    assert few.layer_types == [*["linear_attention"] * 3, "full_attention"]
    assert few.num_hidden_layers == 4
    assert (few.num_experts, few.vocab_size) == (4, 512)
    assert network.config.num_experts == 512


# ---- checkpoints with a part for images


def described(folder):
    return Model(label="Mine", source=str(folder), system_prompt=False)


def check_files(folder):
    """What `check` says of a model by its files."""
    lm = preflight.load_outline("mine", described(folder), str(folder), whole=True)
    return list(preflight.report_on_model(lm, params.load_profile("demo").model_dump(), {}))


@pytest.mark.parametrize("name", architectures.PARTS)
def test_the_text_part_of_a_network_answers_as_the_whole(tmp_path, name):
    """Though its configuration names no end token at its top; Qwen's files also predict several
    tokens at once."""
    whole = architectures.save_in_parts(architectures.in_parts(name), tmp_path)
    if name == "qwen3_5":
        weights = load_file(tmp_path / "model.safetensors") | {"mtp.norm.weight": torch.ones(64)}
        save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    assert not hasattr(whole.config, "eos_token_id")
    assert all(level == "ok" for level, _ in check_files(tmp_path))
    lm = loading.load_language_model("mine", described(tmp_path))
    assert lm.context == whole.config.text_config.max_position_embeddings
    assert lm.eos
    ids = [*range(20, 60)]
    with torch.inference_mode():
        expected = whole(input_ids=torch.tensor([ids])).logits[0]
    close(plain_logits(lm, ids), expected)


def test_a_network_that_answers_only_with_images_is_refused_by_its_kind(tmp_path):
    images = {"model_type": "pixtral"} | architectures.IMAGES
    AutoConfig.for_model("mistral3", vision_config=images).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(architectures.TINY).save_pretrained(tmp_path)
    message = "transformers has no AutoModelForCausalLM of its kind, 'mistral3': "
    with pytest.raises(UserError, match=message):
        check_files(tmp_path)
    with pytest.raises(UserError, match=message):
        loading.load_language_model("mine", described(tmp_path))
