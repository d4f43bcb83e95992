"""Judge a finished run: the verdicts on the claims of one finding, or whether it reproduces the
shipped run.

`./run_all.sh finding 3` prints the claims of a finding, with what decides them.

`./run_all.sh verify [PROFILE]` computes every number of the tables from the run's signals and from
the shipped ones (`lib.analysis.comparison_of_runs`). Verification fails if only one side has a row:
the questions differ. It also fails if the saved results of 05 to 07 differ from those of the run's
own signals. Interval limits are used as saved. The run that precedes it has made again what was
damaged or edited.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lib.analysis.comparison_of_runs import (
    TOLERANCE,
    MatchedRuns,
    compare_numbers,
    match_rows,
    recompute_frames,
)
from lib.analysis.results import Results
from lib.analysis.run_results import results_of_run
from lib.analysis.signals import Signals, load_signals
from lib.paper.comparison_with_paper import printed_numbers
from lib.paper.numbers_of_paper import published
from lib.paper.verdicts import CLAIMS, FINDINGS, count_kinds, judge_all
from lib.params import EvaluationChoices
from lib.paths import ROOT
from lib.run_names import REPLAY, RunName
from workflow.engine.jobs_of_run import Run
from workflow.engine.notebook_table import needed
from workflow.engine.progress import say
from workflow.findings import NEEDS

MAX_ROWS = 6  # deciding rows that are printed per claim
LEAST_MATCHED = 0.97  # minimum share of identical responses
LISTED_NUMBERS = 20  # at most
OWN_TOLERANCE = 1e-4  # of a saved number, on the machine that saved it


def results_of(run: Run, signals: Signals, **only: Any) -> Results:
    """Return the results that 08 builds from a run's signals and the saved results of 05 to 07 and
    09, or some `kinds` of those."""
    names = (
        "models",
        "datasets",
        "n_bins_ablation",
        "bin_models",
        "transfer_models",
        "transfer_datasets",
        "title",
        "resamples",
        "seed",
    )
    values: dict[str, Any] = {name: run.values[name] for name in names}
    return results_of_run(run.name, signals, **only, **values)


def load_signals_of(run: Run, name: str, **only: Any) -> Signals:
    """Load the signals of the run with this name under the choices of `run`, or some `kinds` of
    them."""
    values = run.values
    choices = EvaluationChoices.of(values)
    return load_signals(name, values["models"], values["datasets"], choices, **only)


# ---- one finding


def frame_kinds(number: str) -> set[str]:
    """Return the kinds of frames (`lib.stored_columns`) that the notebooks of a finding write."""
    kinds = set()
    for row in needed(NEEDS[number]):
        for path in row.writes:
            folder = path.split("/")[0]
            kinds.add(folder if "{" in path else path.removesuffix(".parquet"))
    return kinds


def summary_lines(run: Run, number: str) -> Iterator[str]:
    """Yield the lines to print: each claim with its verdicts on the paper and on this run, and the
    rows that decide."""
    group = f"Finding {number}"
    kinds = frame_kinds(number)
    claims = [claim for claim in CLAIMS if claim.group == group]
    signals = load_signals_of(run, run.name, kinds=kinds)
    here = judge_all(results_of(run, signals, kinds=kinds), claims)
    paper = judge_all(published(), claims)
    yield f"{group}: {FINDINGS[group]}"
    for place, claim in enumerate(claims, 1):
        verdict = here[claim.name]
        yield f"{place}. {claim.quote} ({claim.place})"
        yield f"   counted  {claim.counted} ({claim.quantifier})"
        yield f"   paper  {paper[claim.name].in_words('no number printed')}"
        yield f"   here   {verdict.in_words('not made by this run')}"
        if len(verdict.rows):
            table = verdict.rows.round(3).to_string(index=False, na_rep="", max_rows=MAX_ROWS)
            yield from textwrap.indent(table, " " * 10).splitlines()
    for side, verdicts in (("the paper's numbers", paper), ("this run", here)):
        counts = count_kinds(verdict.kind for verdict in verdicts.values())
        yield f"{group} on {side}: of {len(claims)} claims {counts}"
    yield f"see: {'  '.join(notebooks_of_finding(run, number))}"


def notebooks_of_finding(run: Run, number: str) -> list[str]:
    """Return the finding's executed notebooks, or the stored ones that a replay did not execute."""
    paths = []
    for name in NEEDS[number]:
        executed = f"{run.folder}/notebooks/{name}*.ipynb"
        paths.append(executed if any(ROOT.glob(executed)) else f"notebooks/{name}.ipynb")
    return paths


