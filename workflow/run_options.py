"""The plan of a run: its resolved parameters, models, cores and GPUs, from the command line and the
parameter files."""

import os
import re
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from lib import params
from lib.errors import UserError
from lib.parameter_schemas import as_list
from lib.paths import ROOT
from lib.run_names import LAB, MAKE, PUBLISHED, REPLAY, RunName
from workflow import machine
from workflow.engine import slurm
from workflow.engine.fingerprint import checksum
from workflow.engine.jobs_of_run import SHIPPED, Run
from workflow.findings import NEEDS


def plan(args: Namespace) -> Run:
    """Return the run for the parsed command, after validating every parameter file that it
    needs."""
    if args.data_dir:
        os.environ["DATA_FOLDER"] = args.data_dir  # for the jobs, too
    values = choose_values(args)
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    run = Run(
        args.run, values, args.cores or here, wanted=NEEDS[args.finding] if args.finding else ()
    )
    if args.slurm:
        options = slurm.read_options(Path(args.slurm))
        has_gpu = any(
            slurm.requests_gpu(options[row.name]) for row in run.notebooks if row.runs_model
        )
        run = replace(run, cores=1, gpus=int(has_gpu), slurm=options)
    else:
        run = replace(run, gpus=len(machine.list_gpus()))
    return run


def choose_values(args: Namespace) -> dict:
    """Return the parameters of the profile, with the models and datasets of the command line."""
    values = params.load_profile(validate_name("profile", args.profile)).model_dump(mode="json")
    values["cpu"] = values["cpu"] or args.cpu
    values["models"] = list(dict.fromkeys([*(args.models or values["models"]), *args.add_models]))
    values["datasets"] = list(
        dict.fromkeys([*(args.datasets or values["datasets"]), *args.add_datasets])
    )
    if args.verb == PUBLISHED:  # no models and datasets, and no parameters that name some
        values |= {
            name: type(value)()
            for name, value in values.items()
            if params.kind_of(name) in params.LOADERS
        }
        return values | {"title": "The paper's own numbers, set again."}
    check_shipped_files(args.profile)
    for kind, load in params.LOADERS.items():
        chosen = values[f"{kind}s"]
        for name, value in values.items():  # single figures show what is there
            if params.kind_of(name) == kind:
                kept = [item for item in as_list(value) if item in chosen] or chosen
                values[name] = kept if isinstance(value, list) else kept[0]
        by_label: dict[str, str] = {}  # tables could not distinguish two of one label
        for name in chosen:
            label = load(validate_name(kind, name)).label
            if (first := by_label.setdefault(label, name)) != name:
                raise UserError(f"{kind}s '{first}' and '{name}' bear the same label '{label}'")
    if args.verb in (REPLAY, "verify"):
        check_signals(args.profile, values)
    return values


def validate_name(kind: str, name: str) -> str:
    """Return the name; raise UserError if it cannot be part of the names of jobs and folders."""
    if not re.fullmatch(r"\w[\w.-]*", name) or "__" in name or name == "shipped":
        raise UserError(
            f"{kind} '{name}': a file's name needs letters, digits, '.', '-' and single '_', not 'shipped'"
        )
    if kind == "profile" and RunName.parse(name).verb != MAKE:
        raise UserError(
            f"profile '{name}': '{LAB}', '{REPLAY}' and '{PUBLISHED}' begin the names of other runs"
        )
    return name


# ---- shipped signals

LIST = "SHA256SUMS"  # in artifacts/shipped/<run>/, in git: `sha256sum -c` does the same


def check_signals(profile: str, values: dict) -> None:
    """Raise UserError if a replay of the profile would lack shipped signals."""
    for job in Run(str(RunName(REPLAY, profile)), values).jobs:
        for path in job.inputs:
            if path.startswith(SHIPPED) and not (ROOT / path).exists():
                raise UserError(f"{path} is not shipped: ./run_all.sh {profile} computes it")


def check_shipped_files(profile: str) -> None:
    """Raise UserError for a shipped file that differs from the list. A folder without a list (a
    user's) is accepted."""
    folder = f"{SHIPPED}/{profile}"
    if not (ROOT / folder / LIST).is_file():
        return
    for line in (ROOT / folder / LIST).read_text(encoding="utf-8", errors="replace").splitlines():
        expected, _, name = line.partition("  ")
        if checksum(f"{folder}/{name}") != expected:
            remedy = f"`git checkout -- {folder}` restores what is shipped"
            raise UserError(f"{folder}/{name} is not as {LIST} lists it: {remedy}")
