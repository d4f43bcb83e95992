"""The files of a language model: their place, configuration, tokenizer, network and end tokens.

Only safetensors or GGUF weights and code that ships with transformers are loaded. transformers
would continue with an incomplete checkpoint: it fills missing tensors with random numbers, and
without an end token a response never ends. So both are checked here.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GgufConfig,
    logging,
)
from transformers.quantizers import AutoHfQuantizer

from lib.errors import UserError, first_line, nearest
from lib.models.chat_templates import render_chat
from lib.parameter_schemas import Model

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
ANSWERED = "That makes 4."
ADAPTER = re.compile(r"adapters?(_config|_model)?\.(json|safetensors|bin)")  # of peft and MLX
TOKENIZER = re.compile(r"(tokenizer|tekken|encoder)\.json|vocab\..*|.*\.(model|tiktoken)")


@contextmanager
def loading_errors(who: str = "") -> Iterator[None]:
    """Raise each error of the body as a UserError, which begins with `who`. transformers' progress
    is not shown."""
    logging.disable_progress_bar()
    try:
        yield
    except UserError as error:
        raise UserError(f"{who}{error}") from error
    except Exception as error:  # transformers and its file readers raise many types
        raise UserError(f"{who}can't be loaded: {first_line(error)}") from error


def local_folder(spec: Model) -> Path | None:
    """Return the local folder of a model's source, or of its GGUF file, if it exists. Raise
    UserError for a file in it that git-lfs has not fetched yet."""
    if not os.path.isdir(spec.place):  # pathlib raises for a name too long
        return None
    for path in spec.place.iterdir():
        is_short = path.is_file() and path.stat().st_size < 1000
        if is_short and path.read_bytes().startswith(LFS_POINTER):
            raise UserError(
                f"{path.name} of {spec.source} is a pointer of git-lfs: "
                "`git lfs pull` fetches the file"
            )
    return spec.place


def find_source(spec: Model) -> str:
    """Return the source for transformers. Raise UserError if a local folder is missing or a GGUF
    file is not fetched yet."""
    folder = local_folder(spec)
    if folder:
        return str(folder)
    if spec.gguf:
        remedy = "a run of a profile (or `--add-models`) that names this model does so"
        raise UserError(f"{spec.gguf} of {spec.source} is not fetched and checked yet: {remedy}")
    if not spec.repository:
        folders = []
        if os.path.isdir(spec.place.parent):
            folders = [path.name for path in spec.place.parent.iterdir() if path.is_dir()]
        remedy = nearest(Path(spec.source).name, folders)
        raise UserError(f"model folder '{spec.source}' does not exist; {remedy}")
    return spec.source


def check_files(folder: Path) -> None:
    """Raise UserError for an adapter in a model's folder, which would be left out, or if a file is
    missing without which transformers guesses."""
    names = sorted(path.name for path in folder.iterdir())
    adapters = list(filter(ADAPTER.fullmatch, names))
    if adapters:
        remedy = "merge it into its model (`merge_and_unload` of peft), and name that folder"
        raise UserError(f"{adapters[0]} belongs to an adapter, and none is applied: {remedy}")
    if "config.json" not in names:
        below = sorted([*folder.glob("*/config.json"), *folder.glob("snapshots/*/config.json")])
        remedy = "name the folder of a whole model"
        if below:
            remedy = f"name its folder {below[0].parent.relative_to(folder)}"
        raise UserError(f"it has no config.json: {remedy}")
    if not any(map(TOKENIZER.fullmatch, names)):
        raise UserError("it has no tokenizer.json: copy the tokenizer's files of its base model")


def read_config(source: str, **named: Any) -> Any:
    """Return the configuration of a checkpoint. `named` is its revision, or `gguf_file`, the name
    of a file there.

    Raise UserError for files that are not read (`check_files`), for a kind of network that answers
    no text, and for a quantization that transformers does not know.
    """
    packed = "gguf_file" in named
    if os.path.isdir(source) and not packed:
        check_files(Path(source))
    config = AutoConfig.from_pretrained(source, trust_remote_code=False, **named)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        kind = f"transformers has no AutoModelForCausalLM of its kind, '{config.model_type}'"
        raise UserError(f"{kind}: save its language part by itself, or let a server run it")
    if packed:
        check_end_in_vocabulary(config)
    else:
        check_quantization(config)
    return config


def check_end_in_vocabulary(config: Any) -> None:
    """Raise UserError if a GGUF file's end token is none of its tokens, which could not be read."""
    end = config.eos_token_id
    size = getattr(config, "vocab_size", 0)
    if not isinstance(end, int) or not 0 <= end < size:
        raise UserError(f"its end token {end} is none of the file's {size} tokens")


