"""Calibrators as files: read back, they predict the same bits without the data; docs/extending.md's lines run."""

import json
import re
from contextlib import suppress

import numpy as np
import pytest
import synthetic

from lib import store
from lib.calibrate import fitting
from lib.calibrate.calibrators import METHODS, Isotonic
from lib.paths import ROOT, UserError

NAMES = "m__d__ans_avg__isotonic.json", "m__d__ans__temperature.json", "m__d__p_true__platt.json"
NEW = synthetic.fitting_input("confidence")


FRAME = synthetic.generations(rows=80)


@pytest.fixture(scope="module")
def confidence():
    return synthetic.with_margins(synthetic.single_pass(FRAME))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("lib.store.ARTIFACTS", tmp_path)
    return tmp_path / "mine" / "calibrators"


@pytest.fixture
def written(confidence, folder):
    """The fits of one of each kind by their files: isotonic, temperature (both answer estimators), Platt."""
    sets = fitting.calibration_data(FRAME, synthetic.responses(FRAME))
    *_, fits = fitting.calibrate(confidence, sets)
    files = fitting.save_calibrators(fits, "mine").file
    assert sorted(path.name for path in folder.glob("*")) == sorted(files) and len(files) == len(fits)
    return {folder / file: fit for fit, file in zip(fits, files, strict=True) if file in NAMES}


def isotonic_record(fitted):
    return fitting.calibrator_record(fitting.Fit(("m", "d"), "seq_avg", METHODS["isotonic"], "confidence", fitted))


def signed(record):
    """What a file says, with its checksum: as somebody would forge it."""
    said = {name: value for name, value in record.items() if name != "sha256"}
    return json.dumps(said | {"sha256": store.digest(said)})


@pytest.mark.parametrize("change, said", [
    ("not json", "line 1: not JSON"),
    ("{}", "is not a calibrator, or was modified"),
    ({"method": "isotonik"}, "method is 'isotonik'; choose one of 'isotonic', 'platt'"),
    (None, "m__d__ans_avg__isotonik.json can't be read: No such file or directory"),
], ids=str)  # fmt: skip
def test_a_wrong_file_is_one_line(written, folder, change, said):
    path = folder / (NAMES[0] if change else "m__d__ans_avg__isotonik.json")
    if change:
        path.write_text(change if isinstance(change, str) else signed(json.loads(path.read_text()) | change))
    with pytest.raises(UserError) as error:
        fitting.load_calibrator(path)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_file_predicts_the_same_bits_or_is_refused(written):
    """Whole, and with every third byte of it replaced by another."""
    assert {fit.kind for fit in written.values()} == {"confidence", "answers", "margin"}
    for path, fit in written.items():
        new, data = synthetic.fitting_input(fit.kind), path.read_bytes()
        said = json.loads(data)
        assert [said[name] for name in ("model", "dataset", "estimator")] == path.stem.split("__")[:3]
        for joint in (False, True):
            found = fitting.load_calibrator(path).predict(new, joint)
            assert np.array_equal(found, fit.calibrator.predict(new, joint))
        for place in range(0, len(data), 3):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with suppress(UserError):  # taken: the last digit of a number of 17
                assert np.array_equal(fitting.load_calibrator(path).predict(new, joint), found), place


def test_the_lines_of_the_guide_run(tmp_path, monkeypatch, capsys):
    """On a new question, in a folder that holds one calibrator's file and nothing else."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (lines,) = [code for code in re.findall(r"```python\n(.*?)```", text, flags=re.S) if "load_calibrator" in code]
    path = tmp_path / re.findall(r'load_calibrator\("([^"]+)"', lines)[0]
    path.parent.mkdir(parents=True)
    fitted = Isotonic().fit(np.linspace(0.8, 1, 50), np.arange(50) > 25)
    path.write_text(json.dumps(isotonic_record(fitted)))
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    assert 0 <= float(re.findall(r"[\d.]+(?:e-\d+)?", capsys.readouterr().out)[-1]) <= 1
