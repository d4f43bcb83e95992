"""Language models with their tokenizers and chat templates, at a revision, from the hub or from a folder, such as the
one that a GGUF file was converted into (gguf_file.py).

Only safetensors weights and code that ships with transformers are loaded.
"""

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from lib.generate import checkpoint, head, placement
from lib.generate.head import Head
from lib.params import Model, is_path
from lib.project import ROOT, UserError, first_line, nearest, public_path
from lib.store import digest
from lib.tasks.prompts import Messages

CLEARLY = 0.6  # of float32's seconds: below, bfloat16's lost digits are worth it
LLAMA_PAD = "<|finetune_right_pad_id|>"


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
    def head(self) -> Head | None:
        """Its last layer, where that gives float32 logits, and the model's own, of a model in half precision."""
        layer = self.model.get_output_embeddings()
        return layer if isinstance(layer, Head) and layer.last else None

    @property
    def context(self) -> int | None:
        """Positions that the model was made for, of prompt and response; None where its configuration names none."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    @cached_property
    def number_like(self) -> torch.Tensor:
        """(V,) which tokens can overlap a number: those that write a digit, a sign, a comma, a point or a slash, and
        those of bytes beyond ASCII (but for the marks that tokenizers write for a space and a newline)."""
        blanks = str.maketrans("", "", "\u0120\u010a\u0109\u2581")
        mask = torch.zeros(self.model.get_input_embeddings().weight.shape[0], dtype=torch.bool)
        for token, index in self.tokenizer.get_vocab().items():
            text = token.translate(blanks)
            if index < len(mask):  # tokenizers may add some that the network was not made for
                mask[index] = not text.isascii() or any(c.isdigit() or c in "+-,./" for c in text)
        return mask.to(self.device)


def folder(spec: Model) -> Path | None:
    """The local directory that a model's source names, or its converted GGUF file, if it is there."""
    return spec.place if os.path.isdir(spec.place) else None  # pathlib raises for a name too long


def check_source(spec: Model) -> str:
    """What transformers loads from. Raises UserError where a folder was meant and is not there, and where a GGUF file
    is not converted yet."""
    path = folder(spec)
    if path is None and spec.gguf:
        raise UserError(f"{spec.gguf} of {spec.source} is not converted yet: `./run_all.sh PROFILE` with a profile (or "
                        "`--models`) that names this model fetches and converts it, once")  # fmt: skip
    if path is None and (is_path(spec.source) or "/" not in spec.source):
        parent = (ROOT / spec.source).parent
        there = [p.name for p in parent.glob("*") if p.is_dir()] if os.path.isdir(parent) else []
        raise UserError(f"model folder '{spec.source}' does not exist; {nearest(Path(spec.source).name, there)}")
    return str(path or spec.source)


def dtype_of(spec: Model) -> torch.dtype:
    """The precision in which a model is loaded here."""
    if spec.dtype not in ("auto", "fastest"):
        return getattr(torch, spec.dtype)
    if torch.cuda.is_available():
        return torch.bfloat16
    halved = spec.dtype == "fastest" and product_seconds(torch.bfloat16) < CLEARLY * product_seconds(torch.float32)
    return torch.bfloat16 if halved else torch.float32


def product_seconds(dtype: torch.dtype) -> float:
    """Seconds of a product as in a layer of some billion parameters, the fastest of three, the first thrown away.

    Processors differ in kind: with matrix units (AMX) bfloat16 is three to five times as fast as float32, without them
    half as fast.
    """
    rows, weights = torch.ones(64, 1536, dtype=dtype), torch.ones(8960, 1536, dtype=dtype)
    times = []
    for _ in range(4):
        started = time.perf_counter()
        torch.nn.functional.linear(rows, weights)
        times.append(time.perf_counter() - started)
    return min(times[1:])


