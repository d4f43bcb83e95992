"""What the paper does not have: estimators of ours, in tables of their own. None of it counts in a table, a finding or
a number of the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lib import store
from lib.analysis.dropout_statistics import by_scope
from lib.paper.booktabs import Table
from lib.paper.layout import Frame, Labels, Layout, Line, Notes, heading, short
from lib.paper.tables import dropout_grid_search, lowest_ece, score_interval
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


def dropout_in_situ(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """Both forms of c_BALD side by side: selected rate, ECE with its interval, AUROC, mean tokens that the passes over
    a response read; and the paired difference of ECE."""
    layout = Layout.of(frame, models, datasets, notes)
    columns = [Line((heading(ALL_ESTIMATORS[name]), head), {"estimator": name, "metric": metric})
               for name in SCOPES.values() for metric, head in SHOWN.items()]  # fmt: skip
    columns.append(Line(("Difference", "ECE"), {"estimator": "", "metric": "difference"}))
    shows = {"rate": "{:.2f}".format, "tokens": "{:.0f}".format}
    table = layout.by_pair(columns, "ll cccc cccc c", bold=lowest_ece,
                           cell=lambda one: score_interval(one, shows.get(one.metric, short)))  # fmt: skip
    return replace(table, notes=[*table.notes, *read_once(frame)])


def read_once(frame: Frame) -> list[str]:
    """What the tokens of the table leave out."""
    rows = frame[(frame["metric"] == "once") & (frame["estimator"] == "c_bald_insitu")]
    if rows.empty:
        return []
    least, most = rows["value"].min(), rows["value"].max()
    return ["Tokens: what all passes over a response read, a mean. In situ its trajectory is encoded once before them "
            f"({least:.0f} to {most:.0f} tokens), unless its cache is still at hand."]  # fmt: skip


def dropout_in_situ_grid(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """As `dropout_grid_search`, of c_BALD in situ."""
    return dropout_grid_search(frame, models, datasets, notes, "c_bald_insitu")
