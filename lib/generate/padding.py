"""Whether a batch is padded: told, where transformers would ask its mask at every step, and wait for the device."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask


@contextmanager
def known(padded: bool) -> Iterator[None]:
    """While it lasts, sdpa's masks are made for batches that are (not) padded: the same ones as without it, a mask
    where there is padding, none where the kernel's own causal one will do."""

    def mask(*, attention_mask: torch.Tensor | None, allow_is_causal_skip: bool = True, **named: Any) -> Any:
        return sdpa_mask(attention_mask=attention_mask if padded else None,
                         allow_is_causal_skip=allow_is_causal_skip and not padded, **named)  # fmt: skip

    ALL_MASK_ATTENTION_FUNCTIONS["sdpa"] = mask
    try:
        yield
    finally:
        del ALL_MASK_ATTENTION_FUNCTIONS["sdpa"]
