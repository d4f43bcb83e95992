"""`python tests/watched.py WORDS...`: what each job of a run imports and reads, beside what its key holds, as JSON.

Every notebook is played in a process of its own, forked from one that has imported nothing of the project.
"""

import json
import multiprocessing
import os
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = "pandas pyarrow.parquet yaml scipy.stats sklearn.linear_model matplotlib.figure torch transformers"


def jobs_of(words: list[str]) -> list[tuple[str, str, dict]]:
    """Name, notebook and parameters of each job of a run, upstream first."""
    from workflow import cli, run

    jobs = run.plan(cli.parse_and_check(words)).jobs
    return [(job.name, job.notebook.path, job.parameters) for job in jobs if not job.notebook.module]


def play(path: str, values: dict) -> list[str]:
    """Play the code cells of a notebook; return the files below the root that were imported or opened."""
    opened = set()
    sys.addaudithook(lambda event, given: opened.add(given[0]) if event == "open" else None)
    space = {"display": lambda *_, **__: None}
    for cell in json.loads((ROOT / path).read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), space)
        if "parameters" in cell["metadata"].get("tags", []):
            space |= values
    files = {Path(os.path.abspath(os.fsdecode(one))) for one in opened if isinstance(one, (str, bytes))}
    files |= {Path(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
    inside = {file.relative_to(ROOT) for file in files if file.is_relative_to(ROOT) and file.is_file()}
    return sorted(file.as_posix() for file in inside if "__pycache__" not in file.parts)


def keys_of(words: list[str]) -> dict[str, list[str]]:
    """The parts of each job's key, whose inputs are there now."""
    from workflow import cli, keys, run

    return {job.name: sorted(keys.key_parts(job)) for job in run.plan(cli.parse_and_check(words)).jobs}


def apart(function, *given):
    """Call a function in a forked process that ends with it."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(function, given)


def main(words: list[str]) -> None:
    for name in LIBRARIES.split():
        import_module(name)
    os.chdir(ROOT / "notebooks")
    jobs = apart(jobs_of, words)
    read = {name: apart(play, path, values) for name, path, values in jobs}
    held = apart(keys_of, words)
    print(json.dumps({name: {"read": read[name], "key": held[name]} for name in read}))


if __name__ == "__main__":
    main(sys.argv[1:])
