"""Malformed files, by the hundred: each is one line that says what is wrong, soon, and never a traceback.

Parameter files, questions, checkpoints with their tokenizers: a row of a table is a way in which a file can be wrong,
and words of the line that it deserves.
"""

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lib import params
from lib.generate import models
from lib.paths import ROOT, UserError
from lib.tasks import datasets
from workflow import asking, check, outline
from workflow.jobs import Run

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


def refused(read, said):
    """Reading is refused within a second of work, in a line that fits a terminal and holds these words."""
    started = time.process_time()
    with pytest.raises(UserError) as caught:
        read()
    assert time.process_time() - started < 1
    fits(str(caught.value), said)


def fits(text, said):
    assert said in text and len(text) <= LONGEST and text.isprintable(), text


# ---- odd files, whatever they are read for


def folder(path):
    path.mkdir()


def dangling(path):
    path.symlink_to(path.with_name("nowhere"))


def loop(path):
    path.symlink_to(path.name)


def fifo(path):
    os.mkfifo(path)


def door(path):
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path is short
        made.bind(path.name)
        os.chdir(here)


ODD = [
    (folder, "Is a directory"),
    (dangling, "No such file"),
    (loop, "symbolic links"),
    (door, "can't be read"),
]


# ---- parameter files: values of a key, each of them wrong

GOOD = "models: [tiny-llama]\ndatasets: [demo-easy]\n"
PROFILE = {
    "seed": "-5 true 1.0 '1' 4294967296 2001-01-01 [1] 1e3 null yes .inf",
    "limit": "-1 true 1.5 0x ten 10000000000 {}",
    "bins": "0 -1 yes true 1000000000 10.0 '10' null",
    "n_bins_ablation": "[] [-1] [0] [10,10] [yes] 10 [1.0] [1000000000] null [[10]]",
    "calibration_sizes": "[] [-5] [0] [5,5] 5 [true] [5.5]",
    "dropout_rates": "[] [.1,.1] [0] [1] [-.1] [.nan] [.inf] [true] .1 ['.1'] null",
    "dropout_passes": "0 -1 true 1e30 100000 1.0",
    "dropout_top_k": "[0] [-1] 10 [10,10] [true] [1.5]",
    "dropout_top_p": "[0] [1] [2] .9 [.nan] [true] [.9,.9]",
    "dropout_scope": "[] [answer,answer] answr [answr] 5 true null",
    "max_new_tokens": "0 -1 1e30 1000000000000 true '10' null",
    "max_batch_tokens": "0 -1 1.5 yes 1000000000000",
    "top_logits": "0 -1 true 10000000",
    "n_temperature_nodes": "3 0 -33 33.0 1000000000000000000000000000000 true",
    "rows_per_shard": "0 -1 true",
    "resamples": "0 -1 1000000000 true",
    "draws": "0 -1 true 1000000",
    "incorrect_fraction": "-.1 1.1 .nan .inf true half null",
    "save_texts": "1 0 'true' null",
    "cpu": "1 y [true]",
    "grader": "numerik 5 true [] null",
    "phi": "none top_k5 1",
    "closed": "both true",
    "title": "5 [a] {a:1} true null 1.0 \"\\0\" \"\\ud800\" \"\\e[31m\" \"a\\nb\" \"\\u2028\"",
    "models": "[] tiny-llama [5] [null] [''] [tiny-llama,tiny-llama] {a:b} null true",
    "datasets": "[] [demo-easy,demo-easy] demo-easy [[demo-easy]]",
    "transfer_models": "[tiny-llama,tiny-llama] tiny-llama [1]",
    "demonstration": "some 1 [one]",
}  # fmt: skip


@pytest.mark.parametrize(("key", "value"), [(key, value) for key in PROFILE for value in PROFILE[key].split(" ")])
def test_a_wrong_value(tmp_path, key, value):
    path = tmp_path / "mine.yaml"
    rest = "".join(line for line in GOOD.splitlines(True) if not line.startswith(f"{key}:"))
    path.write_text(f"{rest}{key}: {value.replace(':1', ': 1').replace(':b', ': b')}\n")
    refused(lambda: params.read_parameter_file(path, params.Profile), f"mine.yaml: '{key}")


