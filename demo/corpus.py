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
from dataclasses import dataclass, replace
from random import Random

NAMES = (
    "Nora", "Omar", "Lily", "Hugo", "Ivan", "Maya", "Ruth", "Theo", "Anna", "Carl", "Dora", "Eric", "Fay", "Glen",
    "Iris", "Jack", "Kate", "Liam", "Mona", "Ned", "Olga", "Paul", "Rosa", "Sam",
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


# ---------------------------------------------------------------------------------------------------------------------
# Sentences. Each operation has several phrasings in the question and in the solution. So the model chooses among words
# (token probabilities below one) independently of correctness.

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


def _pick(rng: Random, wording: list, variants: tuple[str, ...]) -> str:
    wording.append(rng.randrange(len(variants)))
    return variants[wording[-1]]


def collection(rng: Random, level: Level) -> Problem:
    """Generate a problem about a person's things and one to three events."""
    n, t = rng.choice(NAMES), rng.choice(THINGS)
    x = rng.randint(*level.numbers)
    wording: list = ["collection", n, t]
    told = [_pick(rng, wording, STARTS).format(n=n, x=x, t=t)]
    first, operands = x, [x]
    steps: list[Step] = []
    ops = "++--*"
    count, on_the_way = rng.randint(*level.steps), rng.random() < ON_THE_WAY
    # the last step compares the end with the start
    changed = on_the_way and count > 2 and rng.random() < 0.5
    for _ in range(count - changed):
        op, y = _draw_step(rng, level, x, ops)
        if op == "*":
            ops = "+-"  # at most one multiplication, to keep totals in range
        told.append(_pick(rng, wording, TOLD[op]).format(n=n, y=y))
        steps.append(Step(x, op, y, apply(x, op, y), rng.choice(LEADS[op])))
        operands += [op, y]
        x = steps[-1].z
    if changed and x != first:
        wording.append("changed")
        told.append(_pick(rng, wording, CHANGED[x > first]).format(n=n, t=t))
        high, low = max(x, first), min(x, first)
        steps.append(
            Step(
                high,
                "-",
                low,
                high - low,
                rng.choice(("The change is", "Compared with the start that is")),
            )
        )
        return Problem(" ".join(told), tuple(steps), tuple(operands), tuple(wording))
    return _asked(rng, on_the_way, told, steps, operands, wording)


def _asked(
    rng: Random, on_the_way: bool, told: list, steps: list, operands: list, wording: list
) -> Problem:
    """Return the problem with its question: the final number, or the number before the last
    event."""
    _, n, t = wording[:3]
    before = on_the_way and len(steps) > 1
    wording += ["before"] * before
    told.append(_pick(rng, wording, BEFORE if before else ASKS).format(n=n, t=t))
    return Problem(
        " ".join(told), tuple(steps), tuple(operands), tuple(wording), asked=-2 if before else -1
    )


COMPARED = {
    "+": ("{m} has {y} more than {n}.", "{m} owns {y} more {t} than {n}."),
    "-": ("{m} has {y} fewer than {n}.", "{m} owns {y} fewer {t} than {n}."),
    "*": ("{m} has {y} times as many as {n}.", "{m} owns {y} times as many {t} as {n}."),
}
JOINED = ("They put all of them into one box.", "They count all of them together.")
PARTS = ("How many {t} did {m} bring?", "How many of these {t} belong to {m}?")
TOGETHER = ("How many {t} do they have together?", "How many {t} do {n} and {m} have in all?")
ALONE = ("How many {t} does {m} have?", "How many {t} does {m} own?")


def comparison(rng: Random, level: Level) -> Problem:
    """Generate a comparison of two people; with two or more steps, ask for their total."""
    n, m = rng.sample(NAMES, 2)
    t = rng.choice(THINGS)
    x = rng.randint(*level.numbers)
    op, y = _draw_step(rng, level, x, "+-*")
    wording: list = ["comparison", n, m, t]
    told = [_pick(rng, wording, STARTS).format(n=n, x=x, t=t)]
    told.append(_pick(rng, wording, COMPARED[op]).format(n=n, m=m, y=y, t=t))
    steps = [
        Step(x, op, y, apply(x, op, y), rng.choice(("For the second that is", "The other has")))
    ]
    together = rng.randint(*level.steps) > 1
    if together:
        steps.append(
            Step(
                x,
                "+",
                steps[0].z,
                x + steps[0].z,
                rng.choice(("Together they have", "In all that is")),
            )
        )
    part = together and rng.random() < ON_THE_WAY
    if part:
        wording.append("part")
        told.append(_pick(rng, wording, JOINED))
    asks = PARTS if part else TOGETHER if together else ALONE
    told.append(_pick(rng, wording, asks).format(n=n, m=m, t=t))
    return Problem(
        " ".join(told), tuple(steps), (x, op, y, together), tuple(wording), asked=-2 if part else -1
    )


BOUGHT = (
    "{n} buys {y} boxes with {x} {t} in each.",
    "{n} fills {y} bags with {x} {t} in each.",
    "There are {y} rows of {x} {t} on the table of {n}.",
)


def purchase(rng: Random, level: Level) -> Problem:
    """Generate a problem about equal boxes of things and later events."""
    n, t = rng.choice(NAMES), rng.choice(THINGS)
    x, y = rng.randint(*level.numbers), rng.randint(*level.factors)
    while x * y > 999:
        x = rng.randint(*level.numbers)
    wording: list = ["purchase", n, t]
    told = [_pick(rng, wording, BOUGHT).format(n=n, x=x, y=y, t=t)]
    steps = [Step(x, "*", y, x * y, rng.choice(("In all there are", "Counting them gives")))]
    operands: list = [x, "*", y]
    for _ in range(rng.randint(*level.steps) - 1):
        op, y = _draw_step(rng, level, steps[-1].z, "+-")
        told.append(_pick(rng, wording, TOLD[op]).format(n=n, y=y))
        x = steps[-1].z
        steps.append(Step(x, op, y, apply(x, op, y), rng.choice(LEADS[op])))
        operands += [op, y]
    return _asked(rng, rng.random() < ON_THE_WAY, told, steps, operands, wording)


FAMILIES = (collection, collection, comparison, purchase)


def draw(rng: Random, level: Level, held_out: bool = False) -> Problem:
    """Return a problem for training, or a held-out one from the reserved operands and wordings."""
    while True:
        problem = rng.choice(FAMILIES)(rng, level)
        if (
            problem.answer <= 999
            and reserved(problem.operands) == reserved(problem.wording) == held_out
        ):
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
    lines = [
        f"{step.lead} {line}." for step, line in zip(problem.steps, written(problem), strict=True)
    ]
    return "\n".join([*lines, f"#### {problem.answer}"])


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
    if problem.asked != -1 and problem.answer != problem.steps[-1].z and rng.random() < 0.5:
        return replace(problem, asked=-1)
    at = rng.randrange(len(problem.steps))
    steps: list[Step] = []
    swaps: dict[int, int] = {}
    for i, step in enumerate(problem.steps):
        x, y, op = swaps.get(step.x, step.x), swaps.get(step.y, step.y), step.op
        z = apply(x, op, y)
        if i == at:
            z = _slip(rng, x, op, y)
        swaps[step.z] = z
        steps.append(Step(x, op, y, z, step.lead))
    wrong = replace(problem, steps=tuple(steps))
    return wrong if wrong.answer != problem.answer else corrupt(rng, problem)


def _slip(rng: Random, x: int, op: str, y: int) -> int:
    """Return a plausible wrong result: off by a little, by tens or by 100, or of another
    operation."""
    z = apply(x, op, y)
    other = apply(x, rng.choice("+-*"), y)
    near = [z + 1, z - 1, z + 2, z - 2, z + 10, z - 10, z + 20, z - 20, other, z + 100]
    return rng.choice([w for w in near if 0 <= w <= 999 and w != z])
