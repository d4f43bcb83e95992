"""GGUF files of the demo models, as llama.cpp's converter writes them."""

import json
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file
from transformers import AutoConfig, PretrainedConfig

from lib.paths import ROOT


def llama_cpp_order(name: str, weight: np.ndarray, config: PretrainedConfig) -> np.ndarray:
    """llama.cpp keeps a Llama's queries and keys as it rotates them: the two halves of a head
    interleaved."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = heads.get(name.split(".")[-2])
    if not count or config.model_type != "llama":
        return weight
    rows = weight.shape[0]
    halves = weight.reshape(count, 2, rows // count // 2, -1)
    return halves.swapaxes(1, 2).reshape(weight.shape)


def facts_of(folder: Path, config: PretrainedConfig) -> dict[str, object]:
    """What a GGUF file says of a demo model, by the end of the name of the writer's method."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    ids = tokenizer["model"]["vocab"] | special
    tokens = sorted(ids, key=ids.get)
    types = []
    for token in tokens:
        types.append(gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL)
    return {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "head_count": config.num_attention_heads,
        "head_count_kv": config.num_key_value_heads,
        "key_length": config.head_dim,
        "value_length": config.head_dim,
        "rope_dimension_count": config.head_dim,
        "layer_norm_rms_eps": config.rms_norm_eps,
        "rope_freq_base": config.rope_parameters["rope_theta"],
        "vocab_size": len(tokens),
        "tokenizer_model": "gpt2",
        "tokenizer_pre": "llama-bpe",
        "token_list": tokens,
        "token_types": types,
        "token_merges": [" ".join(pair) for pair in tokenizer["model"]["merges"]],
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "pad_token_id": config.pad_token_id,
        "add_bos_token": False,
        "chat_template": (folder / "chat_template.jinja").read_text(),
    }


def write(
    path: Path, model: str = "tiny-llama", kind: str = "F32", weights: dict | None = None, **facts
) -> Path:
    """A GGUF file of a model, with further weights: vectors as F32, matrices as `kind`. It may say
    other `facts` than those of the model, or leave them out (None)."""
    folder = ROOT / "demo" / "models" / model
    config = AutoConfig.from_pretrained(folder)
    writer = gguf.GGUFWriter(path, config.model_type)
    for name, value in (facts_of(folder, config) | facts).items():
        if value is not None:
            getattr(writer, f"add_{name}")(value)
    architecture = gguf.MODEL_ARCH[config.model_type.upper()]
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, weight in (load_file(folder / "model.safetensors") | (weights or {})).items():
        stored = gguf.GGMLQuantizationType["F32" if weight.ndim == 1 else kind]
        ordered = llama_cpp_order(name, weight.astype(np.float32), config)
        content = gguf.quants.quantize(ordered, stored)
        writer.add_tensor(names.get_name(name, [".weight"]), content, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
