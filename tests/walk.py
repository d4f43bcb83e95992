"""`python tests/walk.py PROFILE`: every notebook of a run in one process, for tests of paths rather than of plumbing.

The same cells with the same parameters as by `./run_all.sh`, without a kernel for each and with each model loaded once:
four seconds less for each of the paper's sixty jobs. 08 runs in a kernel, for its outputs are what is exported.
"""

import functools
import os
import sys

from papermill import execute_notebook
from playing import play_cells

from lib.generate import models
from lib.paths import ROOT
from workflow import cli, run
from workflow.export import export, export_for_report
from workflow.report import write_report


def walk(profile: str) -> None:
    plan = run.plan(cli.parse_and_check([profile]))
    load = models.load_language_model
    models.load_language_model = functools.lru_cache(1)(lambda name, spec: load(name, spec))
    os.chdir(ROOT / "notebooks")
    jobs = [job for job in plan.jobs if not job.notebook.module]
    for job in sorted(jobs, key=lambda job: (not job.notebook.per_pair, job.model, job.dataset)):
        play_to_export(job) if job.notebook.exports else play_cells(job.notebook, job.parameters)
        print(job.name, flush=True)
    write_report(ROOT / plan.folder / "exported", ROOT / plan.figures / "report.html")


def play_to_export(job) -> None:
    source, to = ROOT / job.notebook.path, ROOT / job.executed
    to.parent.mkdir(parents=True, exist_ok=True)
    nb = execute_notebook(source, to, job.parameters, kernel_name="python3", progress_bar=False, cwd=source.parent)
    export(nb, ROOT / job.run.figures)
    export_for_report(nb, ROOT / job.exported)


if __name__ == "__main__":
    walk(sys.argv[1])
