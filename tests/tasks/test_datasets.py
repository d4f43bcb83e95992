"""Loading questions: the published files and their oddities, a pretended hub, mistakes in one line."""

import hashlib
import json
from types import SimpleNamespace

import pytest

from lib import configs, params
from lib.paths import UserError
from lib.tasks import answers, datasets

SIZES = {"gsm8k": (7473, 1319), "gsmhard": (919, 400), "svamp": (700, 300)}


SVAMP = {"question": ["Body", "Question"], "answer": "Answer", "id": "ID"}
GSMHARD = {"question": "input", "answer": "target"}


def dataset(source, calibration=1, evaluation=1, **more):
    source = source if isinstance(source, str) else {part: str(path) for part, path in source.items()}
    return configs.Dataset(label="Mine", source=source, calibration=calibration, evaluation=evaluation, **more)


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def row(question="How many?", answer=1, **more):
    return {"question": question, "answer": answer, **more}


@pytest.fixture
def published(shared, monkeypatch):
    """A dataset of the paper by its parameter file, from the published files."""
    monkeypatch.setenv("DATA_FOLDER", str(shared / "data"))
    return params.load_dataset_config


# --- the published files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
def test_published_files(name, published, shared):
    examples = datasets.load_examples(published(name))
    splits = [example.split for example in examples]
    assert (splits.count("calibration"), splits.count("evaluation")) == SIZES[name]
    assert splits == sorted(splits)
    assert len({example.example_id for example in examples}) == len(examples)
    assert len({example.question for example in examples}) == len(examples)
    for example in examples:
        assert example.question and example.question == example.question.strip()
        assert answers.format_number(answers.parse_number(example.reference)) == example.reference
        assert answers.grade(example.reference, example.reference, "exact")
    assert str(shared) not in json.dumps(datasets.describe_source(published(name)))


def test_every_reference_of_gsmhard_can_be_met(published):
    """The prompt asks for an integer: by its rounding, where 303 of 1,319 are none."""
    references = [example.reference for example in datasets.load_examples(published("gsmhard"))]
    rounded = [answers.format_number(answers.parse_number(one).to_integral_value()) for one in references]
    met = [
        [answers.grade(*pair, grader) for pair in zip(rounded, references, strict=True)]
        for grader in ("numeric", "integer")
    ]
    assert [sum(of_grader) for of_grader in met] == [1319, 1319 - 303]


def test_gsmhard_split_is_pinned(published):
    """The order hangs on seed and row alone; were it to change, stored runs would lose their splits."""
    examples = datasets.load_examples(published("gsmhard"))
    order = sorted(range(1319), key=lambda index: hashlib.sha256(f"0|{index}".encode()).hexdigest())
    assert [example.example_id for example in examples] == [f"row-{index}" for index in order]
    digest = hashlib.sha256("\n".join(example.example_id for example in examples).encode()).hexdigest()
    assert (examples[0].example_id, examples[919].example_id) == ("row-382", "row-240")
    assert digest.startswith("0948fd3cbf207cbd")
    other = datasets.load_examples(published("gsmhard").model_copy(update={"seed": 1}))
    assert {e.example_id for e in other[:919]} != {e.example_id for e in examples[:919]}


# --- the hub ----------------------------------------------------------------------------------------------


class Part(list):
    def __init__(self, rows, url):
        super().__init__(rows)
        self.info = SimpleNamespace(download_checksums={url: {"num_bytes": 1, "checksum": None}})


HUB = {
    "openai/gsm8k": {
        "train": [{"question": "A?", "answer": "so\n#### 1,000"}],
        "test": [{"question": "B?", "answer": "#### -3"}, {"question": "C?", "answer": "#### 5"}],
    },
    "reasoning-machines/gsm-hard": {
        "train": [
            {"input": f"Q{n}?", "code": "", "target": t}
            for n, t in enumerate([-9867630.0, 3244047.0999999996, 5e-7, 0.0])
        ]
    },
    "ChilleD/SVAMP": {
        "train": [
            {
                "ID": "chal-2",
                "Body": "Dan had $ 3 left ",
                "Question": "How much?",
                "Equation": "( 4.0 - 3.0 )",
                "Answer": "1.0",
                "Type": "Subtraction",
                "question_concat": "Dan had $ 3 left How much?",
            }
        ],
        "test": [{"ID": "chal-1", "Body": "Packs cost 76.", "Question": "How much?", "Answer": 51.0}],
    },
    "me/mine": {"train": [row()], "validation": [row("V?")], "test": [row("T?", 2)]},
}


