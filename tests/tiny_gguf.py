"""GGUF files of a random Llama of two layers, written as llama.cpp's converter does it, and packages that hold one."""

import hashlib
from pathlib import Path

import gguf
import numpy as np

WIDTH, INNER, HEADS, KEYS, LAYERS, CONTEXT = 64, 96, 4, 2, 2, 128
HEAD = WIDTH // HEADS
SPECIAL = ["<|start|>", "<|end|>"]
TEMPLATE = "{% for m in messages %}<|start|>{{ m.content }}<|end|>{% endfor %}"


def letters() -> list[str]:
    """The 256 bytes as byte-level vocabularies spell them."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(256)]


VOCABULARY = [*letters(), "##", "####", *SPECIAL]
MERGES = ["# #", "## ##"]


def random_weights(seed: int = 0, tied: bool = True) -> dict[str, np.ndarray]:
    """Weights by the names of transformers, all of them numbers that 16 bits hold (multiples of 1/256, below 1/2)."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape).astype(np.float32) / 256

    weights = {"model.embed_tokens.weight": draw(len(VOCABULARY), WIDTH), "model.norm.weight": draw(WIDTH)}
    for layer in range(LAYERS):
        here = f"model.layers.{layer}."
        for part, rows in (("q", HEADS * HEAD), ("k", KEYS * HEAD), ("v", KEYS * HEAD), ("o", WIDTH)):
            weights[f"{here}self_attn.{part}_proj.weight"] = draw(rows, WIDTH)
        for part, shape in (("gate", (INNER, WIDTH)), ("up", (INNER, WIDTH)), ("down", (WIDTH, INNER))):
            weights[f"{here}mlp.{part}_proj.weight"] = draw(*shape)
        for part in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{here}{part}.weight"] = draw(WIDTH)
    if not tied:
        weights["lm_head.weight"] = draw(len(VOCABULARY), WIDTH)
    return weights


PARTS = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}  # fmt: skip
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def name_there(name: str) -> str:
    """The name of llama.cpp for a tensor of transformers."""
    stem = name.removesuffix(".weight")
    if stem in WHOLE:
        return f"{WHOLE[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{PARTS[part]}.weight"


def order_there(name: str, weight: np.ndarray) -> np.ndarray:
    """llama.cpp keeps the rows of queries and keys as it rotates them: the two halves of a head interleaved."""
    heads = HEADS if "q_proj" in name else KEYS if "k_proj" in name else 0
    if not heads:
        return weight
    return weight.reshape(heads, 2, HEAD // 2, WIDTH).swapaxes(1, 2).reshape(weight.shape)


def write(path: Path, weights: dict[str, np.ndarray], kind: str = "F32", architecture: str = "llama") -> Path:
    """A GGUF file of these weights: vectors as F32, matrices as `kind`."""
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
        (writer.add_eos_token_id, VOCABULARY.index("<|end|>")),
        (writer.add_add_bos_token, False),
        (writer.add_chat_template, TEMPLATE),
    ):
        add(value)
    for name, weight in weights.items():
        stored = gguf.GGMLQuantizationType.F32 if weight.ndim == 1 else gguf.GGMLQuantizationType[kind]
        there = order_there(name, weight)
        writer.add_tensor(name_there(name), gguf.quants.quantize(there, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
