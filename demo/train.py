"""Train a demo model from scratch and write its checkpoint, or write the question files.

    python -m demo.train tiny-llama --minutes 55
    python -m demo.train tiny-qwen --minutes 55
    python -m demo.train questions

Training uses one thread, float32, and AdamW with a cosine schedule. --steps sets the number of
steps; otherwise it is estimated from --minutes and the speed of the first steps. During training
the model solves problems, and its correct and incorrect responses are used to train verification.
"""

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM, PretrainedConfig, Qwen3ForCausalLM

from demo import chat, corpus, lessons, network, solutions, tokenizer

HERE = Path(__file__).resolve().parent
DECODING = {
    "tiny-llama": {"temperature": 0.8, "top_p": 0.95, "top_k": 0},
    "tiny-qwen": {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
}
BATCH_TOKENS = 2400
PEAK_RATE = 3e-3
FLOOR_RATE = 2e-5
WARMUP = 150  # steps
# share of training done: number of own responses
OWN_ATTEMPTS = {0.50: 600, 0.65: 1500, 0.80: 1800, 0.92: 1800}
CALIBRATION = 300
EVALUATION = 200


def rate(step: int, steps: int) -> float:
    """Return the learning rate: linear warm-up, then half a cosine."""
    if step < WARMUP:
        return PEAK_RATE * (step + 1) / WARMUP
    cosine = math.cos(math.pi * step / steps)
    return FLOOR_RATE + (PEAK_RATE - FLOOR_RATE) * 0.5 * (1 + cosine)


@dataclass
class Student:
    """A model in training, and the teacher of its tokens."""

    name: str
    c: PretrainedConfig
    w: network.Weights
    teacher: lessons.Teacher

    def stock(self) -> torch.nn.Module:
        """Return the transformers model with these weights."""
        kind = LlamaForCausalLM if self.name == "tiny-llama" else Qwen3ForCausalLM
        model = kind(self.c)
        left = model.load_state_dict(network.export(self.w, self.c), strict=False)
        assert not left.unexpected_keys and set(left.missing_keys) <= {"lm_head.weight"}, left
        model.tie_weights()
        return model.eval()

    def check_same(self, ids: torch.Tensor) -> None:
        """Check that `network.hidden` and the transformers model give the same logits."""
        with torch.no_grad():
            table = network.rope(self.c, ids.shape[1])
            states = network.hidden(self.w, self.c, ids, table)
            ours = functional.linear(states, self.w["embed"])
            theirs = self.stock()(ids).logits
        assert (ours - theirs).abs().max() < 1e-3, "demo/network.py has drifted from transformers"

    def save(self) -> None:
        """Write a transformers checkpoint: float32 safetensors, tokenizer, chat template and
        decoding settings."""
        folder = HERE / "models" / self.name
        model = self.stock()
        model.generation_config.update(do_sample=True, **DECODING[self.name])
        model.save_pretrained(folder)
        self.teacher.tokenizer.padding_side = "left"
        self.teacher.tokenizer.save_pretrained(folder)
        (folder / "model.safetensors").chmod(0o644)


def new_student(name: str, seed: int) -> Student:
    tk = tokenizer.train(name, seed)
    c = network.config(name, tk)
    w = network.initial(c, seed)
    teacher = lessons.Teacher(tk, name == "tiny-qwen", Random(seed), {True: [], False: []})
    return Student(name, c, w, teacher)


@torch.no_grad()
def solve(student: Student, problems: list, seed: int) -> list[lessons.Attempt]:
    """Sample the model's responses to problems, and grade them."""
    model = student.stock()
    torch.manual_seed(seed)  # after the model, whose making draws weights that it does not keep
    decoding = DECODING[student.name]
    teacher = student.teacher
    tk = teacher.tokenizer
    tk.padding_side = "left"
    attempts = []
    for at in range(0, len(problems), 100):
        group = problems[at : at + 100]
        prompts = []
        for problem in group:
            user = chat.SHORT.format(question=problem.question)
            prompts.append(teacher.prompt(user, think=True))
        inputs = tk(
            prompts,
            return_tensors="pt",
            padding=True,
            add_special_tokens=False,
            return_token_type_ids=False,
        )
        out = model.generate(**inputs, max_new_tokens=170, do_sample=True, **decoding)
        responses = out[:, inputs.input_ids.shape[1] :].tolist()
        for problem, ids in zip(group, responses, strict=True):
            end = ids.index(tk.eos_token_id) if tk.eos_token_id in ids else len(ids)
            text = tk.decode(ids[:end], skip_special_tokens=False)
            answer = text.rsplit("#### ", 1)[-1].strip()
            attempts.append(lessons.Attempt(problem, text, answer == str(problem.answer)))
    return attempts


def own_attempts(student: Student, count: int, seed: int) -> str:
    """Replace the teacher's attempts by new responses of the model, and return its accuracy."""
    teacher = student.teacher
    rng = Random(seed)
    report = []
    teacher.attempts = {True: [], False: []}
    for name, level in corpus.LEVELS.items():
        problems = []
        for _ in range(int(count * lessons.MIX[name])):
            problems.append(corpus.draw(rng, level))
        done = solve(student, problems, seed)
        for attempt in done:
            thought = not teacher.thinks or "</think>" in attempt.text
            if thought and "####" in attempt.text:
                teacher.attempts[attempt.right].append(attempt)
        right = [attempt for attempt in done if attempt.right]
        report.append(f"{name} {len(right) / len(done):.3f}")
    return ", ".join(report)


def make_optimizer(w: network.Weights) -> torch.optim.Optimizer:
    """Return AdamW, with weight decay of the matrices alone."""
    matrices = [t for t in w.values() if t.ndim == 2]
    others = [t for t in w.values() if t.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), fused=True)