TEXTS = [
    (b"bins: 10\nbins: 5\n", "line 4: the key 'bins' again"),
    (b"models: [tiny-qwen]\n", "line 3: the key 'models' again"),
    (b"title: !!bool abc\n", "is not YAML: "),
    (b"title: 2024-13-45\n", "is not YAML: "),
    (b"title: !!python/object/apply:os.system [date]\n", "line 3: could not determine a constructor for the tag"),
    (b"title: !mine x\n", "line 3: could not determine a constructor for the tag"),
    (b"seed: " + b"9" * 5000 + b"\n", "is not YAML: Exceeds the limit"),
    (b"seed: 1e400\n", "'seed' is '1e400'"),
    (b"title: " + b"[" * 3000 + b"\n", "is not YAML: maximum recursion depth"),
    (b"title: " + b"- " * 3000 + b"\n", "line 3: "),
    (b"\x00", "special characters are not allowed"),
    (b"title: \x1b[31mred\n", "special characters are not allowed"),
    (b"title: caf\xe9\n", "is not text in UTF-8"),
    (b"\xff\xfet\x00i\x00", "is not text in UTF-8"),
    (b"title: \xed\xa0\x80\n", "is not text in UTF-8"),
    (b"title: " + b"x" * 201 + b"\n", "'title' is 'xxx"),
    (b"x" * 2000 + b": 1\n", "could not find expected ':'"),
    (b"x" * 900 + b": 1\n", "there is no parameter 'xxx"),
    (b"\"\\e[31mkey\": 1\n", r"there is no parameter '\x1b[31mkey'"),
    (b"&a a: *a\n", "no parameter 'a'"),
    (b"title: &a [*a]\n", "'title' is [[[[[[[...]]]]]]]"),
    (b"title: [&a [1, 1], &b [*a, *a, *a, *a], &c [*b, *b, *b, *b], &d [*c, *c, *c], [*d, *d]]\n", "'title' is [["),
    (b"title: *nowhere\n", "undefined alias"),
    (b"? [a]\n: b\n", "line 3: found unhashable key"),
    (b"1: 2\n", "keys should be strings"),
    (b"null: 2\n", "keys should be strings"),
    (b"---\nbins: 5\n", "line 3: but found another document"),
    (b"bins 10\n", "line "),
    (b"\tbins: 10\n", "line 3: "),
    (b"title: 'open\n", "line "),
    (b"title: @x\n", "line 3: "),
    (b"title: {a\n", "line "),
    (b"%YAML 3.0\n", "line 3: "),
    (b"phi: top_k\ndropout_top_k: []\n", "'phi' is top_k, whose first value is used, and 'dropout_top_k' names none"),
    (b"phi: top_p\ndropout_top_p: []\n", "and 'dropout_top_p' names none"),
    (b"sed: 1\n", "there is no parameter 'sed'; did you mean 'seed'?"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), TEXTS)
def test_a_wrong_text(tmp_path, text, said):
    path = tmp_path / "mine.yaml"
    path.write_bytes(GOOD.encode() + text)
    refused(lambda: params.read_parameter_file(path, params.Profile), said)


MODEL = {
    "label": "5 null '' [] \"\\0\" true",
    "source": "5 null '' [] {} true",
    "temperature": "0 -1 .inf .nan true abc '1' null 1e9 1e-9",
    "top_p": "0 1.1 -1 .nan true",
    "top_k": "-2 1.5 true 1e30 many",
    "min_p": "-.1 1 .nan",
    "max_new_tokens": "0 -1 1e30 true 1.0 10000000",
    "thinking": "1 'true'",
    "system_prompt": "0 none",
    "dtype": "float8 32 null",
    "attention": "flash true",
    "date_string": "5 true '' 1.5",
    "revision": "5 ''",
}
DATASET = {
    "label": "5 null ''",
    "source": "5 [] {} {all:5} null true",
    "question": "5 [] [5] [question,question] null",
    "answer": "5 null ''",
    "id": "5 true ''",
    "calibration": "0 -1 true 1.0 1e30 all null",
    "evaluation": "0 -1 '5' 10000000000",
    "parts": "5 [] {train:calib} {train:5} null",
    "seed": "-1 true 1.0 9999999999",
    "split_ids": "5 [] ''",
    "files": "5 {all:5} null {nowhere:5}",
}
KINDS = {
    params.Model: (MODEL, {"label": "Mine", "source": "me/mine"}),
    params.Dataset: (DATASET, {"label": "Mine", "source": "me/mine", "calibration": "1", "evaluation": "1"}),
}
OF_SPECS = [(kind, key, value) for kind, (table, _) in KINDS.items() for key in table
            for value in table[key].split(" ")]  # fmt: skip


