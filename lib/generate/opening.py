"""What stands before every question, and dropout passes over it that all rows share.

Four worked examples are four fifths of a prompt. Where `dropout_opening` is `shared`, pass t has one set of masks over
them for all rows (its stream: the run's seed and t), so that they are encoded T times at a rate and not T times a row.
A row's T passes are as independent of one another as with masks of its own, and each has the same distribution; only
the passes of different rows have something in common.
"""

import os
from collections.abc import Sequence

import pandas as pd
import torch
from transformers import Cache, DynamicCache

from lib.generate import models
from lib.generate.decoding import forgets
from lib.generate.models import LanguageModel


def before_question(lm: LanguageModel, row: pd.Series) -> tuple[int, ...]:
    """Token ids of a generations row's prompt that stand before its question: none where the question is not found in
    it, or the cache forgets (sliding windows) and so can't be shared. A token that reaches into the question is not
    among them."""
    before, question, _ = row.prompt.rpartition(row.question or row.prompt)
    if not question or forgets(lm):
        return ()
    return tuple(os.path.commonprefix([models.encode(lm, before), models.encode(lm, row.prompt)]))


def stacked(lm: LanguageModel, caches: Sequence[Cache]) -> Cache:
    """Caches of one row and as many tokens each, in one: it can grow, and they stay as they are."""
    together = DynamicCache(config=lm.model.config)
    for index, layers in enumerate(zip(*[cache.layers for cache in caches], strict=True)):
        keys, values = (torch.cat([getattr(layer, name) for layer in layers]) for name in ("keys", "values"))
        together.update(keys, values, index)
    return together
