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

DATASET, DECODING = "demo-easy", {"temperature": 1.5, "top_k": 200, "top_p": 0.99, "min_p": 0.001}
close = partial(np.testing.assert_allclose, rtol=1e-7, atol=1e-4)
ALWAYS = ["tiny-llama", "gpt2", "mistral", "qwen3", "gemma2", *architectures.STATEFUL]
RANDOM = [
    *ALWAYS[1:],
    *(name for name in architectures.ATTENTION if name not in ALWAYS),
    *architectures.PARTS,
]
SLOW = [name for name in ("tiny-qwen", *RANDOM) if name not in ALWAYS]


@pytest.fixture(
    scope="module", params=[*ALWAYS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def lm(request):
    return architectures.load(request.param)


def assert_plain(lm, frame):
    """Log-probabilities, kept logits, the verdict in situ (of the pass, and after a cache) and that
    of the standard prompt."""
    options, query = list(p_true.option_tokens(lm).values()), p_true.query_ids(lm)
    verdicts = p_true.verify_responses(lm, frame, max_batch_tokens=500).itertuples()
    for row, asked in zip(frame.itertuples(), verdicts, strict=True):
        response, standard = row.token_ids.tolist(), loading.encode(lm, asked.standard_prompt)
        assert (asked.in_situ_tokens, asked.standard_tokens) == (len(query), len(standard))
        whole, last = (
            plain_logits(lm, ids) for ids in (p_true.trajectory_ids(lm, row) + query, standard)
        )
        read, kept = whole[row.prompt_tokens - 1 :][: len(response)], row.kept_positions
        close(row.token_logprobs, read.log_softmax(-1)[range(len(response)), response])
        close(row.chosen_logit, read[kept, row.token_ids[kept]])
        (cached, seconds), said = p_true.ask_in_situ_on_cache(lm, row), whole[-1]
        assert 0 < cached["seconds"] < 60 and 0 < seconds < 60
        for logits, logz, plain in (
            (row.in_situ_logits, row.in_situ_logz, said), (cached["logits"], cached["logz"], said),
            (asked.standard_logits, asked.standard_logz, last[-1]),
        ):  # fmt: skip
            close([*logits, logz], [*plain[options], plain.double().logsumexp(-1)])


def test_a_run_stores_what_plain_passes_say(lm):
    """Tokens were drawn in a batch whose rows end at different times: each is the one that its
    number finds among the logits of a plain pass over all before it, as transformers' temperature,
    top-k, top-p and min-p leave them."""
    lm = dataclasses.replace(lm, spec=lm.spec.model_copy(update=DECODING))
    frame, asked = respond(lm, 6, DATASET, max_new_tokens=60), requests(lm, 6, DATASET)
    assert frame.token_ids.map(len).nunique() > 1
    for row, one in zip(frame.itertuples(), asked, strict=True):
        response = row.token_ids.tolist()
        left = warp(
            plain_logits(lm, [*one.prompt_ids, *response])[len(one.prompt_ids) - 1 : -1], DECODING
        )
        numbers = sampling.uniform_numbers([one.seed], len(response))[0]
        assert sampling.sample_inverse_cdf(left, numbers).tolist() == response
        off = np.abs(
            row.token_logprobs_sampling
            - left.log_softmax(-1)[range(len(response)), response].numpy()
        )
        # the last digits of float32 decide on a token at the nucleus' edge
        assert np.quantile(off, 0.8) < 1e-4 and off.max() < 0.01
    assert_plain(lm, frame)


def test_so_it_does_of_rows_that_share_a_beginning_and_a_pass(lm):
    """After worked examples that are encoded once. Two lengths with the prompt, and many without;
    ended and cut; a thinking block, and an end token alone."""
    thought = loading.encode(lm, "<think>\n#### 5\n</think>\n\n#### 42")

    def given(asked):
        most, (first, *_), rest = max(len(one.prompt_ids) for one in asked) + 3, lm.eos, asked[2:]
        made = [
            [*range(5, 5 + most + i % 2 - len(one.prompt_ids)), *lm.eos[: i % 3 > 0]]
            for i, one in enumerate(rest)
        ]
        return [[first], [*thought, first], *made]

    settings = architectures.SETTINGS.model_copy(update={"demonstration": "few"})
    engine, passes = types.SimpleNamespace(sample=given), []
    with lm.model.register_forward_hook(
        lambda model, inputs, read: passes.append(len(read.logits))
    ):
        frame = generation.generate_responses(lm, DATASET, examples(DATASET, 9), settings, engine)
    assert max(passes) > 2, "rows of equal length share a pass"
    assert_plain(lm, frame)


# ---- what `check` says


QUICK = [*RANDOM[:7], *architectures.PARTS]


@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in RANDOM if name not in QUICK)],
)
def test_what_can_be_read_from_a_cache_is_ready(name):
    ((level, text),) = preflight.check_kind(architectures.random(name))
    assert level == "ok" and text.startswith("dropout sites: ")


