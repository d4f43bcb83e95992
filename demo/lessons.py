"""Training sequences: token ids and the positions whose next token is learned.

Three kinds. Solving: prompt, response, end of turn; the response is learned. In situ: a response followed by the
verification question in the same turn; the verdict is learned (and the response too, where it is right). Standard:
question and proposed answer in a fresh turn; only the verdict is learned. Verdicts are balanced between right and
wrong; wrong responses are corrupted solutions at first, the model's own errors as soon as it has made some.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import torch

from demo import chat, corpus

DRILLS, FULL = 0.25, 0.08  # shares of bare arithmetic, and of the paper's full prompt
MIX = {"easy": 0.35, "medium": 0.45, "hard": 0.20}
# Verdicts can't be learned before arithmetic is, and until then are noise: few and light at first, many later.
VERIFY = {False: 0.08, True: 0.40}  # share of verification, before and after the model has answers of its own
VERDICT = {False: 1.0, True: 3.0}  # weight of a verdict's one token beside a solution's forty


@dataclass
class Attempt:
    """A response of the model to a problem, as text without its end of turn."""

    problem: corpus.Problem
    text: str
    right: bool


@dataclass
class Teacher:
    """Makes sequences for one model; `attempts` fills with the model's own answers as training goes on."""

    tokenizer: object
    thinks: bool
    rng: Random
    attempts: dict[bool, list[Attempt]]

    @property
    def grown(self) -> bool:
        """Whether the model has given answers of its own, right ones and wrong ones."""
        return all(self.attempts.values())

    def prompt(self, user: str, think: bool, system: bool = False) -> str:
        messages = [{"role": "user", "content": user}]
        if system:
            messages.insert(0, {"role": "system", "content": chat.SYSTEM})
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
        """A right or a wrong response: the model's own in three cases of four, once there are any."""
        if self.attempts[right] and self.rng.random() < 0.75:
            return self.rng.choice(self.attempts[right])
        problem = self.problem()
        solved = problem if right else corpus.corrupt(self.rng, problem)
        draft = corpus.thinking(solved) if think else ""
        return Attempt(problem, draft + corpus.solution(solved), right)

    def sequence(self) -> tuple[list[int], list[int]]:
        """Token ids, and the indices of those that are learned."""
        full = self.rng.random() < FULL
        think = self.thinks and self.rng.random() < 0.7
        if self.rng.random() < VERIFY[self.grown] / 2:
            return self.standard(think, full)
        return self.solving(think, full)

    def solving(self, think: bool, full: bool) -> tuple[list[int], list[int]]:
        """A solved problem, or (with a verdict after it) a right or wrong response verified in situ."""
        verdict = self.rng.random() < VERIFY[self.grown] * 0.6
        right = not verdict or self.rng.random() < 0.5
        work = self.attempt(right, think) if verdict else self.attempt_at_solving(think)
        think = work.text.startswith("<think>") if self.thinks else False
        user = (chat.FULL if full else chat.SHORT).format(question=work.problem.question)
        prompt = self.encode(self.prompt(user, think, system=full))
        response = self.encode(work.text)
        tail = self.encode(chat.QUERY + " " + "BA"[right]) if verdict else [self.tokenizer.eos_token_id]  # type: ignore[attr-defined]
        ids = prompt + response + tail
        learned = list(range(len(prompt), len(ids))) if not verdict else [len(ids) - 1]
        return ids, learned

    def attempt_at_solving(self, think: bool) -> Attempt:
        problem = corpus.slipped(self.rng, self.problem())
        return Attempt(problem, (corpus.thinking(problem) if think else "") + corpus.solution(problem), True)

    def standard(self, think: bool, full: bool) -> tuple[list[int], list[int]]:
        """The verdict on a proposed answer, from which a thinking block is left out."""
        right = self.rng.random() < 0.5
        work = self.attempt(right, think)
        response = work.text.split("</think>")[-1].lstrip("\n")
        user = chat.PROPOSED.format(question=work.problem.question, response=response)
        ids = self.encode(self.prompt(user, think=False, system=full) + "BA"[right])
        return ids, [len(ids) - 1]


def batches(teacher: Teacher, tokens: int, pool: int = 600) -> Iterator[tuple[torch.Tensor, ...]]:
    """Batches of about `tokens` tokens with little padding: ids (batch, length), and for the n learned tokens the flat
    positions of the tokens that predict them (n,), themselves (n,), and their weights (n,)."""
    pad = teacher.tokenizer.pad_token_id  # type: ignore[attr-defined]
    while True:
        sequences = sorted((teacher.sequence() for _ in range(pool)), key=lambda s: len(s[0]))
        groups, at = [], 0
        while at < len(sequences):
            size = max(1, tokens // len(sequences[min(at + tokens // len(sequences[at][0]), pool) - 1][0]))
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