@pytest.fixture
def hub(monkeypatch):
    calls = []

    def load_dataset(path, name=None, *, revision=None):
        calls.append((path, name, revision))
        if path not in HUB:
            raise ConnectionError(f"Couldn't reach '{path}' on the Hub\nand a second line")
        address = f"hf://datasets/{path}@{'ab' * 20}/data.parquet"
        return {part: Part(rows, address) for part, rows in HUB[path].items()}

    monkeypatch.setattr(pytest.importorskip("datasets"), "load_dataset", load_dataset)
    return calls


ORDER = sorted(range(4), key=lambda index: hashlib.sha256(f"0|{index}".encode()).hexdigest())
HARD = ["-9867630", "3244047.0999999996", "0.0000005", "0"]
OF_HUB = {
    "gsm8k": [
        ("calibration-0", "calibration", "A?", "1000"),
        ("evaluation-0", "evaluation", "B?", "-3"),
        ("evaluation-1", "evaluation", "C?", "5"),
    ],
    "gsmhard": [
        (f"row-{n}", "evaluation" if i == 3 else "calibration", f"Q{n}?", HARD[n]) for i, n in enumerate(ORDER)
    ],
    "svamp": [
        ("chal-2", "calibration", "Dan had $ 3 left How much?", "1"),
        ("chal-1", "evaluation", "Packs cost 76. How much?", "51"),
    ],
}


@pytest.mark.parametrize("name", OF_HUB)
def test_the_papers_datasets_on_the_hub(hub, name):
    splits = [split for _, split, *_ in OF_HUB[name]]
    sizes = {split: splits.count(split) for split in ("calibration", "evaluation")}
    mine = params.load_dataset_config(name).model_copy(update=sizes)
    assert datasets.load_examples(mine) == OF_HUB[name]
    ((path, _, revision),) = hub
    assert (path, revision) == (mine.source, mine.revision)
    assert datasets.describe_source(mine) == {"source": path, "revision": "ab" * 20}


def test_hub_out_of_reach(hub):
    with pytest.raises(UserError) as caught:
        datasets.load_examples(dataset(source="me/nothing"))
    assert str(caught.value) == "hub dataset 'me/nothing' did not load: Couldn't reach 'me/nothing' on the Hub"


def test_the_real_library_gives_what_the_pretended_one_does(tmp_path, monkeypatch):
    """A folder stands in for the hub: the same call, without a network."""
    library = pytest.importorskip("datasets")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "mine").mkdir()
    lines(tmp_path / "mine" / "train.jsonl", row("A?", "#### 1,000"))
    lines(tmp_path / "mine" / "test.jsonl", row("B?", "#### 2"), row("C?", "#### -3"))
    mine = dataset(str(tmp_path / "mine"), evaluation=2)
    assert [example.reference for example in datasets.load_examples(mine)] == ["1000", "2", "-3"]
    assert datasets.describe_source(mine) == {"source": str(tmp_path / "mine"), "revision": "unknown"}


# --- local files ------------------------------------------------------------------------------------------


