"""Generate word problems from templates, at three difficulty levels that mirror the paper's
datasets.

    Nora has 12 shells. Then Nora finds 7 more. How many shells does Nora have now?

    With the new ones there are 12 + 7 = 19.
    #### 19

A problem is a chain of arithmetic steps, written by one of three families of templates (a growing
collection, a comparison of two people, a purchase). Numbers and wording are sampled separately. A
hash reserves a fifth of each for the shipped questions; training uses only the rest. So neither the
questions, nor their operands, nor their wording were seen in training.

If a solution only copied its last result, the model would always be certain of its answer. So some
solutions leave the last result to the `####` line ("With the new ones there are 12 + 7." and then
"#### 19"). Some questions ask for an intermediate number. A few training solutions write a wrong
last result but the correct answer.

All randomness comes from the caller's `random.Random`.
"""

import hashlib
from dataclasses import dataclass, field, replace
from random import Random

NAMES = (
    "Nora", "Omar", "Lily", "Hugo", "Ivan", "Maya", "Ruth", "Theo", "Anna", "Carl", "Dora", "Eric",
    "Fay", "Glen", "Iris", "Jack", "Kate", "Liam", "Mona", "Ned", "Olga", "Paul", "Rosa", "Sam",
)  # fmt: skip
THINGS = ("shells", "coins", "cards", "pens", "books", "stamps", "beads", "apples", "cups", "keys")


@dataclass(frozen=True)
class Level:
    """Ranges of a problem's numbers, factors and number of steps."""

    numbers: tuple[int, int]
    factors: tuple[int, int]
    steps: tuple[int, int]


# share of solutions with two or more steps that leave the last result to the `####` line
UNFINISHED = 0.30
ON_THE_WAY = 0.20  # share of questions with two or more steps that ask for an earlier number
SLIPS = 0.04  # share of training solutions with a wrong last result before the correct answer

# Training problems.
LEVELS = {
    "easy": Level(numbers=(2, 15), factors=(2, 4), steps=(1, 2)),
    "medium": Level(numbers=(2, 30), factors=(2, 4), steps=(2, 3)),
    "hard": Level(numbers=(10, 99), factors=(2, 5), steps=(2, 3)),
}
# Shipped questions. Their numbers are larger than in training, so that the demo models' accuracy is
# close to the paper's. Hard is medium with larger numbers, as GSMHard is GSM8K with larger numbers.
SHIPPED = {
    "easy": Level(numbers=(3, 45), factors=(2, 4), steps=(1, 2)),
    "medium": Level(numbers=(5, 45), factors=(2, 4), steps=(2, 3)),
    "hard": Level(numbers=(20, 99), factors=(2, 5), steps=(2, 3)),
}


@dataclass(frozen=True)
class Step:
    """One arithmetic step, x op y = z, and its lead-in in the solution."""

    x: int
    op: str
    y: int
    z: int
    lead: str

    def __str__(self) -> str:
        return f"{self.x} {self.op} {self.y} = {self.z}"


@dataclass(frozen=True)
class Problem:
    question: str
    steps: tuple[Step, ...]
    operands: tuple  # the question's numbers and operations
    wording: tuple  # names, things and sentence variants
    asked: int = -1  # index of the step whose result is the answer
    unfinished: bool = False  # whether only the `####` line has the last result
    slip: int | None = None  # wrong last result that the solution writes

    @property
    def answer(self) -> int:
        return self.steps[self.asked].z


def reserved(part: tuple) -> bool:
    """Whether operands or a wording are in the fifth reserved for shipped questions."""
    return hashlib.sha256(repr(part).encode()).digest()[0] % 5 == 0


def apply(x: int, op: str, y: int) -> int:
    return {"+": x + y, "-": x - y, "*": x * y}[op]


# --------------------------------------------------------------------------------------------------
# Sentences. Each operation has several phrasings in the question and in the solution. So the model
# chooses among words (token probabilities below one) independently of correctness.

TOLD = {
    "+": (
        "{n} then finds {y} more.",
        "A friend gives {n} {y} more.",
        "Later {n} buys {y} more.",
        "Then {n} gets {y} more.",
    ),
    "-": (
        "{n} then gives away {y}.",
        "Later {n} loses {y} of them.",
        "Then {n} sells {y} of them.",
        "A friend takes {y} of them.",
    ),
    "*": (
        "By spring {n} has {y} times as many.",
        "Then the number grows to {y} times as many.",
        "A year later {n} has {y} times as many.",
    ),
}
LEADS = {
    "+": (
        "Adding these gives",
        "That makes",
        "With the new ones there are",
        "Now there are",
        "Together it is",
    ),
    "-": (
        "Without these it is",
        "That leaves",
        "After this there are",
        "What is left is",
        "Now there are",
    ),
    "*": (
        "Multiplying gives",
        "That makes",
        "As many times over there are",
        "Now there are",
        "Altogether it is",
    ),
}
STARTS = (
    "{n} has {x} {t}.",
    "{n} owns {x} {t}.",
    "At first {n} has {x} {t}.",
    "There are {x} {t} in the box of {n}.",
)
ASKS = (
    "How many {t} does {n} have now?",
    "How many {t} are there in the end?",
    "How many {t} does that make?",
)
BEFORE = (
    "How many {t} were there just before that?",
    "How many {t} did {n} have before the last change?",
)
CHANGED = {
    True: (
        "How many more {t} than at first is that?",
        "How many {t} more than at first does {n} have?",
    ),
    False: (
        "How many fewer {t} than at first is that?",
        "How many {t} fewer than at first does {n} have?",
    ),
}


