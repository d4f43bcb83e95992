"""Language models with their tokenizers and chat templates, at a revision, from the hub or from a folder, such as the
one that a GGUF file was converted into (gguf_file.py).

Only safetensors weights and code that ships with transformers are loaded.
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
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from lib.configs import Model
from lib.generate.checkpoint import (
    check_finite_weights,
    check_lfs_pointers,
    check_loaded,
    find_end_tokens,
    read_generation_config,
)
from lib.generate.float32_logits import give_float32_logits
from lib.paths import ROOT, UserError, first_line, is_path, nearest, public_path
from lib.store import digest
from lib.tasks.prompts import Messages

ALONE_SHARE = 0.9  # of the free bytes of a GPU, those that weights may take where it is the only one
SPREAD_SHARE = 0.6  # of those of several, for caches lie beside the weights


@dataclass
class LanguageModel:
    """A loaded model. `eos` holds every id that ends a response, `facts` what a manifest says of it."""

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
        """Positions that the model was made for, of prompt and response; None where its configuration names none."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    @property
    def vocab_size(self) -> int:
        """Tokens of the network; a tokenizer may have fewer, or some more that no text is written with."""
        return self.model.get_input_embeddings().weight.shape[0]


# ---- loading


def load_language_model(name: str, spec: Model) -> LanguageModel:
    """Model and tokenizer in evaluation mode: bfloat16 on CUDA, float32 on the CPU, unless the file says otherwise.

    Raises
    ------
    UserError
        Source, revision or files are not to be had, in the hub's own words. Or the checkpoint is not whole: tensors too
        few, too many or not finite, no end token, tokens without a row.
    """
    transformers.utils.logging.disable_progress_bar()
    check_gpu_is_seen()
    source, dtype = find_source(spec), loading_dtype(spec)
    with explain_loading(name, spec):
        if folder := local_folder(spec):
            check_lfs_pointers(folder)
        tokenizer = AutoTokenizer.from_pretrained(source, revision=spec.revision, trust_remote_code=False)
        found: Any = AutoModelForCausalLM.from_pretrained(
            source,
            revision=spec.revision,
            dtype=dtype,
            attn_implementation=None if spec.attention == "auto" else spec.attention,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **choose_devices(source, spec.revision, dtype),
        )
        model, info = found
        check_loaded(info)
        model.eval()
        check_finite_weights(model.state_dict().items())
        eos = find_end_tokens(model, tokenizer, read_generation_config(model, folder))
    facts = describe_model(model, tokenizer, spec, dtype)
    if torch.cuda.is_available():
        # PyTorch takes cuDNN's kernels first on Hopper; they plan anew for every length of the cache, at every step
        torch.backends.cuda.enable_cudnn_sdp(False)
        facts["cudnn_attention"] = False
    if give_float32_logits(model):
        facts["logits"] = "float32"
    # Hidden processors (penalties, forced tokens) of a shipped generation_config would change the distribution.
    model.generation_config = GenerationConfig(eos_token_id=eos, pad_token_id=tokenizer.pad_token_id)
    return LanguageModel(name, spec, model, tokenizer, eos, facts)


def local_folder(spec: Model) -> Path | None:
    """The local directory that a model's source names, or its converted GGUF file, if it is there."""
    return spec.place if os.path.isdir(spec.place) else None  # pathlib raises for a name too long


def find_source(spec: Model) -> str:
    """What transformers loads from. Raises UserError where a folder was meant and is not there, and where a GGUF file
    is not converted yet."""
    path = local_folder(spec)
    if path is None and spec.gguf:
        raise UserError(
            f"{spec.gguf} of {spec.source} is not converted yet: `./run_all.sh PROFILE` with a profile (or "
            "`--add-models`) that names this model fetches and converts it, once"
        )
    if path is None and (is_path(spec.source) or "/" not in spec.source):
        parent = (ROOT / spec.source).parent
        there = [p.name for p in parent.glob("*") if p.is_dir()] if os.path.isdir(parent) else []
        raise UserError(f"model folder '{spec.source}' does not exist; {nearest(Path(spec.source).name, there)}")
    return str(path or spec.source)


