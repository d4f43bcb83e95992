"""The words of the command line, checked with the standard library alone and before anything is installed.

`python3 workflow/cli.py WORDS...` prints the verb (a profile counts as one) or the help, and exits 0; a
wrong word is one line on stderr that names the nearest right one, and exit code 2. Python 3.8 is enough.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = "demo"
VERBS = ("replay", "published", "check", "verify", "finding", "book", "archive", "lab", "test", "help")
FINDINGS = ("1", "2", "3", "4")
OPTIONS = (
    "--models",
    "--add-models",
    "--datasets",
    "--add-datasets",
    "--data-dir",
    "--force",
    "--cores",
    "--cpu",
    "--profile",
    "--dry-run",
    "--help",
)
REMOVED = {
    "--only": "--models A B takes these instead of the profile's, --add-models A B these beside them",
    "--data": "it is --data-dir FOLDER now",
    "--remake": "it is --force 01 now",
    "--gpu": "./run_all.sh pilot runs a few questions through everything, on the GPU that is there",
    "--slurm": "--profile profiles/slurm submits the jobs; keys of a file of yours go into the config.yaml of a folder",
    "--kubernetes": "--profile profiles/kubernetes submits the jobs; `image` and `claim` go into its job.yaml",
}
HELP = """\
./run_all.sh [PROFILE] [OPTIONS]   makes what is missing or out of date

  demo            the default: small shipped models, on any laptop, in minutes
  PROFILE         another file of params/: {profiles}
  replay [small]  tables and figures again from shipped signals, without a model
  published       the paper's own numbers, set by the same code
  check PROFILE   can this machine do it, at what cost; pilot: paper in little
  verify [demo]   runs it, then holds each number against the shipped run's
  finding 3 [..]  what the paper's Finding 3 needs of a PROFILE, or of replay
  lab             JupyterLab on the notebooks; its own options after --
  book [PROFILE]  a run as pages to read; archive: the last commit as one file
  test            linters, types, quick tests (-- --all: all); help: this page

  --models A B    these models, not the profile's; --add-models: beside them
  --datasets A B  these datasets, not the profile's; --add-datasets: beside them
  --data-dir DIR  their published files from there (or DATA_FOLDER), not the hub
  --force 01      make the outputs of notebook 01 anew, and all that follows
  --cores N       cores to use (default: all); --cpu: large models on them, too
  --profile DIR   submits the jobs, as profiles/slurm says; --dry-run: only says
