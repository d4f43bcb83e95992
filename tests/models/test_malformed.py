"""Malformed checkpoints and tokenizers: each is one line that says what is wrong, and never a
traceback.

A row of a table is a way in which a file can be wrong, and words of the line that it deserves.
"""

import json
import resource
import signal
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file

from lib import params
from lib.errors import UserError
from lib.generate import preflight
from lib.models import chat_templates, loading
from lib.paths import ROOT
from workflow import check, hub

TINY = ROOT / "demo" / "models" / "tiny-llama"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 5\n"

EVERY = "{% for m in messages %}{{ m.content }}{% endfor %}"  # which closes no turn
NORM, PACKED = "model.norm.weight", "model.layers.0.mlp.down_proj.weight"
ABSENT = ["no such file"]
WITHOUT_END = {
    **dict.fromkeys(("generation_config.json", "config.json"), {"eos_token_id": None}),
    "tokenizer_config.json": {"eos_token": None},
    "chat_template.jinja": EVERY,
}
MODEL = json.loads((TINY / "tokenizer.json").read_text())["model"]
# a token whose number the network has no row for
ZEBRA = MODEL | {"vocab": MODEL["vocab"] | {"zebra": 5000}}
# by the name of a file its content, or some of its fields or tensors (None: without): never loaded
NOT_WHOLE = [
    (
        {"model.safetensors": {NORM: None}},
        "its config.json differ in 1 tensors, the first model.norm.weight",
    ),
    (
        {"model.safetensors": {"other": torch.ones(3)}},
        "its config.json differ in 1 tensors, the first other",
    ),
    ({"config.json": "[" * 100_000}, "can't be loaded"),
    ({"config.json": POINTER}, "is a pointer of git-lfs: `git lfs pull`"),
    ({"generation_config.json": "[]"}, "can't be loaded"),
    ({"tokenizer.json": "{"}, "can't be loaded"),
    (WITHOUT_END, "no end token"),
    ({"generation_config.json": {"eos_token_id": [816, 5000]}}, "its token 5000 is none"),
    ({"tokenizer.json": {"model": ZEBRA}}, "its token 5000 is none of the network's 820 tokens"),
    (
        {"adapter_config.json": "{}"},
        "adapter_config.json belongs to an adapter, and none is applied: merge it",
    ),
    ({"adapter_model.safetensors": ""}, "adapter_model.safetensors belongs to an adapter"),
    (
        {"adapters.safetensors": "", "config.json": ABSENT},
        "adapters.safetensors belongs to an adapter",
    ),
    (
        {"config.json": ABSENT, "README.md": ""},
        "it has no config.json: name the folder of a whole model",
    ),
    (
        {"config.json": ABSENT, "snapshots/5f/config.json": "{}"},
        "it has no config.json: name its folder snapshots/5f",
    ),
    (
        {"config.json": ABSENT, "checkpoint-9/config.json": "{}"},
        "it has no config.json: name its folder checkpoint-9",
    ),
    ({"tokenizer.json": ABSENT}, "it has no tokenizer.json: copy the tokenizer's files"),
    (
        {"config.json": {"quantization_config": {"quant_method": "own"}}},
        "the quantization 'own', which transformers",
    ),
    (
        {"config.json": {"quantization_config": {"bits": 4}}},
        "quantization MLX, or another without `quant_method`",
    ),
    (
        {"config.json": {"quantization": {"bits": 4}}},
        "which transformers does not know: name the model",
    ),
    (
        {"model.safetensors": {PACKED: torch.zeros(128, 48, dtype=torch.uint32)}},
        f"1 tensors of its files have another shape, the first {PACKED}: "
        "[128, 48], not [128, 384]; packed by a ",
    ),
]
TEMPLATES = [  # said by `check`
    ("", "no chat template"),
    ("{# nothing #}", "does not write question and instruction as they are given"),
    (
        EVERY.replace("m.content", "m.content.split('\n\nAt')[0]"),
        "does not write question and instruction",
    ),
    ("{{ raise_exception('\x1b[31mno') }}", r"its chat template fails: \x1b[31mno"),
    ("{{ strftime_now('%d') }}{{ date_string }}" + EVERY, "set `date_string`"),
    ("{{ strftime_now('%d %B %Y') }}" + EVERY, "set `date_string`"),
    ("{{ bos_token }}{{ bos_token }}" + EVERY, "beginning-of-sequence token twice"),
    (EVERY + "<think>", "write `thinking: true`"),
]


