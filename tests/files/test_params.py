"""Parameters of files and notebooks: what a part reads, and what is refused (cases of files:
tests/field)."""

import json
import re

import pytest

from lib import parameter_schemas, params
from lib.errors import UserError
from lib.files import read_yaml
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
    (params.SelectivePrediction, {"target_precisions": [1.0]}, "'target_precisions.0' is 1.0"),
])  # fmt: skip
def test_a_part_refuses_what_its_keys_cannot_be(part, wrong, message):
    with pytest.raises(UserError, match=re.escape(message)):
        part.of({"run": "lab", "model": "tiny-llama"} | wrong)


def test_of_what_a_notebook_does_not_declare_all_of_a_response_counts():
    """Its thinking, too, and the rows that chose a rate."""
    choices = params.EvaluationChoices.of({})
    assert choices.include_thinking and choices.fit_on_tuning_rows


@pytest.mark.parametrize(
    "source, repository",
    [("org/name", "org/name"), ("name", ""), ("./name", ""), ("demo/models/tiny-llama", "")],
)
def test_a_model_of_the_hub_is_an_owner_and_a_name(source, repository):
    model = parameter_schemas.Model(label="M", source=source, system_prompt=True)
    assert model.repository == repository


@pytest.mark.parametrize(
    "named, resolved, revision",
    [("v1", "5f", "v1"), (None, "5f", "5f"), ("v1", "", "v1"), (None, "", None)],
)
def test_a_revision_that_a_file_names_comes_before_the_commit_that_a_run_found(
    monkeypatch, named, resolved, revision
):
    monkeypatch.setitem(params.REVISIONS, "org/name", resolved)
    model = parameter_schemas.Model(
        label="M", source="org/name", revision=named, system_prompt=True
    )
    assert params.pin_revision(model).revision == revision


@pytest.mark.parametrize("place", ["label: {}", "files: {{{}: all.jsonl}}"])
def test_half_a_character_is_refused_in_a_value_and_in_a_key(tmp_path, place):
    """JSON writes an emoji as two escapes, each of which is half a character to YAML."""
    path = tmp_path / "mine.yaml"
    path.write_text("# mine\n" + place.format(json.dumps("\N{GRINNING FACE}")))
    with pytest.raises(UserError, match="line 2: .* half a character: write the character itself"):
        params.read_parameter_file(path, params.Dataset)
    path.write_text(f"# mine\n{place.format(chr(0x1F600))}", encoding="utf-8")
    assert "\N{GRINNING FACE}" in str(read_yaml(path))