Profiles, models and datasets are files in params/, params/models/ and
params/datasets/: write one more and use its name. A run writes to
artifacts/PROFILE/ (data, executed notebooks) and figures/PROFILE/. Stop it when
you like, the same command goes on. TORCH_INDEX=URL: where PyTorch comes from."""


class WordError(ValueError):
    """A wrong word: one line that names the nearest right one."""


def names(root: Path, folder: str = "") -> list[str]:
    """Stems of the parameter files in params/ or one of its folders."""
    return sorted(path.stem for path in (root / "params" / folder).glob("*.yaml"))


def notebooks(root: Path) -> list[str]:
    """Numbers of the notebooks, as `--force` takes them: 01, ..., 04b; a letter puts one between two others."""
    return sorted(path.name.split("_")[0] for path in (root / "notebooks").glob("[0-9][0-9]*_*.ipynb"))


def number(word: str) -> str:
    """What a word of `--force` means: 1, 01 and 01_generate are 01; 4b is 04b."""
    return re.sub(r"^(?=\d(?!\d))", "0", word.split("_")[0])


def choose(kind: str, word: str, options: list[str]) -> str:
    """The word itself if it is one of the options; else WordError with the nearest option."""
    if word in options:
        return word
    close = difflib.get_close_matches(word.lower(), options, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else "there is: " + (", ".join(options) or "nothing")
    raise WordError(f"unknown {kind} '{word}': {hint}")


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, raised instead of printed."""

    def error(self, message: str):  # type: ignore[override]
        raise WordError(message)


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Words before and after `--`; what follows belongs to JupyterLab or pytest."""
    if "--" not in argv:
        return argv, []
    cut = argv.index("--")
    return argv[:cut], argv[cut + 1 :]


def parse(argv: list[str]) -> argparse.Namespace:
    """Namespace of the raw words; WordError for an unknown option or a second verb."""
    words, rest = split(argv)
    for word in words:
        option = word.split("=")[0]
        if option in REMOVED:
            raise WordError(f"there is no option '{option}' any more: {REMOVED[option]}")
        if word.startswith("-") and word != "-h":
            choose("option", option, list(OPTIONS))
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("verbs", nargs="*")
    for option in ("--models", "--add-models", "--datasets", "--add-datasets", "--force"):
        parser.add_argument(option, nargs="+", default=[])
    parser.add_argument("--cores")
    parser.add_argument("--data-dir")
    parser.add_argument("--profile", dest="cluster")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    asked = parser.parse_args(words)
    asked.rest = rest
    verbs = without_finding(asked)
    asked.book = verbs[:1] == ["book"]
    verbs = verbs[1:] if asked.book else verbs
    asked.check = verbs[:1] == ["check"]  # the one verb that a profile follows
    verbs = verbs[1:] if asked.check else verbs
    asked.replay, asked.verify = verbs[:1] == ["replay"], verbs[:1] == ["verify"]  # one may follow, too
    most = 2 if asked.replay or asked.verify else 1
    asked.surplus = verbs[most:]
    asked.verb = "help" if asked.help else (verbs or [DEFAULT])[0]
    asked.profile = verbs[1] if len(verbs) > 1 else DEFAULT if asked.verb in VERBS else asked.verb
    asked.run = f"replay-{asked.profile}" if asked.replay and asked.profile != DEFAULT else asked.verb
    if asked.verify:
        asked.run = asked.profile
    return asked


def without_finding(asked: argparse.Namespace) -> list[str]:
    """The words after `finding N`, and N; all of them, and nothing, where no finding is asked for."""
    asked.finding = ""
    if asked.verbs[:1] != ["finding"]:
        return asked.verbs
    if len(asked.verbs) < 2 or asked.verbs[1] not in FINDINGS:
        said = f"not '{asked.verbs[1]}'" if len(asked.verbs) > 1 else "as ./run_all.sh finding 3"
        raise WordError(f"finding takes the number of one, {', '.join(FINDINGS)}, {said}")
    asked.finding = asked.verbs[1]
    return asked.verbs[2:]


def check(argv: list[str], root: Path = ROOT) -> argparse.Namespace:
    """Verb, models, datasets, data_dir, force, cores, rest, checked against the folders of the project."""
    asked = parse(argv)
    profiles = names(root)
    choose("profile or verb", asked.verb, profiles + [verb for verb in VERBS if verb not in profiles])
    if asked.surplus:  # after the first word, which may be the one that is misspelt
        raise WordError(f"one profile or verb at a time: '{asked.surplus[0]}' is one too many")
    choose("profile", asked.profile, profiles or [asked.profile])
    for word in asked.verbs:
        if word in profiles and (word in VERBS or word.startswith("replay-")):
            raise WordError(f"params/{word}.yaml bears a name that is kept for a verb: rename it")
    for kind, chosen in (("model", asked.models + asked.add_models), ("dataset", asked.datasets + asked.add_datasets)):
        for word in chosen:
            there = names(root, kind + "s")  # a profile of the same name is no reason to refuse it
            if word not in there and (word in profiles or word in VERBS):
                raise WordError(f"'{word}' is no {kind}: the profile or verb comes before the options")
            choose(kind, word, there)
    asked.force = [choose("notebook", number(word), notebooks(root)) for word in asked.force]
    if asked.cores is not None:
        asked.cores = whole_number(asked.cores)
    if asked.data_dir is not None:
        asked.data_dir = data_folder(asked.data_dir)
    if asked.cluster is not None:
        asked.cluster = profile_folder(asked.cluster, root)
    combine(asked)
    return asked


def data_folder(word: str) -> str:
    """The folder that --data-dir names, seen from where the user is (run_all.sh says so, and goes elsewhere)."""
    place = Path(os.environ.get("CALLED_FROM", ""), os.path.expanduser(word)).resolve()
    if not place.is_dir():
        raise WordError(f"--data-dir needs the folder of the published files, and there is no folder '{word}'")
    return str(place)


def profile_folder(word: str, root: Path) -> str:
    """The profile of Snakemake that --profile names, seen from where the user is, or from the project's folder."""
    for folder in (os.environ.get("CALLED_FROM", ""), root):
        place = Path(folder, os.path.expanduser(word)).resolve()
        if (place / "config.yaml").is_file():
            return str(place)
    there = [f"profiles/{path.parent.name}" for path in sorted(root.glob("profiles/*/config.yaml"))]
    choose("folder of --profile", word, there)
    return word


def whole_number(word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word) > 0):
        raise WordError(f"--cores takes a whole number from 1 up, not '{word}'")
    return int(word)


