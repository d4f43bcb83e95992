"""The stored model outputs of a run, interpreted under its choices, and the frames computed from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from lib import params, store
from lib.analysis import dropout_statistics, token_statistics, verification_statistics
from lib.analysis.calibration_statistics import describe_calibration_split
from lib.analysis.token_statistics import apply_by_pair
from lib.calibrate.fitting import DataByPair, calibrate, calibration_data, transfer
from lib.params import EvaluationChoices
from lib.score.confidence import confidence_frame, evaluate_rate_grid, rows_at_selected_rate
from lib.score.estimators import ESTIMATORS
from lib.score.interpretation import interpret_responses
from lib.score.metrics import METRICS, ablate_bins, evaluate
from lib.store import KEYS, PAIR

SIGNAL_KINDS = ("generations", "verification", "dropout")  # stored model outputs
CALIBRATED = ("result_calibration", "result_calibration_full", "result_isotonic")  # tables from one frame
TRANSFER_TABLES = ("calibration_transfer_full", "calibration_transfer_summary")
Frames = dict[str, pd.DataFrame]


@dataclass(frozen=True, eq=False)
class RunSignals:
    """The signals of a run, interpreted under its choices.

    `responses` are from `interpret_responses`, `sets` are the calibration and evaluation rows of calibrators, and
    `confidence` has every estimator.
    """

    generations: pd.DataFrame = field(repr=False)
    verification: pd.DataFrame = field(repr=False)
    dropout: pd.DataFrame = field(repr=False)
    choices: EvaluationChoices
    responses: pd.DataFrame = field(repr=False)
    sets: DataByPair = field(repr=False)
    confidence: pd.DataFrame = field(repr=False)

    @classmethod
    def of(cls, run: str, models: Sequence[str], datasets: Sequence[str], choices: EvaluationChoices) -> "RunSignals":
        """Load the signals of a run, or the shipped ones; for unavailable models only the responses.

        Raise UserError if neither has them.
        """
        at_hand = params.models_at_hand(models)
        generations = store.load_frames(run, "generations", models, datasets)[0]
        verification = store.load_frames(run, "verification", at_hand, datasets)[0]
        dropout = store.load_frames(run, "dropout", at_hand, datasets, may_lack=True)[0]
        return cls.from_frames(generations, verification, dropout, choices)

    @classmethod
    def from_frames(
        cls, generations: pd.DataFrame, verification: pd.DataFrame, dropout: pd.DataFrame, choices: EvaluationChoices
    ) -> "RunSignals":
        """Interpret these frames under the choices."""
        responses = interpret_responses(generations, choices)
        sets = calibration_data(generations, responses) if len(responses) else {}
        confidence = score_at_selected_rate(responses, verification, dropout, choices)
        return cls(generations, verification, dropout, choices, responses, sets, confidence)

    def raw_frames(
        self, n_bins_ablation: Sequence[int] = (10, 20, 30), metrics: Sequence[str] = tuple(METRICS)
    ) -> Frames:
        """Return the frames of the tables of raw confidence, without intervals."""
        n_bins = self.choices.bins
        raw, shared = evaluate(self.confidence, n_bins, names=metrics), self.ece_on_shared_rows()
        single_pass = self.confidence.estimator.map(lambda name: ESTIMATORS[name].group) == "single_pass"
        frames = {
            "result_estimation": pd.concat([raw, shared], ignore_index=True) if len(shared) else raw,
            "dropout_grid_search": evaluate_rate_grid(self.responses, self.dropout, self.choices, metrics),
        }
        tokens = verification_statistics.summarize_token_reduction(self.verification)
        mass = verification_statistics.option_mass(self.verification, self.choices.options)
        frames["insitu_ptrue"] = pd.concat([frames["result_estimation"], tokens, mass], ignore_index=True)
        if single_pass.any() and n_bins_ablation:
            chosen, measured = self.confidence[single_pass], ("ece", "mce", "brier")
            frames["bin_ablation"] = ablate_bins(chosen, n_bins_ablation, measured)
        return frames

    def ece_on_shared_rows(self) -> pd.DataFrame:
        """Return the raw ECE of estimators with more evaluation rows than another one of their pair, on the shared
        rows.

        The metric is `ece_shared`, with columns as in `metrics.evaluate`.
        """
        rows = self.confidence[self.confidence.split == "evaluation"]
        by_pair = rows.groupby(PAIR).estimator.transform("nunique")
        everywhere = rows.groupby(KEYS).estimator.transform("size") == by_pair
        fewer = evaluate(rows[everywhere], self.choices.bins, names=["ece"])
        had = rows.groupby([*PAIR, "estimator"]).size()
        fewer = fewer[fewer.n < had.reindex(pd.MultiIndex.from_frame(fewer[[*PAIR, "estimator"]])).to_numpy()]
        return fewer.assign(metric="ece_shared")

    def calibration_frames(self, metrics: Sequence[str] = ("ece",)) -> Frames:
        """Return the frames of the tables of calibration and of transfer between all pairs, without intervals; 05 and
        07 store a run's."""
        n_bins = self.choices.bins
        calibrated, learned, fits = calibrate(self.confidence, self.sets)
        results = pd.concat([evaluate(calibrated, n_bins, names=metrics), learned], ignore_index=True)
        transferred = transfer(self.sets, fits, n_bins)
        return dict.fromkeys(CALIBRATED, results) | dict.fromkeys(TRANSFER_TABLES, transferred)

    def response_frames(self) -> Frames:
        """Return, for every pair, the statistics of responses that the paper shows as pictures or in words.

        Also included is what no choice changes: tokens of verification.
        """
        return {
            "running_mean": apply_by_pair(token_statistics.running_mean_curves, self.responses),
            "tokens": token_statistics.summarize_answer_tokens(self.responses),
            "positions": token_statistics.position_curves(self.responses),
            "calibration_rows": describe_calibration_split(self.sets),
            "verification": verification_statistics.verification_costs(self.verification, self.generations),
        }

    def pass_frames(self, counts: Sequence[int] = ()) -> Frames:
        """Return the statistics of the passes, on rows with a parsed answer; `counts`: as in
        `dropout_statistics.ece_by_number_of_passes`."""
        kept = dropout_statistics.keep_parsed_answers(self.dropout, self.responses)
        selected = rows_at_selected_rate(kept)
        if selected.empty:  # without a parsed answer there are no statistics of passes
            return dict.fromkeys(("entropies", "passes", "by_passes"), selected)
        passes = self.responses, self.dropout, self.choices
        return {
            "entropies": apply_by_pair(dropout_statistics.entropy_curves, selected),
            "passes": dropout_statistics.summarize_passes(selected),
            "by_passes": dropout_statistics.ece_by_number_of_passes(*passes, counts),
        }

    def score_frames(self, n_bins_ablation: Sequence[int] = (10, 20, 30), counts: Sequence[int] = ()) -> Frames:
        """Return the statistics of raw confidence and passes; missing kinds have an empty frame."""
        evaluation = self.confidence[self.confidence.split == "evaluation"]
        gaps = (evaluation.confidence - evaluation.correct).groupby([evaluation[key] for key in (*PAIR, "estimator")])
        frames = self.raw_frames(n_bins_ablation) | self.pass_frames(counts)
        frames["overconfidence"] = gaps.mean().rename("gap").reset_index()
        return frames


def read_manifests(run: str, kind: str, pairs: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pairs that have a frame of this kind, each with its manifest."""
    for pair in store.find_pairs(run, kind, pairs):
        yield pair, store.read_manifest(store.find_frame(run, kind, pair))


def score_at_selected_rate(
    responses: pd.DataFrame, verification: pd.DataFrame, dropout: pd.DataFrame, choices: EvaluationChoices
) -> pd.DataFrame:
    """Return the confidence of every estimator at the selected dropout rate."""
    return confidence_frame(responses, verification, rows_at_selected_rate(dropout, choices), choices)
