"""Rendering of a chat template within limits of time and memory: it is a program of whoever made
the model."""

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from lib.errors import UserError

MOST_SECONDS = 10.0
MOST_MEMORY = 2**30  # bytes beyond those that the process has
MOST_CHARACTERS = 10**7
STATM = Path("/proc/self/statm")  # of Linux: pages of address space first


def render_chat(tokenizer: Any, messages: Any, **options: Any) -> str:
    """Return the messages as rendered by the tokenizer's chat template, or by the one among the
    options.

    Raise UserError if that takes too much time or memory, or writes too much. Errors of the
    template are raised as they are.
    """
    with limit_seconds(), limit_memory():
        text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    if len(text) > MOST_CHARACTERS:
        raise UserError(
            f"its chat template writes {len(text):,} characters for a short conversation"
        )
    return text


@contextmanager
def limit_seconds() -> Iterator[None]:
    """Raise UserError in the body once it takes too long. A thread beside the main one gets no
    signals, nor a limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> NoReturn:
        raise UserError(
            f"its chat template takes more than {MOST_SECONDS:.0f} s for a short conversation"
        )

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def limit_memory() -> Iterator[None]:
    """Raise UserError where the body needs too much memory; on Linux alone, as macOS enforces no
    such limit."""
    if not STATM.exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = int(STATM.read_text().split()[0]) * resource.getpagesize() + MOST_MEMORY
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    except MemoryError:
        raise UserError(
            f"its chat template needs more than {MOST_MEMORY / 1e9:.1f} GB of memory"
        ) from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