# ---- the whole run


def verify(run: Run) -> int:
    """Print how a finished run differs from the shipped one. Return 0 if only by rounding, else
    1."""
    bins = run.values["n_bins_ablation"]
    shipped = str(RunName(REPLAY, run.profile or run.name))
    ours = load_signals_of(run, run.name)
    theirs = load_signals_of(run, shipped)  # finds only shipped signals
    here = results_of(run, ours)
    matched = match_rows(ours, theirs)
    table = compare_runs(here, matched, bins)
    file = f"{run.figures}/verify.csv"
    table.to_csv(ROOT / file, index=False, float_format="%.9g")
    anew = recompute_frames(ours, bins, run.values["all_transfers"])
    made = replace(here, frames={**here.frames, **anew})
    wrong = list_differing_results(here, made)
    for line in [*matched.left_out, *list_differing_numbers(table, file), *wrong]:
        say(line)
    is_same, line = assess_reproduction(table, matched, wrong)
    say(f"verify {run.name}: {line}")
    return 0 if is_same else 1


def compare_runs(here: Results, matched: MatchedRuns, bins: Sequence[int]) -> pd.DataFrame:
    """Call `compare_numbers` with both sides' numbers on their shared rows; `here` provides the
    labels."""
    numbers = []
    for side in (matched.ours, matched.theirs):
        frames = {**here.frames, **recompute_frames(side, bins)}
        numbers.append(printed_numbers(replace(here, frames=frames)))
    ours, theirs = numbers
    return compare_numbers(ours, theirs)


def list_differing_results(here: Results, made: Results) -> list[str]:
    """Return one line per table whose saved results differ from those computed from the signals."""
    saved = printed_numbers(here).set_index(["table", "key"]).value
    anew = printed_numbers(made).set_index(["table", "key"]).value
    difference = (saved - anew).abs()
    wrong = difference[~(difference <= OWN_TOLERANCE)].groupby("table", sort=False).size()
    lines = []
    for table, count in wrong.items():
        lines.append(f"{table}: {count} saved numbers are NOT what the run's signals give")
    return lines


def list_differing_numbers(table: pd.DataFrame, file: str) -> list[str]:
    """Return a line for each number that differs by more than TOLERANCE, those after isotonic
    regression last."""
    differing = table[~(table.difference <= TOLERANCE)]
    differing = differing.sort_values(["within", "difference"], ascending=[True, False])
    lines = []
    for row in differing.head(LISTED_NUMBERS).itertuples():
        why = "after isotonic regression" if row.within else f"MORE than {TOLERANCE} apart"
        lines.append(
            f"{row.table} {row.key}: {row.here:.4f} here, {row.shipped:.4f} shipped, {why}"
        )
    return [*lines, f"every number: {file}"]


def assess_reproduction(
    table: pd.DataFrame, matched: MatchedRuns, wrong: Sequence[str] = ()
) -> tuple[bool, str]:
    """Return whether the run reproduces the shipped one, with one line of explanation.

    `wrong`: tables of the run that its signals do not reproduce.
    """
    same = matched.outcomes["same"]
    diverged = matched.outcomes["diverged"]
    here = matched.outcomes["only here"]
    shipped = matched.outcomes["only shipped"]
    shared = same + diverged
    beyond = (~table.within).sum()
    problem = ""
    if diverged > (1 - LEAST_MATCHED) * shared:
        problem = f"{diverged} of {shared} responses diverged"
    elif here or shipped:
        problem = f"{here} responses are only here, {shipped} only shipped"
    elif wrong:
        problem = f"{len(wrong)} of the run's tables are not what its signals give"
    elif beyond:
        problem = f"{beyond} of {len(table)} numbers differ by more than {TOLERANCE}"
    if problem:
        return False, f"NOT the same: {problem}"
    jumped = (table.difference > TOLERANCE).sum()
    exception = f", but for {jumped} after isotonic regression" if jumped else ""
    numbers = f"{len(table)} numbers within {TOLERANCE}{exception}"
    return True, f"the same: {numbers}; {same} of {shared} responses alike"
