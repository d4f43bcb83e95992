"""What chance alone gives to calibrated scores: by exact probabilities, by the formula, and for the paper's numbers."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from synthetic import keyed

from lib.paper.numbers_of_paper import paper_facts, reference_numbers
from lib.score.evaluation import compare_with_chance, draw_chance_errors


def spread(low, n, times=100):
    """Draws of the ECE of n calibrated scores spread evenly over `low` to 1, of new scores every hundred draws."""
    rng = np.random.default_rng([7, n])
    parts = [draw_chance_errors(rng.uniform(low, 1, n), 10, 100, seed=number) for number in range(times)]
    return np.concatenate(parts)


def test_a_constant_by_the_binomial_distribution():
    """All rows are in one bin, so the ECE is |right - n c| / n."""
    n, c = 300, 0.72
    drawn, right = draw_chance_errors(np.full(n, c), 10, 20_000), np.arange(n + 1)
    gaps, p = np.abs(right - n * c) / n, binom.pmf(right, n, c)
    assert drawn.mean() == pytest.approx(gaps @ p, rel=0.02)
    assert (drawn <= 0.041).mean() == pytest.approx(p[gaps <= 0.041].sum(), abs=0.01)


def test_the_mean_by_the_formula():
    """sqrt(2 / pi) / n times the sum over bins of sqrt(sum c (1 - c)), by a loop over rows."""
    c = np.random.default_rng(0).beta(4, 2, 2000)
    variance = dict.fromkeys(range(10), 0.0)
    for one in c:
        variance[min(9, int(np.ceil(one * 10)) - 1)] += one * (1 - one)
    expected = np.sqrt(2 / np.pi) * sum(map(np.sqrt, variance.values())) / c.size
    assert draw_chance_errors(c, 10, 4000).mean() == pytest.approx(expected, rel=0.02)


def test_three_hundred_scores():
    """Spread over half of the range, and over a tenth; the blocks of draws do not matter."""
    assert [round(spread(low, 300).mean(), 3) for low in (0.5, 0.9)] == [0.041, 0.010]
    few, many = (draw_chance_errors(np.full(40_000, 0.5), 10, draws, seed=1) for draws in (3, 150))
    np.testing.assert_array_equal(few, many[:3])


def test_how_many_errors_of_the_paper_chance_could_give():
    """Its 90 errors after isotonic regression, at each dataset's n: at or below the mean, and the 95% point, of
    calibrated scores. It prints no confidences, so for two spreads."""
    numbers, questions = reference_numbers(), paper_facts()["questions"]
    errors = numbers[(numbers.table == "result_isotonic") & (numbers.metric == "ece")]
    counts = {}
    for low in (0.5, 0.9):
        drawn = {dataset: spread(low, n["evaluation"]) for dataset, n in questions.items()}
        points = [lambda values: values.mean(), lambda values: np.percentile(values, 95)]
        counts[low] = [int((errors.value <= errors.dataset.map(lambda d: of(drawn[d]))).sum()) for of in points]  # noqa: B023
    assert len(errors) == 90 and counts == {0.5: [45, 60], 0.9: [6, 12]}


def test_what_cannot_be_told_from_calibrated_is_marked():
    rng = np.random.default_rng(3)
    c = rng.uniform(0.3, 1, 600)
    y = rng.random(600) < c
    parts = [
        keyed(600, confidence=score, correct=y).assign(estimator=name, method="")
        for name, score in (("seq_avg", c), ("ans_avg", np.sqrt(c)))
    ]
    found = compare_with_chance(pd.concat(parts), 10, 500, seed=2).set_index("estimator")
    assert found.calibrated.to_dict() == {"seq_avg": True, "ans_avg": False}
    assert (found.chance < found.chance_high).all() and (found.n == 600).all()
    drawn = draw_chance_errors(c, 10, 500, seed=2)
    assert found.chance["seq_avg"] == drawn.mean() and found.chance_high["seq_avg"] == np.percentile(drawn, 95)
