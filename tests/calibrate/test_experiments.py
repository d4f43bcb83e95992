"""Calibration over frames: own rows, fewer rows, other pairs' rows."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from synthetic import responses, run, single_pass, with_margins

from lib.calibrate import fitting, sample_efficiency
from lib.calibrate.calibrators import METHODS, Calibrator, Isotonic, Method, Temperature
from lib.calibrate.transfer import rows_without_near_duplicates, transfer
from lib.params import Calibration, Subsampling
from lib.score.bootstrap import bootstrap
from lib.score.metrics import ece
from lib.store import KEYS
from lib.tasks.datasets import hash_words


def of_sizes(sizes, draws, seed=0):
    return Subsampling(calibration_sizes=sizes, draws=draws, seed=seed)


@pytest.fixture(scope="module")
def frame():
    return run(rows=60)


@pytest.fixture(scope="module")
def sets(frame):
    return fitting.calibration_data(frame, responses(frame))


@pytest.fixture(scope="module")
def calibrated(frame, sets):
    return fitting.calibrate(with_margins(single_pass(frame)), sets, fitting.fit_answers(sets))


# ---- own rows


def test_rows_are_those_of_the_confidence_frame(frame, sets):
    confidence = single_pass(frame).query("estimator == 'ans_avg'")
    for pair, parts in sets.items():
        for split, rows in zip(fitting.SPLITS, parts, strict=True):
            part = confidence[(confidence[KEYS[:3]] == [*pair, split]).all(axis=1)]
            assert rows.keys.to_numpy().tolist() == part[KEYS].to_numpy().tolist()
            assert rows.confidence.tolist() == part.confidence.tolist()
            assert rows.correct.tolist() == part.correct.tolist()
            assert rows.answers.confidence(1.0)[0] == pytest.approx(rows.confidence, abs=2e-5)


def test_every_method_where_it_belongs(calibrated):
    rows, learned, _ = calibrated
    assert set(rows.split) == {"evaluation"} and not rows.confidence.isna().any()
    methods = rows.groupby("estimator").method.unique().map(set).to_dict()
    both, one = {"", "isotonic", "platt"}, {"", "isotonic"}
    assert methods == {"ans_avg": both, "ans_joint": both, "p_true": both, "seq_avg": one, "seq_joint": one}
    assert rows.groupby(["model", "dataset", "estimator", "method"]).size().nunique() == 1
    assert set(learned.groupby(["model", "dataset"]).metric.apply(tuple)) == {("a", "b", "t")}


def test_calibrators_see_calibration_rows_only(frame, sets):
    confidence = with_margins(single_pass(frame))
    flipped = confidence.assign(correct=confidence.correct ^ (confidence.split == "evaluation"))
    one, other = (fitting.calibrate(c, sets, fitting.fit_answers(sets))[0] for c in (confidence, flipped))
    assert (one.confidence == other.confidence).all()


def test_without_margins_nothing_is_missing_but_platt(frame, sets):
    rows, learned, _ = fitting.calibrate(single_pass(frame), sets, fitting.fit_answers(sets))
    assert set(learned.metric) == {"t"} and "platt" in set(rows.method)


@pytest.mark.parametrize("one_class", ["fit", "constant"])
def test_one_class_is_reported_and_no_cell_is_nan(frame, one_class):
    easy = frame.assign(answer=np.where(frame.split == "calibration", "7", frame.answer))
    easy[["answer_start", "answer_end"]] = easy[["last_number_start", "last_number_end"]]
    sets = fitting.calibration_data(easy, responses(easy))
    choices = Calibration(one_class=one_class)
    fitted = fitting.fit_answers(sets, choices)
    rows, learned, _ = fitting.calibrate(with_margins(single_pass(easy)), sets, fitted, choices)
    assert set(learned.reason) == {"one class only"}
    if one_class == "constant":
        assert rows[rows.method != ""].confidence.unique() == pytest.approx([61 / 62])
    else:
        assert rows[rows.method == "isotonic"].confidence.unique().tolist() == [1]
        assert rows[(rows.method == "platt") & (rows.estimator == "p_true")].confidence.unique().tolist() == [1]


def test_what_is_fitted_on_the_answers_serves_both_means_under_their_names(sets, calibrated):
    rows, learned, _ = calibrated
    for pair, (old, new) in sets.items():
        fitted = Temperature().fit(old.answers, old.correct)
        own = rows[(rows.model == pair[0]) & (rows.dataset == pair[1]) & (rows.method == "platt")].groupby("estimator")
        for name, joint in (("ans_avg", False), ("ans_joint", True)):
            part = own.get_group(name)
            assert part.confidence.tolist() == pytest.approx(fitted.predict(new.answers, joint=joint).tolist())
            assert part.correct.tolist() == new.correct.tolist()
            assert part.example_id.tolist() == new.keys.example_id.tolist()
        of_pair = learned[(learned.model == pair[0]) & (learned.dataset == pair[1])].set_index("metric")
        assert of_pair.estimator.to_dict() == {"t": "ans", "a": "p_true", "b": "p_true"}
        assert set(of_pair.method) == {"platt"} and set(of_pair.n) == {60}
        assert of_pair.value["t"] == pytest.approx(fitted.temperature_)


# ---- fewer rows


@pytest.mark.parametrize("target", ["ans_avg", "ans_joint"])
def test_curves_end_in_the_fit_on_all_rows(sets, target):
    """Under the temperature's objective."""
    ways, choices = list(sample_efficiency.SAMPLING), Calibration(temperature_objective=target)
    curves = sample_efficiency.learning_curves(sets, of_sizes([10, 30, 1000], 3), ways, choices=choices)
    assert set(curves.n) == {10, 30, 60}
    for pair, (old, new) in sets.items():
        scores = {"": new.confidence, "isotonic": Isotonic().fit(old.confidence, old.correct).predict(new.confidence),
                  "platt": Temperature(target).fit(old.answers, old.correct).predict(new.answers)}  # fmt: skip
        last = curves[(curves[["model", "dataset", "n"]] == [*pair, 60]).all(axis=1)]
        for method, score in scores.items():
            assert last[last.method == method].ece.tolist() == pytest.approx([ece(score, new.correct)] * 3, abs=2e-3)


