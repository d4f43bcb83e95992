"""Language models with their tokenizers and chat templates, at a fixed revision.

They come from the Hugging Face Hub, a local folder or a GGUF file. Only safetensors or GGUF weights and code that ships
with transformers are loaded.
"""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import GenerationConfig

from lib.generate.float32_logits import give_float32_logits
from lib.generate.pretrained import (
    check_finite_weights,
    check_lfs_pointers,
    is_small,
    load_network,
    outline_network,
    read_config,
    read_end_tokens,
    read_tokenizer,
)
from lib.models_and_datasets import Model
from lib.paths import UserError, first_line, is_path, nearest, public_path
from lib.store import digest
from lib.tasks.prompts import Messages


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


# ---- loading


def load_language_model(name: str, spec: Model) -> LanguageModel:
    """Load model and tokenizer in evaluation mode: bfloat16 on a GPU, float32 on the processor, unless the model's file
    differs.

    Small models (`lib.models_and_datasets.SMALL`) run on the processor where there is a GPU, too. So they give the
    same results on every machine.

    Raises
    ------
    UserError
        Source, revision or files are unavailable, in the hub's words. Or the checkpoint is incomplete: missing, extra
        or
        non-finite tensors, no end token, tokens without a row.
    """
    transformers.utils.logging.disable_progress_bar()
    check_gpu_is_seen()
    source = find_source(spec)
    named = {"gguf_file": Path(spec.gguf).name} if spec.gguf else {"revision": spec.revision}
    try:
        if folder := local_folder(spec):
            check_lfs_pointers(folder)
        config, tokenizer = read_config(source, **named), read_tokenizer(source, **named)
        outline = outline_network(config)
        attention = None if spec.attention == "auto" else spec.attention
        dtype, devices = loading_dtype(spec, outline), choose_devices(spec, outline)
        options = {"config": config, "dtype": dtype, "attn_implementation": attention}
        model = load_network(source, **named, **options, **devices)
        check_all_on_gpu(model, devices)
        check_finite_weights(model.eval().state_dict().items())
        eos, _ = read_end_tokens(model, tokenizer, folder)
    except UserError as error:
        raise UserError(f"model '{name}' ({spec.source}): {error}") from error
    except Exception as error:  # transformers and its file readers raise many types
        raise UserError(f"model '{name}' ({spec.source}) can't be loaded: {first_line(error)}") from error
    facts = describe_model(model, tokenizer, spec, dtype)
    if devices:
        # PyTorch prefers cuDNN's kernels on Hopper; they plan again for every cache length, at every step
        torch.backends.cuda.enable_cudnn_sdp(False)
        facts["cudnn_attention"] = False
    if give_float32_logits(model):
        facts["logits"] = "float32"
    # Hidden processors (penalties, forced tokens) of a shipped generation_config would change the distribution.
    model.generation_config = GenerationConfig(eos_token_id=eos, pad_token_id=tokenizer.pad_token_id)
    return LanguageModel(name, spec, model, tokenizer, eos, facts)


def local_folder(spec: Model) -> Path | None:
    """Return the local folder of a model's source, or of its GGUF file, if it exists."""
    return spec.place if os.path.isdir(spec.place) else None  # pathlib raises for a name too long


def find_source(spec: Model) -> str:
    """Return the source for transformers. Raise UserError if a local folder is missing or a GGUF file is not fetched
    yet."""
    path = local_folder(spec)
    if path is None and spec.gguf:
        raise UserError(
            f"{spec.gguf} of {spec.source} is not fetched and checked yet: `./run_all.sh PROFILE` with a profile (or "
            "`--add-models`) that names this model does so, once"
        )
    if path is None and (is_path(spec.source) or "/" not in spec.source):
        parent = spec.place.parent
        there = [p.name for p in parent.glob("*") if p.is_dir()] if os.path.isdir(parent) else []
        raise UserError(f"model folder '{spec.source}' does not exist; {nearest(Path(spec.source).name, there)}")
    return str(path or spec.source)


def runs_on_gpu(network: Any) -> bool:
    """Whether a network runs on a GPU on this machine."""
    return torch.cuda.is_available() and not is_small(network)


def loading_dtype(spec: Model, network: Any) -> torch.dtype:
    """Return the precision in which a model's network is loaded on this machine."""
    if spec.dtype != "auto":
        return getattr(torch, spec.dtype)
    return torch.bfloat16 if runs_on_gpu(network) else torch.float32


def describe_model(model: Any, tokenizer: Any, spec: Model, dtype: torch.dtype) -> dict[str, Any]:
    file = {"gguf": spec.gguf, "sha256": spec.sha256} if spec.gguf else {}
    device = torch.cuda.get_device_name() if model.device.type == "cuda" else "cpu"
    if (count := len({parameter.device for parameter in model.parameters()})) > 1:
        device = f"{count} x {device}"
    return {
        "source": public_path(spec.source),
        "revision": getattr(model.config, "_commit_hash", None) or spec.revision,
        **file,
        "architecture": type(model).__name__,
        "parameters": model.num_parameters(),
        "device": device,
        "dtype": str(dtype).removeprefix("torch."),
        "attention": model.config._attn_implementation,
        "chat_template": digest(tokenizer.chat_template)[:16],
        "tokenizer": digest(json.loads(tokenizer.backend_tokenizer.to_str())["model"])[:16],
    }


# ---- on which GPUs


def check_gpu_is_seen() -> None:
    """Raise UserError if the job has a GPU, by UUID, but PyTorch sees none: it would run on the CPU."""
    held = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if held.startswith(("GPU-", "MIG-")) and not torch.cuda.is_available():
        built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for processors alone"
        raise UserError(
            f"this job holds {held}, but PyTorch {torch.__version__} is built {built} and sees no GPU: update the "
            "driver, or remove .venv and set TORCH_INDEX to a build for it"
        )


def choose_devices(spec: Model, network: Any) -> dict[str, Any]:
    """Return the device options of `from_pretrained` for a model's network; none on the processor.

    A model whose file says `gpus: all` is spread over all visible GPUs.
    """
    if not runs_on_gpu(network):
        return {}
    return {"device_map": "auto" if spec.gpus == "all" else "cuda"}  # without a copy in the host's memory


def check_all_on_gpu(model: Any, devices: dict[str, Any]) -> None:
    """Raise UserError if a part of a model for GPUs is on the processor or on disk, for lack of memory."""
    places = getattr(model, "hf_device_map", {}) if devices else {}
    if away := [name for name, place in places.items() if str(place) in ("cpu", "disk")]:
        raise UserError(f"{len(away)} of its {len(places)} parts do not fit the visible GPUs (the first is {away[0]})")


# ---- logits and texts


def check_finite_logits(lm: LanguageModel, partitions: Sequence[float], names: Sequence[str]) -> None:
    """Raise UserError if a sum over a row's logits is not finite: a stored NaN would surface in the metrics, hours
    later.

    `names` (rows,) are the names of the rows.
    """
    wrong = [name for name, value in zip(names, partitions, strict=True) if not math.isfinite(value)]
    if wrong:
        dtype, attention = str(lm.model.dtype).removeprefix("torch."), lm.model.config._attn_implementation
        raise UserError(
            f"model '{lm.name}': the logits of row {wrong[0]} are not finite ({len(wrong)} of {len(names)} "
            f"rows; {dtype}, {attention} attention); try `dtype: float32` or "
            "`attention: eager` in its file"
        )


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
