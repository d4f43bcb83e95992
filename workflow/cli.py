"""The command-line arguments, checked with the standard library before anything is installed.

`python3 workflow/cli.py WORDS...` prints the verb (`make` for a profile) or the help. A wrong argument is a one-line
error with a suggestion, exit code 2. It runs on Python 3.8.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import textwrap
from pathlib import Path


class WordError(Exception):
    """A wrong argument, as a one-line error with a suggestion."""


def data_folder(word: str) -> str:
    """Return the folder of --data-dir, relative to the user's directory, which run_all.sh passes on."""
    place = Path(os.environ.get("CALLED_FROM", ""), os.path.expanduser(word)).resolve()
    if not place.is_dir():
        raise WordError(f"--data-dir needs the folder of the published files, and there is no folder '{word}'")
    return str(place)


def whole_number(word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word) > 0):
        raise WordError(f"--cores takes a whole number from 1 up, not '{word}'")
    return int(word)


ROOT = Path(__file__).resolve().parent.parent
DEFAULT, MAKE = "demo", "make"  # profile and verb if none is given
VERBS = ("replay", "published", "check", "verify", "finding", "archive", "lab", "test", "help")
FINDINGS = ("1", "2", "3", "4")
SELECTION = ("--models", "--add-models", "--datasets", "--add-datasets")
OPTIONS = {  # how argparse reads them
    **dict.fromkeys((*SELECTION, "--force"), {"nargs": "+"}),
    "--data-dir": {"type": data_folder},
    "--cores": {"type": whole_number},
    **dict.fromkeys(("--cpu", "--dry-run"), {"action": "store_true"}),
    "--profile": {"dest": "cluster"},
}
TAKES = {  # the arguments of each verb
    MAKE: ("profile", *OPTIONS),
    "verify": ("profile", *OPTIONS),
    "check": ("profile", *SELECTION, "--data-dir", "--cores", "--cpu"),
    "replay": ("profile", *SELECTION, "--force", "--cores", "--dry-run"),
    "published": ("--force", "--cores", "--dry-run"),
    **dict.fromkeys(("lab", "test", "archive", "help"), ()),
}
HELP = """\
./run_all.sh [PROFILE] [OPTIONS]   run whatever is missing or out of date

  demo            the default: small shipped models, on any laptop, in minutes
  PROFILE         another file of params/: {profiles}
  replay [small]  rebuild tables and figures from shipped signals, no model runs
  published       build the tables from the paper's own numbers, no model runs
  check PROFILE   check disk, memory and access; pilot: a small paper run
  verify [demo]   run, then compare every number with the shipped run
  finding 3 [..]  run what the paper's Finding 3 needs, with a PROFILE or replay
  lab             JupyterLab on the notebooks; its own options after --
  archive         the last commit as one file; help: this page
  test            linters, types, quick tests (-- --all: all)

  --models A B    replace the profile's models; --add-models: add to them
  --datasets A B  replace the profile's datasets; --add-datasets: add to them
  --data-dir DIR  read the original dataset files from DIR (or DATA_FOLDER)
  --force 01      rerun notebook 01 and everything downstream
  --cores N       cores to use (default: all); --cpu: run large models on CPU
  --profile DIR   submit the jobs, see profiles/slurm
  --dry-run       list the jobs that are out of date, and run none
Profiles, models and datasets are files in params/, params/models/ and
params/datasets/: add a file and use its name. A run writes to
artifacts/PROFILE/ (data, executed notebooks) and figures/PROFILE/. Rerun the
command to resume a stopped run. TORCH_INDEX=URL: where to get PyTorch."""


def parameter_files(root: Path, folder: str = "") -> list[str]:
    """Return the stems of the parameter files in params/ or one of its folders."""
    return sorted(path.stem for path in (root / "params" / folder).glob("*.yaml"))


def notebook_numbers(root: Path) -> list[str]:
    """Return the numbers of the notebooks, as `--force` takes them: 01, ..., 04b."""
    return sorted(path.name.split("_")[0] for path in (root / "notebooks").glob("[0-9][0-9]*_*.ipynb"))


def notebook_number(word: str) -> str:
    """Return the notebook number for a value of `--force`: 1, 01 and 01_generate are 01; 4b is 04b."""
    return re.sub(r"^(?=\d(?!\d))", "0", word.split("_")[0])


