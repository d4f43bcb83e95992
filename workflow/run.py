"""One run, from the words of the command line to a summary: `python -m workflow.run [PROFILE] [OPTIONS]`.

Decides what is to be made (fresh.py), has it made (schedule.py), and says what happens and where the results are.
Nothing is started if everything is up to date.
"""

import os
import re
import signal
import sys
import time
from argparse import Namespace
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial

from lib import params
from lib.paths import ROOT, UserError, one_line
from workflow import (
    check,
    cli,
    cluster,
    dry_run,
    extras,
    finding,
    fresh,
    gpus,
    hub,
    leftovers,
    locks,
    usable,
    weights,
)
from workflow.files import write_json
from workflow.pipeline import NOTEBOOKS, PUBLISHED, SHIPPED, Job, Run, shippable
from workflow.progress import Board, private, say
from workflow.reference_data import check_files
from workflow.report_file import renew_report
from workflow.schedule import preloaded, schedule
from workflow.typeset import typeset


def hush() -> None:
    """From now on nothing is said on stdout, where nobody listens or nothing fits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Stopped(BaseException):
    """A signal asked this run to end."""

    def __init__(self, number: int):
        self.code = 128 + number


def main(argv: list[str]) -> int:
    if sys.stdout is None:  # closed
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # of a terminal that can't show a letter of a label

    def handle(number, frame):
        raise Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handle)
    try:
        asked = cli.check(argv)
        if asked.check:
            return check.main(plan(asked), say)
        if asked.finding:
            return found(asked)
        if asked.book:
            return booked(asked)
        return verified(asked) if asked.verify else make(asked)
    except (UserError, cli.WordError) as problem:
        complain(problem)
        return 2
    except BrokenPipeError:  # who listened has gone: `| head`
        hush()
        return 141
    except OSError as problem:  # the system's: no room, no permission, a folder in the place of a file
        hush()
        where = private(f" ({problem.filename})").rstrip() if problem.filename else ""
        complain(f"{problem.strerror or problem}{where}; once that is mended, the same command goes on from here")
        return 1
    except MemoryError:
        complain("no memory is left; the same command goes on from here, with --cores 1 one notebook at a time")
        return 1
    except Stopped as stopped:
        print("run_all.sh: stopped; the same command goes on from here", file=sys.stderr)
        return stopped.code


def complain(text: object) -> None:
    print(f"run_all.sh: {one_line(str(text), most=600)}", file=sys.stderr, flush=True)


# ---- what the words ask for --------------------------------------------------------------------------------


def plan(asked: Namespace) -> Run:
    """The run that the words ask for, with every file of parameters it needs read and checked. Where a folder of
    published questions is named, jobs find its name in the environment."""
    if asked.data_dir:
        os.environ["DATA_FOLDER"] = asked.data_dir
    profile = proper("profile", asked.profile)
    values = params.load_profile(profile).model_dump(mode="json")
    values["cpu"] = values["cpu"] or asked.cpu
    values["models"] = list(dict.fromkeys([*(asked.models or values["models"]), *asked.add_models]))
    values["datasets"] = list(dict.fromkeys([*(asked.datasets or values["datasets"]), *asked.add_datasets]))
    if asked.verb != PUBLISHED:
        check_files(profile)
    if asked.replay:
        values["datasets"] = shipped(profile, values)
    for kind, load in params.LOADERS.items():
        narrow(values, kind)
        for name in values[kind + "s"]:
            load(proper(kind, name))
    if asked.verb == PUBLISHED:  # nothing of the profile but the choices that every notebook declares
        values |= {name: type(value)() for name, value in values.items() if fresh.kind_of(name) in params.LOADERS}
        values["title"] = "The paper's own numbers, set again."
    unlike(values)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = finding.NEEDS[asked.finding] if asked.finding else ()
    absent = tuple(name for name in values["models"] if not params.load_model_config(name).at_hand)
    if asked.cluster:
        profile = cluster.load_profile(asked.cluster)
        by_rule = {row.name: profile.gpus(row) for row in NOTEBOOKS if row.heavy}
        run = Run(asked.run, values, 1, max(by_rule.values()), wanted, absent, profile.executor, gpus_of=by_rule)
    else:
        run = Run(asked.run, values, asked.cores or cores, len(gpus.available()), wanted, absent)
    for job in run.jobs:
        job.check()
    return run


def shipped(profile: str, values: dict) -> list[str]:
    """The datasets whose signals are part of the project, for all models; the others are named. UserError for none."""
    folder = ROOT / SHIPPED / profile
    there = [dataset for dataset in values["datasets"]
             if all((folder / path.format(model=model, dataset=dataset)).exists()
                    for path in shippable(may_lack=False) for model in values["models"])]  # fmt: skip
    if not there:
        raise UserError(f"no signals of {', '.join(values['models'])} are shipped in {SHIPPED}/{profile}/: "
                        f"./run_all.sh {profile} makes its own")  # fmt: skip
    absent = [dataset for dataset in values["datasets"] if dataset not in there]
    if absent:
        say(f"{', '.join(absent)}: not shipped yet, left out")
    return there


def proper(kind: str, name: str) -> str:
    """A name that can stand in the names of jobs and folders."""
    if not re.fullmatch(r"\w[\w.-]*", name) or "__" in name or name == "shipped":
        raise UserError(f"{kind} '{name}': a file's name needs letters, digits, '.', '-' and single '_', not 'shipped'")
    if kind == "profile" and name.startswith("lab-"):
        raise UserError(f"profile '{name}': a name that begins with 'lab-' is kept for what is run by hand")
    return name


def unlike(values: dict) -> None:
    """UserError for models (datasets) of one label: no table could tell them apart."""
    for kind, load in params.LOADERS.items():
        labels: dict[str, str] = {}
        for name in values[kind + "s"]:
            label = load(name).label
            if label in labels:
                raise UserError(f"{kind}s '{labels[label]}' and '{name}' bear the same label '{label}'")
            labels[label] = name


def narrow(values: dict, kind: str) -> None:
    """Models (datasets) that single figures show follow the choice of the command line."""
    chosen = values[kind + "s"]
    for name, value in values.items():
        if name.endswith(f"_{kind}s"):
            values[name] = [item for item in value if item in chosen] or chosen
        elif name.endswith(f"_{kind}") and value not in chosen:
            values[name] = chosen[0]


# ---- the run itself ----------------------------------------------------------------------------------------


def make(asked: Namespace) -> int:
    """The whole run; its exit code."""
    started = time.monotonic()
    run, profile = plan(asked), cluster.load_profile(asked.cluster) if asked.cluster else None
    if profile:
        cluster.check(profile, run)
    if asked.dry_run:
        return dry_run.show(run, profile, asked.force, say)
    with locks.run_lock(run):
        hub.pin(run)
        if profile:
            cluster.clear(profile, run, say)
        leftovers.clear(run)
        jobs = [verdict.job for verdict in fresh.outlook(run, asked.force) if verdict.open]
        with preloaded(run, jobs) as door:
            if not provide(run, jobs):
                return 2
            if jobs and profile:
                extras.install_plugin(cluster.EXECUTORS[profile.executor][1], say)
            verdicts = fresh.walk(run, asked.force)  # from here on nothing is refused, and files move
            announce(verdicts)
            todo = [verdict for verdict in verdicts if verdict.open]
            board = Board({verdict.job.name: verdict.job.title for verdict in todo}, run.cores, run.seconds())
            code = execute(run, todo, board, len(verdicts), profile, door) if todo else 0
        if all((ROOT / job.record).is_file() for job in run.jobs if job.notebook.exports):  # not of a failed 08
            renew_report(run)
        if code:
            return code
        if not run.wanted and (line := typeset(ROOT / run.figures)):
            say(line)
        made = len(board.seconds)
        say(f"{run.name}: {made} made, {len(verdicts) - made} kept, {time.monotonic() - started:.1f} s")
        if run.wanted:
            return 0
        say(f"here and in the paper: {run.figures}/report.html")
        say(f"tables and figures: {run.figures}/  executed notebooks: {run.folder}/notebooks/")
    return 0


def verified(asked: Namespace) -> int:
    """The whole run, and then held against the shipped one; the exit code. Refused first where none is shipped."""
    from workflow.verify import both, verify  # slow to load, and of no use to other verbs

    both(plan(asked))
    return make(asked) or verify(plan(asked), say)


def found(asked: Namespace) -> int:
    """What one finding needs, and what comes of it; the exit code."""
    if code := make(asked):
        return code
    for line in finding.told(plan(asked), asked.finding):
        say(line)
    return 0


def booked(asked: Namespace) -> int:
    """The whole run, and its book; the exit code."""
    from workflow import book  # slow to load, and of no use to other verbs

    if code := make(asked):
        return code
    book.write(plan(asked), say)
    return 0


def announce(verdicts: list[fresh.Verdict]) -> None:
    """Say what is no longer or again valid, a line per notebook and reason."""
    lines = []
    for verdict in verdicts:
        row = verdict.job.notebook
        if verdict.state == "kept":
            lines.append(f"{row.name}: kept though code changed ({verdict.why}); --force {row.number} remakes it")
        elif verdict.state == "restored":
            lines.append(f"{row.name}: restored ({verdict.why})")
        elif verdict.state == "make" and verdict.why != fresh.NEW:
            lines.append(f"{row.name}: to be made ({verdict.why})")
        elif verdict.state == "waits":
            lines.append(f"{row.name}: to be made if what it reads changes ({verdict.why})")
    for text, count in Counter(lines).items():
        say(text + (f" x {count}" if count > 1 else ""))


def models_of(jobs: list[Job]) -> list[str]:
    return list(dict.fromkeys(job.model for job in jobs if job.model))


def provide(run: Run, jobs: list[Job]) -> bool:
    """Fetch what jobs need, and whether they can be done: not where a model can't be asked. No result of the run is
    touched."""
    if not jobs:
        return True
    models = models_of(jobs)
    waiting = [name for name in models if weights.pending(params.load_model_config(name))]
    if refused(run, [name for name in models if name not in waiting]):
        return False
    if models:
        hub.check_files(run)
    extras.install_vllm(run, jobs, say)
    hub.fetch(run, models, say)
    weights.fetch(models, say)
    return not refused(run, waiting)  # what a GGUF file holds is known when it is converted


def execute(run: Run, todo: list[fresh.Verdict], board: Board, total: int, profile=None, door: str = "") -> int:
    """Have the jobs run; the exit code: 2 if all failures are the user's to mend, else 1."""
    jobs = [verdict.job for verdict in todo]
    at_once = f"{run.cores} cores" + (f", {run.gpus} GPUs" if run.gpus else "")
    if profile:
        at_once = f"{profile.name}, at most {profile.at_once} at once"
    sure = sum(verdict.state == "make" for verdict in todo)
    others = f", and {len(todo) - sure} if what they read changes" if sure < len(todo) else ""
    say(f"{run.name}: {sure} of {total} jobs to do on {at_once}{others}")
    replace(run, cards=usable.cards(run, models_of(jobs))).save()
    log = ROOT / run.folder / "snakemake.log"
    log.write_text("", encoding="utf-8")
    code = schedule(run, jobs, partial(board.hear, log), profile, door)
    with suppress(OSError):  # where the disk is full, what failed for it says so
        write_json(ROOT / run.folder / "seconds.json", {**run.seconds(), **board.seconds})
    if not code:
        return 0
    failures = list(dict.fromkeys(board.failures)) or [(1, last_words(run, code, board.going))]
    for _, text in reversed(failures):  # the first failure in the last line
        complain(text)
    return 2 if all(code == 2 for code, _ in failures) else 1


