"""Parameters of files and notebooks: what a part reads, and what is refused (cases of files: tests/field)."""

import re

import pytest

from lib import params
from lib.paths import PARAMS, UserError


def test_every_file_of_the_repository_is_valid():
    loaders = {"": params.load_profile, "models": params.load_model_config, "datasets": params.load_dataset_config}
    for folder, load in loaders.items():
        assert all([load(path.stem) for path in (PARAMS / folder).glob("*.yaml")])


# ---- what a notebook declares


def test_a_part_reads_its_own_keys_alone():
    """No variable of the reader's refuses a notebook: not one with the name of another part's parameter."""
    theirs = {"draws": object(), "resamples": "x", "limit": -1, "binz": 3, "models": params}
    theirs["In"] = ["", "bins = 5", "draws = 1", "run = 1; draws = 2"]
    assert params.EvaluationChoices.of(theirs | {"bins": 5}) == params.EvaluationChoices(bins=5)
    with pytest.raises(UserError, match="'draws' is <object"):
        params.Subsampling.of(theirs)


GIVEN = {"run": "lab", "model": "tiny-llama", "bins": 5, "limit": 0, "target_precisions": [0.9]}


@pytest.mark.parametrize("by_papermill", [False, True])
@pytest.mark.parametrize(("wrong", "said"), [
    ({}, ""), ({"models": params}, ""), ({"binz": 20}, "there is no parameter 'binz'; did you mean 'bins'?"),
    ({"limit": -1}, "'limit' is -1"), ({"resamples": "1:30"}, "'resamples' is '1:30'; input should be a valid integer"),
    ({"target_precisions": [2.0]}, "'target_precisions.0' is 2.0"), ({"cpu": "yes"}, "should be a valid boolean"),
    ({"resamples": 1000.0}, "input should be a valid integer"),
])  # fmt: skip
def test_what_the_first_cell_assigns_is_checked(wrong, said, by_papermill):
    """Also what the part does not read. papermill adds a cell of assignments after the first."""
    given = GIVEN | wrong
    cell = "".join(f"{name} = {value!r}\n" for name, value in given.items() if name != "models")
    cells = ["", *["bins = 10", "# Parameters\n" + cell][not by_papermill :], *["models = []"] * ("models" in wrong)]
    if not said:
        assert params.EvaluationChoices.of(given | {"In": cells}).bins == 5
        return
    with pytest.raises(UserError, match=re.escape(said)):
        params.EvaluationChoices.of(given | {"In": cells})
