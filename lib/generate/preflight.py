"""Check whether a model supports a run, before its weights are loaded.

This needs only its configuration, its tokenizer and its architecture on the meta device. Each check gives a line: `ok`;
`note`, for information; or `wrong`, with the remedy.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import logging

from lib.generate import architecture_trial, generation, models, p_true, pretrained, seeded_dropout
from lib.generate.models import LanguageModel
from lib.params import Model
from lib.paths import MissingSignal, UserError, first_line
from lib.tasks import answers, prompts

Line = tuple[str, str]  # ok, note or wrong; the result
QUESTION_TOKENS = 60  # how much longer a question is than the example of prompts.py


def load_outline(name: str, spec: Model, folder: str, *, whole: bool, **named: Any) -> LanguageModel:
    """Load a model without weights: its network is on torch's meta device, `facts` has its own generation settings.

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
    logging.disable_progress_bar()
    try:
        pretrained.check_lfs_pointers(Path(folder))
        config, tokenizer = pretrained.read_config(folder, **named), pretrained.read_tokenizer(folder, **named)
        loaded = pretrained.load_network(folder, device_map="meta") if whole else pretrained.outline_network(config)
        ends, own = pretrained.read_end_tokens(loaded, tokenizer, Path(folder))
    except UserError:
        raise
    except Exception as error:  # transformers and its file readers raise many types
        raise UserError(f"can't be loaded: {first_line(error)}") from error
    return LanguageModel(name, spec, loaded, tokenizer, ends, own.to_diff_dict())


