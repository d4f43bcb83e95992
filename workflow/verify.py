"""`./run_all.sh verify [PROFILE]`: does a run on another machine reproduce the shipped results?

Every number of the tables is computed from the run's signals and from the shipped ones
(`lib.analysis.comparison_of_runs`). Verification fails if only one side has a row: the questions differ. It also fails
if the saved results of 05 to 07 differ from those of the run's own signals. Interval limits are used as saved. The run
that precedes it has made again what was damaged or edited.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from lib import params
from lib.analysis import comparison_of_runs
from lib.analysis.results import Results
from lib.analysis.run_results import Signals, load_signals, results_of_run
from lib.paper.report_contents import printed_numbers
from lib.paths import ROOT
from workflow.pipeline import REPLAY, Run
from workflow.progress import say

OWN_TOLERANCE = 1e-4  # of a saved number, on the machine that saved it


def verify(run: Run) -> int:
    """Print how a finished run differs from the shipped one. Return 0 if only by rounding, else 1."""
    values, bins = run.values, run.values["n_bins_ablation"]
    ours, theirs = (
        load_signals(name, values["models"], values["datasets"], params.EvaluationChoices.of(values))
        for name in (run.name, f"{REPLAY}-{run.name}")  # a replay finds only shipped signals
    )
    here, matched = results_of(run, ours), comparison_of_runs.match_rows(ours, theirs)
    table = compare_runs(here, matched, bins)
    file = f"{run.figures}/verify.csv"
    table.to_csv(ROOT / file, index=False, float_format="%.9g")
    made = replace(here, frames={**here.frames, **comparison_of_runs.recompute_frames(ours, bins)})
    wrong = list_differing_results(here, made)
    for line in [*matched.left_out, *comparison_of_runs.list_differing_numbers(table, file), *wrong]:
        say(line)
    held, line = comparison_of_runs.judge_reproduction(table, matched, wrong)
    say(f"verify {run.name}: {line}")
    return 0 if held else 1


def results_of(run: Run, signals: Signals) -> Results:
    """Return the results that 08 builds from a run's signals and the saved results of 05 to 07 and 09."""
    names = ("models", "datasets", "n_bins_ablation", "bin_models", "transfer_models", "transfer_datasets", "title")
    return results_of_run(run.name, signals, **{name: run.values[name] for name in names})


def compare_runs(here: Results, matched: comparison_of_runs.MatchedRuns, bins: Sequence[int]) -> pd.DataFrame:
    """Call `compare_numbers` with both sides' numbers on their shared rows; `here` provides the labels."""
    both = (comparison_of_runs.recompute_frames(side, bins) for side in (matched.ours, matched.theirs))
    ours, theirs = (printed_numbers(replace(here, frames={**here.frames, **frames})) for frames in both)
    return comparison_of_runs.compare_numbers(ours, theirs)


def list_differing_results(here: Results, made: Results) -> list[str]:
    """Return one line per table whose saved results differ from those computed from the signals."""
    kept, anew = (printed_numbers(results).set_index(["table", "key"]).value for results in (here, made))
    same = (kept - anew).abs() <= OWN_TOLERANCE
    wrong = (~same)[~same].groupby("table", sort=False).size()
    return [f"{table}: {count} saved numbers are NOT what the run's signals give" for table, count in wrong.items()]
