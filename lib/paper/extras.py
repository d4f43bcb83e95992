"""What the paper does not have: estimators of ours, in tables of their own. None of it counts in a table, a finding or
a number of the paper."""

from collections.abc import Mapping, Sequence

import pandas as pd

from lib import store
from lib.analysis.dropout_statistics import by_scope
from lib.paper.table import Cell, Table, TableRow
from lib.paper.tables import dropout_grid_search
from lib.paper.targets import table_target
from lib.paper.values import DATASET, MODEL, Frame, Labels, Notes, Values, grouped_head, short
from lib.params import Reading
from lib.score.bootstrap import bootstrap
from lib.score.confidence import confidence_frame, evaluate_rate_grid, rows_at_selected_rate
from lib.score.estimators import ESTIMATORS, EXTRAS
from lib.store import PAIR

SCOPES = {"trajectory": "c_bald", "answer": "c_bald_insitu"}  # estimator by where dropout acts
ALL_ESTIMATORS = ESTIMATORS | EXTRAS
LACKING = {"trajectory": "no passes over the whole response", "answer": "no passes at the answer only"}
SHOWN = {"rate": "Rate", "ece": "ECE", "auroc": "AUROC", "tokens": "Tokens"}


def in_situ(run: str, models: Sequence[str], datasets: Sequence[str], generations: Frame, responses: Frame,
            dropout: Frame, reading: Reading, resamples: int = 5000, seed: int = 0) -> dict[str, Frame]:  # fmt: skip
    """Frames of both tables below, from the passes over whole trajectories (`dropout`) and from those at the answer
    only that a run left, which may lack any pair."""
    answer = store.load_frames(run, "dropout_answer", models, datasets, may_lack=True)[0]
    frames = {"trajectory": dropout, "answer": answer}
    chosen = {scope: rows_at_selected_rate(frame, reading) for scope, frame in frames.items()}
    measured = by_scope(generations, responses, chosen, reading).rename(columns={"scope": "estimator"})
    measured = measured.melt([*PAIR, "estimator"], ["rate", "auroc", "tokens", "once"], "metric")
    measured["estimator"] = measured.estimator.map(SCOPES)
    scores = confidence_frame(responses, None, chosen["trajectory"], reading, SCOPES.values(), chosen["answer"])
    parts = [measured, *resampled(scores, reading, resamples, seed), missing_extras(frames, models, datasets)]
    rates = evaluate_rate_grid(responses, answer, reading, estimator="c_bald_insitu")
    return {"dropout_in_situ": pd.concat(parts, ignore_index=True), "dropout_in_situ_grid": rates}


def resampled(scores: Frame, reading: Reading, resamples: int = 5000, seed: int = 0) -> list[Frame]:
    """ECE of both with intervals, and the paired difference (estimator "", metric `difference`)."""
    evaluation = scores[scores.split == "evaluation"].assign(method="")
    if evaluation.empty:
        return []
    drawn = bootstrap(evaluation, reading.bins, reading.closed, resamples, seed)
    gap = drawn.differences([(("c_bald_insitu", ""), ("c_bald", ""))])
    gap = gap.assign(value=gap.difference, metric="difference", estimator="")
    results = drawn.results[drawn.results.metric == "ece"]
    return [frame[[*PAIR, "estimator", "metric", "value", "low", "high"]] for frame in (results, gap)]


def missing_extras(frames: Mapping[str, Frame], models: Sequence[str], datasets: Sequence[str]) -> Frame:
    """Rows without a value, with the reason, for the pairs in which a scope has no passes."""
    rows = []
    for scope, frame in frames.items():
        there = set(zip(frame.model, frame.dataset, strict=True))
        absent = [(model, dataset) for model in models for dataset in datasets if (model, dataset) not in there]
        rows += [(*pair, who, metric, pd.NA, LACKING[scope]) for pair in absent
                 for who, metric in [*((SCOPES[scope], metric) for metric in SHOWN), ("", "difference")]]  # fmt: skip
    return pd.DataFrame(rows, columns=[*PAIR, "estimator", "metric", "value", "reason"])


@table_target("tab_dropout_in_situ", "Dropout at the answer only (not in the paper)",
       "c_BALD with dropout along the whole trajectory, and in situ: only where the answer's tokens are read, behind a "
       "trajectory that was encoded once; each at its own rate. The lower ECE of a row is bold.",
       published=False, extra=True)  # fmt: skip
def dropout_in_situ(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """Both forms of c_BALD side by side: selected rate, ECE with its interval, AUROC, mean tokens that the passes over
    a response read; and the paired difference of ECE."""
    values, commands = Values(frame, models, datasets), (r"\scoreci", r"\bestscoreci")
    shows = {"rate": "{:.2f}".format, "tokens": "{:.0f}".format}

    def row(*pair: str) -> TableRow:
        best = values.lowest((*pair, who, "ece") for who in SCOPES.values())
        keys = [(*pair, who, metric) for who in SCOPES.values() for metric in SHOWN] + [(*pair, "", "difference")]
        return [values.interval(commands, *key, bold=key in best, show=shows.get(key[-1], short)) for key in keys]

    body = values.by_pair(row)
    groups = [
        (Cell(ALL_ESTIMATORS[who].plain, latex=ALL_ESTIMATORS[who].label), [Cell(head) for head in SHOWN.values()])
        for who in SCOPES.values()
    ]
    head = grouped_head([MODEL, DATASET], [*groups, (Cell("Difference"), [Cell("ECE")])])
    return Table("ll cccc cccc c", head, body, [*values.notes(notes), *read_once(values)])


def read_once(values: Values) -> list[str]:
    """What the tokens of the table leave out."""
    rows = values.frame[(values.frame["metric"] == "once") & (values.frame["estimator"] == "c_bald_insitu")]
    if rows.empty:
        return []
    least, most = rows["value"].min(), rows["value"].max()
    return ["Tokens: what all passes over a response read, a mean. In situ its trajectory is encoded once before them "
            f"({least:.0f} to {most:.0f} tokens), unless its cache is still at hand."]  # fmt: skip


@table_target("tab_dropout_in_situ_grid", "Dropout rates at the answer only (not in the paper)",
       "c_BALD in situ on the tuning examples for each rate of the grid; the rate of lowest ECE is bold.",
       published=False, extra=True)  # fmt: skip
def dropout_in_situ_grid(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """As `dropout_grid_search`, of c_BALD in situ."""
    return dropout_grid_search(frame, models, datasets, notes, "c_bald_insitu")