@pytest.mark.parametrize("name", architectures.REFUSED)
def test_what_can_not_is_refused_in_one_line(name):
    (level, text), *_ = preflight.check_kind(architectures.random(name))
    assert (
        level == "wrong"
        and "\n" not in text
        and "can't be read from a cache of keys and values" in text
    )


def test_one_without_dropout_runs_with_empty_cells():
    (said,) = preflight.check_kind(architectures.random("falcon"))
    assert said == (
        "note",
        "dropout takes no effect anywhere in a FalconForCausalLM: c_BALD stays empty",
    )


def test_a_large_network_is_tried_with_every_type_of_layer():
    lm = architectures.random("qwen3_next")
    large = {
        "num_hidden_layers": 48,
        "num_experts": 512,
        "vocab_size": 150_000,
        "layer_types": None,
    }
    network = checkpoints.outline_network(
        type(lm.model.config)(**lm.model.config.to_dict() | large)
    )
    few = preflight.random_twin(dataclasses.replace(lm, model=network)).model.config
    assert (
        few.layer_types == [*["linear_attention"] * 3, "full_attention"]
        and few.num_hidden_layers == 4
    )
    assert (few.num_experts, few.vocab_size, network.config.num_experts) == (4, 512, 512)


# ---- checkpoints with a part for images


def described(folder):
    return Model(label="Mine", source=str(folder), system_prompt=False)


def looked_at(folder):
    """What `check` says of a model by its files."""
    lm = preflight.load_outline("mine", described(folder), str(folder), whole=True)
    return list(preflight.check_model(lm, params.load_profile("demo").model_dump(), {}))


@pytest.mark.parametrize("name", architectures.PARTS)
def test_the_text_part_of_a_network_answers_as_the_whole(tmp_path, name):
    """Though its configuration names no end token at its top; Qwen's files also predict several
    tokens at once."""
    whole = architectures.save_in_parts(architectures.in_parts(name), tmp_path)
    if name == "qwen3_5":
        weights = load_file(tmp_path / "model.safetensors") | {"mtp.norm.weight": torch.ones(64)}
        save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    assert not hasattr(whole.config, "eos_token_id")
    assert all(level == "ok" for level, _ in looked_at(tmp_path))
    lm = loading.load_language_model("mine", described(tmp_path))
    assert lm.context == whole.config.text_config.max_position_embeddings and lm.eos
    ids = [*range(20, 60)]
    with torch.inference_mode():
        close(plain_logits(lm, ids), whole(input_ids=torch.tensor([ids])).logits[0])


def test_a_network_that_answers_only_with_images_is_refused_by_its_kind(tmp_path):
    config = AutoConfig.for_model(
        "mistral3", vision_config={"model_type": "pixtral"} | architectures.IMAGES
    )
    config.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(architectures.TINY).save_pretrained(tmp_path)
    for read in looked_at, lambda folder: loading.load_language_model("mine", described(folder)):
        with pytest.raises(
            UserError, match="transformers has no AutoModelForCausalLM of its kind, 'mistral3': "
        ):
            read(tmp_path)
