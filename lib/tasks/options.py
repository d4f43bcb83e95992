"""The two options that P(True) compares, and which of their spellings count."""

from collections.abc import Iterable

from lib.project import UserError, nearest

FORMS = ("", " ")  # of a word in a text: bare, and after a space


def balance_spellings(spellings: Iterable[str], options: str = "A/B") -> tuple[list[str], list[str]]:
    """The spellings that count for each of two `options`: of the given ones (single tokens of a vocabulary, `A`, ` A`),
    those in a form that both options have. Two tokens against one would favour an option by its spelling alone.

    Raises UserError where an option has no spelling at all, or the two have none of the same form.
    """
    there, words = set(spellings), options.split("/")
    for word in words:
        if not there & {form + word for form in FORMS}:
            raise UserError(f"the option '{word}' is no single token of the vocabulary; "
                            f"{nearest(word, map(str.strip, there))}")  # fmt: skip
    shared = [form for form in FORMS if all(form + word in there for word in words)]
    if not shared:
        held = " and ".join(repr(form + word) for word in words for form in FORMS if form + word in there)
        raise UserError(f"the options {options} have no spelling of the same form as single tokens, only {held}")
    true, false = ([form + word for form in shared] for word in words)
    return true, false


def describe_spellings(spellings: Iterable[str], options: str = "A/B") -> str:
    """Which spellings count, in words: `'A', ' A' against 'B', ' B'`."""
    return " against ".join(", ".join(map(repr, side)) for side in balance_spellings(spellings, options))
