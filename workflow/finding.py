"""`./run_all.sh finding 3`: the notebooks that one finding of the paper needs, and the verdicts on its claims."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

from lib.files import read_yaml
from lib.params import EvaluationChoices
from lib.paths import ROOT
from workflow.pipeline import Run
from workflow.rules import needed

TABLE = read_yaml(Path(__file__).with_name("findings.yaml"))
NEEDS = {name.removeprefix("Finding "): finding["notebooks"] for name, finding in TABLE.items()}
MAX_ROWS = 6  # deciding rows that are printed per claim


def frame_kinds(number: str) -> set[str]:
    """Return the kinds of frames (`lib.stored_columns`) that the notebooks of a finding write."""
    paths = [path.removesuffix(".parquet") for row in needed(NEEDS[number]) for path in row.writes]
    return {path.split("/")[0] if "{" in path else path for path in paths}


def summary_lines(run: Run, number: str) -> Iterator[str]:
    """Yield the lines to print: each claim with its verdicts on the paper and on this run, and the rows that decide."""
    from lib.analysis.run_results import load_signals, results_of_run  # slow to import, and not used by other verbs
    from lib.paper.numbers_of_paper import published
    from lib.paper.verdicts import CLAIMS, FINDINGS, judge_all

    group, values = f"Finding {number}", run.values
    some = [claim for claim in CLAIMS if claim.group == group]
    shown = {name: values[name] for name in ("transfer_models", "transfer_datasets")}
    pairs, kinds = (values["models"], values["datasets"]), frame_kinds(number)
    signals = load_signals(run.name, *pairs, EvaluationChoices.of(values), kinds)
    results = results_of_run(run.name, signals, *pairs, kinds=kinds, **shown)
    here, paper = judge_all(results, some), judge_all(published(), some)
    yield f"{group}: {FINDINGS[group]}"
    for place, claim in enumerate(some, 1):
        yield f"{place}. {claim.quote} ({claim.place})"
        yield f"   counted  {claim.counted} ({claim.quantifier})"
        yield f"   paper  {paper[claim.name].in_words('no number printed')}"
        yield f"   here   {here[claim.name].in_words('cannot be judged from this run')}"
        if len(rows := here[claim.name].rows):
            decisive = rows.round(3).replace({"agrees": {True: "yes", False: "no"}})
            table = decisive.to_string(index=False, na_rep="", max_rows=MAX_ROWS)
            yield from textwrap.indent(table, " " * 10).splitlines()
    for side, verdicts in (("the paper's numbers", paper), ("this run", here)):
        judged = [verdict.held for verdict in verdicts.values() if verdict.held is not None]
        yield f"{group} on {side}: of {len(some)} claims {len(judged)} can be judged, {sum(judged)} of them hold"
    yield f"see: {'  '.join(notebooks_of_finding(run, number))}"


def notebooks_of_finding(run: Run, number: str) -> list[str]:
    """Return the finding's executed notebooks, or the stored ones that a replay did not execute."""
    executed = {name: f"{run.folder}/notebooks/{name}*.ipynb" for name in NEEDS[number]}
    return [path if any(ROOT.glob(path)) else f"notebooks/{name}.ipynb" for name, path in executed.items()]
