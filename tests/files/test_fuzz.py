"""Anything at all for the readers of files and of answers: a value, or one line; never another exception.

Some examples each, 2,000 with `--all`, and always the same ones; `--anew` draws others, 10,000 with `--all --anew`.
"""

import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib import params
from lib.generate import response_files
from lib.paths import UserError
from lib.tasks import datasets, numbers

FUZZ = settings(settings.get_profile("fuzz"), suppress_health_check=list(HealthCheck))
KEYS = st.sampled_from(sorted(params.Profile.model_fields)) | st.text(max_size=10)
WORDS = st.sampled_from(["tiny-llama", "answer", "top_k", "1:30", "yes", "\x1b[31m", "a\x00b", "~nosuchuser"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), WORDS)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
PROFILE = st.dictionaries(KEYS, VALUES, max_size=4).map({"models": ["a"], "datasets": ["b"]}.__or__)
YAML = st.text(st.sampled_from("[]{}:,-?&*!|>'\"%@#~ \n\t01.exyabm"), max_size=60)
BYTES = st.binary(max_size=80) | YAML.map(str.encode)
JSON = st.text(st.sampled_from('[]{}":,\\ \n1aeu0.-'), max_size=60).map(str.encode)
ENTRIES = st.lists(st.fixed_dictionaries({"token": VALUES, "logprob": VALUES}, optional={"bytes": VALUES}), max_size=3)
FIELDS = {"text": VALUES, "logprobs": VALUES | ENTRIES | st.fixed_dictionaries({"content": ENTRIES | VALUES})}
CHOICE = st.fixed_dictionaries(
    {"message": VALUES | st.fixed_dictionaries({"content": VALUES}), "finish_reason": VALUES}
)
BODY = st.fixed_dictionaries({"choices": VALUES | st.lists(CHOICE | VALUES, max_size=2)})
BATCH = st.fixed_dictionaries({"status_code": st.just(200) | VALUES, "body": BODY | VALUES})
RESPONSE = st.fixed_dictionaries({"example_id": VALUES}, optional=FIELDS) | st.fixed_dictionaries(
    {"custom_id": VALUES, "response": BATCH | VALUES}
)
QUESTION = st.fixed_dictionaries({"question": VALUES, "answer": VALUES}, optional={"id": VALUES})
QUESTIONS = st.lists(QUESTION, max_size=3)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def encoded(value):
    return json.dumps(value).encode()


def value_or_line(read):
    """What is read; None for a mistake, which is one printable line."""
    try:
        return read()
    except UserError as error:
        assert len(str(error)) <= 300 and str(error).isprintable()
        return None


@FUZZ
@given(BYTES | (VALUES | PROFILE).map(lambda value: yaml.safe_dump(value).encode()))
def test_any_parameter_file(place, content):
    """What is read of a profile reads the same again."""
    path = place / "mine.yaml"
    path.write_bytes(content)
    for kind in (params.Model, params.Dataset, params.Profile):
        read = value_or_line(lambda kind=kind: params.read_parameter_file(path, kind))
    if read:
        path.write_text(yaml.safe_dump(read.model_dump(mode="json")))
        assert params.read_parameter_file(path, params.Profile) == read


@FUZZ
@given(BYTES | JSON | VALUES.map(encoded) | QUESTIONS.map(lambda rows: b"\n".join(map(encoded, rows))))
def test_any_questions(place, content):
    path = place / "any.jsonl"
    path.write_bytes(content)
    sizes = {"calibration": 1, "evaluation": max(1, content.count(b"\n"))}
    mine = params.Dataset(label="Mine", source={"all": str(path)}, seed=1, **sizes)
    for example in value_or_line(lambda: datasets.load_examples(mine)) or ():
        assert example.question.encode() and example.example_id.isprintable()
        assert numbers.format_number(numbers.parse_number(example.reference)) == example.reference


@FUZZ
@given(BYTES | JSON | RESPONSE.map(encoded))
def test_any_file_of_responses(place, content):
    path = place / "drawn.jsonl"
    path.write_bytes(content)
    for name, response in (value_or_line(lambda: response_files.read_response_file(path, "mine")) or {}).items():
        assert response.example_id == name and not (response.text and response.token_ids)
