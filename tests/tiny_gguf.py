"""GGUF files of the demo models, as llama.cpp's converter writes them."""

import json
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file
from transformers import AutoConfig, PretrainedConfig

from lib.paths import ROOT


def order_there(name: str, weight: np.ndarray, config: PretrainedConfig) -> np.ndarray:
    """llama.cpp keeps a Llama's queries and keys as it rotates them: the two halves of a head
    interleaved."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(
        name.split(".")[-2]
    )
    if not heads or config.model_type != "llama":
        return weight
    return (
        weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1)
        .swapaxes(1, 2)
        .reshape(weight.shape)
    )


def write(
    path: Path, model: str = "tiny-llama", kind: str = "F32", weights: dict | None = None, **told
) -> Path:
    """A GGUF file of a model, with further weights: vectors as F32, matrices as `kind`. Of what the
    file says, some may be `told` otherwise, or left out (None)."""
    folder = ROOT / "demo" / "models" / model
    config, tokenizer = (
        AutoConfig.from_pretrained(folder),
        json.loads((folder / "tokenizer.json").read_text()),
    )
    special = {one["content"]: one["id"] for one in tokenizer["added_tokens"]}
    ids = tokenizer["model"]["vocab"] | special
    tokens = sorted(ids, key=ids.get)
    writer = gguf.GGUFWriter(path, config.model_type)
    for name, value in {
        "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers, "feed_forward_length": config.intermediate_size,
        "head_count": config.num_attention_heads, "head_count_kv": config.num_key_value_heads,
        **dict.fromkeys(("key_length", "value_length", "rope_dimension_count"), config.head_dim),
        "layer_norm_rms_eps": config.rms_norm_eps, "rope_freq_base": config.rope_parameters["rope_theta"],
        "vocab_size": len(tokens), "tokenizer_model": "gpt2", "tokenizer_pre": "llama-bpe", "token_list": tokens,
        "token_types": [gguf.TokenType.CONTROL if one in special else gguf.TokenType.NORMAL for one in tokens],
        "token_merges": [*map(" ".join, tokenizer["model"]["merges"])], "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id, "pad_token_id": config.pad_token_id, "add_bos_token": False,
        "chat_template": (folder / "chat_template.jinja").read_text(), **told,
    }.items():  # fmt: skip
        if value is not None:
            getattr(writer, f"add_{name}")(value)
    names = gguf.get_tensor_name_map(
        gguf.MODEL_ARCH[config.model_type.upper()], config.num_hidden_layers
    )
    for name, weight in (load_file(folder / "model.safetensors") | (weights or {})).items():
        stored = (
            gguf.GGMLQuantizationType.F32 if weight.ndim == 1 else gguf.GGMLQuantizationType[kind]
        )
        there = gguf.quants.quantize(order_there(name, weight.astype(np.float32), config), stored)
        writer.add_tensor(names.get_name(name, [".weight"]), there, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
