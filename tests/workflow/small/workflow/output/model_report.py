"""In the project's place: its report of a model reads frames that the small project lacks."""

from pathlib import Path

from lib.paths import ROOT
from workflow.engine.jobs_of_run import Run
from workflow.output.report import write_report


def write_model_report(run: Run, path: Path) -> None:
    write_report(ROOT / run.folder / "exported", path)
