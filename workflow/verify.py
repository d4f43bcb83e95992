"""Does a run give what is shipped? `./run_all.sh verify [PROFILE]`, for whoever runs this on another processor.

The shipped signals of the same models and questions are read as the run reads its own, and every number of the tables
is made from both. Two processors round differently, and now and then that makes another token be sampled. So rows that
were written otherwise are left out on both sides, and counted; on the others a number may differ by as much as noise
moves it (`lib.paper.rounding`). Rows of one side alone are other questions, and fail. So do printed tables, or results
that 05 to 07 keep, that are not what the run's own signals give (ends of intervals are taken as they are kept).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lib import params, store
from lib.analysis.results import Results
from lib.analysis.run_results import results_of_run
from lib.analysis.run_signals import RunSignals
from lib.paper import footnotes, rounding
from lib.paper.exhibits import TABLES
from lib.paths import ROOT, UserError
from lib.store import KEYS, PAIR
from workflow.pipeline import Run

ALIKE = 0.97  # share of the responses that must be written alike
TIMES = 3  # a number may differ by so much more than ten draws of noise moved it,
FLOOR = 1e-4  # or by a tenth of the last digit that is printed
STEPS = "isotonic"  # the method whose results jump where two near scores change places: seldom, so few draws show it
LISTED = 20  # numbers at most; all of them are in the file
FILE = "verify.csv"


def verify(run: Run, say: Callable[[str], None]) -> int:
    """Says where a finished run differs from what is shipped; 0 where only rounding differs, else 1. Raises UserError
    where nothing of it is shipped."""
    models, datasets = both(run)
    if absent := [name for name in run.values["datasets"] if name not in datasets]:
        say(f"{', '.join(absent)}: not shipped, left out")
    reading, choices = params.Reading.of(run.values), params.Calibration.of(run.values)
    ours, theirs = (RunSignals.of(name, models, datasets, reading) for name in (run.name, shipped(run)))
    here = results_of(run, ours, models, datasets)
    alike = Alike.of(ours, theirs)
    table = compare(here, alike, choices, run.values["n_bins_ablation"])
    (ROOT / run.figures).mkdir(parents=True, exist_ok=True)
    table.to_csv(ROOT / run.figures / FILE, index=False, float_format="%.9g")
    wrong = forged(run, choices)
    for line in [*alike.said, *listed(table, f"{run.figures}/{FILE}"), *wrong]:
        say(line)
    held, line = verdict(table, alike, wrong)
    say(f"verify {run.name}: {line}")
    return 0 if held else 1


def shipped(run: Run) -> str:
    """The name under which only shipped signals are found: a replay runs no model."""
    return f"replay-{run.name}"


def both(run: Run) -> tuple[list[str], list[str]]:
    """Models, and the datasets that are shipped for all of them. Raises UserError where that is none: another run's
    would be no twin."""
    models, datasets = run.values["models"], run.values["datasets"]
    folder = store.shipped_folder(shipped(run)) / "generations"
    there = [name for name in datasets
             if all((folder / f"{pair}.parquet").exists() for pair in store.pair_names(models, [name]))]  # fmt: skip
    if not there:
        raise UserError(f"run '{run.name}' has no shipped twin: no signals of {', '.join(models)} on "
                        f"{', '.join(datasets)} in {store.relative_path(folder)}/")  # fmt: skip
    return models, there


def results_of(run: Run, signals: RunSignals, models: Sequence[str], datasets: Sequence[str]) -> Results:
    """What 08 makes of a run's signals and of what 05 to 07 and 10 keep."""
    names = ("n_bins_ablation", "bin_models", "transfer_models", "transfer_datasets", "resamples", "seed")
    results = results_of_run(run.name, signals, models, datasets, **{name: run.values[name] for name in names})
    return replace(results, notes=footnotes.notes_of_run(run.name, run.values["title"], signals, results))


# ---- what the run printed