def load(name: str, spec: Model) -> LanguageModel:
    """Model and tokenizer in evaluation mode: bfloat16 on CUDA, float32 on the CPU, unless the file says otherwise.

    Raises UserError where source, revision or files are not to be had, in the hub's own words, and for a checkpoint
    that is not whole: tensors too few, too many or not finite, no end token, tokens without a row.
    """
    transformers.utils.logging.disable_progress_bar()
    source = check_source(spec)
    cuda = torch.cuda.is_available()
    dtype = dtype_of(spec)
    attention = {"auto": None, "cudnn": "sdpa"}.get(spec.attention, spec.attention)  # None: sdpa where there is one
    model: Any
    with explained(name, spec):
        if local := folder(spec):
            checkpoint.check_files(local)
        tokenizer = AutoTokenizer.from_pretrained(source, revision=spec.revision, trust_remote_code=False)
        straight = placement.device_map(source, spec.revision, dtype)
        found: Any = AutoModelForCausalLM.from_pretrained(
            source, revision=spec.revision, dtype=dtype, attn_implementation=attention,
            trust_remote_code=False, use_safetensors=True, output_loading_info=True, **straight)  # fmt: skip
        model, info = found
        checkpoint.check_loaded(info)
        model.eval()
        checkpoint.check_finite(model.state_dict().items())
        eos = end_tokens(model, tokenizer, model.generation_config)
    kernels = (attention_kernels(spec) if cuda else {}) | ({"logits": "float32"} if head.exact(model) else {})
    # Hidden processors (penalties, forced tokens) of a shipped generation_config would change the distribution.
    model.generation_config = GenerationConfig(eos_token_id=eos, pad_token_id=tokenizer.pad_token_id)
    return LanguageModel(name, spec, model, tokenizer, eos, describe(model, tokenizer, spec, dtype) | kernels)


@contextmanager
def explained(name: str, spec: Model) -> Iterator[None]:
    """What is wrong with a checkpoint, as a UserError that names the model."""
    try:
        yield
    except UserError as error:
        raise UserError(f"model '{name}' ({spec.source}): {error}") from error
    except Exception as error:  # transformers and what it reads the files with raise what they like
        raise UserError(f"model '{name}' ({spec.source}) can't be loaded: {first_line(error)}") from error


def end_tokens(network: Any, tokenizer: Any, generation: GenerationConfig) -> list[int]:
    """Every id that ends a response, with padding set. Raises UserError where there is none, and where the network has
    no row for a token that the tokenizer writes."""
    size = network.get_input_embeddings().weight.shape[0]
    ends = checkpoint.end_tokens(generation, tokenizer, size)
    set_padding(tokenizer)
    checkpoint.check_vocabulary(tokenizer, size)
    return ends


def attention_kernels(spec: Model) -> dict[str, Any]:
    """Which of sdpa's kernels a GPU may take, and what a manifest says of it. Not cuDNN's, unless the file asks for
    them: PyTorch takes them first on Hopper, and they plan anew for every length of the cache, which decoding changes
    at every step."""
    torch.backends.cuda.enable_cudnn_sdp(spec.attention == "cudnn")
    return {"cudnn_attention": torch.backends.cuda.cudnn_sdp_enabled()}


def set_padding(tokenizer: Any) -> None:
    """Pads on the left, where generation needs them; with Llama's own pad token, else any end token (masked anyway)."""
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = LLAMA_PAD if LLAMA_PAD in tokenizer.get_vocab() else tokenizer.eos_token


def describe(model: Any, tokenizer: Any, spec: Model, dtype: torch.dtype) -> dict[str, Any]:
    converted = {"gguf": spec.gguf, "sha256": spec.sha256} if spec.gguf else {}
    device = torch.cuda.get_device_name() if model.device.type == "cuda" else "cpu"
    if (count := len({parameter.device for parameter in model.parameters()})) > 1:
        device = f"{count} x {device}"
    commit = getattr(model.config, "_commit_hash", None) or spec.revision
    return {"source": public_path(spec.source), "revision": commit,
            **converted, "architecture": type(model).__name__, "parameters": model.num_parameters(), "device": device,
            "dtype": str(dtype).removeprefix("torch."), "attention": model.config._attn_implementation,
            "chat_template": digest(tokenizer.chat_template)[:16],
            "tokenizer": digest(json.loads(tokenizer.backend_tokenizer.to_str())["model"])[:16]}  # fmt: skip


def check_finite(lm: LanguageModel, partitions: Sequence[float], names: Sequence[str]) -> None:
    """Raises UserError where a log-partition of logits is no finite number: a NaN drawn from is token V, and one that
    is kept comes out in the metrics, hours later. `names` (rows,) say whose it is."""
    wrong = [name for name, value in zip(names, partitions, strict=True) if not math.isfinite(value)]
    if wrong:
        dtype, attention = str(lm.model.dtype).removeprefix("torch."), lm.model.config._attn_implementation
        raise UserError(f"model '{lm.name}': the logits of row {wrong[0]} are not finite ({len(wrong)} of {len(names)} "
                        f"rows in its batch; {dtype}, {attention} attention); try `dtype: float32` or "
                        "`attention: eager` in its file")  # fmt: skip


def render(lm: LanguageModel, messages: Messages, thinking: bool | None = None) -> str:
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