def changed(place, files):
    """A copy of tiny-llama (links: nothing is copied but what is changed), as a model's file names
    it."""
    for path in TINY.iterdir():
        match files.get(path.name):
            case None:
                (place / path.name).symlink_to(path)
            case ["no such file"]:
                pass
            case str() as text:
                (place / path.name).write_text(text)
            case fields if path.suffix == ".json":
                content = json.loads(path.read_text()) | fields
                (place / path.name).write_text(json.dumps(content))
            case tensors:
                weights = load_file(path) | tensors
                present = {name: tensor for name, tensor in weights.items() if tensor is not None}
                save_file(present, place / path.name)
    for name in files.keys() - {path.name for path in TINY.iterdir()}:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(files[name])
    return params.load_model_config("tiny-llama").model_copy(update={"source": str(place)})


def find_wrong(spec):
    """What `check` finds wrong with a model."""

    def lines():
        lm = preflight.load_outline("mine", spec, hub.find_config(spec)[0], whole=True)
        yield from preflight.report_on_model(lm, params.load_profile("demo").model_dump(), {})

    return [text for level, text in check.explain_errors(lines()) if level == "wrong"]


DOCUMENT = {"eos_token_id": 815}  # <|end_of_text|>, which ends a document and no turn
TEXTS = {
    "generation_config.json": DOCUMENT,
    "tokenizer_config.json": {"eos_token": "<|end_of_text|>"},
}
CLOSES = (
    "{% for m in messages %}"
    "<|start_header_id|>{{ m.role }} {{ m.content | trim }} <|eot_id|>\n"
    "{% endfor %}"
)


@pytest.mark.parametrize("files, ends", [
    ({}, [816]),
    ({"generation_config.json": DOCUMENT, "config.json": DOCUMENT}, [815, 816]),
    (TEXTS, [815, 816]),
    ({"generation_config.json": {"eos_token_id": [816, 815]}}, [816, 815]),
    (TEXTS | {"chat_template.jinja": CLOSES}, [815, 816]),
    (TEXTS | {"chat_template.jinja": EVERY}, [815]),
    (TEXTS | {"chat_template.jinja": "{{ raise_exception('no assistant') }}"}, [815]),
])  # fmt: skip
def test_end_tokens_are_the_settings_the_tokenizers_and_the_one_that_closes_a_turn(
    tmp_path, files, ends
):
    spec = changed(tmp_path, files)
    assert loading.load_language_model("mine", spec).eos == ends
    assert preflight.load_outline("mine", spec, spec.source, whole=True).eos == ends


def fits(text, message):
    assert message in text and len(text) <= 300 and text.isprintable(), text


def assert_refused(spec, message):
    """By `check`, and when it is loaded."""
    (line,) = find_wrong(spec)
    fits(line, message)
    with pytest.raises(UserError, match="^model 'mine'") as caught:
        loading.load_language_model("mine", spec)
    fits(str(caught.value), message)


@pytest.mark.parametrize("files, message", NOT_WHOLE)
def test_a_checkpoint_that_is_not_whole(tmp_path, files, message):
    assert_refused(changed(tmp_path, files), message)


def test_weights_in_two_files_are_a_model_and_one_of_the_two_is_none(tmp_path):
    spec = changed(tmp_path, {})
    (tmp_path / "model.safetensors").unlink()
    save_torch_state_dict(load_file(TINY / "model.safetensors"), tmp_path, max_shard_size="2.5MB")
    assert not find_wrong(spec) and loading.load_language_model("mine", spec).eos == [816]
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert_refused(spec, "can't be loaded")


