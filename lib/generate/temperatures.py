"""The temperatures between which an answer token can be re-softmaxed, and the nodes at which the rest is summed."""

import numpy as np

COLDEST, HOTTEST = 0.1, 20.0


def temperatures(nodes: int) -> np.ndarray:
    """(nodes,) temperatures, evenly spaced in log(1/t), from COLDEST to HOTTEST."""
    return np.exp(np.linspace(np.log(COLDEST), np.log(HOTTEST), nodes))
