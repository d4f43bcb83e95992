"""The models that verification and dropout are tried on: both demo models, and random ones of other
architectures."""

from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.pytorch_utils import Conv1D

from lib import params
from lib.generate import generation
from lib.models import loading
from lib.models.loading import LanguageModel
from lib.paths import ROOT
from lib.tasks import datasets

TINY = ROOT / "demo" / "models" / "tiny-llama"
SHAPE = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
WIDE = {"head_dim": 16}
WINDOW = {"sliding_window": 12}
PADDED = {"pad_token_id": 819}
EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 16, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
}  # fmt: skip
LINEAR = {  # attention that is linear
    "num_hidden_layers": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
ATTENTION = {  # by transformers' names, what differs from SHAPE
    "bloom": {},
    "cohere": {"logit_scale": 0.5},
    "cohere2": WIDE | WINDOW,
    "deepseek_v3": EXPERTS | LATENT,
    "exaone4": WIDE | WINDOW,
    "gemma": WIDE,
    "gemma2": WIDE | WINDOW | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 20.0},
    "gemma3_text": WIDE | WINDOW,
    "glm": WIDE | PADDED,
    "gpt2": {},
    "gpt_neox": {},
    "gpt_oss": EXPERTS | WIDE | WINDOW,
    "gptj": {"rotary_dim": 8},
    "granite": {"logits_scaling": 3.0, "attention_multiplier": 0.2},
    "helium": WIDE,
    "llama": {},
    "mistral": WINDOW,
    "mixtral": EXPERTS,
    "nemotron": {},
    "olmo": {},
    "olmo2": {},
    "olmoe": EXPERTS,
    "opt": {"ffn_dim": 128, "word_embed_proj_dim": 64},
    "persimmon": {},
    "phi": {},
    "phi3": PADDED,
    "qwen2": {},
    "qwen2_moe": EXPERTS,
    "qwen3": WIDE,
    "qwen3_moe": EXPERTS | WIDE,
    "smollm3": PADDED,
    "stablelm": {},
    "starcoder2": WINDOW,
}
STATEFUL = {  # convolutions and linear attention, with attention in some layers
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "falcon_h1": WIDE
    | {"mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 16},
    "qwen3_next": EXPERTS | WIDE | LINEAR,
}
REFUSED = {  # of which rows can't be read from a cache in parts, or in a batch
    "gpt_neo": {
        "attention_types": [[["global", "local"], 1]],
        "window_size": 12,
        "num_layers": 2,
        "num_heads": 4,
    },
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 2},
    "mamba": {},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "rwkv": {"attention_hidden_size": 64},
    "jamba": {
        "num_hidden_layers": 4,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "use_mamba_kernels": False,
        "mamba_dt_rank": 8,
    },
}
KINDS = ATTENTION | STATEFUL | REFUSED | {"falcon": {}}
IMAGES = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
}  # fmt: skip
SHARED_KEYS = {  # two layers have the keys and values of two others
    "num_hidden_layers": 4, "num_kv_shared_layers": 2, "global_head_dim": 32,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 820,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}  # fmt: skip
QWEN_IMAGES = {
    "depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64,
}  # fmt: skip
QWEN_TOKENS = {
    "image_token_id": 7, "video_token_id": 8, "vision_start_token_id": 9,
    "vision_end_token_id": 10,
}  # fmt: skip


class Parts(NamedTuple):
    """What differs from SHAPE in the part for text, that for images, and tokens of images."""

    text: dict
    images: dict
    tokens: dict


PARTS = {
    "gemma3": Parts(WIDE | WINDOW, IMAGES, {"mm_tokens_per_image": 4, "image_token_index": 7}),
    "gemma4": Parts(
        WIDE | WINDOW | SHARED_KEYS, IMAGES, {"image_token_id": 7, "audio_config": None}
    ),
    "qwen3_5": Parts(WIDE | LINEAR, QWEN_IMAGES, QWEN_TOKENS),
}
WARPERS = {
    "temperature": transformers.TemperatureLogitsWarper,
    "top_k": transformers.TopKLogitsWarper,
    "top_p": transformers.TopPLogitsWarper,
    "min_p": transformers.MinPLogitsWarper,
}
SETTINGS = params.Generation(
    seed=3, demonstration="none", max_new_tokens=120, top_logits=8, n_temperature_nodes=4
)


