"""One run, from the command line to the summary: `python -m workflow.run [PROFILE] [OPTIONS]`.

It finds the jobs that are out of date (engine/freshness.py), runs them (engine/jobs.py), and prints progress and
where the results are. If everything is up to date, it starts nothing.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from lib import params
from lib.errors import UserError, one_line
from lib.files import write_atomically
from lib.paths import ROOT
from workflow import check, cli, hub, machine
from workflow.engine import apart, freshness, slurm
from workflow.engine.jobs import Schedule, start_fork_server
from workflow.engine.jobs_of_run import Job, Run
from workflow.engine.progress import Board, describe_system_error, say
from workflow.engine.slurm import Submission
from workflow.run_options import plan

PDFLATEX = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape")
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop(number: int, frame: object) -> None:
    """End this run on a signal."""
    for one in STOPPING:
        # a second Ctrl-C does not keep the first from ending every process
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def main(argv: list[str]) -> int:
    for number in STOPPING:
        signal.signal(number, stop)
    try:
        return execute_command(cli.parse_and_check(argv))
    except UserError as problem:
        print_error(problem)
        return 2
    except (
        OSError
    ) as problem:  # of the system: full disk, no permission, a folder instead of a file
        # else the end of Python may raise it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(problem, BrokenPipeError):  # whose reader has enough: `| head`
            print_error(
                f"{describe_system_error(problem)}; once that is mended, the same command goes on from here"
            )
        return 1
    except SystemExit:
        print_error("stopped; the same command goes on from here")
        raise


def print_error(text: object) -> None:
    print(f"run_all.sh: {one_line(str(text), most=600)}", file=sys.stderr, flush=True)


def execute_command(args: Namespace) -> int:
    """Execute the parsed command and return its exit code."""
    run = plan(args)
    if args.verb == "check":
        return check.main(run)
    if args.verb in ("requests", "ask"):
        # slow to import, and other verbs do not need it
        return import_module("workflow.serve_requests").main(run, args)
    if (code := make(args, run)) or args.dry_run:
        return code
    # slow to import
    judge = (
        import_module("workflow.output.verify") if args.finding or args.verb == "verify" else None
    )
    for line in judge.summary_lines(run, args.finding) if args.finding else ():
        say(line)
    if args.verb == "verify":
        return judge.verify(run)
    return 0


def list_jobs(run: Run, force: list[str]) -> int:
    """Print the jobs that a start would do; do and move nothing."""
    with suppress(UserError):  # a start would report it
        hub.pin_revisions(run)
    todo = [
        assessment.job.title
        for assessment in freshness.assess_all(freshness.force(run, force))
        if assessment.needs_run
    ]
    for title in todo:
        say(title)
    say(f"{run.name}: {len(todo)} of {len(run.jobs)} jobs would run; nothing was")
    return 0


def make(args: Namespace, run: Run) -> int:
    """Run everything and return the exit code."""
    started = time.monotonic()
    if run.slurm:
        slurm.check(run)
    if args.dry_run:
        return list_jobs(run, args.force)
    if not machine.may_write(run):
        check_up_to_date(run, args.force)
        summarize(run, ran=0, total=len(run.jobs), started=started)
        return 0
    with machine.run_lock(run) as scratch:
        hub.pin_revisions(run, anew="01" in args.force)
        run = freshness.force(run, args.force)
        assessments = freshness.assess_all(run)
        todo = [assessment for assessment in assessments if assessment.needs_run]
        jobs = [assessment.job for assessment in todo]
        models = list(dict.fromkeys(job.model for job in jobs if job.model))
        if models:
            hub.go_offline_if_silent(run)  # before the fork server is given its environment
        if not run.slurm:
            start_fork_server(run, jobs, scratch)
        run = replace(run, small=prepare_models(run, jobs, models))
        taken = slurm.take_on(run, jobs) if run.slurm else {}
        if not taken:  # no process writes files of this run now
            machine.remove_partial_files(run)
        freshness.settle(
            run, assessments
        )  # changes files: every check of the user's input is above
        print_states(assessments)
        board = Board(run.job(job.name) for job in jobs)
        if todo and (code := execute(run, todo, board, scratch, taken)):
            return code
        if not run.wanted and (line := typeset(ROOT / run.figures)):
            say(line)
        summarize(run, board.ran, len(assessments), started)
    return 0


def check_up_to_date(run: Run, force: list[str]) -> None:
    """Raise UserError if a run whose folder may not be written has anything to do."""
    hub.pin_revisions(run)
    assessments = freshness.assess_all(freshness.force(run, force))
    todo = [assessment for assessment in assessments if assessment.needs_run or assessment.source]
    if todo:
        count = f"{len(todo)} of {len(assessments)} jobs are not up to date"
        raise UserError(
            f"{count}, and {run.folder} may not be written: copy the project to where you may write"
        )


def summarize(run: Run, ran: int, total: int, started: float) -> None:
    """Print the last lines of a run that has ended well."""
    seconds = time.monotonic() - started
    say(f"{run.name}: {ran} of {total} jobs ran, {total - ran} up to date, {seconds:.1f} s")
    if not run.wanted:
        say(f"report: {run.figures}/report.html")
        say(f"tables and figures: {run.figures}/  executed notebooks: {run.folder}/notebooks/")


def move_old_report(run: Run, board: Board) -> None:
    """Move the report of an earlier start into stale where a failure keeps it from being made anew:
    nothing in it says that its numbers are of before."""
    for job in board.jobs:
        if job.notebook.module and job not in board.ended and (ROOT / job.executed).exists():
            freshness.set_aside(job)
            say(f"{job.executed} had earlier results: it was moved to {run.folder}/stale/")


SAID = {  # by state
    "kept": "kept though code changed ({why}); --force {number} reruns it",
    "restored": "restored (from an earlier run with the same inputs)",
    "forced": "will run (asked for)",
    "changed": "will run (changed: {why})",
    "damaged": "will run (its outputs were edited or damaged)",
    "waits": "will run if its inputs change (follows {why})",
}


def print_states(assessments: list[freshness.Freshness]) -> None:
    """Print which notebooks will run, are kept or were restored: one line per notebook and
    reason."""
    lines = []
    for assessment in assessments:
        if assessment.state in SAID:
            row, said = assessment.job.notebook, SAID[assessment.state]
            lines.append(f"{row.name}: {said.format(why=assessment.why, number=row.number)}")
    for text, count in Counter(lines).items():
        say(text + (f" x {count}" if count > 1 else ""))


def prepare_models(run: Run, jobs: list[Job], models: list[str]) -> tuple[str, ...]:
    """Download what the jobs need, and return the models that run on the processor everywhere.
    Raise UserError for a model that cannot be loaded. No result of the run changes."""
    waiting = [name for name in models if hub.is_elsewhere(params.load_model_config(name))]
    small = look_at_models(run, [name for name in models if name not in waiting])
    machine.install_vllm(run, jobs)
    hub.fetch(models)
    return small + look_at_models(run, waiting)  # a GGUF file can be looked at only once it is here


def look_at_models(run: Run, names: list[str]) -> tuple[str, ...]:
    """Return those of these models that run on the processor everywhere. Raise UserError for one
    that the run can't use. Both need PyTorch."""

    def look() -> tuple[str, ...]:
        check.refuse_unusable(run, names)
        return check.with_small(run, names).small

    return apart.call(look) if names else ()


