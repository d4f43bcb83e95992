"""The notebook that JupyterLab opens: `python -m workflow.lab WORDS...` prints its path.

`./run_all.sh lab` opens the overview. After the words of a run, as in `lab demo --models mine`, it
opens what this run has executed.
"""

import sys

from lib.errors import UserError
from lib.paths import ROOT
from workflow import cli
from workflow.run_plan import plan

OVERVIEW = "notebooks/00_overview.ipynb"
FIRST = "02_single_pass"  # of a run: its answer begins there


def first_notebook(words: list[str]) -> str:
    """Return the path of the notebook to open. Raise UserError if the run that the words name has
    executed none."""
    args = cli.parse_and_check(words)
    if words[:2] == [args.verb] or words[1:2] == ["--"]:
        return OVERVIEW
    run = plan(args)
    path = f"{run.folder}/notebooks/{FIRST}.ipynb"
    if not (ROOT / path).exists():
        raise UserError(f"there is no {path}: ./run_all.sh {run.command} makes it")
    return path


if __name__ == "__main__":
    try:
        print(first_notebook(sys.argv[1:]))
    except UserError as problem:
        print(f"run_all.sh: {problem}", file=sys.stderr)
        sys.exit(2)
