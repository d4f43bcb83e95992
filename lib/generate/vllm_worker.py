"""Draws responses with vLLM, in an environment of its own: `python vllm_worker.py REQUESTS ANSWERS`.

REQUESTS is one JSON object: `engine` (arguments of vllm.LLM), `sampling` (of SamplingParams), and `requests`, each an
example's id, its prompt's token ids, seed and `max_tokens`. A line of JSON per request is added to ANSWERS as soon as
it has ended, so that a killed run goes on after the last whole line. Nothing of this project is imported: vLLM's own
pins differ from ours.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import vllm


def end_with(parent: int) -> None:
    """End, with all that vLLM has started, when the job that started this is gone, however it ended: else what it left
    would write on beside the worker of the next run."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(0, signal.SIGKILL)


def main(requests: Path, answers: Path) -> None:
    asked = json.loads(requests.read_text(encoding="utf-8"))
    engine = vllm.LLM(**asked["engine"]).llm_engine
    started = time.perf_counter()
    for place, (_, prompt, seed, max_tokens) in enumerate(asked["requests"]):
        sampling = vllm.SamplingParams(**asked["sampling"], seed=seed, max_tokens=max_tokens)
        engine.add_request(str(place), {"prompt_token_ids": prompt}, sampling)
    with answers.open("a", encoding="utf-8") as file:
        while engine.has_unfinished_requests():
            for output in filter(lambda output: output.finished, engine.step()):
                example_id, *_ = asked["requests"][int(output.request_id)]
                line = {"example_id": example_id, "token_ids": list(output.outputs[0].token_ids)}
                print(json.dumps(line), file=file, flush=True)
    print(f"{len(asked['requests'])} responses drawn in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    main(*map(Path, sys.argv[1:]))
