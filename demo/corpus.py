"""Generate word problems from templates, at three difficulty levels that mirror the paper's
datasets.

    Nora has 12 shells. Then Nora finds 7 more. How many shells does Nora have now?

    With the new ones there are 12 + 7 = 19.
    #### 19

A problem is a chain of arithmetic steps, written by one of three families of templates (a growing
collection, a comparison of two people, a purchase). Numbers and wording are sampled separately. A
hash reserves a fifth of each for the shipped questions; training uses only the rest. So neither the
questions, nor their operands, nor their wording were seen in training.

Some questions ask for an intermediate number, and some solutions leave the last result to the
`####` line (solutions.py), so that a model cannot be certain of an answer that it only copies.

All randomness comes from the caller's `random.Random`.
"""

import hashlib
from dataclasses import dataclass, field, replace
from random import Random

from demo.sentences import (
    ALONE,
    ASKS,
    BEFORE,
    BOUGHT,
    CHANGE_LEADS,
    CHANGED,
    COMPARED,
    COUNT_LEADS,
    JOINED,
    LEADS,
    NAMES,
    PARTS,
    SECOND_LEADS,
    STARTS,
    THINGS,
    TOGETHER,
    TOLD,
    TOTAL_LEADS,
)


@dataclass(frozen=True)
class Level:
    """Ranges of a problem's numbers, factors and number of steps."""

    numbers: tuple[int, int]
    factors: tuple[int, int]
    steps: tuple[int, int]


# share of solutions with two or more steps that leave the last result to the `####` line
UNFINISHED = 0.30
ON_THE_WAY = 0.20  # share of questions with two or more steps that ask for an earlier number

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