def _draw_step(rng: Random, level: Level, x: int, ops: str) -> tuple[str, int]:
    """Return an operation and its second operand that keep the total in 1..999."""
    while True:
        op = rng.choice(ops)
        y = rng.randint(*(level.factors if op == "*" else level.numbers))
        if 0 < apply(x, op, y) <= 999:
            return op, y


def _step(rng: Random, x: int, op: str, y: int, leads: tuple[str, ...]) -> Step:
    """Return a step with one of these lead-ins."""
    return Step(x, op, y, apply(x, op, y), rng.choice(leads))


@dataclass
class Draft:
    """A problem while its sentences are drawn."""

    rng: Random
    words: dict[str, str]  # names and things, by their letter in the sentences
    wording: list
    sentences: list[str] = field(default_factory=list)

    def write(self, variants: tuple[str, ...], **numbers: int) -> None:
        """Add one of these sentences."""
        variant = self.rng.randrange(len(variants))
        self.wording.append(variant)
        self.sentences.append(variants[variant].format(**self.words, **numbers))

    def finish(self, steps: list[Step], operands: list, asked: int = -1) -> Problem:
        question = " ".join(self.sentences)
        return Problem(question, tuple(steps), tuple(operands), tuple(self.wording), asked=asked)

    def ask(self, steps: list[Step], operands: list, on_the_way: bool) -> Problem:
        """Ask for the final number, or for the number before the last event."""
        if on_the_way and len(steps) > 1:
            self.wording.append("before")
            self.write(BEFORE)
            return self.finish(steps, operands, asked=-2)
        self.write(ASKS)
        return self.finish(steps, operands)


CHANGE_LEADS = ("The change is", "Compared with the start that is")


def collection(rng: Random, level: Level) -> Problem:
    """Generate a problem about a person's things and one to three events."""
    n = rng.choice(NAMES)
    t = rng.choice(THINGS)
    x = rng.randint(*level.numbers)
    first = x
    draft = Draft(rng, {"n": n, "t": t}, ["collection", n, t])
    draft.write(STARTS, x=x)
    operands: list = [x]
    steps: list[Step] = []
    ops = "++--*"
    count = rng.randint(*level.steps)
    on_the_way = rng.random() < ON_THE_WAY
    # the last step compares the end with the start
    changed = on_the_way and count > 2 and rng.random() < 0.5
    for _ in range(count - 1 if changed else count):
        op, y = _draw_step(rng, level, x, ops)
        if op == "*":
            ops = "+-"  # at most one multiplication, to keep totals in range
        draft.write(TOLD[op], y=y)
        steps.append(_step(rng, x, op, y, LEADS[op]))
        operands += [op, y]
        x = steps[-1].z
    if changed and x != first:
        draft.wording.append("changed")
        draft.write(CHANGED[x > first])
        steps.append(_step(rng, max(x, first), "-", min(x, first), CHANGE_LEADS))
        return draft.finish(steps, operands)
    return draft.ask(steps, operands, on_the_way)


COMPARED = {
    "+": ("{m} has {y} more than {n}.", "{m} owns {y} more {t} than {n}."),
    "-": ("{m} has {y} fewer than {n}.", "{m} owns {y} fewer {t} than {n}."),
    "*": ("{m} has {y} times as many as {n}.", "{m} owns {y} times as many {t} as {n}."),
}
JOINED = ("They put all of them into one box.", "They count all of them together.")
PARTS = ("How many {t} did {m} bring?", "How many of these {t} belong to {m}?")
TOGETHER = ("How many {t} do they have together?", "How many {t} do {n} and {m} have in all?")
ALONE = ("How many {t} does {m} have?", "How many {t} does {m} own?")


SECOND_LEADS = ("For the second that is", "The other has")
TOTAL_LEADS = ("Together they have", "In all that is")


def comparison(rng: Random, level: Level) -> Problem:
    """Generate a comparison of two people; with two or more steps, ask for their total."""
    n, m = rng.sample(NAMES, 2)
    t = rng.choice(THINGS)
    x = rng.randint(*level.numbers)
    op, y = _draw_step(rng, level, x, "+-*")
    draft = Draft(rng, {"n": n, "m": m, "t": t}, ["comparison", n, m, t])
    draft.write(STARTS, x=x)
    draft.write(COMPARED[op], y=y)
    steps = [_step(rng, x, op, y, SECOND_LEADS)]
    together = rng.randint(*level.steps) > 1
    operands = [x, op, y, together]
    if not together:
        draft.write(ALONE)
        return draft.finish(steps, operands)
    steps.append(_step(rng, x, "+", steps[0].z, TOTAL_LEADS))
    if rng.random() < ON_THE_WAY:
        draft.wording.append("part")
        draft.write(JOINED)
        draft.write(PARTS)
        return draft.finish(steps, operands, asked=-2)
    draft.write(TOGETHER)
    return draft.finish(steps, operands)


