"""Notebooks played without a kernel: in the process of a test, or in that of a script.

python tests/playing.py walk PROFILE      # every notebook of a run, in one process
python tests/playing.py watch WORDS...    # what each job of a run imports and reads, beside what its key holds
"""

import ast
import functools
import json
import multiprocessing
import os
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUICK = {"resamples": 100, "draws": 2, "run": "lab-edits"}
LIBRARIES = "pandas pyarrow.parquet yaml scipy.stats sklearn.linear_model matplotlib.figure torch transformers"


def play_cells(path, values):
    """The code cells of a notebook in this process, with these values of parameters; its names, and
    what it showed."""
    shown: list = []
    space = {"display": lambda thing, **_: shown.append(thing)}
    for cell in json.loads((ROOT / path).read_text("utf-8"))["cells"]:
        source = "".join(cell["source"]) if cell["cell_type"] == "code" else ""
        body = ast.parse(source).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), path, "exec"), space)
        if "parameters" in cell["metadata"].get("tags", []):
            space |= values
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), path, "eval"), space))
    return space, shown


def play(name, monkeypatch, tmp_path, **edits):
    """A notebook by hand, its parameters edited; frames are written below `tmp_path`."""
    from workflow.engine.fingerprint import declared_parameters
    from workflow.engine.notebook_table import NOTEBOOKS

    monkeypatch.setattr(
        "lib.store.frame_path", lambda run, kind, part: tmp_path / kind / f"{part}.parquet"
    )
    monkeypatch.chdir(ROOT / "notebooks")
    (notebook,) = [row for row in NOTEBOOKS if row.number == name]
    known = {*declared_parameters(notebook.path), *notebook.undeclared}
    assert edits.keys() <= known, "parameters of this notebook"
    values = QUICK | edits
    return drawn(play_cells(notebook.path, {key: values[key] for key in values.keys() & known}))


def drawn(played):
    for thing in played[1]:
        getattr(thing, "_repr_mimebundle_", getattr(thing, "_repr_html_", str))()
    return played


# ---- a run in one process


def walk(profile):
    """The same cells with the same parameters as by `./run_all.sh`, without a kernel for each and
    with each model loaded once: four seconds less for each of the paper's sixty jobs. 08 runs in a
    kernel, for its outputs are what is exported."""
    from lib.models import loading
    from workflow.output.report import write_report

    plan = planned([profile])
    load = loading.load_language_model
    loading.load_language_model = functools.lru_cache(1)(lambda name, spec: load(name, spec))
    jobs = [job for job in plan.jobs if not job.notebook.module]
    for job in sorted(jobs, key=lambda job: (not job.notebook.per_pair, job.model, job.dataset)):
        play_to_export(job) if job.notebook.exports else drawn(
            play_cells(job.notebook.path, job.parameters)
        )
        print(job.name, flush=True)
    write_report(ROOT / plan.folder / "exported", ROOT / plan.figures / "report.html")


def planned(words):
    from workflow import cli, run

    return run.plan(cli.parse_and_check(list(words)))


def play_to_export(job):
    from papermill import execute_notebook

    from workflow.output.paper_files import export, export_for_report

    (ROOT / job.executed).parent.mkdir(parents=True, exist_ok=True)
    nb = execute_notebook(
        ROOT / job.notebook.path, ROOT / job.executed, job.parameters, progress_bar=False
    )
    export(nb, ROOT / job.run.figures)
    export_for_report(nb, ROOT / job.exported)


# ---- what jobs read


def jobs_of(words):
    """Name, notebook and parameters of each job of a run, upstream first."""
    return [
        (job.name, job.notebook.path, job.parameters)
        for job in planned(words).jobs
        if not job.notebook.module
    ]


def watched(path, values):
    """Play a notebook; return the files below the root that were imported or opened."""
    opened = set()
    sys.addaudithook(lambda event, given: opened.add(given[0]) if event == "open" else None)
    play_cells(path, values)
    files = {
        Path(os.path.abspath(os.fsdecode(one))) for one in opened if isinstance(one, (str, bytes))
    }
    files |= {
        Path(module.__file__)
        for module in list(sys.modules.values())
        if getattr(module, "__file__", None)
    }
    inside = {
        file.relative_to(ROOT) for file in files if file.is_relative_to(ROOT) and file.is_file()
    }
    return sorted(file.as_posix() for file in inside if "__pycache__" not in file.parts)


def apart(function, *given):
    """Call a function in a process that ends with it, forked from this one, which imports nothing
    of the project."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(function, given)


def watch(*words):
    for name in LIBRARIES.split():
        import_module(name)
    read = {name: apart(watched, path, values) for name, path, values in apart(jobs_of, words)}

    from workflow.engine.job_key import key_parts

    keys = {job.name: sorted(key_parts(job)) for job in planned(words).jobs if job.name in read}
    print(json.dumps({name: {"read": read[name], "key": keys[name]} for name in read}))


if __name__ == "__main__":
    os.chdir(ROOT / "notebooks")
    {"walk": walk, "watch": watch}[sys.argv[1]](*sys.argv[2:])
