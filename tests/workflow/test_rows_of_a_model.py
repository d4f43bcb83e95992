"""Rows that a model made stay with the files that it was: another file in place, or another folder
of the same last name, is another model; two data files of one name are two."""

import shutil

import pandas as pd
import pytest
from small_project import PAIR, write

from lib import params, store
from lib.files import digest
from lib.row_cache import RowCache
from lib.tasks import dataset_sources
from workflow.engine import freshness, job_key, local_files
from workflow.engine.jobs_of_run import Run

READ = [
    "model.safetensors",
    "model-00001-of-00002.safetensors",
    "model.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/tool_use.jinja",
]
UNREAD = [
    ".git/HEAD",
    ".git/objects/ab/cd",
    ".cache/huggingface/download/model.safetensors.metadata",
    ".gitattributes",
    "README.md",
    "pytorch_model.bin",
    "checkpoint-5/optimizer.pt",
]
VALUES = {"models": ["tiny"], "datasets": ["easy"], "seed": 0, "bins": 10, "title": ""}


@pytest.fixture(params=["remake", "keep"])
def ask_for_rows(inside, request, monkeypatch):
    """The key of the job, and the rows that its notebook makes and does not find in its shards, as
    01 asks for them."""
    monkeypatch.setattr(store, "ARTIFACTS", inside.root / "artifacts")

    def ask() -> tuple[dict, list[str]]:
        job = Run("mine", VALUES | {"on_code_change": request.param}).jobs[0]
        parts = job_key.key_parts(job)
        monkeypatch.setattr(RowCache, "code", job_key.key_of_rows(job, parts))
        spec, data = params.load_model_config("tiny"), params.load_dataset_config("easy")
        facts = {
            "model": spec.model_dump(),
            "data": dataset_sources.describe_source(data),
            "loaded": {"device": "cpu"},
        }
        items_made = []

        def work(items):
            items_made.extend(items)
            return pd.DataFrame({"x": items})

        assert RowCache("mine", "generations", PAIR, facts).map(work, ["a", "b"]).x.tolist() == [
            "a",
            "b",
        ]
        return parts, items_made

    return ask


@pytest.fixture
def final(inside, tmp_path):
    """A model at ~/runs/A/final, with a file of each name."""
    folder = tmp_path / "runs/A/final"
    for name in READ + UNREAD:
        write(folder / name, "first")
    inside.replace("params/models/tiny.yaml", "weights/tiny", str(folder))
    return folder


@pytest.mark.parametrize("name", READ)
def test_rows_of_a_model_are_made_again_where_a_file_that_it_reads_is_another(
    ask_for_rows, final, name
):
    """Also by a profile that keeps its rows under other code; and the rows of before are there when
    the file is."""
    parts, rows = ask_for_rows()
    assert rows == ["a", "b"] and ask_for_rows() == (parts, [])
    for change in (lambda: (final / name).write_text("other"), (final / name).unlink):
        change()
        others, rows = ask_for_rows()
        assert rows == ["a", "b"] and digest(others) != digest(parts)
        write(final / name, "first")
        assert ask_for_rows() == (parts, [])


@pytest.mark.parametrize("name", UNREAD)
def test_a_file_that_no_model_reads_remakes_nothing_and_is_not_hashed(
    ask_for_rows, final, monkeypatch, name
):
    hashed, checksum = [], local_files.checksum
    monkeypatch.setattr(local_files, "checksum", lambda path: hashed.append(path) or checksum(path))
    before, _ = ask_for_rows()
    (final / name).write_text("other")
    assert ask_for_rows() == (before, [])
    (final / name).unlink()
    assert ask_for_rows() == (before, [])
    assert str(final / READ[0]) in hashed and not {str(final / name) for name in UNREAD} & set(
        hashed
    )


def test_two_models_of_one_last_name_are_two(ask_for_rows, final, inside):
    """~/runs/A/final and ~/runs/B/final, where one file differs; no name of a folder above stands
    in the key."""
    other = shutil.copytree(final, final.parents[1] / "B/final")
    (other / "model.safetensors").write_text("of B")
    before, _ = ask_for_rows()
    inside.replace("params/models/tiny.yaml", str(final), str(other))
    after, rows = ask_for_rows()
    assert rows == ["a", "b"]
    for key in (before, after):
        assert "file .../final/model.safetensors" in key
        assert "runs" not in str(key)
    inside.replace("params/models/tiny.yaml", str(other), str(final))
    assert ask_for_rows() == (before, [])


def test_two_data_files_of_one_name_are_two(ask_for_rows, inside, tmp_path):
    """An edit of either, or the one for the other, is noticed by the job, its rows and its
    manifest."""
    first, second = tmp_path / "one/q.jsonl", tmp_path / "two/q.jsonl"
    write(first, '{"id": "a"}')
    write(second, '{"id": "b"}')
    source = f"{{calibration: {first}, evaluation: {second}}}"
    inside.replace("params/datasets/easy.yaml", "{all: questions.jsonl}", source)
    before, _ = ask_for_rows()
    assert {"file .../q.jsonl", "file .../q.jsonl (2)"} <= before.keys() and str(
        tmp_path
    ) not in str(before)
    described = dataset_sources.describe_source(params.load_dataset_config("easy"))
    assert list(described) == [".../q.jsonl", ".../q.jsonl (2)"] and len({*described.values()}) == 2
    for path in (first, second):
        text = path.read_text()
        path.write_text('{"id": "c"}')
        after, rows = ask_for_rows()
        assert rows == ["a", "b"] and digest(after) != digest(before)
        path.write_text(text)
    inside.replace(
        "params/datasets/easy.yaml", source, f"{{calibration: {second}, evaluation: {first}}}"
    )
    assert ask_for_rows()[1] == ["a", "b"]


def test_a_run_after_another_file_of_one_name_makes_what_reads_it(inside, tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name / "q.jsonl", "{}")
    source = f"{{train: {tmp_path}/one/q.jsonl, test: {tmp_path}/two/q.jsonl}}"
    inside.replace("params/datasets/easy.yaml", "{all: questions.jsonl}", source)
    job = Run("mine", VALUES).jobs[0]
    write(inside.root / job.executed, "{}")
    job_key.write_record(job, job_key.key_parts(job), [])
    assert freshness.assess(job).state == "fresh"
    (tmp_path / "one/q.jsonl").write_text("other")
    assert (
        freshness.assess(job).state == "changed" and freshness.assess(job).why == "file .../q.jsonl"
    )


def test_a_model_that_only_a_server_has_reads_no_weights():
    """Nor has a GGUF file others beside it: it is known by its sum."""
    served = params.Model(label="S", responses="somewhere/", system_prompt=True)
    assert local_files.files_of_weights(served) == []
