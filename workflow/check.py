"""`./run_all.sh check PROFILE`: can this machine do the run, and what would it take? Nothing is generated or kept.

A line per thing looked at: ok; note (good to know); or wrong, with what to do about it. Exit code 2 if anything is
wrong. Estimates are rough: they assume TOKENS per response and the speeds of this device, measured in a second.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from lib import UserError, params
from workflow import guard, hub
from workflow.jobs import Run
from workflow.schedule import say

TOKENS = {False: 300, True: 4000}  # of a response, without and with thinking
QUESTION, VERIFY = 60, 400  # tokens by which a question is longer than EXAMPLE; of a standard verification prompt
Line = tuple[str, str]  # ok, note or wrong; what was found
EXAMPLE = "Ann has 3 pens and buys 4 more. How many pens does she have?"


def check(run: Run) -> int:
    """Say everything about a run; the exit code."""
    wrong = 0
    for subject, lines in subjects(run):
        try:
            for level, text in lines:
                say(f"{level:5}  {subject}: {text}")
                wrong += level == "wrong"
        except UserError as problem:
            say(f"wrong  {subject}: {problem}")
            wrong += 1
    say(f"{run.name}: {f'{wrong} thing(s) to mend' if wrong else 'ready'}; nothing was run")
    return 2 if wrong else 0


def subjects(run: Run) -> Iterator[tuple[str, Iterator[Line]]]:
    device = machine()
    yield "machine", about_machine(run, device)
    yield "disk", about_disk(run)
    for name in run.values["datasets"]:
        yield f"dataset {name}", about_dataset(run, name)
    for name in run.values["models"]:
        yield f"model {name}", about_model(run, name, device)


# ---- the machine


def machine() -> SimpleNamespace:
    """The device that a job would get: name, free memory (bytes), bandwidth (bytes/s), operations (per second)."""
    import torch

    cuda = torch.cuda.is_available()
    place, dtype = ("cuda", torch.bfloat16) if cuda else ("cpu", torch.float32)
    memory = torch.cuda.mem_get_info()[0] if cuda else psutil.virtual_memory().available
    block = torch.ones(64_000_000, dtype=dtype, device=place)
    square = torch.ones(4096 if cuda else 1024, 4096 if cuda else 1024, dtype=dtype, device=place)
    moved = 2 * block.numel() * block.element_size() / seconds(lambda: block.clone())
    return SimpleNamespace(
        cuda=cuda,
        name=torch.cuda.get_device_name() if cuda else "CPU",
        memory=memory,
        bandwidth=moved,
        bytes=block.element_size(),
        operations=2 * len(square) ** 3 / seconds(lambda: square @ square),
    )


def seconds(work) -> float:
    """The fastest of five, the first thrown away."""
    import torch

    times = []
    for _ in range(6):
        started = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def about_machine(run: Run, device: SimpleNamespace) -> Iterator[Line]:
    import torch

    listed = guard.gpus()
    if listed and not device.cuda:
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
        seen = f"nvidia-smi lists {len(listed)} GPU(s), but PyTorch is built for {built} and sees none"
        yield "wrong", f"{seen}: update the driver, or remove .venv and set TORCH_INDEX to a build for it"
    elif device.cuda:
        free = f"{device.memory / 1e9:.0f} GB free"
        yield "ok", f"{len(listed)} x {device.name}, {free}, CUDA {torch.version.cuda}, bfloat16"
    else:
        yield "note", f"no GPU: {run.cores} cores, {device.memory / 1e9:.0f} GB of memory free, float32"


def about_disk(run: Run) -> Iterator[Line]:
    specs = [params.load_model(name) for name in run.values["models"]]
    if not any(map(hub.remote, specs)):
        yield "ok", "every model lies in a local folder"
        return
    wanted, (place, free) = (
        sum(hub.missing(spec, hub.TEXTS + hub.WEIGHTS) for spec in specs if hub.remote(spec)),
        hub.room(),
    )
    text = f"{wanted / 1e9:.1f} GB of weights to fetch to {place}, {free / 1e9:.0f} GB free"
    yield ("ok", text) if wanted < 0.95 * free else ("wrong", f"{text}: free some, or set HF_HOME to a larger disk")


def about_dataset(run: Run, name: str) -> Iterator[Line]:
    from lib import questions

    spec = params.load_dataset(name)
    examples = questions.limited(questions.load(spec), run.values["limit"])
    source = spec.source if isinstance(spec.source, str) else ", ".join(spec.source.values())
    split = [sum(e.split == part for e in examples) for part in (questions.CALIBRATION, questions.EVALUATION)]
    yield "ok", f"{split[0]} calibration and {split[1]} evaluation questions from {source}"


# ---- a model


def about_model(run: Run, name: str, device: SimpleNamespace) -> Iterator[Line]:
    spec = params.load_model(name)
    folder = local_copy(spec)
    yield "ok", f"{spec.source}" + (f" at {spec.revision[:12]}" if spec.revision else "")
    lm, network, generation = parts(name, spec, folder)
    yield from about_prompt(run, lm)
    yield from about_decoding(spec, generation)
    yield from about_network(network)
    yield from about_cost(run, lm, network, device)


def local_copy(spec: params.Model) -> str:
    """The folder with a model's configuration and tokenizer; from the hub these alone are fetched."""
    from lib import models

    if hub.remote(spec):
        hub.resolve("model", spec.source, spec.revision)
        return hub.download(spec, hub.TEXTS)
    folder = models.check_source(spec)
    if not list(Path(folder).glob("*.safetensors")):
        raise UserError(f"{spec.source} holds no *.safetensors, the only weights that are loaded")
    return folder