def forged(run: Run, choices: params.Calibration) -> list[str]:
    """What of a run's tables is not what its own signals give, a line each."""
    models, datasets = run.values["models"], run.values["datasets"]
    signals = RunSignals.of(run.name, models, datasets, params.Reading.of(run.values))
    here = results_of(run, signals, models, datasets)
    made = rounding.frames_of(signals, signals.sets, choices, run.values["n_bins_ablation"])
    return [*misprinted(here, run.figures), *miskept(here, replace(here, frames={**here.frames, **made}))]


def misprinted(here: Results, folder: str) -> list[str]:
    """The printed tables in a folder that are not those of the results, a line each."""
    lines = []
    for exhibit in TABLES:
        name = f"{folder}/{exhibit.name}.tex"
        if not (ROOT / name).is_file():
            lines.append(f"{name} is not there")
        elif (ROOT / name).read_bytes() != exhibit.build(here).latex.encode():
            lines.append(f"{name} is NOT what the run's results give")
    return lines


def miskept(here: Results, made: Results) -> list[str]:
    """A line for each table of which results that are kept are not those made anew from the signals."""
    kept, anew = (rounding.shown_numbers(results).set_index(["table", "key"]).value for results in (here, made))
    gap = (kept - anew).abs()
    wrong = gap[~(gap <= FLOOR)].groupby("table", sort=False).size()
    return [f"{table}: {count} numbers that are kept are NOT what the run's signals give"
            for table, count in wrong.items()]  # fmt: skip


# ---- the rows that both have


@dataclass(frozen=True)
class Alike:
    """The signals of both sides on the rows whose tokens are the same; `rows` that both have, `other` of them written
    otherwise; `rates` that differ; `noise`, by how much log-probabilities do (root mean square, and at most); rows
    that stand `alone`, here and in what is shipped."""

    ours: RunSignals
    theirs: RunSignals
    rows: int
    other: int
    rates: Sequence[str]
    noise: tuple[float, float]
    alone: tuple[int, int]

    @classmethod
    def of(cls, ours: RunSignals, theirs: RunSignals) -> "Alike":
        rows = ours.generations.merge(theirs.generations, on=KEYS, suffixes=("", "_theirs"))
        same = [np.array_equal(*tokens) for tokens in zip(rows.token_ids, rows.token_ids_theirs, strict=True)]
        kept = rows[np.array(same, dtype=bool)]
        if kept.empty:
            raise UserError("no response in common with what is shipped: these are other models or questions")
        old, new = (np.concatenate(list(kept[name])) for name in ("token_logprobs_theirs", "token_logprobs"))
        gap = np.abs(new.astype(float) - old)
        passes = ours.dropout.merge(theirs.dropout, on=[*KEYS, "rate"], suffixes=("", "_theirs"))
        parts = (on_rows(side, kept[KEYS], passes) for side in (ours, theirs))
        return cls(*parts, len(rows), len(rows) - len(kept), other_rates(ours, theirs),
                   (float(np.sqrt(np.mean(gap**2))), float(gap.max())),
                   (len(ours.generations) - len(rows), len(theirs.generations) - len(rows)))  # fmt: skip

    @property
    def said(self) -> list[str]:
        """What is the same and what is not, a line each."""
        typical, most = self.noise
        lines = [f"log-probabilities of the same tokens differ by {typical:.1e} (root mean square), at most {most:.1e}"]
        if self.other:
            lines.append(f"{self.other} of {self.rows} responses were written otherwise: left out on both sides")
        return lines + [f"dropout rate of {where}: c_BALD is left out there" for where in self.rates]


def on_rows(side: RunSignals, keys: pd.DataFrame, passes: pd.DataFrame) -> RunSignals:
    """The signals of these rows, and of passes those that both sides made and use alike."""
    wanted = pd.MultiIndex.from_frame(keys)
    generations, verification, dropout = (
        frame[pd.MultiIndex.from_frame(frame[KEYS]).isin(wanted)].reset_index(drop=True)
        for frame in (side.generations, side.verification, side.dropout))  # fmt: skip
    use = passes[[*KEYS, "rate"]].assign(**{name: passes[name] & passes[name + "_theirs"]
                                            for name in ("tuning", "selected")})  # fmt: skip
    dropout = dropout.drop(columns=["tuning", "selected"]).merge(use, on=[*KEYS, "rate"])
    return RunSignals.from_frames(generations, verification, dropout, side.reading)


