"""`./run_all.sh check PROFILE`: can this machine do the run, and what would it take? Nothing is generated or kept.

A line per thing looked at: ok; note (good to know); or wrong, with what to do about it. Exit code 2 if anything is
wrong. What a model would cost is in cost.py.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lib import params
from lib.project import UserError, first_line, one_line
from workflow import cost, guard, hub, serving, weights
from workflow.cost import Device
from workflow.jobs import Run

Line = tuple[str, str]  # ok, note or wrong; what was seen
MOST = {"ok": 1000, "note": 1000, "wrong": 300}  # characters of a line
SOME = 50  # questions of a dataset whose prompts are measured
READ = 5e9  # bytes of weights up to which each is looked at; of more, when they are loaded
NOT_AT_HAND = (
    "it is not at hand (its file names no `source`): the log-probabilities of its responses give the Seq and Ans "
    "estimators and isotonic regression; P(True), passes with dropout, temperature and ablations stay empty"
)
LARGE = 2e9  # parameters above which a model is run on a processor only where that is said


def main(run: Run, say: Callable[[str], None]) -> int:
    """Say everything about a run; the exit code."""
    run, wrong = within_reach(run, say)
    with suppress(UserError):  # said again, model by model
        hub.pin(run)
    for subject, lines in subjects(run):
        for level, text in explained(lines):
            say(one_line(f"{level:5}  {subject}: {text}", MOST[level]))
            wrong += level == "wrong"
    say(f"{run.name}: {f'{wrong} thing(s) to mend' if wrong else 'ready'}; nothing was run")
    return 2 if wrong else 0


def within_reach(run: Run, say: Callable[[str], None]) -> tuple[Run, int]:
    """The run without what is on the hub alone, where that does not answer, and whether something is: said once, here,
    and looked at no further."""
    wanted = {kind: [name for name in run.values[f"{kind}s"] if hub.remote(load(name))]
              for kind, load in params.LOADERS.items()}  # fmt: skip
    if not any(wanted.values()) or hub.answers():
        return run, 0
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")  # before its client is imported
    absent = {kind: [name for name in names if not at_hand(kind, name)] for kind, names in wanted.items()}
    if not any(absent.values()):
        say("note   hub: it does not answer; everything that the run reads of it is on this machine")
        return run, 0
    what = "; ".join(f"{kind}s {', '.join(names)}" for kind, names in absent.items() if names)
    say(f"wrong  hub: it does not answer, and not on this machine are {what}: connect, or name folders (a model's "
        "`source`, --data for datasets); what they would take is not known without their configurations")  # fmt: skip
    left = {f"{kind}s": [name for name in run.values[f"{kind}s"] if name not in absent[kind]] for kind in absent}
    return replace(run, values=run.values | left), 1


def at_hand(kind: str, name: str) -> bool:
    """Whether what a run reads of the hub was fetched before."""
    if kind == "model":
        return hub.cached(params.load_model(name))
    from lib.tasks import datasets

    with suppress(UserError):
        return bool(datasets.load(params.load_dataset(name)))
    return False


def explained(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines, and what ended them early, whatever that was: what is looked at is others' files and packages."""
    try:
        yield from lines
    except UserError as problem:
        yield "wrong", str(problem)
    except Exception as problem:
        yield "wrong", f"can't be looked at ({type(problem).__name__}: {first_line(problem)})"


def subjects(run: Run) -> Iterator[tuple[str, Iterator[Line]]]:
    device = cost.measure_device(run.jobs[0].threads)
    yield "machine", about_machine(run, device)
    yield "disk", about_disk(run)
    yield "engine", about_engine(run)
    texts = questions(run)
    for name in run.values["datasets"]:
        yield f"dataset {name}", about_dataset(run, name)
    for name in run.values["models"]:
        yield f"model {name}", about_model(run, name, device, texts)


# ---- machine, disk and datasets


