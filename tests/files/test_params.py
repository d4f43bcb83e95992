"""Parameters of files and notebooks: what a part reads, and what is refused (cases of files:
tests/field)."""

import re

import pytest

from lib import params
from lib.errors import UserError
from lib.paths import PARAMS


def test_every_file_of_the_repository_is_valid():
    loaders = {
        "": params.load_profile,
        "models": params.load_model_config,
        "datasets": params.load_dataset_config,
    }
    for folder, load in loaders.items():
        assert all([load(path.stem) for path in (PARAMS / folder).glob("*.yaml")])


# ---- what a notebook declares


def test_a_part_reads_its_own_keys_alone():
    """No variable of the reader's refuses a notebook: neither a module that took the name of a
    parameter, nor what is assigned below the first cells."""
    theirs = {
        "bins": 5,
        "draws": object(),
        "resamples": "x",
        "limit": -1,
        "binz": 3,
        "models": params,
    }
    theirs["In"] = ["", "run = 'lab'\nbins = 5\nmodels = []", "draws = 1", "run = 1; draws = 2"]
    assert params.EvaluationChoices.of(theirs) == params.EvaluationChoices(bins=5)
    with pytest.raises(UserError, match="'draws' is <object"):
        params.Subsampling.of(theirs)


@pytest.mark.parametrize(
    "cells", [["bins = 10", "# Parameters\n"], ["# Parameters\n"], ["run = 'lab'\n"]]
)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"binz": 20}, "there is no parameter 'binz'; did you mean 'bins'?"),
        ({"limit": -1}, "'limit' is -1"),
        ({"resamples": "1:30"}, "'resamples' is '1:30'; input should be a valid integer"),
        ({"resamples": 1000.0}, "input should be a valid integer"),
        ({"cpu": "yes"}, "should be a valid boolean"),
        ({"target_precisions": [2.0]}, "'target_precisions.0' is 2.0"),
    ],
)
def test_what_the_first_cells_assign_is_checked(wrong, said, cells):
    """Also what the part does not read. papermill adds a cell of assignments after the first."""
    given = {"run": "lab", "model": "tiny-llama", "bins": 5, "limit": 0} | wrong
    *cells, last = cells
    given["In"] = [
        "",
        *cells,
        last + "".join(f"{name} = {value!r}\n" for name, value in given.items()),
    ]
    with pytest.raises(UserError, match=re.escape(said)):
        params.EvaluationChoices.of(given)
