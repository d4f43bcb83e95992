"""Forward pass of the demo models, about twice as fast to train on a CPU as that of transformers.

One function serves both architectures: Qwen 3 is Llama with a norm on each head's queries and keys.
Weights are fused here and exported for `LlamaForCausalLM` and `Qwen3ForCausalLM`. `demo/train.py`
checks that both implementations give the same logits before it saves anything.
"""

import torch
from torch.nn import functional
from transformers import LlamaConfig, PretrainedConfig, Qwen3Config

Weights = dict[str, torch.Tensor]
PARTS = ("norm1", "norm2", "qkv", "out", "up", "down", "qnorm", "knorm")  # of a layer


def config(name: str, tokenizer) -> PretrainedConfig:
    """Return the configuration of `tiny-llama` or `tiny-qwen`: about 0.9 million parameters."""
    kind = LlamaConfig if name == "tiny-llama" else Qwen3Config
    return kind(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4 if name == "tiny-llama" else 2,
        head_dim=32,
        max_position_embeddings=1024,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def initial(c: PretrainedConfig, seed: int) -> Weights:
    """Return normal weights with standard deviation 0.02 (smaller for output projections, as is
    usual)."""
    g = torch.Generator().manual_seed(seed)
    d = c.hidden_size
    heads = c.num_attention_heads * c.head_dim
    kv = c.num_key_value_heads * c.head_dim

    def normal(*shape: int, scale: float = 0.02) -> torch.Tensor:
        return torch.randn(*shape, generator=g) * scale

    w: Weights = {"embed": normal(c.vocab_size, d), "norm": torch.ones(d)}
    small = 0.02 / (2 * c.num_hidden_layers) ** 0.5
    for i in range(c.num_hidden_layers):
        w |= {
            f"{i}.norm1": torch.ones(d),
            f"{i}.norm2": torch.ones(d),
            f"{i}.qkv": normal(heads + 2 * kv, d),
            f"{i}.out": normal(d, heads, scale=small),
            f"{i}.up": normal(2 * c.intermediate_size, d),
            f"{i}.down": normal(d, c.intermediate_size, scale=small),
        }
        if c.model_type == "qwen3":
            w[f"{i}.qnorm"] = torch.ones(c.head_dim)
            w[f"{i}.knorm"] = torch.ones(c.head_dim)
    return {name: t.requires_grad_() for name, t in w.items()}


def rope(c: PretrainedConfig, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cosines and sines of rotary position embedding, (length, head_dim) each."""
    inverse = 1.0 / (10000.0 ** (torch.arange(0, c.head_dim, 2) / c.head_dim))
    angles = torch.outer(torch.arange(length), inverse).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def hidden(w: Weights, c: PretrainedConfig, ids: torch.Tensor, table: tuple) -> torch.Tensor:
    """Return the last hidden states (batch, length, hidden) of right-padded ids (batch, length)."""
    x = functional.embedding(ids, w["embed"])
    for i in range(c.num_hidden_layers):
        layer = {part: w.get(f"{i}.{part}") for part in PARTS}
        x = x + attend(layer, c, norm(x, layer["norm1"]), table)
        gate_and_up = functional.linear(norm(x, layer["norm2"]), layer["up"])
        gate, up = gate_and_up.chunk(2, dim=-1)
        x = x + functional.linear(functional.silu(gate) * up, layer["down"])
    return norm(x, w["norm"])


def attend(layer: dict, c: PretrainedConfig, x: torch.Tensor, table: tuple) -> torch.Tensor:
    """Return what the attention of a layer adds, (batch, length, hidden)."""
    batch, length, _ = x.shape
    h = c.num_attention_heads
    kv = c.num_key_value_heads
    cos = table[0][:length]
    sin = table[1][:length]
    qkv = functional.linear(x, layer["qkv"])
    qkv = qkv.view(batch, length, h + 2 * kv, c.head_dim).transpose(1, 2)
    q, k, v = qkv.split((h, kv, kv), dim=1)
    if layer["qnorm"] is not None:
        q = norm(q, layer["qnorm"])
        k = norm(k, layer["knorm"])
    q = rotate(q, cos, sin)
    k = rotate(k, cos, sin)
    if kv < h:
        k = k.repeat_interleave(h // kv, dim=1)
        v = v.repeat_interleave(h // kv, dim=1)
    # causal attention and right padding: no mask is needed
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    y = y.transpose(1, 2).reshape(batch, length, h * c.head_dim)
    return functional.linear(y, layer["out"])


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, weight.shape, weight, 1e-6)


def export(w: Weights, c: PretrainedConfig) -> Weights:
    """Return the weights under transformers' names."""
    heads, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    out: Weights = {"model.embed_tokens.weight": w["embed"], "model.norm.weight": w["norm"]}
    for i in range(c.num_hidden_layers):
        q, k, v = w[f"{i}.qkv"].split((heads, kv, kv))
        gate, up = w[f"{i}.up"].chunk(2)
        names = {
            "self_attn.q_proj": q,
            "self_attn.k_proj": k,
            "self_attn.v_proj": v,
            "self_attn.o_proj": w[f"{i}.out"],
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": w[f"{i}.down"],
            "input_layernorm": w[f"{i}.norm1"],
            "post_attention_layernorm": w[f"{i}.norm2"],
        }
        if f"{i}.qnorm" in w:
            names |= {"self_attn.q_norm": w[f"{i}.qnorm"], "self_attn.k_norm": w[f"{i}.knorm"]}
        out |= {f"model.layers.{i}.{name}.weight": t for name, t in names.items()}
    return {name: t.detach().clone() for name, t in out.items()}
