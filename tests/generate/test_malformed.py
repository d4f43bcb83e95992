"""Malformed checkpoints and tokenizers: each is one line that says what is wrong, and never a traceback.

A row of a table is a way in which a file can be wrong, and words of the line that it deserves.
"""

import json

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file

from lib import params
from lib.generate import models, preflight
from lib.paths import ROOT, UserError
from workflow import check, hub

TINY = ROOT / "demo" / "models" / "tiny-llama"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 5\n"


EVERY = "{% for m in messages %}{{ m.content }}{% endfor %}"

# ---- ways to change the folder of a checkpoint


def put(place, name, data):
    (place / name).unlink(missing_ok=True)
    (place / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def edit(place, name, **changed):
    """A JSON file with other fields."""
    put(place, name, json.dumps(json.loads((place / name).read_text()) | changed))


def tensors(place, changed, most="5GB"):
    """Weights with others in place of some (None: without), in files of at most so many bytes."""
    (place / "model.safetensors").unlink()
    found = load_file(TINY / "model.safetensors") | changed
    kept = {name: tensor for name, tensor in found.items() if tensor is not None}
    save_torch_state_dict(kept, place, max_shard_size=most)


def split(place, kept=2):
    """The weights in two files with an index, or the first of the two."""
    tensors(place, {}, "2.5MB")
    if kept < 2:
        (place / "model-00002-of-00002.safetensors").unlink()


def zebra(place):
    """A token whose number the network has no row for."""
    model = json.loads((place / "tokenizer.json").read_text())["model"]
    edit(place, "tokenizer.json", model=model | {"vocab": model["vocab"] | {"zebra": 5000}})


def without_end(place):
    for name in ("generation_config.json", "config.json"):
        edit(place, name, eos_token_id=None)
    edit(place, "tokenizer_config.json", eos_token=None)
    put(place, "chat_template.jinja", EVERY)  # which closes no turn


NORM = "model.norm.weight"
NOT_WHOLE = [  # of files and tensors: neither checked nor loaded
    (lambda place: tensors(place, {NORM: None}), "its config.json differ in 1 tensors, the first model.norm.weight"),
    (lambda place: tensors(place, {"other": torch.ones(3)}), "its config.json differ in 1 tensors, the first other"),
    (lambda place: put(place, "config.json", "[" * 100_000), "can't be loaded"),
    (lambda place: put(place, "config.json", POINTER), "is a pointer of git-lfs: `git lfs pull`"),
    (lambda place: put(place, "generation_config.json", "[]"), "can't be loaded"),
    (lambda place: put(place, "tokenizer.json", "{"), "can't be loaded"),
    (lambda place: split(place, 1), "can't be loaded"),
    (without_end, "no end token"),
    (lambda place: edit(place, "generation_config.json", eos_token_id=[816, 5000]), "its token 5000 is none"),
    (zebra, "its token 5000 is none of the network's 820 tokens"),
]  # fmt: skip
TEMPLATES = [  # said by `check`
    ("", "no chat template"),
    ("{# nothing #}", "does not write question and instruction as they are given"),
    (EVERY.replace("m.content", "m.content.split('\n\nAt')[0]"), "does not write question and instruction"),
    ("{{ raise_exception('\x1b[31mno') }}", r"its chat template fails: \x1b[31mno"),
    ("{{ strftime_now('%d') }}{{ date_string }}" + EVERY, "set `date_string`"),
    ("{{ strftime_now('%d %B %Y') }}" + EVERY, "set `date_string`"),
    ("{{ bos_token }}{{ bos_token }}" + EVERY, "beginning-of-sequence token twice"),
    (EVERY + "<think>", "write `thinking: true`"),
]


def changed(place, change):
    """A copy of tiny-llama (links: nothing is copied but what is changed), as a model's file names it."""
    for path in TINY.iterdir():
        (place / path.name).symlink_to(path)
    change(place)
    return params.load_model_config("tiny-llama").model_copy(update={"source": str(place)})


def looked_at(spec):
    """What `check` finds wrong with a model."""

    def lines():
        lm = preflight.load_outline("mine", spec, hub.find_config(spec)[0], whole=True)
        yield from preflight.check_model(lm, params.load_profile("demo").model_dump(), {})

    return [text for level, text in check.explain_errors(lines()) if level == "wrong"]


@pytest.mark.parametrize("change", [lambda place: None, split], ids=["same", "two files"])
def test_an_unchanged_copy_is_a_model(tmp_path, change):
    spec = changed(tmp_path, change)
    assert not looked_at(spec) and models.load_language_model("mine", spec).eos == [816]


DOCUMENT = {"eos_token_id": 815}  # <|end_of_text|>, which ends a document and no turn
CLOSES = "{% for m in messages %}<|start_header_id|>{{ m.role }} {{ m.content | trim }} <|eot_id|>\n{% endfor %}"


@pytest.mark.parametrize("changed_files, ends", [
    ({}, [816]),
    ({"generation_config.json": DOCUMENT, "config.json": DOCUMENT}, [815, 816]),
    ({"generation_config.json": DOCUMENT, "tokenizer_config.json": {"eos_token": "<|end_of_text|>"}}, [815, 816]),
    ({"generation_config.json": {"eos_token_id": [816, 815]}}, [816, 815]),
    ({"generation_config.json": DOCUMENT, "tokenizer_config.json": {"eos_token": "<|end_of_text|>"},
      "chat_template.jinja": CLOSES}, [815, 816]),
    ({"generation_config.json": DOCUMENT, "tokenizer_config.json": {"eos_token": "<|end_of_text|>"},
      "chat_template.jinja": EVERY}, [815]),
    ({"generation_config.json": DOCUMENT, "tokenizer_config.json": {"eos_token": "<|end_of_text|>"},
      "chat_template.jinja": "{{ raise_exception('no assistant') }}"}, [815]),
])  # fmt: skip
def test_end_tokens_are_the_settings_the_tokenizers_and_the_one_that_closes_a_turn(tmp_path, changed_files, ends):
    def change(place):
        for name, new in changed_files.items():
            put(place, name, new) if isinstance(new, str) else edit(place, name, **new)

    spec = changed(tmp_path, change)
    assert models.load_language_model("mine", spec).eos == ends
    assert preflight.load_outline("mine", spec, spec.source, whole=True).eos == ends


def fits(text, said):
    assert said in text and len(text) <= 300 and text.isprintable(), text


@pytest.mark.parametrize(("change", "said"), NOT_WHOLE)
def test_a_checkpoint_that_is_not_whole(tmp_path, change, said):
    spec = changed(tmp_path, change)
    (found,) = looked_at(spec)
    fits(found, said)
    with pytest.raises(UserError) as caught:
        models.load_language_model("mine", spec)
    fits(str(caught.value), said)
    assert str(caught.value).startswith("model 'mine'")


@pytest.mark.parametrize(("template", "said"), TEMPLATES)
def test_a_template_that_does_not_ask(tmp_path, template, said):
    fits(looked_at(changed(tmp_path, lambda place: put(place, "chat_template.jinja", template)))[0], said)


@pytest.mark.parametrize("date", ["strftime_now('%d %B %Y')", "date_string or strftime_now('%d')"])
def test_a_date_that_is_set_is_the_one_that_a_template_writes(tmp_path, date):
    put_date = lambda place: put(place, "chat_template.jinja", "{{ " + date + " }}" + EVERY)  # noqa: E731
    spec = changed(tmp_path, put_date).model_copy(update={"date_string": "26 Jul 2024"})
    assert not looked_at(spec)
    lm = preflight.load_outline("mine", spec, hub.find_config(spec)[0], whole=True)
    assert models.apply_chat_template(lm, [{"role": "user", "content": "2 + 2?"}]).startswith("26 Jul 2024")
