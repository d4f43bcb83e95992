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
    wanted = NEEDS[args.finding] if args.finding else ()
    run = Run(args.run, values, args.cores or count_cores(), wanted=wanted)
    if not args.slurm:
        return replace(run, gpus=len(machine.list_gpus()))
    options = slurm.read_options(Path(args.slurm))
    with_model = [options[row.name] for row in run.notebooks if row.runs_model]
    has_gpu = any(slurm.requests_gpu(of_notebook) for of_notebook in with_model)
    return replace(run, cores=1, gpus=int(has_gpu), slurm=options)


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_values(args: Namespace) -> dict:
    """Return the parameters of the profile, with the models and datasets of the command line."""
    values = params.load_profile(validate_name("profile", args.profile)).model_dump(mode="json")
    values["cpu"] = values["cpu"] or args.cpu
    models = [*(args.models or values["models"]), *args.add_models]
    datasets = [*(args.datasets or values["datasets"]), *args.add_datasets]
    values["models"] = list(dict.fromkeys(models))
    values["datasets"] = list(dict.fromkeys(datasets))
    if args.verb == PUBLISHED:
        return without_names(values) | {"title": "The paper's own numbers, set again."}
    check_shipped_files(args.profile)
    for kind in params.LOADERS:
        check_labels(kind, values[f"{kind}s"])
        keep_chosen(kind, values)
    if args.verb in (REPLAY, "verify"):
        check_signals(args.profile, values)
    return values


def without_names(values: dict) -> dict:
    """Return parameters without the names of models and datasets."""
    emptied = dict(values)
    for name, value in values.items():
        if params.kind_of(name) in params.LOADERS:
            emptied[name] = type(value)()
    return emptied


def check_labels(kind: str, names: list[str]) -> None:
    """Raise UserError for two models or datasets with one label: tables could not distinguish
    them."""
    by_label: dict[str, str] = {}
    for name in names:
        label = params.LOADERS[kind](validate_name(kind, name)).label
        first = by_label.setdefault(label, name)
        if first != name:
            raise UserError(f"{kind}s '{first}' and '{name}' bear the same label '{label}'")


def keep_chosen(kind: str, values: dict) -> None:
    """Let single figures show models or datasets of the run: those that a parameter names, else
    the first or all."""
    chosen = values[f"{kind}s"]
    for name, value in values.items():
        if params.kind_of(name) != kind:
            continue
        shown = [item for item in as_list(value) if item in chosen] or chosen
        values[name] = shown if isinstance(value, list) else shown[0]


def validate_name(kind: str, name: str) -> str:
    """Return the name; raise UserError if it cannot be part of the names of jobs and folders."""
    if not re.fullmatch(r"\w[\w.-]*", name) or "__" in name or name == "shipped":
        raise UserError(
            f"{kind} '{name}': a file's name needs "
            "letters, digits, '.', '-' and single '_', not 'shipped'"
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
    listed = ROOT / folder / LIST
    if not listed.is_file():
        return
    for line in listed.read_text(encoding="utf-8", errors="replace").splitlines():
        expected, _, name = line.partition("  ")
        if checksum(f"{folder}/{name}") != expected:
            raise UserError(
                f"{folder}/{name} is not as {LIST} lists it: "
                f"`git checkout -- {folder}` restores what is shipped"
            )
