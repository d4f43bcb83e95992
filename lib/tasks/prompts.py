"""The paper's prompts: one-shot question (`fig:prompt_example`) and two verifications (`fig:prompt_comparison`), from
prompts.yaml; and the token spellings of the two options that P(True) compares.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from lib.params import Demonstration
from lib.paths import UserError

_TEXTS = yaml.safe_load(Path(__file__).with_name("prompts.yaml").read_text(encoding="utf-8"))
SYSTEM, EXPERT, DEMONSTRATION, INSTRUCTION, QUERY, WORKED, EXAMPLE = _TEXTS.values()
FORMS = ("", " ")  # prefixes of a word in a text: none, or a space

Messages = list[dict[str, str]]


def chat_messages(user: str, system: bool, before: Sequence[dict[str, str]] = ()) -> Messages:
    opening = [{"role": "system", "content": SYSTEM}] if system else []
    return [*opening, *before, {"role": "user", "content": user}]


def question_messages(question: str, system: bool = True, demonstration: Demonstration = "one") -> Messages:
    """Return messages that ask for a solution.

    `demonstration`: the paper's example (`one`), WORKED as a conversation (`few`), or no example (`none`).
    """
    request = DEMONSTRATION if demonstration == "one" else "Solve:\n"
    before: Messages = []
    if demonstration == "few":
        for asked, answered in WORKED:
            before += chat_messages(EXPERT + request + asked + INSTRUCTION, system=False)
            before.append({"role": "assistant", "content": answered})
    return chat_messages(EXPERT + request + question + INSTRUCTION, system, before)


def verification_messages(question: str, response: str, system: bool = True) -> Messages:
    """Return the messages of standard P(True): question, proposed answer and query, without demonstration."""
    return chat_messages(f"Question:\n{question}\n\nProposed answer:\n\n{response}{QUERY}", system)


def balance_spellings(spellings: Iterable[str], options: str = "A/B") -> tuple[list[str], list[str]]:
    """Select the spellings of each of two `options`: those whose form (`A`, ` A`) exists for both.

    `spellings` are single tokens of a vocabulary. Two tokens against one would favor an option by its spelling.
    Raise UserError if the two share no form.
    """
    there, words = set(spellings), options.split("/")
    shared = [form for form in FORMS if all(form + word in there for word in words)]
    if not shared:
        held = " and ".join(repr(form + word) for word in words for form in FORMS if form + word in there) or "none"
        raise UserError(f"the options {options} have no spelling of the same form as single tokens, only {held}")
    true, false = ([form + word for form in shared] for word in words)
    return true, false


def describe_spellings(spellings: Iterable[str], options: str = "A/B") -> str:
    """Describe the selected spellings: `'A', ' A' against 'B', ' B'`."""
    return " against ".join(", ".join(map(repr, side)) for side in balance_spellings(spellings, options))
