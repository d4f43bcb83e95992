"""GGUF files as models: the weights that were written come out, with tokenizer and template, and
run."""

import gguf
import pytest
import tiny_gguf
import torch
from architectures import assert_alike, respond

from lib import parameter_schemas
from lib.errors import UserError
from lib.models import loading

FILE = {"source": "someone/tiny", "revision": "abc", "gguf": "tiny.gguf", "sha256": "0" * 64}


@pytest.fixture
def spec(tmp_path, monkeypatch, llama):
    """tiny-llama as a file, in a folder of verified files that is still empty."""
    monkeypatch.setattr(parameter_schemas, "MODELS", tmp_path / "models")
    return llama.spec.model_copy(update=FILE)


def load(spec, **written):
    spec.place.mkdir(parents=True)
    tiny_gguf.write(spec.place / "tiny.gguf", **written)
    return loading.load_language_model("tiny-llama", spec)


@pytest.mark.parametrize("kind, dtype", [
    ("F32", "float32"), ("F16", "float32"), ("Q8_0", "bfloat16"), ("Q4_0", "float32"),
])  # fmt: skip
@pytest.mark.parametrize("tied", [True, False])
def test_what_was_written_comes_out(spec, llama, kind, tied, dtype):
    """Plain numbers exactly; quantised ones as the package gguf reads them; in the precision of the
    model's file."""
    weights = {
        name: parameter.detach().numpy() for name, parameter in llama.model.named_parameters()
    }
    last = {} if tied else {"lm_head.weight": weights["model.embed_tokens.weight"][::-1].copy()}
    lm = load(spec.model_copy(update={"dtype": dtype}), kind=kind, weights=last)
    parameters = dict(lm.model.named_parameters())
    stored = gguf.GGMLQuantizationType[kind]
    assert parameters.keys() == weights.keys() | last.keys()
    for name, weight in (weights | last).items():
        if weight.ndim > 1:
            weight = gguf.quants.dequantize(gguf.quants.quantize(weight, stored), stored)
        expected = torch.tensor(weight).to(getattr(torch, dtype))
        assert torch.equal(parameters[name], expected), name


def test_it_is_a_model_like_any_other(spec, llama):
    """Against the one whose weights, tokenizer and template it holds."""
    with pytest.raises(
        UserError,
        match="tiny.gguf of someone/tiny is not fetched and checked yet: a run of a profile",
    ):
        loading.load_language_model("tiny-llama", spec)
    lm = load(spec)
    assert (lm.facts["source"], lm.facts["revision"]) == ("someone/tiny", "abc")
    assert (lm.context, lm.eos) == (llama.context, llama.eos)
    assert_alike(respond(lm, 3), respond(llama, 3))


def test_an_impossible_end_token_is_one_line(spec):
    with pytest.raises(
        UserError,
        match="^model 'tiny-llama' .*: its end token 820 is none of the file's 820 tokens$",
    ):
        load(spec, eos_token_id=820)
