"""Loading questions: the published files and their oddities, a pretended hub, mistakes in one line."""

import hashlib
import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import params
from lib.project import ROOT, UserError
from lib.tasks import answers, questions

DATA = ROOT.parent / "shared" / "data"
SIZES = {"gsm8k": (7473, 1319), "gsmhard": (919, 400), "svamp": (700, 300)}


def dataset(format="jsonl", source=None, calibration=1, evaluation=1, **more):
    source = source if isinstance(source, str) else {part: str(path) for part, path in source.items()}
    return params.Dataset(label="Mine", format=format, source=source, calibration=calibration,
                          evaluation=evaluation, **more)  # fmt: skip


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def row(question="How many?", answer=1, **more):
    return {"question": question, "answer": answer, **more}


def published(name):
    """The paper's dataset from the published files, with the sizes and seed of its parameter file."""
    files = {
        "gsm8k": {"calibration": "gsm8k/train.jsonl", "evaluation": "gsm8k/test.jsonl"},
        "gsmhard": {"all": "gsmhard/gsmhardv2.jsonl"},
        "svamp": {"all": "svamp/SVAMP.json"},
    }[name]
    missing = [name for name in files.values() if not (DATA / name).is_file()]
    if missing:
        pytest.skip(f"the published datasets are not here ({DATA / missing[0]})")
    ids = str(DATA / "svamp/split_ids.json") if name == "svamp" else None
    source = {part: str(DATA / file) for part, file in files.items()}
    return params.load_dataset(name).model_copy(update={"source": source, "split_ids": ids})


# --- the published files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
def test_published_files(name):
    examples = questions.load(published(name))
    splits = [example.split for example in examples]
    assert (splits.count("calibration"), splits.count("evaluation")) == SIZES[name]
    assert splits == sorted(splits)
    assert len({example.example_id for example in examples}) == len(examples)
    assert len({example.question for example in examples}) == len(examples)
    for example in examples:
        assert example.question and example.question == example.question.strip()
        assert answers.canonical(answers.parse_number(example.reference)) == example.reference
        assert answers.grade(example.reference, example.reference, "exact")
    assert questions.load(published(name)) == examples


def test_gsm8k_references():
    examples = {example.example_id: example for example in questions.load(published("gsm8k"))}
    assert examples["evaluation-0"].reference == "18" and examples["evaluation-0"].question.startswith("Janet")
    assert examples["calibration-0"].question.startswith("Natalia")
    numbers = [int(example.reference) for example in examples.values()]
    assert sum(number < 0 for number in numbers) == 5
    assert max(numbers) == 192_000_000 and sum("," in example.reference for example in examples.values()) == 0


def test_gsmhard_references():
    examples = questions.load(published("gsmhard"))
    numbers = [answers.parse_number(example.reference) for example in examples]
    integers = [number for number in numbers if number == number.to_integral_value()]
    assert len(numbers) - len(integers) == 303
    assert sum(number < 0 for number in numbers) == 146
    assert sum(0 < abs(number) < 1 for number in numbers) == 37
    assert sum(number == 0 for number in numbers) == 4
    by_id = {example.example_id: example.reference for example in examples}
    assert by_id["row-0"] == "-9867630" and "3244047.0999999996" in by_id.values()
    rounded = [answers.canonical(number.to_integral_value()) for number in numbers]
    pairs = list(zip(rounded, by_id.values(), strict=True))
    assert all(answers.grade(*pair) for pair in pairs)  # the prompt asks for an integer: every one can be right
    assert sum(answers.grade(*pair, "integer") for pair in pairs) == 1319 - 303


def test_gsmhard_split_is_pinned():
    """The order hangs on seed and row alone; were it to change, stored runs would lose their splits."""
    examples = questions.load(published("gsmhard"))
    order = sorted(range(1319), key=lambda index: hashlib.sha256(f"0|{index}".encode()).hexdigest())
    assert [example.example_id for example in examples] == [f"row-{index}" for index in order]
    digest = hashlib.sha256("\n".join(example.example_id for example in examples).encode()).hexdigest()
    assert (examples[0].example_id, examples[919].example_id) == ("row-382", "row-240")
    assert digest.startswith("0948fd3cbf207cbd")
    other = questions.load(published("gsmhard").model_copy(update={"seed": 1}))
    assert {e.example_id for e in other[:919]} != {e.example_id for e in examples[:919]}


