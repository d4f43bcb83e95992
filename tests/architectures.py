"""The models that verification and dropout are tried on: both demo models, and random ones of other architectures."""

import torch
from transformers import (
    AutoTokenizer,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from lib import params
from lib.generate import checkpoint, models
from lib.generate.models import LanguageModel
from lib.paths import ROOT

NAMES = ["tiny-llama", "tiny-qwen", "mistral", "gpt2"]
FAMILIES = {
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16}),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, {"head_dim": 16, "sliding_window": 16}),  # in every second layer
}
SETTINGS = params.Generation(seed=3, demonstration="none", max_new_tokens=120, top_logits=8, n_temperature_nodes=4)


def random(name: str, **more: object) -> LanguageModel:
    """Random weights, tiny-llama's tokenizer; a few tokens end a response, so that lengths differ."""
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "demo" / "models" / "tiny-llama")
    checkpoint.set_padding(tokenizer)
    size = len(tokenizer)
    if name == "gpt2":  # learned positions, and nn.Dropout modules beside the attention's own dropout
        model = GPT2LMHeadModel(
            GPT2Config(vocab_size=size, n_embd=64, n_layer=2, n_head=4, **{"n_positions": 1024} | more)
        )
    else:
        network, config, own = FAMILIES[name]
        model = network(
            config(
                vocab_size=size,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                **own | more,
            )
        )
    for parameter in model.parameters():  # the usual initialisation is so flat that every error would look small
        if parameter.dim() > 1:
            parameter.data.mul_(4)
    return LanguageModel(
        name, params.load_model_config("tiny-llama"), model.eval(), tokenizer, list(range(300, 315)), {}
    )


def load(name: str) -> LanguageModel:
    torch.set_num_threads(1)
    return models.load_language_model(name, params.load_model_config(name)) if name.startswith("tiny") else random(name)
