"""What would never end, or fill the memory, is refused in a line: pipes and devices in place of
files, and YAML whose aliases multiply."""

import os
import signal
from pathlib import Path

import pytest

from lib import files, params
from lib.errors import UserError
from lib.responses import formats
from lib.tasks import dataset_sources, datasets


@pytest.fixture(autouse=True)
def patience():
    """The seconds after which a test counts as endless."""

    def end(*_):
        pytest.fail("it does not end")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["a pipe", "/dev/zero", "a link to /dev/zero"])
def endless(request, tmp_path):
    """A path that can be opened and has no end."""
    path = tmp_path / "train.jsonl"
    match request.param:
        case "a pipe":
            os.mkfifo(path)
        case "a link to /dev/zero":
            path.symlink_to("/dev/zero")
        case device:
            path = Path(device)
    return path


def test_no_data_is_read_of_a_pipe_or_a_device(endless, tmp_path):
    fields = {"label": "Mine", "calibration": 1, "evaluation": 1, "seed": 1}
    refused = f"{endless} is a pipe or a device: write its content to a file"
    spec = params.Dataset(source={"all": str(endless)}, **fields)
    (tmp_path / "q.jsonl").write_text("{}")
    split = params.Dataset(
        source={"all": str(tmp_path / "q.jsonl")}, split_ids=str(endless), **fields | {"seed": None}
    )
    reads = [
        (datasets.load_examples, spec),
        (dataset_sources.describe_source, spec),
        (datasets.load_examples, split),
        (formats.read_response_file, endless, "mine"),
        (files.read_yaml, endless),
    ]
    for read, *words in reads:
        with pytest.raises(UserError, match=f"^{refused}$"):
            read(*words)


def multiplied(depth: int, times: int, form: str) -> str:
    """YAML of a line for each depth, which holds the line before so many times, by aliases."""
    lines = ["- &a0 {k: 1}"]
    for level in range(depth):
        aliases = ", ".join([f"*a{level}"] * times)
        lines.append(f"- &a{level + 1} " + form.format(aliases))
    return "\n".join(lines)


@pytest.mark.parametrize("text, message", [
    ("".join(f"key{n}: {n}\n" for n in range(50_000)), ": a file of YAML may have 200,000$"),
    ("".join(f"k{n}: {n}\n" for n in range(9_000)), ": it holds more than 10,000 values"),
    (multiplied(8, 10, "{{<<: [{}]}}"), ": it holds more than 10,000 values"),
    (multiplied(8, 10, "[{}]"), ": it holds more than 10,000 values"),
    ("a: &a [*a]", ": it holds more than 10,000 values"),
    (f"[{', '.join('[' * 3000)}", "is not YAML"),
], ids=["50,000 keys", "9,000 keys", "merges", "lists", "itself", "deep"])  # fmt: skip
def test_yaml_that_grows_beyond_a_limit_is_one_line(tmp_path, text, message):
    (path := tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=message) as refused:
        params.read_parameter_file(path, params.Model)
    assert str(refused.value).startswith(str(path)) and "\n" not in str(refused.value)


def test_aliases_and_merges_of_a_usual_file_are_read(tmp_path):
    (path := tmp_path / "mine.yaml").write_text(multiplied(3, 2, "{{<<: [{}], other: 2}}"))
    assert files.read_yaml(path) == [{"k": 1}, *[{"k": 1, "other": 2}] * 3]
    path.write_text("".join(f"k{n}: {n}\n" for n in range(4_900)))
    assert len(files.read_yaml(path)) == 4_900
