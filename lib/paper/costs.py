"""What a confidence costs, tokens and seconds a question by estimator, and what they buy: the paper says it of
verification alone. Single-pass estimators come with the response; every other reads on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from lib import store
from lib.paper.booktabs import Table
from lib.paper.comparison import Listing
from lib.paper.extras import ALL_ESTIMATORS
from lib.paper.figure_style import STYLES, WIDTH, Canvas, Figure, style
from lib.paper.layout import Frame, Labels, Layout, Line, Notes, heading, plain
from lib.paper.reference import printed_numbers
from lib.paper.results import Results
from lib.store import KEYS, PAIR

RESPONSE, TOTAL = "response", "total"  # in the place of an estimator: what comes with the response; all jobs of a pair
FURTHER = ("p_true", "p_true_insitu", "c_bald", "c_bald_insitu")  # estimators that read beyond it
WORK = ("generations", "verification", "dropout", "dropout_answer", "ablation")  # kinds whose manifests hold seconds
ESTIMATOR_MARKERS = dict(zip(("ans_avg", "seq_avg", *FURTHER), ("o", "s", "^", "v", "D", "P"), strict=True))


def estimator_costs(run: str, models: Sequence[str], datasets: Sequence[str], generations: Frame, verification: Frame,
          in_situ: Frame) -> Frame:  # fmt: skip
    """By pair and estimator: mean `tokens` of an evaluation question that are read beyond the response (of the response
    itself, with its prompt), `seconds` a question, and over all jobs of a pair its `hours`. `in_situ` as
    `extras.in_situ` returns the frame of `tab_dropout_in_situ`."""
    passes = in_situ[in_situ["metric"].isin(["tokens", "once"]) & in_situ["value"].notna()]
    parts = [count_tokens(generations, verification), passes.groupby([*PAIR, "estimator"], sort=False)["value"].sum()
             .reset_index().assign(metric="tokens"), seconds_of(run, models, datasets, verification)]  # fmt: skip
    return pd.concat([part[[*PAIR, "estimator", "metric", "value"]] for part in parts], ignore_index=True)


def count_tokens(generations: Frame, verification: Frame, split: str = "evaluation") -> Frame:
    """Mean tokens of the response with its prompt, and of both ways to verify it."""
    read = generations[generations["split"] == split]
    counts = {RESPONSE: read.assign(n=read["prompt_tokens"] + read["token_ids"].map(len))[[*KEYS, "n"]]}
    asked = verification[verification["split"] == split]
    for name, column in (("p_true", "standard_tokens"), ("p_true_insitu", "in_situ_tokens")):
        counts[name] = asked.assign(n=asked[column])[[*KEYS, "n"]]
    parts = [rows.groupby(PAIR, sort=False)["n"].mean().rename("value").reset_index().assign(estimator=name)
             for name, rows in counts.items()]  # fmt: skip
    return pd.concat(parts, ignore_index=True).assign(metric="tokens")


def seconds_of(run: str, models: Sequence[str], datasets: Sequence[str], verification: Frame) -> Frame:
    """Seconds a question from what the manifests say of the work as a whole, and from the rows of verification. Hours
    of a pair only where it is known of all its rows."""
    records: list[tuple] = []
    estimators = {"generations": RESPONSE, "dropout": "c_bald", "dropout_answer": "c_bald_insitu"}
    for pair in store.pair_names(models, datasets):
        where, hours = pair.split("__"), 0.0
        for kind in WORK:
            for facts in manifests(run, kind, pair):
                seconds, made = facts.get("seconds", 0.0) + facts.get("grid_seconds", 0.0), rows_made(facts)
                hours += seconds / 3600 if made == facts["rows"] else np.nan
                if kind in estimators and made > 0:
                    records.append((*where, estimators[kind], "seconds", seconds / made))
        if not np.isnan(hours):
            records.append((*where, TOTAL, "hours", hours))
    columns = {"standard_seconds": "p_true", "in_situ_seconds": "p_true_insitu"}
    for name in columns.keys() & set(verification):
        means = verification.groupby(PAIR, sort=False)[name].mean().dropna()
        records += [(*where, columns[name], "seconds", value) for where, value in means.items()]
    return pd.DataFrame(records, columns=[*PAIR, "estimator", "metric", "value"])


def rows_made(facts: Mapping[str, Any]) -> int:
    """Rows of a frame that the run itself made, by its manifest: those whose seconds are known."""
    return facts["rows"] - facts["kept_from"]["rows"] if "kept_from" in facts else facts["rows"]


def manifests(run: str, kind: str, pair: str) -> Iterator[dict[str, Any]]:
    """Of a frame of a run, where it is there."""
    for name in store.find_pairs(run, kind, [pair]):
        yield store.read_manifest(store.find_frame(run, kind, name))


def costs_table(frame: Frame, models: Labels = None, datasets: Labels = None, notes: Notes = ()) -> Table:
    """A row for each pair: tokens of the response, and of every estimator beyond it. Seconds, which no two runs share,
    stand in the report."""
    columns = [Line(("Response",), {"estimator": RESPONSE, "metric": "tokens"})]
    columns += [Line((heading(ALL_ESTIMATORS[name]),), {"estimator": name, "metric": "tokens"}) for name in FURTHER]
    table = Layout.of(frame, models, datasets, notes).by_pair(columns, cell=lambda one: plain(one, "{:,.0f}".format))
    return replace(table, notes=[*table.notes, *cost_saved(frame)])


def cost_saved(frame: Frame) -> list[str]:
    """What verification in situ saves, here and in the paper."""
    tokens = frame[frame["metric"] == "tokens"].pivot_table(index=PAIR, columns="estimator", values="value")
    if not {"p_true", "p_true_insitu"} <= set(tokens):
        return []
    paper = printed_numbers().query("metric == 'token_reduction_pct'")["value"].astype(float).mean()
    ours = 100 * (1 - tokens["p_true_insitu"] / tokens["p_true"]).mean()
    return [f"In situ saves {ours:.0f}% of the tokens of P(True) here, {paper:.0f}% in the paper."]


def seconds(here: Results) -> Listing:
    """What the report says of time: by pair, seconds a question of the response and of each estimator beyond it, and
    the hours of all its jobs; at the end those of all pairs together."""
    frame = here.frames["costs"]
    timed = frame[frame["metric"] != "tokens"]
    wide = timed.pivot_table(index=PAIR, columns="estimator", values="value", sort=False)
    wide = wide.reindex(columns=[name for name in (RESPONSE, *FURTHER, TOTAL) if name in wide]).reset_index()
    wide["model"], wide["dataset"] = wide["model"].map(dict(here.models)), wide["dataset"].map(dict(here.datasets))
    hours = wide.get(TOTAL, pd.Series([np.nan]))
    last = pd.DataFrame([{"model": "all", "dataset": "", TOTAL: hours.sum()}] if hours.notna().all() else [])
    heads = {name: f"{ALL_ESTIMATORS[name].plain}, s" for name in FURTHER} | {
        RESPONSE: "response, s",
        TOTAL: "all jobs, hours",
    }
    records = pd.concat([wide, last], ignore_index=True).rename(columns=heads)
    return Listing(records, records.round(3))


# ---- what it buys


def cost_and_worth(frame: Frame, results: Frame, in_situ: Frame) -> Frame:
    """By pair and estimator: all tokens of a question with its response, ECE and AUROC of the raw score."""
    measured = pd.concat([results, in_situ[in_situ["estimator"] == "c_bald_insitu"]], ignore_index=True)
    known = measured["metric"].isin(["ece", "auroc"]) & measured["value"].notna()  # of sure answers AUROC may not be
    measured = measured[known].astype({"value": float})
    table = measured.pivot_table(index=[*PAIR, "estimator"], columns="metric", values="value").reset_index()
    table = table.reindex(columns=[*PAIR, "estimator", "ece", "auroc"])
    tokens = frame[frame["metric"] == "tokens"]
    response = tokens[tokens["estimator"] == RESPONSE].set_index(PAIR)["value"]
    further = tokens.set_index([*PAIR, "estimator"])["value"]
    keys = list(table[[*PAIR, "estimator"]].itertuples(index=False, name=None))
    return table.assign(tokens=[response.get(key[:2], np.nan) + further.get(key, 0.0) for key in keys])


def pareto(frame: Frame, title: str = "") -> Figure:
    """`frame` as `cost_and_worth` returns it."""
    with style():
        canvas = Canvas(figsize=(WIDTH, 4.0), layout="constrained")
        axes = canvas.subplots(2, 1, sharex=True)
        for ax, (metric, label, sign) in zip(axes, (("ece", "ECE", 1), ("auroc", "AUROC", -1)), strict=True):
            _draw_points(ax, frame.dropna(subset=[metric, "tokens"]), metric, sign)
            ax.set(ylabel=label, xscale="log")
            ax.xaxis.set_major_formatter("{x:,.0f}")
            ax.xaxis.set_minor_formatter("")
        axes[1].set_xlabel("tokens a question")
        handles, labels = axes[0].get_legend_handles_labels()
        if handles:
            canvas.legend(handles, labels, loc="outside lower center", ncols=3, handlelength=1.2)
        axes[0].set_title(title, parse_math=False)
    return Figure(canvas)


def _draw_points(ax: Axes, frame: Frame, metric: str, sign: int) -> None:
    """Every pair, the means, and the line along the best of them from the cheapest on."""
    means = {}
    for (name, mark), look in zip(ESTIMATOR_MARKERS.items(), [*STYLES, *STYLES], strict=False):
        rows = frame[frame["estimator"] == name]
        if rows.empty:
            continue
        means[name] = at = float(np.exp(np.log(rows["tokens"]).mean())), float(rows[metric].mean())
        colour = look[0] if len(means) <= len(STYLES) else "white"
        more: dict[str, Any] = {"color": colour, "markeredgecolor": "black", "linestyle": "none", "marker": mark}
        ax.plot(rows["tokens"], rows[metric], markersize=2.5, alpha=0.5, **{**more, "markeredgecolor": "0.4"})
        ax.plot(*at, markersize=7, markeredgewidth=0.7, label=ALL_ESTIMATORS[name].plain, **more)
    front = bettered(means.values(), sign)
    if front:
        ax.step(*zip(*front, strict=True), where="post", color="0.5", linewidth=0.8, zorder=0)


def bettered(points: Any, sign: int) -> list[tuple[float, float]]:
    """Those points (tokens, value) that none of at most as many tokens betters: lower values for a `sign` of 1, higher
    ones for -1."""
    front: list[tuple[float, float]] = []
    for tokens, value in sorted(points, key=lambda point: (point[0], sign * point[1])):
        if not front or sign * value < sign * front[-1][1]:
            front.append((tokens, value))
    return front


def costs_of_run(run: str, models: Sequence[str], datasets: Sequence[str], generations: Frame, verification: Frame,
           frames: Mapping[str, Frame]) -> dict[str, Frame]:  # fmt: skip
    """The frames of both, from the other frames of a run."""
    in_situ = frames["dropout_in_situ"]
    found = estimator_costs(run, models, datasets, generations, verification, in_situ)
    return {"costs": found, "worth": cost_and_worth(found, frames["result_estimation"], in_situ)}
