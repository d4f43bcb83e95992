"""Loading questions: the published files and their oddities, a pretended hub, mistakes in one
line."""

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from lib import parameter_schemas, params
from lib.errors import UserError
from lib.tasks import dataset_sources, datasets, question_files
from lib.tasks.written_numbers import format_number, parse_number

SIZES = {"gsm8k": (7473, 1319), "gsmhard": (919, 400), "svamp": (700, 300)}


def dataset(source, calibration=1, evaluation=1, **more):
    source = (
        source if isinstance(source, str) else {part: str(path) for part, path in source.items()}
    )
    sizes = {"calibration": calibration, "evaluation": evaluation}
    return parameter_schemas.Dataset(label="Mine", source=source, **sizes, **more)


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def sha256_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refusal(mine):
    with pytest.raises(UserError) as caught:
        datasets.load_examples(mine)
    return str(caught.value)


# ---- the published files


@pytest.mark.parametrize("name", SIZES)
def test_published_files(name, shared, monkeypatch):
    """Of a dataset of the paper by its parameter file, from the published files."""
    monkeypatch.setenv("DATA_FOLDER", str(shared / "data"))
    published = params.load_dataset_config(name)
    examples = datasets.load_examples(published)
    calibration, evaluation = SIZES[name]
    splits = [example.split for example in examples]
    assert splits == ["calibration"] * calibration + ["evaluation"] * evaluation
    assert len({example.question for example in examples}) == len(examples)
    for example in examples:
        assert format_number(parse_number(example.reference)) == example.reference
    assert str(shared) not in json.dumps(dataset_sources.describe_source(published))


# ---- the hub


def test_hub_out_of_reach():
    message = "hub dataset 'me/nothing' did not load: Couldn't reach 'me/nothing' on the Hub"
    assert refusal(dataset("me/nothing")).startswith(message)


