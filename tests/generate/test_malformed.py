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


@pytest.fixture(autouse=True)
def soon():
    """A file that is waited for (a FIFO, say) fails its test, and does not hang it."""

    def stop(number, frame):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def fits(text, said):
    assert said in text and len(text) <= LONGEST and text.isprintable(), text


# ---- odd files, whatever they are read for


def dangling(path):
    path.symlink_to(path.with_name("nowhere"))


def fifo(path):
    os.mkfifo(path)


# ---- checkpoints and their tokenizers

TINY = ROOT / "demo" / "models" / "tiny-llama"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 5\n"


def bytes_of(name, data):
    def change(place):
        (place / name).unlink(missing_ok=True)
        (place / name).write_bytes(data if isinstance(data, bytes) else data.encode())

    return change


def cut(name, count):
    return lambda place: bytes_of(name, (place / name).read_bytes()[:count])(place)


def odd(name, make):
    def change(place):
        (place / name).unlink()
        make(place / name)

    return change


def fields(name, *gone, **changed):
    """A JSON file with other fields."""

    def change(place):
        known = json.loads((place / name).read_text()) | changed
        bytes_of(name, json.dumps({key: value for key, value in known.items() if key not in gone}))(place)

    return change


def config(*gone, **changed):
    return fields("config.json", *gone, **changed)


def vocabulary(change):
    """A tokenizer.json, changed in place."""

    def changed(place):
        known = json.loads((place / "tokenizer.json").read_text())
        change(known)
        bytes_of("tokenizer.json", json.dumps(known))(place)

    return changed


def tensors(**changed):
    """Weights with others in place of some; None: without."""

    def change(place):
        found = load_file(place / "model.safetensors")
        for name, value in changed.items():
            name = name.replace("__", ".")
            found[name] = value(found.get(name)) if callable(value) else value
        (place / "model.safetensors").unlink()
        kept = {name: tensor.contiguous() for name, tensor in found.items() if tensor is not None}
        save_file(kept, place / "model.safetensors", metadata={"format": "pt"})

    return change


def sharded(change):
    """The weights in two files with an index, and then something done to these."""

    def changed(place):
        found = load_file(place / "model.safetensors")
        (place / "model.safetensors").unlink()
        files = {name: f"model-0000{1 + (place % 2)}-of-00002.safetensors" for place, name in enumerate(found)}
        for file in set(files.values()):
            part = {name: found[name] for name in found if files[name] == file}
            save_file(part, place / file, metadata={"format": "pt"})
        index = {"metadata": {}, "weight_map": files}
        change(place, index)
        (place / "model.safetensors.index.json").write_text(json.dumps(index))

    return changed


def several(*changes):
    def change(place):
        for one in changes:
            one(place)

    return change


def holding(value):
    def change(tensor):
        tensor.view(-1)[5] = value
        return tensor

    return change


def template(text):
    return bytes_of("chat_template.jinja", text)


