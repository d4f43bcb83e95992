"""Parameter files: what is right is read, what is wrong is named with the nearest right thing."""

import pytest

from lib import params
from lib.configs import Dataset, Model
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
    (params.Profile, "limit: 5\n", "'models', 'datasets' are missing"),
    (params.Profile, GOOD.replace("datasets", "dataset"), "there is no parameter 'dataset'; did you mean 'datasets'"),
    (params.Profile, GOOD + "batch_tokens: 5\n", "no parameter 'batch_tokens'; did you mean 'max_batch_tokens'?"),
    (params.Profile, GOOD + "shard_rows: 5\n", "there is no parameter 'shard_rows'; did you mean '"),
    (params.Profile, "- a\n- b\n", "must hold 'key: value' lines, not a list"),
    (params.Profile, GOOD + "title: [", "is not YAML, line 3"),
    (params.Profile, GOOD + "title: caf\xe9", "is not text in UTF-8"),
    (params.Profile, GOOD + '"\\e[31mkey": 1\n', r"there is no parameter '\x1b[31mkey'"),
    (Model, MODEL.replace("gguf: mine.gguf", ""), "'sha256' is the checksum of a GGUF file, but 'gguf' is mis"),
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


def test_where_dropout_acts_is_a_word_or_a_list():
    def scope(**said):
        return params.validate(params.Profile, {"models": ["a"], "datasets": ["b"], **said}, "here").dropout_scope

    assert scope() == ["trajectory"] and scope(dropout_scope="answer") == ["answer"]
    assert scope(dropout_scope=["answer", "trajectory"]) == ["answer", "trajectory"]