def test_svamp_questions():
    examples = {example.example_id: example for example in questions.load(published("svamp"))}
    cake = examples["chal-363"]
    assert cake.split == "evaluation" and cake.reference == "1"
    assert cake.question.startswith("Mary is baking a cake. The recipe calls for 6 cups of flour 8 cups of sugar")
    assert " cups of flour. How many more cups of sugar than cups of salt" in cake.question
    assert examples["chal-1"].question.endswith("on each pack How much do you have to pay to buy each pack?")
    numbers = [int(example.reference) for example in examples.values()]
    assert min(numbers) >= 0 and max(numbers) == 22090603


# --- the hub ----------------------------------------------------------------------------------------------


class Part(list):
    def __init__(self, rows, url):
        super().__init__(rows)
        self.info = SimpleNamespace(download_checksums={url: {"num_bytes": 1, "checksum": None}})


HUB = {
    "openai/gsm8k": {"train": [{"question": "A?", "answer": "so\n#### 1,000"}],
                     "test": [{"question": "B?", "answer": "#### -3"}, {"question": "C?", "answer": "#### 5"}]},
    "reasoning-machines/gsm-hard": {"train": [{"input": f"Q{n}?", "code": "", "target": t} for n, t in
                                              enumerate([-9867630.0, 3244047.0999999996, 5e-7, 0.0])]},
    "ChilleD/SVAMP": {"train": [{"ID": "chal-2", "Body": "Dan had $ 3 left ", "Question": "How much?",
                                 "Equation": "( 4.0 - 3.0 )", "Answer": "1.0", "Type": "Subtraction",
                                 "question_concat": "Dan had $ 3 left How much?"}],
                      "test": [{"ID": "chal-1", "Body": "Packs cost 76.", "Question": "How much?", "Answer": 51.0}]},
    "me/mine": {"train": [row()], "validation": [row("V?")], "test": [row("T?", 2)]},
}  # fmt: skip


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


def test_hub_gsm8k(hub):
    mine = params.load_dataset("gsm8k").model_copy(update={"calibration": 1, "evaluation": 2})
    assert questions.load(mine) == [
        ("calibration-0", "calibration", "A?", "1000"),
        ("evaluation-0", "evaluation", "B?", "-3"),
        ("evaluation-1", "evaluation", "C?", "5"),
    ]
    assert hub == [("openai/gsm8k", "main", "740312add88f781978c0658806c59bc2815b9866")]
    assert questions.provenance(mine) == {"source": "openai/gsm8k", "revision": "ab" * 20}


def test_hub_gsmhard(hub):
    mine = params.load_dataset("gsmhard").model_copy(update={"calibration": 3, "evaluation": 1})
    examples = questions.load(mine)
    order = sorted(range(4), key=lambda index: hashlib.sha256(f"0|{index}".encode()).hexdigest())
    references = ["-9867630", "3244047.0999999996", "0.0000005", "0"]
    splits = ["calibration"] * 3 + ["evaluation"]
    assert examples == [(f"row-{n}", s, f"Q{n}?", references[n]) for n, s in zip(order, splits, strict=True)]


def test_hub_svamp(hub):
    mine = params.load_dataset("svamp").model_copy(update={"calibration": 1, "evaluation": 1})
    assert questions.load(mine) == [
        ("chal-2", "calibration", "Dan had $ 3 left How much?", "1"),
        ("chal-1", "evaluation", "Packs cost 76. How much?", "51"),
    ]


def test_hub_leaves_further_parts_alone(hub):
    assert [example.question for example in questions.load(dataset(source="me/mine"))] == ["How many?", "T?"]


def test_hub_out_of_reach(hub):
    with pytest.raises(UserError) as caught:
        questions.load(dataset(source="me/nothing"))
    assert str(caught.value) == "hub dataset 'me/nothing' did not load: Couldn't reach 'me/nothing' on the Hub"


def test_the_real_library_gives_what_the_pretended_one_does(tmp_path, monkeypatch):
    """A folder stands in for the hub: the same call, without a network."""
    library = pytest.importorskip("datasets")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "mine").mkdir()
    lines(tmp_path / "mine" / "train.jsonl", row("A?", "#### 1,000"))
    lines(tmp_path / "mine" / "test.jsonl", row("B?", "#### 2"), row("C?", "#### -3"))
    mine = dataset("gsm8k", str(tmp_path / "mine"), evaluation=2)
    assert [example.reference for example in questions.load(mine)] == ["1000", "2", "-3"]
    assert questions.provenance(mine) == {"source": str(tmp_path / "mine"), "revision": "unknown"}