BOUGHT = (
    "{n} buys {y} boxes with {x} {t} in each.",
    "{n} fills {y} bags with {x} {t} in each.",
    "There are {y} rows of {x} {t} on the table of {n}.",
)


COUNT_LEADS = ("In all there are", "Counting them gives")


def purchase(rng: Random, level: Level) -> Problem:
    """Generate a problem about equal boxes of things and later events."""
    n = rng.choice(NAMES)
    t = rng.choice(THINGS)
    x = rng.randint(*level.numbers)
    y = rng.randint(*level.factors)
    while x * y > 999:
        x = rng.randint(*level.numbers)
    draft = Draft(rng, {"n": n, "t": t}, ["purchase", n, t])
    draft.write(BOUGHT, x=x, y=y)
    steps = [_step(rng, x, "*", y, COUNT_LEADS)]
    operands: list = [x, "*", y]
    for _ in range(rng.randint(*level.steps) - 1):
        x = steps[-1].z
        op, y = _draw_step(rng, level, x, "+-")
        draft.write(TOLD[op], y=y)
        steps.append(_step(rng, x, op, y, LEADS[op]))
        operands += [op, y]
    return draft.ask(steps, operands, rng.random() < ON_THE_WAY)


FAMILIES = (collection, collection, comparison, purchase)


def draw(rng: Random, level: Level, held_out: bool = False) -> Problem:
    """Return a problem for training, or a held-out one from the reserved operands and wordings."""
    while True:
        problem = rng.choice(FAMILIES)(rng, level)
        both = reserved(problem.operands), reserved(problem.wording)
        if problem.answer <= 999 and both == (held_out, held_out):
            last = len(problem.steps) > 1 and problem.asked == -1
            return replace(problem, unfinished=last and rng.random() < UNFINISHED)


def drill(rng: Random, level: Level) -> Problem:
    """Return a bare arithmetic problem, without reserved operands; models learn arithmetic fastest
    from these."""
    while True:
        x = rng.randint(*level.numbers)
        op, y = _draw_step(rng, level, x, "+-*")
        if not reserved((x, op, y)):
            step = Step(x, op, y, apply(x, op, y), "That is")
            return Problem(f"What is {x} {op} {y}?", (step,), (x, op, y), ("drill",))


def written(problem: Problem) -> list[str]:
    """Return the arithmetic of each step; an unfinished last step has no result."""
    *lines, last = [str(step) for step in problem.steps]
    step = problem.steps[-1]
    if problem.unfinished:
        last = f"{step.x} {step.op} {step.y}"
    elif problem.slip is not None:
        last = str(replace(step, z=problem.slip))
    return [*lines, last]


def solution(problem: Problem) -> str:
    """Return the target response: a line per step, then the delimiter and the answer."""
    lines = []
    for step, line in zip(problem.steps, written(problem), strict=True):
        lines.append(f"{step.lead} {line}.")
    lines.append(f"#### {problem.answer}")
    return "\n".join(lines)


def slipped(rng: Random, problem: Problem) -> Problem:
    """Return the problem, in a few cases with a wrong last result before the correct answer."""
    if problem.unfinished or problem.asked != -1 or rng.random() >= SLIPS:
        return problem
    last = problem.steps[-1]
    return replace(problem, slip=_slip(rng, last.x, last.op, last.y))


def thinking(problem: Problem) -> str:
    """Return the steps as a draft inside a thinking block."""
    return "<think>\n" + "\n".join(written(problem)) + "\n</think>\n\n"


def corrupt(rng: Random, problem: Problem) -> Problem:
    """Return the problem with a wrong solution.

    Either one step has a plausible error, which later steps carry on, or the answer is another
    step's result.
    """
    at_the_end = replace(problem, asked=-1)
    if at_the_end.answer != problem.answer and rng.random() < 0.5:
        return at_the_end
    at = rng.randrange(len(problem.steps))
    steps: list[Step] = []
    swaps: dict[int, int] = {}
    for i, step in enumerate(problem.steps):
        x = swaps.get(step.x, step.x)
        y = swaps.get(step.y, step.y)
        z = apply(x, step.op, y)
        if i == at:
            z = _slip(rng, x, step.op, y)
        swaps[step.z] = z
        steps.append(replace(step, x=x, y=y, z=z))
    wrong = replace(problem, steps=tuple(steps))
    return wrong if wrong.answer != problem.answer else corrupt(rng, problem)


def _slip(rng: Random, x: int, op: str, y: int) -> int:
    """Return a plausible wrong result: off by a little, by tens or by 100, or of another
    operation."""
    z = apply(x, op, y)
    other = apply(x, rng.choice("+-*"), y)
    near = [z + off for off in (1, -1, 2, -2, 10, -10, 20, -20)]
    near += [other, z + 100]
    return rng.choice([w for w in near if 0 <= w <= 999 and w != z])