def about_machine(run: Run, device: Device) -> Iterator[Line]:
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
        ratio = cost.bfloat16_seconds()
        units = "" if ratio < 1 else ", for it has no matrix units (AMX)"
        half = f"bfloat16 takes {ratio:.1f} times as long as float32{units}"
        yield "note", f"no GPU: {run.cores} cores, {device.memory / 1e9:.0f} GB of memory free, float32; {half}"


def about_disk(run: Run) -> Iterator[Line]:
    models = [params.load_model(name) for name in run.values["models"]]
    specs = [spec for spec in models if hub.remote(spec)]
    if models and not specs:
        files = ", or is a GGUF file" if any(spec.gguf for spec in models) else ""
        yield "ok", f"every model lies in a local folder{files}"
        return
    if not specs:
        return
    wanted = sum(hub.missing(spec) for spec in specs)
    place, free = hub.room()
    text = f"{wanted / 1e9:.1f} GB of weights to fetch to {place}, {free / 1e9:.0f} GB free"
    if wanted <= hub.FILLED * free:
        yield "ok", text
    else:
        yield "wrong", f"{text}: free some, or set HF_HOME to a larger disk"


def about_engine(run: Run) -> Iterator[Line]:
    """What draws, where that is not transformers."""
    if not serving.asked(run):
        return
    if named := os.environ.get("VLLM_PYTHON"):
        yield "ok", f"vLLM draws, by the Python that VLLM_PYTHON names ({Path(named).name})"
    elif reason := serving.refusal(run):
        yield "wrong", reason
    else:
        there = "is there" if serving.made() else "will be made, once"
        yield "ok", f"vLLM draws, in {serving.VENV.name}, which {there}; one pass of the model rescores what it drew"


def about_dataset(run: Run, name: str) -> Iterator[Line]:
    from lib.tasks import datasets

    spec, examples = params.load_dataset(name), chosen(run, name)
    rows = Counter(example.split for example in examples)
    source = spec.source if isinstance(spec.source, str) else ", ".join(spec.source.values())
    if spec.folder:
        source = f"{', '.join(file.path for file in spec.files.values())} in {spec.folder}, of the right sha256"
    split = f"{rows[datasets.CALIBRATION]} calibration and {rows[datasets.EVALUATION]} evaluation questions"
    yield "ok", f"{split} from {source}"


def chosen(run: Run, name: str) -> list[Any]:
    """The examples of a dataset that the run takes."""
    from lib.tasks import datasets

    examples = datasets.load(params.load_dataset(name))
    return datasets.first(examples, run.values["limit"], run.values["seed"], name, run.values["example"])


def questions(run: Run) -> dict[str, list[str]]:
    """The questions of each dataset that can be read here."""
    found = {}
    for name in run.values["datasets"]:
        with suppress(UserError):  # said where the dataset is looked at, and by the job that reads it
            found[name] = [example.question for example in chosen(run, name)]
    return found


# ---- models


def about_model(run: Run, name: str, device: Device, texts: dict[str, list[str]]) -> Iterator[Line]:
    spec = params.load_model(name)
    if spec.responses:
        yield from about_responses(run, spec)
    if not spec.at_hand:
        yield "note", NOT_AT_HAND
        return
    if spec.gguf:
        yield from weights.about(spec)
        if weights.pending(spec):
            return
    folder = local_copy(spec)
    yield "ok", f"{spec.source}" + (f" at {spec.revision[:12]}" if spec.revision else "")
    lm, network, generation = parts(name, spec, folder)
    if not hub.remote(spec):
        yield from about_weights(folder)
    yield from about_asking(run, lm, network, texts)
    yield from about_decoding(spec, generation)
    yield from about_cost(run, lm, network, device, texts, "" if hub.remote(spec) else folder)


