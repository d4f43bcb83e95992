"""Language models with their tokenizers and chat templates, at a fixed revision.

They come from the Hugging Face Hub or a local folder, possibly one converted from a GGUF file (gguf_file.py). Only
safetensors weights and code that ships with transformers are loaded.
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
from transformers import AutoTokenizer, GenerationConfig

from lib.configs import Model
from lib.generate.checkpoint import (
    check_finite_weights,
    check_lfs_pointers,
    is_small,
    load_network,
    outline_network,
    read_end_tokens,
)
from lib.generate.float32_logits import give_float32_logits
from lib.paths import UserError, first_line, is_path, nearest, public_path
from lib.store import digest
from lib.tasks.prompts import Messages

ALONE_SHARE = 0.9  # share of the free memory of a single GPU that weights may use
SPREAD_SHARE = 0.6  # the same with several GPUs, which also need memory for caches


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

    Small models (`lib.configs.SMALL`) run on the processor where there is a GPU, too. So they give the same results on
    every machine.

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
    try:
        if folder := local_folder(spec):
            check_lfs_pointers(folder)
        tokenizer = AutoTokenizer.from_pretrained(source, revision=spec.revision, trust_remote_code=False)
        attention = None if spec.attention == "auto" else spec.attention
        outline = outline_network(source, spec.revision)
        dtype, devices = loading_dtype(spec, outline), choose_devices(outline, loading_dtype(spec, outline))
        model = load_network(source, revision=spec.revision, dtype=dtype, attn_implementation=attention, **devices)
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
    """Return the local folder of a model's source, or of its converted GGUF file, if it exists."""
    return spec.place if os.path.isdir(spec.place) else None  # pathlib raises for a name too long


def find_source(spec: Model) -> str:
    """Return the source for transformers. Raise UserError if a local folder is missing or a GGUF file is not
    converted yet."""
    path = local_folder(spec)
    if path is None and spec.gguf:
        raise UserError(
            f"{spec.gguf} of {spec.source} is not converted yet: `./run_all.sh PROFILE` with a profile (or "
            "`--add-models`) that names this model fetches and converts it, once"
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
    converted = {"gguf": spec.gguf, "sha256": spec.sha256} if spec.gguf else {}
    device = torch.cuda.get_device_name() if model.device.type == "cuda" else "cpu"
    if (count := len({parameter.device for parameter in model.parameters()})) > 1:
        device = f"{count} x {device}"
    return {
        "source": public_path(spec.source),
        "revision": getattr(model.config, "_commit_hash", None) or spec.revision,
        **converted,
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


def choose_devices(network: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Return the device options of `from_pretrained` for a network on the visible GPUs; none on the processor.

    A model too large for one GPU is spread evenly over the fewest that suffice. If all are too small, one is tried
    anyway: the loading error then names the missing memory.
    """
    if not runs_on_gpu(network):
        return {}
    if torch.cuda.device_count() > 1:
        free = [torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())]
        count = gpus_needed(network.num_parameters() * dtype.itemsize, free)
        if count > 1:
            return {"device_map": "balanced", "max_memory": {i: int(SPREAD_SHARE * free[i]) for i in range(count)}}
    return {"device_map": "cuda"}  # without a copy in the host's memory


def gpus_needed(weights: float, memory: Sequence[float]) -> int:
    """Return how many GPUs a model needs, from the bytes of its weights and the free bytes of each GPU.

    1 if the weights fit on the first, else the fewest that leave memory for caches; 0 if all together are too small.
    """
    if weights <= ALONE_SHARE * memory[0]:
        return 1
    enough = (count for count in range(2, len(memory) + 1) if weights <= SPREAD_SHARE * sum(memory[:count]))
    return next(enough, 0)


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


def apply_chat_template(lm: LanguageModel, messages: Messages, thinking: bool | None = None) -> str:
    """Return the conversation as rendered by the model's template, up to the assistant's turn.

    `thinking` overrides the setting in the model's file. A fixed date keeps templates with today's date from changing
    daily.
    """
    options: dict[str, Any] = {"enable_thinking": lm.spec.thinking if thinking is None else thinking}
    if lm.spec.date_string:
        options["date_string"] = lm.spec.date_string
    return lm.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)


def encode(lm: LanguageModel, text: str) -> list[int]:
    """Return the token ids of rendered text. The template already contains the beginning-of-sequence token."""
    ids = lm.tokenizer(text, add_special_tokens=False).input_ids
    bos = lm.tokenizer.bos_token_id
    if bos is not None and ids[:2] == [bos, bos]:
        raise UserError(f"model '{lm.name}': its chat template writes the beginning-of-sequence token twice")
    return ids
