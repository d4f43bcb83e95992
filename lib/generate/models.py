"""Language models with their tokenizers and chat templates, at a fixed revision.

They come from the Hugging Face Hub, a local folder or a GGUF file. Only safetensors or GGUF weights and code that ships
with transformers are loaded. transformers would continue with an incomplete checkpoint: it fills missing tensors with
random numbers, and without an end token a response never ends. So both are checked here.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig, logging

from lib.generate.float32_logits import give_float32_logits
from lib.parameter_schemas import SMALL, Model
from lib.paths import UserError, first_line, is_path, nearest, public_path
from lib.store import digest
from lib.tasks.prompts import Messages

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
ANSWERED = "That makes 4."


@dataclass(eq=False)
class LanguageModel:
    """A loaded model, with the ids of all end tokens in `eos` and its facts for manifests in `facts`."""

    name: str
    spec: Model
    model: Any  # a transformers causal language model, in evaluation mode
    tokenizer: Any
    eos: list[int]
    facts: dict[str, Any]

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def context(self) -> int | None:
        """Context length of the model for prompt and response; None if its configuration names none."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    @property
    def vocab_size(self) -> int:
        """Number of tokens of the network; the tokenizer may have fewer, or extra tokens that no text contains."""
        return self.model.get_input_embeddings().weight.shape[0]


def load_language_model(name: str, spec: Model) -> LanguageModel:
    """Load model and tokenizer in evaluation mode: bfloat16 on a GPU, float32 on the processor, unless the model's file
    differs.

    Small models (`lib.parameter_schemas.SMALL`) run on the processor where there is a GPU, too. So they give the
    same results on every machine.

    Raises
    ------
    UserError
        Source, revision or files are unavailable, in the hub's words. Or the checkpoint is incomplete: missing or extra
        tensors, no end token, tokens without a row. Or it does not fit the visible GPUs.
    """
    named = {"gguf_file": Path(spec.gguf).name} if spec.gguf else {"revision": spec.revision}
    with loading_errors(f"model '{name}' ({spec.source}): "):
        if os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith(("GPU-", "MIG-")) and not torch.cuda.is_available():
            seen = f"this job holds a GPU, but PyTorch {torch.__version__} sees none"
            raise UserError(f"{seen}: update the driver, or remove .venv and set TORCH_INDEX to a build for it")
        source = find_source(spec)
        config, tokenizer = read_config(source, **named), read_tokenizer(source, **named)
        outline = outline_network(config)
        dtype, on_gpu = loading_dtype(spec, outline), runs_on_gpu(outline)
        options = {"config": config, "dtype": dtype}
        if spec.attention != "auto":
            options["attn_implementation"] = spec.attention
        if on_gpu:  # without a copy in the host's memory
            options["device_map"] = "auto" if spec.gpus == "all" else "cuda"
        model = load_network(source, **named, **options).eval()
        eos, _ = read_end_tokens(model, tokenizer, local_folder(spec))
    facts = describe_model(model, tokenizer, spec, dtype)
    if on_gpu:
        # PyTorch prefers cuDNN's kernels on Hopper; they plan again for every cache length, at every step
        torch.backends.cuda.enable_cudnn_sdp(False)
        facts["cudnn_attention"] = False
    if give_float32_logits(model):
        facts["logits"] = "float32"
    model.generation_config = GenerationConfig()  # hidden penalties of a shipped one would change the distribution
    return LanguageModel(name, spec, model, tokenizer, eos, facts)


@contextmanager
def loading_errors(who: str = "") -> Iterator[None]:
    """Raise each error of the body as a UserError, which begins with `who`. transformers' progress is not shown."""
    logging.disable_progress_bar()
    try:
        yield
    except Exception as error:  # transformers and its file readers raise many types
        what = error if isinstance(error, UserError) else f"can't be loaded: {first_line(error)}"
        raise UserError(f"{who}{what}") from error


# ---- its files


def local_folder(spec: Model) -> Path | None:
    """Return the local folder of a model's source, or of its GGUF file, if it exists. Raise UserError for a file in it
    that git-lfs has not fetched yet."""
    if not os.path.isdir(spec.place):  # pathlib raises for a name too long
        return None
    for path in spec.place.iterdir():
        if path.is_file() and path.stat().st_size < 1000 and path.read_bytes().startswith(LFS_POINTER):
            raise UserError(f"{path.name} of {spec.source} is a pointer of git-lfs: `git lfs pull` fetches the file")
    return spec.place


