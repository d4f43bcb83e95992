"""Statistics of verification besides its confidence, by pair: tokens saved, option mass, comparison of both
variants."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import linregress, spearmanr

from lib.score.confidence import option_log_odds
from lib.store import PAIR


def summarize_token_reduction(verification: pd.DataFrame) -> pd.DataFrame:
    """Return the tokens saved in situ as rows like `metrics.evaluate`: mean of 1 - query / standard prompt, percent."""
    part = verification[verification.split == "evaluation"]
    rows = part.assign(value=100 * (1 - part.in_situ_tokens / part.standard_tokens)).groupby(PAIR, sort=False)
    means = rows.value.mean().reset_index()
    return means.assign(estimator="p_true_insitu", metric="token_reduction_pct", reason="")


def option_mass(verification: pd.DataFrame, options: str = "A/B") -> pd.DataFrame:
    """Return the total probability of both options as rows like `metrics.evaluate`.

    `option_mass` is its median over responses, and `option_mass_low` the share of responses below .5. If the mass is
    small, the model would continue differently, and P(True) compares two unlikely tokens.
    """
    part, rows = option_log_odds(verification[verification.split == "evaluation"], options), []
    for estimator, variant in (("p_true", "standard"), ("p_true_insitu", "in_situ")):
        masses = part[f"{variant}_mass"].groupby([part.model, part.dataset], sort=False)
        for metric, value in (("option_mass", np.median), ("option_mass_low", lambda mass: np.mean(mass < 0.5))):
            found = masses.agg(value).rename("value").reset_index().assign(n=masses.size().to_numpy())
            rows.append(found.assign(estimator=estimator, metric=metric, reason=""))
    return pd.concat(rows, ignore_index=True)


def ece_by_prompt(results: pd.DataFrame, model: str, datasets: Mapping[str, str]) -> pd.DataFrame:
    """Return the data of `fig:main_analysis` (c): dataset (its label), standard, in situ (both raw ECE) of one model.

    `results` are from `bootstrap`; the ends of their intervals are included (standard low, standard high, and so on).
    Models without P(True) and datasets without a value have no row.
    """
    bars = {"p_true": "standard", "p_true_insitu": "in situ"}
    part = results.query("metric == 'ece' and model == @model and method == '' and estimator in @bars")
    wide = part.pivot(index="dataset", columns="estimator", values=["value", "low", "high"]).astype(float)
    wide = wide.reindex(index=[name for name in datasets if name in wide.index])
    columns = {f"{bars[name]} {end}".removesuffix(" value"): wide[end, name].array for end, name in wide}
    return pd.DataFrame({"dataset": [datasets[name] for name in wide.index], **columns})


def verification_costs(verification: pd.DataFrame, generations: pd.DataFrame) -> pd.DataFrame:
    """Return what determines the tokens of verification, by pair.

    `r2`: R squared of the standard prompt's tokens on those it encodes again: the question (in its prompt) and the
    answer without thinking. `saving_with_length`: rank correlation of the share saved in situ with the response's
    length.
    """
    keys, parts = [*PAIR, "split", "example_id"], []
    length = generations[keys].assign(length=generations.token_ids.map(len))
    length["again"] = generations.prompt_tokens + (length["length"] - generations.thinking_end).clip(lower=0)
    rows = verification[verification.split == "evaluation"].merge(length, on=keys)
    for pair, part in rows.groupby(PAIR, sort=False):
        saved = 1 - part.in_situ_tokens / part.standard_tokens
        varied = part.again.nunique() > 1
        r2 = float(linregress(part.again, part.standard_tokens).rvalue ** 2) if varied else np.nan
        parts.append((*pair, r2, rank_correlation(list(saved), list(part.length))))
    return pd.DataFrame(parts, columns=[*PAIR, "r2", "saving_with_length"])


def rank_correlation(values: Any, others: Any) -> float:
    """Return Spearman's rank correlation; NaN if one of both is constant."""
    if len(set(values)) < 2 or len(set(others)) < 2:
        return np.nan
    return float(spearmanr(values, others).statistic)
