"""The file of --slurm: the options of sbatch by notebook, and whether SLURM accepts them."""

from pathlib import Path

from lib.errors import UserError, nearest
from lib.files import read_yaml
from workflow.engine.jobs_of_run import PER_PAIR, Run
from workflow.engine.notebook_table import NOTEBOOKS
from workflow.machine import run_program

MOST_PER_PAIR = 100


def read_options(path: Path) -> dict[str, dict]:
    """Return sbatch's options by notebook: those of `all`, replaced by its own. Raise UserError for
    a mistake."""
    names = [row.name for row in NOTEBOOKS]
    content = read_yaml(path)
    if not isinstance(content, dict):
        content = {"all": content}
    for name, options in content.items():
        known = ["all", *names]
        if name not in known:
            raise UserError(
                f"{path.name} names '{name}', not a notebook: {nearest(str(name), known)}"
            )
        if not isinstance(options, dict):
            raise UserError(
                f"{path.name}: {name} must name "
                "options of sbatch and their values, as `partition: gpu`"
            )
        check_per_pair(path, name, options)
    of_all = content.get("all", {})
    return {name: of_all | content.get(name, {}) for name in names}


def check_per_pair(path: Path, name: str, options: dict) -> None:
    """Raise UserError for a number of jobs per pair that is none."""
    count = options.get(PER_PAIR, 1)
    if type(count) is not int or not 1 <= count <= MOST_PER_PAIR:
        raise UserError(
            f"{path.name}: {PER_PAIR} of {name} is {count!r}; "
            f"a whole number from 1 to {MOST_PER_PAIR} is meant"
        )


def requests_gpu(options: dict) -> bool:
    for name, value in options.items():
        if (name.startswith("gpus") or "gpu" in str(value)) and str(value) != "0":
            return True
    return False


def sbatch_words(options: dict) -> list[str]:
    words = []
    for name, value in options.items():
        if name != PER_PAIR:  # ours, not sbatch's
            words.append(f"--{name}" if value is True else f"--{name}={value}")
    return words


def check(run: Run) -> None:
    """Raise UserError if SLURM would refuse the jobs of a notebook, for example for an unknown
    partition."""
    accepted = []
    for row in run.notebooks:
        words = sbatch_words(run.slurm[row.name])
        if words in accepted:
            continue
        code, output = run_program("sbatch", "--test-only", *words, "--wrap=true")
        if code:
            raise UserError(f"SLURM refuses the jobs of {row.name}: {first_error(output)}")
        accepted.append(words)


def first_error(output: str) -> str:
    """Return the first error of what a program printed, among which may be banners and warnings."""
    lines = output.splitlines()
    errors = [line for line in lines if "error: " in line]
    for line in errors + lines:
        return line.removeprefix("sbatch: ").removeprefix("error: ")
    return ""
