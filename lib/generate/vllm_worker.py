"""Sample responses with vLLM in its own environment: `python vllm_worker.py REQUESTS ANSWERS`.

REQUESTS is a JSON object with `engine` (arguments of vllm.LLM), `sampling` (of SamplingParams) and `requests`. Each
request is an example's id, its prompt's token ids, seed and `max_tokens`. Each finished response is appended to ANSWERS
as a line of JSON, so a killed run resumes after the last complete line. This file imports nothing of the project, as
vLLM pins other packages.
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
    """End this process and all of vLLM's when the parent job ends, for whatever reason.

    Otherwise they would continue to write beside the worker of the next run.
    """
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