def about_responses(run: Run, spec: params.Model) -> Iterator[Line]:
    """Whether a model's file holds a response to every question of the run, with what will be read of it."""
    from lib.generate import logged

    for name in run.values["datasets"]:
        examples = chosen(run, name)
        found = logged.read(spec, name, examples)
        told = sum(bool(found[example.example_id].stated) for example in examples)
        where = params.told(str(spec.responses).format(dataset=name))
        yield "ok", f"{where} answers the {len(examples)} questions of {name}, {told} with log-probabilities"


def about_asking(run: Run, lm: Any, network: Any, texts: dict[str, list[str]]) -> Iterator[Line]:
    """Whether a model can do what every job asks of it: all of that can be told without its weights."""
    yield from about_prompt(run, lm)
    yield from about_rows(run, lm, network)
    yield from about_context(run, lm, texts)
    yield from about_network(network)
    yield from about_processor(run, lm, network)


def unfit(run: Run, names: list[str]) -> list[str]:
    """Of those models of a run that can't be asked as it asks, a line with the reason, before any job is done."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else they complain when a process is forked later
    reasons, texts = [], questions(run) if names else {}
    for name in names:
        found = [text for level, text in explained(looked_at(run, name, texts)) if level == "wrong"]
        reasons += [text if text.startswith("model '") else f"model '{name}': {text}" for text in found[:1]]
    return reasons


def cards(run: Run, names: list[str]) -> dict[str, int]:
    """GPUs that models take which are too large for one of this machine's; no word of the others."""
    memory = guard.gpu_memory(guard.gpus()) if run.gpus > 1 and not run.cluster else []
    if not memory:
        return {}
    from lib.generate import models, placement

    found = {}
    for name in names:
        spec = params.load_model(name)
        network = parts(name, spec, local_copy(spec))[1]
        weights = sum(parameter.numel() for parameter in network.parameters()) * models.dtype_of(spec).itemsize
        if (count := placement.cards(weights, memory)) > 1:
            found[name] = count
    return found


def looked_at(run: Run, name: str, texts: dict[str, list[str]]) -> Iterator[Line]:
    spec = params.load_model(name)
    if spec.responses:
        yield from about_responses(run, spec)
    if not spec.at_hand:
        return
    lm, network, _ = parts(name, spec, local_copy(spec))
    yield from about_asking(run, lm, network, texts)


def local_copy(spec: params.Model) -> str:
    """The folder with a model's configuration and tokenizer; from the hub these alone are fetched."""
    from lib.generate import models

    if hub.remote(spec):
        return hub.texts(spec)
    folder = models.check_source(spec)
    if not list(Path(folder).glob("*.safetensors")):
        raise UserError(f"{spec.source} holds no *.safetensors, the only weights that are loaded")
    return folder


def parts(name: str, spec: params.Model, folder: str) -> tuple[Any, Any, dict]:
    """A language model without weights, the network without memory, and the model's own decoding settings."""
    from transformers import AutoTokenizer, GenerationConfig, logging

    from lib.generate import checkpoint, models

    logging.set_verbosity_error()
    try:
        local = not hub.remote(spec)  # of the hub's weights, some or none may have been fetched
        checkpoint.check_files(Path(folder), whole=local)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        network = without_memory(folder, local)
        own = network.generation_config
        if (Path(folder) / "generation_config.json").exists():
            own = GenerationConfig.from_pretrained(folder)
        ends = models.end_tokens(network, tokenizer, own)
    except UserError:
        raise
    except Exception as error:  # transformers and what it reads the files with raise what they like
        raise UserError(f"can't be loaded: {first_line(error)}") from error
    return models.LanguageModel(name, spec, network, tokenizer, ends, {}), network, own.to_diff_dict()


