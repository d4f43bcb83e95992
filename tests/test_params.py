"""Parameter files: what is right is read, what is wrong is named with the nearest right thing."""

import pytest

from lib import params
from lib.paths import PARAMS, UserError


def write(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


def test_every_file_of_the_repository_is_valid():
    for name in params.parameter_file_names(PARAMS):
        params.load_profile(name)
    for name in params.parameter_file_names(PARAMS / "models"):
        params.load_model_config(name)
    for name in params.parameter_file_names(PARAMS / "datasets"):
        params.load_dataset_config(name)


GOOD = "models: [tiny-llama]\ndatasets: [demo-easy]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD + "dropout_scope: answr\n", "'dropout_scope.0' can't be 'answr'; did you mean 'answer'"),
        (GOOD + "dropout_scope: []\n", "'dropout_scope' is []"),
        (GOOD + "sed: 1\n", "there is no parameter 'sed'; did you mean 'seed'?"),
        ("model: [tiny-llama]\n", "there is no parameter 'model'; did you mean 'models'?"),
        (GOOD + "bins: ten\n", "'bins' is 'ten'; input should be a valid integer"),
        (GOOD + "bins: 0\n", "'bins' is 0"),
        (GOOD + "grader: numerik\n", "'grader' can't be 'numerik'; did you mean 'numeric'?"),
        ("datasets: [demo-easy]\n", "'models' is missing"),
        ("limit: 5\n", "'models', 'datasets' are missing"),
        ("models: []\ndatasets: [a]\n", "'models' is []"),
        ("- a\n- b\n", "must hold 'key: value' lines, not a list"),
        ("models: [a\n", "is not YAML, line"),
        ("models: !!python/object/apply:os.system ['true']\n", "is not YAML"),
    ],
)
def test_a_wrong_profile_is_explained_in_one_line(tmp_path, text, said):
    with pytest.raises(UserError) as error:
        params.read_parameter_file(write(tmp_path, text), params.Profile)
    assert said in str(error.value) and "mine.yaml" in str(error.value) and "\n" not in str(error.value)


SUM = "a" * 64
MODEL = f"label: Mine\nsource: me/mine-GGUF\ngguf: mine.gguf\nsha256: {SUM}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MODEL.replace("gguf: ", "gguv: "), "there is no parameter 'gguv'; did you mean 'gguf'?"),
        (MODEL.replace("sha256", "sha265"), "there is no parameter 'sha265'; did you mean 'sha256'?"),
        (MODEL.replace(f"sha256: {SUM}", ""), "'gguf' needs the 'sha256' of mine.gguf"),
        (MODEL.replace(SUM, "abc"), "'sha256' is 'abc'"),
        (MODEL.replace("mine.gguf", "mine.bin"), "'gguf' is 'mine.bin'"),
        (MODEL.replace("mine.gguf", "../mine.gguf"), "'gguf' is '../mine.gguf'"),
        (MODEL.replace("gguf: mine.gguf", ""), "'sha256' is said of a GGUF file, and none is named: 'gguf' is missing"),
        (MODEL + "mirror: [{package: mine==1.0, member: x}]\n", "there is no parameter 'mirror'"),
    ],
)  # fmt: skip
def test_a_wrong_gguf_file_is_explained_in_one_line(tmp_path, text, said):
    with pytest.raises(UserError) as error:
        params.read_parameter_file(write(tmp_path, text), params.Model)
    assert said in str(error.value) and "mine.yaml" in str(error.value) and "\n" not in str(error.value)


def test_half_a_character_is_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(r'{"models": ["\ude00\ud83d"], "datasets": ["b"]}')
    with pytest.raises(UserError, match="'models.0' is .* valid string"):
        params.read_parameter_file(path, params.Profile)


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"title: caf\xe9\n")
    with pytest.raises(UserError, match="UTF-8"):
        params.read_parameter_file(path, params.Profile)


@pytest.mark.parametrize(
    ("load", "name", "said"),
    [
        (params.load_model_config, "tiny-lama", "did you mean 'tiny-llama'?"),
        (params.load_dataset_config, "demo-esy", "did you mean 'demo-easy'?"),
        (params.load_profile, "demmo", "did you mean 'demo'?"),
    ],
)
def test_a_misspelt_name_points_to_the_nearest(load, name, said):
    with pytest.raises(UserError, match="did you mean") as error:
        load(name)
    assert said in str(error.value)


def test_a_profile_with_an_unknown_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(params, "PARAMS", tmp_path / "params")
    dataset = "label: Two\nsource: x\ncalibration: 1\nevaluation: 1\n"
    files = (("models", "one", "label: One\nsource: a/b\n"), ("datasets", "two", dataset),
             (".", "mine", "models: [onne]\ndatasets: [two]\n"))  # fmt: skip
    for folder, name, text in files:
        path = tmp_path / "params" / folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with pytest.raises(UserError, match="no model 'onne'.*did you mean 'one'"):
        params.load_profile("mine")


def test_where_dropout_acts_is_a_word_or_a_list(tmp_path):
    def scope(said):
        return params.read_parameter_file(write(tmp_path, GOOD + said), params.Profile).dropout_scope

    assert scope("") == ["trajectory"] and scope("dropout_scope: answer\n") == ["answer"]
    assert scope("dropout_scope: [answer, trajectory]\n") == ["answer", "trajectory"]
