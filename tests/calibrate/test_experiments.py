"""Calibration over frames: own rows, fewer rows, other pairs' rows; and calibrators as files, which
predict the same bits without the data."""

import json
import re
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, norm
from synthetic import fitting_input, responses, run, single_pass, with_margins

from lib.calibrate import calibration_sets, calibrator_files, experiments, fit_methods
from lib.calibrate.calibration_sets import CalibrationData, ScoredSplit
from lib.errors import UserError
from lib.files import digest
from lib.paper.booktabs import PAPER_CAPTIONS
from lib.params import Subsampling
from lib.paths import ROOT
from lib.score.evaluation import RESAMPLED, evaluate
from lib.store import PAIR


@pytest.fixture(scope="module")
def sets():
    frame = run(rows=60)
    return calibration_sets.calibration_data(frame, responses(frame))


@pytest.fixture(scope="module")
def confidence():
    return with_margins(single_pass(run(rows=60)))


@pytest.fixture(scope="module")
def fits(confidence, sets):
    return fit_methods.calibrate(confidence, sets)


@pytest.fixture(scope="module")
def own(fits):
    """The metrics of Ans Avg of each pair, raw and after its own calibrators."""
    results = evaluate(fits[0], names=RESAMPLED).query("estimator == 'ans_avg'")
    return results.set_index([*PAIR, "method", "metric"]).value


def test_calibrators_see_calibration_rows_only(confidence, sets, fits):
    flipped = confidence.assign(correct=confidence.correct ^ (confidence.split == "evaluation"))
    other = {
        pair: one._replace(evaluation=replace(one.evaluation, correct=~one.evaluation.correct))
        for pair, one in sets.items()
    }
    assert (fit_methods.calibrate(flipped, other)[0].confidence == fits[0].confidence).all()


# ---- fewer rows


def curves_of(sets, sizes, draws, sampling=("uniform",), seed=5):
    drawn = Subsampling(calibration_sizes=sizes, draws=draws, seed=seed)
    return experiments.learning_curves(sets, drawn, sampling)


def test_curves_end_in_the_fit_on_all_rows(sets, own):
    curves = curves_of(sets, [10, 30, 1000], 3, experiments.SAMPLING)
    assert set(curves.n) == {10, 30, 60}
    ends = curves[curves.n == 60].pivot(index=[*PAIR, "method"], columns="sampling", values="ece")
    for key, of_each_way in ends.iterrows():
        assert of_each_way.tolist() == pytest.approx([own[*key, "ece"]] * 3, abs=2e-3)


def test_draws_are_the_same_for_both_methods_and_for_any_other_sizes(sets):
    one, other = curves_of(sets, [10], 4), curves_of(dict(reversed(sets.items())), [5, 10], 4)
    both = one.merge(other, on=[*PAIR, "method", "n", "draw"])
    assert len(both) == len(one) and (both.ece_x == both.ece_y).all()
    assert (one.query("method != ''").groupby([*PAIR, "n", "draw"]).one_class.nunique() == 1).all()