def test_hub_rows_are_named(hub, monkeypatch):
    monkeypatch.setitem(HUB, "me/mine", {"train": [row(), row("Q?", "many")]})
    with pytest.raises(UserError, match="^me/mine, train, row 1: no number in the answer 'many'$"):
        questions.load(dataset(source="me/mine"))


# --- local files ------------------------------------------------------------------------------------------


def test_jsonl_one_file(tmp_path):
    path = lines(tmp_path / "q.jsonl", row(" A? ", "12", split="train", id=7),
                 row("B?", "x\n#### 1,000", split="test"), row("C?", 2.5, split="evaluation", id=None, note="-"))
    mine = dataset(source={"all": path}, evaluation=2)
    assert questions.load(mine) == [
        ("7", "calibration", "A?", "12"),
        ("evaluation-1", "evaluation", "B?", "1000"),
        ("evaluation-2", "evaluation", "C?", "2.5"),
    ]
    assert questions.provenance(mine) == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}


def test_jsonl_file_per_split(tmp_path):
    first, second = lines(tmp_path / "a.jsonl", row("A?")), lines(tmp_path / "b.jsonl", row("B?"))
    assert [example[:3] for example in questions.load(dataset(source={"calibration": first, "test": second}))] == [
        ("calibration-0", "calibration", "A?"),
        ("evaluation-0", "evaluation", "B?"),
    ]


def test_relative_paths_start_at_the_root(tmp_path, monkeypatch):
    lines(tmp_path / "q.jsonl", row(split="train"), row("B?", split="test"))
    monkeypatch.setattr(questions, "ROOT", tmp_path)
    assert len(questions.load(dataset(source={"all": "q.jsonl"}))) == 2


def test_byte_order_mark_line_ends_and_separators(tmp_path):
    path = tmp_path / "q.jsonl"
    records = [row("A\u2028B?", split="train"), row("C", split="test")]
    text = [json.dumps(record, ensure_ascii=False) for record in records]
    for content in ("\r\n\r\n".join(text), " [" + ",\n".join(text) + "]"):
        path.write_bytes(b"\xef\xbb\xbf" + content.encode())
        assert [example.question for example in questions.load(dataset(source={"all": path}))] == ["A\u2028B?", "C"]


MISTAKES = [  # lines of the file, what the message says after the file's name
    (['{"question": "A?", "answer": 1}'], ", line 1: no field 'split', which one file for `all` needs"),
    (['{"question": "A?", "answer": 1, "split": "tets"}'],
     ", line 1: no split is called 'tets'; did you mean 'test'?"),
    (['{"question": "A?", "answer": 1, "split": "train"}', "", '{"question": '],
     ", line 3: not JSON (Expecting value)"),
    (["\udcff"], ", line 1: not JSON ('utf-8' codec can't decode"),
    (["3"], ", line 1: 3 is not an object with fields"),
    (['[{"question": "A?"},', '{"question"}]'], ", line 2: not JSON (Expecting ':' delimiter)"),
    (['[{"question": "A?", "answer": 1, "split": "train"}, null]'], ", item 2: None is not an object"),
    (['{"Question": "A?", "answer": 1, "split": "train"}'],
     ", line 1: no field 'question'; did you mean 'Question'?"),
    (['{"question": "A?", "answr": 1, "split": "train"}'], ", line 1: no field 'answer'; did you mean 'answr'?"),
    (['{"question": "  ", "answer": 1, "split": "train"}'], ", line 1: an empty question"),
    (['{"question": 5, "answer": 1, "split": "train"}'], ", line 1: 'question' is 5, not a text"),
    (['{"question": "A?", "answer": "five", "split": "train"}'], ", line 1: no number in the answer 'five'"),
    (['{"question": "A?", "answer": "5 #### five", "split": "train"}'], ", line 1: no number in the answer"),
    (['{"question": "A?", "answer": true, "split": "train"}'], ", line 1: no number in the answer 'True'"),
    (['{"question": "A?", "answer": NaN, "split": "train"}'], ", line 1: no number in the answer 'nan'"),
    (['{"question": "A?", "answer": null, "split": "train"}'], ", line 1: no number in the answer 'None'"),
    (['{"question": "A?", "answer": 1, "split": "train", "id": 4}',
      '{"question": "B?", "answer": 1, "split": "test", "id": "4"}'], ", line 2: the id '4' again"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), MISTAKES)
