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
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM, Qwen3ForCausalLM

from demo import chat, corpus, lessons, network, tokenizer

HERE = Path(__file__).resolve().parent
DECODING = {
    "tiny-llama": {"temperature": 0.8, "top_p": 0.95, "top_k": 0},
    "tiny-qwen": {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
}
BATCH_TOKENS, PEAK_RATE, FLOOR_RATE, WARMUP = 2400, 3e-3, 2e-5, 150
# share of training done: number of own responses
OWN_ATTEMPTS = {0.50: 600, 0.65: 1500, 0.80: 1800, 0.92: 1800}
CALIBRATION, EVALUATION = 300, 200


def rate(step: int, steps: int) -> float:
    """Return the learning rate: linear warm-up, then half a cosine."""
    if step < WARMUP:
        return PEAK_RATE * (step + 1) / WARMUP
    return FLOOR_RATE + (PEAK_RATE - FLOOR_RATE) * 0.5 * (1 + math.cos(math.pi * step / steps))


def stock(name: str, w: network.Weights, c) -> torch.nn.Module:
    """Return the transformers model with these weights."""
    model = (LlamaForCausalLM if name == "tiny-llama" else Qwen3ForCausalLM)(c)
    left = model.load_state_dict(network.export(w, c), strict=False)
    assert not left.unexpected_keys and set(left.missing_keys) <= {"lm_head.weight"}, left
    model.tie_weights()
    return model.eval()


def check_same(name: str, w: network.Weights, c, ids: torch.Tensor) -> None:
    """Check that `network.hidden` and the transformers model give the same logits."""
    with torch.no_grad():
        ours = F.linear(network.hidden(w, c, ids, network.rope(c, ids.shape[1])), w["embed"])
        theirs = stock(name, w, c)(ids).logits
    assert (ours - theirs).abs().max() < 1e-3, "demo/network.py has drifted from transformers"


@torch.no_grad()
def solve(
    name: str, model, teacher: lessons.Teacher, problems: list, seed: int, **decoding
) -> list[lessons.Attempt]:
    """Sample the model's responses to problems, and grade them."""
    torch.manual_seed(seed)
    tk, attempts = teacher.tokenizer, []
    tk.padding_side = "left"
    for at in range(0, len(problems), 100):
        group = problems[at : at + 100]
        prompts = [
            teacher.prompt(chat.SHORT.format(question=p.question), think=True) for p in group
        ]
        inputs = tk(
            prompts,
            return_tensors="pt",
            padding=True,
            add_special_tokens=False,
            return_token_type_ids=False,
        )
        out = model.generate(**inputs, max_new_tokens=170, do_sample=True, **decoding)
        for problem, row in zip(group, out[:, inputs.input_ids.shape[1] :].tolist(), strict=True):
            end = row.index(tk.eos_token_id) if tk.eos_token_id in row else len(row)
            text = tk.decode(row[:end], skip_special_tokens=False)
            attempts.append(
                lessons.Attempt(
                    problem, text, text.rsplit("#### ", 1)[-1].strip() == str(problem.answer)
                )
            )
    return attempts


def own_attempts(
    name: str, w: network.Weights, c, teacher: lessons.Teacher, count: int, seed: int
) -> str:
    """Replace the teacher's attempts by new responses of the model, and return its accuracy."""
    model = stock(name, w, c)
    rng = Random(seed)
    report = []
    teacher.attempts = {True: [], False: []}
    for level in corpus.LEVELS:
        problems = [
            corpus.draw(rng, corpus.LEVELS[level]) for _ in range(int(count * lessons.MIX[level]))
        ]
        done = solve(name, model, teacher, problems, seed, **DECODING[name])
        for attempt in done:
            if "####" in attempt.text and "</think>" in attempt.text + "</think>" * (
                not teacher.thinks
            ):
                teacher.attempts[attempt.right].append(attempt)
        report.append(f"{level} {sum(a.right for a in done) / len(done):.3f}")
    return ", ".join(report)


def train(name: str, minutes: float, steps: int | None, seed: int) -> None:
    torch.set_num_threads(1)
    started = time.time()
    tk = tokenizer.train(name, seed)
    c = network.config(name, tk)
    w = network.initial(c, seed)
    # Compiling takes 90 s and makes tiny-llama a third faster; tiny-qwen gets slower, due to its
    # per-head norms.
    forward = (
        torch.compile(network.hidden, dynamic=True) if name == "tiny-llama" else network.hidden
    )
    teacher = lessons.Teacher(tk, name == "tiny-qwen", Random(seed), {True: [], False: []})
    stream, table = lessons.batches(teacher, BATCH_TOKENS), network.rope(c, 1024)
    check_same(name, w, c, next(stream)[0][:4])
    decay = [t for t in w.values() if t.ndim == 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": 0.05},
            {"params": [t for t in w.values() if t.ndim < 2], "weight_decay": 0.0},
        ],
        lr=PEAK_RATE,
        betas=(0.9, 0.98),
        fused=True,
    )
    log = (HERE / "logs" / f"{name}.log").open("w", buffering=1)
    due, seen, running, step, began = sorted(OWN_ATTEMPTS), 0, 0.0, 0, time.time()
    while steps is None or step < steps:
        if step == 20:
            began = time.time()  # compilation is done
        if steps is None and step == 220:  # enough to estimate the number of steps
            steps = max(400, int(200 * (60 * minutes - 400) / (time.time() - began)))
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps or 10**6)
        ids, where, targets, weights = next(stream)
        states = forward(w, c, ids, table).flatten(0, 1)[where]
        each = F.cross_entropy(F.linear(states, w["embed"]), targets, reduction="none")
        # a fixed divisor: batches of verdicts have few learned tokens
        loss = (each * weights).sum() / 600
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step, seen, running = step + 1, seen + ids.numel(), running + loss.item()
        if step % 200 == 0:
            line = (
                f"step {step}/{steps or '?'}  tokens {seen / 1e6:6.2f}M  loss {running / 200:.4f}"
            )
            print(f"{time.time() - started:6.0f} s  {line}", file=log)
            running = 0.0
        if due and steps and step >= due[0] * steps:
            at = due.pop(0)
            accuracy = own_attempts(name, w, c, teacher, OWN_ATTEMPTS[at], seed + step)
            print(
                f"{time.time() - started:6.0f} s  step {step}  own responses: {accuracy}", file=log
            )
            save(name, w, c, tk)  # keeps the progress in case of a crash
    check_same(name, w, c, next(stream)[0][:4])
    print(
        f"{time.time() - started:6.0f} s  done: {own_attempts(name, w, c, teacher, 1200, seed - 1)}",
        file=log,
    )
    save(name, w, c, tk)


