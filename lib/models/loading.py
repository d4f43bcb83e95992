"""Language models with their tokenizers and chat templates, at a fixed revision.

They come from the Hugging Face Hub, a local folder or a GGUF file (lib.models.checkpoints).
"""

import json
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from lib.errors import UserError
from lib.files import digest
from lib.models import checkpoints
from lib.models.chat_templates import render_chat
from lib.models.checkpoints import load_network, loading_errors, local_folder
from lib.models.float32_logits import give_float32_logits
from lib.parameter_schemas import SMALL, Model
from lib.paths import public_path
from lib.tasks import prompts
from lib.tasks.prompts import Messages
from lib.tasks.thinking import Family, find_family

BFLOAT16_FROM = (8, 0)  # CUDA's compute capability


@dataclass(eq=False)
class LanguageModel:
    """A loaded model, with the ids of all end tokens in `eos` and its facts for manifests in
    `facts`."""

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
        """Context length of the model for prompt and response; None if its configuration names
        none."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    @cached_property
    def family(self) -> Family | None:
        """How it thinks, by its chat template; None if it does not, or in no known way."""
        messages = prompts.question_messages(prompts.EXAMPLE, self.spec.system_prompt)
        render = partial(render_template, self, messages)
        return find_family(self.tokenizer.get_chat_template(), render)

    @property
    def vocab_size(self) -> int:
        """Number of tokens of the network; the tokenizer may have fewer, or extra tokens that no
        text contains."""
        return self.model.get_input_embeddings().weight.shape[0]


def load_language_model(name: str, spec: Model) -> LanguageModel:
    """Load model and tokenizer in evaluation mode: bfloat16 on a GPU, float32 on the processor,
    unless the model's file differs.

    Small models (`lib.parameter_schemas.SMALL`) run on the processor where there is a GPU, too, and
    in one thread: more threads would wait for each other. So they give the same results on every
    machine.

    Raises
    ------
    UserError
        Source, revision or files are unavailable, in the hub's words. Or the checkpoint is
        incomplete: missing or extra tensors, no end token, tokens without a row. Or it does not fit
        the visible GPUs.
    """
    outline = outline_language_model(name, spec)
    dtype = loading_dtype(spec, outline.model)
    on_gpu = runs_on_gpu(outline.model)
    tokenizer = outline.tokenizer
    if is_small(outline.model):
        torch.set_num_threads(1)
    # onto GPUs without a copy in the host's memory
    gpus = "auto" if spec.gpus == "all" else "cuda"
    with loading_errors(f"model '{name}' ({spec.source}): "):
        model = load_network(
            checkpoints.find_source(spec),
            config=outline.model.config,
            dtype=dtype,
            attn_implementation=None if spec.attention == "auto" else spec.attention,
            device_map=gpus if on_gpu else None,
            **named_files(spec),
        ).eval()
        if not on_gpu and dtype == torch.float32:
            multiply_with_onednn(model)
        eos = checkpoints.read_end_tokens(model, tokenizer, local_folder(spec))
    facts = describe_model(model, tokenizer, spec, dtype)
    if on_gpu:
        # PyTorch prefers cuDNN's kernels on Hopper; they plan again for every cache length, at
        # every step
        torch.backends.cuda.enable_cudnn_sdp(False)
        facts["cudnn_attention"] = False
    if give_float32_logits(model):
        facts["logits"] = "float32"
    # hidden penalties of a shipped one would change the distribution
    model.generation_config = GenerationConfig()
    return LanguageModel(name, spec, model, tokenizer, eos, facts)


def outline_language_model(name: str, spec: Model) -> LanguageModel:
    """Return a model without its weights: its network is on torch's meta device.

    Its tokenizer, context and end tokens suffice to ask another engine for responses, while the GPU
    is free. Raise UserError as `load_language_model`, but for what only the weights show.
    """
    named = named_files(spec)
    with loading_errors(f"model '{name}' ({spec.source}): "):
        source = checkpoints.find_source(spec)
        config = checkpoints.read_config(source, **named)
        tokenizer = checkpoints.read_tokenizer(source, **named)
        network = checkpoints.outline_network(config)
        check_gpu_is_seen(network)
        check_precision(spec, network)
        if spec.repository and not spec.gguf:
            checkpoints.read_generation_settings(network, source, spec.revision)
        eos = checkpoints.read_end_tokens(network, tokenizer, local_folder(spec))
    return LanguageModel(name, spec, network, tokenizer, eos, facts={})


def named_files(spec: Model) -> dict[str, Any]:
    """Return what names a model's files in its source: a revision, or one GGUF file."""
    if spec.gguf:
        return {"gguf_file": Path(spec.gguf).name}
    return {"revision": spec.revision}


# words of CUDA_VISIBLE_DEVICES that name a GPU: SLURM writes places, a run writes UUIDs
GPU_WORD = re.compile(r"\d+|(GPU|MIG)-\S+")


def check_gpu_is_seen(network: Any) -> None:
    """Raise UserError if the job of a network that is not small was given a GPU that PyTorch does
    not see: it would run on the processor, for weeks."""
    words = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    given = any(GPU_WORD.fullmatch(word.strip()) for word in words)
    if given and not is_small(network) and not torch.cuda.is_available():
        seen = f"this job holds a GPU, but PyTorch {torch.__version__} sees none"
        raise UserError(
            f"{seen}: update the driver, or remove .venv and set TORCH_INDEX to a build for it"
        )


