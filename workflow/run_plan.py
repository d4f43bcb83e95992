"""The plan of a run: its resolved parameters, models, cores and GPUs, from the command line and the
parameter files."""

import os
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from lib import params
from lib.errors import UserError
from lib.parameter_schemas import as_list
from lib.paths import ROOT
from lib.run_names import LAB, MAKE, PUBLISHED, REPLAY, RunName, is_word, join_names
from workflow import dataset_file, machine
from workflow.cli import check_run_name
from workflow.engine import slurm_options
from workflow.engine.fingerprint import checksum
from workflow.engine.jobs_of_run import SHIPPED, Run
from workflow.findings import NEEDS


def plan(args: Namespace) -> Run:
    """Return the run for the parsed command, after validating every parameter file that it
    needs."""
    if args.data_dir:
        os.environ["DATA_FOLDER"] = args.data_dir  # for the jobs, too
    args.datasets = dataset_file.take_names(args.datasets)
    args.add_datasets = dataset_file.take_names(args.add_datasets)
    of_profile = read_profile(args.profile)
    values = choose_values(args, of_profile)
    name = name_run(args, of_profile, values)
    run = Run(
        name,
        values,
        args.cores or count_cores(),
        wanted=NEEDS[args.finding] if args.finding else (),
        profile=args.profile,
        words=command_words(args, name),
        jobs_per_pair=args.jobs_per_pair,
    )
    if args.verb in (REPLAY, "verify"):
        check_signals(run)
    if not args.slurm:
        return replace(run, gpus=len(machine.list_gpus()))
    options = slurm_options.read_options(Path(args.slurm))
    with_model = [options[row.name] for row in run.notebooks if row.runs_model]
    has_gpu = any(slurm_options.requests_gpu(of_notebook) for of_notebook in with_model)
    return replace(run, cores=1, gpus=int(has_gpu), slurm=options)


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_profile(name: str) -> dict:
    """Return the parameters of a profile."""
    return params.load_profile(validate_name("profile", name)).model_dump(mode="json")


def choose_values(args: Namespace, of_profile: dict) -> dict:
    """Return the parameters of the profile, with the models and datasets of the command line."""
    models = [*(args.models or of_profile["models"]), *args.add_models]
    datasets = [*(args.datasets or of_profile["datasets"]), *args.add_datasets]
    values = of_profile | {
        "cpu": of_profile["cpu"] or args.cpu,
        "models": list(dict.fromkeys(models)),
        "datasets": list(dict.fromkeys(datasets)),
    }
    if args.verb == PUBLISHED:
        return without_names(values) | {"title": "The paper's own numbers, set again."}
    check_shipped_files(args.profile)
    for kind in params.LOADERS:
        check_labels(kind, values[f"{kind}s"])
        keep_chosen(kind, values)
    check_evaluated(values["datasets"])
    return values


def name_run(args: Namespace, of_profile: dict, values: dict) -> str:
    """Return the name of the run: its profile's if all that --models and --datasets name is the
    profile's, else that of the models that are not, then of such datasets.

    Raise UserError if that can't be a run's name.
    """
    if args.verb in (REPLAY, PUBLISHED):
        return str(RunName(args.verb, args.profile))
    if args.name:
        return check_run_name(args.name)
    replaced = foreign_names(args.models, of_profile["models"])
    replaced += foreign_names(args.datasets, of_profile["datasets"])
    if not replaced:
        return str(RunName(MAKE, args.profile))
    models = foreign_names(values["models"], of_profile["models"])
    datasets = foreign_names(values["datasets"], of_profile["datasets"])
    return check_run_name(join_names([*models, *datasets]))


def foreign_names(names: list[str], of_profile: list[str]) -> list[str]:
    """Return the names of models or datasets that are not the profile's."""
    return [name for name in names if name not in of_profile]


def command_words(args: Namespace, name: str) -> str:
    """Return the words after `./run_all.sh` that make a user's own run; empty for another, which
    its name tells."""
    if args.verb in (REPLAY, PUBLISHED) or name == args.profile:
        return ""
    words = [args.profile]
    options = {
        "--models": args.models,
        "--add-models": args.add_models,
        "--datasets": args.datasets,
        "--add-datasets": args.add_datasets,
        "--name": [args.name] if args.name else [],
    }
    for option, of_option in options.items():
        if of_option:
            words += [option, *of_option]
    return " ".join(words)


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


def check_evaluated(datasets: list[str]) -> None:
    """Raise UserError if no dataset of the run has a question to evaluate."""
    if all(params.load_dataset_config(name).evaluation == 0 for name in datasets):
        raise UserError(
            f"no question is left to evaluate: {', '.join(datasets)} has `evaluation: 0`; name "
            "another dataset beside it, or leave out both sizes for halves"
        )


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
    if not is_word(name) or name == "shipped":
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


def check_signals(run: Run) -> None:
    """Raise UserError if a replay of the run's profile would lack shipped signals."""
    command = run.words or run.profile
    for job in Run(str(RunName(REPLAY, run.profile)), run.values).jobs:
        for path in job.inputs:
            if path.startswith(SHIPPED) and not (ROOT / path).exists():
                raise UserError(f"{path} is not shipped: ./run_all.sh {command} computes it")


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