def other_rates(ours: RunSignals, theirs: RunSignals) -> list[str]:
    """The pairs for which another dropout rate was selected."""
    here, there = (side.dropout[side.dropout.selected].groupby(PAIR, sort=False).rate.min() for side in (ours, theirs))
    shared = here.index.intersection(there.index)
    return [f"{' on '.join(pair)} is {here[pair]:.2f}, shipped {there[pair]:.2f}"
            for pair in shared if here[pair] != there[pair]]  # fmt: skip


# ---- the numbers


def compare(here: Results, alike: Alike, choices: params.Calibration, n_bins_ablation: Sequence[int]) -> pd.DataFrame:
    """A row per number of the tables: table, key, here, shipped, difference, tolerance, moves (under noise), within,
    and `reads`, whether its cell reads otherwise. `here` gives the labels."""
    frames = rounding.frames_of(alike.ours, alike.ours.sets, choices, n_bins_ablation)
    ours = rounding.shown_numbers(replace(here, frames={**here.frames, **frames}))[["table", "key", "value", "text"]]
    theirs = rounding.moves(here, alike.theirs, choices, n_bins_ablation)[["table", "key", "value", "text", "moves"]]
    table = ours.merge(theirs, on=["table", "key"], how="outer", suffixes=("_here", "_shipped"))
    table = table.fillna({"moves": 0.0})
    table = table.rename(columns={"value_here": "here", "value_shipped": "shipped"})
    gap = (table.here - table.shipped).abs()
    tolerance = np.maximum(TIMES * table["moves"], FLOOR)
    steps = table["moves"].where(table.key.str.contains(STEPS))  # as far as any of the same metric in its table
    alike_moves = steps.groupby([table.table, table.key.str.split("/").str[3]]).transform("max").where(steps.notna())
    tolerance = np.maximum(tolerance, alike_moves.fillna(0))
    within, reads = gap <= tolerance, table.text_here != table.text_shipped  # a missing number is not within
    table = table.assign(difference=gap, tolerance=tolerance, within=within, reads=reads)
    return table.drop(columns=["text_here", "text_shipped"])


def listed(table: pd.DataFrame, file: str) -> list[str]:
    """A line for each number that reads otherwise or differs by too much, the largest excess first."""
    shown = table[table.reads | ~table.within]
    shown = shown.sort_values(["within", "difference"], ascending=[True, False])
    lines = []
    for row in shown.head(LISTED).itertuples():
        how = "within" if row.within else "MORE than"
        lines.append(f"{row.table} {row.key}: {row.here:.4f} here, {row.shipped:.4f} shipped, differs by "
                     f"{row.difference:.2g}, {how} what rounding moves ({row.tolerance:.2g})")  # fmt: skip
    more = len(shown) - LISTED
    return lines + ([f"and {more} more, all in {file}"] if more > 0 else [f"every number: {file}"])


def verdict(table: pd.DataFrame, alike: Alike, wrong: Sequence[str] = ()) -> tuple[bool, str]:
    """Whether the run gives what is shipped, and one line that says so. `wrong`: what of its tables is not its own."""
    beyond, read = int((~table.within).sum()), int((table.reads & table.within).sum())
    if alike.other > (1 - ALIKE) * alike.rows:
        return False, f"NOT the same: {alike.other} of {alike.rows} responses were written otherwise"
    if any(alike.alone):
        return False, "NOT the same: {} responses are here alone, {} are shipped alone".format(*alike.alone)
    if wrong:
        return False, f"NOT the same: {len(wrong)} of the run's tables are not what its signals give"
    if beyond:
        return False, f"NOT the same: {beyond} of {len(table)} numbers differ by more than rounding moves them"
    rows = f"{alike.rows - alike.other} of {alike.rows} responses alike"
    how = f"{read} read otherwise, by no more than rounding moves them" if read else "all read alike"
    return True, f"the same: {len(table)} numbers, {how}; {rows}"
