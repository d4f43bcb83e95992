"""`python tests/walk.py PROFILE`: every notebook of a run in one process, for tests of paths rather than of plumbing.

The same cells with the same parameters as by `./run_all.sh`, without a kernel for each and with each model loaded once:
four seconds less for each of the paper's sixty jobs. 08 runs in a kernel, for its outputs are what is exported.
"""

import functools
import os
import sys

from papermill import execute_notebook

from lib.generate import models
from lib.paths import ROOT
from workflow import cli, run
from workflow.export import export
from workflow.fingerprint import cells
from workflow.render import renew_report


def walk(profile: str) -> None:
    plan = run.plan(cli.check([profile]))
    load = models.load_language_model
    models.load_language_model = functools.lru_cache(1)(lambda name, spec: load(name, spec))
    os.chdir(ROOT / "notebooks")
    heavy = [job for job in plan.jobs if job.notebook.heavy]
    for job in sorted(heavy, key=lambda job: (job.model, job.dataset, job.notebook.number)):
        play(job)
    for job in plan.jobs:
        if job.notebook.exports:
            (ROOT / job.executed).parent.mkdir(parents=True, exist_ok=True)
            execute_notebook(
                ROOT / job.notebook.path,
                ROOT / job.executed,
                parameters=job.parameters,
                cwd=ROOT / "notebooks",
                kernel_name="python3",
                progress_bar=False,
            )
            export(ROOT / job.executed, ROOT / job.run.figures)
        elif not job.notebook.heavy:
            play(job)
    renew_report(plan)


def play(job) -> None:
    """The code cells of a job, one after the other; what they would show is drawn and thrown away."""
    space = {"display": lambda thing, **_: getattr(thing, "_repr_mimebundle_", dict)()}
    for cell in cells(job.notebook.path):
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            exec(compile(source, job.name, "exec"), space)
            if "parameters" in cell["metadata"].get("tags", []):
                space |= job.parameters
    print(job.name, flush=True)


if __name__ == "__main__":
    walk(sys.argv[1])