@pytest.mark.parametrize(("kind", "key", "value"), OF_SPECS)
def test_a_wrong_value_of_a_model_or_dataset(tmp_path, kind, key, value):
    path = tmp_path / "mine.yaml"
    lines = KINDS[kind][1] | {key: value.replace(":", ": ")}
    path.write_text("".join(f"{name}: {text}\n" for name, text in lines.items()))
    refused(lambda: params.read_parameter_file(path, kind), f"mine.yaml: '{key}")


@pytest.mark.parametrize(("make", "said"), ODD)
def test_an_odd_parameter_file(tmp_path, make, said):
    make(tmp_path / "mine.yaml")
    refused(lambda: params.read_parameter_file(tmp_path / "mine.yaml", params.Profile), said)


# ---- questions

ASKED = {"question": "A?", "answer": 1, "split": "train"}


def line(**fields):
    return json.dumps(ASKED | fields)


def raw(field, text):
    """A row with a field as this JSON spells it."""
    return json.dumps(ASKED | {field: "@"}).replace('"@"', text)


def without(field):
    return json.dumps({name: value for name, value in ASKED.items() if name != field})


QUESTIONS = [
    ("", "found 0 calibration and 0 evaluation"),
    ("[]", "found 0 calibration"),
    ("   \n\n", "found 0 calibration"),
    ("{", "line 1: not JSON"),
    ("[", "line 1: not JSON"),
    ("[1", "line 1: not JSON"),
    ("{}", "line 1: no field 'split'"),
    ("[{}]", "item 1: no field 'split'"),
    ("[[]]", "item 1: [] is not an object"),
    ("null", "line 1: None is not an object"),
    ("true", "line 1: True is not an object"),
    ('"text"', "line 1: 'text' is not an object"),
    ("3", "line 1: 3 is not an object"),
    ("{'question': 'A?'}", "line 1: not JSON"),
    ('{"question": "A?",}', "line 1: not JSON"),
    ("question,answer\nA?,1", "line 1: not JSON"),
    ("<html>", "line 1: not JSON"),
    ("\x00", "line 1: not JSON"),
    ("\x1b[31m", "line 1: not JSON"),
    ("version https://git-lfs.github.com/spec/v1", "line 1: not JSON"),
    ("[" * 100_000, "too many levels"),
    ("[" + '{"a":' * 100_000, "too many levels"),
    ('{"question": ' + "[" * 100_000, "too many levels"),
    (line() + "{}", "line 1: not JSON (Extra data)"),
    (line() + "\n" + line()[:-1], "line 2: not JSON"),
    (line()[:-1] + ', "answer": 2}', "line 1: not JSON (the key 'answer' again)"),
    (line()[:-1] + ', "question": "B?"}', "line 1: not JSON (the key 'question' again)"),
    (line()[:-1] + ', "more": {"a": 1, "a": 2}}', "line 1: not JSON (the key 'a' again)"),
    ('{"\\u001b[31m": 1, "\\u001b[31m": 2}', "line 1: not JSON (the key '\\x1b[31m' again)"),
    (without("question"), "no field 'question'"),
    (without("answer"), "no field 'answer'"),
    (without("split"), "no field 'split'"),
    (line(question=None), "'question' is None, not a text"),
    (line(question=""), "an empty question"),
    (line(question=" \n\t"), "an empty question"),
    (line(question=5), "'question' is 5, not a text"),
    (line(question=True), "'question' is True, not a text"),
    (line(question=["A?"]), "'question' is ['A?'], not a text"),
    (line(question={"text": "A?"}), "not a text"),
    (raw("question", '"\\ud800"'), "half of a character"),
    (raw("question", '"A \\udfff?"'), "half of a character"),
    (line(answer=None), "no number in the answer 'None'"),
    (line(answer=""), "no number in the answer ''"),
    (line(answer="five"), "no number in the answer 'five'"),
    (line(answer="5 apples"), "no number in the answer"),
    (line(answer="#### five"), "no number in the answer"),
    (line(answer="5 ####"), "no number in the answer"),
    (line(answer="nan"), "no number in the answer"),
    (line(answer="-"), "no number in the answer"),
    (line(answer="1/0"), "no number in the answer"),
    (line(answer="\x1b[31m"), "no number in the answer"),
    (line(answer="x" * 10_000), "no number in the answer"),
    (line(answer=True), "no number in the answer 'True'"),
    (line(answer=[5]), "no number in the answer '[5]'"),
    (line(answer=["#### 5"]), "no number in the answer"),
    (line(answer={"value": "#### 5"}), "no number in the answer"),
    (raw("answer", "NaN"), "no number in the answer 'nan'"),
    (raw("answer", "Infinity"), "no number in the answer 'inf'"),
    (raw("answer", "-1e999"), "no number in the answer '-inf'"),
    (raw("answer", "9" * 5000), "line 1: not JSON (Exceeds the limit"),
    (raw("answer", "0x10"), "line 1: not JSON"),
    (raw("answer", "01"), "line 1: not JSON"),
    (line(split="trian"), "no split is called 'trian'; did you mean 'train'?"),
    (line(split=None), "no split is called 'None'"),
    (line(split=1), "no split is called '1'"),
    (line(split="\x1b[31m"), r"no split is called '\x1b[31m'"),
    (line(split="x" * 1000), "no split is called 'xxx"),
    (line(id=True), "the id True is neither a text nor a whole number"),
    (line(id=1.5), "the id 1.5 is neither"),
    (line(id=[1]), "the id [1] is neither"),
    (line(id=""), "the id '' is neither"),
    (line(id="a\nb"), r"the id 'a\nb' is neither"),
    (raw("id", '"\\ud800"'), r"the id '\ud800' is neither"),
    (line(id=4) + "\n" + line(id="4", split="test"), "line 2: the id '4' again"),
    (line(id="a") + "\n" + line(id="a"), "line 2: the id 'a' again"),
    (line() + "\n" + line(), "expected 1 calibration and 1 evaluation questions, found 2 calibration"),
]  # fmt: skip