def loading_dtype(spec: Model) -> torch.dtype:
    """The precision in which a model is loaded here."""
    if spec.dtype != "auto":
        return getattr(torch, spec.dtype)
    return torch.bfloat16 if torch.cuda.is_available() else torch.float32


@contextmanager
def explain_loading(name: str, spec: Model) -> Iterator[None]:
    """What is wrong with a checkpoint, as a UserError that names the model."""
    try:
        yield
    except UserError as error:
        raise UserError(f"model '{name}' ({spec.source}): {error}") from error
    except Exception as error:  # transformers and what it reads the files with raise what they like
        raise UserError(f"model '{name}' ({spec.source}) can't be loaded: {first_line(error)}") from error


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
    """Raises UserError where a job holds a GPU, by its UUID, and PyTorch sees none: it would run on the processor."""
    held = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if held.startswith(("GPU-", "MIG-")) and not torch.cuda.is_available():
        built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for processors alone"
        raise UserError(
            f"this job holds {held}, but PyTorch {torch.__version__} is built {built} and sees no GPU: update the "
            "driver, or remove .venv and set TORCH_INDEX to a build for it"
        )


def choose_devices(source: str, revision: str | None, dtype: torch.dtype) -> dict[str, Any]:
    """What `from_pretrained` is told of the GPUs that this process sees; nothing where it sees none.

    A model that is too large for one is spread evenly over the fewest that hold it. One that is too small by itself is
    tried all the same: loading says what it lacks.
    """
    if not torch.cuda.is_available():
        return {}
    if torch.cuda.device_count() > 1:
        with torch.device("meta"):
            config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
            network = AutoModelForCausalLM.from_config(config, dtype=dtype)
        free = [torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())]
        count = gpus_needed(sum(tensor.numel() * tensor.element_size() for tensor in network.parameters()), free)
        if count > 1:
            return {"device_map": "balanced", "max_memory": {i: int(SPREAD_SHARE * free[i]) for i in range(count)}}
    return {"device_map": "cuda"}  # not by way of a copy in the host's memory


def gpus_needed(weights: float, memory: Sequence[float]) -> int:
    """How many GPUs, with so many free bytes each, a model takes whose weights are so many bytes: 1 where they fit,
    else the fewest that leave room for caches; 0 where all are too small."""
    if memory and weights <= ALONE_SHARE * memory[0]:
        return 1
    enough = (count for count in range(2, len(memory) + 1) if weights <= SPREAD_SHARE * sum(memory[:count]))
    return next(enough, 0)


# ---- logits and texts


def check_finite_logits(lm: LanguageModel, partitions: Sequence[float], names: Sequence[str]) -> None:
    """Raises UserError where a number made of a row's logits is not finite: a NaN that is kept comes out in the
    metrics, hours later. `names` (rows,) say whose it is."""
    wrong = [name for name, value in zip(names, partitions, strict=True) if not math.isfinite(value)]
    if wrong:
        dtype, attention = str(lm.model.dtype).removeprefix("torch."), lm.model.config._attn_implementation
        raise UserError(
            f"model '{lm.name}': the logits of row {wrong[0]} are not finite ({len(wrong)} of {len(names)} "
            f"rows in its batch; {dtype}, {attention} attention); try `dtype: float32` or "
            "`attention: eager` in its file"
        )


def apply_chat_template(lm: LanguageModel, messages: Messages, thinking: bool | None = None) -> str:
    """The conversation as the model's template writes it, up to where the assistant starts.

    `thinking` overrides the model file's. A fixed date keeps templates that insert today's from changing daily.
    """
    options: dict[str, Any] = {"enable_thinking": lm.spec.thinking if thinking is None else thinking}
    if lm.spec.date_string:
        options["date_string"] = lm.spec.date_string
    return lm.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)


def encode(lm: LanguageModel, text: str) -> list[int]:
    """Token ids of rendered text. The template has written the beginning-of-sequence token, so none is added here."""
    ids = lm.tokenizer(text, add_special_tokens=False).input_ids
    bos = lm.tokenizer.bos_token_id
    if bos is not None and ids[:2] == [bos, bos]:
        raise UserError(f"model '{lm.name}': its chat template writes the beginning-of-sequence token twice")
    return ids
