"""GGUF files of a random Llama of two layers, written as llama.cpp's converter does it, and packages that hold one."""

import hashlib
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM

WIDTH, INNER, HEADS, KEYS, LAYERS, CONTEXT = 64, 96, 4, 2, 2, 128
HEAD = WIDTH // HEADS
SPECIAL = ["<|start|>", "<|end|>"]
TEMPLATE = "{% for m in messages %}<|start|>{{ m.content }}<|end|>{% endfor %}"
VOCABULARY = [*sorted(ByteLevel.alphabet()), "##", "####", *SPECIAL]
MERGES = ["# #", "## ##"]


def network(tied: bool = True) -> LlamaForCausalLM:
    """A Llama whose weights are all numbers that 16 bits hold (multiples of 1/256, below 1/2)."""
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=WIDTH,
        rms_norm_eps=1e-5,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEYS,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=tied,
    )
    made, stream = LlamaForCausalLM(config).eval(), torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        parameter.data = torch.randint(-127, 128, parameter.shape, generator=stream) / 256
    return made


def weights_of(made: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """Weights by the names of transformers; of tied ones the first alone."""
    return {name: parameter.detach().numpy() for name, parameter in made.named_parameters()}


def order_there(name: str, weight: np.ndarray) -> np.ndarray:
    """llama.cpp keeps the rows of queries and keys as it rotates them: the two halves of a head interleaved."""
    heads = HEADS if "q_proj" in name else KEYS if "k_proj" in name else 0
    if not heads:
        return weight
    return weight.reshape(heads, 2, HEAD // 2, WIDTH).swapaxes(1, 2).reshape(weight.shape)


END = VOCABULARY.index("<|end|>")


def write(
    path: Path, weights: dict[str, np.ndarray], kind="F32", architecture="llama", end=END, template=TEMPLATE
) -> Path:
    """A GGUF file of these weights: vectors as F32, matrices as `kind`. An end token or template may be None."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("a tiny one")
    for add, value in (
        (writer.add_context_length, CONTEXT),
        (writer.add_embedding_length, WIDTH),
        (writer.add_block_count, LAYERS),
        (writer.add_feed_forward_length, INNER),
        (writer.add_head_count, HEADS),
        (writer.add_head_count_kv, KEYS),
        (writer.add_rope_freq_base, 1e4),
        (writer.add_rope_dimension_count, HEAD),
        (writer.add_layer_norm_rms_eps, 1e-5),
        (writer.add_vocab_size, len(VOCABULARY)),
        (writer.add_tokenizer_model, "gpt2"),
        (writer.add_tokenizer_pre, "smollm"),
        (writer.add_token_list, VOCABULARY),
        (writer.add_token_types, [1] * (len(VOCABULARY) - 2) + [3, 3]),
        (writer.add_token_merges, MERGES),
        (writer.add_bos_token_id, VOCABULARY.index("<|start|>")),
        (writer.add_eos_token_id, end),
        (writer.add_add_bos_token, False),
        (writer.add_chat_template, template),
    ):
        if value is not None:
            add(value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    for name, weight in weights.items():
        stored = gguf.GGMLQuantizationType.F32 if weight.ndim == 1 else gguf.GGMLQuantizationType[kind]
        there = order_there(name, weight)
        writer.add_tensor(names.get_name(name, [".weight"]), gguf.quants.quantize(there, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
