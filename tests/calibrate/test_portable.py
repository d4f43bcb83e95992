"""Calibrators as files: another process predicts the same bits without the data, and docs/extending.md's lines run."""

import json
import re
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st
from synthetic import with_margins

from lib import store
from lib.calibrate import calibrator_files, fitting
from lib.calibrate.calibrators import METHODS, Calibrator, Isotonic, Method
from lib.paths import ROOT, UserError

NAMES = "m__d__ans_avg__isotonic.json", "m__d__ans__temperature.json", "m__d__p_true__platt.json"
NEW = [0.0, 1e-9, 0.2, 0.5, 0.71, 1 - 1e-9, 1.0]
ELSEWHERE = """
import sys
from lib.calibrate import calibrator_files
import synthetic
for name, takes in zip(sys.argv[1::2], sys.argv[2::2]):
    fitted, new = calibrator_files.load_calibrator(name), synthetic.fitting_input(takes)
    for joint in (False, True):
        print(*(value.hex() for value in fitted.predict(new, joint).tolist()))
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


@pytest.fixture
def written(fits, folder):
    """The fits of one of each kind by their files: isotonic, temperature (both answer estimators), Platt."""
    files = calibrator_files.save_calibrators(fits, "mine").file
    assert sorted(path.name for path in folder.glob("*")) == sorted(files) and len(files) == len(fits)
    return {folder / file: fit for fit, file in zip(fits, files, strict=True) if file in NAMES}


def test_another_process_predicts_bit_for_bit(written):
    words = [word for path, fit in written.items() for word in (path, fit.kind)]
    assert {fit.kind for fit in written.values()} == {"confidence", "answers", "margin"}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *words],
        cwd=ROOT / "tests",
        text=True,
        capture_output=True,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    here = [
        [value.hex() for value in fit.calibrator.predict(synthetic.fitting_input(fit.kind), joint).tolist()]
        for fit in written.values()
        for joint in (False, True)
    ]
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


def test_a_file_says_what_it_is_of(written):
    said = {path.name: json.loads(path.read_text()) for path in written}
    tokens, isotonic = said["m__d__ans__temperature.json"], said["m__d__ans_avg__isotonic.json"]
    assert [tokens[key] for key in ("model", "dataset", "estimator", "takes")] == ["m", "d", "ans", "answers"]
    assert tokens["learned"]["temperature_"] > 0 and isotonic["estimator"] == "ans_avg"
    assert isotonic["learned"]["n_rows_"] == tokens["learned"]["n_rows_"] == 80


def signed(record):
    """What a file says, with its checksum: as somebody would forge it."""
    said = {name: value for name, value in record.items() if name != "sha256"}
    return json.dumps(said | {"sha256": store.digest(said)})


@pytest.mark.parametrize("change, said", [
    ("not json", "line 1: not JSON"),
    ("[1]", "is not a calibrator, or was modified"),
    ("{}", "is not a calibrator, or was modified"),
    (signed({}), "no calibrator can be made of it ('method')"),
    ({"method": "isotonik"}, "there is no method 'isotonik'; did you mean 'isotonic'?"),
    ({"takes": "margins"}, "no calibrator can be made of it ('margins')"),
    ({"method": []}, "no calibrator can be made of it"),
    ({"learned": [1]}, "no calibrator can be made of it"),
], ids=str)  # fmt: skip
def test_a_wrong_file_is_one_line(written, folder, change, said):
    path = folder / NAMES[0]
    path.write_text(change if isinstance(change, str) else signed(json.loads(path.read_text()) | change))
    with pytest.raises(UserError) as error:
        calibrator_files.load_calibrator(path)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_missing_names_the_nearest(written, folder):
    with pytest.raises(UserError, match=f"there is no calibrator .*; did you mean '{NAMES[0]}'?"):
        calibrator_files.load_calibrator(folder / "m__d__ans_avg__isotonik.json")


def test_a_file_that_was_altered_is_refused_or_says_the_same(written):
    """Every third byte of one of each kind replaced by another: what is still taken predicts the same bits."""
    for path, fit in written.items():
        new, data = synthetic.fitting_input(fit.kind), path.read_bytes()
        right = fit.calibrator.predict(new)
        for place in range(0, len(data), 3):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with suppress(UserError):  # taken: the last digit of a number of 17
                assert np.array_equal(calibrator_files.load_calibrator(path).predict(new), right), place


class Mean(Calibrator):
    """The accuracy of the bin: arrays are learned."""

    def _fit(self, score, y, w):
        self.means_ = np.array([y[score <= 0.5].sum() + 1, y[score > 0.5].sum() + 1]) / (len(y) + 2)

    def _predict(self, score, joint):
        return self.means_[(np.asarray(score) > 0.5).astype(int)]


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
    (Mean, ""),
    (Forgetful, "'Forgetful' object has no attribute 'edges'"),
    (Drifting, "the saved calibrator would predict otherwise"),
])  # fmt: skip
def test_a_calibrator_of_ones_own_is_kept_or_says_why_not(monkeypatch, folder, kind, why):
    confidence = with_margins(synthetic.single_pass(synthetic.generations())).query("estimator == 'seq_avg'")
    monkeypatch.setitem(METHODS, "own", Method("own", "Own", {"confidence": kind}))
    (fit,) = [fit for fit in fitting.calibrate(confidence, {}, {})[-1] if fit.method.name == "own"]
    (file,) = calibrator_files.save_calibrators([fit], "mine").file
    if why:
        assert file.startswith("a calibrator can't be kept as a file: ") and why in file and not folder.exists()
    else:
        again = calibrator_files.load_calibrator(folder / file)
        assert np.array_equal(again.predict(NEW), fit.calibrator.predict(NEW))


def test_the_lines_of_the_guide_run(tmp_path, monkeypatch, capsys):
    """On a new question, in a folder that holds one calibrator's file and nothing else."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (lines,) = [code for code in re.findall(r"```python\n(.*?)```", text, flags=re.S) if "load_calibrator" in code]
    path = tmp_path / re.findall(r'load_calibrator\("([^"]+)"', lines)[0]
    fitted = Isotonic().fit(np.linspace(0.8, 1, 50), np.arange(50) > 25)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(calibrator_files.calibrator_record(isotonic_fit(fitted, [0.9]))))
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    assert 0 <= float(re.findall(r"[\d.]+(?:e-\d+)?", capsys.readouterr().out)[-1]) <= 1
