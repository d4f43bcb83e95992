"""Check whether a model supports a run, before its weights are loaded.

This needs only its configuration, its tokenizer and its architecture on the meta device. Each check
gives a line: `ok`; `note`, for information; or `wrong`, with the remedy.

Some kinds of networks keep state otherwise than in a cache of keys and values. In some, dropout
takes no effect. Neither can be told from a name, and both would show only after hours. So they are
tried on a network of the same kind with few layers and random weights, on the processor.
"""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Cache, logging

from lib.errors import MissingSignalError, UserError, first_line
from lib.generate import generation, p_true, seeded_dropout
from lib.generate.sampling import encode_prefix, repeat_row, sample_batch
from lib.models import checkpoints, loading
from lib.models.loading import LanguageModel
from lib.params import Model
from lib.responses.rows import Request
from lib.tasks import prompts
from lib.tasks.datasets import Example
from lib.tasks.thinking import find_open_family

Line = tuple[str, str]  # ok, note or wrong; the result
Values = Mapping[str, Any]  # parameters of a run
QUESTION_TOKENS = 60  # how much longer a question is than prompts.EXAMPLE
# sizes of the network that is tried, by what their names in configurations hold
LARGEST = {
    "intermediate|ffn_dim": 64,
    "experts": 4,
    "experts_per|top_k_exp": 2,
    "^(n|topk)_group$": 1,
    "vocab": 512,
}
# of the batch that is tried: tokens of a prompt, and those that all share
ROWS, TOKENS, SHARED, STEPS = 8, 14, 4, 12
SPREAD = 0.08  # standard deviation of random weights, four times the usual
FAR = 1e-3  # difference of logits that is no rounding, in multiples of the largest


def load_outline(
    name: str, spec: Model, folder: str, *, whole: bool, **named: Any
) -> LanguageModel:
    """Load a model without weights: its network is on torch's meta device.

    Parameters
    ----------
    name, spec
        The model, as its parameter file describes it.
    folder
        The folder of its configuration and tokenizer.
    whole
        Whether the folder must have the weights, too. Then their headers must match the network.
    named
        `gguf_file`, if they are all in one file of this name.

    Raises
    ------
    UserError
        The files can't be read, or do not match each other.
    """
    logging.set_verbosity_error()
    with checkpoints.loading_errors():
        config = checkpoints.read_config(folder, **named)
        tokenizer = checkpoints.read_tokenizer(folder, **named)
        network = (
            checkpoints.load_network(folder, device_map="meta")
            if whole
            else checkpoints.outline_network(config)
        )
        ends = checkpoints.read_end_tokens(network, tokenizer, Path(folder))
    return LanguageModel(name, spec, network, tokenizer, ends, facts={})


def report_on_model(
    lm: LanguageModel, values: Values, questions: Mapping[str, Sequence[str]]
) -> Iterator[Line]:
    """Yield a line for each check of what the notebooks need.

    Raise UserError if an error rules out further checks.

    Parameters
    ----------
    values : the parameters of the run
    questions : those of each available dataset
    """
    yield from check_prompt(lm, values)
    yield from check_context(lm, values, questions)
    yield from check_kind(lm)


def render_prompt(lm: LanguageModel, values: Values, question: str = prompts.EXAMPLE) -> str:
    """Return the prompt of a question. Raise UserError if the tokenizer has no chat template that
    can render it.
    """
    if not lm.tokenizer.chat_template:
        raise UserError(f"its tokenizer has no chat template: {why_no_template(lm)}")
    try:
        return generation.solving_prompt(lm, question, values["demonstration"])
    except Exception as error:  # templates raise many types
        hint = ""
        if lm.spec.system_prompt:
            hint = "; if it knows no system role, write `system_prompt: false`"
        raise UserError(f"its chat template fails: {first_line(error):.150}{hint}") from error


def why_no_template(lm: LanguageModel) -> str:
    """Return what to do for a tokenizer without a chat template; with images, it may lie apart."""
    if (Path(lm.tokenizer.name_or_path) / "chat_template.json").is_file():
        return "chat_template.json is not read: write the text in it into chat_template.jinja"
    return "models that were not taught to chat can't be asked"


def estimate_prompt(lm: LanguageModel, values: Values) -> int:
    """Return the usual length of a prompt in tokens, for datasets that are not available."""
    return len(loading.encode(lm, render_prompt(lm, values))) + QUESTION_TOKENS


