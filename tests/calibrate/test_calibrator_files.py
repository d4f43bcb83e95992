"""Calibrators as files, which predict the same bits without the data."""

import json
import re
from contextlib import suppress

import numpy as np
import pytest
from synthetic import fitting_input

from lib import store
from lib.calibrate.calibrator_files import load_calibrator, save_calibrators
from lib.errors import UserError
from lib.files import digest
from lib.paths import ROOT

# one of each kind of input: temperature serves both answer estimators
ISOTONIC = "m__d__ans_avg__isotonic.json"
TEMPERATURE = "m__d__ans__temperature.json"
PLATT = "m__d__p_true__platt.json"


@pytest.fixture(scope="module")
def written(fits, tmp_path_factory):
    """The folder with the files of a run, and each fit by the name of its file."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "ARTIFACTS", folder)
        files = save_calibrators(fits, "mine").file
    return folder / "mine" / "calibrators", dict(zip(files, fits, strict=True))


def test_a_calibrator_is_fitted_to_each_kind_of_input(written):
    _, fit_by_file = written
    assert fit_by_file[ISOTONIC].kind == "confidence"
    assert fit_by_file[TEMPERATURE].kind == "answers"
    assert fit_by_file[PLATT].kind == "margin"


@pytest.mark.parametrize("name", [ISOTONIC, TEMPERATURE, PLATT])
@pytest.mark.parametrize("joint", [False, True])
def test_a_file_predicts_the_same_bits(written, name, joint):
    folder, fit_by_file = written
    fit = fit_by_file[name]
    new = fitting_input(fit.kind)
    loaded = load_calibrator(folder / name)
    assert np.array_equal(loaded.predict(new, joint), fit.calibrator.predict(new, joint))


@pytest.mark.parametrize("name", [ISOTONIC, TEMPERATURE, PLATT])
def test_a_file_says_of_what_it_is(written, name):
    folder, _ = written
    record = json.loads((folder / name).read_bytes())
    model, dataset, estimator, _ = name.split("__")
    assert record["model"] == model
    assert record["dataset"] == dataset
    assert record["estimator"] == estimator


@pytest.mark.parametrize("name", [ISOTONIC, TEMPERATURE, PLATT])
def test_a_damaged_file_is_refused(written, tmp_path, name):
    """With every third byte replaced by another; or it predicts the same: the last digit of a
    number of 17."""
    folder, fit_by_file = written
    fit = fit_by_file[name]
    new = fitting_input(fit.kind)
    expected = fit.calibrator.predict(new)
    data = (folder / name).read_bytes()
    path = tmp_path / name
    for place in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with suppress(UserError):
            assert np.array_equal(load_calibrator(path).predict(new), expected), place


FORGED = {"asking": {}, "method": "isotonik"}
EARLIER = {"method": "isotonic"}


@pytest.mark.parametrize(
    "record, message",
    [
        pytest.param({}, "is not a calibrator, or was modified", id="without a checksum"),
        pytest.param(
            FORGED | {"sha256": digest([FORGED])},
            "method is 'isotonik'; choose one of",
            id="with its checksum",
        ),
        pytest.param(
            EARLIER | {"sha256": digest([EARLIER])},
            "is of an earlier version",
            id="of an earlier version",
        ),
    ],
)
def test_a_forged_file_is_one_line(tmp_path, record, message):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(record))
    with pytest.raises(UserError, match=f"^[^\n]*{message}[^\n]*$"):
        load_calibrator(path)


def test_the_lines_of_the_guide_run(written, tmp_path, monkeypatch, capsys):
    """On a new question, in a folder that holds one calibrator's file and nothing else."""
    guide = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, flags=re.S)
    (lines,) = [block for block in blocks if "load_calibrator" in block]
    (path,) = re.findall(r'load_calibrator\("([^"]+)"', lines)
    folder, _ = written
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_bytes((folder / ISOTONIC).read_bytes())
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    numbers = re.findall(r"[\d.]+(?:e-\d+)?", capsys.readouterr().out)
    assert 0 <= float(numbers[-1]) <= 1
