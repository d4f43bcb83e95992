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

import torch

from demo import chat, corpus
from lib.tasks import prompts

DRILLS, FULL = 0.25, 0.08  # shares of bare arithmetic, and of the paper's full prompt
MIX = {"easy": 0.35, "medium": 0.45, "hard": 0.20}
# Verdicts can't be learned before arithmetic, so their share and weight are small at first.
# share of verification, before and after the model has its own attempts
VERIFY = {False: 0.08, True: 0.40}
# weight of a verdict's single token, against about forty of a solution
VERDICT = {False: 1.0, True: 3.0}


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

    tokenizer: object
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
        return self.tokenizer.apply_chat_template(  # type: ignore[attr-defined]
            messages, tokenize=False, add_generation_prompt=True, **options
        )

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids  # type: ignore[attr-defined]

    def problem(self) -> corpus.Problem:
        level = corpus.LEVELS[self.rng.choices(list(MIX), list(MIX.values()))[0]]
        draw = corpus.drill if self.rng.random() < DRILLS else corpus.draw
        return draw(self.rng, level)

    def attempt(self, right: bool, think: bool) -> Attempt:
        """Return a correct or incorrect response; in three of four cases the model's own, if
        available."""
        if self.attempts[right] and self.rng.random() < 0.75:
            return self.rng.choice(self.attempts[right])
        problem = self.problem()
        solved = problem if right else corpus.corrupt(self.rng, problem)
        draft = corpus.thinking(solved) if think else ""
        return Attempt(problem, draft + corpus.solution(solved), right)

    def sequence(self) -> tuple[list[int], list[int]]:
        """Return token ids and the indices of the learned ones."""
        full = self.rng.random() < FULL
        think = self.thinks and self.rng.random() < 0.7
        if self.rng.random() < VERIFY[self.grown] / 2:
            return self.standard(think, full)
        return self.solving(think, full)

    def solving(self, think: bool, full: bool) -> tuple[list[int], list[int]]:
        """Return a solved problem, or a correct or incorrect response with an in-situ verdict."""
        verdict = self.rng.random() < VERIFY[self.grown] * 0.6
        right = not verdict or self.rng.random() < 0.5
        work = self.attempt(right, think) if verdict else self.attempt_at_solving(think)
        think = work.text.startswith("<think>") if self.thinks else False
        user = (chat.FULL if full else chat.SHORT).format(question=work.problem.question)
        prompt = self.encode(self.prompt(user, think, system=full))
        response = self.encode(work.text)
        tail = (
            self.encode(prompts.QUERY + " " + "BA"[right])
            if verdict
            else [self.tokenizer.eos_token_id]
        )  # type: ignore[attr-defined]
        ids = prompt + response + tail
        learned = list(range(len(prompt), len(ids))) if not verdict else [len(ids) - 1]
        return ids, learned

    def attempt_at_solving(self, think: bool) -> Attempt:
        problem = corpus.slipped(self.rng, self.problem())
        return Attempt(
            problem, (corpus.thinking(problem) if think else "") + corpus.solution(problem), True
        )

    def standard(self, think: bool, full: bool) -> tuple[list[int], list[int]]:
        """Return a verdict on a proposed answer without its thinking block."""
        right = self.rng.random() < 0.5
        work = self.attempt(right, think)
        response = work.text.split("</think>")[-1].lstrip("\n")
        user = chat.PROPOSED.format(question=work.problem.question, response=response)
        ids = self.encode(self.prompt(user, think=False, system=full) + "BA"[right])
        return ids, [len(ids) - 1]


def batches(teacher: Teacher, tokens: int, pool: int = 600) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield batches of about `tokens` tokens with little padding.

    Each is ids (batch, length) and, for n learned tokens, the flat positions of their predecessors,
    the tokens and their weights, (n,) each.
    """
    pad = teacher.tokenizer.pad_token_id  # type: ignore[attr-defined]
    while True:
        sequences = sorted((teacher.sequence() for _ in range(pool)), key=lambda s: len(s[0]))
        groups, at = [], 0
        while at < len(sequences):
            size = max(
                1, tokens // len(sequences[min(at + tokens // len(sequences[at][0]), pool) - 1][0])
            )
            groups.append(sequences[at : at + size])
            at += size
        teacher.rng.shuffle(groups)
        for group in groups:
            length = max(len(ids) for ids, _ in group)
            ids = torch.full((len(group), length), pad)
            learned, targets, weights = [], [], []
            for row, (tokens_, where) in enumerate(group):
                ids[row, : len(tokens_)] = torch.tensor(tokens_)
                learned += [row * length + i - 1 for i in where]
                targets += [tokens_[i] for i in where]
                weights += [VERDICT[teacher.grown] if len(where) == 1 else 1.0] * len(where)
            yield ids, torch.tensor(learned), torch.tensor(targets), torch.tensor(weights)
