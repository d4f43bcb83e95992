"""Notebooks played without a kernel: in the process of a test, or in that of a script.

python tests/playing.py walk PROFILE      # every notebook of a run, in one process
python tests/playing.py watch WORDS...    # what each job of a run imports and reads, and its key
"""

import ast
import json
import multiprocessing
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
QUICK = {"resamples": 100, "draws": 2, "run": "lab-edits"}
# imported once for all jobs; of transformers what it leaves until a model is loaded, six seconds
LIBRARIES = (
    "pandas", "pyarrow.parquet", "yaml", "scipy.stats", "sklearn.linear_model",
    "matplotlib.figure", "seaborn", "IPython.display", "pydantic", "latex2mathml.converter",
    "torch", "transformers.models.llama.modeling_llama",
)  # fmt: skip


class Played(NamedTuple):
    """What a notebook leaves: its names, and what its cells showed."""

    names: dict[str, Any]
    outputs: list


def play_cells(path, values):
    """Run the code cells of a notebook in this process, with these values of parameters."""
    outputs: list = []
    names = {"display": lambda thing, **_: outputs.append(thing)}
    for cell in json.loads((ROOT / path).read_text("utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        body = ast.parse(source).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), path, "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            names |= values
        if last is not None:
            outputs.append(eval(compile(ast.Expression(last.value), path, "eval"), names))
    return Played(names, outputs)


def play(number, monkeypatch, tmp_path, **edits):
    """Play a notebook by hand, its parameters edited; frames are written below `tmp_path`."""
    from workflow.engine.fingerprint import declared_parameters
    from workflow.engine.notebook_table import NOTEBOOKS

    def frame_path(run, kind, part):
        return tmp_path / kind / f"{part}.parquet"

    monkeypatch.setattr("lib.store.frame_path", frame_path)
    monkeypatch.chdir(ROOT / "notebooks")
    (notebook,) = [row for row in NOTEBOOKS if row.number == number]
    known = {*declared_parameters(notebook.path), *notebook.undeclared}
    assert edits.keys() <= known, "parameters of this notebook"
    values = {}
    for name, value in (QUICK | edits).items():
        if name in known:
            values[name] = value
    return render(play_cells(notebook.path, values))


def render(played):
    """Draw what a notebook showed, as a page would, and return the notebook."""
    for thing in played.outputs:
        if hasattr(thing, "_repr_mimebundle_"):
            thing._repr_mimebundle_()
        elif hasattr(thing, "_repr_html_"):
            thing._repr_html_()
    return played


# ---- a run in one process


def walk(profile):
    """Play the same cells with the same parameters as `./run_all.sh`.

    There is no kernel for each, and each model is loaded once: four seconds less for each of the
    paper's sixty jobs. 08 runs in a kernel, for its outputs are what is exported.
    """
    from lib.models import loading
    from workflow.output.report import write_report

    run = plan_run([profile])
    load = loading.load_language_model
    loaded = {}

    def load_once(name, spec):
        if name not in loaded:
            loaded.clear()  # the model before
            loaded[name] = load(name, spec)
        return loaded[name]

    loading.load_language_model = load_once
    jobs = [job for job in run.jobs if not job.notebook.module]
    jobs.sort(key=lambda job: (not job.notebook.per_pair, job.model, job.dataset))
    for job in jobs:
        if job.notebook.exports:
            execute_and_export(job)
        else:
            render(play_cells(job.notebook.path, job.parameters))
        print(job.name, flush=True)
    write_report(ROOT / run.folder / "exported", ROOT / run.figures / "report.html")


def plan_run(words):
    from workflow import cli, run

    return run.plan(cli.parse_and_check(list(words)))


def execute_and_export(job):
    from papermill import execute_notebook

    from workflow.output.paper_files import export, export_for_report

    executed = ROOT / job.executed
    executed.parent.mkdir(parents=True, exist_ok=True)
    nb = execute_notebook(ROOT / job.notebook.path, executed, job.parameters, progress_bar=False)
    export(nb, ROOT / job.run.figures)
    export_for_report(nb, ROOT / job.exported)


# ---- what jobs read


def list_jobs(words):
    """Return name, notebook and parameters of each job of a run, upstream first."""
    jobs = []
    for job in plan_run(words).jobs:
        if not job.notebook.module:
            jobs.append((job.name, job.notebook.path, job.parameters))
    return jobs


def files_read(path, values):
    """Play a notebook; return the files below the root that were imported or opened."""
    opened = set()

    def note(event, arguments):
        if event == "open" and isinstance(arguments[0], str | bytes):
            opened.add(Path(os.path.abspath(os.fsdecode(arguments[0]))))

    sys.addaudithook(note)
    play_cells(path, values)
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None):
            opened.add(Path(module.__file__))
    names = []
    for file in sorted(opened):
        if file.is_relative_to(ROOT) and file.is_file() and "__pycache__" not in file.parts:
            names.append(file.relative_to(ROOT).as_posix())
    return names


def call_apart(function, *arguments):
    """Call a function in a process that ends with it, forked from this one, which imports nothing
    of the project."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(function, arguments)


def watch(*words):
    """Print what each job of a run reads, and what its key holds."""
    for name in LIBRARIES:
        import_module(name)
    read = {}
    for name, path, values in call_apart(list_jobs, words):
        read[name] = call_apart(files_read, path, values)

    from workflow.engine.job_key import key_parts

    jobs = {}
    for job in plan_run(words).jobs:
        if job.name in read:
            jobs[job.name] = {"read": read[job.name], "key": sorted(key_parts(job))}
    print(json.dumps(jobs))


if __name__ == "__main__":
    os.chdir(ROOT / "notebooks")
    {"walk": walk, "watch": watch}[sys.argv[1]](*sys.argv[2:])
