"""One run, from the command line to the summary: `python -m workflow.run [PROFILE] [OPTIONS]`.

It finds the jobs that are out of date (fresh.py), runs them (schedule.py), and prints progress and where the results
are. If everything is up to date, it starts nothing.
"""

import os
import re
import signal
import sys
import time
from argparse import Namespace
from collections import Counter
from functools import partial

from lib import params
from lib.paths import ROOT, UserError, one_line
from workflow import check, cli, cluster, extras, finding, fresh, hub, leftovers, locks, usable, weights
from workflow.pipeline import Job, Run
from workflow.plan import plan
from workflow.progress import Board, describe_system_error, say
from workflow.render import import_early, renew_report, typeset
from workflow.schedule import preloaded, schedule


def silence_stdout() -> None:
    """Discard further output to stdout, whose reader is gone or whose disk is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal asked this run to end."""

    def __init__(self, number: int):
        self.code = 128 + number


def main(argv: list[str]) -> int:
    if sys.stdout is None:  # closed
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for terminals that cannot print a character of a label

    def handle(number, frame):
        for one in STOPPING:
            signal.signal(one, signal.SIG_IGN)  # a second Ctrl-C does not keep the first from ending every process
        raise Stopped(number)

    for number in STOPPING:
        signal.signal(number, handle)
    try:
        return execute_command(cli.check(argv))
    except (UserError, cli.WordError) as problem:
        print_error(problem)
        return 2
    except BrokenPipeError:  # the reader of the pipe is gone: `| head`
        silence_stdout()
        return 141
    except OSError as problem:  # of the system: full disk, no permission, a folder instead of a file
        silence_stdout()
        print_error(f"{describe_system_error(problem)}; once that is mended, the same command goes on from here")
        return 1
    except Stopped as stopped:
        print("run_all.sh: stopped; the same command goes on from here", file=sys.stderr)
        return stopped.code


def print_error(text: object) -> None:
    print(f"run_all.sh: {one_line(str(text), most=600)}", file=sys.stderr, flush=True)


def execute_command(args: Namespace) -> int:
    """Execute the parsed command and return its exit code."""
    run = plan(args)
    if args.verb == "check":
        return check.main(run, say)
    if (code := make(args, run)) or args.dry_run:
        return code
    for line in finding.summary_lines(run, args.finding) if args.finding else ():
        say(line)
    if args.verb == "verify":
        from workflow.verify import verify  # slow to import, and other verbs do not need it

        return verify(run, say)
    return 0


def list_jobs(run: Run, force: list[str]) -> int:
    """Print the jobs that a start would do; do and move nothing."""
    todo = [verdict.job for verdict in fresh.judge_all(run, force) if verdict.open]
    for job in todo:
        say(job.title)
    say(f"{run.name}: {len(todo)} of {len(run.jobs)} jobs would run; nothing was")
    return 0


def make(args: Namespace, run: Run) -> int:
    """Run everything and return the exit code."""
    started, profile = time.monotonic(), cluster.load_profile(args.cluster) if args.cluster else None
    if profile:
        cluster.check(profile, run)
    if args.dry_run:
        return list_jobs(run, args.force)
    with locks.run_lock(run):
        hub.pin_revisions(run)
        if profile:
            cluster.cancel_earlier_jobs(profile, run, say)
        leftovers.clear_leftovers(run)
        verdicts = fresh.judge_all(run, args.force)
        todo = [verdict for verdict in verdicts if verdict.open]
        jobs = [verdict.job for verdict in todo]
        if models_of(jobs):
            hub.go_offline_if_silent(run)  # before the preloaded process is given its environment
        with preloaded(run, jobs) as door:
            if jobs and not prepare_models(run, jobs):
                return 2
            if jobs and profile:
                extras.install_plugin(cluster.EXECUTORS[profile.executor][1], say)
            fresh.move_all_outputs(run, verdicts)  # moves files: every check of the user's input is above
            print_verdicts(verdicts)
            board = Board({job.name: job.title for job in jobs})
            code = execute(run, todo, board, len(verdicts), profile, door) if todo else 0
        if not any(job.notebook.exports and job.name in board.unfinished for job in run.jobs):  # unless 08 failed
            renew_report(run)
        if code:
            return code
        if not run.wanted and (line := typeset(ROOT / run.figures)):
            say(line)
        ran, total, seconds = board.ran, len(verdicts), time.monotonic() - started
        say(f"{run.name}: {ran} of {total} jobs ran, {total - ran} up to date, {seconds:.1f} s")
        if run.wanted:
            return 0
        say(f"report: {run.figures}/report.html")
        say(f"tables and figures: {run.figures}/  executed notebooks: {run.folder}/notebooks/")
    return 0


