"""Sample responses with vLLM in its own environment: `python vllm_worker.py REQUESTS`.

REQUESTS is a JSON object with `engine` (arguments of vllm.LLM), `sampling` (of SamplingParams) and
`files`: the requests of each file of answers. A request is an example's id, its prompt's token ids,
seed and `max_tokens`. A file of answers is one as `responses:` of a model names it: each finished
response is appended as a line of JSON. So a killed run resumes after the last complete line. This
file imports nothing of the project, as vLLM pins other packages.
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


def main(requests: Path) -> None:
    orders = json.loads(requests.read_text(encoding="utf-8"))
    waiting = []  # files and requests without an answer in them
    for name, asked in orders["files"].items():
        file = Path(name)
        finished = read_finished(file)
        waiting += [(file, request) for request in asked if request[0] not in finished]
    if not waiting:
        return
    import vllm  # takes a minute

    for file, _ in waiting:
        file.with_name("vllm.json").write_text(json.dumps({"version": vllm.__version__}))
    engine = vllm.LLM(**orders["engine"]).llm_engine
    for place, (_, (_, prompt, seed, max_tokens)) in enumerate(waiting):
        sampling = vllm.SamplingParams(
            **orders["sampling"], seed=seed, max_tokens=max_tokens, detokenize=False
        )
        engine.add_request(str(place), {"prompt_token_ids": prompt}, sampling)
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                file, (example_id, *_) = waiting[int(output.request_id)]
                with file.open("a", encoding="utf-8") as answers:
                    answers.write(as_line(example_id, output.outputs[0]) + "\n")
    print(f"{len(waiting)} responses drawn")


def read_finished(answers: Path) -> set[str]:
    """Return the ids of the examples with a line in a file of answers. Cut off half a line, which a
    killed worker was writing."""
    answers.touch()
    *lines, half = answers.read_bytes().split(b"\n")
    os.truncate(answers, answers.stat().st_size - len(half))
    return {json.loads(line)["example_id"] for line in lines}


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
    main(Path(sys.argv[1]))
