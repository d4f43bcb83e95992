"""Anything at all for the readers of files and of answers: a value, or one line; never another
exception.

Some examples each, 2,000 with `--all`, and always the same ones; `--anew` draws others, 10,000 with
`--all --anew`.
"""

import json
import re

import yaml
from cases import read_cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib import params
from lib.errors import UserError
from lib.responses import formats
from lib.tasks import datasets
from lib.tasks.written_numbers import format_number, parse_number

FUZZ = settings(settings.get_profile("fuzz"), suppress_health_check=list(HealthCheck))
WORDS = st.sampled_from(
    ["tiny-llama", "answer", "top_k", "1:30", "yes", "\x1b[31m", "a\x00b", "~nosuchuser"]
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), WORDS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
SYNTAX = st.text(st.sampled_from("[]{}:,-?&*!|>'\"%@#~\\ \n\t01.exyabmu"), max_size=60)
ENDLESS = st.sampled_from([b'{"question": ' + b"9" * 5000, b"[" * 100_000, b'{"answer": ' * 50_000])
BYTES = st.binary(max_size=80) | SYNTAX.map(str.encode) | ENDLESS
SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"|[\w.-]+')  # of JSON: a key, or a value that holds no others
GROUP = re.compile(r"(?<=.)(?:\[[^][]*\]|\{[^{}]*\})")  # one that does, but the outermost
FILES = (
    params.load_profile("demo"),
    params.load_model_config("tiny-llama"),
    params.load_dataset_config("gsm8k"),
)
QUESTIONS = [
    {"question": "A?", "answer": 1, "id": "a"},
    {"question": "B?", "answer": "2 #### 1/2", "id": "b"},
]
LINES = [case["line"] for case in read_cases("responses.jsonl", "text", "refused")]


@st.composite
def spoiled(draw, wholes):
    """One of some values as JSON, which is YAML, too; in some places stands anything else."""
    text = json.dumps(draw(st.sampled_from(wholes)))
    for _ in range(draw(st.integers(0, 2))):
        places = [*SCALAR.finditer(text), *GROUP.finditer(text)]
        start, end = draw(st.sampled_from(places)).span()
        value = json.dumps(draw(VALUES))
        text = text[:start] + value + text[end:]
    return text.encode()


def value_or_line(read, *words):
    """What is read; None for a mistake, which is one printable line."""
    try:
        return read(*words)
    except UserError as error:
        assert len(str(error)) <= 300 and str(error).isprintable()


@FUZZ
@given(BYTES | spoiled([file.model_dump(mode="json") for file in FILES]))
def test_any_parameter_file(tmp_path, content):
    """What is read of a file reads the same again."""
    path = tmp_path / "mine.yaml"
    for kind in (params.Model, params.Dataset, params.Profile):
        path.write_bytes(content)
        if read := value_or_line(params.read_parameter_file, path, kind):
            path.write_text(yaml.safe_dump(read.model_dump(mode="json")))
            assert params.read_parameter_file(path, kind) == read


@FUZZ
@given(BYTES | spoiled([QUESTIONS]))
def test_any_questions(tmp_path, content):
    path = tmp_path / "any.jsonl"
    path.write_bytes(content)
    mine = params.Dataset(
        label="Mine", source={"all": str(path)}, seed=1, calibration=1, evaluation=1
    )
    for example in value_or_line(datasets.load_examples, mine) or ():
        assert example.question.encode() and example.example_id.isprintable()
        assert format_number(parse_number(example.reference)) == example.reference


@FUZZ
@given(BYTES | spoiled(LINES))
def test_any_file_of_responses(tmp_path, content):
    path = tmp_path / "drawn.jsonl"
    path.write_bytes(content)
    for name, response in (value_or_line(formats.read_response_file, path, "mine") or {}).items():
        assert response.example_id == name and not (response.text and response.token_ids)