def test_jsonl_one_file(tmp_path):
    path = lines(
        tmp_path / "q.jsonl",
        row(" A? ", "12", split="train", id=7),
        row("B?", "x\n#### 1,000", split="test"),
        row("C?", 2.5, split="evaluation", id=None, note="-"),
    )
    mine = dataset(source={"all": path}, evaluation=2)
    assert datasets.load_examples(mine) == [
        ("7", "calibration", "A?", "12"),
        ("evaluation-1", "evaluation", "B?", "1000"),
        ("evaluation-2", "evaluation", "C?", "2.5"),
    ]
    assert datasets.describe_source(mine) == {f".../{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_byte_order_mark_line_ends_and_separators(tmp_path):
    path = tmp_path / "q.jsonl"
    records = [row("A\u2028B?", split="train"), row("C", split="test")]
    text = [json.dumps(record, ensure_ascii=False) for record in records]
    for content in ("\r\n\r\n".join(text), " [" + ",\n".join(text) + "]"):
        path.write_bytes(b"\xef\xbb\xbf" + content.encode())
        assert [example.question for example in datasets.load_examples(dataset(source={"all": path}))] == [
            "A\u2028B?",
            "C",
        ]


@pytest.mark.parametrize(("text", "message"), [
    ('id,question,answer,split\n7,"A, B?",$1,train\n8,"C\nD?",so #### 2,test\n', None),
    ("id,question,answr,split\n7,A?,1,train\n", ", row 1: no field 'answer'; did you mean 'answr'?"),
    ("question,answer,split\nA?,1,train\nB?,2,3,test\n", ": not CSV (Error tokenizing data. C error: Expected 3"),
    ("", ": not CSV (No columns to parse from file)"),
])  # fmt: skip
def test_a_csv_file_is_a_dataset_too(tmp_path, text, message):
    path = tmp_path / "q.csv"
    path.write_text(text)
    if message is None:
        assert datasets.load_examples(dataset({"all": path})) == [
            ("7", "calibration", "A, B?", "1"),
            ("8", "evaluation", "C\nD?", "2"),
        ]
    else:
        with pytest.raises(UserError) as caught:
            datasets.load_examples(dataset({"all": path}))
        assert str(caught.value).startswith(str(path) + message)


ROW = '{"question": "A?", "answer": 1, "split": "train"}'
MISTAKES = [  # the file, what the message says after the file's name
    (ROW.replace("split", "part"), ", line 1: no field 'split', which one file for `all` needs"),
    (ROW.replace("train", "tets"), ", line 1: no split is called 'tets'; did you mean 'test'?"),
    (ROW.replace('"train"', "null"), ", line 1: no split is called 'None'"),
    (ROW + '\n\n{"question": ', ", line 3: not JSON (Expecting value)"),
    (ROW[:-1] + ', "answer": 2}', ", line 1: not JSON (the key 'answer' again)"),
    (ROW.replace("1", "9" * 5000), ", line 1: not JSON (Exceeds the limit"),
    ("[" * 100_000, ", line 1: not JSON (maximum recursion"),
    ("\udcff", ", line 1: not JSON ('utf-8' codec can't decode"),
    ("3", ", line 1: 3 is not an object with fields"),
    ('[{"question": "A?"},\n{"question"}]', ", line 2: not JSON (Expecting ':' delimiter)"),
    (f"[{ROW}, null]", ", item 2: None is not an object"),
    (ROW.replace("question", "Question"), ", line 1: no field 'question'; did you mean 'Question'?"),
    (ROW.replace("answer", "answr"), ", line 1: no field 'answer'; did you mean 'answr'?"),
    (ROW.replace("A?", " "), ", line 1: an empty question"),
    (ROW.replace('"A?"', "5"), ", line 1: 'question' is 5, not a text"),
    (ROW.replace("A?", "\\ud800"), ", line 1: 'question' holds '\\ud800', half of a character"),
    *(
        (ROW.replace("1", wrong), ", line 1: no number in the answer")
        for wrong in ('"five"', '"5 #### five"', '"1/0"', '""', "true", "NaN", "-1e999", "null", "[5]")
    ),
    *(
        (ROW.replace("}", f', "id": {wrong}}}'), ", line 1: the id ")
        for wrong in ("true", "1.5", "[1]", '""', '"a\\nb"', '"\\ud800"')
    ),
    (ROW.replace("}", ', "id": 4}\n') + ROW.replace("}", ', "id": "4"}'), ", line 2: the id '4' again"),
    (
        ROW.replace("}", ', "id": "a"}\n') + ROW.replace("A?", " A?").replace("train", "test"),
        ", line 2: the question of 'evaluation-1' (evaluation) is that of 'a' (calibration), too: leave one of them "
        "out",
    ),
]


@pytest.mark.parametrize(("content", "message"), MISTAKES)
def test_mistakes_are_one_line_that_names_the_place(tmp_path, content, message):
    path = tmp_path / "q.jsonl"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError) as caught:
        datasets.load_examples(dataset(source={"all": path}))
    assert str(caught.value).startswith(str(path) + message) and str(caught.value).isprintable()


def test_sizes_are_checked(tmp_path):
    path = lines(tmp_path / "q.jsonl", row(split="train"), row("B?", split="test"))
    with pytest.raises(UserError) as caught:
        datasets.load_examples(dataset(source={"all": path}, calibration=3, evaluation=1))
    assert str(caught.value) == (
        "dataset 'Mine': expected 3 calibration and 1 evaluation questions, "
        "found 1 calibration and 1 evaluation questions"
    )


def test_missing_files_name_the_nearest(tmp_path):
    lines(tmp_path / "demo-easy.jsonl", row())
    with pytest.raises(UserError, match="no file .*demo-eazy.jsonl: in .*, did you mean 'demo-easy.jsonl'"):
        datasets.load_examples(dataset(source={"all": tmp_path / "demo-eazy.jsonl"}))
    (tmp_path / "questions").mkdir()
    with pytest.raises(UserError, match="did you mean 'questions'"):
        datasets.load_examples(dataset(source={"all": tmp_path / "question" / "deep" / "q.jsonl"}))
    (tmp_path / "loop").symlink_to("loop")
    for name, why in (("questions", "Is a directory"), ("loop", "Too many levels")):
        with pytest.raises(UserError, match=f"{name} can't be read: {why}"):
            datasets.load_examples(dataset(source={"all": tmp_path / name}))


def svamp_row(n, **more):
    return {"ID": f"chal-{n}", "Body": "Two eggs.", "Question": f"How many of {n}?", "Answer": 2.0, **more}