def test_draws_depend_on_the_seed(sets):
    first, again, other = (curves_of(sets, [10], 4, seed=seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(first, again)
    drawn = (first.n == 10) & (first["method"] != "")
    assert (first.ece[drawn] != other.ece[drawn]).mean() > 0.5


def test_the_band_of_the_curves_is_the_one_of_their_caption():
    """101 draws, whose ECE grows evenly from 0 to 1."""
    keys = {"model": "m", "dataset": "d", "sampling": "uniform", "method": "isotonic", "n": 10}
    errors = np.arange(101) / 100
    draws = pd.DataFrame({**keys, "draw": range(101), "ece": errors, "one_class": False})
    (band,) = experiments.summarize_curves(draws).itertuples()
    assert (band.low, band.high) == pytest.approx((0.1, 0.9)) and band.mean == pytest.approx(0.5)
    _, caption = PAPER_CAPTIONS["fig_calibration_analysis"]
    assert f"with the middle {band.high - band.low:.0%} of the draws" in caption


def test_a_wrong_answer_of_exactly_nine_tenths_is_no_confident_error(sets):
    """By hand: of ten calibration rows, two wrong ones and a right one are above .9."""
    confidence = np.array([0.9, 0.9, 0.9, 0.91, 0.99, 1.0, 0.5, 0.5, 0.2, 0.1])
    correct = np.array([0, 0, 1, 0, 0, 1, 1, 0, 0, 1], dtype=bool)
    pair, data = next(iter(sets.items()))
    old = replace(data.calibration, confidence=confidence, correct=correct)
    found = experiments.describe_splits({pair: data._replace(calibration=old)})
    assert found.confident_errors.tolist() == [50 * 2 / 10]


# ---- other pairs' rows


def test_transfer_to_itself_is_calibration(sets, fits, own):
    keys = ["source_model", "source_dataset", *PAIR, "method", "metric"]
    moved = experiments.transfer(sets, fits[2]).set_index(keys).sort_index().value
    for (*pair, method, metric), value in own.items():
        source = pair if method else ("", "")
        assert metric == "acc" or moved[*source, *pair, method, metric] == pytest.approx(value)
    raw, far = moved["", "", "n", "e", ""], moved["m", "d", "n", "e", "platt"]
    assert far["delta_ece"] == pytest.approx(far["ece"] - raw["ece"])


# ---- both splits


def test_shares_are_compared_by_the_chi_squared_test():
    """40 of 80 against 20 of 80: (30 - 40)^2 / 30 of four cells' expectations, twice, and of 50,
    twice: 10.667."""
    first, second = np.arange(80) < 40, np.arange(80) < 20
    statistic = 2 * 10**2 / 30 + 2 * 10**2 / 50
    assert experiments.compare_shares(first, second) == pytest.approx(chi2.sf(statistic, 1))
    assert np.isnan(experiments.compare_shares(first | True, second | True))


def test_splits_of_unequal_accuracy_are_told(sets):
    """The z test of two shares by hand, and wrong calibration rows above .9 counted one by one."""
    found = experiments.describe_splits(sets).set_index(PAIR)
    for pair, (old, new) in sets.items():
        first, second, n = old.correct.mean(), new.correct.mean(), len(old.correct)
        pooled = (first + second) / 2
        z = (first - second) / np.sqrt(2 * pooled * (1 - pooled) / n)
        wrong = sum(
            c > 0.9 and not right for c, right in zip(old.confidence, old.correct, strict=True)
        )
        expected = [first, second, 2 * norm.sf(abs(z)), 50 * wrong / n]
        assert found.loc[pair].tolist() == pytest.approx(expected)


def test_on_resplits_an_informative_score_beats_a_constant():
    """Scores that know the answer: isotonic regression has the lower ECE and Brier score on every
    split. Scores that know nothing: the constant mostly has the lower ECE."""
    n = 200
    correct = np.arange(n) % 2 == 0
    knowing, noise = np.where(correct, 0.9, 0.2), np.random.default_rng(0).random(n)
    keys = pd.DataFrame({"example_id": [f"{i}" for i in range(n)]})

    def pair(scores):
        split = ScoredSplit(keys, scores, None, correct)
        return CalibrationData(split, split)

    found = experiments.compare_on_resplits(
        {("m", "d"): pair(knowing), ("m", "e"): pair(noise)}, splits=50
    )
    found = found.set_index("dataset")
    assert found.loc["d", ["isotonic", "constant_lower_ece", "isotonic_lower_brier"]].tolist() == [
        0,
        0,
        1,
    ]
    assert found.constant_lower_ece["e"] > 0.9 and found.isotonic_lower_brier["e"] < 0.9


# ---- files

NAMES = "m__d__ans_avg__isotonic.json", "m__d__ans__temperature.json", "m__d__p_true__platt.json"


@pytest.fixture(scope="module")
def written(fits, tmp_path_factory):
    """A fit of each kind by its file: isotonic, temperature (both answer estimators), Platt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lib.store.ARTIFACTS", folder := tmp_path_factory.mktemp("runs"))
        files = calibrator_files.save_calibrators(fits[2], "mine").file
    paths = (folder / "mine" / "calibrators" / file for file in files)
    return {path: fit for path, fit in zip(paths, fits[2], strict=True) if path.name in NAMES}


def test_a_forged_file_is_one_line(tmp_path):
    """Though it holds its checksum."""
    forged = {"method": "isotonik", "sha256": digest([{"method": "isotonik"}])}
    for record, said in (
        ({}, "is not a calibrator, or was modified"),
        (forged, "method is 'isotonik'; choose one of"),
    ):
        (tmp_path / "mine.json").write_text(json.dumps(record))
        with pytest.raises(UserError, match=f"^[^\n]*{said}[^\n]*$"):
            calibrator_files.load_calibrator(tmp_path / "mine.json")


def test_a_file_predicts_the_same_bits_or_is_refused(written):
    """Whole, and with every third byte of it replaced by another."""
    assert {fit.kind for fit in written.values()} == {"confidence", "answers", "margin"}
    for path, fit in written.items():
        new, data = fitting_input(fit.kind), path.read_bytes()
        said = json.loads(data)
        assert [said[name] for name in ("model", "dataset", "estimator")] == path.stem.split("__")[
            :3
        ]
        for joint in (False, True):
            found = calibrator_files.load_calibrator(path).predict(new, joint)
            assert np.array_equal(found, fit.calibrator.predict(new, joint))
        for place in range(0, len(data), 3):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with suppress(UserError):  # taken: the last digit of a number of 17
                assert np.array_equal(
                    calibrator_files.load_calibrator(path).predict(new, joint), found
                ), place
        path.write_bytes(data)


def test_the_lines_of_the_guide_run(written, tmp_path, monkeypatch, capsys):
    """On a new question, in a folder that holds one calibrator's file and nothing else."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (lines,) = [
        code
        for code in re.findall(r"```python\n(.*?)```", text, flags=re.S)
        if "load_calibrator" in code
    ]
    path = tmp_path / re.findall(r'load_calibrator\("([^"]+)"', lines)[0]
    path.parent.mkdir(parents=True)
    path.write_bytes(next(path for path in written if path.name == NAMES[0]).read_bytes())
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    assert 0 <= float(re.findall(r"[\d.]+(?:e-\d+)?", capsys.readouterr().out)[-1]) <= 1
