"""Whether a model can be asked what a run asks, before its weights are loaded.

Its configuration, tokenizer and network without memory tell. A line per thing that was checked: `ok`; `note`, good to
know; or `wrong`, with what to do about it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, logging

from lib.generate import checkpoint, generation, models, p_true, seeded_dropout
from lib.generate.models import LanguageModel
from lib.params import Model
from lib.paths import UserError, first_line
from lib.tasks import answers, prompts

Line = tuple[str, str]  # ok, note or wrong; what was seen
QUESTION_TOKENS = 60  # by which a question is longer than the example of prompts.py


def load_outline(name: str, spec: Model, folder: str, *, whole: bool) -> LanguageModel:
    """A model without weights: its network lies on torch's meta device, `facts` holds its own decoding settings.

    Parameters
    ----------
    name, spec
        The model, as its parameter file describes it.
    folder
        Where its configuration and tokenizer are.
    whole
        Whether its weights should be there, too. Then their headers must fit the network.

    Raises
    ------
    UserError
        The files can't be read, or do not fit each other.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        checkpoint.check_lfs_pointers(Path(folder))
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        network = build_network(folder, whole)
        own = checkpoint.read_generation_config(network, Path(folder))
        ends = checkpoint.find_end_tokens(network, tokenizer, own)
    except UserError:
        raise
    except Exception as error:  # transformers and what it reads the files with raise what they like
        raise UserError(f"can't be loaded: {first_line(error)}") from error
    return LanguageModel(name, spec, network, tokenizer, ends, own.to_diff_dict())


def build_network(folder: str, whole: bool) -> Any:
    """The network on the meta device; that of a `whole` folder is held against its weights, as loading does."""
    if whole and any(Path(folder).glob("*.safetensors")):
        found: Any = AutoModelForCausalLM.from_pretrained(
            folder, device_map="meta", trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
        network, info = found
        checkpoint.check_loaded(info)
        return network
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@dataclass(frozen=True)
class Preflight:
    """What a run asks of a model: the profile's values, and the questions of each dataset that can be read here."""

    lm: LanguageModel
    values: Mapping[str, Any]
    questions: Mapping[str, Sequence[str]]

    def check(self) -> Iterator[Line]:
        """Whether the model can do what every notebook asks of it. Raises UserError for what ends the checking."""
        yield from self.check_prompt()
        yield from self.check_options(p_true.option_tokens(self.lm))
        yield from self.check_context()
        yield check_dropout(self.lm.model)

    def render_prompt(self, question: str = prompts.EXAMPLE) -> str:
        """The prompt of a question. Raises UserError where the tokenizer has no chat template that can write it."""
        if not self.lm.tokenizer.chat_template:
            raise UserError("its tokenizer has no chat template: models that were not taught to chat can't be asked")
        try:
            return generation.solving_prompt(self.lm, question, self.values["demonstration"])
        except Exception as error:  # a template raises what it likes
            hint = "; if it knows no system role, write `system_prompt: false`" if self.lm.spec.system_prompt else ""
            raise UserError(f"its chat template fails: {first_line(error):.150}{hint}") from error

    def count_tokens(self, question: str) -> int:
        return len(models.encode(self.lm, self.render_prompt(question)))

    def estimate_prompt(self) -> int:
        """Tokens of a usual prompt, where no question is at hand."""
        return self.count_tokens(prompts.EXAMPLE) + QUESTION_TOKENS

    def check_prompt(self) -> Iterator[Line]:
        """Template, date, system prompt, thinking, beginning-of-sequence token and the network's rows."""
        lm, text = self.lm, self.render_prompt()
        ids, template = models.encode(lm, text), str(lm.tokenizer.chat_template)
        if not ids:
            raise UserError("its chat template writes nothing")
        bos = lm.tokenizer.bos_token and ids[0] == lm.tokenizer.bos_token_id
        begins = "one beginning-of-sequence token" if bos else "none of its own"
        yield "ok", f"the prompt is rendered in {len(ids)} tokens, {begins}"
        if "strftime_now" in template and "date_string" in template and not lm.spec.date_string:
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
        if max(ids) >= lm.vocab_size:
            token = lm.tokenizer.convert_ids_to_tokens(max(ids))
            yield (
                "wrong",
                f"its prompt holds {token!r} ({max(ids)}), which is none of the network's {lm.vocab_size} tokens",
            )
        pieces = answers.token_texts(lm.tokenizer, models.encode(lm, "\n#### 1234"))
        yield "ok", "the answer is written as " + " ".join(map(repr, pieces))

    def check_options(self, spellings: Mapping[str, int]) -> Iterator[Line]:
        """The tokens of the options, and which of them count: a form that one of the two lacks does not."""
        yield "ok", "option tokens: " + ", ".join(f"{spelling!r} {index}" for spelling, index in spellings.items())
        asked = self.values["options"]
        true, false = prompts.balance_spellings(spellings, asked)
        text = f"P(True) counts {len(true)} spelling(s) of each option, {prompts.describe_spellings(spellings, asked)}"
        single = [repr(s) for s in spellings if s.strip() in asked.split("/") and s not in true + false]
        if single:
            yield "note", f"{text}; {', '.join(single)} has no counterpart and does not count"
        else:
            yield "ok", f"{text}; how much probability they hold stands under tab:insitu_ptrue"

    def check_context(self) -> Iterator[Line]:
        """Whether the longest prompt, a response of the most tokens and the in-situ query fit the model's context."""
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
        """Tokens of the longest prompt, and whose it is; an estimate where no question is at hand."""
        found = []
        for dataset, questions in self.questions.items():
            lengths = [len(ids) for ids in self.lm.tokenizer(list(questions), add_special_tokens=False).input_ids]
            found.append((self.count_tokens(questions[lengths.index(max(lengths))]), f"of {dataset}"))
        return max(found, default=(self.estimate_prompt(), "estimated"))


def check_dropout(network: Any) -> Line:
    """Whether the network has a place where dropout can be applied."""
    sites = Counter(type(module).__name__ for module in seeded_dropout.dropout_modules(network))
    if not sites:
        return "wrong", f"a {type(network).__name__} has nowhere to drop anything out: c_BALD can't be had"
    return "ok", "dropout sites: " + ", ".join(f"{count} {kind}" for kind, count in sites.items())
