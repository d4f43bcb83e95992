"""A model of one's own is one file: two architectures that the paper has not, with tokenizers of their own, and a
dataset of one's own, through every notebook."""

import json

import pandas as pd
import pytest
import torch
import yaml
from clone import copy_of_project, run, walk_through
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedTokenizerFast,
)

pytestmark = pytest.mark.slow
NAMES = ["my-gemma", "my-phi"]
SIZE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 2048}  # fmt: skip
# Gemma's template refuses a system role, Phi's has one.
GEMMA = """{{ bos_token }}{% for m in messages %}
{%- if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif -%}
<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
PHI = """{% for m in messages %}<|{{ m.role }}|>
{{ m.content }}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""


def tokenizer(kind, words, template, special, **named):
    """Gemma's marks spaces by U+2581 with bytes to fall back on, Phi's works on bytes."""
    if kind == "bytes":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        made = Tokenizer(models.BPE(byte_fallback=True))
        made.normalizer = normalizers.Replace(" ", "\u2581")
        made.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
        made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
        alphabet, special = [], [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    wanted = {"vocab_size": 900, "special_tokens": special, "initial_alphabet": alphabet}
    trainer = trainers.BpeTrainer(**wanted, show_progress=False)
    made.train_from_iterator([*words, "#### 0123456789 A B True False -,.\n"] * 2, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=made, **named)
    fast.chat_template = template
    return fast


def checkpoints(words):
    """(name, file's own lines, tokenizer, model) of each."""
    torch.manual_seed(0)
    gemma = tokenizer(
        "marks",
        words,
        GEMMA,
        ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"],
        bos_token="<bos>",
        eos_token="<end_of_turn>",
        pad_token="<pad>",
    )
    phi = tokenizer(
        "bytes",
        words,
        PHI,
        ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
        eos_token="<|end|>",
        pad_token="<|endoftext|>",
    )
    yield (
        "my-gemma",
        {"system_prompt": False},
        gemma,
        Gemma2ForCausalLM(Gemma2Config(vocab_size=len(gemma), head_dim=8, sliding_window=64, **SIZE)),
    )
    yield (
        "my-phi",
        {"system_prompt": True, "temperature": 0.7, "top_k": 20},
        phi,
        Phi3ForCausalLM(Phi3Config(vocab_size=len(phi), pad_token_id=phi.pad_token_id, **SIZE)),
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = copy_of_project(tmp_path_factory.mktemp("mine") / "a folder")
    rows = [json.loads(line) for line in (folder / "demo/questions/demo-easy.jsonl").read_text().splitlines()]
    for name, own, words, model in checkpoints([row["question"] for row in rows]):
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.data.mul_(6)
        model.generation_config.eos_token_id = words.eos_token_id
        model.save_pretrained(folder / "weights" / name)
        words.save_pretrained(folder / "weights" / name)
        write(folder / f"params/models/{name}.yaml", {"label": name.title(), "source": f"weights/{name}"} | own)
    mine = [
        {"question": row["question"], "answer": row["answer"], "split": split}
        for row, split in zip(rows, ["calibration"] * 8 + ["evaluation"] * 6, strict=False)
    ]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
    write(
        folder / "params/datasets/mine.yaml",
        {"label": "Mine", "source": {"all": "mine.jsonl"}, "calibration": 8, "evaluation": 6},
    )
    small = {"max_new_tokens": 40, "n_tuning_examples": 4, "dropout_passes": 3, "resamples": 20, "draws": 2,
             "calibration_sizes": [4], "ablation_limit": 2, "title": "my own models",
             "models": ["tiny-llama", *NAMES], "datasets": ["mine"]}  # fmt: skip
    write(folder / "params/small.yaml", yaml.safe_load((folder / "params/demo.yaml").read_text()) | small)
    return folder


def write(path, content):
    path.write_text(yaml.safe_dump(content))


@pytest.fixture(scope="module")
def made(project):
    walk_through(project, "small")
    return project / "artifacts" / "small"


def test_each_is_a_row_of_every_table(made, project):
    for name in ("result_estimation", "result_isotonic", "insitu_ptrue", "dropout_grid_search", "inference_settings"):
        text = (project / f"figures/small/tab_{name}.tex").read_text()
        assert all(label in text for label in ("My-Gemma", "My-Phi", "Tiny-Llama")), name
        assert "my own models." in text.lower() and "nan" not in text.lower()


def test_prompts_are_their_own_templates(made):
    starts = {"my-gemma": "<bos><start_of_turn>user\nYou are a mathematics expert.",
              "my-phi": "<|system|>\nYou are a helpful"}  # fmt: skip
    for name, start in starts.items():
        frame = pd.read_parquet(made / f"generations/{name}__mine.parquet")
        assert len(frame) == 14 and frame.prompt.str.startswith(start).all()
        assert (frame.prompt_tokens > 40).all() and frame.token_logprobs.map(len).eq(frame.token_ids.map(len)).all()


@pytest.mark.parametrize("name", NAMES)
def test_every_signal_is_there(made, name):
    verified = pd.read_parquet(made / f"verification/{name}__mine.parquet")
    assert {"A", "B"} <= {spelling.strip() for spelling in verified.spellings.iloc[0]}
    for kind in ("verification", "in_situ"):
        said = json.loads((made / f"{kind}/{name}__mine.json").read_text())["options"]["A/B"]
        assert "'A'" in said and "against" in said
    assert verified.live.all() and verified.in_situ_logz.notna().all()
    passes = pd.read_parquet(made / f"dropout/{name}__mine.parquet")
    spread = [p[-1][0] - c[-1][0] for p, c in zip(passes.predictive, passes.conditional, strict=True)]
    assert max(spread) > 1e-6, "dropout takes effect"


def test_check_says_they_are_ready(project):
    said = run(project, "check", "small", "--models", *NAMES, "--datasets", "mine")
    for words in ("Gemma2Attention", "Phi3Attention", "ready; nothing was run"):
        assert words in said