def without_memory(folder: str, whole: bool) -> Any:
    """The network on torch's meta device. In a `whole` folder the headers of its weights are held against it, by what
    loading itself goes by; raises UserError where they do not fit."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, logging

    from lib.generate import checkpoint

    logging.disable_progress_bar()
    if whole and any(Path(folder).glob("*.safetensors")):
        network, info = AutoModelForCausalLM.from_pretrained(
            folder, device_map="meta", trust_remote_code=False, use_safetensors=True, output_loading_info=True)
        checkpoint.check_loaded(info)
        return network
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def about_weights(folder: str) -> Iterator[Line]:
    """Whether every weight in a folder is a finite number, where they are not too many to look at."""
    from lib.generate import checkpoint

    size = sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
    if 0 < size <= READ:
        checkpoint.check_finite(checkpoint.stored(Path(folder)))
        yield "ok", f"its weights ({size / 1e9:.2g} GB) are whole, and finite numbers"


def about_prompt(run: Run, lm: Any) -> Iterator[Line]:
    """Template, beginning-of-sequence token, date, thinking, option and delimiter tokens."""
    from lib.generate import models, p_true
    from lib.tasks import answers

    text = rendered(run, lm)
    ids, bos = models.encode(lm, text), lm.tokenizer.bos_token
    if not ids:
        raise UserError("its chat template writes nothing")
    begins = "one beginning-of-sequence token" if bos and ids[0] == lm.tokenizer.bos_token_id else "none of its own"
    yield "ok", f"the prompt is rendered in {len(ids)} tokens, {begins}"
    dated = all(word in lm.tokenizer.chat_template for word in ("strftime_now", "date_string"))
    if dated and not lm.spec.date_string:
        yield "wrong", "its template writes today's date, so prompts change every day: set `date_string`"
    yield from about_question(lm, text)
    closes = answers.CLOSING_TAG in lm.tokenizer.get_vocab()
    if lm.spec.thinking and not closes:
        yield "note", f"{answers.CLOSING_TAG} is no token of its own; thinking is told from the answer by that text"
    if not lm.spec.thinking and "<think>" in text[-20:] and answers.CLOSING_TAG not in text[-40:]:
        yield "wrong", "its template opens a thinking block: write `thinking: true`"
    yield from about_options(run, p_true.spellings(lm))
    pieces = answers.token_texts(lm.tokenizer, models.encode(lm, "\n#### 1234"))
    yield "ok", "the answer is written as " + " ".join(map(repr, pieces))


def about_question(lm: Any, text: str) -> Iterator[Line]:
    """Whether a rendered prompt holds what was to be asked."""
    from lib.tasks import prompts

    for what, wanted in (("question", prompts.EXAMPLE), ("instruction how to answer", prompts.INSTRUCTION.strip())):
        if wanted not in text:
            yield "wrong", f"its chat template does not write the {what} as it is given"
    if lm.spec.system_prompt and prompts.SYSTEM not in text:
        yield "note", "its chat template leaves out the system prompt: write `system_prompt: false`"


def about_rows(run: Run, lm: Any, network: Any) -> Iterator[Line]:
    """Whether the network has a row for each token of a prompt."""
    from lib.generate import models

    size, last = network.get_input_embeddings().weight.shape[0], max(models.encode(lm, rendered(run, lm)))
    if last >= size:
        token = lm.tokenizer.convert_ids_to_tokens(last)
        yield "wrong", f"its prompt holds {token!r} ({last}), which is none of the network's {size} tokens"


def about_options(run: Run, spellings: dict[str, int]) -> Iterator[Line]:
    """The tokens of the options, and which of them count: a form that one of the two lacks does not."""
    from lib.tasks import options

    yield "ok", "option tokens: " + ", ".join(f"{spelling!r} {index}" for spelling, index in spellings.items())
    asked = run.values["options"]
    true, false = options.counted(spellings, asked)
    text = f"P(True) counts {len(true)} spelling(s) of each option, {options.described(spellings, asked)}"
    single = [repr(s) for s in spellings if s.strip() in asked.split("/") and s not in true + false]
    if single:
        yield "note", f"{text}; {', '.join(single)} has no counterpart and does not count"
    else:
        yield "ok", f"{text}; how much probability they hold stands under tab:insitu_ptrue"


def about_context(run: Run, lm: Any, texts: dict[str, list[str]]) -> Iterator[Line]:
    """Whether the longest prompt, a response of the most tokens and the in-situ query fit the model's context."""
    from lib.generate import p_true

    if lm.context is None:
        yield "note", "its configuration names no context length: whether prompt and response fit is not known"
        return
    prompt, where = longest_prompt(run, lm, texts)
    new, query = lm.spec.max_new_tokens or run.values["max_new_tokens"], len(p_true.query(lm))
    left = lm.context - prompt - query
    text = f"the longest prompt ({where}: {prompt} tokens), {new} new tokens and the query ({query})"
    if new <= left:
        yield "ok", f"{text} fit its context of {lm.context}"
    else:
        remedy = f"write `max_new_tokens: {left}` in its file" if left > 0 else "it can't be asked these questions"
        yield "wrong", f"{text} do not fit its context of {lm.context}: {remedy}"


