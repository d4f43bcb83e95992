"""Statistics of multi-pass confidence, by pair: the tokens of verification, and the spread of
stochastic passes.

Inputs are frames as stored. Rows of passes that the choices omit, or without an answer under them,
are excluded.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp

from lib import stored_columns
from lib.analysis.resampled_scores import measure_refitted
from lib.analysis.token_statistics import apply_by_pair, mean_with_interval
from lib.params import EvaluationChoices
from lib.score.bald import compute_bald
from lib.score.confidence import MARGINS, confidence_frame, option_log_odds
from lib.score.estimators import p_true
from lib.score.evaluation import evaluate
from lib.store import KEYS, PAIR, evaluation_rows

# of `eq:bald`: the entropy of the mean, the mean of the entropies
BALD_TERMS = ("predictive", "conditional")


# ---- P(True)


def summarize_token_reduction(verification: pd.DataFrame) -> pd.DataFrame:
    """Return the tokens saved in situ as rows like `evaluate`: mean of 1 - query / standard prompt,
    in percent."""
    rows = evaluation_rows(verification)
    saved = 100 * (1 - rows.in_situ_tokens / rows.standard_tokens)
    by_pair = rows.assign(value=saved).groupby(PAIR, sort=False)
    means = by_pair.value.mean().reset_index()
    return means.assign(estimator="p_true_insitu", metric="token_reduction_pct", reason="")


def verification_costs(verification: pd.DataFrame, generations: pd.DataFrame) -> pd.DataFrame:
    """Return two statistics of verification by pair; NaN where tokens do not vary.

    `r2`: R squared of the standard prompt's tokens on those it encodes again: the question (in its
    prompt) and the answer without thinking. `saving_with_length`: rank correlation of the share
    saved in situ with the response's length.
    """
    length = generations.token_ids.map(len)
    without_thinking = (length - generations.thinking_end).clip(lower=0)
    again = generations.prompt_tokens + without_thinking
    lengths = generations[KEYS].assign(length=length, again=again)
    rows = verification.merge(lengths, on=KEYS)
    saved = 1 - rows.in_situ_tokens / rows.standard_tokens
    return apply_by_pair(correlate_costs, rows.assign(saved=saved))


def correlate_costs(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the row of `verification_costs` of one pair."""
    r = rows.again.corr(rows.standard_tokens, min_periods=2)
    rank_correlation = rows.saved.rank().corr(rows["length"].rank())
    return pd.DataFrame([{"r2": r**2, "saving_with_length": rank_correlation}])


def ece_by_prompt(results: pd.DataFrame, model: str, datasets: Mapping[str, str]) -> pd.DataFrame:
    """Return the data of `fig:main_analysis` (c): dataset (its label), standard, in situ (both raw
    ECE) of one model.

    `results` are from `evaluate`; the ends of their intervals are included (standard low, standard
    high, and so on). Models without P(True) and datasets without a value have no row.
    """
    bars = {"p_true": "standard", "p_true_insitu": "in situ"}
    rows = results[(results.metric == "ece") & (results.model == model)]
    rows = rows[(rows["method"] == "") & rows.estimator.isin(bars)]
    numbers = ["value", "low", "high"]
    wide = rows.pivot(index="dataset", columns="estimator", values=numbers).astype(float)
    with_value = [name for name in datasets if name in wide.index]
    wide = wide.reindex(index=with_value)
    columns = {"dataset": [datasets[name] for name in with_value]}
    for end, name in wide:
        label = bars[name]
        if end != "value":
            label = f"{label} {end}"
        columns[label] = wide[end, name].array
    return pd.DataFrame(columns)


def option_probabilities(verified: pd.Series, words: str = "A/B") -> pd.DataFrame:
    """Return P(True) of one row of a verification frame, standard and in situ.

    Columns: probability of either option (summed over counted spellings), the confidence, and the
    number of encoded tokens.
    """
    odds = option_log_odds(pd.DataFrame([verified]), words).iloc[0]
    yes, no = words.split("/")
    records = {}
    for variant, margin in MARGINS.items():
        true = p_true(odds[margin])
        mass = odds[f"{variant}_mass"]
        records[variant.replace("_", " ")] = {
            yes: mass * true,
            no: mass * (1 - true),
            "P(True)": true,
            "tokens": verified[f"{variant}_tokens"],
        }
    return pd.DataFrame(records).T.astype({"tokens": int})


# ---- MC dropout


def entropy_curves(dropout: pd.DataFrame) -> pd.DataFrame:
    """Return both terms of `eq:bald` against the number of passes: mean and 95% interval over one
    pair's examples.

    An example's value is the mean over its answer tokens. Columns: term, passes, mean, low, high,
    n.
    """
    parts = []
    for term in BALD_TERMS:
        # (examples, T)
        curves = np.stack([mean_over_tokens(entropies) for entropies in dropout[term]])
        passes = np.arange(1, curves.shape[1] + 1)
        parts.append(mean_with_interval(curves).assign(term=term, passes=passes))
    return pd.concat(parts, ignore_index=True)