def train(name: str, minutes: float, steps: int | None, seed: int) -> None:
    torch.set_num_threads(1)
    log = Log(HERE / "logs" / f"{name}.log")
    student = new_student(name, seed)
    stream = lessons.batches(student.teacher, BATCH_TOKENS)
    student.check_same(next(stream)[0][:4])
    learner = Learner(student)
    due = sorted(OWN_ATTEMPTS)
    began = time.time()
    step = 0
    while steps is None or step < steps:
        if step == 20:
            began = time.time()  # compilation is done
        if steps is None and step == 220:  # enough to estimate the number of steps
            seconds = (time.time() - began) / 200
            steps = max(400, int((60 * minutes - 400) / seconds))
        learner.take_step(next(stream), rate(step, steps or 10**6))
        step += 1
        if step % 200 == 0:
            log.write(f"step {step}/{steps or '?'}  {learner.describe()}")
        if due and steps and step >= due[0] * steps:
            count = OWN_ATTEMPTS[due.pop(0)]
            accuracy = own_attempts(student, count, seed + step)
            log.write(f"step {step}  own responses: {accuracy}")
            student.save()  # keeps the progress in case of a crash
    student.check_same(next(stream)[0][:4])
    log.write(f"done: {own_attempts(student, 1200, seed - 1)}")
    student.save()


class Log:
    """A file of lines, each with the seconds since the start."""

    def __init__(self, path: Path):
        self.started = time.time()
        self.file = path.open("w", buffering=1)

    def write(self, line: str) -> None:
        print(f"{time.time() - self.started:6.0f} s  {line}", file=self.file)


class Learner:
    """Takes the steps of a training, and counts the tokens and the loss."""

    def __init__(self, student: Student):
        self.w = student.w
        self.c = student.c
        self.table = network.rope(student.c, 1024)
        # Compiling takes 90 s and makes tiny-llama a third faster; tiny-qwen gets slower, due to
        # its per-head norms.
        self.forward = network.hidden
        if student.name == "tiny-llama":
            self.forward = torch.compile(network.hidden, dynamic=True)
        self.optimizer = make_optimizer(student.w)
        self.tokens = 0
        self.losses: list[float] = []  # since the last description

    def take_step(self, batch: tuple[torch.Tensor, ...], rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        ids, where, targets, weights = batch
        states = self.forward(self.w, self.c, ids, self.table)
        states = states.flatten(0, 1)[where]
        each = functional.cross_entropy(
            functional.linear(states, self.w["embed"]), targets, reduction="none"
        )
        # a fixed divisor: batches of verdicts have few learned tokens
        loss = (each * weights).sum() / 600
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.w.values(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.tokens += ids.numel()
        self.losses.append(loss.item())

    def describe(self) -> str:
        """Return the tokens so far, and the mean loss since the last description."""
        loss = sum(self.losses) / len(self.losses)
        self.losses = []
        return f"tokens {self.tokens / 1e6:6.2f}M  loss {loss:.4f}"


def questions(seed: int) -> None:
    """Write the three question files: distinct questions with reserved operands and wordings."""
    for name, level in corpus.SHIPPED.items():
        rng = Random(f"{seed} {name}")
        seen = set()
        lines = []
        while len(lines) < CALIBRATION + EVALUATION:
            problem = corpus.draw(rng, level, held_out=True)
            if problem.question in seen:
                continue
            seen.add(problem.question)
            row = {
                "id": f"{name}-{len(lines):04d}",
                "split": "calibration" if len(lines) < CALIBRATION else "evaluation",
                "question": problem.question,
                "answer": solutions.solution(problem),
            }
            lines.append(json.dumps(row))
        (HERE / "questions" / f"demo-{name}.jsonl").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["tiny-llama", "tiny-qwen", "questions"])
    parser.add_argument("--minutes", type=float, default=55)
    steps = "exact number of steps, for the same weights again"
    parser.add_argument("--steps", type=int, help=steps)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    (HERE / "logs").mkdir(exist_ok=True)
    if options.what == "questions":
        questions(options.seed)
    else:
        train(options.what, options.minutes, options.steps, options.seed)


if __name__ == "__main__":
    main()
