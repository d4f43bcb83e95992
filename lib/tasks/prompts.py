"""The paper's prompts: one-shot question (`fig:prompt_example`), two verifications (`fig:prompt_comparison`).

Line wraps inside the figures' question are typesetting and not part of the prompt.
"""

SYSTEM = (
    "You are a helpful, respectful, and honest assistant. Always answer as helpfully as possible, while being safe. "
    "Your answers should not include any harmful, unethical, racist, sexist, toxic, dangerous, or illegal content. "
    "Please ensure that your responses are socially unbiased and positive in nature."
)
DEMONSTRATION = (
    "First, study this example:\n"
    "Question: Sarah has 10 marbles, gives 3 away.\n"
    "Answer: Sarah would have 10 - 3 = <<10-3=7>>7 marbles remaining.\n"
    "#### 7\n\n"
    "Next, solve:\n"
)
EXPERT = "You are a mathematics expert. "
INSTRUCTION = "\n\nAt the end, write the answer as an integer after '#### '."
QUERY = (
    "\n\nIs the proposed answer:\nA: True\nB: False\n"
    "You must answer with exactly one character: either `A` or `B`.\n\nThe proposed answer is:"
)

Messages = list[dict[str, str]]


def conversation(user: str, system: bool) -> Messages:
    opening = [{"role": "system", "content": SYSTEM}] if system else []
    return [*opening, {"role": "user", "content": user}]


def solve(question: str, system: bool = True, demonstration: bool = True) -> Messages:
    """Messages that ask for a solution. Without the demonstration: the same request, and nothing to study."""
    request = DEMONSTRATION if demonstration else "Solve:\n"
    return conversation(EXPERT + request + question + INSTRUCTION, system)


def verify(question: str, response: str, system: bool = True) -> Messages:
    """Messages of standard P(True): question, proposed answer, the query; no demonstration, no instruction."""
    return conversation(f"Question:\n{question}\n\nProposed answer:\n\n{response}{QUERY}", system)