def test_svamp_split_ids(tmp_path):
    path, ids = lines(tmp_path / "s.json", svamp_row(1), svamp_row(2)), tmp_path / "ids.json"
    mine = dataset({"all": path}, split_ids=str(ids), **SVAMP)
    with pytest.raises(UserError, match="no file .*ids.json"):
        datasets.load_examples(mine)
    ids.write_text(json.dumps({"train": ["chal-2"], "test": ["chal-1"]}, indent=1))
    assert [example.example_id for example in datasets.load_examples(mine)] == ["chal-2", "chal-1"]
    assert set(datasets.describe_source(mine)) == {f".../{path.name}", f".../{ids.name}"}
    for content, message in [
        ({"train": ["chal-2"], "test": []}, "s.json, line 1: the id 'chal-1' is in no list of .*ids.json"),
        ({"train": ["chal-2"], "tst": ["chal-1"]}, "no split is called 'tst'; did you mean 'test'"),
        (["chal-1"], "ids.json: not of the form"),
        ({"train": "chal-1"}, "ids.json: not of the form"),
        ({"train": ["chal-2", "chal-1"], "test": ["chal-1"]}, "the id 'chal-1' is listed again, for test"),
    ]:
        ids.write_text(json.dumps(content))
        with pytest.raises(UserError, match=message):
            datasets.load_examples(mine)
    with pytest.raises(UserError, match="no field 'split'.*split_ids"):
        datasets.load_examples(dataset({"all": path}, **SVAMP))


def test_a_shuffle_needs_a_seed_and_one_part(tmp_path):
    path = lines(tmp_path / "h.jsonl", {"input": "A?", "target": 1.5}, {"input": "B?", "target": -2.0})
    assert {e.reference for e in datasets.load_examples(dataset({"all": path}, seed=3, **GSMHARD))} == {"1.5", "-2"}
    with pytest.raises(UserError, match="no field 'split', which one file for `all` needs .or a `seed`"):
        datasets.load_examples(dataset({"all": path}, **GSMHARD))
    for source, more in (({"calibration": path, "evaluation": path}, {}), ({"all": path}, {"split_ids": "ids.json"})):
        with pytest.raises(UserError, match="a `seed` splits one file itself"):
            datasets.load_examples(dataset(source, seed=3, **more, **GSMHARD))


# --- published files in place of the hub -------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch, hub):
    """A folder with small published files, named by DATA_FOLDER, and the dataset whose file describes them."""
    (tmp_path / "mine").mkdir()
    rows = [svamp_row(1), svamp_row(2), svamp_row(3)]
    (tmp_path / "mine/all.json").write_text(json.dumps(rows))
    (tmp_path / "mine/ids.json").write_text(json.dumps({"train": ["chal-3", "chal-1"], "test": ["chal-2"]}))
    files = {
        part: {"path": f"mine/{name}.json", "sha256": sha256_of(tmp_path / f"mine/{name}.json")}
        for part, name in (("all", "all"), ("split_ids", "ids"))
    }
    monkeypatch.setenv("DATA_FOLDER", str(tmp_path))
    monkeypatch.setitem(HUB, "me/mine", {"train": [rows[2], rows[0]], "test": [rows[1]]})
    return tmp_path, dataset("me/mine", calibration=2, files=files, **SVAMP)


def sha256_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_named_folder_stands_in_for_the_hub(folder, hub, monkeypatch):
    place, mine = folder
    examples = datasets.load_examples(mine)
    assert [example.example_id for example in examples] == ["chal-3", "chal-1", "chal-2"], "in the hub's order"
    assert datasets.describe_source(mine) == {
        f"mine/{name}.json": sha256_of(place / f"mine/{name}.json") for name in ("all", "ids")
    }
    assert not hub
    monkeypatch.setenv("DATA_FOLDER", "")
    assert datasets.load_examples(mine) == examples and len(hub) == 1
    assert datasets.describe_source(mine) == {"source": "me/mine", "revision": "ab" * 20}


def test_another_file_is_refused(folder):
    place, mine = folder
    path = place / "mine/ids.json"
    right = sha256_of(path)
    path.write_text(path.read_text() + " ")
    with pytest.raises(
        UserError,
        match=f"^{path} is not the file of dataset 'Mine': its sha256 is {sha256_of(path)}, expected {right}$",
    ):
        datasets.load_examples(mine)


# --- a dataset of one's own: one file in params/datasets/ ---------------------------------------------------


def test_the_parts_of_a_published_dataset_may_have_other_names(hub, monkeypatch):
    monkeypatch.setitem(HUB, "me/mine", {"train": [row()], "validation": [row("V?", 2)], "test": [row("T?", None)]})
    mine = dataset("me/mine", parts={"train": "calibration", "validation": "evaluation"})
    assert datasets.load_examples(mine) == [
        ("calibration-0", "calibration", "How many?", "1"),
        ("evaluation-0", "evaluation", "V?", "2"),
    ]
