"""Where a loss is lowest and a likelihood highest, in few steps: for calibrators that are fitted to
thousands of resamples.
"""

import numpy as np
from scipy.special import expit

NEWTON_STEPS = 30
LEAST_DETERMINANT = 1e-10  # of the two curvatures: below it, float64 cannot tell slope from offset


def parabolic_argmin(loss: np.ndarray) -> float:
    """Return where a loss on an even grid is lowest, in steps: the vertex of the parabola through
    its lowest points.

    Where it is lowest at an end and does not bend upwards there, the point beside the end.

    Examples
    --------
    >>> parabolic_argmin(np.array([4.0, 1.0, 0.0, 1.0]))
    2.0
    """
    last = len(loss) - 1
    k = int(np.clip(loss.argmin(), 1, last - 1))
    left, middle, right = loss[k - 1 : k + 2]
    bend = left - 2 * middle + right
    shift = 0
    if bend > 0:
        shift = 0.5 * (left - right) / bend
    return float(np.clip(k + shift, 0, last))


def maximize_likelihood(
    score: np.ndarray, correct: np.ndarray, weight: np.ndarray
) -> tuple[float, float] | None:
    """Return the slope a and the offset b of sigmoid(a m + b) with the highest weighted likelihood,
    for margins m (n,); None if Newton's method does not converge.

    Examples
    --------
    >>> margins = np.array([-1.0, -1.0, 1.0, 1.0])
    >>> maximize_likelihood(margins, np.array([0.0, 1.0, 1.0, 0.0]), np.ones(4)) == (0, 0)
    True
    """
    a = 0.0
    b = 0.0
    for _ in range(NEWTON_STEPS):
        p = expit(a * score + b)
        gap = weight * (correct - p)
        curvature = weight * p * (1 - p)
        of_a = curvature @ score**2
        of_b = curvature.sum()
        cross = curvature @ score
        determinant = of_a * of_b - cross**2
        if determinant <= LEAST_DETERMINANT * of_a * of_b:
            return None
        gap_a = gap @ score
        gap_b = gap.sum()
        step_a = (of_b * gap_a - cross * gap_b) / determinant
        step_b = (of_a * gap_b - cross * gap_a) / determinant
        a += step_a
        b += step_b
        if abs(step_a) + abs(step_b) < 1e-9:
            return a, b
    return None
