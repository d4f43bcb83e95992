"""A model of one's own is one file: an architecture that the paper has not, with a tokenizer of its own, and a dataset
of one's own, through every notebook, by the parameters of the pilot."""

import json

import pandas as pd
import pytest
import torch
import yaml
from clone import copy_of_project, edit, walk_through
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Gemma2Config, Gemma2ForCausalLM, PreTrainedTokenizerFast

pytestmark = pytest.mark.slow
PAIR = "my-gemma__mine"
SIZE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8,
        "num_key_value_heads": 2, "max_position_embeddings": 2048, "sliding_window": 64}  # fmt: skip
SPECIAL = ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", *(f"<0x{byte:02X}>" for byte in range(256))]
TEMPLATE = """{{ bos_token }}{% for m in messages %}
{%- if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif -%}
<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
LESS = {"engine": "transformers", "max_new_tokens": 40, "dropout_passes": 3, "resamples": 20, "draws": 2,
        "models": ["tiny-llama", "my-gemma"], "datasets": ["mine"], "title": "my own models"}  # fmt: skip


def tokenizer(words):
    """As Gemma's: spaces are marked by U+2581, there are bytes to fall back on, and its template has no system role."""
    made = Tokenizer(models.BPE(byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "\u2581")
    made.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=SPECIAL, show_progress=False)
    made.train_from_iterator([*words, "#### 0123456789 A B True False -,.\n"] * 2, trainer)
    named = {"bos_token": "<bos>", "eos_token": "<end_of_turn>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=TEMPLATE, **named)


def save(folder, words):
    """A checkpoint of random weights."""
    torch.manual_seed(0)
    fast = tokenizer(words)
    model = Gemma2ForCausalLM(Gemma2Config(vocab_size=len(fast), **SIZE))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(6)
    model.generation_config.eos_token_id = fast.eos_token_id
    model.save_pretrained(folder)
    fast.save_pretrained(folder)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The pilot, as transformers draws, of the demo's model and one's own: neither vLLM nor the hub is here."""
    folder = copy_of_project(tmp_path_factory.mktemp("mine") / "a folder")
    rows = [json.loads(line) for line in (folder / "demo/questions/demo-easy.jsonl").read_text().splitlines()]
    save(folder / "weights" / "my-gemma", [row["question"] for row in rows])
    own = {"label": "My-Gemma", "system_prompt": False, "temperature": 0.7, "top_k": 20, "source": "weights/my-gemma"}
    write(folder / "params/models/my-gemma.yaml", own)
    splits = zip(rows, ["calibration"] * 8 + ["evaluation"] * 6, strict=False)
    mine = [{"question": row["question"], "answer": row["answer"], "split": split} for row, split in splits]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
    own = {"label": "Mine", "source": {"all": "mine.jsonl"}, "calibration": 8, "evaluation": 6}
    write(folder / "params/datasets/mine.yaml", own)
    edit(folder / "params/pilot.yaml", **LESS)
    return folder


def write(path, content):
    path.write_text(yaml.safe_dump(content))


@pytest.fixture(scope="module")
def made(project):
    walk_through(project, "pilot")
    return project / "artifacts" / "pilot"


def test_it_is_a_row_of_every_table(made, project):
    assert len(list((project / "figures/pilot").glob("tab_*.tex"))) >= 10
    for name in ("result_estimation", "result_isotonic", "insitu_ptrue", "dropout_grid_search", "inference_settings"):
        text = (project / f"figures/pilot/tab_{name}.tex").read_text()
        assert "My-Gemma" in text and "Tiny-Llama" in text, name
        assert "my own models." in text.lower() and "nan" not in text.lower()


def test_prompts_are_its_own_template(made):
    frame = pd.read_parquet(made / f"generations/{PAIR}.parquet")
    start = "<bos><start_of_turn>user\nYou are a mathematics expert."
    assert len(frame) == 14 and frame.prompt.str.startswith(start).all()
    assert (frame.prompt_tokens > 40).all() and frame.token_logprobs.map(len).eq(frame.token_ids.map(len)).all()


def test_every_signal_is_there(made):
    verified = pd.read_parquet(made / f"verification/{PAIR}.parquet")
    assert {"A", "B"} <= {spelling.strip() for spelling in verified.spellings.iloc[0]}
    for kind in ("verification", "in_situ"):
        said = json.loads((made / f"{kind}/{PAIR}.json").read_text())["options"]["A/B"]
        assert "'A'" in said and "against" in said
    assert verified.live.all() and verified.in_situ_logz.notna().all()
    passes = pd.read_parquet(made / f"dropout/{PAIR}.parquet")
    spread = [p[-1][0] - c[-1][0] for p, c in zip(passes.predictive, passes.conditional, strict=True)]
    assert max(spread) > 1e-6, "dropout takes effect"