def mean_over_tokens(entropies: Any) -> np.ndarray:
    """Return the mean over an answer's tokens of entropies (T, m) after the first t passes,
    (T,)."""
    return np.array([np.mean(tokens) for tokens in entropies])


def keep_parsed_answers(dropout: pd.DataFrame, responses: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose response has an answer under the choices, with their correctness."""
    known = responses.loc[responses.answer.notna(), [*KEYS, "correct"]]
    return dropout.merge(known, on=KEYS, validate="many_to_one")


def summarize_passes(passes: pd.DataFrame) -> pd.DataFrame:
    """Return statistics of one pair at one rate, from evaluation rows of `keep_parsed_answers`.

    `excess`: mean over rows of BALD less half of the predictive entropy, both means over the
    answer's tokens, in nats. `growth`: the smallest step of the mean predictive entropy up to the
    fifth pass. Each has a 95% interval (`excess_low`, `growth_high`, ...). NaN where nothing is
    known.
    """
    bald = np.array([compute_bald(row).mean() for row in passes.itertuples()])
    curves = np.stack([mean_over_tokens(entropies) for entropies in passes.predictive])
    excess = mean_with_t_interval(bald - curves[:, -1] / 2)
    growth = (np.nan, np.nan, np.nan)
    steps = np.diff(curves[:, :5], axis=1).T
    if len(steps):
        growth = np.min([mean_with_t_interval(step) for step in steps], axis=0)
    columns = ["excess", "excess_low", "excess_high", "growth", "growth_low", "growth_high"]
    return pd.DataFrame([[*excess, *growth]], columns=columns)


def mean_with_t_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Return the mean of n rows and its 95% interval by Student's t; NaN for the ends of one
    row."""
    if len(values) < 2:
        return float(np.mean(values)), np.nan, np.nan
    low, high = ttest_1samp(values, 0).confidence_interval()
    return float(values.mean()), float(low), float(high)


def scores_after_passes(
    responses: pd.DataFrame, dropout: pd.DataFrame, choices: EvaluationChoices, count: int | None
) -> pd.DataFrame:
    """Return c_BALD of the evaluation rows after the first `count` passes (None: all) at the
    selected rate, as a confidence frame."""
    passes = evaluation_rows(dropout[dropout.selected]).copy()
    for name in (*BALD_TERMS, "top_k", "top_p"):
        passes[name] = [values[:count] for values in passes[name]]
    return confidence_frame(responses, dropout=passes, choices=choices, names=["c_bald"])


def ece_by_number_of_passes(
    responses: pd.DataFrame, dropout: pd.DataFrame, choices: EvaluationChoices
) -> pd.DataFrame:
    """Return the ECE of c_BALD on the evaluation rows after 1..T passes at the selected rate.

    Columns: model, dataset, passes, ece.
    """
    passes = evaluation_rows(dropout[dropout.selected])
    most = max(map(len, passes.predictive), default=1)
    parts = []
    for count in range(1, most + 1):
        scores = scores_after_passes(responses, dropout, choices, count)
        errors = evaluate(scores, choices.bins, names=["ece"])
        parts.append(errors.assign(passes=count))
    results = pd.concat(parts, ignore_index=True).rename(columns={"value": "ece"})
    return results[[*PAIR, "ece", "passes"]].astype({"ece": float})


def pass_scores(
    responses: pd.DataFrame, dropout: pd.DataFrame, choices: EvaluationChoices
) -> pd.DataFrame:
    """Return scores of passes at the selected rate, as rows of a confidence frame (evaluation
    rows).

    Estimators: c_BALD after five passes, where there are more (`c_bald_after_five`), and after all
    on responses whose most probable answer tokens no pass changes (`c_bald_unchanged`).
    """
    if dropout.empty:
        return stored_columns.empty_frame("confidence")
    chosen = evaluation_rows(dropout[dropout.selected])
    longer = chosen[chosen.predictive.map(len) > 5]
    unchanged = chosen[~chosen.top_changed.map(any)]
    after_five = scores_after_passes(responses, longer, choices, 5)
    of_unchanged = scores_after_passes(responses, unchanged, choices, None)
    parts = [
        after_five.assign(estimator="c_bald_after_five"),
        of_unchanged.assign(estimator="c_bald_unchanged"),
    ]
    return pd.concat(parts)


def compare_rates(
    responses: pd.DataFrame,
    dropout: pd.DataFrame,
    choices: EvaluationChoices,
    draws: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how far the ECE of c_BALD differs among dropout rates, beside what chance gives.

    The tuning rows of a pair have a score at each rate. If the rate made no difference, the scores
    of a row could be exchanged: each draw permutes them within rows.

    Returns
    -------
    DataFrame
        PAIR, `ece_range` (highest less lowest ECE of the rates), and `chance_high`, the 95th
        percentile of that range over the draws.
    """
    columns = [*PAIR, "ece_range", "chance_high"]
    tuning = dropout[dropout.tuning.astype(bool)]
    by_rate = []
    for rate, part in tuning.groupby("rate"):
        scores = confidence_frame(responses, dropout=part, choices=choices, names=["c_bald"])
        by_rate.append(scores.assign(rate=rate))
    if not by_rate:
        return pd.DataFrame(columns=columns)
    records = []
    for pair, rows in pd.concat(by_rate).groupby(PAIR, sort=False):
        ranges = compare_rates_of_pair(rows, choices.bins, draws, seed)
        records.append((*pair, *ranges))
    return pd.DataFrame(records, columns=columns)


def compare_rates_of_pair(
    scores: pd.DataFrame, n_bins: int, draws: int, seed: int
) -> tuple[float, float]:
    """Return the range of the ECE of one pair's scores at several rates, and the 95th percentile of
    the range by chance."""
    by_row = scores.pivot(index=["example_id", "correct"], columns="rate", values="confidence")
    by_row = by_row.dropna().sort_index()
    correct = by_row.index.get_level_values("correct").to_numpy(bool)
    confidence = by_row.to_numpy()  # (n, rates)
    rng = np.random.default_rng([seed, len(by_row)])
    exchanged = [rng.permuted(confidence, axis=1) for _ in range(draws)]
    (observed,) = ranges_of_errors(confidence[None], correct, n_bins)
    by_chance = ranges_of_errors(np.array(exchanged), correct, n_bins)
    return observed, np.percentile(by_chance, 95)


def ranges_of_errors(scores: np.ndarray, correct: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the highest less the lowest ECE among rates, (draws,), of scores (draws, n, rates)."""
    draws, n, rates = scores.shape
    columns = scores.transpose(0, 2, 1).reshape(draws * rates, n)
    errors = measure_refitted("ece", columns, correct, np.ones_like(columns), n_bins)
    return np.ptp(errors.reshape(draws, rates), axis=1)


def split_half_reliability(
    responses: pd.DataFrame, dropout: pd.DataFrame, choices: EvaluationChoices
) -> pd.DataFrame:
    """Compare c_BALD from the two halves of the passes at the selected rate, by pair.

    Parameters
    ----------
    responses : from `interpret_responses`; rows without an answer are omitted
    dropout : a dropout frame; rows of a single pass have no halves and are omitted

    Returns
    -------
    model, dataset, rows; `correlation` r of both halves' c_BALD (Pearson's), and
    `expected` of two draws of all T passes, 2 r / (1 + r) (Spearman-Brown); `ece` and `auroc` of
    either half, ending in _1 and _2. With other phi than `clip`, both halves are divided by the
    support of all passes.
    """
    columns = [*PAIR, "rows", "correlation", "expected", "ece_1", "ece_2", "auroc_1", "auroc_2"]
    known = responses[responses.answer.notna()]
    selected = evaluation_rows(dropout[dropout.selected])
    passes = selected.merge(known[KEYS], on=KEYS)
    passes = passes[passes.half_predictive.map(len) == 2]
    if passes.empty:
        return pd.DataFrame(columns=columns)
    scores = scores_of_halves(known, passes, choices)
    results = evaluate(scores, choices.bins, names=["ece", "auroc"]).astype({"value": float})
    named = results.assign(metric=results.metric + "_" + results.estimator)
    table = named.pivot(index=PAIR, columns="metric", values="value").rename_axis(columns=None)
    pairs = scores.pivot(index=KEYS, columns="estimator", values="confidence").groupby(PAIR)
    r = pairs.apply(lambda part: part["1"].corr(part["2"]))
    of_all_passes = 2 * r / (1 + r)
    table = table.assign(rows=pairs.size(), correlation=r, expected=of_all_passes)
    return table.reset_index()[columns]


def scores_of_halves(
    responses: pd.DataFrame, passes: pd.DataFrame, choices: EvaluationChoices
) -> pd.DataFrame:
    """Return c_BALD of each half of the passes, as a confidence frame of estimators 1 and 2."""
    parts = []
    for half in (0, 1):
        of_half = passes.copy()
        for term in BALD_TERMS:
            of_half[term] = [[halves[half]] for halves in passes[f"half_{term}"]]
        scores = confidence_frame(responses, dropout=of_half, choices=choices, names=["c_bald"])
        parts.append(scores.assign(estimator=f"{half + 1}"))
    return pd.concat(parts)
