"""What netcal and baal answer on fixed inputs, for the tests of Platt scaling and of BALD.

    python -m venv oracles
    oracles/bin/pip install netcal==1.4.0 baal==2.1.0
    oracles/bin/python tests/oracles/netcal_and_baal.py

Both need some thirty packages that nothing else does, so the tests hold the numbers that this
prints: tests/calibrate/test_calibration.py and tests/generate/test_mc_dropout.py.
"""

import numpy as np

MARGINS = [-6.1, -4.2, -3.3, -2.5, -1.9, -1.2, -0.7, -0.1, 0.4, 0.8, 1.5, 2.2, 2.9, 3.8, 5.6]
NEW_MARGINS = [-8.0, -1.0, 0.0, 0.5, 7.0]
OUTCOMES = {  # 1 where an answer is right
    "the surer, the more are right": [0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1, 1],
    "as many everywhere": [0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 1],
    "the surer, the fewer are right": [1, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0],
}
SHARPNESS = [0.1, 3.0, 60.0]
PASSES, TOKENS, VOCABULARY = 7, 3, 5


def logits(sharpness: float) -> np.ndarray:
    """Logits (passes, tokens, vocabulary) that look random."""
    places = np.arange(PASSES * TOKENS * VOCABULARY)
    return sharpness * np.sin(places**2).reshape(PASSES, TOKENS, VOCABULARY)


def netcals_platt(outcomes: list[int]) -> np.ndarray:
    """Probabilities of the new margins, by the maximum of the likelihood."""
    from netcal.scaling import LogisticCalibration

    calibrator = LogisticCalibration(method="mle")
    calibrator.fit(sigmoid(MARGINS), np.array(outcomes))
    return calibrator.transform(sigmoid(NEW_MARGINS))


def baals_bald(sharpness: float) -> np.ndarray:
    """BALD (passes - 1, tokens) in nats, of the first two passes, of the first three, and so on."""
    from baal.active.heuristics import BALD

    exponentials = np.exp(logits(sharpness))
    probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)
    rows = []
    for passes in range(2, PASSES + 1):
        tokens_by_vocabulary_by_pass = np.moveaxis(probabilities[:passes], 0, -1)
        rows.append(BALD().get_uncertainties(tokens_by_vocabulary_by_pass))
    return np.array(rows)


def sigmoid(margins: list[float]) -> np.ndarray:
    return 1 / (1 + np.exp(-np.array(margins)))


if __name__ == "__main__":
    for name, outcomes in OUTCOMES.items():
        print(name, netcals_platt(outcomes).round(6).tolist())
    for sharpness in SHARPNESS:
        print(f"sharpness {sharpness}", *baals_bald(sharpness).round(12).tolist(), sep="\n    ")
