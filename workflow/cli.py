"""The command-line arguments, checked with the standard library before anything is installed.

`python3 workflow/cli.py WORDS...` prints the verb (`make` for a profile) or the help. A wrong
argument is a one-line error with a suggestion, exit code 2. It runs on Python 3.8.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from pathlib import Path

sys.path[:0] = [] if __package__ else [str(Path(__file__).resolve().parent.parent)]

from lib.errors import UserError, nearest
from lib.paths import ROOT
from lib.run_names import DEFAULT, LAB, MAKE, PUBLISHED, REPLAY, RunName


def user_path(word: str) -> str:
    """Return the path of a file or folder, relative to the user's directory, which run_all.sh
    passes on."""
    place = os.path.realpath(
        os.path.join(os.environ.get("CALLED_FROM", ""), os.path.expanduser(word))
    )
    if not os.path.exists(place):
        raise argparse.ArgumentTypeError(f"there is no file or folder '{word}'")
    return place


def whole_number(word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word) > 0):
        raise argparse.ArgumentTypeError(f"a whole number from 1 up is meant, not '{word}'")
    return int(word)


FINDINGS = ["1", "2", "3", "4"]
SELECTION = ("PROFILE", "--models", "--add-models", "--datasets", "--add-datasets")
JOBS = ("--force", "--cores", "--dry-run")
WITH_MODELS = (*SELECTION, "--data-dir", *JOBS, "--cpu", "--slurm")
TAKES = {  # what may follow each verb: a profile, and options
    MAKE: WITH_MODELS,
    "verify": WITH_MODELS,
    "check": (*SELECTION, "--data-dir", "--cores", "--cpu"),
    REPLAY: (*SELECTION, *JOBS),
    "requests": (*SELECTION, "--data-dir", "--model-name"),
    "ask": (*SELECTION, "--data-dir", "--url", "--concurrent"),
    PUBLISHED: JOBS,
    LAB: (),
    "test": (),
    "archive": (),
    "help": (),
}
VERBS = {*TAKES, "finding"} - {MAKE}
LISTS = ("--models", "--add-models", "--datasets", "--add-datasets", "--force")
OPTIONS = {  # how argparse reads them
    **dict.fromkeys(LISTS, {"nargs": "+", "default": []}),
    **dict.fromkeys(("--data-dir", "--slurm"), {"type": user_path}),
    **dict.fromkeys(("--cpu", "--dry-run"), {"action": "store_true"}),
    **dict.fromkeys(("--model-name", "--url"), {"default": ""}),
    "--cores": {"type": whole_number},
    "--concurrent": {"type": whole_number, "default": 8},
}


def parameter_files(folder: str = "") -> list[str]:
    """Return the stems of the parameter files in params/ or one of its folders."""
    return sorted(path.stem for path in (ROOT / "params" / folder).glob("*.yaml"))


def notebook_numbers() -> list[str]:
    """Return the numbers of the notebooks, as `--force` takes them: 01, ..., 04b."""
    return [path.name.split("_")[0] for path in (ROOT / "notebooks").glob("[0-9][0-9]*_*.ipynb")]


def choose(kind: str, word: str, options: list[str]) -> str:
    """Return the word if it is one of the options; else raise UserError with the nearest option."""
    if word not in options:
        raise UserError(f"unknown {kind} '{word}': {nearest(word.lower(), options)}")
    return word


class Parser(argparse.ArgumentParser):
    """argparse that raises one-line errors instead of printing them."""

    def error(self, message: str):  # type: ignore[override]
        raise UserError(message)


def parse_and_check(argv: list[str]) -> argparse.Namespace:
    """Parse the arguments, and check them against the folders of the project. Those after `--` go
    to JupyterLab or pytest."""
    words, rest = (
        (argv[: argv.index("--")], argv[argv.index("--") + 1 :])
        if "--" in argv
        else (list(argv), [])
    )
    if {"-h", "--help"} & set(words):
        words = ["help"]
    finding = ""
    if words[:1] == ["finding"]:
        finding, words = choose("finding", "".join(words[1:2]), FINDINGS), words[2:]
    verb = words.pop(0) if words and words[0] in TAKES else MAKE
    if finding and verb not in (MAKE, REPLAY):
        raise UserError(
            f"finding {finding} is followed by a profile, or by {REPLAY}, not by {verb}"
        )
    if rest and verb not in (LAB, "test"):
        raise UserError(f"only lab and test take words after --: '{rest[0]}'")
    for option in (word.split("=")[0] for word in words if word.startswith("-")):
        check_option(verb, option)
    profile = DEFAULT
    if "PROFILE" in TAKES[verb] and words and not words[0].startswith("-"):
        profile = words.pop(0)
        misspelled = VERBS if verb == MAKE else ()
        choose(
            "profile or verb" if misspelled else "profile",
            profile,
            [*parameter_files(), *misspelled],
        )
    run = str(RunName(verb if verb in (REPLAY, PUBLISHED) else MAKE, profile))
    parser = Parser(add_help=False, allow_abbrev=False)
    for option, settings in OPTIONS.items():
        parser.add_argument(option, **settings)
    args = parser.parse_args(
        words, argparse.Namespace(verb=verb, profile=profile, finding=finding, run=run)
    )
    check_values(args)
    return args


def check_option(verb: str, option: str) -> None:
    """Raise UserError for an option that the verb does not take."""
    if option == "--profile":
        raise UserError(
            "--profile has made way for --slurm: write --slurm clusters/slurm.yaml to submit the jobs"
        )
    if verb in (LAB, "test") and option not in OPTIONS:
        raise UserError(
            f"what {verb} hands on comes after --, as in ./run_all.sh {verb} -- {option}"
        )
    if option not in TAKES[verb]:
        raise UserError(f"{verb} takes no {choose('option', option, [*OPTIONS, '--help'])}")


def check_values(args: argparse.Namespace) -> None:
    """Raise UserError for a value of an option that names nothing."""
    for kind, chosen in (
        ("model", args.models + args.add_models),
        ("dataset", args.datasets + args.add_datasets),
    ):
        for word in chosen:
            choose(kind, word, parameter_files(f"{kind}s"))
    args.force = [choose("notebook", word.split("_")[0], notebook_numbers()) for word in args.force]
    if args.verb == "ask" and not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s?#]*)?", args.url):
        raise UserError(
            f"ask takes the address of a server, as --url http://localhost:8000, not '{args.url}'"
        )
    if args.slurm and args.cores:
        raise UserError("--cores does not go with --slurm: set `cpus-per-task` in its file")


def help_text() -> str:
    """Return the help in help.txt, at most 24 lines of 80 columns, with the names of the
    profiles."""
    text = Path(__file__).with_name("help.txt").read_text(encoding="utf-8").strip()
    return text.format(
        profiles=textwrap.shorten(", ".join(parameter_files()), 30, placeholder=" ...")
    )


def main(argv: list[str]) -> int:
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # for terminals that cannot print a character
    try:
        args = parse_and_check(argv)
    except UserError as error:
        print(f"run_all.sh: {error}", file=sys.stderr)
        return 2
    print(help_text() if args.verb == "help" else args.verb)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
