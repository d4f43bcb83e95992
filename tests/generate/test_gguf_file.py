"""GGUF files as checkpoints: the weights that were written come out, with tokenizer and template, and run."""

import gguf
import pytest
import tiny_gguf
import torch
from safetensors.torch import load_file

from lib import configs
from lib.generate import gguf_file, models
from lib.paths import UserError


def converted(tmp_path, weights, kind):
    gguf_file.convert_gguf(tiny_gguf.write(tmp_path / "tiny.gguf", weights, kind), tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


@pytest.mark.parametrize(
    "kind, dtype", [("F32", "float32"), ("F16", "float32"), ("Q8_0", "bfloat16"), ("Q4_0", "bfloat16")]
)
@pytest.mark.parametrize("tied", [True, False])
def test_what_was_written_comes_out(tmp_path, kind, dtype, tied):
    """Plain numbers exactly; quantised ones as the package gguf reads them, rounded to bfloat16."""
    weights, stored = tiny_gguf.weights_of(tiny_gguf.network(tied)), gguf.GGMLQuantizationType[kind]
    kept = load_file(converted(tmp_path, weights, kind) / "model.safetensors")
    assert kept.keys() == weights.keys()
    for name, weight in weights.items():
        if weight.ndim > 1:
            weight = gguf.quants.dequantize(gguf.quants.quantize(weight, stored), stored)
        expected = torch.tensor(weight).to(getattr(torch, dtype))
        assert kept[name].dtype == expected.dtype and torch.equal(kept[name], expected), name


def test_it_is_a_model_like_any_other(tmp_path, monkeypatch):
    """Against the Llama whose weights it holds."""
    reference = tiny_gguf.network(tied=False)
    file = tiny_gguf.write(tmp_path / "tiny.gguf", tiny_gguf.weights_of(reference))
    sha256 = tiny_gguf.sha256(file)
    spec = configs.Model(label="Tiny", source="someone/tiny", revision="abc", gguf="tiny.gguf", sha256=sha256)
    monkeypatch.setattr(configs, "MODELS", tmp_path / "models")
    with pytest.raises(UserError, match="^tiny.gguf of someone/tiny is not converted yet: `./run_all.sh PROFILE`"):
        models.load_language_model("tiny", spec)
    (tmp_path / "models").mkdir()
    gguf_file.convert_gguf(file, spec.place)
    lm = models.load_language_model("tiny", spec)
    facts = {"source": "someone/tiny", "revision": "abc", "gguf": "tiny.gguf", "sha256": sha256}
    assert {name: lm.facts[name] for name in facts} == facts
    text = models.apply_chat_template(lm, [{"role": "user", "content": "Is it 12?\n#### 12"}])
    ids = models.encode(lm, text)
    pieces = ["<|start|>", *"Is\u0120it\u012012?\u010a", "####", *"\u012012", "<|end|>"]
    assert ids == list(map(tiny_gguf.VOCABULARY.index, pieces)) and lm.eos == ids[-1:]
    assert lm.context == tiny_gguf.CONTEXT
    with torch.inference_mode():
        found, expected = lm.model(torch.tensor([ids], device=lm.device)).logits, reference(torch.tensor([ids])).logits
    torch.testing.assert_close(found.cpu(), expected)


def test_what_cannot_be_read_is_said_in_one_line_and_nothing_is_left(tmp_path):
    (tmp_path / "not.gguf").write_bytes(b"no such thing" * 10)
    with pytest.raises(UserError, match="^not.gguf can't be read as GGUF[^\n]*$"):
        gguf_file.convert_gguf(tmp_path / "not.gguf", tmp_path / "checkpoint")
    assert [path.name for path in tmp_path.iterdir()] == ["not.gguf"]
