"""From stored model outputs to confidence: the estimators' signals, and the tidy frame of their
scores.

None of this needs the model. `params.EvaluationChoices` sets which options P(True) compares and
which phi turns BALD into confidence.
"""

from collections.abc import Iterable, Sequence

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
# of signals that come from other frames than the responses: which of them comes first
SIGNAL_SOURCES = {
    "standard_margin": 1,
    "in_situ_margin": 1,
    "bald": 2,
    "answer_margin": 3,
    "answer_entropy": 3,
}
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

    Examples
    --------
    >>> keys = {"model": "m", "dataset": "d", "split": "evaluation", "example_id": "a"}
    >>> row = keys | {"correct": True, "response": np.log([1, 0.5]), "answer": np.log([0.5])}
    >>> confidence_frame(pd.DataFrame([row]))[["estimator", "confidence", "correct"]].round(3)
       estimator  confidence  correct
    0    seq_avg       0.750     True
    1  seq_joint       0.707     True
    2    ans_avg       0.500     True
    3  ans_joint       0.500     True
    """
    if names is None:
        names = [name for name, estimator in ESTIMATORS.items() if not estimator.own]
    estimators = in_column_order(ESTIMATORS[name] for name in names)
    signals = []
    if verification is not None and len(verification):
        signals.append(option_log_odds(verification, choices.options))
    if dropout is not None and len(dropout):
        signals.append(bald_signal(dropout, responses, choices.phi))
    if further is not None:
        signals.append(further)
    responses = responses.assign(answered=responses.answer.notna())
    graded = responses[[*KEYS, "correct", "answered"]]
    sources = [responses]
    for signal in signals:
        sources.append(graded.merge(signal, on=KEYS, validate="one_to_one"))
    parts = []
    for source in sources:
        for estimator in estimators:
            if estimator.needs in source:
                parts.append(confidence_rows(source, estimator))
    if not parts:
        return stored_columns.empty_frame("confidence")
    return pd.concat(parts, ignore_index=True)


def in_frame_order(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the confidence frames of several pairs in one, its rows in the order of
    `confidence_frame`: by source of the signal, then by estimator, then by pair.

    Examples
    --------
    >>> first = pd.DataFrame({"model": "m", "estimator": ["seq_avg", "ans_avg"]})
    >>> in_frame_order([first, first.assign(model="n")]).to_numpy().tolist()
    [['m', 'seq_avg'], ['n', 'seq_avg'], ['m', 'ans_avg'], ['n', 'ans_avg']]
    """
    by_column = in_column_order(ESTIMATORS.values())
    by_source = sorted(by_column, key=lambda estimator: SIGNAL_SOURCES.get(estimator.needs, 0))
    place = {estimator.name: i for i, estimator in enumerate(by_source)}
    rows = pd.concat(frames, ignore_index=True)
    order = rows.estimator.map(place).to_numpy().argsort(kind="stable")
    return rows.iloc[order].reset_index(drop=True)


