"""What `check` says of one model: prompt and tokens, decoding settings, dropout sites, memory and hours.

Weights are never loaded. Estimates are rough: they assume TOKENS per response and the speeds of this device.
"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lib import params
from lib.project import UserError
from workflow import hub
from workflow.jobs import Run

TOKENS = {False: 300, True: 4000}  # of a response, without and with thinking
QUESTION, VERIFY = 60, 400  # tokens by which a question is longer than EXAMPLE; of a standard verification prompt
Line = tuple[str, str]  # ok, note or wrong; what was found
EXAMPLE = "Ann has 3 pens and buys 4 more. How many pens does she have?"


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
    from lib.generate import models

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

    from lib.generate import models

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
    from lib.generate import models, p_true, responses
    from lib.tasks import answers

    if not lm.tokenizer.chat_template:
        raise UserError("its tokenizer has no chat template: models that were not taught to chat can't be asked")
    try:
        text = responses.prompt_text(lm, EXAMPLE, run.values["demonstration"])
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
    found = p_true.spellings(lm)
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

    from lib.generate import dropout

    sites = Counter(type(module).__name__ for module in dropout.sites(network))
    if not sites:
        yield "wrong", f"a {type(network).__name__} has nowhere to drop anything out: c_BALD can't be had"
    else:
        yield "ok", "dropout sites: " + ", ".join(f"{count} {kind}" for kind, count in sites.items())


def about_cost(run: Run, lm: Any, network: Any, device: SimpleNamespace) -> Iterator[Line]:
    """Memory, and hours for all datasets, at TOKENS per response."""
    from lib.generate import models, responses

    values, spec, config = run.values, lm.spec, network.config.get_text_config()
    weights = sum(p.numel() for p in network.parameters())
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cell = 2 * config.num_hidden_layers * heads * width * device.bytes
    prompt = len(models.encode(lm, responses.prompt_text(lm, EXAMPLE, values["demonstration"]))) + QUESTION
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
