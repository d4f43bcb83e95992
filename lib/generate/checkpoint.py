"""Whether a checkpoint is whole, where transformers would go on with half of it: tensors that are missing are filled
with random numbers, and a response never ends where no end token is known."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from lib.paths import UserError

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
LLAMA_PAD = "<|finetune_right_pad_id|>"


def check_lfs_pointers(folder: Path) -> None:
    """Raises UserError for a file that git-lfs has not fetched yet."""
    for path in folder.iterdir():
        if path.is_file() and path.stat().st_size < 1000 and path.read_bytes().startswith(LFS_POINTER):
            raise UserError(f"{path.name} is a pointer of git-lfs: `git lfs pull` fetches the file itself")


def check_loaded(info: Mapping[str, Collection[Any]]) -> None:
    """Raises UserError where the files lack a tensor of the network, or hold one that it has not, by the loading info
    of transformers (`output_loading_info`), which only logs it."""
    for fault, key in (("lack", "missing_keys"), ("hold more than the network has:", "unexpected_keys")):
        if names := sorted(map(str, info[key])):
            named = f"{', '.join(names[:2])} ({len(names)} in all)"
            raise UserError(f"its files {fault} {named}: they are not of this config.json")


def check_finite_weights(tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raises UserError for a weight that is NaN or infinite."""
    for name, tensor in tensors:
        if not tensor.is_floating_point() or not tensor.numel() or tensor.element_size() < 2:
            continue  # numbers of eight bits have no least and greatest in torch
        if not all(torch.isfinite(end) for end in tensor.aminmax()):  # NaN passes through both
            raise UserError(f"its tensor {name} holds NaN or infinite weights")


def read_generation_config(network: Any, folder: Path | None) -> GenerationConfig:
    """The model's own decoding settings. transformers passes over a file that it can't read."""
    if folder is None or not (folder / "generation_config.json").is_file():
        return network.generation_config
    return GenerationConfig.from_pretrained(folder)


def find_end_tokens(network: Any, tokenizer: Any, generation: GenerationConfig) -> list[int]:
    """Every id that ends a response, of the generation settings, else of the tokenizer; padding is set on the way.

    Raises
    ------
    UserError
        There is none. Or the network has no row for it, for the padding token, or for one that any text may be written
        with; tokens that were added to the tokenizer and stand in no prompt may lack one.
    """
    named = generation.eos_token_id
    named = tokenizer.eos_token_id if named is None or named == [] else named
    ends = named if isinstance(named, list) else [] if named is None else [named]
    if not ends:
        raise UserError(
            "it has no end token: its responses would never end; name `eos_token_id` in its generation_config.json"
        )
    set_padding(tokenizer)
    vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    token, index = max(vocabulary.items(), key=lambda pair: pair[1], default=("", None))
    pad = tokenizer.pad_token_id
    rows = {f"end token {end!r}": end for end in ends}
    rows |= {f"token {token!r} ({index})": index, f"padding token {tokenizer.pad_token!r} ({pad})": pad}
    size = network.get_input_embeddings().weight.shape[0]
    for what, row in rows.items():
        if type(row) is not int or not 0 <= row < size:
            raise UserError(f"its {what} is none of the network's {size} tokens")
    return ends


def set_padding(tokenizer: Any) -> None:
    """Pads on the left, where generation needs them; with Llama's own pad token, else any end token (masked anyway)."""
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = LLAMA_PAD if LLAMA_PAD in tokenizer.get_vocab() else tokenizer.eos_token
