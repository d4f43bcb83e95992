"""`./run_all.sh check PROFILE --gpu`: the models of a run tried on a GPU, in minutes, before hours are spent on it.

Of each model: whether what it says is finite; whether a padded batch gives a row what it gets alone, and half precision
what float32 gives, within the tolerances below; seconds of a step and memory at most, with as many rows and tokens as
the run will hold; and the hours that follow. A line each, as `check` says them; nothing is kept but the weights that
were fetched.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import psutil
import torch
from transformers import DynamicCache

from lib import params
from lib.generate import generation, mc_dropout, models, p_true, sampling
from lib.generate.float32_logits import rounded_logits_on_cpu
from lib.generate.models import LanguageModel
from lib.project import UserError, first_line
from lib.score import confidence, estimators
from workflow import asking, check, cost, hub, weights
from workflow.asking import Line
from workflow.cost import Size, Work
from workflow.jobs import Run

ROWS, NEW = 8, 96  # questions that are asked, and tokens of a response
# What two ways may differ by, on average, in the log-probability of a token, and in P(True). bfloat16's own rounding
# gives .001 and .003 on the demo's models (tests/benchmarks/precision.py), and more where tokens are less sure.
LOGPROB, P_TRUE = 0.05, 0.05
PIECE = 256  # tokens by which caches are filled
STEPS, UNTIMED = 30, 5
ENCODED = (16, 512)  # rows and tokens of a pass over whole sequences


def main(run: Run, say: Callable[[str], None]) -> int:
    """Try every model of the run on the GPU that is seen; the exit code, 2 where anything is wrong. Raises UserError
    where there is none."""
    if not torch.cuda.is_available():
        raise UserError(f"check --gpu tries a GPU, and PyTorch ({torch.__version__}) sees none here; "
                        "without --gpu, check says what this machine can do")  # fmt: skip
    hub.pin(run)
    wrong = 0
    for level, text in everything(run, say):
        say(f"{level:5}  {text}")
        wrong += level == "wrong"
    say(f"{run.name} on {torch.cuda.get_device_name()}: {f'{wrong} thing(s) to mend' if wrong else 'ready'}")
    return 2 if wrong else 0


def everything(run: Run, say: Callable[[str], None]) -> Iterator[Line]:
    for name in run.values["models"]:
        try:
            hub.fetch(run, [name], say)
            weights.fetch([name], say)
            yield from ((level, f"model {name}: {text}") for level, text in tried(run, name))
        except (UserError, RuntimeError) as problem:  # CUDA's own errors, memory's end among them
            yield "wrong", f"model {name}: {first_line(problem)}"
        release()


def tried(run: Run, name: str) -> Iterator[Line]:
    """Everything about one model, in the order in which it is found out."""
    spec, started = params.load_model(name), time.perf_counter()
    if not spec.at_hand:
        yield "note", "it is not at hand (its file names no `source`): there is nothing to try"
        return
    lm = models.load_language_model(name, spec)
    wait()
    said = f"{lm.facts['dtype']}, {lm.facts['attention']} attention"
    yield "ok", f"loaded in {time.perf_counter() - started:.0f} s: {said}, {peak() / 1e9:.1f} GB"
    frame = asked(run, lm)
    yield finite(run, lm, frame)
    here = Reading.alone(lm, frame)
    yield agreement("a padded batch and each row alone", Reading.decoded(lm, frame), here)
    size, work = cost.Size.of(lm.model, lm.model.dtype.itemsize), check.work_of(run, lm)
    yield from speed(lm, size, work)
    del lm
    release()
    yield in_float32(name, spec, frame, here, size)


# ---- is it right


def asked(run: Run, lm: LanguageModel) -> pd.DataFrame:
    """Responses to questions of the run's first dataset, cut early, with their verdicts in situ."""
    dataset = run.values["datasets"][0]
    settings = params.Generation.of(run.values).model_copy(update={"max_new_tokens": NEW})
    return generation.generate_responses(lm, dataset, asking.chosen(run, dataset)[:ROWS], settings)


