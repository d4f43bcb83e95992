"""Check that a checkpoint is complete. transformers would continue with an incomplete one: it fills missing tensors
with random numbers, and without an end token a response never ends."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

from lib.models_and_datasets import SMALL
from lib.paths import UserError

SAID = "That makes 4."
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def check_lfs_pointers(folder: Path) -> None:
    """Raise UserError for a file that git-lfs has not fetched yet."""
    for path in folder.iterdir():
        if path.is_file() and path.stat().st_size < 1000 and path.read_bytes().startswith(LFS_POINTER):
            raise UserError(f"{path.name} is a pointer of git-lfs: `git lfs pull` fetches the file itself")


def read_config(source: str, **named: Any) -> Any:
    """Return the configuration of a checkpoint. `named` is its revision, or `gguf_file`, the name of a file there.

    Raise UserError if a GGUF file's end token is none of its tokens: its tokenizer could not be read.
    """
    config = AutoConfig.from_pretrained(source, trust_remote_code=False, **named)
    end, size = config.eos_token_id, getattr(config, "vocab_size", 0)
    if "gguf_file" in named and not (isinstance(end, int) and 0 <= end < size):
        raise UserError(f"its end token {end} is none of the file's {size} tokens")
    return config


def read_tokenizer(source: str, **named: Any) -> Any:
    """Return the tokenizer of a checkpoint, as `read_config`.

    Raise UserError if a GGUF file names no end token. Its configuration would name another model's.
    """
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **named)
    if "gguf_file" in named and tokenizer.eos_token_id is None:
        raise UserError("the file names no end token: its responses would never end")
    return tokenizer


def load_network(source: str, **options: Any) -> Any:
    """Load the network of a checkpoint with transformers' `from_pretrained`. The weights of a GGUF file are unpacked.

    Raise UserError if the files lack a tensor or contain an unknown one; transformers only logs both.
    """
    if "gguf_file" in options:
        options["quantization_config"] = GgufConfig(dequantize=True)
    found: Any = AutoModelForCausalLM.from_pretrained(
        source, trust_remote_code=False, use_safetensors=True, output_loading_info=True, **options
    )
    network, info = found
    for fault, key in (("lack", "missing_keys"), ("hold more than the network has:", "unexpected_keys")):
        if names := sorted(map(str, info[key])):
            named = f"{', '.join(names[:2])} ({len(names)} in all)"
            raise UserError(f"its files {fault} {named}: they are not of this config.json")
    return network


def outline_network(config: Any) -> Any:
    """Return the network of a configuration, without memory for its weights."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def is_small(network: Any) -> bool:
    """Whether a network, or its outline, has few enough parameters to run on the processor on every machine."""
    return network.num_parameters() < SMALL


def check_finite_weights(tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raise UserError for a weight that is NaN or infinite."""
    for name, tensor in tensors:
        if not tensor.is_floating_point() or not tensor.numel() or tensor.element_size() < 2:
            continue  # torch has no minimum and maximum of 8-bit types
        if not all(torch.isfinite(end) for end in tensor.aminmax()):  # NaN propagates to both
            raise UserError(f"its tensor {name} holds NaN or infinite weights")


def read_end_tokens(network: Any, tokenizer: Any, folder: Path | None) -> tuple[list[int], GenerationConfig]:
    """Return the ids of all end tokens and the model's generation settings; set the padding as well.

    They are those of these settings, the tokenizer's, and the one that closes an assistant's turn in the chat template:
    settings often name the end of a document alone, beyond which a response would go on into further turns.

    Raises
    ------
    UserError
        There is no end token. Or the network has no row for one, for the padding token or for a token of the base
        vocabulary. Tokens added to the tokenizer may lack a row, as long as no prompt contains them.
    """
    own = network.generation_config
    if folder and (folder / "generation_config.json").is_file():  # transformers ignores a file that it can't read
        own = GenerationConfig.from_pretrained(folder)
    named = own.eos_token_id if isinstance(own.eos_token_id, list) else [own.eos_token_id]
    named = [*named, tokenizer.eos_token_id, closing_token(tokenizer)]
    ends = list(dict.fromkeys(token for token in named if token is not None))
    if not ends:
        raise UserError(
            "it has no end token: its responses would never end; name `eos_token_id` in its generation_config.json"
        )
    set_padding(tokenizer, ends[0])
    vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    token, index = max(vocabulary.items(), key=lambda pair: pair[1], default=("", None))
    pad = tokenizer.pad_token_id
    rows = {f"end token {end!r}": end for end in ends}
    rows |= {f"token {token!r} ({index})": index, f"padding token {tokenizer.pad_token!r} ({pad})": pad}
    size = network.get_input_embeddings().weight.shape[0]
    for what, row in rows.items():
        if type(row) is not int or not 0 <= row < size:
            raise UserError(f"its {what} is none of the network's {size} tokens")
    return ends, own


def closing_token(tokenizer: Any) -> int | None:
    """Return the id of the special token right after an assistant's message in the chat template; None without one."""
    messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": SAID}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception:  # of a template that knows no such messages
        return None
    first = tokenizer(text.rpartition(SAID)[2].lstrip(), add_special_tokens=False).input_ids[:1]
    special = {token for token, content in tokenizer.added_tokens_decoder.items() if content.special}
    return next((token for token in first if token in special or token in tokenizer.all_special_ids), None)


def set_padding(tokenizer: Any, end: int | None = None) -> None:
    """Pad on the left, as generation requires. Without a padding token, use an end token (it is masked anyway)."""
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(end)
