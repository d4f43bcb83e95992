"""The range of temperatures for answer tokens, and the interpolation nodes for the remaining logits."""

import numpy as np

COLDEST, HOTTEST = 0.1, 20.0


def temperatures(nodes: int) -> np.ndarray:
    """Return (nodes,) temperatures from COLDEST to HOTTEST, evenly spaced in log(1/t)."""
    return np.exp(np.linspace(np.log(COLDEST), np.log(HOTTEST), nodes))
