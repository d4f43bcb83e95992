"""What 05, 06, 07 and 09 make of a run's signals and store, each in one function.

`verify` and the sensitivity of verdicts compute the same frames by `evaluate_calibration` and
`transfer_calibrators`, which store nothing.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import pandas as pd

from lib import store
from lib.analysis.signals import AnySignals, Signals
from lib.calibrate import sample_efficiency, transfer
from lib.calibrate.calibration_sets import no_response_left, token_signals
from lib.calibrate.fit_methods import Fit, calibrate
from lib.params import Resampling, SelectivePrediction, Subsampling, Transfer
from lib.score import selective
from lib.score.baselines import add_base_rate, compare_with_base_rate
from lib.score.confidence import confidence_frame, rows_at_selected_rate
from lib.score.estimators import ESTIMATORS
from lib.score.evaluation import RESAMPLED, evaluate
from lib.store import KEYS


def store_frames(
    run: str, signals: AnySignals, frames: Mapping[str, pd.DataFrame], settings: Mapping[str, Any]
) -> None:
    """Write frames by their name, `folder/frame`.

    Their manifests tell the choices, further `settings`, and the checksums of the responses.
    """
    parameters = signals.choices.model_dump() | dict(settings)
    inputs = dict(zip(signals.source["pair"], signals.source["sha256"], strict=True))
    for name, frame in frames.items():
        folder, file = name.split("/")
        path = store.frame_path(run, folder, file)
        store.write_frame(frame, path, parameters=parameters, inputs=inputs)


# ---- 05


def evaluate_calibration(
    signals: AnySignals, names: Collection[str] = RESAMPLED, resamples: int = 0, seed: int = 0
) -> pd.DataFrame:
    """Return the errors of every score, raw and calibrated, and what the calibrators learned.

    `names`: of the metrics. `resamples`, `seed`: of the 95% intervals, as for `evaluate`; none by
    default.
    """
    scores = signals.calibration.scores
    bins = signals.choices.bins
    errors = evaluate(scores, bins, names=names, resamples=resamples, seed=seed)
    return pd.concat([errors, signals.calibration.learned], ignore_index=True)


def store_calibration(run: str, signals: AnySignals, drawn: Resampling) -> pd.DataFrame:
    """Store the calibrated scores and their errors with intervals; return the errors."""
    results = evaluate_calibration(signals, RESAMPLED, drawn.resamples, drawn.seed)
    frames = {"calibration/confidence": signals.calibration.scores, "calibration/results": results}
    store_frames(run, signals, frames, drawn.model_dump())
    return results


# ---- 06


def store_curves(
    run: str, signals: AnySignals, sampled: Subsampling, figure_model: str
) -> pd.DataFrame:
    """Store and return the learning curves of every pair, in each way of sampling for
    `figure_model`, whose curves come first."""
    of_figure = {}
    others = {}
    for pair, data in signals.sets.items():
        if pair[0] == figure_model:
            of_figure[pair] = data
        else:
            others[pair] = data
    n_bins = signals.choices.bins
    parts = [
        sample_efficiency.learning_curves(of_figure, sampled, sample_efficiency.SAMPLING, n_bins),
        sample_efficiency.learning_curves(others, sampled, ["uniform"], n_bins),
    ]
    curves = pd.concat(parts, ignore_index=True)
    store_frames(run, signals, {"calibration/curves": curves}, sampled.model_dump())
    return curves


# ---- 07


def transfer_calibrators(signals: AnySignals, all_transfers: bool = False) -> pd.DataFrame:
    """Return the errors of Ans Avg after the calibrators of other pairs, from `transfer`."""
    fits = signals.calibration.fits
    return transfer.transfer(signals.sets, fits, signals.choices.bins, all_transfers)


def store_transfer(run: str, signals: AnySignals, settings: Transfer) -> pd.DataFrame:
    """Store and return `transfer_calibrators`."""
    transferred = transfer_calibrators(signals, settings.all_transfers)
    frames = {"calibration/transfer": transferred}
    store_frames(run, signals, frames, settings.model_dump())
    return transferred


# ---- 09


class FurtherScores(NamedTuple):
    """The scores of every estimator, the paper's and ours.

    `raw` has both splits. `compared` has the evaluation rows, raw and calibrated, and the constant
    of each pair. `fits` are the calibrators. `tuned` are the rows that chose a dropout rate.
    """

    raw: pd.DataFrame
    compared: pd.DataFrame
    fits: list[Fit]
    tuned: pd.DataFrame


def score_further_estimators(signals: Signals) -> FurtherScores:
    """Compute and calibrate the scores of every estimator. Raise UserError if the choices leave no
    response."""
    passes = rows_at_selected_rate(signals.dropout, signals.choices)
    raw = confidence_frame(
        signals.responses,
        signals.verification,
        passes,
        signals.choices,
        names=ESTIMATORS,
        further=token_signals(signals.sets),
    )
    calibrated = calibrate(raw, signals.sets)
    return FurtherScores(
        raw=raw,
        compared=add_base_rate(raw, calibrated.scores),
        fits=calibrated.fits,
        tuned=signals.dropout.loc[signals.dropout.tuning, KEYS],
    )


class SelectiveResults(NamedTuple):
    """What 09 makes: measures beside a constant, thresholds, curves of risk and coverage, and the
    calibrators."""

    scores: pd.DataFrame
    thresholds: pd.DataFrame
    curves: pd.DataFrame
    fits: list[Fit]


def store_selective(
    run: str, signals: AnySignals, settings: SelectivePrediction
) -> SelectiveResults:
    """Store and return when to answer, by every estimator. Raise UserError if the choices leave no
    response."""
    scores = []
    thresholds = []
    curves = []
    fits: list[Fit] = []
    for pair in signals.by_pair():
        if pair.responses.empty:
            continue
        further = score_further_estimators(pair)
        scores.append(
            compare_with_base_rate(
                further.compared, signals.choices.bins, settings.resamples, settings.seed
            )
        )
        thresholds.append(
            selective.selective_thresholds(
                further.raw,
                settings.target_precisions,
                settings.precision_confidence,
                settings.seed,
                {"c_bald": further.tuned},
            )
        )
        curves.append(selective.risk_coverage_curves(further.compared))
        fits += further.fits
    if not scores:
        raise no_response_left()
    made = SelectiveResults(
        scores=pd.concat(scores, ignore_index=True),
        thresholds=pd.concat(thresholds, ignore_index=True),
        curves=pd.concat(curves, ignore_index=True),
        fits=fits,
    )
    frames = {
        "selective/scores": made.scores,
        "selective/thresholds": made.thresholds,
        "selective/curves": made.curves,
    }
    store_frames(run, signals, frames, settings.model_dump())
    return made
