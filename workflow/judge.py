"""`./run_all.sh judge scores.csv`: the run of a table of scores, which 10_judge judges."""

import json
from argparse import Namespace
from pathlib import Path

from lib.errors import UserError
from lib.files import sha256
from lib.params import TableJudgment
from lib.paths import ROOT
from lib.score.score_files import read_score_table
from lib.tasks.question_files import find_ending
from workflow.engine.jobs_of_run import Run
from workflow.run_plan import count_cores

NOTEBOOK = "10_judge"


def plan(args: Namespace) -> Run:
    """Return the run of a table. Raise UserError for anything that is wrong with it, or if its
    folder is that of another run; no file changes."""
    source = Path(args.table)
    read_score_table(args.table)
    check_folder(args.name)
    ending = find_ending(source.name)
    if source.name.lower().endswith(".gz"):
        ending = f"{ending}.gz"
    values = TableJudgment.of({}).model_dump(mode="json") | {
        "table": f"artifacts/{args.name}/{args.name}{ending}",
        "table_sha256": sha256(source),
        "models": [],
        "datasets": [],
    }
    return Run(args.name, values, args.cores or count_cores(), words=f"judge {source.name}")


def check_folder(name: str) -> None:
    """Raise UserError if a folder of results is that of a run of models."""
    for path in (ROOT / "artifacts" / name / "notebooks").glob("*.ipynb"):
        if path.stem != NOTEBOOK:
            raise UserError(
                f"artifacts/{name}/ holds the results of a run of models: choose another by --name"
            )


def answer_lines(run: Run) -> list[str]:
    """Return what the report says first."""
    path = ROOT / run.folder / "exported" / f"{NOTEBOOK}.json"
    exported = json.loads(path.read_text(encoding="utf-8"))
    rows = exported["outputs"]["rep_answer"]["application/json"]
    return [row["text"] for row in rows]