def test_code_that_lies_in_a_checkpoint_is_never_run(tmp_path):
    """Its files name classes of their own; transformers' class of its kind is taken instead."""
    trace = tmp_path / "was run"
    names = {
        "AutoConfig": "own.Config",
        "AutoTokenizer": ["own.Tokenizer", None],
        "AutoModelForCausalLM": "own.Network",
    }
    files = {
        "config.json": {"auto_map": names},
        "tokenizer_config.json": {"auto_map": names},
        "own.py": f"open({str(trace)!r}, 'w').close()\n",
    }
    spec = changed(tmp_path, files)
    assert not find_wrong(spec) and loading.load_language_model("mine", spec).eos == [816]
    assert not trace.exists()


@pytest.mark.parametrize("template, message", TEMPLATES)
def test_a_template_that_does_not_ask(tmp_path, template, message):
    fits(find_wrong(changed(tmp_path, {"chat_template.jinja": template}))[0], message)


LOOP = "{% for n in range(99999) %}"
ENDLESS = {  # templates that run, or write, beyond any use
    f"{LOOP}{LOOP}{{% endfor %}}{{% endfor %}}": "takes more than 1 s for a short conversation",
    f"{LOOP}{{{{ 'x' * 30000 }}}}{{% endfor %}}": "needs more than 1.1 GB of memory",
    "{{ 'x' * 3000000000 }}": "needs more than 1.1 GB of memory",
    "{{ 'x' * 20000000 }}": "writes 20,000,000 characters for a short conversation",
}


@pytest.mark.parametrize(
    "template, message", ENDLESS.items(), ids=["loops", "3 GB", "3 GB at once", "20 MB"]
)
def test_a_template_without_end_is_one_line(tmp_path, monkeypatch, template, message):
    """Said by `check`, and where a notebook loads the model; what limits it is lifted again."""
    monkeypatch.setattr(chat_templates, "MOST_SECONDS", 1)
    limits = resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGALRM)
    spec = changed(tmp_path, {"chat_template.jinja": template})
    assert find_wrong(spec) == [f"its chat template {message}"]
    with pytest.raises(UserError, match=f"its chat template {message}$"):
        loading.load_language_model("mine", spec)
    assert (resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGALRM)) == limits
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_template_may_write_so_many_characters_and_no_more(monkeypatch):
    monkeypatch.setattr(chat_templates, "MOST_CHARACTERS", 100)
    tokenizer = SimpleNamespace(apply_chat_template=lambda text, **options: text)
    assert chat_templates.render_chat(tokenizer, "x" * 100) == "x" * 100
    with pytest.raises(UserError, match="writes 101 characters"):
        chat_templates.render_chat(tokenizer, "x" * 101)


def test_a_template_that_lies_apart_is_named(tmp_path):
    files = {
        "chat_template.jinja": ABSENT,
        "chat_template.json": json.dumps({"chat_template": EVERY}),
    }
    (line,) = find_wrong(changed(tmp_path, files))
    fits(line, "no chat template: chat_template.json is not read: write the text in it into chat")


@pytest.mark.parametrize("date", ["strftime_now('%d %B %Y')", "date_string or strftime_now('%d')"])
def test_a_date_that_is_set_is_the_one_that_a_template_writes(tmp_path, date):
    undated = changed(tmp_path, {"chat_template.jinja": "{{ " + date + " }}" + EVERY})
    spec = undated.model_copy(update={"date_string": "26 Jul 2024"})
    assert not find_wrong(spec)
    lm = preflight.load_outline("mine", spec, hub.find_config(spec)[0], whole=True)
    assert loading.apply_chat_template(lm, [{"role": "user", "content": "2 + 2?"}]).startswith(
        "26 Jul 2024"
    )