def check_quantization(config: Any) -> None:
    """Raise UserError if the weights are packed in MLX's way, or in one that transformers skips."""
    settings = getattr(config, "quantization_config", None)
    if not settings:
        settings = getattr(config, "quantization", None)  # MLX's
    if not isinstance(settings, dict):
        return
    named = not settings.keys().isdisjoint(("quant_method", "load_in_8bit", "load_in_4bit"))
    if named and AutoHfQuantizer.supports_quant_method(settings):
        return
    method = f"'{settings['quant_method']}'" if named else "MLX, or another without `quant_method`"
    unknown = f"its config.json names the quantization {method}, which transformers does not know"
    raise UserError(f"{unknown}: name the model that it was made from, or a GGUF file")


def read_tokenizer(source: str, **named: Any) -> Any:
    """Return the tokenizer of a checkpoint, as `read_config`.

    Raise UserError if a GGUF file names no end token. Its configuration would name another model's.
    """
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **named)
    if "gguf_file" in named and tokenizer.eos_token_id is None:
        raise UserError("the file names no end token: its responses would never end")
    return tokenizer


def load_network(source: str, **options: Any) -> Any:
    """Load the network of a checkpoint with transformers' `from_pretrained`. The weights of a GGUF
    file are unpacked.

    Raise UserError if the files lack a tensor, or contain an unknown one or one of another shape,
    which transformers only logs; or if a part for GPUs is on the processor or on disk, for lack of
    memory.
    """
    if "gguf_file" in options:
        options["quantization_config"] = GgufConfig(dequantize=True)
    load: Any = AutoModelForCausalLM.from_pretrained
    network, info = load(
        source,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # transformers' own error does not name them
        **options,
    )
    check_tensors(info)
    places = map(str, getattr(network, "hf_device_map", {}).values())
    if not {"cpu", "disk"}.isdisjoint(places):
        raise UserError("parts of it do not fit the visible GPUs")
    return network


def check_tensors(info: Mapping[str, Any]) -> None:
    """Raise UserError for tensors of another shape, missing or unexpected, by transformers' report
    on loading."""
    reshaped = sorted(info["mismatched_keys"])
    if reshaped:
        name, stored, expected = reshaped[0]
        first = f"the first {name}: {list(stored)}, not {list(expected)}"
        remedy = "packed by a quantization that config.json does not name?"
        many = f"{len(reshaped)} tensors of its files have another shape"
        raise UserError(f"{many}, {first}; {remedy}")
    differing = sorted(map(str, {*info["missing_keys"], *info["unexpected_keys"]}))
    if differing:
        raise UserError(
            f"its files and its config.json differ in {len(differing)} tensors, "
            f"the first {differing[0]}"
        )


def outline_network(config: Any) -> Any:
    """Return the network of a configuration, without memory for its weights."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def read_generation_settings(network: Any, source: str, revision: str | None) -> None:
    """Give an outline the generation settings of its repository, if it has some, as loading the
    weights would."""
    with suppress(OSError):  # there is no such file
        named: dict[str, Any] = {"revision": revision} if revision else {}
        network.generation_config = GenerationConfig.from_pretrained(source, **named)


def read_end_tokens(network: Any, tokenizer: Any, folder: Path | None) -> list[int]:
    """Return the ids of all end tokens.

    They are those of the model's generation settings, the tokenizer's, and the one that closes an
    assistant's turn in the chat template: settings often name the end of a document alone, beyond
    which a response would go on into further turns.

    Raises
    ------
    UserError
        There is no end token. Or the network has no row for one or for a token of the base
        vocabulary. Tokens added to the tokenizer may lack a row, as long as no prompt contains
        them.
    """
    settings = network.generation_config
    # transformers ignores a file that it can't read
    if folder and (folder / "generation_config.json").is_file():
        settings = GenerationConfig.from_pretrained(folder)
    named = settings.eos_token_id
    if not isinstance(named, list):
        named = [named]
    named = [*named, tokenizer.eos_token_id, closing_token(tokenizer)]
    ends = list(dict.fromkeys(token for token in named if token is not None))
    if not ends:
        raise UserError(
            "it has no end token, so responses never end: name one in its generation_config.json"
        )
    vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    size = network.get_input_embeddings().weight.shape[0]
    last = max([*ends, *vocabulary.values()])
    if last >= size:
        raise UserError(f"its token {last} is none of the network's {size} tokens")
    return ends


def closing_token(tokenizer: Any) -> int | None:
    """Return the id of the special token right after an assistant's message in the chat template;
    None without one."""
    messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": ANSWERED}]
    try:
        text = render_chat(tokenizer, messages)
    except UserError:  # beyond the limits of any
        raise
    except Exception:  # of a template that knows no such messages
        return None
    after = text.rpartition(ANSWERED)[2].lstrip()
    first = tokenizer(after, add_special_tokens=False).input_ids[:1]
    is_special = first and not tokenizer.decode(first, skip_special_tokens=True)
    return first[0] if is_special else None
