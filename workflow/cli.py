"""The command-line arguments, checked with the standard library before anything is installed.

`python3 workflow/cli.py WORDS...` prints the verb (`make` for a profile) or the help. A wrong
argument is a one-line error with a suggestion, exit code 2. It runs on Python 3.8.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

if not __package__:  # started by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lib.errors import UserError, nearest
from lib.paths import ROOT
from lib.run_names import DEFAULT, LAB, MAKE, PUBLISHED, REPLAY, check_own_name, make_word
from workflow.serving.address import EXAMPLE, parse_address


def user_path(word: str) -> str:
    """Return the path of a file or folder, relative to the user's directory, which run_all.sh
    passes on."""
    folder = os.environ.get("CALLED_FROM", "")
    place = os.path.realpath(os.path.join(folder, os.path.expanduser(word)))
    if not os.path.exists(place):
        raise argparse.ArgumentTypeError(f"there is no file or folder '{word}'")
    return place


def whole_number(word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word) > 0):
        raise argparse.ArgumentTypeError(f"a whole number from 1 up is meant, not '{word}'")
    return int(word)


FINDINGS = ["1", "2", "3", "4"]
JUDGE = "judge"
# of tables of scores, all also with .gz; lib.tasks.question_files reads them
TABLE_ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".ndjson", ".parquet")
SELECTION = ("--models", "--add-models", "--datasets", "--add-datasets")
JOBS = ("--force", "--cores", "--dry-run")
NAMED = (*SELECTION, "--name")  # what decides which run it is
WITH_MODELS = (*NAMED, "--data-dir", *JOBS, "--cpu", "--slurm", "--jobs-per-pair")
OF_A_SERVER = ("--url", "--model-name", "--concurrent", "--timeout")
TAKES = {  # options of each verb; a profile may stand before --models
    MAKE: (*WITH_MODELS, *OF_A_SERVER),
    "verify": WITH_MODELS,
    "check": (*NAMED, "--data-dir", "--cores", "--cpu"),
    REPLAY: (*SELECTION, *JOBS),
    "requests": (*NAMED, "--data-dir", "--model-name"),
    PUBLISHED: JOBS,
    JUDGE: ("--name", *JOBS),
    LAB: NAMED,
    "test": (),
    "archive": (),
    "help": (),
}
VERBS = sorted({*TAKES, "finding"} - {MAKE})
OPTIONS = (*WITH_MODELS, *OF_A_SERVER)


def parameter_files(folder: str = "") -> list[str]:
    """Return the stems of the parameter files in params/ or one of its folders."""
    return sorted(path.stem for path in (ROOT / "params" / folder).glob("*.yaml"))


def notebook_numbers() -> list[str]:
    """Return the numbers of the notebooks, as `--force` takes them: 01, ..., 04b."""
    return [path.name.split("_")[0] for path in (ROOT / "notebooks").glob("[0-9][0-9]*_*.ipynb")]


def check_run_name(name: str) -> str:
    """Return the name of a user's own run, or of the results of a user's file. Raise UserError if
    it is taken."""
    return check_own_name(name, [*parameter_files(), *VERBS])


def choose(kind: str, word: str, options: list[str]) -> str:
    """Return the word if it is one of the options; else raise UserError with the nearest option."""
    if word not in options:
        raise UserError(f"unknown {kind} '{word}': {nearest(word.lower(), options)}")
    return word


class Parser(argparse.ArgumentParser):
    """argparse that raises one-line errors instead of printing them."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def parser_of_options() -> Parser:
    """Return the parser of what follows the verb and the profile."""
    parser = Parser(add_help=False, allow_abbrev=False)
    for option in ("--models", "--add-models", "--datasets", "--add-datasets", "--force"):
        parser.add_argument(option, nargs="+", default=[])
    for option in ("--data-dir", "--slurm"):
        parser.add_argument(option, type=user_path)
    for option in ("--cpu", "--dry-run"):
        parser.add_argument(option, action="store_true")
    for option in ("--name", "--model-name", "--url"):
        parser.add_argument(option, default="")
    parser.add_argument("--cores", type=whole_number)
    parser.add_argument("--jobs-per-pair", type=whole_number, default=1)
    parser.add_argument("--concurrent", type=whole_number, default=8)
    parser.add_argument("--timeout", type=whole_number)
    return parser