SAID = {  # by state
    "kept": "kept though code changed ({why}); --force {number} reruns it",
    "restored": "restored ({why})",
    "make": "will run ({why})",
    "waits": "will run if its inputs change ({why})",
}


def print_verdicts(verdicts: list[fresh.Verdict]) -> None:
    """Print which notebooks will run, are kept or were restored: one line per notebook and reason."""
    lines = []
    for verdict in verdicts:
        if verdict.state in SAID and verdict.why != fresh.NEW:
            row, said = verdict.job.notebook, SAID[verdict.state]
            lines.append(f"{row.name}: {said.format(why=verdict.why, number=row.number)}")
    for text, count in Counter(lines).items():
        say(text + (f" x {count}" if count > 1 else ""))


def models_of(jobs: list[Job]) -> list[str]:
    return list(dict.fromkeys(job.model for job in jobs if job.model))


def prepare_models(run: Run, jobs: list[Job]) -> bool:
    """Download what the jobs need, and return whether all their models can be loaded. No result of the run changes."""
    models = models_of(jobs)
    waiting = [name for name in models if weights.is_elsewhere(params.load_model_config(name))]
    if report_unusable(run, [name for name in models if name not in waiting]):
        return False
    if models:
        hub.check_dataset_files(run)
    extras.install_vllm(run, jobs, say)
    hub.fetch(models, say)
    weights.fetch(models, say)
    return not report_unusable(run, waiting)  # a GGUF file can be looked at only once it is here


def execute(
    run: Run, todo: list[fresh.Verdict], board: Board, total: int, profile: cluster.Profile | None, door: str
) -> int:
    """Run the jobs and return the exit code: 2 if the user can fix all failures, else 1."""
    jobs = [verdict.job for verdict in todo]
    at_once = f"{run.cores} cores" + (f", {run.gpus} GPUs" if run.gpus else "")
    if profile:
        at_once = f"{profile.name}, at most {profile.at_once} at once"
    sure = sum(verdict.state == "make" for verdict in todo)
    others = f", and {len(todo) - sure} if their inputs change" if sure < len(todo) else ""
    say(f"{run.name}: {sure} of {total} jobs to do on {at_once}{others}")
    hub.save_revisions(run)
    usable.with_small(run, models_of(jobs)).save()
    if any(job.notebook.exports for job in jobs):
        import_early()
    log = ROOT / run.folder / "snakemake.log"
    log.write_text("", encoding="utf-8")
    code = schedule(run, jobs, partial(board.handle_line, log), profile, door)
    if not code:
        return 0
    failures = list(dict.fromkeys(board.failures)) or [(1, failure_reason(run, code, board.going))]
    for _, text in reversed(failures):  # the first failure last
        print_error(text)
    return 2 if all(code == 2 for code, _ in failures) else 1


def report_unusable(run: Run, models: list[str]) -> bool:
    """Whether any of these models cannot be loaded; the reasons are printed. Checked before any job starts."""
    reasons = usable.find_unusable(run, models)
    for text in reasons:
        print_error(text)
    return bool(reasons)


# ---- failure --------------------------------------------------------------------------------------------------


def failure_reason(run: Run, code: int, going: dict[str, str]) -> str:
    """Return why a run failed although no job reported a failure: killed jobs, or Snakemake's error."""
    name, titles = f"{run.folder}/snakemake.log", ", ".join(going.values())
    if code < 0:
        beside = f" while {titles} ran" if going else ""
        who = f"the process that schedules the jobs was killed{beside}, by signal {-code}"
        return f"{who}; the same command goes on from here"
    if run.cluster and (said := cluster.failure_reason(ROOT / name)):
        who = f"{titles}: ended by the cluster" if going else "the cluster says"
        return f"{who}: {said}; the same command goes on from here (logs: {name}, {run.folder}/cluster/)"
    if going:
        return (
            f"{titles}: killed before it could say why, most likely out of memory; the same command goes on "
            f"from here, with --cores 1 one notebook at a time (log: {name})"
        )
    text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"(Error|Exception)\b.*\w", line)] or lines[-1:]
    return f"the schedule failed, see {name}: {errors[-1] if errors else 'no reason given'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
