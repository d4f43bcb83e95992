"""`python docs/benchmarks/guarantee.py`: how often a guaranteed precision is missed if new
questions are harder.

Calibration sets of 300 rows are drawn from a world in which a score is the probability of a right
answer. New questions have the same scores, and an accuracy that is lower by a shift. The guarantee
of 09_beyond, a precision of .8 in 90% of calibration sets, is missed if the true precision of new
answers above the threshold is below .8. README's limits and 09 quote these shares.
"""

import numpy as np

from lib.score.selective import find_threshold

SETS = 2000
ROWS = 300  # of a set
SEED = 0
PRECISION = 0.8
CERTAINTY = 0.9
SHIFTS = (0.0, 0.04, 0.08)


def missed_share(shift: float) -> float:
    """Return the share of calibration sets with a threshold that misses the precision."""
    rng = np.random.default_rng(SEED)
    population = rng.beta(6, 2.5, 200_000)
    missed = []  # whether a threshold misses the precision
    for _ in range(SETS):
        scores = rng.beta(6, 2.5, ROWS)
        correct = rng.random(ROWS) < scores
        third = ROWS // 3
        learning = scores[:third], correct[:third]
        testing = scores[third:], correct[third:]
        threshold = find_threshold(learning, testing, PRECISION, CERTAINTY)
        if threshold is not None:
            precision = population[population >= threshold].mean() - shift
            missed.append(precision < PRECISION)
    return float(np.mean(missed))


if __name__ == "__main__":
    for shift in SHIFTS:
        missed = f"{missed_share(shift):.1%} of calibration sets"
        print(f"accuracy lower by {shift:.2f}: missed in {missed}")
