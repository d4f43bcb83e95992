"""BALD of answer tokens from stored dropout passes (`eq:bald`), and c_BALD's signal.

`lib.generate.mc_dropout` computes the entropies of the passes.
"""

from typing import Any

import numpy as np
import pandas as pd

from lib.store import KEYS


def compute_bald(row: Any) -> np.ndarray:
    """Return BALD of an example's answer tokens (m,) in nats (`eq:bald`), after all passes."""
    return np.asarray(row.predictive[-1]) - np.asarray(row.conditional[-1])


def scale_bald(dropout: pd.DataFrame, phi: str = "clip") -> list[np.ndarray]:
    """Return the signal of c_BALD, an array (m,) per row: BALD_j after all passes, unchanged
    (`clip`) or divided by the logarithm of an effective support's size, at least 2 (`top_k`,
    `top_p`; appendix `app:bald`)."""
    bald = [compute_bald(row) for row in dropout.itertuples(index=False)]
    if phi == "clip":
        return bald
    return [
        values / np.log(np.maximum(sizes[-1], 2))
        for values, sizes in zip(bald, dropout[phi], strict=True)
    ]


def bald_signal(dropout: pd.DataFrame, responses: pd.DataFrame, phi: str) -> pd.DataFrame:
    """Return KEYS and c_BALD's signal as column `bald`, None for a response without an answer."""
    found = responses[[*KEYS, "answer"]].merge(dropout, on=KEYS, validate="one_to_one")
    scaled = zip(scale_bald(found, phi), found.answer.notna(), strict=True)
    bald = [value if answered else None for value, answered in scaled]
    return found[KEYS].assign(bald=pd.Series(bald, dtype=object))
