"""GGUF files as models: the weights that were written come out, with tokenizer and template, and run."""

import gguf
import pytest
import tiny_gguf
import torch

from lib import parameter_schemas
from lib.generate import models, preflight
from lib.paths import UserError


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """The model of a file in its folder of verified files; the file is written by the test."""
    monkeypatch.setattr(parameter_schemas, "MODELS", tmp_path / "models")
    (tmp_path / "models" / "0" / "x").parent.mkdir(parents=True)

    def of(file=None, **more):
        told = {"label": "Tiny", "source": "someone/tiny", "revision": "abc", "gguf": "tiny.gguf", "sha256": "0" * 64}
        made = parameter_schemas.Model(**told | more)
        if file:
            made.place.mkdir(exist_ok=True)
            (made.place / "tiny.gguf").symlink_to(file)
        return made

    return of


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("tied", [True, False])
def test_what_was_written_comes_out(tmp_path, spec, kind, tied, dtype):
    """Plain numbers exactly; quantised ones as the package gguf reads them; in the precision of the model's file."""
    weights, stored = tiny_gguf.weights_of(tiny_gguf.network(tied)), gguf.GGMLQuantizationType[kind]
    lm = models.load_language_model("tiny", spec(tiny_gguf.write(tmp_path / "a.gguf", weights, kind), dtype=dtype))
    kept = dict(lm.model.named_parameters())
    assert kept.keys() == weights.keys()
    for name, weight in weights.items():
        if weight.ndim > 1:
            weight = gguf.quants.dequantize(gguf.quants.quantize(weight, stored), stored)
        assert torch.equal(kept[name], torch.tensor(weight).to(getattr(torch, dtype))), name


def test_it_is_a_model_like_any_other(tmp_path, spec):
    """Against the Llama whose weights it holds."""
    with pytest.raises(UserError, match="tiny.gguf of someone/tiny is not fetched and checked yet: a run of a profile"):
        models.load_language_model("tiny", spec())
    reference = tiny_gguf.network(tied=False)
    lm = models.load_language_model("tiny", spec(tiny_gguf.write(tmp_path / "a.gguf", tiny_gguf.weights_of(reference))))
    facts = {"source": "someone/tiny", "revision": "abc", "dtype": "float32"}
    assert {name: lm.facts[name] for name in facts} == facts
    text = models.apply_chat_template(lm, [{"role": "user", "content": "Is it 12?\n#### 12"}])
    ids = models.encode(lm, text)
    pieces = ["<|start|>", *"Is\u0120it\u012012?\u010a", "####", *"\u012012", "<|end|>"]
    assert ids == list(map(tiny_gguf.VOCABULARY.index, pieces)) and lm.eos == ids[-1:]
    assert lm.context == tiny_gguf.CONTEXT
    with torch.inference_mode():
        found, expected = lm.model(torch.tensor([ids], device=lm.device)).logits, reference(torch.tensor([ids])).logits
    torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("end, line", [
    (9999, f"its end token 9999 is none of the file's {len(tiny_gguf.VOCABULARY)} tokens"),
    (len(tiny_gguf.VOCABULARY), "is none of the file's"), (None, "the file names no end token"),
])  # fmt: skip
def test_an_impossible_end_token_is_one_line_before_any_tensor_is_read(tmp_path, spec, monkeypatch, end, line):
    file = tiny_gguf.write(tmp_path / "tiny.gguf", tiny_gguf.weights_of(tiny_gguf.network()), end=end)
    monkeypatch.setattr(models, "load_network", lambda *words, **more: pytest.fail("tensors are read"))
    with pytest.raises(UserError, match=f"{line}[^\n]*$"):
        preflight.load_outline("tiny", spec(), str(tmp_path), whole=False, gguf_file="tiny.gguf")
    with pytest.raises(UserError, match=f"{line}[^\n]*$"):
        models.load_language_model("tiny", spec(file))
