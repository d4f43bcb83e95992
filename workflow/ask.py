"""What the warm process (warm.py) is asked to do. `python -S workflow/ask.py RUN JOB`, as the Snakefile calls it, has
it do a job, or does it.

Standard library alone, for it is started once a job. Where no warm process answers, or it is gone before the job has
ended, the job is done in a Python of its own.
"""

import json
import os
import socket
import sys


def ask(words: list[str], door: str | None = None, module: str = "notebook", stdout: int = 1) -> int | None:
    """Exit code of `workflow.<module>` with these words; None where it was not done, or not to its end, for want of the
    warm process."""
    try:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.connect(door or os.environ["CALIBRATION_WARM"])
            socket.send_fds(wire, [json.dumps([module, words, os.getpid()]).encode()], [stdout, 2])
            return abs(int(wire.recv(16)))
    except (KeyError, OSError, ValueError, AttributeError):  # none was started, none is there, or it went away
        return None


if __name__ == "__main__":
    code = ask(sys.argv[1:])
    if code is None:
        os.execv(sys.executable, [sys.executable, "-m", "workflow.notebook", *sys.argv[1:]])
    sys.exit(code)
