"""The solutions of problems: right ones, unfinished ones, and wrong ones for training.

If a solution only copied its last result, the model would always be certain of its answer. So some
solutions leave the last result to the `####` line ("With the new ones there are 12 + 7." and then
"#### 19"). A few training solutions write a wrong last result but the correct answer.
"""

from dataclasses import replace
from random import Random

from demo.corpus import Problem, Step, apply

SLIPS = 0.04  # share of training solutions with a wrong last result before the correct answer


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
