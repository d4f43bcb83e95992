"""Calibrators as files: read back, they predict the same bits without the data; docs/extending.md's lines run."""

import json
import re
from contextlib import suppress

import numpy as np
import pytest
import synthetic

from lib import store
from lib.calibrate import fitting
from lib.paths import ROOT, UserError

NAMES = "m__d__ans_avg__isotonic.json", "m__d__ans__temperature.json", "m__d__p_true__platt.json"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The fits of one of each kind by their files: isotonic, temperature (both answer estimators), Platt."""
    frame = synthetic.generations(rows=80)
    confidence = synthetic.with_margins(synthetic.single_pass(frame))
    sets = fitting.calibration_data(frame, synthetic.responses(frame))
    *_, fits = fitting.calibrate(confidence, sets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lib.store.ARTIFACTS", folder := tmp_path_factory.mktemp("runs"))
        files = fitting.save_calibrators(fits, "mine").file
    paths = {path.name: path for path in (folder / "mine" / "calibrators").glob("*")}
    assert sorted(paths) == sorted(files) and len(files) == len(fits)
    return {paths[file]: fit for fit, file in zip(fits, files, strict=True) if file in NAMES}


@pytest.mark.parametrize("change, said", [
    ("not json", "line 1: not JSON"), ("{}", "is not a calibrator, or was modified"),
    ({"method": "isotonik"}, "method is 'isotonik'; choose one of 'isotonic', 'platt'"),
    ({"input": "answers"}, "is not a calibrator as 09 writes it: KeyError('answers')"),
    ({"method": []}, "method is []; choose one of 'isotonic', 'platt'"),
    ({"attributes": "none"}, "is not a calibrator as 09 writes it: "),
    (None, "mine.json can't be read: No such file or directory"),
], ids=str)  # fmt: skip
def test_a_wrong_file_is_one_line(written, tmp_path, change, said):
    """Also one that somebody forged, with its checksum."""
    path = tmp_path / "mine.json"
    if isinstance(change, dict):
        record = json.loads(next(iter(written)).read_text()) | change
        record.pop("sha256")
        change = json.dumps(record | {"sha256": store.digest(record)})
    if change:
        path.write_text(change)
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
        path.write_bytes(data)


def test_the_lines_of_the_guide_run(written, tmp_path, monkeypatch, capsys):
    """On a new question, in a folder that holds one calibrator's file and nothing else."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (lines,) = [code for code in re.findall(r"```python\n(.*?)```", text, flags=re.S) if "load_calibrator" in code]
    path = tmp_path / re.findall(r'load_calibrator\("([^"]+)"', lines)[0]
    path.parent.mkdir(parents=True)
    path.write_bytes(next(path for path in written if path.name == NAMES[0]).read_bytes())
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    assert 0 <= float(re.findall(r"[\d.]+(?:e-\d+)?", capsys.readouterr().out)[-1]) <= 1
