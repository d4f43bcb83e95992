"""From stored model outputs to confidence: the estimators' signals, and the tidy frame of their
scores.

None of this needs the model. `params.EvaluationChoices` sets which options P(True) compares and
which phi turns BALD into confidence.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from lib import stored_columns
from lib.params import EvaluationChoices
from lib.score.bald import bald_signal
from lib.score.estimators import ESTIMATORS, Estimator, in_column_order
from lib.score.evaluation import evaluate
from lib.store import KEYS
from lib.tasks.prompts import balance_spellings

# signal by the variant of P(True)
MARGINS = {"standard": "standard_margin", "in_situ": "in_situ_margin"}
# of a confidence of 0: infinity cannot be fitted
LOWEST_MARGIN = float(np.log(np.finfo(float).eps))


def confidence_frame(
    responses: pd.DataFrame,
    verification: pd.DataFrame | None = None,
    dropout: pd.DataFrame | None = None,
    choices: EvaluationChoices = EvaluationChoices(),
    names: Iterable[str] | None = None,
    further: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Compute the estimators' scores from their signals (`tab:estimators`).

    Parameters
    ----------
    responses : DataFrame
        From `interpret_responses`.
    verification : DataFrame, optional
        P(True), as stored by 03.
    dropout : DataFrame, optional
        Stochastic passes as stored by 04, at one rate per example.
    choices : EvaluationChoices
        Which options P(True) compares, and which phi turns BALD into confidence.
    names : iterable of str, optional
        Estimators; by default all of the paper with available signals.
    further : DataFrame, optional
        KEYS and other signals, a column each.

    Returns
    -------
    DataFrame
        KEYS, estimator, `confidence` in [0, 1], `correct`, and `margin` for estimators whose Platt
        scaling needs it. A response without the signal has confidence 0, and under `missing: zero`
        one without an answer, too.
    """
    if names is None:
        names = [name for name, estimator in ESTIMATORS.items() if not estimator.own]
    wanted = in_column_order(ESTIMATORS[name] for name in names)
    signals = []
    if verification is not None and len(verification):
        signals.append(option_log_odds(verification, choices.options))
    if dropout is not None and len(dropout):
        signals.append(bald_signal(dropout, responses, choices.phi))
    if further is not None:
        signals.append(further)
    responses = responses.assign(answered=responses.answer.notna())
    known = responses[[*KEYS, "correct", "answered"]]
    sources = [responses]
    for signal in signals:
        sources.append(known.merge(signal, on=KEYS, validate="one_to_one"))
    parts = []
    for source in sources:
        for estimator in wanted:
            if estimator.needs in source:
                parts.append(confidence_rows(source, estimator))
    return (
        pd.concat(parts, ignore_index=True) if parts else stored_columns.empty_frame("confidence")
    )


def confidence_rows(source: pd.DataFrame, estimator: Estimator) -> pd.DataFrame:
    """Return the rows of a confidence frame of one estimator.

    `source` has KEYS, correct, the estimator's signal, and `answered`: False where a response
    without an answer has confidence 0 (`missing: zero`).
    """
    is_margin = estimator.needs in MARGINS.values()
    if is_margin:
        source = source[source[estimator.needs].notna()]  # a server may give one of both
    signal = source[estimator.needs]
    confidence = []
    for value, answered in zip(signal, source.answered, strict=True):
        confidence.append(estimator.function(value) if answered and value is not None else 0.0)
    rows = source[KEYS].assign(
        estimator=estimator.name, confidence=np.array(confidence, float), correct=source.correct
    )
    if is_margin:
        rows["margin"] = signal.where(source.answered, LOWEST_MARGIN)
    return rows


# ---- P(True)


def option_log_odds(verification: pd.DataFrame, options: str = "A/B") -> pd.DataFrame:
    """Compare the two options of P(True).

    Parameters
    ----------
    verification : DataFrame
        As stored by 03.
    options : str
        Words of the options, such as "A/B". Both count in the same forms, bare and after a space.

    Returns
    -------
    DataFrame
        KEYS; `standard_margin` and `in_situ_margin`, the log-probability of the option for True
        minus that of the other; `standard_mass` and `in_situ_mass`, the total probability of both.

    Raises
    ------
    UserError
        No single token spells one of the options.
    """
    if verification.empty:  # of a model whose server was not asked
        masses = [f"{variant}_mass" for variant in MARGINS]
        return verification.reindex(columns=[*KEYS, *masses, *MARGINS.values()])
    verification, parts = verification.reset_index(drop=True), []
    for spellings, rows in verification.groupby(verification.spellings.map(tuple), sort=False):
        part, sides = rows[KEYS].copy(), balance_spellings(spellings, options)
        for variant, margin in MARGINS.items():
            logits = np.stack(list(rows[f"{variant}_logits"])).astype(np.float64)
            places = [[spellings.index(spelling) for spelling in side] for side in sides]
            with np.errstate(invalid="ignore"):  # NaN where a server gave no verdict
                true, false = (np.logaddexp.reduce(logits[:, place], axis=1) for place in places)
                part[f"{variant}_mass"] = np.exp(
                    np.logaddexp(true, false) - rows[f"{variant}_logz"].to_numpy()
                )
            part[margin] = true - false
        parts.append(part)
    return pd.concat(parts).loc[verification.index]


# ---- the dropout rate


def rows_at_selected_rate(
    dropout: pd.DataFrame, choices: EvaluationChoices = EvaluationChoices()
) -> pd.DataFrame:
    """Return the rows at the selected rate, one per example; without tuning rows unless
    `fit_on_tuning_rows`."""
    rows = dropout[dropout.selected]
    return rows if choices.fit_on_tuning_rows else rows[~rows.tuning]


def evaluate_rate_grid(
    responses: pd.DataFrame, dropout: pd.DataFrame, choices: EvaluationChoices
) -> pd.DataFrame:
    """Evaluate c_BALD at every dropout rate, on the tuning rows.

    Parameters
    ----------
    responses : DataFrame
        From `interpret_responses`.
    dropout : DataFrame
        Passes at several rates; only rows marked `tuning` count.
    choices : EvaluationChoices

    Returns
    -------
    DataFrame
        The columns of `evaluate`, and the `rate`.
    """
    # the columns, without rows
    parts = [evaluate(stored_columns.empty_frame("confidence")).assign(rate=0.0)]
    for rate, part in dropout[dropout.tuning].groupby("rate"):
        scores = confidence_frame(responses, dropout=part, choices=choices, names=["c_bald"])
        parts.append(evaluate(scores, choices.bins, split="calibration").assign(rate=rate))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def select_dropout_rate(results: pd.DataFrame, rates: Iterable[float] = ()) -> float:
    """Return the rate of lowest ECE in one pair's grid; ties go to the lower rate.

    Parameters
    ----------
    results : DataFrame
        From `evaluate_rate_grid`.
    rates : iterable of float
        The lowest of these is returned if no tuning row has an answer.
    """
    errors = results[results.metric == "ece"].sort_values(["value", "rate"])
    return float(errors.rate.iloc[0]) if len(errors) else min(rates)