def find_longest_prompt(
    lm: LanguageModel, values: Values, questions: Mapping[str, Sequence[str]]
) -> tuple[int, str]:
    """Return the tokens of the longest prompt, and its dataset; an estimate if no dataset is
    available.
    """
    if not questions:
        return estimate_prompt(lm, values), "estimated"
    prompts_by_dataset = []
    for dataset, texts in questions.items():
        encoded = lm.tokenizer(list(texts), add_special_tokens=False).input_ids
        lengths = [len(ids) for ids in encoded]
        longest = texts[lengths.index(max(lengths))]
        prompt = loading.encode(lm, render_prompt(lm, values, longest))
        prompts_by_dataset.append((len(prompt), f"of {dataset}"))
    return max(prompts_by_dataset)


def check_prompt(lm: LanguageModel, values: Values) -> Iterator[Line]:
    """Check that the template writes what it is given and nothing that changes, in tokens of the
    network; and that the options of P(True) are tokens that can be compared.
    """
    text = render_prompt(lm, values)
    ids = loading.encode(lm, text)
    begins = "none of its own"
    if ids[:1] == [lm.tokenizer.bos_token_id]:
        begins = "one beginning-of-sequence token"
    yield "ok", f"the prompt is rendered in {len(ids)} tokens, {begins}"
    yield from check_template(lm, text)
    last = max(ids, default=0)
    if last >= lm.vocab_size:
        size = f"the network's {lm.vocab_size} tokens"
        yield "wrong", f"its prompt holds token {last}, which is none of {size}"
    spellings = prompts.describe_spellings(p_true.option_tokens(lm), values["options"])
    yield "ok", f"P(True) counts {spellings}"


def check_template(lm: LanguageModel, text: str) -> Iterator[Line]:
    """Check that a prompt's text holds what the template was given, and nothing that changes."""
    if "strftime_now" in str(lm.tokenizer.chat_template) and not lm.spec.date_string:
        reason = "its template writes today's date, so prompts change every day"
        yield "wrong", f"{reason}: set `date_string`"
    if prompts.EXAMPLE not in text or prompts.INSTRUCTION.strip() not in text:
        yield "wrong", "its chat template does not write question and instruction as they are given"
    if lm.spec.system_prompt and prompts.SYSTEM not in text:
        yield "note", "its chat template leaves out the system prompt: write `system_prompt: false`"
    if not lm.spec.thinking and find_open_family(text):
        yield "wrong", "its template opens a thinking block: write `thinking: true`"
    if lm.spec.thinking and not lm.family:
        reason = "its template has no switch and no mark of thinking that docs/extending.md lists"
        yield "wrong", f"{reason}, so no answer would be found after one: write `thinking: false`"


def check_context(
    lm: LanguageModel, values: Values, questions: Mapping[str, Sequence[str]]
) -> Iterator[Line]:
    """Check that the longest prompt, the longest response and the in-situ query fit in the model's
    context.
    """
    if lm.context is None:
        reason = "its configuration names no context length"
        yield "note", f"{reason}: whether prompt and response fit is not known"
        return
    prompt, where = find_longest_prompt(lm, values, questions)
    query = len(p_true.query_ids(lm))
    new = lm.spec.max_new_tokens or values["max_new_tokens"]
    left = lm.context - prompt - query
    parts = (
        f"the longest prompt ({where}: {prompt} tokens), {new} new tokens and the query ({query})"
    )
    if new <= left:
        yield "ok", f"{parts} fit its context of {lm.context}"
        return
    remedy = "it can't be asked these questions"
    if left > 0:
        remedy = f"write `max_new_tokens: {left}` in its file"
    yield "wrong", f"{parts} do not fit its context of {lm.context}: {remedy}"


def check_kind(lm: LanguageModel) -> Iterator[Line]:
    """Check on a random network of its kind that it can be read from a cache, and that dropout
    acts.
    """
    kind = type(lm.model).__name__
    try:
        twin = random_twin(lm)
    except Exception as error:  # of the network's own code
        yield "note", f"a small {kind} can't be tried: {first_line(error)}"
        return
    reason = why_no_cache(twin)
    if reason:
        limit = f"a {kind} can't be read from a cache of keys and values, as a run does"
        yield "wrong", f"{limit}: {reason:.150}"
    try:
        seeded_dropout.assert_dropout_active(twin)
    except MissingSignalError as missing:
        yield "note", f"{missing}: c_BALD stays empty"
        return
    sites = seeded_dropout.count_dropout_modules(lm.model)
    counts = [f"{count} {module}" for module, count in sites.items()]
    yield "ok", f"dropout sites: {', '.join(counts)}"


