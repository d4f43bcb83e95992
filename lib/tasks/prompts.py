"""The paper's prompts: one-shot question (`fig:prompt_example`) and two verifications
(`fig:prompt_comparison`); and the token spellings of the two options that P(True) compares.
"""

from collections.abc import Iterable, Sequence

from lib.errors import UserError
from lib.params import Demonstration

# The texts are the paper's, and ours where a comment says so. Line wraps inside the figures'
# question are typesetting and not part of the prompt.

Messages = list[dict[str, str]]

# ---- the question

SYSTEM = (
    "You are a helpful, respectful, and honest assistant. Always answer as helpfully as possible, "
    "while being safe. Your answers should not include any harmful, unethical, racist, sexist, "
    "toxic, dangerous, or illegal content. Please ensure that your responses are socially unbiased "
    "and positive in nature."
)

EXPERT = "You are a mathematics expert. "

DEMONSTRATION = """\
First, study this example:
Question: Sarah has 10 marbles, gives 3 away.
Answer: Sarah would have 10 - 3 = <<10-3=7>>7 marbles remaining.
#### 7

Next, solve:
"""

INSTRUCTION = """

At the end, write the answer as an integer after '#### '."""

# questions and answers of the prompt with several examples: ours, in the requested answer format
WORKED = (
    (
        "A baker has 12 rolls and bakes 8 more. He sells 15 of them. How many rolls are left?",
        "He has 12 + 8 = 20 rolls. After selling 15, 20 - 15 = 5 are left.\n#### 5",
    ),
    (
        "Nora reads 14 pages a day. How many pages does she read in 3 weeks?",
        "3 weeks are 3 * 7 = 21 days. She reads 14 * 21 = 294 pages.\n#### 294",
    ),
    (
        "Tickets cost $9 for adults and $4 for children. What do 2 adults and 5 children pay?",
        "The adults pay 2 * 9 = 18 dollars and the children 5 * 4 = 20 dollars. "
        "Together, 18 + 20 = 38 dollars.\n#### 38",
    ),
    (
        "A rope of 64 meters is cut into 4 equal pieces, and one piece is halved. "
        "How long is each half?",
        "Each piece is 64 / 4 = 16 meters long. Half of it is 16 / 2 = 8 meters.\n#### 8",
    ),
)

# ours; replaces a dataset's question
EXAMPLE = "Ann has 3 pens and buys 4 more. How many pens does she have?"


def chat_messages(user: str, system: bool, before: Sequence[dict[str, str]] = ()) -> Messages:
    """Return the messages of a conversation that ends with the user's.

    Examples
    --------
    >>> chat_messages("How many?", system=False)
    [{'role': 'user', 'content': 'How many?'}]
    """
    opening = [{"role": "system", "content": SYSTEM}] if system else []
    return [*opening, *before, {"role": "user", "content": user}]


def question_messages(
    question: str, system: bool = True, demonstration: Demonstration = "one"
) -> Messages:
    """Return messages that ask for a solution.

    `demonstration`: the paper's example (`one`), WORKED as a conversation (`few`), or no example
    (`none`).

    Examples
    --------
    >>> system, user = question_messages("How many?", demonstration="none")
    >>> user["content"].splitlines()[:2]
    ['You are a mathematics expert. Solve:', 'How many?']
    """
    task = DEMONSTRATION if demonstration == "one" else "Solve:\n"
    before: Messages = []
    if demonstration == "few":
        for worked_question, solution in WORKED:
            before += chat_messages(EXPERT + task + worked_question + INSTRUCTION, system=False)
            before.append({"role": "assistant", "content": solution})
    return chat_messages(EXPERT + task + question + INSTRUCTION, system, before)


# ---- the verification

QUERY = """

Is the proposed answer:
A: True
B: False
You must answer with exactly one character: either `A` or `B`.

The proposed answer is:"""


def verification_messages(question: str, response: str, system: bool = True) -> Messages:
    """Return the messages of standard P(True): question, proposed answer and query, without
    demonstration.

    Examples
    --------
    >>> (user,) = verification_messages("How many?", "#### 18", system=False)
    >>> user["content"].splitlines()[1], user["content"].splitlines()[5]
    ('How many?', '#### 18')
    """
    return chat_messages(f"Question:\n{question}\n\nProposed answer:\n\n{response}{QUERY}", system)


FORMS = ("", " ")  # prefixes of a word in a text: none, or a space


def balance_spellings(
    spellings: Iterable[str], options: str = "A/B"
) -> tuple[list[str], list[str]]:
    """Select the spellings of each of two `options`: those whose form (`A`, ` A`) exists for both.

    `spellings` are single tokens of a vocabulary. Two tokens against one would favor an option by
    its spelling. Raise UserError if the two share no form.

    Examples
    --------
    >>> balance_spellings(["A", "B", " A"])
    (['A'], ['B'])
    """
    tokens = set(spellings)
    true, false = options.split("/")
    shared = [form for form in FORMS if {form + true, form + false} <= tokens]
    if not shared:
        possible = [form + true for form in FORMS] + [form + false for form in FORMS]
        held = " and ".join(repr(spelling) for spelling in possible if spelling in tokens)
        raise UserError(
            f"the options {options} have no spelling of the same form as single tokens, "
            f"only {held or 'none'}"
        )
    return [form + true for form in shared], [form + false for form in shared]


def describe_spellings(spellings: Iterable[str], options: str = "A/B") -> str:
    """Describe the selected spellings.

    Examples
    --------
    >>> describe_spellings(["A", " A", "B", " B"])
    "'A', ' A' against 'B', ' B'"
    """
    sides = balance_spellings(spellings, options)
    return " against ".join(", ".join(map(repr, side)) for side in sides)
