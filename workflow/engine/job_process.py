"""The process of a job: it makes the job's outputs unless they are valid by now, and tells how it
goes on and ends.

On this machine multiprocessing has started it (jobs.py), and it reports by a pipe. It ends with the
run, and its kernel with the job: otherwise a kernel could go on writing after kill -9. On a node of
a SLURM cluster it is `python -m workflow.engine.job_process RUN JOB`, and outlives the run.
"""

import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import connection, parent_process
from pathlib import Path

from lib.errors import UserError, first_line
from lib.files import digest
from lib.paths import ROOT
from workflow import hub, machine
from workflow.engine import freshness, job_key, notebook, slurm
from workflow.engine.jobs_of_run import Job, Run
from workflow.engine.progress import describe_system_error, redact_paths


def run_in_process(job: Job, gpus: str, scratch: Path, channel: connection.Connection) -> None:
    """Run a job in this process, which multiprocessing has started, and tell the run how it goes
    on."""
    os.setsid()  # Ctrl-C in the terminal reaches the run alone
    threading.Thread(target=end_with_run, daemon=True).start()
    if job.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    with machine.temporary_folder(scratch) as folder:
        run_job(job, folder, lambda event, **facts: channel.send((event, facts)))


def end_with_run() -> None:
    """End this process, and so its kernel, when the run's process ends for any reason."""
    run = parent_process()
    if run:
        connection.wait([run.sentinel])
        os._exit(143)


def run_on_node(run: str, name: str) -> int:
    """Run a job on its node and return its exit code."""
    cores = int(os.environ.get("SLURM_CPUS_ON_NODE", 1))
    gpus = len(machine.list_gpus())
    job = replace(Run.load(run), cores=cores, gpus=gpus).job(name)
    signal.signal(slurm.LIMIT_SIGNAL, lambda number, frame: go_back_into_queue(job))
    with machine.temporary_folder(machine.short_tempdir()) as scratch:
        return run_job(job, scratch, partial(slurm.append_event, job))


def run_job(job: Job, scratch: Path, tell: notebook.Tell) -> int:
    """Make a job's outputs unless they are valid by now, and tell how it goes on and ends. Return
    its exit code: 2 if the user can fix a failure."""
    os.chdir(ROOT)
    with (scratch / "output").open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    code = 1
    try:
        hub.pin_revisions(job.run)
        if job.run.slurm:
            wait_for_inputs(job)
        if job.helper:
            help_with_rows(job, scratch, tell)
            return 0
        why = freshness.decide_at_start(job)
        if why:
            tell("kept", text=why)
            return 0
        text = make_outputs(job, scratch, tell)
        code = 0
    except UserError as problem:
        text = str(problem)
        code = 2
    except notebook.NotebookError as problem:
        text = str(problem)
    except Exception as problem:  # a system error or a bug: the traceback goes to the log
        traceback.print_exc()
        reason = f"{type(problem).__name__}: {first_line(problem)}"
        if isinstance(problem, OSError):
            reason = describe_system_error(problem)
        text = f"{job.title}: {reason}"
    write_log(scratch / "output", ROOT / job.log)
    if code:
        tell("fail", text=text, code=code)
    else:
        tell("end", text=text)
    return code


def help_with_rows(job: Job, scratch: Path, tell: notebook.Tell) -> None:
    """Execute a job's notebook up to where its frame is written, which another process does."""
    if freshness.assess(job).needs_run:  # on a cluster the other may be done
        parts = job_key.key_parts(job)
        tell("start", key=digest(parts))
        notebook.execute(job, parts, scratch, tell)
    tell("end")


def make_outputs(job: Job, scratch: Path, tell: notebook.Tell) -> str:
    """Execute a job's notebook, export what it shows, and write the record. The job without a
    notebook writes the report. Return what ends its line."""
    started = time.monotonic()
    parts = job_key.key_parts(job)
    outputs = job.outputs
    tell("start", key=digest(parts))
    if job.notebook.module:
        write_page(job)
    else:
        nb = notebook.execute(job, parts, scratch, tell)
        outputs += job.extra_outputs
        if job.exported and nb:
            from workflow.output import paper_files

            paper_files.export_for_report(nb, ROOT / job.exported)
        if job.notebook.exports and nb:
            names = paper_files.export(nb, ROOT / job.run.figures)
            outputs += [f"{job.run.figures}/{name}" for name in names]
    job_key.write_record(job, parts, outputs)
    from workflow.output.first_numbers import first_numbers

    return f"{time.monotonic() - started:.1f} s{first_numbers(job)}"


def write_page(job: Job) -> None:
    """Write the report of a run, of a user's model, or of a table of scores."""
    exported = ROOT / job.run.folder / "exported"
    if job.run.table:
        from workflow.output.table_report import write_table_report  # slow to import

        write_table_report(exported, ROOT / job.executed)
    elif job.notebook.of_model:
        from workflow.output.model_report import write_model_report  # slow to import, too

        write_model_report(job.run, ROOT / job.executed)
    else:
        from workflow.output.report import write_report  # slow to import, as what exports

        write_report(exported, ROOT / job.executed)


def write_log(output: Path, log: Path) -> None:
    """Write what this process and its kernel printed to the log, without this machine's paths."""
    sys.stdout.flush()
    printed = output.read_text(encoding="utf-8", errors="replace")
    lines = [redact_paths(line) for line in printed.splitlines() if line.strip()]
    with suppress(OSError):  # a full disk: the failure itself is told
        log.unlink(missing_ok=True)
        if lines:
            log.parent.mkdir(exist_ok=True)
            log.write_text("".join(lines), encoding="utf-8")


# ---- on a node of a cluster


def go_back_into_queue(job: Job) -> None:
    """Start again later. A job without a finished shard would never end: it runs into its time
    limit."""
    events = slurm.read_events(job)
    if events and events[-1]["event"] == "progress":
        text = "its time is over: back into the queue, to go on at its last shard"
        slurm.append_event(job, "progress", text=text)
        machine.run_program("scontrol", "requeue", os.environ["SLURM_JOB_ID"])


def wait_for_inputs(job: Job) -> None:
    """Wait until the outputs of the jobs upstream are visible here: shared folders have delays."""
    end = time.monotonic() + slurm.VISIBLE_SECONDS
    for above in job.upstream:
        while not is_visible(above):
            if time.monotonic() > end:
                raise UserError(
                    f"the outputs of {above.title} are not complete on this node, "
                    f"{slurm.VISIBLE_SECONDS} s after they were written: "
                    "do all nodes share the project's folder?"
                )
            time.sleep(1)


def is_visible(job: Job) -> bool:
    with suppress(OSError):  # the file is being written
        record = job_key.read_record(ROOT / job.record, job)
        return record is not None and job_key.is_intact(record)
    return False


if __name__ == "__main__":
    sys.exit(run_on_node(*sys.argv[1:]))