def check_precision(spec: Model, network: Any) -> None:
    """Raise UserError for a network in bfloat16 on a GPU that has none: it would be emulated, and
    vLLM refuses it."""
    if not runs_on_gpu(network) or loading_dtype(spec, network) != torch.bfloat16:
        return
    if torch.version.hip:  # all of AMD's that PyTorch supports have it
        return
    for number in range(torch.cuda.device_count()):
        if torch.cuda.get_device_capability(number) < BFLOAT16_FROM:
            gpu = torch.cuda.get_device_name(number)
            raise UserError(
                f"{gpu} does not compute in bfloat16: write `dtype: float16` in its file, or "
                "`dtype: float32`"
            )


def describe_model(model: Any, tokenizer: Any, spec: Model, dtype: torch.dtype) -> dict[str, Any]:
    tokenizer_model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    return {
        "source": public_path(spec.source),
        "revision": getattr(model.config, "_commit_hash", None) or spec.revision,
        "architecture": type(model).__name__,
        "parameters": model.num_parameters(),
        "device": torch.cuda.get_device_name() if model.device.type == "cuda" else "cpu",
        "dtype": str(dtype).removeprefix("torch."),
        "attention": model.config._attn_implementation,
        "chat_template": digest([tokenizer.chat_template])[:16],
        "tokenizer": digest([tokenizer_model])[:16],
    }


# ---- where and how precisely it runs


def is_small(network: Any) -> bool:
    """Whether a network, or its outline, has few enough parameters to run on the processor on every
    machine."""
    return network.num_parameters() < SMALL


def runs_on_gpu(network: Any) -> bool:
    """Whether a network runs on a GPU on this machine."""
    return torch.cuda.is_available() and not is_small(network)


def memory_of_gpus() -> list[int]:
    """Return the bytes of memory of each visible GPU. PyTorch knows those that CUDA_VISIBLE_DEVICES
    names by place or UUID, and slices of one."""
    numbers = range(torch.cuda.device_count())
    return [torch.cuda.get_device_properties(number).total_memory for number in numbers]


def loading_dtype(spec: Model, network: Any) -> torch.dtype:
    """Return the precision in which a model's network is loaded on this machine."""
    if spec.dtype != "auto":
        return getattr(torch, spec.dtype)
    return torch.bfloat16 if runs_on_gpu(network) else torch.float32


class OneDnnLinear(torch.nn.Linear):
    """A linear layer computed by oneDNN, as compiled networks do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


def multiply_with_onednn(network: Any) -> None:
    """Let oneDNN compute the linear layers of a float32 network on an x86 processor.

    PyTorch leaves them to MKL, which uses half the width of the processors of other makers: on an
    AMD EPYC with AVX-512 it takes 2.3 times as long. The numbers differ in the last digits.
    """
    if platform.machine() == "x86_64" and torch.backends.mkldnn.is_available():
        for layer in network.modules():
            if type(layer) is torch.nn.Linear:
                layer.__class__ = OneDnnLinear


# ---- logits and texts


def check_finite_logits(
    lm: LanguageModel, partitions: Sequence[float], names: Sequence[str]
) -> None:
    """Raise UserError if a sum over a row's logits is not finite: a stored NaN would surface in the
    metrics, hours later.

    `names` (rows,) are the names of the rows.
    """
    wrong = []
    for name, value in zip(names, partitions, strict=True):
        if not math.isfinite(value):
            wrong.append(name)
    if wrong:
        how = f"{lm.model.dtype}, {lm.model.config._attn_implementation} attention"
        raise UserError(
            f"model '{lm.name}' ({how}): the logits of row {wrong[0]} are not finite "
            f"({len(wrong)} of {len(names)} rows): its weights are damaged, or try "
            "`dtype: float32` or `attention: eager` in its file"
        )


# templates write a date that they are given, or call this for today's
DATED = "{% macro strftime_now(form) %}{{ date_string }}{% endmacro %}\n"


def apply_chat_template(lm: LanguageModel, messages: Messages, thinking: bool | None = None) -> str:
    """Return the conversation as rendered by the model's template, up to the assistant's turn.

    `thinking` overrides the setting in the model's file. The template is given its own switch for
    it (lib.tasks.thinking).
    """
    if thinking is None:
        thinking = lm.spec.thinking
    variables = {"enable_thinking": thinking}
    if lm.family:
        variables |= lm.family.options(thinking)
    return render_template(lm, messages, variables)


def render_template(lm: LanguageModel, messages: Messages, variables: Mapping[str, Any]) -> str:
    """Return the conversation as rendered by the model's template, given some of its variables.

    A fixed date keeps templates with today's date from changing daily.
    """
    options = dict(variables)
    if lm.spec.date_string:
        options["date_string"] = lm.spec.date_string
        options["chat_template"] = DATED + lm.tokenizer.get_chat_template()
    return render_chat(lm.tokenizer, messages, add_generation_prompt=True, **options)


def encode(lm: LanguageModel, text: str) -> list[int]:
    """Return the token ids of rendered text. The template already contains the
    beginning-of-sequence token."""
    ids = lm.tokenizer(text, add_special_tokens=False).input_ids
    bos = lm.tokenizer.bos_token_id
    if bos is not None and ids[:2] == [bos, bos]:
        raise UserError(
            f"model '{lm.name}': its chat template writes the beginning-of-sequence token twice"
        )
    return ids
