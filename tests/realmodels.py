"""Checkpoints of the paper's architectures at a small random size: real vocabularies, tokenizers,
templates and configurations (from ../shared/tokenizers), two layers, random weights."""

import json
import shutil
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

FOLDERS = {
    "llama-3.1-8b": "Llama-3.1-8B-Instruct",
    "llama-3.2-3b": "Llama-3.2-3B-Instruct",
    "deepseek-r1-8b": "DeepSeek-R1-Distill-Llama-8B",
    "qwen3-8b-thinking": "Qwen3-8B",
    "qwen3-4b-instruct": "Qwen3-4B-Instruct-2507",
}
SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip


def build(published: Path, to: Path, seed: int = 0) -> Path:
    """The published files of a model beside small random weights (float32 safetensors)."""
    config = json.loads((published / "config.json").read_text()) | SMALL
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.float32)
    # so peaked that some tokens come again and again, as in real text
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(8)
    model.save_pretrained(to)
    shutil.copytree(published, to, dirs_exist_ok=True)
    (to / "config.json").write_text(json.dumps(config))
    return to