def combine(asked: argparse.Namespace) -> None:
    """WordError for a verb with options that it does not take."""
    if asked.check and (asked.verb in VERBS or asked.force):
        what = "--force" if asked.force else f"'{asked.verb}'"
        raise WordError(f"check takes a profile, --models and --datasets, not {what}")
    if asked.verb == "published" and (asked.models or asked.add_models or asked.datasets or asked.add_datasets):
        raise WordError("published shows the paper's own models and datasets: it takes no --models, --datasets")
    if asked.verb in ("replay", "published") and asked.data_dir:
        raise WordError(f"{asked.verb} asks no questions: it takes no --data-dir")
    if asked.verb in ("replay", "published") and asked.cpu:
        raise WordError(f"{asked.verb} runs no model: it takes no --cpu")
    if asked.finding and (asked.check or asked.verb in set(VERBS) - {"replay"}):
        what = "check" if asked.check else asked.verb
        raise WordError(f"finding {asked.finding} is followed by a profile, or by replay, not by {what}")
    if asked.finding and asked.book:
        raise WordError(f"finding {asked.finding} is followed by a profile, or by replay, not by book")
    if asked.book and (asked.check or asked.verb in set(VERBS) - {"replay", "published"}):
        what = "check" if asked.check else asked.verb
        raise WordError(f"book is followed by a profile, by replay or by published, not by {what}")
    combine_cluster(asked)
    names_ = ("models", "add_models", "datasets", "add_datasets", "data_dir", "force", "cores", "cpu")
    options = {name: name.replace("_", "-") for name in names_}
    options["cluster"] = "profile"
    used = [option for name, option in options.items() if getattr(asked, name)]
    if asked.verb in ("lab", "test", "archive") and used:
        own = "" if asked.verb == "archive" else "; its own options come after --"
        raise WordError(f"{asked.verb} takes no --{used[0]}{own}")
    if asked.rest and asked.verb not in ("lab", "test"):
        raise WordError(f"only lab and test take words after --, not {asked.verb}: '{asked.rest[0]}'")


def combine_cluster(asked: argparse.Namespace) -> None:
    """The same for the words of clusters."""
    if asked.dry_run and not asked.cluster:
        raise WordError("--dry-run says what would be submitted: with --profile FOLDER, as profiles/slurm")
    if asked.cluster and (asked.verb in ("replay", "published") or asked.check):
        raise WordError(f"{'check' if asked.check else asked.verb} submits no jobs: it takes no --profile")
    if asked.cluster and asked.cores:
        raise WordError(
            "--profile leaves cores to its config.yaml (`set-threads`, `cpus_per_task`): no --cores with it"
        )


def shown(text: str, most: int = 280) -> str:
    """A text as a terminal may show it: what does not print is spelt out, and of a long one the middle is left out."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: 10 * most])
    return text if len(text) <= most else f"{text[: most - 105]} ... {text[-100:]}"


def help_text(root: Path = ROOT) -> str:
    """The help, at most 24 lines of 80 columns."""
    profiles = textwrap.shorten(", ".join(names(root)), 30, placeholder=" ...")
    return HELP.format(profiles=profiles)


def packages(root: Path) -> set[str]:
    """What the locked packages are imported as; nearly all by their own names."""
    lock = root / "requirements.lock"
    text = lock.read_text(encoding="utf-8") if lock.is_file() else ""
    found = re.findall(r"^([\w.-]+)==", text, flags=re.M)
    return {"sklearn", "torch", "yaml", *(name.replace("-", "_") for name in found)}


def intruder(root: Path) -> str | None:
    """A file that every Python started for the project would take for one of its own: a start-up file, or a module
    named like one of the standard library's or of a package's, where imports look first."""
    own = {"sitecustomize", "usercustomize", *getattr(sys, "stdlib_module_names", ("json", "random", "types"))}
    for folder in (root, root / "notebooks", root / "workflow"):
        known = own if folder.name == "workflow" else own | packages(root)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            package = path.is_dir() and any(path.glob("__init__.*"))
            module = path.suffix in (".py", ".pyc", ".so") and not path.is_dir()
            if (package or module) and path.name.split(".")[0] in known:
                return str(path.relative_to(root))
    return None


def main(argv: list[str]) -> int:
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # of a terminal without a letter
    try:
        verb = check(argv).verb
        if found := intruder(ROOT):
            raise WordError(f"'{found}' would be run by every Python that works here: rename it, or move it away")
    except WordError as error:
        print(f"run_all.sh: {shown(str(error))}", file=sys.stderr)
        return 2
    print(help_text() if verb == "help" else verb)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