# ---- networks of the same kind


def random_twin(lm: LanguageModel) -> LanguageModel:
    """Return a model of the same kind with random weights and few layers, but every type of layer
    that it has.

    It has fewer neurons, experts and tokens. The width of the residual stream stays, since other
    sizes depend on it in ways of each kind. Weights are larger than usual, so that no layer goes
    unseen. Raises what the network's own code raises.
    """
    config = copy.deepcopy(lm.model.config)
    reduce_config(config)
    for name in config.sub_configs:  # of text, of images
        part = getattr(config, name, None)
        if part is not None:
            reduce_config(part)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    network(torch.ones((2, TOKENS), dtype=torch.long), use_cache=False)
    return replace(lm, model=network)


def reduce_config(config: Any) -> None:
    """Leave few layers of a configuration, or of its part, of every type, and small sizes."""
    values = vars(config)
    if getattr(config, "num_hidden_layers", 0):
        reduce_layers(config)
    for pattern, most in LARGEST.items():
        for name, value in values.items():
            if type(value) is int and re.search(pattern, name):
                values[name] = min(value, most)
    config.initializer_range = SPREAD
    config.bos_token_id = None
    config.eos_token_id = None
    config.pad_token_id = 0  # some look up the embedding of padding


def reduce_layers(config: Any) -> None:
    """Leave few layers, but at least one of every type."""
    values = vars(config)
    layers = config.num_hidden_layers
    few = 2
    types = getattr(config, "layer_types", None)
    if types:
        last_new = max(types.index(kind) for kind in types)
        few = max(2, last_new + 1)
    few = min(few, layers)
    if values.get("num_kv_shared_layers"):
        # each type of layer once more, with the keys and values of the earlier one
        values["num_kv_shared_layers"] = min(few, layers - few)
        few = min(layers, 2 * few)
    for name, value in values.items():
        if isinstance(value, list) and len(value) == layers:
            values[name] = value[:few]
    config.num_hidden_layers = few


@torch.inference_mode()
def why_no_cache(lm: LanguageModel) -> str:
    """Return why rows can't be read from a cache as a run does; empty if they can.

    A batch of prompts with one beginning is padded, and loses the rows that end. Its most probable
    tokens, and the logits of each row that is read in parts after its beginning, must be those of a
    plain forward pass.
    """
    prompts = random_prompts(lm.vocab_size)
    example = Example("", "evaluation", "", "")
    requests = [Request(example, None, prompt, 0, STEPS, SHARED) for prompt in prompts]
    most_probable = lm.spec.model_copy(update={"top_k": 1})
    greedy = replace(lm, spec=most_probable, eos=list(range(0, lm.vocab_size, 3)))
    try:
        opening = encode_prefix(lm, prompts[0][:SHARED])
        for prompt, response in zip(prompts, sample_batch(greedy, requests), strict=True):
            ids = torch.tensor([prompt + response])
            plain = lm.model(ids, use_cache=False).logits[0]
            predicting = plain[len(prompt) - 1 : -1]
            if predicting.argmax(-1).tolist() != response:
                return "tokens of a batch differ from those of a plain forward pass"
            difference = read_in_parts(lm, opening, ids) - plain[SHARED:]
            largest = difference.abs().max()
            if not largest <= FAR * plain.abs().max():  # NaN is not, either
                return "logits after a cache differ from those of a plain forward pass"
    except Exception as error:  # of the network's own code
        return f"{type(error).__name__}: {first_line(error)}"
    return ""


def random_prompts(vocabulary: int) -> list[list[int]]:
    """Return prompts of several lengths, with one beginning."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(1, vocabulary, (ROWS, TOKENS), generator=generator).tolist()
    opening = rows[0][:SHARED]
    prompts = []
    for number, row in enumerate(rows):
        rest = row[: TOKENS - SHARED - number]
        prompts.append(opening + rest)
    return prompts


def read_in_parts(lm: LanguageModel, opening: Cache, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits (tokens, V) of a row's token ids (1, tokens) after its start, read a few
    at a time.
    """
    cache = repeat_row(opening, 1)
    logits = []
    for part in ids[:, SHARED:].split(5, 1):
        logits.append(lm.model(part, past_key_values=cache).logits[0])
    return torch.cat(logits)