@pytest.mark.parametrize("lacking", ["calibration", "evaluation"])
def test_logits_of_one_split_alone_fit_nothing(sets, lacking):
    pair, one = next(iter(sets.items()))
    half = one._replace(**{lacking: replace(getattr(one, lacking), answers=None)})
    assert set(sample_efficiency.learning_curves({pair: half}, of_sizes([10], 2)).method) == {"", "isotonic"}


def test_the_grid_finds_the_temperature(sets):
    for old, new in sets.values():
        fast, rng = Temperature().on_subsets(old.answers, old.correct, new.answers), np.random.default_rng(0)
        slow = Calibrator.on_subsets(Temperature(), old.answers, old.correct, new.answers)
        for _ in range(5):
            rows = rng.choice(60, 40, replace=False)
            assert fast(rows, np.ones(40)) == pytest.approx(slow(rows, np.ones(40)), abs=2e-3)


def test_draws_are_the_same_for_both_methods_and_for_any_other_sizes(sets):
    one = sample_efficiency.learning_curves(sets, of_sizes([10], 4, 5))
    other = sample_efficiency.learning_curves(dict(reversed(sets.items())), of_sizes([5, 10], 4, 5))
    keys = ["model", "dataset", "method", "n", "draw"]
    both = one.merge(other, on=keys)
    assert len(both) == len(one) and (both.ece_x == both.ece_y).all()
    assert (one.query("method != ''").groupby(["model", "dataset", "n", "draw"]).one_class.nunique() == 1).all()


def test_every_calibrator_is_fitted_as_it_says(sets, monkeypatch):
    """One that takes the answer's tokens is no temperature: its curve is that of what it predicts."""

    class Quarter(Calibrator):
        def _fit(self, score, y, w):
            pass

        def _predict(self, score, joint):
            return np.full(len(score), 0.25)

    monkeypatch.setitem(METHODS, "quarter", Method("quarter", "Quarter", {"answers": Quarter}))
    curves = sample_efficiency.learning_curves(sets, of_sizes([30], 2))
    for name, pair in sets.items():
        drawn = curves[(curves[["model", "dataset", "method"]] == [*name, "quarter"]).all(axis=1) & ~curves.one_class]
        expected = ece(np.full(60, 0.25), pair.evaluation.correct)
        assert drawn.ece.tolist() == pytest.approx([expected] * len(drawn)) and len(drawn)


