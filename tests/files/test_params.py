"""Parameter files: what is right is read, what is wrong is named with the nearest right thing."""

import re

import pytest

from lib import params
from lib.parameter_types import Dataset, Model
from lib.paths import PARAMS, UserError

GOOD = "models: [tiny-llama]\ndatasets: [demo-easy]\n"
SUM = "a" * 64
MODEL = f"label: Mine\nsource: me/mine-GGUF\ngguf: mine.gguf\nsha256: {SUM}\n"
DATASET = "label: Mine\nsource: me/mine\ncalibration: 1\nevaluation: 1\n"


def test_every_file_of_the_repository_is_valid():
    loaders = {"": params.load_profile, "models": params.load_model_config, "datasets": params.load_dataset_config}
    for folder, load in loaders.items():
        assert all(map(load, params.parameter_file_names(PARAMS / folder)))


WRONG = [  # kind of file, its text, and what is said of it after its name
    (params.Profile, "limit: 5\n", "'models' is missing"),
    (params.Profile, GOOD.replace("datasets", "dataset"), "there is no parameter 'dataset'; did you mean 'datasets'"),
    (params.Profile, GOOD + "batch_tokens: 5\n", "no parameter 'batch_tokens'; did you mean 'max_batch_tokens'?"),
    (params.Profile, GOOD + "shard_rows: 5\n", "there is no parameter 'shard_rows'; did you mean '"),
    (params.Profile, "- a\n- b\n", "must hold 'key: value' lines, not a list"),
    (params.Profile, GOOD + "title: [", "is not YAML, line 3"),
    (params.Profile, GOOD + "title: caf\xe9", "is not YAML: 'utf-8' codec can't decode"),
    (params.Profile, GOOD + '"\\e[31mkey": 1\n', r"there is no parameter '\x1b[31mkey'"),
    (Model, MODEL.replace("gguf: mine.gguf", ""), "'gguf' names a file, and 'sha256' its checksum: one of them is"),
    (Model, MODEL.replace("mine.gguf", "../mine.gguf"), "'gguf' is '../mine.gguf'"),
    (Model, MODEL.replace("source: me/mine-GGUF\n", ""), "'source' is missing"),
    (Model, "label: x\nresponses: r.jsonl\nrevision: '1'\n", "'source' is missing"),
    (Model, MODEL + "responses: mine/{data}.jsonl\n", "'responses' "),
    (Dataset, DATASET.replace("me/mine", "{}"), "'source' is {}"),
    (Dataset, DATASET + f"files: {{all: {{path: ../a, sha256: {SUM}}}}}\n", "'files.all.path' is '../a'"),
    (Dataset, DATASET + "files: {all: {path: a, sha256: abc}}\n", "'files.all.sha256' is 'abc'"),
]


@pytest.mark.parametrize(("kind", "text", "said"), WRONG)
def test_a_wrong_file_is_explained_in_one_line(tmp_path, kind, text, said):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UserError) as error:
        params.read_parameter_file(path, kind)
    message = str(error.value)
    assert said in message and message.startswith(str(path)) and len(message) <= 300 and message.isprintable()


WHAT_IT_LOOKS_LIKE = [  # a line of a profile: its value, or what is said of it
    ("title: '7'", "7"), ("cpu: TRUE", True), ("seed: +5", 5), ("seed: -0", 0), ("resamples: 017", 17),
    ("precision_confidence: .5", 0.5),
    *((f"resamples: {value}", "'resamples' is ") for value in (
        "1:30.5", "0o17", "1e3", "1,000", "1 000", "5.0", "2024-07-26", "~", "", "'5'", "yes", "1e400")),
    *((f"resamples: {value}", "invalid literal for int") for value in ("1:30", "0x1F", "0b11", "!!int 1:30")),
    *((f"cpu: {value}", "input should be a valid boolean") for value in ("N", "1", "'true'", "null")),
    *((f"title: {value}", "a text is meant: put it in quotes")
      for value in ("7", "true", "no", "Null", "~", "", "2024-07-26", "!!binary aGVq")),
    ("precision_confidence: .inf", "a finite number"), ("precision_confidence: 5e-1", "should be a valid number"),
    ("dropout_rates: [.1, x]", "'dropout_rates.1' is 'x'; input should be a valid number"),
    ("dropout_rates: .1", "input should be a valid list"), ("1: 2", "keys should be strings"),
    ("title: !mine a", "line 3: could not determine a constructor for the tag '!mine'"),
    ("title: !!python/object/apply:os.system [ls]", "line 3: could not determine a constructor"),
    ("limit: 5\n'limit': 6", "line 4: the key 'limit' again"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), WHAT_IT_LOOKS_LIKE)