def parts(name: str, spec: params.Model, folder: str) -> tuple[Any, Any, dict]:
    """A language model without weights, the network without memory, and the model's own decoding settings."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, logging

    from lib import models

    logging.set_verbosity_error()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"can't be loaded: {str(error).strip().splitlines()[0]:.200}") from error
    models.set_padding(tokenizer)
    try:
        own = GenerationConfig.from_pretrained(folder).to_diff_dict()
    except OSError:
        own = {}
    return models.LanguageModel(name, spec, network, tokenizer, [], {}), network, own


def about_prompt(run: Run, lm: Any) -> Iterator[Line]:
    """Template, beginning-of-sequence token, date, thinking, option and delimiter tokens."""
    from lib import answers, generation, models, verification

    if not lm.tokenizer.chat_template:
        raise UserError("its tokenizer has no chat template: models that were not taught to chat can't be asked")
    try:
        text = generation.prompt_text(lm, EXAMPLE, run.values["demonstration"])
    except Exception as error:  # a template raises what it likes
        hint = "; if it knows no system role, write `system_prompt: false`" if lm.spec.system_prompt else ""
        raise UserError(f"its chat template fails: {str(error).strip().splitlines()[0]:.150}{hint}") from error
    ids, bos = models.encode(lm, text), lm.tokenizer.bos_token
    begins = "one beginning-of-sequence token" if bos and ids[0] == lm.tokenizer.bos_token_id else "none of its own"
    yield "ok", f"the prompt is rendered in {len(ids)} tokens, {begins}"
    dated = all(word in lm.tokenizer.chat_template for word in ("strftime_now", "date_string"))
    if dated and not lm.spec.date_string:
        yield "wrong", "its template writes today's date, so prompts change every day: set `date_string`"
    closes = answers.CLOSING_TAG in lm.tokenizer.get_vocab()
    if lm.spec.thinking and not closes:
        yield "note", f"{answers.CLOSING_TAG} is no token of its own; thinking is told from the answer by that text"
    if not lm.spec.thinking and "<think>" in text[-20:] and answers.CLOSING_TAG not in text[-40:]:
        yield "wrong", "its template opens a thinking block: write `thinking: true`"
    found = verification.spellings(lm)
    yield "ok", "option tokens: " + ", ".join(f"{spelling!r} {index}" for spelling, index in found.items())
    pieces = answers.token_texts(lm.tokenizer, models.encode(lm, "\n#### 1234"))
    yield "ok", "the answer is written as " + " ".join(map(repr, pieces))


def about_decoding(spec: params.Model, own: dict) -> Iterator[Line]:
    """Where the file's settings are not the model's own."""
    ours = {"temperature": spec.temperature, "top_p": spec.top_p, "top_k": max(spec.top_k, 0), "min_p": spec.min_p}
    others = [
        f"{name} {own[name]:g} (here {value:g})" for name, value in ours.items() if name in own and own[name] != value
    ]
    if others:
        yield "note", "its own generation_config says " + ", ".join(others)


def about_network(network: Any) -> Iterator[Line]:
    from collections import Counter

    from lib import dropout

    sites = Counter(type(module).__name__ for module in dropout.sites(network))
    if not sites:
        yield "wrong", f"a {type(network).__name__} has nowhere to drop anything out: c_BALD can't be had"
    else:
        yield "ok", "dropout sites: " + ", ".join(f"{count} {kind}" for kind, count in sites.items())


def about_cost(run: Run, lm: Any, network: Any, device: SimpleNamespace) -> Iterator[Line]:
    """Memory, and hours for all datasets, at TOKENS per response."""
    from lib import generation, models

    values, spec, config = run.values, lm.spec, network.config.get_text_config()
    weights = sum(p.numel() for p in network.parameters())
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cell = 2 * config.num_hidden_layers * heads * width * device.bytes
    prompt = len(models.encode(lm, generation.prompt_text(lm, EXAMPLE, values["demonstration"]))) + QUESTION
    longest = prompt + (spec.max_new_tokens or values["max_new_tokens"])
    batch = max(1, values["batch_tokens"] // longest)
    memory = 1.1 * weights * device.bytes + cell * max(values["batch_tokens"], longest)
    need = f"{weights / 1e9:.2g} billion parameters, up to {memory / 1e9:.2g} GB with {batch} rows at once"
    if 1.1 * weights * device.bytes > device.memory:
        yield "wrong", f"{need}: {device.name} has {device.memory / 1e9:.0f} GB free, too little for the weights alone"
    elif memory > device.memory:
        room = int((device.memory - 1.1 * weights * device.bytes) / cell)
        yield "wrong", f"{need}: {device.name} has {device.memory / 1e9:.0f} GB free; batch_tokens {room} would fit"
    else:
        yield "ok", need
    rows = sum(min(s.calibration + s.evaluation, 2 * values["limit"] or 10**9)
               for s in map(params.load_dataset, values["datasets"]))  # fmt: skip
    tokens = min(TOKENS[spec.thinking], spec.max_new_tokens or values["max_new_tokens"])
    estimate = hours(values, weights, rows, batch, prompt, tokens, device)
    yield "note", f"about {estimate:.2g} hours for {rows} questions, at {tokens} tokens a response"


def hours(
    values: dict, weights: int, rows: int, batch: int, prompt: int, tokens: int, device: SimpleNamespace
) -> float:
    """Decoding is bound by reading the weights, a step each (a batch runs to its longest response, say twice the mean);
    verification and dropout passes by arithmetic, of which a third of the peak is reached."""
    decoding = rows / batch * 2 * tokens * max(weights * device.bytes / device.bandwidth,
                                               2 * weights * batch / device.operations)  # fmt: skip
    passes = values["dropout_passes"] * (rows + values["dropout_tuning"] * (len(values["dropout_rates"]) - 1))
    encoded = rows * (prompt + VERIFY) + passes * (prompt + tokens)
    return (decoding + encoded * 2 * weights / (device.operations / 3)) / 3600


def main(run: Run) -> int:
    """As run.py calls it."""
    with suppress(UserError):  # said again, model by model
        hub.pin(run)
    return check(run)