def asked_of(path, **more):
    spec = {"label": "Mine", "source": {"all": str(path)}, "calibration": 1, "evaluation": 1, **more}
    return lambda: datasets.load_examples(params.Dataset(**spec))


@pytest.mark.parametrize(("text", "said"), QUESTIONS)
def test_wrong_questions(tmp_path, text, said):
    (tmp_path / "q.jsonl").write_text(text, encoding="utf-8")
    refused(asked_of(tmp_path / "q.jsonl"), said)


BYTES = [b"\xff\xfe{\x00}\x00", b'{"question": "\xe9"}', b"\x80", b"\x1f\x8b\x08\x00", b"PK\x03\x04"]


@pytest.mark.parametrize("data", BYTES)
def test_questions_that_are_no_text(tmp_path, data):
    (tmp_path / "q.jsonl").write_bytes(data)
    refused(asked_of(tmp_path / "q.jsonl"), "")


@pytest.mark.parametrize(("make", "said"), ODD)
def test_odd_files_of_questions(tmp_path, make, said):
    make(tmp_path / "q.jsonl")
    refused(asked_of(tmp_path / "q.jsonl"), said)
    (tmp_path / "real.jsonl").write_text(line(id="a") + "\n" + line(id="b"))
    refused(asked_of(tmp_path / "real.jsonl", split_ids=str(tmp_path / "q.jsonl")), said)


NOWHERE = ["~nosuchuser/q.jsonl", "no/such/folder/q.jsonl", "x" * 300, "/proc/self/mem", "~/\u00e9"]


@pytest.mark.parametrize("name", NOWHERE)
def test_names_of_no_file(name):
    refused(asked_of(name), "")


LISTS = [
    ('{"train": ["a"], "test": ["b", "a"]}', "the id 'a' is listed again, for test"),
    ('{"train": ["a", "a"], "test": ["b"]}', "the id 'a' is listed again, for train"),
    ('{"train": ["a", 1, "1"], "test": ["b"]}', "the id '1' is listed again"),
    ('{"train": ["a"], "train": ["b"]}', "the key 'train' again"),
    ('{"train": ["a"]}', "the id 'b' is in no list"),
    ('{"train": "a", "test": "b"}', "not of the form"),
    ('{"train": {"a": 1}}', "not of the form"),
    ('["a", "b"]', "not of the form"),
    ("null", "not of the form"),
    ("", "not JSON"),
    ("[" * 100_000, "too many levels"),
    ('{"train": ["a"], "tset": ["b"]}', "no split is called 'tset'"),
]


