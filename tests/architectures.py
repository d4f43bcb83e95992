"""The models that verification and dropout are tried on: both demo models, and random ones of other architectures."""

import numpy as np
import pandas as pd
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BambaConfig,
    FalconConfig,
    FalconH1Config,
    Gemma2Config,
    GPT2Config,
    JambaConfig,
    Lfm2Config,
    MambaConfig,
    MistralConfig,
    Qwen3Config,
    Qwen3NextConfig,
    RecurrentGemmaConfig,
    RwkvConfig,
)
from transformers.pytorch_utils import Conv1D

from lib import params
from lib.generate import generation, models
from lib.generate.models import LanguageModel
from lib.paths import ROOT
from lib.tasks import datasets

SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2}  # fmt: skip
CONFIGS = {
    "gpt2": (GPT2Config, {"n_embd": 64, "n_layer": 2, "n_head": 4}),  # learned positions, and modules of nn.Dropout
    "sliding": (MistralConfig, SHAPE | {"sliding_window": 12}),
    "qwen3": (Qwen3Config, SHAPE | {"head_dim": 16}),
    "gemma2": (Gemma2Config, SHAPE | {"head_dim": 16, "sliding_window": 12, "attn_logit_softcapping": 5.0,
                                      "final_logit_softcapping": 20.0}),  # windows in every second layer
}  # fmt: skip
STATEFUL = {  # convolutions and linear attention, with attention in some layers
    "lfm2": (Lfm2Config, SHAPE | {"layer_types": ["conv", "full_attention"]}),
    "falcon-h1": (FalconH1Config, SHAPE | {"head_dim": 16, "mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8,
                                           "mamba_d_state": 16}),
    "qwen3-next": (Qwen3NextConfig, SHAPE | {
        "head_dim": 16, "num_hidden_layers": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}),
}  # fmt: skip
REFUSED = {  # of which rows can't be read from a cache in parts
    "mamba": (MambaConfig, SHAPE), "recurrent-gemma": (RecurrentGemmaConfig, SHAPE | {"num_hidden_layers": 3}),
    "rwkv": (RwkvConfig, SHAPE | {"attention_hidden_size": 64}),
    "jamba": (JambaConfig, SHAPE | {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1,
                                    "use_mamba_kernels": False, "mamba_dt_rank": 8}),
    "bamba": (BambaConfig, SHAPE | {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16,
                                    "attn_layer_indices": [1], "mamba_n_groups": 1}),
}  # fmt: skip
FALCON = {"falcon": (FalconConfig, {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4})}
NESTED = {"top_logits", "top_ids", "tail_curve", "predictive", "conditional"}  # of arrays
SETTINGS = params.Generation(seed=3, demonstration="none", max_new_tokens=120, top_logits=8, n_temperature_nodes=4)


def random(name: str, **more: object) -> LanguageModel:
    """Random weights, tiny-llama's tokenizer; a few tokens end a response, so that lengths differ."""
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "demo" / "models" / "tiny-llama")
    config, own = (CONFIGS | STATEFUL | REFUSED | FALCON)[name]
    model = AutoModelForCausalLM.from_config(config(vocab_size=len(tokenizer), **own | more))
    layers = [layer for layer in model.modules() if isinstance(layer, (torch.nn.Linear, torch.nn.Embedding, Conv1D))]
    for weight in {layer.weight for layer in layers}:  # once if it is tied
        weight.data.mul_(4)  # the usual initialization is so flat that every error would look small
    spec = params.load_model_config("tiny-llama")
    return LanguageModel(name, spec, model.eval(), tokenizer, list(range(300, 315)), {})


def load(name: str, **changed: object) -> LanguageModel:
    """A model by name; a demo model with some of its file changed."""
    torch.set_num_threads(1)
    if not name.startswith("tiny"):
        return random(name)
    return models.load_language_model(name, params.load_model_config(name).model_copy(update=changed))


def examples(dataset: str, count: int | None = None) -> list[datasets.Example]:
    """The first questions of a demo dataset."""
    return datasets.load_examples(params.load_dataset_config(dataset))[:count]


def respond(lm: LanguageModel, count: int, dataset: str = "demo-medium", **changed: object) -> pd.DataFrame:
    """A generations frame of the first questions, under SETTINGS with some changed."""
    settings = SETTINGS.model_copy(update=changed)
    return generation.generate_responses(lm, dataset, examples(dataset, count), settings)


@torch.inference_mode()
def plain_logits(lm: LanguageModel, ids: list[int]) -> torch.Tensor:
    """The logits (n, V) of one forward pass over token ids, without a cache."""
    return lm.model(torch.tensor([ids], device=lm.device), use_cache=False).logits[0]


def assert_alike(found: pd.DataFrame, expected: pd.DataFrame, atol: float = 5e-5) -> None:
    """The same rows but for seconds, and for the last digits of numbers."""
    found, expected = (frame.astype(object).where(frame.notna(), None) for frame in (found, expected))
    for column in expected.columns[~expected.columns.str.endswith("seconds")]:
        tolerance = 10 * atol if column == "tail_curve" else atol
        for pair in zip(found[column], expected[column], strict=True):
            one, other = map(np.stack, pair) if column in NESTED else pair
            if np.asarray(other).dtype.kind == "f":
                np.testing.assert_allclose(one, other, atol=tolerance, err_msg=column)
            else:
                np.testing.assert_array_equal(one, other, err_msg=column)