def choose(kind: str, word: str, options: list[str]) -> str:
    """Return the word if it is one of the options; else raise WordError with the nearest option."""
    if word in options:
        return word
    close = difflib.get_close_matches(word.lower(), options, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else "there is: " + (", ".join(options) or "nothing")
    raise WordError(f"unknown {kind} '{word}': {hint}")


class Parser(argparse.ArgumentParser):
    """argparse that raises one-line errors instead of printing them."""

    def error(self, message: str):  # type: ignore[override]
        raise WordError(message)


def build_parser() -> Parser:
    """Return a parser with a subparser for each verb."""
    parser = Parser(add_help=False)
    verbs = parser.add_subparsers(dest="verb")
    for verb, taken in TAKES.items():
        one = verbs.add_parser(verb, add_help=False, allow_abbrev=False)
        one.set_defaults(profile=DEFAULT, models=[], add_models=[], datasets=[], add_datasets=[], force=[])
        one.set_defaults(data_dir=None, cores=None, cluster=None, cpu=False, dry_run=False)
        for word in taken:
            one.add_argument(word, **OPTIONS.get(word, {"nargs": "?"}))  # the profile may be left out
    return parser


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the arguments; those after `--` go to JupyterLab or pytest. Raise WordError for an unknown option."""
    cut = argv.index("--") if "--" in argv else len(argv)
    words, rest = argv[:cut], argv[cut + 1 :]
    if {"-h", "--help"} & set(words):
        words = ["help"]
    finding, words = take_finding(words)
    verb = words.pop(0) if words and words[0] in VERBS else MAKE
    if finding and verb not in (MAKE, "replay"):
        raise WordError(f"finding {finding} is followed by a profile, or by replay, not by {verb}")
    args, args.surplus = build_parser().parse_known_args([verb, *words])
    for option in (word.split("=")[0] for word in args.surplus if word.startswith("-")):
        raise WordError(f"{verb} takes no {choose('option', option, [*OPTIONS, '--help'])}")
    args.finding, args.rest, args.run = finding, rest, args.profile
    if verb in ("replay", "published"):
        args.run = verb if args.profile == DEFAULT else f"{verb}-{args.profile}"
    return args


def take_finding(words: list[str]) -> tuple[str, list[str]]:
    """Return N of a leading `finding N` and the other arguments; '' and all arguments if there is none."""
    if words[:1] != ["finding"]:
        return "", words
    if len(words) < 2 or words[1] not in FINDINGS:
        said = f"not '{words[1]}'" if len(words) > 1 else "as ./run_all.sh finding 3"
        raise WordError(f"finding takes the number of one, {', '.join(FINDINGS)}, {said}")
    return words[1], words[2:]


def check(argv: list[str], root: Path = ROOT) -> argparse.Namespace:
    """Parse the arguments and check them against the folders of the project."""
    args, profiles = parse(argv), parameter_files(root)
    for word in (args.verb, args.profile):
        if word in profiles and (word in VERBS or word.startswith("replay-")):
            raise WordError(f"params/{word}.yaml has the name of a verb: rename it")
    if args.verb == MAKE:
        choose("profile or verb", args.profile, [*profiles, *VERBS])
    elif "profile" in TAKES[args.verb]:
        choose("profile", args.profile, profiles)
    if args.surplus:  # checked after the first word, which may be a misspelled verb
        raise WordError(f"one profile or verb at a time: '{args.surplus[0]}' is one too many")
    if args.rest and args.verb not in ("lab", "test"):
        verb = args.profile if args.verb == MAKE else args.verb
        raise WordError(f"only lab and test take words after --, not {verb}: '{args.rest[0]}'")
    for kind, chosen in (("model", args.models + args.add_models), ("dataset", args.datasets + args.add_datasets)):
        for word in chosen:
            there = parameter_files(root, kind + "s")  # a profile may have the same name
            if word not in there and (word in profiles or word in VERBS):
                raise WordError(f"'{word}' is not a {kind}: the profile or verb comes before the options")
            choose(kind, word, there)
    args.force = [choose("notebook", notebook_number(word), notebook_numbers(root)) for word in args.force]
    if args.cluster is not None:
        args.cluster = profile_folder(args.cluster, root)
    if args.cluster and args.cores:
        raise WordError("--cores does not go with --profile: set `set-threads` and `cpus_per_task` in its config.yaml")
    return args


def profile_folder(word: str, root: Path) -> str:
    """Return the Snakemake profile of --profile, relative to the user's directory or the project."""
    for folder in (os.environ.get("CALLED_FROM", ""), root):
        place = Path(folder, os.path.expanduser(word)).resolve()
        if (place / "config.yaml").is_file():
            return str(place)
    there = [f"profiles/{path.parent.name}" for path in sorted(root.glob("profiles/*/config.yaml"))]
    choose("folder of --profile", word, there)
    return word


def printable(text: str, most: int = 280) -> str:
    """Return a text for the terminal: unprintable characters escaped, the middle of a long text left out."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: 10 * most])
    return text if len(text) <= most else f"{text[: most - 105]} ... {text[-100:]}"


def help_text(root: Path = ROOT) -> str:
    """Return the help, at most 24 lines of 80 columns."""
    return HELP.format(profiles=textwrap.shorten(", ".join(parameter_files(root)), 30, placeholder=" ..."))


def main(argv: list[str]) -> int:
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # for terminals that cannot print a character
    try:
        args = check(argv)
    except WordError as error:
        print(f"run_all.sh: {printable(str(error))}", file=sys.stderr)
        return 2
    print(help_text() if args.verb == "help" else args.verb)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