def test_mistakes_are_one_line_that_names_the_place(tmp_path, content, message):
    path = tmp_path / "q.jsonl"
    path.write_bytes("\n".join(content).encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError) as caught:
        questions.load(dataset(source={"all": path}))
    assert str(caught.value).startswith(str(path) + message) and "\n" not in str(caught.value)


def test_sizes_are_checked(tmp_path):
    path = lines(tmp_path / "q.jsonl", row(split="train"), row("B?", split="test"))
    with pytest.raises(UserError) as caught:
        questions.load(dataset(source={"all": path}, calibration=3, evaluation=1))
    assert str(caught.value) == ("dataset 'Mine': expected 3 calibration and 1 evaluation questions, "
                                 "found 1 calibration and 1 evaluation questions")  # fmt: skip


def test_missing_files_name_the_nearest(tmp_path):
    lines(tmp_path / "demo-easy.jsonl", row())
    with pytest.raises(UserError, match="no file .*demo-eazy.jsonl: in .*, did you mean 'demo-easy.jsonl'"):
        questions.load(dataset(source={"all": tmp_path / "demo-eazy.jsonl"}))
    (tmp_path / "questions").mkdir()
    with pytest.raises(UserError, match="did you mean 'questions'"):
        questions.load(dataset(source={"all": tmp_path / "question" / "deep" / "q.jsonl"}))
    with pytest.raises(UserError, match="no file .*questions: Is a directory"):
        questions.load(dataset(source={"all": tmp_path / "questions"}))


def svamp_row(n, **more):
    return {"ID": f"chal-{n}", "Body": "Two eggs.", "Question": f"How many of {n}?", "Answer": 2.0, **more}


def test_svamp_split_ids(tmp_path):
    path, ids = lines(tmp_path / "s.json", svamp_row(1), svamp_row(2)), tmp_path / "ids.json"
    mine = dataset("svamp", {"all": path}, split_ids=str(ids))
    with pytest.raises(UserError, match="no file .*ids.json"):
        questions.load(mine)
    ids.write_text(json.dumps({"train": ["chal-2"], "test": ["chal-1"]}, indent=1))
    assert [example.example_id for example in questions.load(mine)] == ["chal-2", "chal-1"]
    assert set(questions.provenance(mine)) == {str(path), str(ids)}
    for content, message in [
        ({"train": ["chal-2"], "test": []}, "s.json, line 1: the id 'chal-1' is in no list of .*ids.json"),
        ({"train": ["chal-2"], "tst": ["chal-1"]}, "no split is called 'tst'; did you mean 'test'"),
        (["chal-1"], "ids.json: not of the form"),
        ({"train": "chal-1"}, "ids.json: not of the form"),
    ]:
        ids.write_text(json.dumps(content))
        with pytest.raises(UserError, match=message):
            questions.load(mine)
    with pytest.raises(UserError, match="no field 'split'.*split_ids"):
        questions.load(dataset("svamp", {"all": path}))


def test_gsmhard_needs_a_seed_and_one_part(tmp_path):
    path = lines(tmp_path / "h.jsonl", {"input": "A?", "target": 1.5}, {"input": "B?", "target": -2.0})
    assert {e.reference for e in questions.load(dataset("gsmhard", {"all": path}, seed=3))} == {"1.5", "-2"}
    with pytest.raises(UserError, match="splits one file itself, by its `seed`"):
        questions.load(dataset("gsmhard", {"all": path}))
    with pytest.raises(UserError, match="splits one file itself"):
        questions.load(dataset("gsmhard", {"calibration": path, "evaluation": path}, seed=3))


@pytest.mark.parametrize("name", SIZES)
def test_parameter_files_have_the_papers_sizes(name):
    mine = params.load_dataset(name)
    assert (mine.calibration, mine.evaluation) == SIZES[name] and mine.format == name


@settings(max_examples=150, deadline=None)
@given(st.text() | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(st.integers()))
def test_any_answer_is_a_number_or_a_mistake(answer):
    try:
        reference = questions.reference(answer, "here")
    except UserError as error:
        assert str(error).startswith("here: no number") and "\n" not in str(error)
    else:
        assert answers.canonical(answers.parse_number(reference)) == reference


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | st.text(st.sampled_from('[]{}":,\n 1aquestion')).map(str.encode))
def test_any_bytes_are_questions_or_a_mistake(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        questions.load(dataset(source={"all": path}))
    assert "\n" not in str(caught.value)
