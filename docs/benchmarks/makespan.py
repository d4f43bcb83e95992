"""The paper's run, scheduled over 1, 4 and 15 GPUs with estimated job costs (docs/hardware.md). Run by hand:

    python docs/benchmarks/makespan.py FOLDER        # FOLDER/<model>/config.json, by the last part of their names

Jobs are begun as the run begins them, those that most hangs on first, each on a GPU of its own; light ones need none.
Then the same with every job of more than some hours cut into equal parts, as its shards would allow.
Last the hours of one GPU of either kind, by the mean length of a thinking model's responses (docs/hardware.md).
"""

import heapq
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lib import params
from workflow import cost, dry_run
from workflow.device import Device
from workflow.pipeline import Job, Run

PROMPT = 400  # tokens
CARDS = (1, 4, 15)
H200 = Device(True, "H200", 141e9, 4.8e12, 989e12, 2)  # by its data sheet, as dry_run.CARD is an A100
THINKING = (2000, 4000)  # tokens
Costs = dict[str, float]  # hours
Graph = dict[str, list[str]]  # what each job waits for


def size_of(folder: Path) -> cost.Size:
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    return cost.Size.of(network, dry_run.CARD.bytes)


def costs_of(run: Run, folder: Path) -> Costs:
    """Hours of each job, in the middle of its estimate."""
    sources = {name: params.load_model_config(name).source for name in run.values["models"]}
    sizes = {name: size_of(folder / source.split("/")[-1]) for name, source in sources.items()}

    def hours(job: Job) -> float:
        if not job.notebook.heavy:
            return job.notebook.minutes / 60
        return sum(dry_run.estimate_job(job, sizes[job.model], PROMPT, 0)) / 2

    return {job.name: hours(job) for job in run.jobs}


def hours_of_one_gpu(run: Run, folder: Path) -> dict[str, tuple[tuple[float, float], ...]]:
    """Hours of all GPU jobs, and of those with dropout, by card, for each mean length in THINKING."""
    found, kept = {}, (dry_run.CARD, cost.TOKENS)
    for card in (dry_run.CARD, H200):
        rows = []
        for tokens in THINKING:
            dry_run.CARD, cost.TOKENS = card, {False: cost.TOKENS[False], True: tokens}
            costs = costs_of(run, folder)
            dropout = [job for job in run.jobs if job.notebook.number == "04"]
            heavy = [job for job in run.jobs if job.notebook.heavy]
            rows.append((sum(costs[job.name] for job in heavy), sum(costs[job.name] for job in dropout)))
        found[card.name] = tuple(rows)
    dry_run.CARD, cost.TOKENS = kept
    return found


def chains(graph: Graph, costs: Costs) -> Costs:
    """Hours of each job and the longest chain that waits for it; `graph` is in order, upstream first."""
    left = dict.fromkeys(graph, 0.0)
    for name in reversed(graph):
        left[name] += costs[name]
        for above in graph[name]:
            left[above] = max(left[above], left[name])
    return left


def simulate(graph: Graph, costs: Costs, heavy: set[str], cards: int) -> tuple[float, float]:
    """Hours until all is done, and the share of the GPUs' time in which they idle."""
    urgency, done, going, now, free = chains(graph, costs), set(), [], 0.0, cards
    waiting = sorted(graph, key=urgency.__getitem__, reverse=True)
    while waiting or going:
        for name in [name for name in waiting if done.issuperset(graph[name])]:
            if name in heavy and not free:
                continue
            free -= name in heavy
            waiting.remove(name)
            heapq.heappush(going, (now + costs[name], name))
        now, name = heapq.heappop(going)
        free += name in heavy
        done.add(name)
    return now, 1 - sum(costs[name] for name in heavy) / (now * cards)


def cut(graph: Graph, costs: Costs, heavy: set[str], most: float) -> tuple[Graph, Costs, set[str]]:
    """The same work with every heavy job of more than `most` hours in equal parts, side by side."""
    parts = {
        name: [f"{name}/{k}" for k in range(int(costs[name] / most) + 1)] if name in heavy else [name] for name in graph
    }
    split = {part: [p for above in graph[name] for p in parts[above]] for name in graph for part in parts[name]}
    shares = {part: costs[name] / len(parts[name]) for name in graph for part in parts[name]}
    return split, shares, {part for name in heavy for part in parts[name]}


def main(folder: str) -> None:
    run = Run("paper", params.load_profile("paper").model_dump(mode="json"), gpus=1)
    costs = costs_of(run, Path(folder))
    graph = {job.name: [above.name for above in job.upstream] for job in run.jobs}
    heavy = {job.name for job in run.jobs if job.notebook.heavy}
    print(f"{len(graph)} jobs, {len(heavy)} on GPUs; {sum(costs[name] for name in heavy):.0f} GPU-hours")
    for name in sorted(heavy, key=costs.__getitem__, reverse=True)[:6]:
        print(f"  {name}  {costs[name]:.1f} h")
    print(f"longest chain {max(chains(graph, costs).values()):.1f} h")
    for label, most in (("whole", float("inf")), ("cut at 6 h", 6.0), ("cut at 2 h", 2.0)):
        work = cut(graph, costs, heavy, most)
        for cards in CARDS:
            hours, idle = simulate(*work, cards)
            print(f"{label:10}  {cards:2} GPUs  {hours:6.1f} h  idle {idle:.0%}  ({len(work[2])} jobs on GPUs)")
    for card, rows in hours_of_one_gpu(run, Path(folder)).items():
        for tokens, (every, dropout) in zip(THINKING, rows, strict=True):
            print(f"{card}, {tokens} tokens: {every:.0f} h, {dropout:.0f} of them for dropout")


if __name__ == "__main__":
    main(*sys.argv[1:])