def test_a_value_is_what_it_looks_like_or_is_refused(tmp_path, line, expected):
    path, key = tmp_path / "mine.yaml", line.partition(":")[0]
    path.write_text(f"{GOOD}{line}\n")
    try:
        found = getattr(params.read_parameter_file(path, params.Profile), key)
        assert (found, type(found)) == (expected, type(expected))
    except UserError as error:
        assert isinstance(expected, str) and expected in str(error) and str(error).isprintable()


def test_a_place_may_start_with_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    model = Model(label="Mine", source="~/a (v2)", responses="~/r/{dataset}.jsonl")
    assert model.place == tmp_path / "a (v2)" and model.responses_to("svamp") == tmp_path / "r/svamp.jsonl"
    assert model.model_dump()["source"] == "~/a (v2)"


# ---- what a notebook declares


def test_a_part_reads_its_own_keys_alone():
    """No variable of the reader's refuses a notebook: not one with the name of another part's parameter."""
    theirs = {
        "draws": object(),
        "resamples": "x",
        "limit": -1,
        "binz": 3,
        "models": params,
        "In": ["", "bins = 5", "draws = 1", "run = 1; draws = 2"],
    }
    assert params.EvaluationChoices.of(theirs | {"bins": 5}) == params.EvaluationChoices(bins=5)
    with pytest.raises(UserError, match="'draws' is <object"):
        params.Subsampling.of(theirs)


def test_a_notebooks_first_cell_is_checked():
    """Also what no part reads; what it assigns are parameters, so that a misspelled one is no variable of its own."""
    good = {
        "run": "lab",
        "target_precisions": [0.9],
        "draws": None,
        "In": ["", 'run = "lab"\ntarget_precisions = [0.9]'],
    }
    assert params.EvaluationChoices.of(good)
    with pytest.raises(UserError, match=re.escape("'target_precisions.0' is 2.0")):
        params.EvaluationChoices.of(good | {"target_precisions": [2.0]})
    with pytest.raises(UserError, match="no parameter 'binz'; did you mean 'bins'"):
        params.EvaluationChoices.of({"In": ["", 'run = "lab"\nbinz = 20'], "run": "lab", "binz": 20})


GIVEN = {"run": "lab", "model": "tiny-llama", "bins": 5, "limit": 0}


@pytest.mark.parametrize(("wrong", "said"), [
    ({}, ""), ({"models": params}, ""), ({"binz": 20}, "there is no parameter 'binz'; did you mean 'bins'?"),
    ({"limit": -1}, "'limit' is -1"), ({"resamples": "1:30"}, "'resamples' is '1:30'; input should be a valid integer"),
    ({"cpu": "yes"}, "input should be a valid boolean"), ({"resamples": 1000.0}, "input should be a valid integer"),
])  # fmt: skip
def test_what_papermill_was_given_is_checked(wrong, said):
    """Also what the part does not read. papermill adds a cell of assignments after the first."""
    given = GIVEN | wrong
    added = "# Parameters\n" + "".join(f"{name} = {value!r}\n" for name, value in given.items() if name != "models")
    variables = given | {"In": ["", "bins = 10", added + ("models = []\n" if wrong.get("models") else "")]}
    if not said:
        assert params.EvaluationChoices.of(variables).bins == 5
        return
    with pytest.raises(UserError) as error:
        params.EvaluationChoices.of(variables)
    assert said in str(error.value)