def find_source(spec: Model) -> str:
    """Return the source for transformers. Raise UserError if a local folder is missing or a GGUF file is not fetched
    yet."""
    if path := local_folder(spec):
        return str(path)
    if spec.gguf:
        raise UserError(
            f"{spec.gguf} of {spec.source} is not fetched and checked yet: `./run_all.sh PROFILE` with a profile (or "
            "`--add-models`) that names this model does so, once"
        )
    if is_path(spec.source) or "/" not in spec.source:
        parent = spec.place.parent
        there = [p.name for p in parent.glob("*") if p.is_dir()] if os.path.isdir(parent) else []
        raise UserError(f"model folder '{spec.source}' does not exist; {nearest(Path(spec.source).name, there)}")
    return spec.source


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

    Raise UserError if the files lack a tensor or contain an unknown one, which transformers only logs; or if a part
    for GPUs is on the processor or on disk, for lack of memory.
    """
    if "gguf_file" in options:
        options["quantization_config"] = GgufConfig(dequantize=True)
    found: Any = AutoModelForCausalLM.from_pretrained(
        source, trust_remote_code=False, use_safetensors=True, output_loading_info=True, **options
    )
    network, info = found
    if differing := sorted(map(str, {*info["missing_keys"], *info["unexpected_keys"]})):
        raise UserError(f"its files and its config.json differ in {len(differing)} tensors, the first {differing[0]}")
    if {"cpu", "disk"} & set(map(str, getattr(network, "hf_device_map", {}).values())):
        raise UserError("parts of it do not fit the visible GPUs")
    return network


def outline_network(config: Any) -> Any:
    """Return the network of a configuration, without memory for its weights."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def read_end_tokens(network: Any, tokenizer: Any, folder: Path | None) -> tuple[list[int], GenerationConfig]:
    """Return the ids of all end tokens, and the model's generation settings.

    They are those of these settings, the tokenizer's, and the one that closes an assistant's turn in the chat template:
    settings often name the end of a document alone, beyond which a response would go on into further turns.

    Raises
    ------
    UserError
        There is no end token. Or the network has no row for one or for a token of the base vocabulary. Tokens added to
        the tokenizer may lack a row, as long as no prompt contains them.
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
    vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    size = network.get_input_embeddings().weight.shape[0]
    if (last := max([*ends, *vocabulary.values()])) >= size:
        raise UserError(f"its token {last} is none of the network's {size} tokens")
    return ends, own


def closing_token(tokenizer: Any) -> int | None:
    """Return the id of the special token right after an assistant's message in the chat template; None without one."""
    messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": ANSWERED}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception:  # of a template that knows no such messages
        return None
    after = tokenizer(text.rpartition(ANSWERED)[2].lstrip(), add_special_tokens=False).input_ids[:1]
    return after[0] if after and not tokenizer.decode(after, skip_special_tokens=True) else None


def describe_model(model: Any, tokenizer: Any, spec: Model, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "source": public_path(spec.source),
        "revision": getattr(model.config, "_commit_hash", None) or spec.revision,
        **spec.model_dump(include={"gguf", "sha256"}, exclude_none=True),
        "architecture": type(model).__name__,
        "parameters": model.num_parameters(),
        "device": torch.cuda.get_device_name() if model.device.type == "cuda" else "cpu",
        "dtype": str(dtype).removeprefix("torch."),
        "attention": model.config._attn_implementation,
        "chat_template": digest(tokenizer.chat_template)[:16],
        "tokenizer": digest(json.loads(tokenizer.backend_tokenizer.to_str())["model"])[:16],
    }


# ---- where and how precisely it runs


def is_small(network: Any) -> bool:
    """Whether a network, or its outline, has few enough parameters to run on the processor on every machine."""
    return network.num_parameters() < SMALL


def runs_on_gpu(network: Any) -> bool:
    """Whether a network runs on a GPU on this machine."""
    return torch.cuda.is_available() and not is_small(network)


def loading_dtype(spec: Model, network: Any) -> torch.dtype:
    """Return the precision in which a model's network is loaded on this machine."""
    if spec.dtype != "auto":
        return getattr(torch, spec.dtype)
    return torch.bfloat16 if runs_on_gpu(network) else torch.float32


# ---- logits and texts


def check_finite_logits(lm: LanguageModel, partitions: Sequence[float], names: Sequence[str]) -> None:
    """Raise UserError if a sum over a row's logits is not finite: a stored NaN would surface in the metrics, hours
    later.

    `names` (rows,) are the names of the rows.
    """
    wrong = [name for name, value in zip(names, partitions, strict=True) if not math.isfinite(value)]
    if wrong:
        found = f"the logits of row {wrong[0]} are not finite ({len(wrong)} of {len(names)} rows)"
        how = f"{lm.model.dtype}, {lm.model.config._attn_implementation} attention"
        remedy = "its weights are damaged, or try `dtype: float32` or `attention: eager` in its file"
        raise UserError(f"model '{lm.name}' ({how}): {found}: {remedy}")


# templates write a date that they are given, or call this for today's
DATED = "{% macro strftime_now(form) %}{{ date_string }}{% endmacro %}\n"


def apply_chat_template(lm: LanguageModel, messages: Messages, thinking: bool | None = None) -> str:
    """Return the conversation as rendered by the model's template, up to the assistant's turn.

    `thinking` overrides the setting in the model's file. A fixed date keeps templates with today's date from changing
    daily.
    """
    options: dict[str, Any] = {"enable_thinking": lm.spec.thinking if thinking is None else thinking}
    if date := lm.spec.date_string:
        options |= {"date_string": date, "chat_template": DATED + lm.tokenizer.get_chat_template()}
    return lm.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)


def encode(lm: LanguageModel, text: str) -> list[int]:
    """Return the token ids of rendered text. The template already contains the beginning-of-sequence token."""
    ids = lm.tokenizer(text, add_special_tokens=False).input_ids
    bos = lm.tokenizer.bos_token_id
    if bos is not None and ids[:2] == [bos, bos]:
        raise UserError(f"model '{lm.name}': its chat template writes the beginning-of-sequence token twice")
    return ids
