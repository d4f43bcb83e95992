"""Snakemake, with freshness and locks left to us, and what the user sees of it: a line per job."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil

from lib.project import ROOT
from workflow.guard import MARK
from workflow.jobs import Run

PATIENCE = 20  # seconds for jobs to end by themselves


def say(text: str, end: str = "\n") -> None:
    clear = "\r\033[K" if sys.stdout.isatty() else ""
    print(clear + text, end=end, flush=True)


def command(run: Run) -> list[str]:
    """Snakemake's flags: freshness, locks and incomplete files are our own business."""
    return [
        *(
            sys.executable,
            "-m",
            "snakemake",
            "--snakefile",
            "workflow/Snakefile",
            "--config",
            f"run={run.name}",
        ),
        *(
            "--cores",
            str(run.cores),
            "--resources",
            f"gpu={run.gpus}",
            "--scheduler",
            "greedy",
            "--keep-going",
        ),
        *("--rerun-triggers", "input", "--nolock", "--ignore-incomplete", "--drop-metadata", "--nocolor"),
    ]


def reset_future(run: Run) -> None:
    """Snakemake fails a job whose inputs bear a time to come, as a copy from another machine may."""
    now = time.time()
    for path in (ROOT / run.folder / "jobs").glob("*.json"):
        if path.stat().st_mtime > now:
            os.utime(path)


class Board:
    """What the user sees while jobs run."""

    def __init__(self, titles: dict[str, str]):
        self.titles, self.done, self.failures = titles, 0, []
        self.width = max(map(len, titles.values()), default=0)

    def show(self, event: dict) -> None:
        kind, title = event["event"], self.titles[event["job"]].ljust(self.width)
        self.done += kind == "end"
        count = f"[{self.done}/{len(self.titles)}]" if kind == "end" else " " * len(f"[{self.done}/{len(self.titles)}]")
        if kind == "fail":
            self.failures.append((event["code"], event["text"]))
        texts = {"start": "started", "end": f"{event.get('seconds', 0):.1f} s", "fail": "failed"}
        transient = kind == "progress" and sys.stdout.isatty()
        say(f"{count} {title}  {texts.get(kind) or event['text']}", end="" if transient else "\n")


def schedule(run: Run, board: Board, lock) -> int:
    """Run Snakemake to its end; its exit code. Marked lines go to the board, its chatter to snakemake.log."""
    log = ROOT / run.folder / "snakemake.log"
    env = {**os.environ, "RUN_PID": str(os.getpid()), "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    if not os.access(os.path.expanduser("~"), os.W_OK):  # Snakemake insists on a cache
        env["XDG_CACHE_HOME"] = str(ROOT / "artifacts" / ".cache")
    process = subprocess.Popen(
        command(run),
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # a Ctrl-C is for us alone; we end the rest in good order
        pass_fds=(lock.fileno(),),
    )
    try:
        with open(log, "w", encoding="utf-8") as file:
            for line in process.stdout:
                if event := parse(line):
                    board.show(event)
                elif line.strip():
                    file.write(line)
                    file.flush()
        return process.wait()
    except BaseException:
        stop(process)
        raise


def parse(line: str) -> dict | None:
    """The event on a marked line; None for chatter, and for a mark that other output has run into."""
    try:
        return json.loads(line[len(MARK) :]) if line.startswith(MARK) else None
    except ValueError:
        return None


def stop(process: subprocess.Popen) -> None:
    """End Snakemake and all jobs: asked first, then killed."""
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    os.killpg(process.pid, signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    for survivor in alive:
        survivor.kill()
    process.wait()


def last_words(run: Run) -> str:
    """Snakemake's own complaint, if no job failed and yet the run did."""
    log = ROOT / run.folder / "snakemake.log"
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "Exception" in line] or lines[-1:] or ["no reason given"]
    return f"the schedule failed, see {run.folder}/snakemake.log: {errors[-1]}"
