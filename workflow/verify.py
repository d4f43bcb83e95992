"""`./run_all.sh verify [PROFILE]`: does a run on another machine reproduce the shipped results?

Every number of the tables is computed from the run's signals and from the shipped ones (`lib.analysis.run_comparison`).
Verification fails if only one side has a row: the questions differ. It also fails if the run's tables, or the saved
results of 05 to 07, differ from its own signals'. Interval limits are used as saved.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from lib import params, store
from lib.analysis import rounding, run_comparison
from lib.analysis.results import Results
from lib.analysis.run_results import results_of_run
from lib.analysis.run_signals import RunSignals
from lib.paper import footnotes
from lib.paper.exhibits import TABLES
from lib.paths import ROOT, UserError
from workflow.pipeline import Run


def verify(run: Run, say: Callable[[str], None]) -> int:
    """Print how a finished run differs from the shipped one. Return 0 if only by rounding, else 1."""
    models, datasets = shared_pairs(run)
    if absent := [name for name in run.values["datasets"] if name not in datasets]:
        say(f"{', '.join(absent)}: not shipped, left out")
    choices, bins = params.Calibration.of(run.values), run.values["n_bins_ablation"]
    ours, theirs = (load_signals(run, name, datasets) for name in (run.name, shipped(run)))
    here, matched = results_of(run, ours, models, datasets), run_comparison.match_rows(ours, theirs)
    table = compare(here, matched, choices, bins)
    file = f"{run.figures}/verify.csv"
    (ROOT / run.figures).mkdir(parents=True, exist_ok=True)
    table.to_csv(ROOT / file, index=False, float_format="%.9g")
    wrong = forged(run, choices)
    for line in [*matched.summary, *run_comparison.list_numbers(table, file), *wrong]:
        say(line)
    held, line = run_comparison.judge_sameness(table, matched, wrong)
    say(f"verify {run.name}: {line}")
    return 0 if held else 1


def compare(
    here: Results, matched: run_comparison.MatchedRows, choices: params.Calibration, bins: Sequence[int]
) -> pd.DataFrame:
    """Call `compare_numbers` with both sides' numbers on their shared rows; `here` provides the labels."""
    frames = rounding.frames_of(matched.ours, choices, bins)
    ours = rounding.printed_numbers(replace(here, frames={**here.frames, **frames}))
    return run_comparison.compare_numbers(ours, rounding.moves(here, matched.theirs, choices, bins))


def shipped(run: Run) -> str:
    """Return the replay's name, under which only shipped signals are found."""
    return f"replay-{run.name}"


def shared_pairs(run: Run) -> tuple[list[str], list[str]]:
    """Return the models and the datasets that are shipped for all of them. Raise UserError if there are none."""
    models, datasets = run.values["models"], run.values["datasets"]
    folder = store.shipped_folder(shipped(run)) / "generations"
    there = [
        name
        for name in datasets
        if all((folder / f"{pair}.parquet").exists() for pair in store.pair_names(models, [name]))
    ]
    if not there:
        raise UserError(
            f"run '{run.name}' has no shipped results: no signals of {', '.join(models)} on {', '.join(datasets)} in "
            f"{store.relative_path(folder)}/"
        )
    return models, there


def load_signals(run: Run, name: str, datasets: Sequence[str]) -> RunSignals:
    return RunSignals.of(name, run.values["models"], datasets, params.Reading.of(run.values))


def results_of(run: Run, signals: RunSignals, models: Sequence[str], datasets: Sequence[str]) -> Results:
    """Return the results that 08 builds from a run's signals and the saved results of 05 to 07 and 10."""
    names = ("n_bins_ablation", "bin_models", "transfer_models", "transfer_datasets", "resamples", "seed")
    results = results_of_run(run.name, signals, models, datasets, **{name: run.values[name] for name in names})
    return replace(results, notes=footnotes.notes_of_run(run.name, run.values["title"], signals, results))


# ---- the run's tables and saved results


def forged(run: Run, choices: params.Calibration) -> list[str]:
    """Return one line per table or saved result that does not follow from the run's own signals."""
    models, datasets = run.values["models"], run.values["datasets"]
    signals = load_signals(run, run.name, datasets)
    here = results_of(run, signals, models, datasets)
    made = rounding.frames_of(signals, choices, run.values["n_bins_ablation"])
    return [*misprinted(here, run.figures), *miskept(here, replace(here, frames={**here.frames, **made}))]


def misprinted(here: Results, folder: str) -> list[str]:
    """Return one line per table file that is missing or differs from the table of the results."""
    lines = []
    for exhibit in TABLES:
        name = f"{folder}/{exhibit.name}.tex"
        if not (ROOT / name).is_file():
            lines.append(f"{name} is missing")
        elif (ROOT / name).read_bytes() != exhibit.build(here).latex.encode():
            lines.append(f"{name} is NOT what the run's results give")
    return lines


def miskept(here: Results, made: Results) -> list[str]:
    """Return one line per table whose saved results differ from those computed from the signals."""
    kept, anew = (rounding.printed_numbers(results).set_index(["table", "key"]).value for results in (here, made))
    same = (kept - anew).abs() <= run_comparison.LEAST_TOLERANCE
    wrong = (~same)[~same].groupby("table", sort=False).size()
    return [f"{table}: {count} saved numbers are NOT what the run's signals give" for table, count in wrong.items()]
