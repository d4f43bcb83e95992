"""What a run asks, and whether a model can be asked it: all of that can be told without its weights.

A line per thing looked at: ok; note (good to know); or wrong, with what to do about it.
"""

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from lib import params
from lib.paths import UserError, first_line
from workflow import ask, cost, hub, outline
from workflow.pipeline import Run

Line = tuple[str, str]  # ok, note or wrong; what was seen
LARGE = 2e9  # parameters above which a model is run on a processor only where that is said


def explained(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines, and what ended them early, whatever that was: what is looked at is others' files and packages."""
    try:
        yield from lines
    except UserError as problem:
        yield "wrong", str(problem)
    except Exception as problem:
        yield "wrong", f"can't be looked at ({type(problem).__name__}: {first_line(problem)})"


def chosen(run: Run, name: str) -> list[Any]:
    """The examples of a dataset that the run takes."""
    from lib.tasks import datasets

    examples = datasets.load_examples(params.load_dataset_config(name))
    return datasets.select_examples(examples, run.values["limit"], run.values["seed"], name, run.values["example"])


def questions(run: Run) -> dict[str, list[str]]:
    """The questions of each dataset that can be read here."""
    found = {}
    for name in run.values["datasets"]:
        with suppress(UserError):  # said where the dataset is looked at, and by the job that reads it
            found[name] = [example.question for example in chosen(run, name)]
    return found


# ---- a model


def unfit(run: Run, names: list[str], door: str = "") -> list[str]:
    """Of those models of a run that can't be asked as it asks, a line with the reason, before any job is done. Behind
    the `door` is a process that has imported what it takes to tell."""
    if not names:
        return []
    if door and (reasons := told(run, names, door)) is not None:
        return reasons
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else they complain when a process is forked later
    reasons, texts = [], questions(run)
    for name in names:
        found = [text for level, text in explained(looked_at(run, name, texts)) if level == "wrong"]
        reasons += [text if text.startswith("model '") else f"model '{name}': {text}" for text in found[:1]]
    return reasons


def told(run: Run, names: list[str], door: str) -> list[str] | None:
    """What a fork of the process behind the `door` says of them; None where it says nothing that can be read."""
    with tempfile.TemporaryFile() as file:
        if ask.ask([json.dumps(asdict(run)), *names], door, "asking", file.fileno()) != 0:
            return None
        file.seek(0)
        with suppress(ValueError):  # something else was said in between
            return json.load(file)
    return None


def main(words: list[str], kernel: Any = None) -> int:
    """What a fork of the warm process says, as JSON: `unfit` of the run and the models that the words name."""
    run = Run.of(json.loads(words[0]))
    hub.pin(run)
    sys.stdout.write(json.dumps(unfit(run, words[1:])))
    return 0


def looked_at(run: Run, name: str, texts: dict[str, list[str]]) -> Iterator[Line]:
    spec = params.load_model_config(name)
    if spec.responses:
        yield from about_responses(run, spec)
    if not spec.at_hand:
        return
    lm, network, _ = outline.parts(name, spec, outline.local_copy(spec))
    yield from about_asking(run, lm, network, texts)


def about_responses(run: Run, spec: params.Model) -> Iterator[Line]:
    """How many questions of the run a model's file answers, with what will be read of it."""
    from lib.generate import imported_responses

    for name in run.values["datasets"]:
        examples = chosen(run, name)
        found = imported_responses.read_imported(spec, name, examples)
        told = sum(bool(found[example.example_id].stated) for example in examples)
        said, *missed = imported_responses.describe_coverage(spec, name, examples, found)
        yield "ok", f"{said}, {told} with log-probabilities"
        yield from (("note", text) for text in missed)


def about_asking(run: Run, lm: Any, network: Any, texts: dict[str, list[str]]) -> Iterator[Line]:
    """Whether a model can do what every job asks of it: all of that can be told without its weights."""
    yield from about_prompt(run, lm)
    yield from about_rows(run, lm, network)
    yield from about_context(run, lm, texts)
    yield from about_network(network)
    yield from about_processor(run, lm, network)


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
    yield from about_options(run, p_true.option_tokens(lm))
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
    from lib.tasks import prompts

    yield "ok", "option tokens: " + ", ".join(f"{spelling!r} {index}" for spelling, index in spellings.items())
    asked = run.values["options"]
    true, false = prompts.balance_spellings(spellings, asked)
    text = f"P(True) counts {len(true)} spelling(s) of each option, {prompts.describe_spellings(spellings, asked)}"
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
    new, query = lm.spec.max_new_tokens or run.values["max_new_tokens"], len(p_true.query_ids(lm))
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
    from lib.generate import generation
    from lib.tasks import prompts

    if not lm.tokenizer.chat_template:
        raise UserError("its tokenizer has no chat template: models that were not taught to chat can't be asked")
    try:
        return generation.solving_prompt(lm, question or prompts.EXAMPLE, run.values["demonstration"])
    except Exception as error:  # a template raises what it likes
        hint = "; if it knows no system role, write `system_prompt: false`" if lm.spec.system_prompt else ""
        raise UserError(f"its chat template fails: {first_line(error):.150}{hint}") from error


def about_network(network: Any) -> Iterator[Line]:
    from lib.generate import mc_dropout

    sites = Counter(type(module).__name__ for module in mc_dropout.dropout_modules(network))
    if not sites:
        yield "wrong", f"a {type(network).__name__} has nowhere to drop anything out: c_BALD can't be had"
    else:
        yield "ok", "dropout sites: " + ", ".join(f"{count} {kind}" for kind, count in sites.items())


def about_processor(run: Run, lm: Any, network: Any) -> Iterator[Line]:
    """Whether a large model would be run without a GPU, which nobody may have meant."""
    import torch

    weights = sum(parameter.numel() for parameter in network.parameters())
    bare = [row.name for row in run.notebooks if row.heavy and not run.gpus_of.get(row.name, run.gpus)]
    there = not bare if run.cluster else torch.cuda.is_available()  # a node's are those that the profile asks for
    if weights <= LARGE or run.values.get("cpu") or there:
        return
    text = f"{weights / 1e9:.2g} billion parameters, and " + (
        f"the file of the cluster asks for no GPU for {', '.join(bare)}"
        if run.cluster
        else f"PyTorch ({torch.__version__}) sees no GPU here"
    )
    yield "wrong", f"{text}: say --cpu (or `cpu: true` in the profile) to run it on the processor, for days"