def confidence_rows(source: pd.DataFrame, estimator: Estimator) -> pd.DataFrame:
    """Return the rows of a confidence frame of one estimator.

    `source` has KEYS, correct, the estimator's signal, and `answered`: False where a response
    without an answer has confidence 0 (`missing: zero`).

    Examples
    --------
    >>> source = pd.DataFrame({"example_id": ["a", "b"], "answer": [np.log([0.5]), None]})
    >>> source = source.assign(model="m", dataset="d", split="evaluation", correct=[True, False])
    >>> source["answered"] = source.answer.notna()
    >>> confidence_rows(source, ESTIMATORS["ans_avg"]).confidence.tolist()
    [0.5, 0.0]
    """
    is_margin = estimator.needs in MARGINS.values()
    if is_margin:
        source = source[source[estimator.needs].notna()]  # a server may give one of both
    signal = source[estimator.needs]
    confidence = np.zeros(len(source))
    for i, (value, answered) in enumerate(zip(signal, source.answered, strict=True)):
        if answered and value is not None:
            confidence[i] = estimator.function(value)
    rows = source[KEYS].assign(estimator=estimator.name, confidence=confidence)
    rows["correct"] = source.correct
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

    Examples
    --------
    >>> row = {"model": "m", "dataset": "d", "split": "evaluation", "example_id": "a"}
    >>> row["spellings"] = ["A", "B"]
    >>> for variant in ("standard", "in_situ"):
    ...     row |= {f"{variant}_logits": np.log([0.6, 0.2]), f"{variant}_logz": 0.0}
    >>> option_log_odds(pd.DataFrame([row]))[["standard_mass", "standard_margin"]].round(3)
       standard_mass  standard_margin
    0            0.8            1.099
    """
    if verification.empty:  # of a model whose server was not asked
        masses = [f"{variant}_mass" for variant in MARGINS]
        columns = [*KEYS, *masses, *MARGINS.values()]
        return verification.reindex(columns=columns)
    rows = verification.reset_index(drop=True)
    parts = []
    for spellings, part in rows.groupby(rows.spellings.map(tuple), sort=False):
        spelled_true, spelled_false = balance_spellings(spellings, options)
        true = [spellings.index(spelling) for spelling in spelled_true]
        false = [spellings.index(spelling) for spelling in spelled_false]
        odds = part[KEYS].copy()
        for variant, margin in MARGINS.items():
            logits = np.stack(list(part[f"{variant}_logits"]))  # (rows, spellings)
            logits = logits.astype(np.float64)
            with np.errstate(invalid="ignore"):  # NaN where a server gave no verdict
                log_true = np.logaddexp.reduce(logits[:, true], axis=1)
                log_false = np.logaddexp.reduce(logits[:, false], axis=1)
                log_both = np.logaddexp(log_true, log_false)
            log_all = part[f"{variant}_logz"].to_numpy()
            odds[f"{variant}_mass"] = np.exp(log_both - log_all)
            odds[margin] = log_true - log_false
        parts.append(odds)
    return pd.concat(parts).loc[rows.index]


# ---- the dropout rate


def rows_at_selected_rate(
    dropout: pd.DataFrame, choices: EvaluationChoices = EvaluationChoices()
) -> pd.DataFrame:
    """Return the rows at the selected rate, one per example; without tuning rows unless
    `fit_on_tuning_rows`.

    Examples
    --------
    >>> dropout = pd.DataFrame({"rate": [0.1, 0.2], "selected": [False, True], "tuning": True})
    >>> rows_at_selected_rate(dropout).rate.tolist()
    [0.2]
    """
    rows = dropout[dropout.selected]
    if choices.fit_on_tuning_rows:
        return rows
    return rows[~rows.tuning]


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

    Examples
    --------
    >>> keys = {"model": "m", "dataset": "d", "split": "calibration", "example_id": "a"}
    >>> responses = pd.DataFrame([keys | {"correct": True, "answer": np.log([0.5])}])
    >>> passes = {"predictive": [[0.5]], "conditional": [[0.25]], "rate": 0.1, "tuning": True}
    >>> results = evaluate_rate_grid(responses, pd.DataFrame([keys | passes]), EvaluationChoices())
    >>> results[["metric", "value", "rate"]].head(2)
      metric  value  rate
    0    acc    1.0   0.1
    1    ece   0.25   0.1
    """
    parts = []
    for rate, part in dropout[dropout.tuning].groupby("rate"):
        scores = confidence_frame(responses, dropout=part, choices=choices, names=["c_bald"])
        results = evaluate(scores, choices.bins, split="calibration")
        parts.append(results.assign(rate=rate))
    if not parts:  # the columns, without rows
        return evaluate(stored_columns.empty_frame("confidence")).assign(rate=0.0)
    return pd.concat(parts, ignore_index=True)


def select_dropout_rate(results: pd.DataFrame, rates: Iterable[float] = ()) -> float:
    """Return the rate of lowest ECE in one pair's grid; ties go to the lower rate.

    Parameters
    ----------
    results : DataFrame
        From `evaluate_rate_grid`.
    rates : iterable of float
        The lowest of these is returned if no tuning row has an answer.

    Examples
    --------
    >>> results = pd.DataFrame({"metric": "ece", "value": [0.25, 0.125, 0.125]})
    >>> select_dropout_rate(results.assign(rate=[0.1, 0.2, 0.15]))
    0.15
    """
    errors = results[results.metric == "ece"].sort_values(["value", "rate"])
    if errors.empty:
        return min(rates)
    return float(errors.rate.iloc[0])