def longest_prompt(run: Run, lm: Any, texts: dict[str, list[str]]) -> tuple[int, str]:
    """Tokens of the longest prompt, and whose it is. Without questions at hand, that of the example and some more."""
    from lib.generate import models

    found = [(len(models.encode(lm, rendered(run, lm))) + cost.QUESTION, "estimated")]
    for name, asked in texts.items():
        lengths = [len(ids) for ids in lm.tokenizer(asked, add_special_tokens=False).input_ids]
        question = asked[lengths.index(max(lengths))]
        found.append((len(models.encode(lm, rendered(run, lm, question))), f"of {name}"))
    return max(found[1:] or found)


def rendered(run: Run, lm: Any, question: str = "") -> str:
    """The prompt of a question (by default ours). Raises UserError where the tokenizer has no chat template that can
    write it."""
    from lib.generate import responses
    from lib.tasks import prompts

    if not lm.tokenizer.chat_template:
        raise UserError("its tokenizer has no chat template: models that were not taught to chat can't be asked")
    try:
        return responses.prompt_text(lm, question or prompts.EXAMPLE, run.values["demonstration"])
    except Exception as error:  # a template raises what it likes
        hint = "; if it knows no system role, write `system_prompt: false`" if lm.spec.system_prompt else ""
        raise UserError(f"its chat template fails: {first_line(error):.150}{hint}") from error


def about_decoding(spec: params.Model, own: dict) -> Iterator[Line]:
    """Where the file's settings are not the model's own."""
    ours = {"temperature": spec.temperature, "top_p": spec.top_p, "top_k": max(spec.top_k, 0), "min_p": spec.min_p}
    others = [f"{key} {own[key]} (here {ours[key]:g})" for key in ours if own.get(key, ours[key]) != ours[key]]
    if others:
        yield "note", "its own generation_config says " + ", ".join(others)


def about_network(network: Any) -> Iterator[Line]:
    from lib.generate import dropout

    sites = Counter(type(module).__name__ for module in dropout.sites(network))
    if not sites:
        yield "wrong", f"a {type(network).__name__} has nowhere to drop anything out: c_BALD can't be had"
    else:
        yield "ok", "dropout sites: " + ", ".join(f"{count} {kind}" for kind, count in sites.items())


def about_processor(run: Run, lm: Any, network: Any) -> Iterator[Line]:
    """Whether a large model would be run without a GPU, which nobody may have meant."""
    import torch

    weights = sum(parameter.numel() for parameter in network.parameters())
    there = run.gpus if run.cluster else torch.cuda.is_available()  # a node's are those that the profile asks for
    if weights <= LARGE or run.values.get("cpu") or there:
        return
    text = f"{weights / 1e9:.2g} billion parameters, and " + (
        "the file of the cluster asks for no GPU" if run.cluster else f"PyTorch ({torch.__version__}) sees no GPU here"
    )
    yield "wrong", f"{text}: say --cpu (or `cpu: true` in the profile) to run it on the processor, for days"


