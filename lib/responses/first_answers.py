"""The first answers of a server to one form of request: would those to all others be in vain?

A run asks for these first, and ends before it pays for the rest. Answers without
log-probabilities, or with nothing but zeros, are refused one by one (lib.responses.formats).
"""

from collections.abc import Iterable, Sequence

from lib.parameter_schemas import Model
from lib.responses.formats import Response
from lib.responses.response_lines import LISTED
from lib.responses.served_verdict import OptionVerdict
from lib.tasks.thinking import CLOSING_TAG

FIRST = 8  # answers
AT_ONCE = "`request: {chat_template_kwargs: {enable_thinking: false}}`"


def find_fault(form: str, spec: Model, responses: Sequence[Response], file: str) -> str:
    """Return why the first answers in a form are of no use; empty if some are.

    `form`: one of VERIFICATIONS, or empty for the questions. `file`: where the model is described.
    """
    if form:
        return find_fault_of_verdicts(responses, file)
    return find_fault_of_texts(spec, responses, file)


def find_fault_of_texts(spec: Model, responses: Sequence[Response], file: str) -> str:
    """Return why no response to a question is of use: thinking that was not asked for, or none."""
    thinking = [response.thought for response in responses]
    whole = [response for response in responses if response.finish_reason == "stop"]
    if not spec.thinking and all(thinking):
        return (
            f"each of the first {len(responses)} answers thinks: write `thinking: true`, or "
            f"{AT_ONCE} to have it answer at once, in {file}"
        )
    if spec.thinking and whole and not any(thinking):
        return (
            f"none of the first {len(responses)} answers holds a thinking that ends with "
            f"`{CLOSING_TAG}` or another mark: remove `thinking: true` from {file}"
        )
    return ""


def find_fault_of_verdicts(responses: Sequence[Response], file: str) -> str:
    """Return why no verdict is of use: neither option is listed in any."""
    verdicts = [OptionVerdict(response) for response in responses]
    if any(verdict.options_listed for verdict in verdicts):
        return ""
    if all(verdict.thinks for verdict in verdicts):
        return f"the model thinks before it says `A` or `B`: write {AT_ONCE} in {file}"
    listed = max(len(response.listed) for response in responses)
    first = responses[0].text.strip()
    return (
        f"none of the first {len(responses)} answers lists `A` or `B` among its {listed} most "
        f"probable tokens (up to {LISTED} are asked for); the first begins with '{first:.20}'"
    )


def find_other_model(wanted: str, names: Iterable[str]) -> str:
    """Return the name of a model that answered in place of the wanted one; empty for none.

    Servers lengthen and shorten a name: a folder, a date, `.gguf`.

    Examples
    --------
    >>> find_other_model("gpt-4o", ["gpt-4o-2024-08-06", ""])
    ''
    >>> find_other_model("mine", ["/models/mine.gguf", "other-v2"])
    'other-v2'
    """
    short = shorten_name(wanted)
    for name in names:
        answered = shorten_name(name)
        if answered and answered not in short and short not in answered:
            return name
    return ""


def shorten_name(model: str) -> str:
    """Return the last part of a model's name, without what marks a file."""
    return model.lower().replace("\\", "/").rpartition("/")[2].removesuffix(".gguf")
