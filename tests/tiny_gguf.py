"""GGUF files as llama.cpp's converter writes them: by default of a random Llama of two layers."""

import hashlib
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM, PretrainedConfig

CONTEXT = 128
SPECIAL = ["<|start|>", "<|end|>"]
TEMPLATE = "{% for m in messages %}<|start|>{{ m.content }}<|end|>{% endfor %}"
VOCABULARY = [*sorted(ByteLevel.alphabet()), "##", "####", *SPECIAL]
START, END = map(VOCABULARY.index, SPECIAL)
CONFIG = LlamaConfig(
    vocab_size=len(VOCABULARY), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, rms_norm_eps=1e-5, max_position_embeddings=CONTEXT, bos_token_id=START, eos_token_id=END,
)  # fmt: skip


def network(tied: bool = True) -> LlamaForCausalLM:
    """A Llama whose weights are all numbers that 16 bits hold (multiples of 1/256, below 1/2)."""
    config = LlamaConfig(**CONFIG.to_dict() | {"tie_word_embeddings": tied})
    made, stream = LlamaForCausalLM(config).eval(), torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        parameter.data = torch.randint(-127, 128, parameter.shape, generator=stream) / 256
    return made


def weights_of(made: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """Weights by the names of transformers; of tied ones the first alone."""
    return {name: parameter.detach().numpy() for name, parameter in made.named_parameters()}


def order_there(name: str, weight: np.ndarray, config: PretrainedConfig) -> np.ndarray:
    """llama.cpp keeps a Llama's queries and keys as it rotates them: the two halves of a head interleaved."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if not heads or config.model_type != "llama":
        return weight
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write(
    path: Path, weights: dict[str, np.ndarray], kind="F32", end=END, template=TEMPLATE, config=CONFIG,
    tokens=VOCABULARY, special=SPECIAL, merges=("# #", "## ##"), pre="smollm",
) -> Path:  # fmt: skip
    """A GGUF file of these weights: vectors as F32, matrices as `kind`. An end token or template may be None."""
    writer = gguf.GGUFWriter(path, config.model_type)
    for name, value in {
        "name": "a tiny one", "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers, "feed_forward_length": config.intermediate_size,
        "head_count": config.num_attention_heads, "head_count_kv": config.num_key_value_heads,
        **dict.fromkeys(("key_length", "value_length", "rope_dimension_count"), config.head_dim),
        "layer_norm_rms_eps": config.rms_norm_eps, "rope_freq_base": config.rope_parameters["rope_theta"],
        "vocab_size": len(tokens), "tokenizer_model": "gpt2", "tokenizer_pre": pre, "token_list": tokens,
        "token_types": [gguf.TokenType.CONTROL if one in special else gguf.TokenType.NORMAL for one in tokens],
        "token_merges": list(merges), "bos_token_id": config.bos_token_id, "eos_token_id": end,
        "pad_token_id": config.pad_token_id, "add_bos_token": False, "chat_template": template,
    }.items():  # fmt: skip
        if value is not None:
            getattr(writer, f"add_{name}")(value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[config.model_type.upper()], config.num_hidden_layers)
    for name, weight in weights.items():
        stored = gguf.GGMLQuantizationType.F32 if weight.ndim == 1 else gguf.GGMLQuantizationType[kind]
        there = gguf.quants.quantize(order_there(name, weight, config), stored)
        writer.add_tensor(names.get_name(name, [".weight"]), there, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