def parse_and_check(argv: list[str]) -> argparse.Namespace:
    """Parse the arguments, and check them against the folders of the project. Those after `--` go
    to JupyterLab or pytest."""
    end = argv.index("--") if "--" in argv else len(argv)
    words = argv[:end]
    handed_on = argv[end + 1 :]
    if "-h" in words or "--help" in words:
        words = ["help"]
    finding = ""
    if words[:1] == ["finding"]:
        finding = choose("finding", "".join(words[1:2]), FINDINGS)
        words = words[2:]
    verb = words.pop(0) if words and words[0] in TAKES else MAKE
    if finding and verb not in (MAKE, REPLAY):
        raise UserError(
            f"finding {finding} is followed by a profile, or by {REPLAY}, not by {verb}"
        )
    if handed_on and verb not in (LAB, "test"):
        raise UserError(f"only lab and test take words after --: '{handed_on[0]}'")
    for word in words:
        if word.startswith("-"):
            check_option(verb, word.split("=")[0])
    profile = DEFAULT
    if "--models" in TAKES[verb] and words and not words[0].startswith("-"):
        profile = choose_profile(verb, words.pop(0))
    table = choose_table(words) if verb == JUDGE else ""
    decided = argparse.Namespace(verb=verb, profile=profile, finding=finding, table=table)
    args = parser_of_options().parse_args(words, decided)
    check_values(args)
    return args


def without_gz(path: str) -> str:
    return path[: -len(".gz")] if path.lower().endswith(".gz") else path


def choose_table(words: list[str]) -> str:
    """Remove the table from the words of `judge`, and return its path. Raise UserError for one that
    is not there, or of an unknown kind."""
    if not words or words[0].startswith("-"):
        raise UserError("judge takes a table of scores, as ./run_all.sh judge scores.csv")
    word = words.pop(0)
    try:
        path = user_path(word)
    except argparse.ArgumentTypeError as error:
        raise UserError(error) from None
    if not os.path.isfile(path) or not without_gz(path).lower().endswith(TABLE_ENDINGS):
        raise UserError(
            f"{word}: a table of scores is a .csv, .tsv, .jsonl or .parquet file, also with .gz"
        )
    return path


def choose_profile(verb: str, word: str) -> str:
    """Return the word if it is a profile; where a verb may stand it may be a misspelled verb."""
    if verb == MAKE:
        return choose("profile or verb", word, [*parameter_files(), *VERBS])
    return choose("profile", word, parameter_files())


def check_option(verb: str, option: str) -> None:
    """Raise UserError for an option that the verb does not take."""
    if option == "--profile":
        raise UserError(
            "--profile has made way for --slurm: "
            "write --slurm clusters/slurm.yaml to submit the jobs"
        )
    if verb in (LAB, "test") and option not in OPTIONS:
        raise UserError(
            f"what {verb} hands on comes after --, as in ./run_all.sh {verb} -- {option}"
        )
    if option not in TAKES[verb]:
        choose("option", option, [*OPTIONS, "--help"])
        raise UserError(f"{verb} takes no {option}")


def choose_dataset(word: str) -> str:
    """Return the word if it is the name of a dataset, and the path of a file of questions."""
    names = parameter_files("datasets")
    if word in names or not (os.sep in word or os.path.splitext(word)[1]):
        return choose("dataset", word, names)
    try:
        return user_path(word)
    except argparse.ArgumentTypeError as error:
        raise UserError(f"--datasets: {error}") from None


def check_values(args: argparse.Namespace) -> None:
    """Raise UserError for a value of an option that names nothing."""
    for model in args.models + args.add_models:
        choose("model", model, parameter_files("models"))
    args.datasets = [choose_dataset(word) for word in args.datasets]
    args.add_datasets = [choose_dataset(word) for word in args.add_datasets]
    if args.verb == JUDGE and not args.name:
        args.name = make_word(Path(without_gz(args.table)).stem)
    if args.name or args.verb == JUDGE:
        check_run_name(args.name)
    args.force = [choose("notebook", word.split("_")[0], notebook_numbers()) for word in args.force]
    check_server(args)
    if args.slurm and args.cores:
        raise UserError("--cores does not go with --slurm: set `cpus-per-task` in its file")
    if args.slurm and args.jobs_per_pair > 1:
        raise UserError("--jobs-per-pair does not go with --slurm: set `jobs_per_pair` in its file")


def check_server(args: argparse.Namespace) -> None:
    """Raise UserError for an address that is none, or what is said of a server without one."""
    if args.url:
        parse_address(args.url)
        if args.dry_run:
            raise UserError("--dry-run does not go with --url: what it would ask is not known yet")
    elif args.verb == MAKE and (args.model_name or args.timeout):
        raise UserError(f"--model-name and --timeout are for a server: add {EXAMPLE}")


def help_text() -> str:
    """Return the help in help.txt, at most 24 lines of 80 columns, with the names of the
    profiles."""
    text = Path(__file__).with_name("help.txt").read_text(encoding="utf-8").strip()
    profiles = textwrap.shorten(", ".join(parameter_files()), 30, placeholder=" ...")
    return text.format(profiles=profiles)


def main(argv: list[str]) -> int:
    if isinstance(sys.stdout, TextIOWrapper):  # of a terminal that cannot print a character
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        args = parse_and_check(argv)
    except UserError as error:
        print(f"run_all.sh: {error}", file=sys.stderr)
        return 2
    print(help_text() if args.verb == "help" else args.verb)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
