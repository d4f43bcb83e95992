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
        assert all(load(path.stem) for path in (PARAMS / folder).glob("*.yaml"))


# ---- what a notebook declares


def test_a_part_reads_its_own_keys_alone():
    """No other variable of the reader's refuses a notebook: neither a module that took the name of
    a parameter, nor a parameter of another part."""
    variables = {
        "bins": 5,
        "draws": object(),
        "resamples": "x",
        "limit": -1,
        "binz": 3,
        "models": params,
    }
    assert params.EvaluationChoices.of(variables) == params.EvaluationChoices(bins=5)
    with pytest.raises(UserError, match="'draws' is <object"):
        params.Subsampling.of(variables)


@pytest.mark.parametrize(("part", "wrong", "message"), [
    (params.EvaluationChoices, {"bins": 0}, "'bins' is 0"),
    (params.Resampling, {"resamples": "1:30"}, "'resamples' is '1:30'; input should be a valid"),
    (params.Resampling, {"resamples": 1000.0}, "input should be a valid integer"),
    (params.SelectivePrediction, {"target_precisions": [2.0]}, "'target_precisions.0' is 2.0"),
])  # fmt: skip
def test_a_part_refuses_what_its_keys_cannot_be(part, wrong, message):
    with pytest.raises(UserError, match=re.escape(message)):
        part.of({"run": "lab", "model": "tiny-llama"} | wrong)
