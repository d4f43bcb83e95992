"""One sentence for what a table or a figure of a notebook shows, computed from its frame: it is true on any run."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from html import escape
from typing import ParamSpec

import numpy as np
import pandas as pd

from lib.analysis.token_statistics import right_minus_wrong
from lib.calibrate.calibrators import METHODS
from lib.paper.exploratory_plots import clipped_in_words
from lib.paper.layout import short
from lib.paper.reliability import SMALL_BIN, error
from lib.score.estimators import ESTIMATORS, in_declared_order
from lib.store import PAIR

P = ParamSpec("P")
METRIC = {"ece": "ECE", "mce": "MCE", "brier": "Brier score", "auroc": "AUROC"}


class Sentence(str):
    """What a notebook shows as text among its paragraphs, and a terminal without quotes."""

    def _repr_html_(self) -> str:
        return f'<p class="mathjax_ignore tex2jax_ignore">{escape(self)}</p>'.replace("\n", "<br>")

    __repr__ = str.__str__


def sentence(function: Callable[P, str]) -> Callable[P, Sentence]:
    """A function whose text a notebook shows as a `Sentence`."""

    @wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> Sentence:
        return Sentence(function(*args, **kwargs))

    return told


def count_of_pairs(count: int, total: int) -> str:
    """On 5 of 6 pairs."""
    return f"on {count} of {total} pair{'s' if total != 1 else ''}"


def bullet_list(lines: Sequence[str]) -> Sentence:
    """Several sentences, each on a line of its own."""
    return Sentence("\n".join(lines))


# ---- of one response


@sentence
def least_sure(table: pd.DataFrame, one: pd.Series | None = None) -> str:
    """Of a table of tokens (`generation.token_table`): the least probable one, and that of the answer's; after the
    verdict on the row `one` that they are of."""
    least, answer = table.loc[table.probability.idxmin()], table[table.part == "answer"]
    said = f"the least sure token is {least.token} with {least.probability:.2f}"
    said += f"; of the answer's the least sure has {answer.probability.min():.5f}" if len(answer) else ""
    return said if one is None else verdict(one, said)


@sentence
def surest(one: pd.Series, scores: pd.DataFrame) -> str:
    """Of one response's rows of a confidence frame: the score that trusts it most, and least."""
    ends = scores.sort_values("confidence").iloc[[0, -1]]
    least, most = (f"{ESTIMATORS[row.estimator].plain} {row.confidence:.5f}" for row in ends.itertuples())
    return f"{verdict(one)}; the highest score is {most}, the lowest {least}"


@sentence
def describe_encoding(table: pd.DataFrame, one: pd.Series) -> str:
    """Of `option_probabilities`: whether the row `one` is right, the tokens that either way has to encode, what comes
    of it."""
    parts = [f"{way} {row['P(True)']:.3f} for {row.tokens:.0f} tokens" for way, row in table.iterrows()]
    return verdict(one, f"P(True): {', '.join(parts)}")


@sentence
def verdict(one: pd.Series, *more: str) -> str:
    """Which response it is, whether it is right, and what more there is to say of it."""
    return "; ".join([f"{one.example_id}: the answer is {'right' if one.correct else 'wrong'}", *more])


# ---- of scores


@sentence
def compared(results: pd.DataFrame, metric: str, first: str, second: str) -> str:
    """Of raw results (tidy): on how many pairs the first estimator's `metric` is below the second's, and the mean
    difference."""
    rows = results[results.metric == metric]
    rows = rows[rows["method"] == ""] if "method" in rows else rows
    wide = rows.pivot(index=PAIR, columns="estimator", values="value")
    if not {first, second} <= set(wide):
        return f"{METRIC[metric]}: not both of {first} and {second} are there"
    wide = wide[[first, second]].dropna().astype(float)
    names = [ESTIMATORS[name].plain for name in (first, second)]
    if wide.empty:
        return f"{METRIC[metric]}: nothing to compare"
    lower = int((wide[first] < wide[second]).sum())
    means = f"{short(wide[first].mean())} against {short(wide[second].mean())}"
    return (f"{METRIC[metric]} of {names[0]} is lower than that of {names[1]} {count_of_pairs(lower, len(wide))}: "
            f"{'a mean of ' if len(wide) > 1 else ''}{means}")  # fmt: skip


@sentence
def helped(results: pd.DataFrame, estimator: str) -> str:
    """By method: on how many pairs it lowers the raw ECE of an estimator."""
    rows = results[(results.metric == "ece") & (results.estimator == estimator)]
    wide = rows.pivot(index=PAIR, columns="method", values="value").astype(float)
    if wide.empty:
        return f"ECE of {ESTIMATORS[estimator].plain}: nothing to compare"
    parts = [f"by {how(method, estimator)} {count_of_pairs(int((wide[method] < wide['']).sum()), len(wide))} (to "
             f"{short(wide[method].mean())})" for method in wide if method]  # fmt: skip
    mean = "a mean of " if len(wide) > 1 else ""
    raw = f"ECE of {ESTIMATORS[estimator].plain} (raw: {mean}{short(wide[''].mean())})"
    return f"{raw} is lowered {', '.join(parts)}"


