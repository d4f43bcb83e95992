"""BALD of answer tokens from stored dropout passes (`eq:bald`), and c_BALD's signal.

`lib.generate.mc_dropout` computes the entropies of the passes.
"""

from typing import Any

import numpy as np
import pandas as pd

from lib.store import KEYS


def compute_bald(row: Any) -> np.ndarray:
    """Return BALD of an example's answer tokens (m,) in nats (`eq:bald`), after all passes.

    Examples
    --------
    >>> row = pd.Series({"predictive": [[0.5, 1.0], [0.75, 1.0]], "conditional": [[0.5, 1.0]] * 2})
    >>> compute_bald(row)
    array([0.25, 0.  ])
    """
    predictive = np.asarray(row.predictive[-1])
    conditional = np.asarray(row.conditional[-1])
    return predictive - conditional


def scale_bald(dropout: pd.DataFrame, phi: str = "clip") -> list[np.ndarray]:
    """Return the signal of c_BALD, an array (m,) per row: BALD_j after all passes, unchanged
    (`clip`) or divided by the logarithm of an effective support's size, at least 2 (`top_k`,
    `top_p`; appendix `app:bald`).

    Examples
    --------
    >>> row = {"predictive": [[0.5], [0.75]], "conditional": [[0.5], [0.5]], "top_k": [[10], [12]]}
    >>> scale_bald(pd.DataFrame([row]))
    [array([0.25])]
    >>> scale_bald(pd.DataFrame([row]), phi="top_k")  # .25 / log(12)
    [array([0.1006074])]
    """
    signals = []
    for row in dropout.itertuples(index=False):
        bald = compute_bald(row)
        if phi != "clip":
            sizes = getattr(row, phi)[-1]
            bald = bald / np.log(np.maximum(sizes, 2))
        signals.append(bald)
    return signals


def bald_signal(dropout: pd.DataFrame, responses: pd.DataFrame, phi: str) -> pd.DataFrame:
    """Return KEYS and c_BALD's signal as column `bald`, None for a response without an answer.

    Examples
    --------
    >>> keys = pd.DataFrame({"example_id": ["a", "b"]})
    >>> keys = keys.assign(model="m", dataset="d", split="evaluation")
    >>> dropout = keys.assign(predictive=[[[0.5]]] * 2, conditional=[[[0.25]]] * 2)
    >>> responses = keys.assign(answer=[np.log([0.5]), None])
    >>> bald_signal(dropout, responses, "clip").bald.tolist()
    [array([0.25]), None]
    """
    passes = responses[[*KEYS, "answer"]].merge(dropout, on=KEYS, validate="one_to_one")
    bald = pd.Series(scale_bald(passes, phi), dtype=object)
    return passes[KEYS].assign(bald=bald.where(passes.answer.notna(), None))