@pytest.mark.parametrize("wrong, n, share, expected", [(30, 20, 0.5, 10), (3, 20, 0.5, 3), (50, 20, 0.2, 17)])
def test_more_wrong_ones_weigh_what_they_weigh_in_all(wrong, n, share, expected):
    correct = np.arange(60) >= wrong
    rows, weights = sample_efficiency.draw_rows("more wrong, weighted", correct, n, np.random.default_rng(0), share)
    assert len(set(rows)) == n and (~correct[rows]).sum() == expected
    assert weights @ correct[rows] / weights.sum() == pytest.approx(correct.mean())
    plain = sample_efficiency.draw_rows("more wrong, unweighted", correct, n, np.random.default_rng(0), share)
    assert plain[0].tolist() == rows.tolist() and plain[1].tolist() == [1] * n


# ---- other pairs' rows


def test_transfer_to_itself_is_calibration(frame, sets, calibrated):
    keys = ["source_model", "source_dataset", "model", "dataset", "method", "metric"]
    moved = transfer(sets, fitting.fit_answers(sets)).set_index(keys)
    own = bootstrap(calibrated[0], resamples=2).results.query("estimator == 'ans_avg'")
    for row in own.itertuples():
        source = (row.model, row.dataset) if row.method else ("", "")
        assert moved.value[*source, row.model, row.dataset, row.method, row.metric] == pytest.approx(row.value)
    raw = moved.value["", "", "n", "e", "", "ece"]
    change = moved.value["m", "d", "n", "e", "platt", "delta_ece"]
    assert change == pytest.approx(moved.value["m", "d", "n", "e", "platt", "ece"] - raw)


def test_transfer_on_some_rows(sets):
    keep = {(s, t): {f"{i:04d}" for i in range(60, 80)} if s != t else set() for s in "de" for t in "de"}
    moved = transfer(sets, fitting.fit_answers(sets), keep=keep)
    assert set(moved[moved.method == ""].n) == {60} and set(moved[moved.method != ""].n) == {20}
    assert (moved[moved.method != ""].source_dataset != moved[moved.method != ""].dataset).all()


def part(dataset, split, questions):
    return pd.DataFrame(
        {
            "model": "m",
            "dataset": dataset,
            "split": split,
            "words": map(hash_words, questions),
            "example_id": [f"{split}-{i}" for i in range(len(questions))],
        }
    )


def test_twins_differ_in_numbers_only():
    words = "Tom has 3 red apples and buys 4 more at the market near his old house on Monday"
    frame = pd.concat(
        [
            part("hard", "calibration", [words.replace("3", "93284").replace("4", "8,421.5")]),
            part("hard", "evaluation", ["Quite another question about 12 trains"]),
            part("base", "calibration", ["Something else about 5 ships"]),
            part("base", "evaluation", [words, "Ann sells 9 cakes"]),
        ]
    )
    found = rows_without_near_duplicates(frame)
    assert found["hard", "base"] == {"evaluation-1"} and found["base", "hard"] == {"evaluation-0"}
    assert found["base", "base"] == {"evaluation-0", "evaluation-1"}


def test_twins_of_gsmhard_are_the_published_ones(shared):
    def questions(path, key):
        lines = (shared / "data" / path).read_text(encoding="utf-8").splitlines()
        return [json.loads(line)[key] for line in lines]

    test, hard = questions("gsm8k/test.jsonl", "question"), questions("gsmhard/gsmhardv2.jsonl", "input")
    twins = set(json.loads((shared / "data/gsmhard/to_gsm8k_test_index.json").read_text())[:919])
    found = rows_without_near_duplicates(
        pd.concat(
            [
                part("gsmhard", "calibration", hard[:919]),
                part("gsmhard", "evaluation", hard[919:]),
                part("gsm8k", "calibration", ["no twin of anything"]),
                part("gsm8k", "evaluation", test),
            ]
        )
    )
    without_twin = {int(i.rpartition("-")[2]) for i in found["gsmhard", "gsm8k"]}
    assert len(without_twin & twins) <= 3 and len(without_twin | twins) >= len(test) - 3
    assert len(found["gsm8k", "gsmhard"]) == 400