def how(method: str, estimator: str = "ans_avg") -> str:
    """A method in words; `platt` of the answer's tokens is temperature."""
    if not method:
        return "raw"
    plain = method != "platt" or ESTIMATORS[estimator].needs == "answer"
    return METHODS[method].plain if plain else METHODS[method].label


@sentence
def errors(diagrams: Mapping[str, pd.DataFrame], estimator: str = "ans_avg") -> str:
    """ECE and bins of an estimator's reliability diagrams by method."""
    parts = []
    for method, bins in diagrams.items():
        few = int((bins["count"] < SMALL_BIN).sum())
        parts.append(f"{how(method, estimator)} {short(error(bins))} (bins: {len(bins)}, of few rows: {few})")
    return "ECE: " + ("; ".join(parts) or "nothing was measured")


@sentence
def binned(ablation: pd.DataFrame) -> str:
    """Largest change of ECE and MCE between two numbers of bins."""
    spread = {}
    for metric in ("ece", "mce"):
        rows = ablation[ablation.metric == metric]
        wide = rows.pivot(index=[*PAIR, "estimator"], columns="bins", values="value").astype(float)
        spread[metric] = float((wide.max(axis=1) - wide.min(axis=1)).max())
    return f"Between these numbers of bins ECE moves by at most {short(spread['ece'])}, MCE by {short(spread['mce'])}"


# ---- of tokens and passes


@sentence
def certain(tokens: pd.DataFrame, least: float = 0.99) -> str:
    """Which share of answer tokens has at least a probability, right and wrong apart."""
    shares = (np.exp(tokens.logprob) >= least).groupby(tokens.correct).mean()
    parts = [f"{share:.0%} in {'right' if kind else 'wrong'} ones" for kind, share in shares.items()]
    return f"Of the tokens of answers {' and '.join(parts[::-1])} have a probability of at least {least}"


@sentence
def told_apart(curves: pd.DataFrame) -> str:
    """Difference of two running means at their ends, where they are Seq Avg."""
    if curves.correct.nunique() < 2:
        return "All responses are of one kind: there is nothing to tell apart"
    end = right_minus_wrong(curves).iloc[-1]
    return f"At the end right less wrong is {end['mean']:.3f} (95% interval {end.low:.3f} to {end.high:.3f})"


@sentence
def settled(entropies: pd.DataFrame, after: int = 5) -> str:
    """By how much both terms of `eq:bald` grow up to some passes, and from there to the last."""
    if entropies.empty:
        return "No evaluation row with passes has an answer"
    wide, parts = entropies.pivot(index="passes", columns="term", values="mean"), []
    after, last = min(after, int(wide.index.max())), int(wide.index.max())
    for term in ("predictive", "conditional"):
        first, middle, end = (float(wide[term][n]) for n in (wide.index.min(), after, last))
        parts.append(f"{term} {first:.3f}, {middle:.3f} and {end:.3f}")
    return f"Entropy (nats) after 1, {after} and {last} passes: " + "; ".join(parts)


@sentence
def disagreed(tokens: pd.DataFrame) -> str:
    """Of `answer_tokens` of passes: the share that phi clips, and the mean BALD of right and of wrong answers."""
    means = tokens.groupby("correct").bald.mean()
    parts = [f"{'right' if kind else 'wrong'} {value:.3f}" for kind, value in means.items()]
    return f"{clipped_in_words(tokens)}; mean BALD of answers: {', '.join(parts[::-1])}"


@sentence
def grown(by_rate: pd.DataFrame) -> str:
    """By how much both terms grow from the smallest rate to the largest, and how many times as large they are then."""
    if by_rate.empty:
        return "No tuning row has an answer: there is nothing to compare"
    by_rate = by_rate.sort_values("rate")
    first, last = by_rate.iloc[0], by_rate.iloc[-1]
    parts = [f"{term} {last[term] - first[term]:+.3f} nats" + (f" ({last[term] / first[term]:.2f} times)"
             if first[term] else "") for term in ("predictive", "conditional")]  # fmt: skip
    return f"From rate {first.rate:.2f} to {last.rate:.2f}: " + ", ".join(parts)


@sentence
def describe_halves(halves: pd.DataFrame) -> str:
    """How far c_BALD of one half of the passes agrees with that of the other (as `split_half_reliability` returns it,
    by scope)."""
    if halves.empty:
        return "These passes were kept without their halves: there is nothing to compare"
    parts = [f"{scope} {row.correlation:.2f} (two draws of all passes: {row.expected:.2f} expected)"
             for scope, row in halves.iterrows()]  # fmt: skip
    return "c_BALD of either half correlates by: " + ", ".join(parts)


