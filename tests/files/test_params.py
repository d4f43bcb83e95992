"""Parameters of files and notebooks: what a part reads, and what is refused (cases of files: tests/field)."""

import re

import pytest

from lib import params
from lib.parameter_schemas import Model
from lib.paths import PARAMS, UserError


def test_every_file_of_the_repository_is_valid():
    loaders = {"": params.load_profile, "models": params.load_model_config, "datasets": params.load_dataset_config}
    for folder, load in loaders.items():
        assert all([load(path.stem) for path in (PARAMS / folder).glob("*.yaml")])


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