def refused(run: Run, models: list[str]) -> bool:
    """Whether any of these models can't be asked; why, a line each. Found out here, it costs no other model's jobs."""
    reasons = usable.find_unusable(run, models)
    for text in reasons:
        complain(text)
    return bool(reasons)


# ---- how it ended ---------------------------------------------------------------------------------------------


def last_words(run: Run, code: int, going: dict[str, str]) -> str:
    """Why a run failed none of whose jobs could say so: which were killed, or Snakemake's own complaint."""
    name, titles = f"{run.folder}/snakemake.log", ", ".join(going.values())
    if code < 0:
        beside = f" while {titles} ran" if going else ""
        who = f"the process that has the jobs run was killed{beside}, by signal {-code}"
        return f"{who}; the same command goes on from here"
    if run.cluster and (said := cluster.failure_reason(ROOT / name)):
        who = f"{titles}: ended by the cluster" if going else "the cluster says"
        return f"{who}: {said}; the same command goes on from here (logs: {name}, {run.folder}/cluster/)"
    if going:
        return (f"{titles}: killed before it could say why, as happens where memory ends; the same command goes on "
                f"from here, with --cores 1 one notebook at a time (log: {name})")  # fmt: skip
    text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"(Error|Exception)\b.*\w", line)] or lines[-1:]
    return f"the schedule failed, see {name}: {errors[-1] if errors else 'no reason given'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