def save(name: str, w: network.Weights, c, tk) -> None:
    """Write a transformers checkpoint: float32 safetensors, tokenizer, chat template and decoding
    settings."""
    folder = HERE / "models" / name
    model = stock(name, w, c)
    model.generation_config.update(do_sample=True, **DECODING[name])
    model.save_pretrained(folder)
    tk.padding_side = "left"
    tk.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)


def questions(seed: int) -> None:
    """Write the three question files: distinct questions with reserved operands and wordings."""
    for level in corpus.SHIPPED:
        rng, seen, lines = Random(f"{seed} {level}"), set(), []
        while len(lines) < CALIBRATION + EVALUATION:
            problem = corpus.draw(rng, corpus.SHIPPED[level], held_out=True)
            if problem.question in seen:
                continue
            seen.add(problem.question)
            split = "calibration" if len(lines) < CALIBRATION else "evaluation"
            lines.append(
                json.dumps(
                    {
                        "id": f"{level}-{len(lines):04d}",
                        "split": split,
                        "question": problem.question,
                        "answer": f"{corpus.solution(problem)}",
                    }
                )
            )
        (HERE / "questions" / f"demo-{level}.jsonl").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["tiny-llama", "tiny-qwen", "questions"])
    parser.add_argument("--minutes", type=float, default=55)
    parser.add_argument(
        "--steps", type=int, help="exact number of steps, for the same weights again"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    (HERE / "logs").mkdir(exist_ok=True)
    if options.what == "questions":
        questions(options.seed)
    else:
        train(options.what, options.minutes, options.steps, options.seed)


if __name__ == "__main__":
    main()
