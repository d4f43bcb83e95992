"""Training sequences: token ids and the positions of the learned tokens.

There are three kinds. Solving: prompt, response and end of turn; the response is learned. In situ:
a response and the verification query in the same turn; the verdict is learned. Standard: question
and proposed answer in a new turn; the verdict is learned. Verdicts are balanced between correct and
incorrect. Incorrect responses are corrupted solutions at first, and mostly the model's own errors
later.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from demo import chat, corpus, solutions
from lib.tasks import prompts

DRILLS = 0.25  # share of bare arithmetic
FULL = 0.08  # share of the paper's full prompt
MIX = {"easy": 0.35, "medium": 0.45, "hard": 0.20}
# Verdicts can't be learned before arithmetic, so their share and weight are small at first.
# share of verification, before and after the model has its own attempts
VERIFY = {False: 0.08, True: 0.40}
# weight of a verdict's single token, against about forty of a solution
VERDICT = {False: 1.0, True: 3.0}


OPTIONS = {True: "A", False: "B"}  # verdicts
Sequence = tuple[list[int], list[int]]  # token ids, and the indices of the learned ones


@dataclass
class Attempt:
    """A response to a problem, as text without its end of turn."""

    problem: corpus.Problem
    text: str
    right: bool


@dataclass
class Teacher:
    """Generates sequences for one model; `attempts` are the model's own responses, refreshed during
    training."""

    tokenizer: Any
    thinks: bool
    rng: Random
    attempts: dict[bool, list[Attempt]]

    @property
    def grown(self) -> bool:
        """Whether the model has own attempts of both kinds, correct and incorrect."""
        return all(self.attempts.values())

    def prompt(self, user: str, think: bool, system: bool = False) -> str:
        messages = [{"role": "user", "content": user}]
        if system:
            messages.insert(0, {"role": "system", "content": prompts.SYSTEM})
        options = {"enable_thinking": think} if self.thinks else {}
        return self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **options
        )

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids

    def problem(self) -> corpus.Problem:
        (name,) = self.rng.choices(list(MIX), list(MIX.values()))
        draw = corpus.drill if self.rng.random() < DRILLS else corpus.draw
        return draw(self.rng, corpus.LEVELS[name])

    def attempt(self, right: bool, think: bool) -> Attempt:
        """Return a correct or incorrect response; in three of four cases the model's own, if
        available."""
        if self.attempts[right] and self.rng.random() < 0.75:
            return self.rng.choice(self.attempts[right])
        problem = self.problem()
        solved = problem if right else solutions.corrupt(self.rng, problem)
        draft = solutions.thinking(solved) if think else ""
        return Attempt(problem, draft + solutions.solution(solved), right)

    def sequence(self) -> Sequence:
        full = self.rng.random() < FULL
        think = self.thinks and self.rng.random() < 0.7
        if self.rng.random() < VERIFY[self.grown] / 2:
            return self.standard(think, full)
        return self.solving(think, full)

    def solving(self, think: bool, full: bool) -> Sequence:
        """Return a solved problem, or a correct or incorrect response with an in-situ verdict."""
        if self.rng.random() < VERIFY[self.grown] * 0.6:
            right = self.rng.random() < 0.5
            work = self.attempt(right, think)
            prompt, response = self.exchange(work, full)
            verdict = self.encode(f"{prompts.QUERY} {OPTIONS[right]}")
            ids = prompt + response + verdict
            return ids, [len(ids) - 1]
        prompt, response = self.exchange(self.attempt_at_solving(think), full)
        ids = prompt + response + [self.tokenizer.eos_token_id]
        return ids, list(range(len(prompt), len(ids)))

    def exchange(self, work: Attempt, full: bool) -> tuple[list[int], list[int]]:
        """Return the token ids of the prompt for a problem, and of a response to it."""
        think = self.thinks and work.text.startswith("<think>")
        template = chat.FULL if full else chat.SHORT
        user = template.format(question=work.problem.question)
        return self.encode(self.prompt(user, think, system=full)), self.encode(work.text)

    def attempt_at_solving(self, think: bool) -> Attempt:
        problem = solutions.slipped(self.rng, self.problem())
        draft = solutions.thinking(problem) if think else ""
        return Attempt(problem, draft + solutions.solution(problem), True)

    def standard(self, think: bool, full: bool) -> Sequence:
        """Return a verdict on a proposed answer without its thinking block."""
        right = self.rng.random() < 0.5
        work = self.attempt(right, think)
        response = work.text.split("</think>")[-1].lstrip("\n")
        user = chat.PROPOSED.format(question=work.problem.question, response=response)
        ids = self.encode(self.prompt(user, think=False, system=full) + OPTIONS[right])
        return ids, [len(ids) - 1]


def batches(teacher: Teacher, tokens: int, pool: int = 600) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield batches of about `tokens` tokens with little padding.

    Each is ids (batch, length) and, for n learned tokens, the flat positions of their predecessors,
    the tokens and their weights, (n,) each.
    """
    pad = teacher.tokenizer.pad_token_id
    while True:
        sequences = [teacher.sequence() for _ in range(pool)]
        groups = group_by_length(sequences, tokens)
        teacher.rng.shuffle(groups)
        for group in groups:
            length = max(len(ids) for ids, _ in group)
            batch = torch.full((len(group), length), pad)
            learned: list[int] = []
            targets: list[int] = []
            weights: list[float] = []
            for row, (ids, where) in enumerate(group):
                batch[row, : len(ids)] = torch.tensor(ids)
                learned += [row * length + i - 1 for i in where]
                targets += [ids[i] for i in where]
                weight = VERDICT[teacher.grown] if len(where) == 1 else 1.0
                weights += [weight] * len(where)
            yield batch, torch.tensor(learned), torch.tensor(targets), torch.tensor(weights)


def group_by_length(sequences: list[Sequence], tokens: int) -> list[list[Sequence]]:
    """Return the sequences in groups of about `tokens` tokens, with padding, shortest first."""
    sequences = sorted(sequences, key=lambda sequence: len(sequence[0]))
    lengths = [len(ids) for ids, _ in sequences]
    groups = []
    start = 0
    while start < len(sequences):
        # as many as of the first one's length, then as many as of the last one's among these
        end = min(start + tokens // lengths[start], len(sequences))
        size = max(1, tokens // lengths[end - 1])
        groups.append(sequences[start : start + size])
        start += size
    return groups
