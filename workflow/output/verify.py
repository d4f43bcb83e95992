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
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pandas as pd

from lib.analysis.comparison_of_runs import (
    OUTCOMES,
    TOLERANCE,
    MatchedRuns,
    compare_numbers,
    match_rows,
    recompute_frames,
)
from lib.analysis.result_tables import Results
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


def results_of(run: Run, signals: Signals, **only: Collection[str]) -> Results:
    """Return the results that 08 builds from a run's signals and the saved results of 05 to 07 and
    09, or some `kinds` of those."""
    names = ("models", "datasets", "n_bins_ablation", "bin_models", "transfer_models", "transfer_datasets", "title",
             "resamples", "seed")  # fmt: skip
    return results_of_run(run.name, signals, **only, **{name: run.values[name] for name in names})


# ---- one finding


def frame_kinds(number: str) -> set[str]:
    """Return the kinds of frames (`lib.stored_columns`) that the notebooks of a finding write."""
    paths = [path.removesuffix(".parquet") for row in needed(NEEDS[number]) for path in row.writes]
    return {path.split("/")[0] if "{" in path else path for path in paths}


def summary_lines(run: Run, number: str) -> Iterator[str]:
    """Yield the lines to print: each claim with its verdicts on the paper and on this run, and the
    rows that decide."""
    group, values, kinds = f"Finding {number}", run.values, frame_kinds(number)
    some = [claim for claim in CLAIMS if claim.group == group]
    signals = load_signals(
        run.name, values["models"], values["datasets"], EvaluationChoices.of(values), kinds
    )
    results = results_of(run, signals, kinds=kinds)
    here, paper = judge_all(results, some), judge_all(published(), some)
    yield f"{group}: {FINDINGS[group]}"
    for place, claim in enumerate(some, 1):
        yield f"{place}. {claim.quote} ({claim.place})"
        yield f"   counted  {claim.counted} ({claim.quantifier})"
        yield f"   paper  {paper[claim.name].in_words('no number printed')}"
        yield f"   here   {here[claim.name].in_words('not made by this run')}"
        if len(rows := here[claim.name].rows):
            table = rows.round(3).to_string(index=False, na_rep="", max_rows=MAX_ROWS)
            yield from textwrap.indent(table, " " * 10).splitlines()
    for side, verdicts in (("the paper's numbers", paper), ("this run", here)):
        yield f"{group} on {side}: of {len(some)} claims {count_kinds(verdict.kind for verdict in verdicts.values())}"
    yield f"see: {'  '.join(notebooks_of_finding(run, number))}"


def notebooks_of_finding(run: Run, number: str) -> list[str]:
    """Return the finding's executed notebooks, or the stored ones that a replay did not execute."""
    executed = {name: f"{run.folder}/notebooks/{name}*.ipynb" for name in NEEDS[number]}
    return [
        path if any(ROOT.glob(path)) else f"notebooks/{name}.ipynb"
        for name, path in executed.items()
    ]


# ---- the whole run


def verify(run: Run) -> int:
    """Print how a finished run differs from the shipped one. Return 0 if only by rounding, else
    1."""
    values, bins = run.values, run.values["n_bins_ablation"]
    ours, theirs = (
        load_signals(name, values["models"], values["datasets"], EvaluationChoices.of(values))
        # a replay finds only shipped signals
        for name in (run.name, str(RunName(REPLAY, run.name)))
    )
    here, matched = results_of(run, ours), match_rows(ours, theirs)
    table = compare_runs(here, matched, bins)
    file = f"{run.figures}/verify.csv"
    table.to_csv(ROOT / file, index=False, float_format="%.9g")
    made = replace(here, frames={**here.frames, **recompute_frames(ours, bins)})
    wrong = list_differing_results(here, made)
    for line in [*matched.left_out, *list_differing_numbers(table, file), *wrong]:
        say(line)
    held, line = judge_reproduction(table, matched, wrong)
    say(f"verify {run.name}: {line}")
    return 0 if held else 1


def compare_runs(here: Results, matched: MatchedRuns, bins: Sequence[int]) -> pd.DataFrame:
    """Call `compare_numbers` with both sides' numbers on their shared rows; `here` provides the
    labels."""
    both = (recompute_frames(side, bins) for side in (matched.ours, matched.theirs))
    ours, theirs = (
        printed_numbers(replace(here, frames={**here.frames, **frames})) for frames in both
    )
    return compare_numbers(ours, theirs)


def list_differing_results(here: Results, made: Results) -> list[str]:
    """Return one line per table whose saved results differ from those computed from the signals."""
    kept, anew = (
        printed_numbers(results).set_index(["table", "key"]).value for results in (here, made)
    )
    same = (kept - anew).abs() <= OWN_TOLERANCE
    wrong = (~same)[~same].groupby("table", sort=False).size()
    return [
        f"{table}: {count} saved numbers are NOT what the run's signals give"
        for table, count in wrong.items()
    ]


def list_differing_numbers(table: pd.DataFrame, file: str) -> list[str]:
    """Return a line for each number that differs by more than TOLERANCE, those after isotonic
    regression last."""
    shown = table[~(table.difference <= TOLERANCE)].sort_values(
        ["within", "difference"], ascending=[True, False]
    )
    lines = [
        f"{row.table} {row.key}: {row.here:.4f} here, {row.shipped:.4f} shipped"
        + (", after isotonic regression" if row.within else f", MORE than {TOLERANCE} apart")
        for row in shown.head(LISTED_NUMBERS).itertuples()
    ]
    return [*lines, f"every number: {file}"]


def judge_reproduction(
    table: pd.DataFrame, matched: MatchedRuns, wrong: Sequence[str] = ()
) -> tuple[bool, str]:
    """Return whether the run reproduces the shipped one, with one line of explanation.

    `wrong`: tables of the run that its signals do not reproduce.
    """
    same, diverged, here, shipped = (matched.outcomes[one] for one in ("same", *OUTCOMES.values()))
    shared, beyond = same + diverged, (~table.within).sum()
    problems = {
        f"{diverged} of {shared} responses diverged": diverged > (1 - LEAST_MATCHED) * shared,
        f"{here} responses are only here, {shipped} only shipped": here or shipped,
        f"{len(wrong)} of the run's tables are not what its signals give": wrong,
        f"{beyond} of {len(table)} numbers differ by more than {TOLERANCE}": beyond,
    }
    for why in [problem for problem, found in problems.items() if found]:
        return False, f"NOT the same: {why}"
    jumped = (table.difference > TOLERANCE).sum()
    how = f", but for {jumped} after isotonic regression" if jumped else ""
    return (
        True,
        f"the same: {len(table)} numbers within {TOLERANCE}{how}; {same} of {shared} responses alike",
    )