def about_cost(run: Run, lm: Any, network: Any, device: Device, texts: dict[str, list[str]] | None = None,
               folder: str = "") -> Iterator[Line]:  # fmt: skip
    """Memory, and hours for all datasets. In a local `folder` lie weights with which a step can be timed."""
    size, work = cost.Size.of(network, device.bytes), work_of(run, lm, texts)
    device = cost.in_precision(device, lm.spec)
    yield memory(size, work, device, run.gpus)
    step, passed, how = cost.step_seconds(size, work.batch, work.half, device), 0.0, "estimated"
    if work.served:
        work, step = cost.served(size, work, device)
    elif folder and size.weights <= cost.MIDDLE and cost.needed(size, work, device.bytes) < device.memory:
        with suppress(Exception):  # the estimate stands for a network that is called in another way
            (step, passed), how = cost.timed(folder, size, work, device), "measured"
    (low, high), dropout = cost.hours(size, work, step, device, passed)
    seen = " (as written before)" if written(run, lm.name) else ""
    text = f"about {low:.2g} to {high:.2g} hours for {work.rows} questions, at {work.tokens} tokens a response{seen}"
    where = f"{work.passes} passes with dropout" if work.passes else "dropout at the answer only"
    text += f", {dropout:.2g} of them for {where}"
    yield "note", f"{text}; a step of {work.batch} rows takes {1e3 * step[0]:.2g} to {1e3 * step[1]:.2g} ms, {how}"


def work_of(run: Run, lm: Any, texts: dict[str, list[str]] | None = None) -> cost.Work:
    """What the run asks of a model: prompts as long as those of questions at hand, responses as long as those that it
    wrote before."""
    from lib.generate import models, responses

    some = [question for asked in (texts or {}).values() for question in asked[:SOME]]
    lengths = [len(models.encode(lm, rendered(run, lm, question))) for question in some]
    prompt = sum(lengths) // len(lengths) if lengths else len(models.encode(lm, rendered(run, lm))) + cost.QUESTION
    few = run.values["demonstration"] == "few"
    shared = len(responses.prompt_beginning(lm, "few")) if few else 0
    return cost.Work.of(run.values, lm.spec, prompt, shared, written(run, lm.name))


def written(run: Run, name: str) -> float | None:
    """Mean tokens of a model's responses that are there, of an earlier run or shipped; none where there are none."""
    import pandas as pd

    from lib import store

    means = []
    for pair in store.found(run.name, "generations", store.pairs([name], run.values["datasets"])):
        with suppress(Exception):  # a damaged file is said by the run
            frame = pd.read_parquet(store.locate(run.name, "generations", pair), columns=["token_logprobs"])
            means.append(float(frame.token_logprobs.map(len).mean()))
    return sum(means) / len(means) if means else None


def memory(size: cost.Size, work: cost.Work, device: Device, gpus: int = 1) -> Line:
    """What weights and decoding need, beside what is free on a device, or on some of several alike."""
    from lib.generate import placement

    weights = 1.1 * size.weights * device.bytes
    each = cost.token_bytes(size, work)
    need = cost.needed(size, work, device.bytes)
    text = f"{size.weights / 1e9:.2g} billion parameters, up to {need / 1e9:.2g} GB with {work.batch} rows at once"
    free = f"{device.name} has {device.memory / 1e9:.0f} GB free"
    count = placement.cards(size.weights * device.bytes, [device.memory] * max(1, gpus))
    if device.cuda and count > 1:
        return "note", f"{text}: more than one {device.name} holds; its layers are spread over {count} of the {gpus}"
    if weights > device.memory:
        return "wrong", f"{text}: {free}, too little for the weights alone"
    if need > device.memory:
        return "wrong", f"{text}: {free}; batch_tokens {int((device.memory - weights) / each)} would fit"
    return "ok", text