@pytest.mark.parametrize(("text", "said"), LISTS)
def test_wrong_lists_of_ids(tmp_path, text, said):
    (tmp_path / "q.jsonl").write_text(line(id="a") + "\n" + line(id="b"))
    (tmp_path / "ids.json").write_text(text)
    refused(asked_of(tmp_path / "q.jsonl", split_ids=str(tmp_path / "ids.json")), said)


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
    (tensors(model__embed_tokens__weight=None), "its files lack"),
    (config(tie_word_embeddings=False), "its files lack lm_head.weight"),
    (config(num_hidden_layers=9), "its files lack model.layers.4."),
    (config(num_hidden_layers=1), "its files hold more than the network has: model.layers.1."),
    (tensors(other=torch.ones(3)), "hold more than the network has: other (1 in all)"),
    (tensors(model__layers__4__mlp__up_proj__weight=torch.ones(3)), "hold more than the network has"),
    (tensors(**{NORM: torch.ones(3)}), "can't be loaded"),
    (tensors(**{NORM: torch.ones(128, 1)}), "can't be loaded"),
    (config(hidden_size=64), "can't be loaded"),
    (config(vocab_size=785), "can't be loaded"),
    (config(vocab_size=30), "can't be loaded"),
    (config(intermediate_size=385), "can't be loaded"),
    (config(model_type="gpt2"), ""),
    (config(model_type="qwen3"), "its files lack"),
    (config(model_type="nothing-known"), "can't be loaded"),
    (config("model_type"), "can't be loaded"),
    (config(hidden_size="abc"), "can't be loaded"),
    (config(hidden_size=-1), "can't be loaded"),
    (config(hidden_size=None), "can't be loaded"),
    (config(num_attention_heads=0), "can't be loaded"),
    (config(num_key_value_heads=0), "can't be loaded"),
    (config(num_hidden_layers="four"), "can't be loaded"),
    (config(vocab_size=0), "can't be loaded"),
    (config(rope_parameters="none"), "can't be loaded"),
    (config(hidden_act="nothing"), "can't be loaded"),
    (bytes_of("config.json", "[]"), "can't be loaded"),
    (bytes_of("config.json", "null"), "can't be loaded"),
    (bytes_of("config.json", ""), "config.json, line 1: not JSON"),
    (bytes_of("config.json", "{"), "config.json, line 1: not JSON"),
    (bytes_of("config.json", '{"hidden_size": 1, "hidden_size": 2}'), "the key 'hidden_size' again"),
    (bytes_of("config.json", "[" * 100_000), "too many levels"),
    (bytes_of("config.json", b"\xff\xfe"), "config.json, line 1: not JSON"),
    (bytes_of("config.json", POINTER), "config.json is a pointer of git-lfs: `git lfs pull`"),
    (odd("config.json", fifo), "config.json is no ordinary file"),
    (odd("config.json", folder), "config.json is no ordinary file"),
    (odd("config.json", dangling), "config.json is no ordinary file"),
    (odd("config.json", loop), "config.json is no ordinary file"),
    (bytes_of("generation_config.json", "[]"), "can't be loaded"),
    (bytes_of("generation_config.json", "{"), "generation_config.json, line 1: not JSON"),
    (bytes_of("tokenizer_config.json", "[1]"), "can't be loaded"),
    (odd("generation_config.json", fifo), "generation_config.json is no ordinary file"),
    (cut("model.safetensors", 0), "model.safetensors is no whole safetensors file"),
    (cut("model.safetensors", 5), "model.safetensors is no whole safetensors file"),
    (cut("model.safetensors", 5000), "model.safetensors is no whole safetensors file"),
    (cut("model.safetensors", -1), "model.safetensors is no whole safetensors file"),
    (bytes_of("model.safetensors", "weights"), "model.safetensors is no whole safetensors file"),
    (bytes_of("model.safetensors", b"\xff" * 100), "model.safetensors is no whole safetensors file"),
    (bytes_of("model.safetensors", b"\x80\x04K\x01." * 9), "model.safetensors is no whole safetensors file"),
    (bytes_of("model.safetensors", POINTER), "model.safetensors is a pointer of git-lfs"),
    (odd("model.safetensors", fifo), "model.safetensors is no ordinary file"),
    (odd("model.safetensors", folder), "model.safetensors is no ordinary file"),
    (odd("model.safetensors", dangling), "model.safetensors is no ordinary file"),
    (sharded(lambda place, index: (place / PART).unlink()), "can't be loaded"),
    (sharded(lambda place, index: cut(PART, 900)(place)), f"{PART} is no whole safetensors file"),
    (sharded(lambda place, index: bytes_of(PART, POINTER)(place)), f"{PART} is a pointer of git-lfs"),
    (sharded(lambda place, index: index.update(weight_map={"model.norm.weight": PART})), "its files lack"),
    (sharded(lambda place, index: index.pop("weight_map")), "can't be loaded"),
    (sharded(lambda place, index: index.update(weight_map=["a"])), "can't be loaded"),
    (sharded(lambda place, index: index["weight_map"].update(other="../x.safetensors")), ""),
    (tensors(**{NORM: holding(NAN)}), "its tensor model.norm.weight holds NaN or infinite weights"),
    (tensors(**{NORM: holding(INFINITE)}), "its tensor model.norm.weight holds NaN or infinite weights"),
    (tensors(model__embed_tokens__weight=holding(-INFINITE)), "holds NaN or infinite weights"),
    (several(fields("generation_config.json", "eos_token_id"), config("eos_token_id"),
             fields("tokenizer_config.json", "eos_token")), "no end token"),
    (fields("generation_config.json", eos_token_id=9999), "its end token 9999 is none of the network's 820 tokens"),
    (fields("generation_config.json", eos_token_id=-5), "its end token -5 is none"),
    (fields("generation_config.json", eos_token_id=[816, 5000]), "its end token 5000 is none"),
    (fields("generation_config.json", eos_token_id="abc"), ""),
    (fields("tokenizer_config.json", pad_token="<nowhere>"), "its padding token '<nowhere>' (820) is none"),
    (fields("tokenizer_config.json", pad_token=5), ""),
    (bytes_of("tokenizer.json", "{"), "can't be loaded"),
    (bytes_of("tokenizer.json", "[]"), "can't be loaded"),
    (bytes_of("tokenizer.json", "{}"), "can't be loaded"),
    (bytes_of("tokenizer.json", POINTER), "tokenizer.json is a pointer of git-lfs"),
    (odd("tokenizer.json", fifo), "tokenizer.json is no ordinary file"),
    (vocabulary(lambda known: known.pop("model")), "can't be loaded"),
    (vocabulary(lambda known: known["model"].update(type="none")), "can't be loaded"),
    (vocabulary(lambda known: known["model"]["vocab"].update(zebra=5000)), "its tokenizer writes 'zebra' as 5000"),
    (vocabulary(lambda known: known["model"].update(merges=[["zz", "qq"]])), "can't be loaded"),
]  # fmt: skip
NOT_TO_BE_ASKED = [  # of templates and settings: said by `check`
    (template(""), "no chat template"),
    (template("{# nothing #}"), "writes nothing"),
    (template("Hello"), "does not write the question as it is given"),
    (template("{{ messages[0].role }}"), "does not write the question"),
    (template(EVERY.replace("m.content", "m.content[:20]")), "does not write the question"),
    (template(EVERY.replace("m.content", "m.content.split('\n\nAt')[0]")), "does not write the instruction"),
    (template("{{ nothing.at.all }}"), "its chat template fails"),
    (template("{% for"), "its chat template fails"),
    (template("{{ 1 / 0 }}"), "its chat template fails"),
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
        lm, network, _ = outline.parts("mine", spec, outline.local_copy(spec))
        yield from check.about_weights(spec.source)
        yield from asking.about_asking(RUN, lm, network, {})

    return [text for level, text in asking.explained(lines()) if level == "wrong"]


def test_the_unchanged_copy_is_a_model(changed):
    spec = changed(lambda place: None)
    assert not looked_at(spec) and models.load_language_model("mine", spec).eos == [816]


def test_a_copy_in_two_files_is_a_model(changed):
    spec = changed(sharded(lambda place, index: None))
    assert not looked_at(spec) and models.load_language_model("mine", spec).eos == [816]


def test_weights_that_are_still_to_be_fetched_are_not_missed(changed):
    """From the hub, `check` has configuration, tokenizer and the index of the weights alone, or some of these."""
    spec = changed(sharded(lambda place, index: (place / PART).unlink()))
    lm, _, _ = outline.parts("mine", spec.model_copy(update={"source": "someone/far"}), spec.source)
    assert lm.eos == [816]


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


def test_there_are_at_least_as_many_as_promised():
    parameters = sum(len(values.split(" ")) for values in PROFILE.values()) + len(TEXTS) + len(OF_SPECS) + len(ODD)
    asked = len(QUESTIONS) + len(LISTS) + len(BYTES) + len(NOWHERE) + 2 * len(ODD)
    assert parameters >= 150 and asked >= 75 and len(NOT_WHOLE) + len(NOT_TO_BE_ASKED) >= 75
