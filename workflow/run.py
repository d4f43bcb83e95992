"""One run, from the words of the command line to a summary: `python -m workflow.run [PROFILE] [OPTIONS]`.

Decides what is to be made (fresh.py), has it scheduled (schedule.py), and says where the results are.
Snakemake is not even started if everything is up to date. The lock on the run's folder is inherited by what
this process starts, and therefore never stale.
"""

import fcntl
import os
import re
import signal
import sys
import time
from argparse import Namespace
from contextlib import contextmanager

import psutil

from lib import params
from lib.project import ROOT, UserError
from workflow import check, fresh, guard, hub, words
from workflow.jobs import PUBLISHED, REPLAY, Run
from workflow.schedule import Board, last_words, reset_future, say, schedule
from workflow.typeset import typeset


class Stopped(BaseException):
    """A signal asked this run to end."""

    def __init__(self, number: int):
        self.code = 128 + number


def plan(found: Namespace) -> Run:
    """The run that the words ask for, with every file of parameters it needs read and checked."""
    profile = "demo" if found.verb in (REPLAY, PUBLISHED) else proper("profile", found.verb)
    values = params.load_profile(profile).model_dump(mode="json")
    models = found.only or values["models"]
    values["models"] = list(dict.fromkeys([*models, *found.models]))
    values["datasets"] = list(dict.fromkeys(found.datasets or values["datasets"]))
    for kind, load in params.LOADERS.items():
        narrow(values, kind)
        for name in values[kind + "s"]:
            load(proper(kind, name))
    if found.verb == PUBLISHED:  # nothing of the profile but the choices that every notebook declares
        values |= {name: type(value)() for name, value in values.items() if fresh.kind_of(name) in params.LOADERS}
        values["title"] = "The paper's own numbers, set again."
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    run = Run(found.verb, values, found.cores or cores, len(guard.gpus()))
    for job in run.jobs:
        job.check()
    return run


def proper(kind: str, name: str) -> str:
    """A name that can stand in the names of jobs and folders."""
    if not re.fullmatch(r"\w[\w.-]*", name) or "__" in name or name == "shipped":
        raise UserError(f"{kind} '{name}': a file's name needs letters, digits, '.', '-' and single '_', not 'shipped'")
    return name


def narrow(values: dict, kind: str) -> None:
    """Models (datasets) that single figures show follow the choice of the command line."""
    chosen = values[kind + "s"]
    for name, value in values.items():
        if name.endswith(f"_{kind}s"):
            values[name] = [one for one in value if one in chosen] or chosen
        elif name.endswith(f"_{kind}") and value not in chosen:
            values[name] = chosen[0]


def alive(pid: int) -> bool:
    try:
        return pid > 0 and not guard.gone(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


@contextmanager
def run_lock(run: Run, patience: float = 30):
    """The run's lock, inheritable. Refused while its holder lives; orphans of a killed run are awaited."""
    path = ROOT / run.folder / ".lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as lock:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                lock.seek(0)
                holder = int(lock.read().strip() or 0)
                if alive(holder) or time.monotonic() > until:
                    raise UserError(f"run '{run.name}' is going on already, in process {holder}") from None
                time.sleep(0.2)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        os.set_inheritable(lock.fileno(), True)
        yield lock


def announce(run: Run, verdicts: list[fresh.Verdict]) -> list[fresh.Verdict]:
    """Say what was found, a line per notebook and reason; the verdicts of what is to be made."""
    lines: dict[str, int] = {}
    for verdict in verdicts:
        if verdict.state == "kept":
            row = verdict.job.notebook
            text = f"{row.name}: kept though code changed ({verdict.why}); --remake {row.number} remakes it"
        elif verdict.state == "restored" or (verdict.state == "make" and verdict.why != fresh.NEW):
            text = f"{verdict.job.notebook.name}: {verdict.state.replace('make', 'to be made')} ({verdict.why})"
        else:
            continue
        lines[text] = lines.get(text, 0) + 1
    for text, count in lines.items():
        say(text + (f" x {count}" if count > 1 else ""))
    return [verdict for verdict in verdicts if verdict.state == "make"]


def make(found: Namespace) -> int:
    """The whole run; its exit code."""
    started = time.monotonic()
    run = plan(found)
    with run_lock(run) as lock:
        hub.pin(run)
        verdicts = fresh.walk(run, found.remake)
        todo = announce(run, verdicts)
        kept = len(verdicts) - len(todo)
        if todo:
            at_once = f"{run.cores} cores" + (f", {run.gpus} GPUs" if run.gpus else "")
            say(f"{run.name}: {len(todo)} of {len(verdicts)} jobs to do on {at_once}")
            hub.fetch(run, list(dict.fromkeys(one.job.model for one in todo if one.job.model)), say)
            run.save()
            reset_future(run)
            board = Board({verdict.job.name: verdict.job.title for verdict in todo})
            code = schedule(run, board, lock)
            if code:
                return fail(run, board)
        if line := typeset(ROOT / run.figures):
            say(line)
        seconds = time.monotonic() - started
        say(f"{run.name}: {len(todo)} made, {kept} kept, {seconds:.1f} s")
        say(f"here and in the paper: {run.figures}/report.html")
        say(f"tables and figures: {run.figures}/  executed notebooks: {run.folder}/notebooks/")
    return 0


def fail(run: Run, board: Board) -> int:
    """Say why, the first failure in the last line; 2 if all are mistakes that the user can mend, else 1."""
    failures = list(dict.fromkeys(board.failures)) or [(1, last_words(run))]
    for _, text in reversed(failures):
        print(f"run_all.sh: {text}", file=sys.stderr, flush=True)
    return 2 if all(code == 2 for code, _ in failures) else 1


def main(argv: list[str]) -> int:
    def handle(number, frame):
        raise Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handle)
    try:
        found = words.check(argv)
        return check.main(plan(found), say) if found.check else make(found)
    except (UserError, words.WordError) as problem:
        print(f"run_all.sh: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # who listened has gone: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Stopped as stopped:
        print("run_all.sh: stopped; the same command goes on from here", file=sys.stderr)
        return stopped.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
