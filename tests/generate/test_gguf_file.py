"""GGUF files as models: the weights that were written come out, with tokenizer and template, and run."""

import gguf
import pytest
import tiny_gguf
import torch

from lib import parameter_schemas
from lib.generate import models
from lib.paths import UserError


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """The model of a file, which the test writes, in its folder of verified files."""
    monkeypatch.setattr(parameter_schemas, "MODELS", tmp_path / "models")
    told = {"label": "Tiny", "source": "someone/tiny", "revision": "abc", "gguf": "tiny.gguf", "sha256": "0" * 64}

    def of(weights, dtype="auto", **written):
        made = parameter_schemas.Model(**told, dtype=dtype)
        made.place.mkdir(parents=True)
        tiny_gguf.write(made.place / "tiny.gguf", weights, **written)
        return made

    return of


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("tied", [True, False])
def test_what_was_written_comes_out(spec, kind, tied, dtype):
    """Plain numbers exactly; quantised ones as the package gguf reads them; in the precision of the model's file."""
    weights, stored = tiny_gguf.weights_of(tiny_gguf.network(tied)), gguf.GGMLQuantizationType[kind]
    kept = dict(models.load_language_model("tiny", spec(weights, dtype, kind=kind)).model.named_parameters())
    assert kept.keys() == weights.keys()
    for name, weight in weights.items():
        if weight.ndim > 1:
            weight = gguf.quants.dequantize(gguf.quants.quantize(weight, stored), stored)
        assert torch.equal(kept[name], torch.tensor(weight).to(getattr(torch, dtype))), name


def test_it_is_a_model_like_any_other(spec):
    """Against the Llama whose weights it holds."""
    reference = tiny_gguf.network(tied=False)
    model = spec(tiny_gguf.weights_of(reference))
    lm = models.load_language_model("tiny", model)
    facts = {"source": "someone/tiny", "revision": "abc", "dtype": "float32"}
    assert {name: lm.facts[name] for name in facts} == facts and lm.context == tiny_gguf.CONTEXT
    ids = models.encode(lm, models.apply_chat_template(lm, [{"role": "user", "content": "Is it 12?\n#### 12"}]))
    pieces = ["<|start|>", *"Is\u0120it\u012012?\u010a", "####", *"\u012012", "<|end|>"]
    assert ids == list(map(tiny_gguf.VOCABULARY.index, pieces)) and lm.eos == ids[-1:]
    with torch.inference_mode():
        found, expected = lm.model(torch.tensor([ids], device=lm.device)).logits, reference(torch.tensor([ids])).logits
    torch.testing.assert_close(found.cpu(), expected)
    (model.place / "tiny.gguf").unlink()
    model.place.rmdir()
    with pytest.raises(UserError, match="tiny.gguf of someone/tiny is not fetched and checked yet: a run of a profile"):
        models.load_language_model("tiny", model)


@pytest.mark.parametrize("end, line", [
    (len(tiny_gguf.VOCABULARY), "its end token 260 is none of the file's 260 tokens$"),
    (None, "the file names no end token: its responses would never end$"),
])  # fmt: skip
def test_an_impossible_end_token_is_one_line(spec, end, line):
    with pytest.raises(UserError, match=f"^model 'tiny' [^\n]*{line}"):
        models.load_language_model("tiny", spec(tiny_gguf.weights_of(tiny_gguf.network()), end=end))