@dataclass(frozen=True)
class Preflight:
    """What a run needs from a model: the profile's values, and the questions of each available dataset."""

    lm: LanguageModel
    values: Mapping[str, Any]
    questions: Mapping[str, Sequence[str]]

    def check(self) -> Iterator[Line]:
        """Yield a line for each check of what the notebooks need. Raise UserError if an error rules out further
        checks."""
        yield from self.check_prompt()
        yield from self.check_options(p_true.option_tokens(self.lm))
        yield from self.check_context()
        yield from self.check_kind()

    def render_prompt(self, question: str = prompts.EXAMPLE) -> str:
        """Return the prompt of a question. Raise UserError if the tokenizer has no chat template that can render it."""
        if not self.lm.tokenizer.chat_template:
            raise UserError("its tokenizer has no chat template: models that were not taught to chat can't be asked")
        try:
            return generation.solving_prompt(self.lm, question, self.values["demonstration"])
        except Exception as error:  # templates raise many types
            hint = "; if it knows no system role, write `system_prompt: false`" if self.lm.spec.system_prompt else ""
            raise UserError(f"its chat template fails: {first_line(error):.150}{hint}") from error

    def count_tokens(self, question: str) -> int:
        return len(models.encode(self.lm, self.render_prompt(question)))

    def estimate_prompt(self) -> int:
        """Return the usual length of a prompt in tokens, for datasets that are not available."""
        return self.count_tokens(prompts.EXAMPLE) + QUESTION_TOKENS

    def check_prompt(self) -> Iterator[Line]:
        """Check template, date, system prompt, thinking, beginning-of-sequence token and the network's rows."""
        lm, text = self.lm, self.render_prompt()
        ids, template = models.encode(lm, text), str(lm.tokenizer.chat_template)
        if not ids:
            raise UserError("its chat template writes nothing")
        bos = lm.tokenizer.bos_token and ids[0] == lm.tokenizer.bos_token_id
        begins = "one beginning-of-sequence token" if bos else "none of its own"
        yield "ok", f"the prompt is rendered in {len(ids)} tokens, {begins}"
        undated = replace(self, lm=replace(lm, spec=lm.spec.model_copy(update={"date_string": "any"})))
        if "strftime_now" in template and not lm.spec.date_string and undated.render_prompt() != text:
            yield "wrong", "its template writes today's date, so prompts change every day: set `date_string`"
        for what, wanted in (("question", prompts.EXAMPLE), ("instruction how to answer", prompts.INSTRUCTION.strip())):
            if wanted not in text:
                yield "wrong", f"its chat template does not write the {what} as it is given"
        if lm.spec.system_prompt and prompts.SYSTEM not in text:
            yield "note", "its chat template leaves out the system prompt: write `system_prompt: false`"
        if lm.spec.thinking and answers.CLOSING_TAG not in lm.tokenizer.get_vocab():
            yield "note", f"{answers.CLOSING_TAG} is no token of its own; thinking is told from the answer by that text"
        if not lm.spec.thinking and "<think>" in text[-20:] and answers.CLOSING_TAG not in text[-40:]:
            yield "wrong", "its template opens a thinking block: write `thinking: true`"
        if (last := max(ids)) >= lm.vocab_size:
            token = f"{lm.tokenizer.convert_ids_to_tokens(last)!r} ({last})"
            yield "wrong", f"its prompt holds {token}, which is none of the network's {lm.vocab_size} tokens"
        pieces = answers.token_texts(lm.tokenizer, models.encode(lm, "\n#### 1234"))
        yield "ok", "the answer is written as " + " ".join(map(repr, pieces))

    def check_options(self, spellings: Mapping[str, int]) -> Iterator[Line]:
        """List the option tokens and those that count: a form counts only if both options have it."""
        yield "ok", "option tokens: " + ", ".join(f"{spelling!r} {index}" for spelling, index in spellings.items())
        asked = self.values["options"]
        true, false = prompts.balance_spellings(spellings, asked)
        text = f"P(True) counts {len(true)} spelling(s) of each option, {prompts.describe_spellings(spellings, asked)}"
        single = [repr(s) for s in spellings if s.strip() in asked.split("/") and s not in true + false]
        lost = f"{', '.join(single)} has no counterpart and does not count"
        seen = "how much probability they hold stands under tab:insitu_ptrue"
        yield ("note", f"{text}; {lost}") if single else ("ok", f"{text}; {seen}")

    def check_context(self) -> Iterator[Line]:
        """Check that the longest prompt, the longest response and the in-situ query fit in the model's context."""
        lm = self.lm
        if lm.context is None:
            yield "note", "its configuration names no context length: whether prompt and response fit is not known"
            return
        prompt, where = self.find_longest_prompt()
        new, query = lm.spec.max_new_tokens or self.values["max_new_tokens"], len(p_true.query_ids(lm))
        left = lm.context - prompt - query
        text = f"the longest prompt ({where}: {prompt} tokens), {new} new tokens and the query ({query})"
        if new <= left:
            yield "ok", f"{text} fit its context of {lm.context}"
        else:
            remedy = f"write `max_new_tokens: {left}` in its file" if left > 0 else "it can't be asked these questions"
            yield "wrong", f"{text} do not fit its context of {lm.context}: {remedy}"

    def find_longest_prompt(self) -> tuple[int, str]:
        """Return the tokens of the longest prompt, and its dataset; an estimate if no dataset is available."""
        found = []
        for dataset, questions in self.questions.items():
            lengths = [len(ids) for ids in self.lm.tokenizer(list(questions), add_special_tokens=False).input_ids]
            found.append((self.count_tokens(questions[lengths.index(max(lengths))]), f"of {dataset}"))
        return max(found, default=(self.estimate_prompt(), "estimated"))

    def check_kind(self) -> Iterator[Line]:
        """Check on a random network of its kind that it can be read from a cache, and that dropout acts."""
        kind, modules = type(self.lm.model).__name__, seeded_dropout.dropout_modules(self.lm.model)
        try:
            twin = architecture_trial.random_twin(self.lm)
        except Exception as error:  # of the network's own code
            yield "note", f"a small {kind} can't be tried: {first_line(error)}"
            return
        if why := architecture_trial.why_no_cache(twin):
            yield "wrong", f"a {kind} can't be read from a cache of keys and values, as a run does: {why:.150}"
        try:
            seeded_dropout.assert_dropout_active(twin)
        except MissingSignal as reason:
            yield "note", f"{reason}: c_BALD stays empty"
        else:
            sites = Counter(type(module).__name__ for module in modules)
            yield "ok", "dropout sites: " + ", ".join(f"{count} {kind}" for kind, count in sites.items())