def finite(run: Run, lm: LanguageModel, frame: pd.DataFrame) -> Line:
    """Whether passes with dropout are finite; the logits of responses and verdicts were looked at as they were made."""
    settings = params.Dropout.of(run.values).model_copy(update={"dropout_passes": 2})
    made = mc_dropout.mc_dropout_entropies(lm, frame.head(2), [(0, 0.1), (1, 0.1)], settings)
    values = np.concatenate([*frame.token_logprobs, *map(np.ravel, made.predictive.map(np.stack))])
    text = f"{len(frame)} responses, their verdicts, and passes with dropout"
    return ("ok", f"finite: {text}") if np.isfinite(values).all() else ("wrong", f"not finite somewhere in {text}")


@dataclass(frozen=True)
class Reading:
    """What a model says of responses: log-probabilities of all tokens, one response after the other, and P(True) of
    each response, in situ and by the fresh prompt."""

    logprob: np.ndarray
    p_true: np.ndarray

    @staticmethod
    def decoded(lm: LanguageModel, frame: pd.DataFrame) -> "Reading":
        """As they are drawn: step by step, in a padded batch; verdicts of batches, too."""
        return Reading(decoded_logprobs(lm, frame), believed(lm, frame))

    @staticmethod
    def alone(lm: LanguageModel, frame: pd.DataFrame) -> "Reading":
        """Of the same tokens, each row read by itself."""
        logprobs = []
        for row in frame.itertuples():
            logprobs += plain_logprobs(lm, models.encode(lm, row.prompt), list(row.token_ids))
        bare = frame.drop(columns=p_true.IN_SITU_COLUMNS)
        return Reading(np.array(logprobs), np.concatenate([believed(lm, bare.iloc[[i]]) for i in range(len(bare))], 1))


@torch.inference_mode()
def decoded_logprobs(lm: LanguageModel, frame: pd.DataFrame) -> np.ndarray:
    """Log-probabilities of responses' tokens, read one by one behind the cache of a batch padded on the left."""
    asked = [models.encode(lm, prompt) for prompt in frame.prompt]
    padded = lm.tokenizer.pad({"input_ids": asked}, return_tensors="pt").to(lm.device)
    rows = [torch.tensor(list(ids)) for ids in frame.token_ids]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(lm.device)
    ids, mask, cache, steps = padded.input_ids, padded.attention_mask, DynamicCache(config=lm.model.config), []
    for written in tokens.T[:, :, None]:
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        logits = lm.model(
            ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
        ).logits[:, -1].float()  # fmt: skip
        steps.append(logits.log_softmax(-1).gather(-1, written)[:, 0])
        ids, mask = written, torch.cat([mask, torch.ones_like(written)], 1)
    read = torch.stack(steps, 1).cpu()
    return np.concatenate([of_row[: len(ids)] for of_row, ids in zip(read, rows, strict=True)])


@torch.inference_mode()
def plain_logprobs(lm: LanguageModel, prompt: list[int], response: list[int]) -> list[float]:
    """Log-probabilities of a response's tokens by one plain pass over this row alone."""
    ids = torch.tensor([prompt + response], device=lm.device)
    logits = lm.model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    return logits.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None])[:, 0].tolist()


def believed(lm: LanguageModel, frame: pd.DataFrame) -> np.ndarray:
    """P(True) (2, rows), in situ and by the fresh prompt."""
    margins = confidence.option_log_odds(p_true.verify_responses(lm, frame, params.Verification()))
    return np.vectorize(estimators.p_true)(margins[["in_situ_margin", "standard_margin"]].to_numpy().T)


def agreement(what: str, one: Reading, other: Reading) -> Line:
    """Whether two readings of the same tokens are within the tolerances, on average."""
    tokens, verdicts = np.abs(one.logprob - other.logprob), np.abs(one.p_true - other.p_true)
    text = f"{what}: log-probabilities of {tokens.size} tokens differ by {tokens.mean():.4f} (may by {LOGPROB}), "
    text += f"1 in 100 by {np.quantile(tokens, 0.99):.3f}; P(True) by {verdicts.mean():.4f} (may by {P_TRUE})"
    alike = tokens.mean() <= LOGPROB and verdicts.mean() <= P_TRUE  # which NaN is not
    return ("ok" if alike else "wrong"), text


def in_float32(name: str, spec: params.Model, frame: pd.DataFrame, here: Reading, size: Size) -> Line:
    """The same tokens read in float32, with PyTorch's own choice among its kernels."""
    dtype = str(models.loading_dtype(spec)).removeprefix("torch.")
    if dtype == "float32":
        return "ok", "it runs in float32 itself"
    need, free = 1.1 * size.weights * 4, room()
    if need > free:
        return "note", f"not compared with float32, whose weights take {need / 1e9:.0f} GB of {free / 1e9:.0f} free"
    lm = models.load_language_model(name, spec.model_copy(update={"dtype": "float32", "attention": "auto"}))
    return agreement(f"{dtype} and float32", here, Reading.alone(lm, frame))


