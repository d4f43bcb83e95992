"""Calibrators as files: another process predicts the same bits without the data, and docs/extending.md's lines run."""

import json
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st
from test_experiments import with_margins

from lib.calibrate import calibrator_files, fitting
from lib.calibrate.calibrators import METHODS, Calibrator, Isotonic, Method
from lib.paths import ROOT, UserError

NEW = [0.0, 1e-9, 0.2, 0.5, 0.71, 1 - 1e-9, 1.0]
ELSEWHERE = """
import sys
from lib.calibrate import calibrator_files
import synthetic
name, takes = sys.argv[1:3]
new = synthetic.fitting_input(takes)
for joint in (False, True):
    print(*(value.hex() for value in calibrator_files.load_calibrator(name).predict(new, joint).tolist()))
"""


@pytest.fixture(scope="module")
def fits():
    frame = synthetic.generations(rows=80)
    sets = fitting.calibration_data(frame, synthetic.responses(frame))
    return fitting.calibrate(with_margins(synthetic.single_pass(frame)), sets, fitting.fit_answers(sets))[-1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("lib.store.ARTIFACTS", tmp_path)
    return tmp_path / "mine" / "calibrators"


def test_another_process_predicts_bit_for_bit(fits, folder):
    """One of each kind: isotonic, temperature (both answer estimators), Platt."""
    written = calibrator_files.save_calibrators(fits, "mine")
    assert sorted(path.name for path in folder.glob("*")) == sorted(written.file) and len(written) == len(fits)
    assert {"m__d__ans_avg__isotonic.json", "m__d__ans__temperature.json"} <= set(written.file)
    kinds = {}
    for fit, name in zip(fits, written.file, strict=True):
        kinds.setdefault((type(fit.calibrator), fit.kind), (fit, name))
    assert {kind for _, kind in kinds} == {"confidence", "answers", "margin"}
    for fit, name in kinds.values():
        done = subprocess.run([sys.executable, "-c", ELSEWHERE, folder / name, fit.kind], cwd=ROOT / "tests", text=True,
                              capture_output=True, env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})  # fmt: skip
        assert done.returncode == 0, done.stderr
        new = synthetic.fitting_input(fit.kind)
        here = [[value.hex() for value in fit.calibrator.predict(new, joint).tolist()] for joint in (False, True)]
        assert [line.split() for line in done.stdout.splitlines()] == here


def isotonic_fit(fitted, scores):
    return fitting.Fit(("m", "d"), "seq_avg", METHODS["isotonic"], "confidence", fitted, scores, None)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40), st.integers(0, 1))
def test_a_staircase_is_the_same_after_its_file(pairs, one_class):
    scores, correct = np.array([c for c, _ in pairs]), np.array([y for _, y in pairs])
    fitted = Isotonic(one_class=["fit", "constant"][one_class]).fit(scores, correct)
    record = calibrator_files.calibrator_record(isotonic_fit(fitted, scores))
    again = calibrator_files.calibrator_from_record(json.loads(json.dumps(record)))
    asked = np.concatenate([NEW, scores, np.nextafter(scores, 2), np.nextafter(scores, -1)])
    assert np.array_equal(fitted.predict(asked), again.predict(asked))
    assert again.note == fitted.note


def test_a_file_says_what_it_is_of(fits, folder):
    written = calibrator_files.save_calibrators(fits, "mine").set_index("file")
    said = {name: json.loads((folder / name).read_text()) for name in written.index}
    tokens, isotonic = said["m__d__ans__temperature.json"], said["m__d__ans_avg__isotonic.json"]
    assert [tokens[key] for key in ("model", "dataset", "estimator", "takes")] == ["m", "d", "ans", "answers"]
    assert tokens["learned"]["temperature_"] > 0 and isotonic["estimator"] == "ans_avg"
    assert isotonic["learned"]["n_rows_"] == tokens["learned"]["n_rows_"] == 80 == written.rows.max()


def signed(record):
    """What a file says, with its checksum: as somebody would forge it."""
    return json.dumps(record | {"sha256": calibrator_files.record_checksum(record)})


@pytest.mark.parametrize("change, said", [
    (None, "there is no calibrator"),
    ("not json", "line 1: not JSON"),
    ("[1]", "is no calibrator, or is not what was written"),
    ("{}", "is no calibrator, or is not what was written"),
    (signed({}), "no calibrator can be made of it ('method')"),
    ({"method": "isotonik"}, "there is no method 'isotonik'; did you mean 'isotonic'?"),
    ({"takes": "margins"}, "no calibrator can be made of it ('margins')"),
    ({"method": []}, "no calibrator can be made of it"),
    ({"settings": 5}, "no calibrator can be made of it"),
    ({"learned": [1]}, "no calibrator can be made of it"),
    ({"settings": {"target": "ans_avg"}}, "no calibrator can be made of it"),
], ids=str)  # fmt: skip
def test_a_wrong_file_is_one_line(fits, folder, change, said):
    calibrator_files.save_calibrators(fits, "mine")
    path = folder / "m__d__ans_avg__isotonic.json"
    if change is None:
        path = folder / "m__d__ans_avg__isotonik.json"
    elif isinstance(change, str):
        path.write_text(change)
    else:
        path.write_text(signed(json.loads(path.read_text()) | change))
    with pytest.raises(UserError) as error:
        calibrator_files.load_calibrator(path)
    assert said in str(error.value) and "\n" not in str(error.value)
    if change is None:
        assert "did you mean 'm__d__ans_avg__isotonic.json'?" in str(error.value)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused(fits, folder, number):
    calibrator_files.save_calibrators(fits, "mine")
    path = folder / "m__d__ans_avg__isotonic.json"
    path.write_text(path.read_text().replace('"constant_": null', f'"constant_": {number}'))
    with pytest.raises(UserError, match="is not what was written"):
        calibrator_files.load_calibrator(path)


