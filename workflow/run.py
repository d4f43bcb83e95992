"""One run, from the command line to the summary: `python -m workflow.run [PROFILE] [OPTIONS]`.

It finds the jobs that are out of date (engine/freshness.py), runs them (engine/jobs.py), and prints
progress and where the results are. If everything is up to date, it starts nothing.
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
from pathlib import Path

from lib import params
from lib.errors import UserError, one_line
from lib.files import write_atomically
from lib.paths import ROOT
from workflow import check, cli, dataset_file, hub, machine
from workflow.engine import apart, freshness, slurm, slurm_options
from workflow.engine.freshness import Freshness
from workflow.engine.jobs import Schedule, start_fork_server
from workflow.engine.jobs_of_run import Job, Run
from workflow.engine.progress import Board, describe_system_error, say
from workflow.engine.slurm import Submission
from workflow.run_plan import plan

PDFLATEX = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape")
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop(number: int, frame: object) -> None:
    """End this run on a signal."""
    for stopping in STOPPING:
        # a second Ctrl-C does not keep the first from ending every process
        signal.signal(stopping, signal.SIG_IGN)
    sys.exit(128 + number)


def main(argv: list[str]) -> int:
    for number in STOPPING:
        signal.signal(number, stop)
    try:
        return execute_command(cli.parse_and_check(argv))
    except UserError as problem:
        print_error(problem)
        return 2
    except OSError as problem:  # full disk, no permission, a folder instead of a file
        # else the end of Python may raise it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(problem, BrokenPipeError):  # whose reader has enough: `| head`
            print_error(
                f"{describe_system_error(problem)}; "
                "once that is mended, the same command goes on from here"
            )
        return 1
    except SystemExit:
        print_error("stopped; the same command goes on from here")
        raise


def print_error(text: object) -> None:
    print(f"run_all.sh: {one_line(str(text), most=600)}", file=sys.stderr, flush=True)


def execute_command(args: Namespace) -> int:
    """Execute the parsed command and return its exit code."""
    if args.url or args.verb == "requests":
        return execute_for_server(args)
    if args.verb == cli.JUDGE:
        return judge_table(args)
    run = plan(args)
    if args.verb == "check":
        return check.main(run)
    return make_and_judge(args, run)


def execute_for_server(args: Namespace) -> int:
    """Ask a server what a run of its model lacks, then run everything; or write its requests."""
    from workflow.serving import asking, batch_files, model_file  # slow to import

    args = model_file.choose_model(args)
    run = plan(args)
    if args.verb == "requests":
        return batch_files.main(run, args)
    outcome = asking.ask_run(run, args)
    code = 1 if outcome.is_stopped else make_and_judge(args, run)
    if outcome.missing:
        say(outcome.describe())
    return code or min(outcome.missing, 1)


def make_and_judge(args: Namespace, run: Run) -> int:
    """Run everything, judge what was asked for, and return the exit code."""
    code = make(args, run)
    if code or args.dry_run:
        return code
    if args.finding or args.verb == "verify":
        from workflow.output import verify  # slow to import, too

        if args.verb == "verify":
            return verify.verify(run)
        for line in verify.summary_lines(run, args.finding):
            say(line)
    return 0


def judge_table(args: Namespace) -> int:
    """Judge a table of scores, and print what its report says first."""
    from workflow import judge  # slow to import, too

    run = judge.plan(args)
    code = make(args, run)
    if code or args.dry_run:
        return code
    for line in judge.answer_lines(run):
        say(line)
    return 0


def make(args: Namespace, run: Run) -> int:
    """Run everything and return the exit code."""
    started = time.monotonic()
    if run.slurm:
        slurm_options.check(run)
    if args.dry_run:
        return list_jobs(run, args.force)
    if not machine.may_write(run):
        check_up_to_date(run, args.force)
        summarize(run, 0, started)
        return 0
    with machine.run_lock(run) as scratch:
        if run.table:  # its copy is what the notebook reads
            write_atomically(ROOT / run.table, partial(shutil.copyfile, args.table))
        hub.pin_revisions(run, anew="01" in args.force)
        board = run_jobs(freshness.force(run, args.force), scratch)
        if board.failed:
            return report_failures(run, board)
        problem = "" if run.wanted else typeset(ROOT / run.figures)
        if problem:
            say(problem)
        summarize(run, board.ran, started)
    return 0


def list_jobs(run: Run, force: list[str]) -> int:
    """Print the jobs that a start would do; do and move nothing."""
    with suppress(UserError):  # a start would report it
        hub.pin_revisions(run)
    assessments = freshness.assess_all(freshness.force(run, force))
    titles = [assessment.job.title for assessment in assessments if assessment.needs_run]
    for title in titles:
        say(title)
    say(f"{run.name}: {len(titles)} of {len(run.jobs)} jobs would run; nothing was")
    return 0


def check_up_to_date(run: Run, force: list[str]) -> None:
    """Raise UserError if a run whose folder may not be written has anything to do."""
    hub.pin_revisions(run)
    assessments = freshness.assess_all(freshness.force(run, force))
    todo = [assessment for assessment in assessments if assessment.needs_run or assessment.source]
    if todo:
        raise UserError(
            f"{len(todo)} of {len(assessments)} jobs are not up to date, "
            f"and {run.folder} may not be written: "
            "copy the project to where you may write"
        )


def summarize(run: Run, ran: int, started: float) -> None:
    """Print the last lines of a run that has ended well."""
    total = len(run.jobs)
    seconds = f"{time.monotonic() - started:.1f} s"
    say(f"{run.name}: {ran} of {total} jobs ran, {total - ran} up to date, {seconds}")
    if not run.wanted:
        say(f"report: {run.figures}/report.html")
        say(f"tables and figures: {run.figures}/  executed notebooks: {run.folder}/notebooks/")


# ---- the jobs of a run whose lock is held


def run_jobs(run: Run, scratch: Path) -> Board:
    """Run the jobs that are out of date, and return how they ended."""
    assessments = freshness.assess_all(run)
    jobs = [assessment.job for assessment in assessments if assessment.needs_run]
    models = list(dict.fromkeys(job.model for job in jobs if job.model))
    if models:
        hub.go_offline_if_silent(run)  # before the fork server is given its environment
    if not run.slurm:
        start_fork_server(run, jobs, scratch)
    run = replace(run, small=prepare_models(run, jobs, models))
    taken = slurm.take_on_or_cancel(run, jobs) if run.slurm else {}
    if not taken:  # no process writes files of this run now
        machine.remove_partial_files(run)
    # changes files: every check of the user's input is above
    freshness.settle(run, assessments)
    print_states(assessments)
    board = Board(run.job(job.name) for job in jobs)
    if not jobs:
        return board
    print_start(run, assessments)
    hub.save_revisions(run)
    dataset_file.write_files()
    if run.slurm:
        run.save()
        Submission(run, board, taken).run_jobs()
    else:
        Schedule(run, board, scratch).run_jobs()
    return board


STATE_LINES = {
    "kept": "kept though code changed ({why}); --force {number} reruns it",
    "restored": "restored (from an earlier run with the same inputs)",
    "forced": "will run (asked for)",
    "changed": "will run (changed: {why})",
    "damaged": "will run (its outputs were edited or damaged)",
    "waits": "will run if its inputs change (follows {why})",
}


def print_states(assessments: list[Freshness]) -> None:
    """Print which notebooks will run, are kept or were restored: one line per notebook and
    reason."""
    lines: Counter[str] = Counter()
    for assessment in assessments:
        if assessment.state in STATE_LINES:
            notebook = assessment.job.notebook
            form = STATE_LINES[assessment.state]
            line = form.format(why=assessment.why, number=notebook.number)
            lines[f"{notebook.name}: {line}"] += 1
    for line, count in lines.items():
        say(f"{line} x {count}" if count > 1 else line)


def print_start(run: Run, assessments: list[Freshness]) -> None:
    """Print how many jobs there are to do, and on what."""
    states = [assessment.state for assessment in assessments if assessment.needs_run]
    conditional = states.count("waits")
    place = "SLURM"
    if not run.slurm:
        place = f"{run.cores} cores"
        if run.gpus:
            place += f", {run.gpus} GPUs"
    if conditional:
        place += f", and {conditional} if their inputs change"
    certain = len(states) - conditional
    say(f"{run.name}: {certain} of {len(run.jobs)} jobs to do on {place}")


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


def report_failures(run: Run, board: Board) -> int:
    """Print why jobs failed. Return the exit code: 2 if the user can fix all failures, else 1."""
    with suppress(OSError):  # a full disk: the failure itself is told
        move_old_report(run, board)
    codes = []
    for code, text in reversed(board.failed.values()):  # the first failure last
        print_error(text)
        codes.append(code)
    return min(codes)


def move_old_report(run: Run, board: Board) -> None:
    """Move the report of an earlier start into stale where a failure keeps it from being made anew:
    nothing in it says that its numbers are of before."""
    for job in board.jobs:
        if job.notebook.module and job not in board.ended and (ROOT / job.executed).exists():
            freshness.set_aside(job)
            say(f"{job.executed} had earlier results: it was moved to {run.folder}/stale/")


def typeset(folder: Path) -> str:
    """Create results.pdf of results.tex. Return one line for the user if that is not possible, else
    an empty one."""
    pdf = folder / "results.pdf"
    log = folder / "results.log"
    if pdf.exists() or log.exists() or not (folder / "results.tex").exists():
        return ""
    if not shutil.which("pdflatex"):
        return (
            "results.pdf was not created, because pdflatex is missing; "
            "results.tex includes every table and figure"
        )
    environment = os.environ | {"SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [*PDFLATEX, f"-output-directory={scratch}", "results.tex"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        if done.returncode == 0:
            write_atomically(pdf, partial(shutil.copyfile, Path(scratch, pdf.name)))
            return ""
    log.write_bytes(done.stdout)
    return f"results.pdf was not created: pdflatex failed, see {os.path.relpath(log, ROOT)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
