"""A function in a process of its own: the memory of the libraries that it imports ends with it.

A run looks at its models with PyTorch once, before its first job. Its own process then waits for
the jobs to the end, and needs no PyTorch.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from lib.errors import UserError
from workflow.engine.job_process import end_with_run
from workflow.engine.jobs import CAN_FORK

Result = TypeVar("Result")


def call(function: Callable[..., Result], *arguments: Any) -> Result:
    """Return what a function returns in a child of this process, or raise what it raises there.

    If PyTorch is imported here already, a child would save nothing, and on macOS it can't be
    forked: then the function is called here.
    """
    if "torch" in sys.modules or not CAN_FORK:
        return function(*arguments)
    context = multiprocessing.get_context("fork")
    channel, end = context.Pipe(duplex=False)
    child = context.Process(target=answer, args=(end, function, *arguments))
    child.start()
    end.close()
    try:
        result, error = channel.recv()
    except EOFError:
        raise UserError(
            "the models could not be looked at: killed, most likely out of memory"
        ) from None
    finally:
        child.kill()
        child.join()
    if error:
        raise error
    return result


def answer(end: Connection, function: Callable[..., Any], *arguments: Any) -> None:
    """Send what a function returns, and the error that it raises. This process ends with its
    parent."""
    os.setsid()  # Ctrl-C in the terminal reaches the run alone
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    threading.Thread(target=end_with_run, daemon=True).start()
    try:
        end.send((function(*arguments), None))
    except Exception as error:
        end.send((None, error))