def test_a_folder_is_found_from_any_working_folder(tmp_path, monkeypatch):
    """From the project's root, or from the home folder. What is in it, and where there is none:
    tests/field."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("lib.paths.ROOT", tmp_path)
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    facts = {}
    for part in ("test", "train"):
        path = lines(folder / f"{part}.jsonl", {"question": f"{part}?", "answer": 5})
        facts[f"mine/{path.name}"] = sha256_of(path)
    # of a download; nor is what macOS puts beside a file read
    (folder / ".cache/huggingface").mkdir(parents=True)
    for hidden in (".cache/huggingface/train.jsonl", ".train.jsonl"):
        lines(folder / hidden, {"question": "hidden?", "answer": 5})
    for source in ("./mine", "~/mine", str(folder)):
        mine = dataset(source)
        assert [example.question for example in datasets.load_examples(mine)] == ["train?", "test?"]
        assert dataset_sources.describe_source(mine) == facts


def test_published_files_stand_in_for_the_hub(tmp_path, monkeypatch):
    """Where DATA_FOLDER names their folder: the same examples in the same order. Another file is
    refused."""
    rows = [{"question": f"{n}?", "answer": n, "id": n} for n in range(3)]
    questions = lines(tmp_path / "all.json", rows)
    ids = lines(tmp_path / "ids.json", {"train": [2, 0], "test": [1]})
    files = {
        "all": {"path": questions.name, "sha256": sha256_of(questions)},
        "split_ids": {"path": ids.name, "sha256": sha256_of(ids)},
    }
    mine = dataset("me/mine", 2, files=files, config="main", revision="cd")

    def load_dataset(path, name, *, revision):
        assert (path, name, revision) == ("me/mine", "main", "cd")
        return {
            "train": Dataset.from_list([rows[2], rows[0]]),
            "test": Dataset.from_list([rows[1]]),
        }

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    from_hub = datasets.load_examples(mine)
    assert [example.example_id for example in from_hub] == ["2", "0", "1"]
    assert dataset_sources.describe_source(mine) == {"source": "me/mine", "revision": "cd"}

    monkeypatch.setenv("DATA_FOLDER", str(tmp_path))
    monkeypatch.delattr("datasets.load_dataset")
    assert datasets.load_examples(mine) == from_hub
    facts = {questions.name: files["all"]["sha256"], ids.name: files["split_ids"]["sha256"]}
    assert dataset_sources.describe_source(mine) == facts
    lines(ids, {})
    assert refusal(mine) == (
        f"{ids} is not that of dataset 'Mine': "
        f"sha256 {sha256_of(ids)}, expected {files['split_ids']['sha256']}"
    )


# ---- local files (each case of a file: tests/field/questions.jsonl)


def test_a_shuffle_is_that_of_hashes_whatever_the_library(tmp_path):
    rows = [{"question": f"{n}?", "answer": n - 1.0} for n in range(4)]
    path = lines(tmp_path / "h.jsonl", *rows)
    hashes = {}
    for n in range(4):
        hashes[n] = hashlib.sha256(f"3|{n}".encode()).hexdigest()
    order = sorted(hashes, key=hashes.get)
    expected = []
    for n in order:
        split = "evaluation" if n == order[3] else "calibration"
        expected.append((f"row-{n}", split, f"{n}?", str(n - 1)))
    mine = dataset({"all": path}, 3, seed=3)
    examples = datasets.load_examples(mine)
    assert examples == expected
    assert datasets.find_example(examples, "row-2") == examples[order.index(2)]
    assert datasets.find_example(examples, "other") == examples[0]
    assert dataset_sources.describe_source(mine) == {f".../{path.name}": sha256_of(path)}


def test_a_large_table_is_read_whole(tmp_path):
    """Also where a block that Arrow reads at once ends within quotes."""
    questions = ["How\nmany,\n" * 25 + f"{n}?" for n in range(10_000)]
    path = tmp_path / "q.csv"
    with path.open("w") as file:
        print("answer,question", file=file)
        for question in questions:
            print(f'1,"{question}"', file=file)
    _, records = question_files.read_records(str(path))
    assert [record["question"] for record in records] == questions


def test_a_number_of_32_bits_is_the_one_that_was_written(tmp_path, monkeypatch):
    """.1 of float32 is .10000000149011612 as a number of 64 bits, and `grader: exact` would want
    that."""
    rows = {
        "question": ["A?", "B?", "C?"],
        "answer": pa.array([0.1, 16777216.0, 1e-7], pa.float32()),
    }
    pq.write_table(pa.table(rows), tmp_path / "train.parquet")
    pq.write_table(pa.table({"question": ["D?"], "answer": [0.1]}), tmp_path / "test.parquet")
    examples = datasets.load_examples(dataset(str(tmp_path), calibration=3))
    assert [example.reference for example in examples] == ["0.1", "16777216", "0.0000001", "0.1"]
    parts = {}
    for part in ("train", "test"):
        file = str(tmp_path / f"{part}.parquet")
        parts[part] = Dataset.from_parquet(file, cache_dir=tmp_path)
    monkeypatch.setattr("datasets.load_dataset", lambda *words, **more: parts)
    assert datasets.load_examples(dataset("me/mine", calibration=3)) == examples


# ---- sizes


def test_a_seed_without_sizes_makes_halves(tmp_path):
    """Every row is in one of them, and the same seed makes the same halves."""
    path = lines(tmp_path / "q.jsonl", *({"question": f"{n}?", "answer": n} for n in range(9)))
    mine = dataset({"all": path}, None, None, seed=3)
    examples = datasets.load_examples(mine)
    splits = [example.split for example in examples]
    assert splits == ["calibration"] * 4 + ["evaluation"] * 5
    assert {example.question for example in examples} == {f"{n}?" for n in range(9)}
    assert datasets.load_examples(mine) == examples
    of_sizes = datasets.load_examples(dataset({"all": path}, 4, 5, seed=3))
    assert of_sizes == examples


def test_all_rows_may_calibrate(tmp_path):
    path = lines(tmp_path / "q.jsonl", *({"question": f"{n}?", "answer": n} for n in range(9)))
    examples = datasets.load_examples(dataset({"all": path}, 9, 0, seed=3))
    assert [example.split for example in examples] == ["calibration"] * 9


@pytest.mark.parametrize(
    "sizes, found", [((7, 4), "7 and 2"), ((2, 3), "2 and 7"), ((20, 5), "9 and 0")]
)
def test_sizes_that_do_not_fit_name_the_lines_to_write(tmp_path, sizes, found):
    path = lines(tmp_path / "q.jsonl", *({"question": f"{n}?", "answer": n} for n in range(9)))
    remedy = "there are 9 rows: write `calibration: 4` and `evaluation: 5`, say, or neither"
    message = refusal(dataset({"all": path}, *sizes, seed=3))
    assert f"found {found}; {remedy}" in message


@pytest.mark.parametrize(
    "lines_of_file", ["", "calibration: 3", "evaluation: 3", "calibration: 3\nseed: 0"]
)
def test_a_missing_size_is_named(tmp_path, lines_of_file):
    path = tmp_path / "mine.yaml"
    path.write_text(f"label: Mine\nsource: {{all: q.jsonl}}\n{lines_of_file}\n")
    with pytest.raises(UserError, match="' is missing; `seed: 0`, without both sizes, makes hal"):
        params.read_parameter_file(path, parameter_schemas.Dataset)