# ---- of other prompts, and of what a pass costs


@sentence
def describe_demonstration(summary: pd.DataFrame) -> str:
    """Of `summarize_ablation` of one pair: how many are right, and read, with each beginning of the prompt."""
    parts = [f"{row.demonstration} {row.accuracy * row.rows:.0f} right, {row.extracted * row.rows:.0f} read"
             for row in summary.itertuples()]  # fmt: skip
    return f"Of {summary['rows'].max()} questions, by what stands before them: {'; '.join(parts)}"


@sentence
def priced(operations: Mapping[str, int]) -> str:
    """Of `dropout.operations`: what the most passes cost, in those of one."""
    one, most = min(operations, key=int), max(operations, key=int)
    return f"{most} passes take {operations[most] / operations[one]:.2f} times the operations of {one}"


# ---- of calibrators


@sentence
def describe_learned(parameters: pd.DataFrame) -> str:
    """Of what `fitting.calibrate` learned: temperatures against 1, and the sign of Platt's slope."""
    values = {name: part["value"].dropna().astype(float) for name, part in parameters.groupby("metric")}
    t, a = (values.get(name, pd.Series(dtype=float)) for name in ("t", "a"))
    if t.empty:
        return "No temperature was fitted"
    said = f"t is above 1 {count_of_pairs(int((t > 1).sum()), len(t))} (from {t.min():.2f} to {t.max():.2f})"
    return said + (f"; a is negative in {int((a < 0).sum())} of {len(a)} fits of P(True)" if len(a) else "")


# ---- of transfer and sizes


@sentence
def carried(transferred: pd.DataFrame) -> str:
    """By method: in how many moves to another pair the carried calibrator still lowers the error."""
    moved = transferred[(transferred.metric == "delta_ece") & (transferred["method"] != "")]
    away = (moved.source_model != moved.model) | (moved.source_dataset != moved.dataset)
    if not away.any():
        return "There is no other pair to carry a calibrator to"
    parts = [f"{how(method)} in {int((part.value < 0).sum())} of {len(part)} (from {part.value.min():+.3f} to "
             f"{part.value.max():+.3f})" for method, part in moved[away].groupby("method", sort=False)]  # fmt: skip
    return "Carried to another pair, ECE falls below the raw score's: " + ", ".join(parts)


@sentence
def twins(both: pd.DataFrame) -> str:
    """Of the changes of ECE on all rows (`value`) and on those without a twin: how far apart they are at most."""
    apart = (both["value"].astype(float) - both["value_unseen"].astype(float)).abs().dropna()
    return f"Without twins the change differs by at most {short(apart.max())}" if len(apart) else "No pair has both"


@sentence
def sized(bands: pd.DataFrame) -> str:
    """By method: mean ECE over datasets with the fewest rows, and with all."""
    parts = []
    for method, part in bands[bands["method"] != ""].groupby("method", sort=False):
        fewest = part.groupby("dataset", sort=False).n.idxmin()
        most = part.groupby("dataset", sort=False).n.idxmax()
        few, every = part.loc[fewest], part.loc[most]
        parts.append(f"{how(method)} {short(few['mean'].mean())} with {few.n.min()} rows, "
                     f"{short(every['mean'].mean())} with all")  # fmt: skip
    return "Mean ECE: " + "; ".join(parts)


# ---- of what a confidence is good for


@sentence
def describe_worth(compared: pd.DataFrame, method: str = "") -> str:
    """Of `compare_with_base_rate`: on how many pairs each of the paper's estimators has a positive skill, by a
    `method`."""
    rows = compared[(compared.metric == "skill") & (compared["method"] == method)]
    counts = (rows["value"].astype(float) > 0).groupby(rows.estimator).agg(["sum", "size"])
    there = [e for e in in_declared_order(ESTIMATORS.values()) if e.name in counts.index]
    parts = [f"{e.plain} {count_of_pairs(*counts.loc[e.name])}" for e in there]
    return f"Better than the constant ({how(method) if method else 'raw'}): {', '.join(parts)}"


@sentence
def promised(thresholds: pd.DataFrame) -> str:
    """Of `selective_thresholds`: how many promises can be made, and how many of these the evaluation rows break."""
    made = thresholds.dropna(subset="threshold")
    if made.empty:
        return f"None of {len(thresholds)} promises can be made from these calibration rows"
    broken = int((~made["held"].astype(bool)).sum())
    return (f"{len(made)} of {len(thresholds)} promises can be made from these calibration rows; of these the "
            f"evaluation rows break {broken} by more than chance")  # fmt: skip