def test_a_file_that_was_altered_is_refused_or_says_the_same(fits, folder):
    """Every byte of one of each kind replaced by another: what is still taken predicts the same bits."""
    written = calibrator_files.save_calibrators(fits, "mine")
    for name in ("m__d__ans_avg__isotonic.json", "m__d__ans__temperature.json", "m__d__p_true__platt.json"):
        assert name in set(written.file)
        (fit,) = [fit for fit, file in zip(fits, written.file, strict=True) if file == name]
        new, data = synthetic.fitting_input(fit.kind), (folder / name).read_bytes()
        right = fit.calibrator.predict(new)
        for place in range(len(data)):
            (folder / name).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with suppress(UserError):  # taken: the last digit of a number of 17
                assert np.array_equal(calibrator_files.load_calibrator(folder / name).predict(new), right), place


class Mean(Calibrator):
    """The accuracy of the bin: arrays are learned."""

    def _fit(self, score, y, w):
        self.means_ = np.array([y[score <= 0.5].sum() + 1, y[score > 0.5].sum() + 1]) / (len(y) + 2)

    def _predict(self, score, joint):
        return self.means_[(np.asarray(score) > 0.5).astype(int)]


class Odd(Mean):
    def _fit(self, score, y, w):
        self.function_ = max


def test_a_calibrator_of_ones_own_is_kept_or_says_why_not(monkeypatch, folder):
    confidence = with_margins(synthetic.single_pass(synthetic.generations()))
    monkeypatch.setitem(METHODS, "mean", Method("mean", "Mean", {"confidence": Mean}))
    *_, fits = fitting.calibrate(confidence.query("estimator == 'seq_avg'"), {}, {})
    written = calibrator_files.save_calibrators(fits, "mine").set_index("calibrator").file
    again = calibrator_files.load_calibrator(folder / written["mean"])
    (fit,) = [fit for fit in fits if fit.method.name == "mean"]
    assert np.array_equal(again.predict(NEW), fit.calibrator.predict(NEW))
    odd = replace(fit, calibrator=Odd().fit(fit.fitted_on, np.arange(len(fit.fitted_on)) % 2))
    (said,) = calibrator_files.save_calibrators([odd], "mine").file
    assert said.startswith("a calibrator can't be kept as a file") and "tolist" in said


class Forgetful(Mean):
    """It learns under a name that no file holds."""

    def _fit(self, score, y, w):
        self.edges, self.rate_ = np.array([0.5]), float(y.mean())

    def _predict(self, score, joint):
        return np.where(np.asarray(score) > self.edges[0], self.rate_, 0.0)


class Drifting(Mean):
    """It predicts by what no file holds."""

    means = np.ones(2)

    def _fit(self, score, y, w):
        self.means = np.zeros(2)

    def _predict(self, score, joint):
        return self.means[(np.asarray(score) > 0.5).astype(int)]


@pytest.mark.parametrize("kind, why", [
    (Forgetful, "'Forgetful' object has no attribute 'edges'"),
    (Drifting, "what was read from it would predict otherwise"),
])  # fmt: skip
def test_what_would_predict_otherwise_is_not_written(monkeypatch, folder, kind, why):
    confidence = with_margins(synthetic.single_pass(synthetic.generations()))
    monkeypatch.setitem(METHODS, "own", Method("own", "Own", {"confidence": kind}))
    *_, fits = fitting.calibrate(confidence.query("estimator == 'seq_avg'"), {}, {})
    (fit,) = [fit for fit in fits if fit.method.name == "own"]
    assert calibrator_files.save_calibrators([fit], "mine").file.tolist() == [
        f"a calibrator can't be kept as a file: {why}"
    ]
    assert not folder.exists()


def test_the_lines_of_the_guide_run(tmp_path):
    """On a new question, in a folder that holds one calibrator's file and nothing else."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (lines,) = [code for code in re.findall(r"```python\n(.*?)```", text, flags=re.S) if "load_calibrator" in code]
    assert len(lines.strip().splitlines()) <= 14
    (name,) = re.findall(r'load_calibrator\("([^"]+)"', lines)
    fitted = Isotonic().fit(np.linspace(0.8, 1, 50), np.arange(50) > 25)
    record = calibrator_files.calibrator_record(isotonic_fit(fitted, [0.9]))
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    done = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, text=True, capture_output=True,
                          env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 0 <= float(re.findall(r"[\d.]+(?:e-\d+)?", done.stdout)[-1]) <= 1