def typeset(folder: Path) -> str:
    """Create results.pdf of results.tex. Return one line for the user if that is not possible, else
    an empty one."""
    made, log = folder / "results.pdf", folder / "results.log"
    if made.exists() or log.exists() or not (folder / "results.tex").exists():
        return ""
    if not shutil.which("pdflatex"):
        return "results.pdf was not created, because pdflatex is missing; results.tex includes every table and figure"
    with tempfile.TemporaryDirectory() as scratch:
        command = [*PDFLATEX, f"-output-directory={scratch}", "results.tex"]
        env = {**os.environ, "SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1"}
        done = subprocess.run(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True
        )
        if done.returncode == 0:
            write_atomically(made, partial(shutil.copyfile, Path(scratch, made.name)))
            return ""
    log.write_bytes(done.stdout)
    return f"results.pdf was not created: pdflatex failed, see {os.path.relpath(log, ROOT)}"


def execute(
    run: Run, todo: list[freshness.Freshness], board: Board, scratch: Path, taken: dict[str, str]
) -> int:
    """Run the jobs and return the exit code: 2 if the user can fix all failures, else 1."""
    at_once = (
        "SLURM" if run.slurm else f"{run.cores} cores" + (f", {run.gpus} GPUs" if run.gpus else "")
    )
    conditional = sum(assessment.state == "waits" for assessment in todo)
    others = f", and {conditional} if their inputs change" if conditional else ""
    say(f"{run.name}: {len(todo) - conditional} of {len(run.jobs)} jobs to do on {at_once}{others}")
    hub.save_revisions(run)
    if run.slurm:
        run.save()
        Submission(run, board, taken).run_jobs()
    else:
        Schedule(run, board, scratch).run_jobs()
    if board.failed:
        with suppress(OSError):  # a full disk: the failure itself is told
            move_old_report(run, board)
    for _, text in reversed(board.failed.values()):  # the first failure last
        print_error(text)
    return min((code for code, _ in board.failed.values()), default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
