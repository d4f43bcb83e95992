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
from transformers import AutoModelForCausalLM, logging

from lib.errors import MissingSignal, UserError, first_line
from lib.generate import generation, p_true, seeded_dropout
from lib.generate.sampling import encode_prefix, repeat_row, sample_batch
from lib.models import checkpoints, loading
from lib.models.loading import LanguageModel
from lib.params import Model
from lib.responses.rows import Request
from lib.tasks import prompts
from lib.tasks.datasets import Example
from lib.tasks.thinking import find_open

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
        config, tokenizer = (
            checkpoints.read_config(folder, **named),
            checkpoints.read_tokenizer(folder, **named),
        )
        network = (
            checkpoints.load_network(folder, device_map="meta")
            if whole
            else checkpoints.outline_network(config)
        )
        ends = checkpoints.read_end_tokens(network, tokenizer, Path(folder))
    return LanguageModel(name, spec, network, tokenizer, ends, facts={})


def check_model(
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
    can render it."""
    if not lm.tokenizer.chat_template:
        raise UserError(f"its tokenizer has no chat template: {why_no_template(lm)}")
    try:
        return generation.solving_prompt(lm, question, values["demonstration"])
    except Exception as error:  # templates raise many types
        hint = (
            "; if it knows no system role, write `system_prompt: false`"
            if lm.spec.system_prompt
            else ""
        )
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
    available."""
    found = []
    for dataset, texts in questions.items():
        lengths = [
            len(ids) for ids in lm.tokenizer(list(texts), add_special_tokens=False).input_ids
        ]
        prompt = render_prompt(lm, values, texts[lengths.index(max(lengths))])
        found.append((len(loading.encode(lm, prompt)), f"of {dataset}"))
    return max(found, default=(estimate_prompt(lm, values), "estimated"))


def check_prompt(lm: LanguageModel, values: Values) -> Iterator[Line]:
    """Check that the template writes what it is given and nothing that changes, in tokens of the
    network; and that the options of P(True) are tokens that can be compared."""
    text = render_prompt(lm, values)
    ids = loading.encode(lm, text)
    begins = (
        "one beginning-of-sequence token"
        if ids[:1] == [lm.tokenizer.bos_token_id]
        else "none of its own"
    )
    yield "ok", f"the prompt is rendered in {len(ids)} tokens, {begins}"
    if "strftime_now" in str(lm.tokenizer.chat_template) and not lm.spec.date_string:
        yield (
            "wrong",
            "its template writes today's date, so prompts change every day: set `date_string`",
        )
    if not (prompts.EXAMPLE in text and prompts.INSTRUCTION.strip() in text):
        yield "wrong", "its chat template does not write question and instruction as they are given"
    if lm.spec.system_prompt and prompts.SYSTEM not in text:
        yield "note", "its chat template leaves out the system prompt: write `system_prompt: false`"
    if not lm.spec.thinking and find_open(text):
        yield "wrong", "its template opens a thinking block: write `thinking: true`"
    if lm.spec.thinking and not lm.family:
        reason = "its template has no switch and no mark of thinking that docs/extending.md lists"
        yield "wrong", f"{reason}, so no answer would be found after one: write `thinking: false`"
    if (last := max(ids, default=0)) >= lm.vocab_size:
        yield (
            "wrong",
            f"its prompt holds token {last}, which is none of the network's {lm.vocab_size} tokens",
        )
    yield (
        "ok",
        f"P(True) counts {prompts.describe_spellings(p_true.option_tokens(lm), values['options'])}",
    )


def check_context(
    lm: LanguageModel, values: Values, questions: Mapping[str, Sequence[str]]
) -> Iterator[Line]:
    """Check that the longest prompt, the longest response and the in-situ query fit in the model's
    context."""
    if lm.context is None:
        yield (
            "note",
            "its configuration names no context length: whether prompt and response fit is not known",
        )
        return
    prompt, where = find_longest_prompt(lm, values, questions)
    new, query = lm.spec.max_new_tokens or values["max_new_tokens"], len(p_true.query_ids(lm))
    left = lm.context - prompt - query
    text = (
        f"the longest prompt ({where}: {prompt} tokens), {new} new tokens and the query ({query})"
    )
    if new <= left:
        yield "ok", f"{text} fit its context of {lm.context}"
    else:
        remedy = (
            f"write `max_new_tokens: {left}` in its file"
            if left > 0
            else "it can't be asked these questions"
        )
        yield "wrong", f"{text} do not fit its context of {lm.context}: {remedy}"


def check_kind(lm: LanguageModel) -> Iterator[Line]:
    """Check on a random network of its kind that it can be read from a cache, and that dropout
    acts."""
    kind = type(lm.model).__name__
    try:
        twin = random_twin(lm)
    except Exception as error:  # of the network's own code
        yield "note", f"a small {kind} can't be tried: {first_line(error)}"
        return
    if why := why_no_cache(twin):
        yield (
            "wrong",
            f"a {kind} can't be read from a cache of keys and values, as a run does: {why:.150}",
        )
    try:
        seeded_dropout.assert_dropout_active(twin)
        sites = seeded_dropout.count_dropout_modules(lm.model)
        yield (
            "ok",
            "dropout sites: " + ", ".join(f"{count} {kind}" for kind, count in sites.items()),
        )
    except MissingSignal as reason:
        yield "note", f"{reason}: c_BALD stays empty"


# ---- networks of the same kind


def random_twin(lm: LanguageModel) -> LanguageModel:
    """Return a model of the same kind with random weights and few layers, but every type of layer
    that it has.

    It has fewer neurons, experts and tokens. The width of the residual stream stays, since other
    sizes depend on it in ways of each kind. Weights are larger than usual, so that no layer goes
    unseen. Raises what the network's own code raises.
    """
    config = copy.deepcopy(lm.model.config)
    parts = [getattr(config, name, None) for name in config.sub_configs]  # of text, of images
    for part in [config, *filter(None, parts)]:
        reduce_config(part)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    network(torch.ones((2, TOKENS), dtype=torch.long), use_cache=False)
    return replace(lm, model=network)


def reduce_config(config: Any) -> None:
    """Leave few layers of a configuration, or of its part, of every type, and small sizes."""
    own = vars(config)
    if layers := getattr(config, "num_hidden_layers", 0):
        types = getattr(config, "layer_types", None) or [""]
        few = min(layers, max(2, 1 + max(map(types.index, types))))
        if own.get("num_kv_shared_layers"):
            # each type of layer once more, with the keys and values of the earlier one
            own["num_kv_shared_layers"] = min(few, layers - few)
            few = min(layers, 2 * few)
        lists = {name: value for name, value in own.items() if isinstance(value, list)}
        own.update({name: value[:few] for name, value in lists.items() if len(value) == layers})
        config.num_hidden_layers = few
    for pattern, most in LARGEST.items():
        sizes = {name: value for name, value in own.items() if type(value) is int}
        own.update({name: min(sizes[name], most) for name in sizes if re.search(pattern, name)})
    config.initializer_range = SPREAD
    # some look up the embedding of padding
    config.bos_token_id, config.eos_token_id, config.pad_token_id = None, None, 0


@torch.inference_mode()
def why_no_cache(lm: LanguageModel) -> str:
    """Return why rows can't be read from a cache as a run does; empty if they can.

    A batch of prompts with one beginning is padded, and loses the rows that end. Its most probable
    tokens, and the logits of each row that is read in parts after its beginning, must be those of a
    plain forward pass.
    """
    rows = torch.randint(
        1, lm.vocab_size, (ROWS, TOKENS), generator=torch.Generator().manual_seed(0)
    ).tolist()
    prompts = [
        rows[0][:SHARED] + row[: TOKENS - SHARED - number] for number, row in enumerate(rows)
    ]
    asked = [
        Request(Example("", "evaluation", "", ""), None, prompt, 0, STEPS, SHARED)
        for prompt in prompts
    ]
    greedy = replace(
        lm, spec=lm.spec.model_copy(update={"top_k": 1}), eos=list(range(0, lm.vocab_size, 3))
    )
    try:
        begun = encode_prefix(lm, prompts[0][:SHARED])
        for prompt, response in zip(prompts, sample_batch(greedy, asked), strict=True):
            ids, cache = torch.tensor([prompt + response]), repeat_row(begun, 1)
            plain = lm.model(ids, use_cache=False).logits[0]
            parts = [
                lm.model(part, past_key_values=cache).logits[0]
                for part in ids[:, SHARED:].split(5, 1)
            ]
            if plain[len(prompt) - 1 : -1].argmax(-1).tolist() != response:
                return "tokens of a batch differ from those of a plain forward pass"
            if not (torch.cat(parts) - plain[SHARED:]).abs().max() <= FAR * plain.abs().max():
                return "logits after a cache differ from those of a plain forward pass"
    except Exception as error:  # of the network's own code
        return f"{type(error).__name__}: {first_line(error)}"
    return ""