def random(name: str, **more: object) -> LanguageModel:
    """Random weights, tiny-llama's tokenizer; a few tokens end a response, so that lengths
    differ."""
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    if name in PARTS:
        config = in_parts(name)
    else:
        shape = {"vocab_size": len(tokenizer)} | SHAPE | KINDS[name]
        config = AutoConfig.for_model(name, **shape | more)
    model = AutoModelForCausalLM.from_config(config)
    weights = set()  # one that is tied is there once
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear | torch.nn.Embedding | Conv1D):
            weights.add(layer.weight)
    for weight in weights:
        weight.data.mul_(4)  # the usual initialization is so flat that every error would look small
    spec = params.load_model_config("tiny-llama")
    return LanguageModel(name, spec, model.eval(), tokenizer, list(range(300, 315)), {})


def in_parts(name: str) -> transformers.PretrainedConfig:
    """A configuration of parts for text and images. As those of Qwen and Google, it names no end
    token at its top."""
    parts = PARTS[name]
    text = {"vocab_size": 820} | SHAPE | parts.text
    return AutoConfig.for_model(name, text_config=text, vision_config=parts.images, **parts.tokens)


def save_in_parts(config: transformers.PretrainedConfig, folder: Path) -> torch.nn.Module:
    """Write the checkpoint of a whole network of random weights, with tiny-llama's tokenizer;
    return the network."""
    torch.manual_seed(1)
    whole = transformers.AutoModelForImageTextToText.from_config(config).eval()
    whole.save_pretrained(folder)
    AutoTokenizer.from_pretrained(TINY).save_pretrained(folder)
    return whole


def load(name: str, **changed: object) -> LanguageModel:
    """A model by name; a demo model with some of its file changed."""
    if not name.startswith("tiny"):
        return random(name)
    spec = params.load_model_config(name).model_copy(update=changed)
    return loading.load_language_model(name, spec)


def examples(dataset: str, count: int | None = None) -> list[datasets.Example]:
    """The first questions of a demo dataset."""
    return datasets.load_examples(params.load_dataset_config(dataset))[:count]


def respond(
    lm: LanguageModel, count: int, dataset: str = "demo-medium", **changed: object
) -> pd.DataFrame:
    """A generations frame of the first questions, under SETTINGS with some changed."""
    settings = SETTINGS.model_copy(update=changed)
    return generation.generate_responses(lm, dataset, examples(dataset, count), settings)


def requests(lm: LanguageModel, count: int, dataset: str = "demo-hard", **changed: object) -> list:
    """What is asked of the first questions, under SETTINGS with some changed."""
    settings = SETTINGS.model_copy(update=changed)
    return generation.build_requests(lm, dataset, examples(dataset, count), settings)


@torch.inference_mode()
def plain_logits(lm: LanguageModel, ids: list[int]) -> torch.Tensor:
    """The logits (n, V) of one forward pass over token ids, without a cache."""
    return lm.model(torch.tensor([ids], device=lm.device), use_cache=False).logits[0]


def warp(logits: torch.Tensor, decoding: dict[str, float]) -> torch.Tensor:
    """Logits (n, V) as transformers changes them before it draws."""
    for name, value in decoding.items():
        logits = WARPERS[name](value)(None, logits)
    return logits


def assert_alike(frame: pd.DataFrame, expected: pd.DataFrame, atol: float = 5e-5) -> None:
    """The same rows but for seconds, and for the last digits of numbers."""
    columns = expected.columns[~expected.columns.str.endswith("seconds")]
    pd.testing.assert_frame_equal(frame[columns], expected[columns], check_dtype=False, atol=atol)
