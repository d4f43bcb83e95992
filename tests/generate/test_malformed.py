"""Malformed checkpoints and tokenizers: each is one line that says what is wrong, and never a traceback.

A row of a table is a way in which a file can be wrong, and words of the line that it deserves.
"""

import json
import os
import signal

import pytest
import torch
from safetensors.torch import load_file, save_file

from lib import params
from lib.generate import models, preflight
from lib.paths import ROOT, UserError
from workflow import check, usable
from workflow.pipeline import Run

LONGEST = 300  # characters of a message
TINY = ROOT / "demo" / "models" / "tiny-llama"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 5\n"


@pytest.fixture(autouse=True)
def soon():
    """A file that is waited for (a FIFO, say) fails its test, and does not hang it."""
    before = signal.signal(signal.SIGALRM, lambda number, frame: pytest.fail("it waits"))
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# ---- ways to change the folder of a checkpoint


def put(place, name, data):
    (place / name).unlink(missing_ok=True)
    (place / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def edit(place, name, **changed):
    """A JSON file with other fields."""
    put(place, name, json.dumps(json.loads((place / name).read_text()) | changed))


def vocabulary(place, more=(), **changed):
    """A tokenizer with more tokens, or other fields of its model."""
    model = json.loads((place / "tokenizer.json").read_text())["model"]
    edit(place, "tokenizer.json", model=model | {"vocab": model["vocab"] | dict(more)} | changed)


def fifo(place, name):
    (place / name).unlink()
    os.mkfifo(place / name)


def tensors(place, changed, names=("model.safetensors",)):
    """Weights with others in place of some (None: without), by turns in files of these names; which is in which."""
    found = load_file(place / "model.safetensors") | changed
    (place / "model.safetensors").unlink()
    kept = [name for name in found if found[name] is not None]
    for i, file in enumerate(names):
        part = {name: found[name].contiguous() for name in kept[i :: len(names)]}
        save_file(part, place / file, metadata={"format": "pt"})
    return {name: names[i % len(names)] for i, name in enumerate(kept)}


def shard(place, **changed):
    """The weights in two files, with an index."""
    index = {"metadata": {}, "weight_map": tensors(place, {}, PARTS)}
    put(place, "model.safetensors.index.json", json.dumps(index | changed))


def without_end(place):
    for name in ("generation_config.json", "config.json"):
        edit(place, name, eos_token_id=None)
    edit(place, "tokenizer_config.json", eos_token=None)


NORM = "model.norm.weight"
NAN, INFINITE = (torch.tensor([*[1.0] * 127, float(end)]) for end in ("nan", "-inf"))
PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
NOT_WHOLE = [  # of files and tensors: neither checked nor loaded
    (lambda place: tensors(place, {NORM: None}), "its files lack model.norm.weight (1 in all)"),
    (lambda place: edit(place, "config.json", tie_word_embeddings=False), "its files lack lm_head.weight"),
    (lambda place: edit(place, "config.json", num_hidden_layers=9), "its files lack model.layers.4."),
    (lambda place: tensors(place, {"other": torch.ones(3)}), "hold more than the network has: other (1 in all)"),
    (lambda place: tensors(place, {NORM: torch.ones(3)}), "can't be loaded"),
    (lambda place: edit(place, "config.json", num_attention_heads=0), "can't be loaded"),
    (lambda place: put(place, "config.json", "[]"), "can't be loaded"),
    (lambda place: put(place, "config.json", "[" * 100_000), "can't be loaded"),
    (lambda place: put(place, "config.json", POINTER), "config.json is a pointer of git-lfs: `git lfs pull`"),
    (lambda place: fifo(place, "config.json"), "can't be loaded"),
    (lambda place: put(place, "generation_config.json", "[]"), "can't be loaded"),
    (lambda place: put(place, "tokenizer_config.json", "[1]"), "can't be loaded"),
    (lambda place: put(place, "model.safetensors", b"\x80\x04K\x01." * 9), "can't be loaded"),
    (lambda place: [shard(place), (place / PARTS[1]).unlink()], "can't be loaded"),
    (lambda place: [shard(place), put(place, PARTS[1], POINTER)], f"{PARTS[1]} is a pointer of git-lfs"),
    (lambda place: shard(place, weight_map={NORM: PARTS[1]}), "its files lack"),
    (lambda place: tensors(place, {NORM: NAN}), "its tensor model.norm.weight holds NaN or infinite weights"),
    (lambda place: tensors(place, {NORM: INFINITE}), "holds NaN or infinite weights"),
    (without_end, "no end token"),
    (lambda place: edit(place, "generation_config.json", eos_token_id=9999),
     "its end token 9999 is none of the network's 820 tokens"),
    (lambda place: edit(place, "generation_config.json", eos_token_id=[816, 5000]), "its end token 5000 is none"),
    (lambda place: edit(place, "generation_config.json", eos_token_id="abc"), ""),
    (lambda place: edit(place, "tokenizer_config.json", pad_token="<nowhere>"),
     "its padding token '<nowhere>' (820) is none"),
    (lambda place: put(place, "tokenizer.json", "{"), "can't be loaded"),
    (lambda place: vocabulary(place, {"zebra": 5000}), "its token 'zebra' (5000) is none"),
    (lambda place: vocabulary(place, merges=[["zz", "qq"]]), "can't be loaded"),
]  # fmt: skip
EVERY = "{% for m in messages %}{{ m.content }}{% endfor %}"
TEMPLATES = [  # said by `check`
    ("", "no chat template"),
    ("{# nothing #}", "writes nothing"),
    ("Hello", "does not write the question as it is given"),
    (EVERY.replace("m.content", "m.content[:20]"), "does not write the question"),
    (EVERY.replace("m.content", "m.content.split('\n\nAt')[0]"), "does not write the instruction"),
    ("{{ nothing.at.all }}", "its chat template fails"),
    ("{% for", "its chat template fails"),
    ("{{ ''.__class__.__mro__ }}", "its chat template fails"),
    ("{{ raise_exception('\x1b[31mno') }}", r"its chat template fails: \x1b[31mno"),
    ("{{ strftime_now('%d') }}{{ date_string }}" + EVERY, "set `date_string`"),
    ("{{ bos_token }}{{ bos_token }}" + EVERY, "beginning-of-sequence token twice"),
    (EVERY + "<think>", "write `thinking: true`"),
]


@pytest.fixture
def changed(tmp_path):
    """A copy of tiny-llama (links: nothing is copied but what is changed), as a model's file names it."""

    def make(change):
        for path in TINY.iterdir():
            (tmp_path / path.name).symlink_to(path)
        change(tmp_path)
        return params.load_model_config("tiny-llama").model_copy(update={"source": str(tmp_path)})

    return make


RUN = Run("demo", params.load_profile("demo").model_dump(), 2, 0)


def looked_at(spec):
    """What `check` finds wrong with a model."""

    def lines():
        lm = preflight.load_outline("mine", spec, usable.config_folder(spec), whole=True)
        check.check_weights(spec.source)
        yield from preflight.Preflight(lm, RUN.values, {}).check()

    return [text for level, text in usable.explain_errors(lines()) if level == "wrong"]


@pytest.mark.parametrize("change", [lambda place: None, shard], ids=["same", "two files"])
def test_an_unchanged_copy_is_a_model(changed, change):
    spec = changed(change)
    assert not looked_at(spec) and models.load_language_model("mine", spec).eos == [816]


def test_weights_that_are_still_to_be_fetched_are_not_missed(changed):
    """From the hub, `check` has configuration, tokenizer and the index of the weights alone, or some of these."""
    spec = changed(lambda place: [shard(place), (place / PARTS[1]).unlink()])
    assert preflight.load_outline("mine", spec, spec.source, whole=False).eos == [816]


def fits(text, said):
    assert said in text and len(text) <= LONGEST and text.isprintable(), text


@pytest.mark.parametrize(("change", "said"), NOT_WHOLE)
def test_a_checkpoint_that_is_not_whole(changed, change, said):
    spec = changed(change)
    found = looked_at(spec)
    assert len(found) == 1
    fits(found[0], said)
    with pytest.raises(UserError) as caught:
        models.load_language_model("mine", spec)
    fits(str(caught.value), said)
    assert str(caught.value).startswith("model 'mine'")


@pytest.mark.parametrize(("template", "said"), TEMPLATES)
def test_a_template_that_does_not_ask(changed, template, said):
    fits(looked_at(changed(lambda place: put(place, "chat_template.jinja", template)))[0], said)
