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
    """The model of a file, in a folder of verified files that is still empty."""
    monkeypatch.setattr(parameter_schemas, "MODELS", tmp_path / "models")
    told = {"label": "Tiny", "source": "someone/tiny", "revision": "abc", "gguf": "tiny.gguf", "sha256": "0" * 64}
    return parameter_schemas.Model(**told)


def load(spec, weights, dtype="auto", **written):
    spec.place.mkdir(parents=True)
    tiny_gguf.write(spec.place / "tiny.gguf", weights, **written)
    return models.load_language_model("tiny", spec.model_copy(update={"dtype": dtype}))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("tied", [True, False])
def test_what_was_written_comes_out(spec, kind, tied, dtype):
    """Plain numbers exactly; quantised ones as the package gguf reads them; in the precision of the model's file."""
    weights, stored = tiny_gguf.weights_of(tiny_gguf.network(tied)), gguf.GGMLQuantizationType[kind]
    kept = dict(load(spec, weights, dtype, kind=kind).model.named_parameters())
    assert kept.keys() == weights.keys()
    for name, weight in weights.items():
        if weight.ndim > 1:
            weight = gguf.quants.dequantize(gguf.quants.quantize(weight, stored), stored)
        assert torch.equal(kept[name], torch.tensor(weight).to(getattr(torch, dtype))), name


def test_it_is_a_model_like_any_other(spec):
    """Against the Llama whose weights it holds."""
    with pytest.raises(UserError, match="tiny.gguf of someone/tiny is not fetched and checked yet: a run of a profile"):
        models.load_language_model("tiny", spec)
    reference = tiny_gguf.network(tied=False)
    lm = load(spec, tiny_gguf.weights_of(reference))
    facts = {"source": "someone/tiny", "revision": "abc", "dtype": "float32"}
    assert {name: lm.facts[name] for name in facts} == facts and lm.context == tiny_gguf.CONTEXT
    ids = models.encode(lm, models.apply_chat_template(lm, [{"role": "user", "content": "Is it 12?\n#### 12"}]))
    pieces = ["<|start|>", *"Is\u0120it\u012012?\u010a", "####", *"\u012012", "<|end|>"]
    assert ids == list(map(tiny_gguf.VOCABULARY.index, pieces)) and lm.eos == ids[-1:]
    ids = torch.tensor([ids])
    torch.testing.assert_close(lm.model(ids).logits, reference(ids).logits)


@pytest.mark.parametrize("end, line", [
    (len(tiny_gguf.VOCABULARY), "its end token 260 is none of the file's 260 tokens$"),
    (None, "the file names no end token: its responses would never end$"),
])  # fmt: skip
def test_an_impossible_end_token_is_one_line(spec, end, line):
    with pytest.raises(UserError, match=f"^model 'tiny' [^\n]*{line}"):
        load(spec, tiny_gguf.weights_of(tiny_gguf.network()), end=end)
