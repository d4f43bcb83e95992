"""Sample responses with vLLM in its own environment: `python vllm_worker.py REQUESTS ANSWERS`.

REQUESTS is a JSON object with `engine` (arguments of vllm.LLM), `sampling` (of SamplingParams) and
`requests`. Each request is an example's id, its prompt's token ids, seed and `max_tokens`. ANSWERS
is a file as `responses:` of a model names it: each finished response is appended as a line of JSON.
So a killed run resumes after the last complete line. This file imports nothing of the project, as
vLLM pins other packages.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path


def end_with(parent: int) -> None:
    """End this process and all of vLLM's when the parent job ends, for whatever reason.

    Otherwise they would continue to write beside the worker of the next run.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(0, signal.SIGKILL)


def main(requests: Path, answers: Path) -> None:
    answers.touch()
    *lines, half = answers.read_bytes().split(b"\n")
    # of a line that a killed worker was writing
    os.truncate(answers, answers.stat().st_size - len(half))
    finished = {json.loads(line)["example_id"] for line in lines}
    orders = json.loads(requests.read_text(encoding="utf-8"))
    waiting = [request for request in orders["requests"] if request[0] not in finished]
    if not waiting:
        return
    import vllm  # takes a minute

    answers.with_name("vllm.json").write_text(json.dumps({"version": vllm.__version__}))
    engine = vllm.LLM(**orders["engine"]).llm_engine
    for place, (_, prompt, seed, max_tokens) in enumerate(waiting):
        sampling = vllm.SamplingParams(
            **orders["sampling"], seed=seed, max_tokens=max_tokens, detokenize=False
        )
        engine.add_request(str(place), {"prompt_token_ids": prompt}, sampling)
    with answers.open("a", encoding="utf-8") as file:
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    example_id = waiting[int(output.request_id)][0]
                    print(as_line(example_id, output.outputs[0]), file=file, flush=True)
    print(f"{len(waiting)} responses drawn")


def as_line(example_id: str, response) -> str:
    """Return a response of vLLM as a line of the file."""
    line = {
        "example_id": example_id,
        "token_ids": list(response.token_ids),
        "finish_reason": response.finish_reason,
    }
    return json.dumps(line)


if __name__ == "__main__":
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    main(Path(sys.argv[1]), Path(sys.argv[2]))