# ---- what it takes


def speed(lm: LanguageModel, size: Size, work: Work) -> Iterator[Line]:
    """Seconds of a step and memory at most, with as many rows and tokens as the run will hold; and the hours."""
    held = int(work.half)
    step = step_seconds(lm, work.batch, held)
    text = f"{1e3 * step:.3g} ms a step of {work.batch} rows with {held} tokens each"
    yield "note", text
    yield at_most(lm, size, work)
    device, steps, how = measured(lm, size), (step, step), "at this step"
    if work.served:
        (work, steps), how = cost.served(size, work, device), "vLLM's drawing estimated"
    (low, high), passes = cost.hours(size, work, steps, device)
    text = f"about {low:.2g} to {high:.2g} hours for {work.rows} questions, {passes:.2g} of dropout, {how}"
    rate = device.operations * cost.UTILISED[device.cuda] / 1e12
    yield "note", f"{text}; {rate:.3g} TFLOP/s in passes over whole sequences"


@torch.inference_mode()
def step_seconds(lm: LanguageModel, rows: int, held: int) -> float:
    """Seconds of a step of decoding, sampling included, whose caches hold so many tokens and grow."""
    cache = filled(lm, rows, held)
    sampler = sampling.SeededSampler(lm.spec, range(rows), UNTIMED + STEPS)
    ids = torch.zeros(rows, 1, dtype=torch.long, device=lm.device)
    mask = torch.ones(rows, held, dtype=torch.long, device=lm.device)
    mask[0, 0] = 0  # nearly every batch is padded
    with rounded_logits_on_cpu(lm.model):
        for number in range(UNTIMED + STEPS):
            if number == UNTIMED:
                wait()
                started = time.perf_counter()
            mask = torch.cat([mask, torch.ones_like(ids)], 1)
            logits = lm.model(ids, attention_mask=mask, past_key_values=cache, logits_to_keep=1).logits[:, -1]
            ids = sampler(ids, logits.float()).argmax(-1, keepdim=True)
    wait()
    return (time.perf_counter() - started) / STEPS


@torch.inference_mode()
def filled(lm: LanguageModel, rows: int, held: int) -> DynamicCache:
    """A cache of so many random tokens in each row."""
    cache, stream = DynamicCache(config=lm.model.config), torch.Generator().manual_seed(0)
    ids = torch.randint(lm.vocab_size, (rows, held), generator=stream).to(lm.device)
    for piece in ids.split(PIECE, 1):
        lm.model(piece, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return cache


def at_most(lm: LanguageModel, size: Size, work: Work) -> Line:
    """Memory with every row at its longest."""
    asked = f"{work.batch} rows of {work.longest} tokens"
    try:
        step_seconds(lm, work.batch, work.longest - UNTIMED - STEPS)
    except torch.OutOfMemoryError:
        return (
            "note",
            f"memory ends before {asked} (max_batch_tokens): such batches will be halved, as manifests will say",
        )
    reckoned = cost.needed(size, work, lm.model.dtype.itemsize)
    return "note", f"{peak() / 1e9:.2g} GB at most, with {asked}; {reckoned / 1e9:.2g} were reckoned"


def measured(lm: LanguageModel, size: Size) -> cost.Device:
    """The device, with the operations per second that passes over whole sequences reach."""
    ids = torch.ones(*ENCODED, dtype=torch.long, device=lm.device)
    with torch.inference_mode():
        took = cost.seconds(lambda: lm.model(ids, logits_to_keep=1, use_cache=False))
    device = cost.measure_device(torch.get_num_threads())
    operations = 2 * size.weights * ids.numel() / took / cost.UTILISED[device.cuda]
    return replace(device, operations=operations, bytes=lm.model.dtype.itemsize)


# ---- the device, or the processor in its place


def wait() -> None:
    """Until the device has done what it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def room() -> float:
    """Bytes that are free."""
    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else psutil.virtual_memory().available


def peak() -> float:
    """Bytes held at most since the last `release`; without a GPU, since the process began."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return psutil.Process().memory_info().rss


def release() -> None:
    """Give back what nothing holds any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
