"""Does a run give what is shipped? `./run_all.sh verify [PROFILE]`, for whoever runs this on another processor.

The shipped signals of the same models and questions are read as the run reads its own, and every number of the tables
is made from both. Two processors round differently, and now and then that makes another token be sampled. So rows that
were written otherwise are left out on both sides, and counted; on the others a number may differ by as much as noise
moves it (`lib.paper.rounding`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lib import params, store
from lib.paper import rounding, run_results
from lib.paper.results import Results
from lib.paper.run_results import RunSignals
from lib.project import ROOT, UserError
from lib.store import KEYS, PAIR
from workflow.jobs import Run

ALIKE = 0.97  # share of the responses that must be written alike
TIMES = 3  # a number may differ by so much more than ten draws of noise moved it,
FLOOR = 1e-4  # or by a tenth of the last digit that is printed
LISTED = 20  # numbers at most; all of them are in the file
FILE = "verify.csv"


def verify(run: Run, say: Callable[[str], None]) -> int:
    """Says where a finished run differs from what is shipped; 0 where only rounding differs, else 1. Raises UserError
    where nothing of it is shipped."""
    models, datasets = both(run)
    reading, choices = params.Reading.of(run.values), params.Calibration.of(run.values)
    ours, theirs = (RunSignals.of(name, models, datasets, reading) for name in (run.name, shipped(run)))
    here = run_results.of_run(run.name, ours, "", models, datasets, bin_counts=run.values["bin_counts"],
                              transfer_models=run.values["transfer_models"],
                              transfer_datasets=run.values["transfer_datasets"])  # fmt: skip
    alike = Alike.of(ours, theirs)
    table = compare(here, alike, choices, run.values["bin_counts"])
    (ROOT / run.figures).mkdir(parents=True, exist_ok=True)
    table.to_csv(ROOT / run.figures / FILE, index=False, float_format="%.9g")
    for line in [*alike.said, *listed(table, f"{run.figures}/{FILE}")]:
        say(line)
    held, line = verdict(table, alike)
    say(f"verify {run.name}: {line}")
    return 0 if held else 1


def shipped(run: Run) -> str:
    """The name under which only shipped signals are found: a replay runs no model."""
    return f"replay-{run.name}"


def both(run: Run) -> tuple[list[str], list[str]]:
    """Models, and the datasets that are shipped for all of them."""
    models, datasets = run.values["models"], run.values["datasets"]
    there = [name for name in datasets
             if len(store.found(shipped(run), "generations", store.pairs(models, [name]))) == len(models)]  # fmt: skip
    if not there:
        raise UserError(f"no signals of {', '.join(models)} on {', '.join(datasets)} are shipped to compare with")
    return models, there


# ---- the rows that both have


@dataclass(frozen=True)
class Alike:
    """The signals of both sides on the rows whose tokens are the same; `rows` that both have, `other` of them written
    otherwise; `rates` that differ; `noise`, by how much log-probabilities do (root mean square, and at most)."""

    ours: RunSignals
    theirs: RunSignals
    rows: int
    other: int
    rates: Sequence[str]
    noise: tuple[float, float]

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
                   (float(np.sqrt(np.mean(gap**2))), float(gap.max())))  # fmt: skip

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


def compare(here: Results, alike: Alike, choices: params.Calibration, bin_counts: Sequence[int]) -> pd.DataFrame:
    """A row per number of the tables: table, key, here, shipped, difference, tolerance, moves (under noise), within,
    and `reads`, whether its cell reads otherwise. `here` gives the labels."""
    frames = rounding.frames_of(alike.ours, alike.ours.sets, choices, bin_counts)
    ours = rounding.cells(replace(here, frames={**here.frames, **frames}))
    theirs = rounding.moves(here, alike.theirs, choices, bin_counts)[["table", "key", "value", "text", "moves"]]
    table = ours.merge(theirs, on=["table", "key"], how="outer", suffixes=("_here", "_shipped"))
    table = table.fillna({"moves": 0.0})
    table = table.rename(columns={"value_here": "here", "value_shipped": "shipped"})
    gap = (table.here - table.shipped).abs()
    tolerance = np.maximum(TIMES * table["moves"], FLOOR)
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


def verdict(table: pd.DataFrame, alike: Alike) -> tuple[bool, str]:
    """Whether the run gives what is shipped, and one line that says so."""
    beyond, read = int((~table.within).sum()), int((table.reads & table.within).sum())
    if alike.other > (1 - ALIKE) * alike.rows:
        return False, f"NOT the same: {alike.other} of {alike.rows} responses were written otherwise"
    if beyond:
        return False, f"NOT the same: {beyond} of {len(table)} numbers differ by more than rounding moves them"
    rows = f"{alike.rows - alike.other} of {alike.rows} responses alike"
    how = f"{read} read otherwise, by no more than rounding moves them" if read else "all read alike"
    return True, f"the same: {len(table)} numbers, {how}; {rows}"