NORM, HEAD = "model__norm__weight", "lm_head__weight"
NAN, INFINITE = float("nan"), float("inf")
PART = "model-00002-of-00002.safetensors"
EVERY = "{% for m in messages %}{{ m.content }}{% endfor %}"
NOT_WHOLE = [  # of files and tensors: neither checked nor loaded
    (tensors(**{NORM: None}), "its files lack model.norm.weight (1 in all)"),
    (config(tie_word_embeddings=False), "its files lack lm_head.weight"),
    (config(num_hidden_layers=9), "its files lack model.layers.4."),
    (tensors(other=torch.ones(3)), "hold more than the network has: other (1 in all)"),
    (tensors(**{NORM: torch.ones(3)}), "can't be loaded"),
    (config(hidden_size=64), "can't be loaded"),
    (config(model_type="gpt2"), ""),
    (config("model_type"), "can't be loaded"),
    (config(num_attention_heads=0), "can't be loaded"),
    (bytes_of("config.json", "[]"), "can't be loaded"),
    (bytes_of("config.json", "[" * 100_000), "can't be loaded"),
    (bytes_of("config.json", POINTER), "config.json is a pointer of git-lfs: `git lfs pull`"),
    (odd("config.json", fifo), "can't be loaded"),
    (bytes_of("generation_config.json", "[]"), "can't be loaded"),
    (bytes_of("tokenizer_config.json", "[1]"), "can't be loaded"),
    (cut("model.safetensors", -1), "can't be loaded"),
    (bytes_of("model.safetensors", b"\x80\x04K\x01." * 9), "can't be loaded"),
    (bytes_of("model.safetensors", POINTER), "model.safetensors is a pointer of git-lfs"),
    (odd("model.safetensors", fifo), "can't be loaded"),
    (odd("model.safetensors", dangling), "can't be loaded"),
    (sharded(lambda place, index: (place / PART).unlink()), "can't be loaded"),
    (sharded(lambda place, index: bytes_of(PART, POINTER)(place)), f"{PART} is a pointer of git-lfs"),
    (sharded(lambda place, index: index.update(weight_map={"model.norm.weight": PART})), "its files lack"),
    (sharded(lambda place, index: index.pop("weight_map")), "can't be loaded"),
    (sharded(lambda place, index: index["weight_map"].update(other="../x.safetensors")), ""),
    (tensors(**{NORM: holding(NAN)}), "its tensor model.norm.weight holds NaN or infinite weights"),
    (tensors(model__embed_tokens__weight=holding(-INFINITE)), "holds NaN or infinite weights"),
    (several(fields("generation_config.json", "eos_token_id"), config("eos_token_id"),
             fields("tokenizer_config.json", "eos_token")), "no end token"),
    (fields("generation_config.json", eos_token_id=9999), "its end token 9999 is none of the network's 820 tokens"),
    (fields("generation_config.json", eos_token_id=[816, 5000]), "its end token 5000 is none"),
    (fields("generation_config.json", eos_token_id="abc"), ""),
    (fields("tokenizer_config.json", pad_token="<nowhere>"), "its padding token '<nowhere>' (820) is none"),
    (fields("tokenizer_config.json", pad_token=5), ""),
    (bytes_of("tokenizer.json", "{"), "can't be loaded"),
    (bytes_of("tokenizer.json", POINTER), "tokenizer.json is a pointer of git-lfs"),
    (vocabulary(lambda known: known.pop("model")), "can't be loaded"),
    (vocabulary(lambda known: known["model"]["vocab"].update(zebra=5000)), "its token 'zebra' (5000) is none"),
    (vocabulary(lambda known: known["model"].update(merges=[["zz", "qq"]])), "can't be loaded"),
]  # fmt: skip
NOT_TO_BE_ASKED = [  # of templates and settings: said by `check`
    (template(""), "no chat template"),
    (template("{# nothing #}"), "writes nothing"),
    (template("Hello"), "does not write the question as it is given"),
    (template(EVERY.replace("m.content", "m.content[:20]")), "does not write the question"),
    (template(EVERY.replace("m.content", "m.content.split('\n\nAt')[0]")), "does not write the instruction"),
    (template("{{ nothing.at.all }}"), "its chat template fails"),
    (template("{% for"), "its chat template fails"),
    (template("{{ ''.__class__.__mro__ }}"), "its chat template fails"),
    (template("{{ raise_exception('\x1b[31mno') }}"), r"its chat template fails: \x1b[31mno"),
    (template("{{ strftime_now('%d') }}{{ date_string }}" + EVERY), "set `date_string`"),
    (template("{{ bos_token }}{{ bos_token }}" + EVERY), "beginning-of-sequence token twice"),
    (template(EVERY + "<think>"), "write `thinking: true`"),
    (config(max_position_embeddings=100), "do not fit its context of 100"),
]  # fmt: skip


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


def test_the_unchanged_copy_is_a_model(changed):
    spec = changed(lambda place: None)
    assert not looked_at(spec) and models.load_language_model("mine", spec).eos == [816]


def test_a_copy_in_two_files_is_a_model(changed):
    spec = changed(sharded(lambda place, index: None))
    assert not looked_at(spec) and models.load_language_model("mine", spec).eos == [816]


def test_weights_that_are_still_to_be_fetched_are_not_missed(changed):
    """From the hub, `check` has configuration, tokenizer and the index of the weights alone, or some of these."""
    spec = changed(sharded(lambda place, index: (place / PART).unlink()))
    assert preflight.load_outline("mine", spec, spec.source, whole=False).eos == [816]


@pytest.mark.parametrize(("change", "said"), NOT_WHOLE)
def test_a_checkpoint_that_is_not_whole(changed, change, said):
    spec = changed(change)
    found = looked_at(spec)
    assert len(found) == 1
    fits(found[0], said)
    with pytest.raises(UserError) as caught:
        models.load_language_model("mine", spec)
    fits(str(caught.value), "model 'mine'")
    fits(str(caught.value), said)


@pytest.mark.parametrize(("change", "said"), NOT_TO_BE_ASKED)
def test_a_checkpoint_that_cannot_be_asked(changed, change, said):
    found = looked_at(changed(change))
    assert found
    fits(found[0], said)
