"""What the models of a run left on disk, as its choices read it, and the frames that these signals show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from lib import params, store
from lib.analysis import dropout_statistics, token_statistics, verification_statistics
from lib.analysis.calibration_statistics import curve_bands, describe_calibration_split
from lib.calibrate.calibrators import Calibrator
from lib.calibrate.fitting import DataByPair, Pair, calibrate, calibration_data
from lib.calibrate.sample_efficiency import learning_curves
from lib.calibrate.transfer import transfer
from lib.params import Calibration, Reading
from lib.score.bootstrap import estimate_metrics
from lib.score.confidence import confidence_frame, evaluate_rate_grid, rows_at_selected_rate
from lib.score.estimators import ESTIMATORS
from lib.score.interpretation import interpret_responses
from lib.score.metrics import METRICS, ablate_bins, evaluate
from lib.store import KEYS, PAIR

SIGNAL_KINDS = ("generations", "verification", "dropout")  # what models leave on disk
CALIBRATED = ("result_calibration", "result_calibration_full", "result_isotonic")  # tables of one frame
TRANSFER_TABLES = ("calibration_transfer_full", "calibration_transfer_summary")
Frames = dict[str, pd.DataFrame]
Fits = Mapping[Pair, Mapping[str, Calibrator]]  # as `fit_answers` returns them


@dataclass(frozen=True, eq=False)
class RunSignals:
    """The signals of a run, and what its choices read in them: `responses` as `interpret_responses` returns them, and
    the confidence of every estimator."""

    generations: pd.DataFrame = field(repr=False)
    verification: pd.DataFrame = field(repr=False)
    dropout: pd.DataFrame = field(repr=False)
    reading: Reading
    responses: pd.DataFrame = field(repr=False)
    confidence: pd.DataFrame = field(repr=False)

    @classmethod
    def of(cls, run: str, models: Sequence[str], datasets: Sequence[str], reading: Reading) -> "RunSignals":
        """Those of a run, or the shipped ones; of models that are not at hand the responses alone. Raises UserError
        where neither has them."""
        asked = {"generations": models}
        generations, verification, dropout = (
            store.load_frames(run, kind, asked.get(kind, params.models_at_hand(models)), datasets, kind == "dropout")[0]
            for kind in SIGNAL_KINDS
        )
        return cls.from_frames(generations, verification, dropout, reading)

    @classmethod
    def from_frames(cls, generations: pd.DataFrame, verification: pd.DataFrame, dropout: pd.DataFrame,
                    reading: Reading) -> "RunSignals":  # fmt: skip
        """What the choices read in these frames."""
        responses = interpret_responses(generations, reading)
        confidence = scores(responses, verification, dropout, reading)
        return cls(generations, verification, dropout, reading, responses, confidence)

    @cached_property
    def sets(self) -> DataByPair:
        return calibration_data(self.generations, self.responses) if len(self.responses) else {}

    def estimation(self, n_bins_ablation: Sequence[int], metrics: Sequence[str] = tuple(METRICS)) -> Frames:
        """Frames of the tables of raw confidence, without intervals."""
        n_bins, closed = self.reading.bins, self.reading.closed
        raw, shared = evaluate(self.confidence, n_bins, closed, names=metrics), self.shared_rows()
        single_pass = self.confidence.estimator.map(lambda name: ESTIMATORS[name].group) == "single_pass"
        frames = {
            "result_estimation": pd.concat([raw, shared], ignore_index=True) if len(shared) else raw,
            "dropout_grid_search": evaluate_rate_grid(self.responses, self.dropout, self.reading, metrics),
        }
        if single_pass.any():
            chosen, measured = self.confidence[single_pass], ("ece", "mce", "brier")
            frames["bin_ablation"] = ablate_bins(chosen, n_bins_ablation, closed, measured)
        return frames

    def shared_rows(self) -> pd.DataFrame:
        """Raw ECE of those estimators that have more evaluation rows than another of their pair, on the rows that all
        of it have: metric `ece_shared`, otherwise as `metrics.evaluate`."""
        rows = self.confidence[self.confidence.split == "evaluation"]
        by_pair = rows.groupby(PAIR).estimator.transform("nunique")
        everywhere = rows.groupby(KEYS).estimator.transform("size") == by_pair
        fewer = evaluate(rows[everywhere], self.reading.bins, self.reading.closed, names=["ece"])
        had = rows.groupby([*PAIR, "estimator"]).size()
        fewer = fewer[fewer.n < had.reindex(pd.MultiIndex.from_frame(fewer[[*PAIR, "estimator"]])).to_numpy()]
        return fewer.assign(metric="ece_shared")

    def in_situ(self, results: pd.DataFrame) -> Frames:
        """The frame of `tab:insitu_ptrue`, from that of raw confidence."""
        tokens = verification_statistics.token_reduction(self.verification)
        mass = verification_statistics.option_mass(self.verification, self.reading.options)
        return {"insitu_ptrue": pd.concat([results, tokens, mass], ignore_index=True)}

    def calibration(self, fitted: Fits, choices: Calibration) -> Frames:
        """Frames of the tables of calibration, without intervals; 05 keeps a run's. `fitted` as `fit_answers` returns
        it."""
        calibrated, learned, _ = calibrate(self.confidence, self.sets, fitted, choices)
        results = estimate_metrics(calibrated, self.reading.bins, self.reading.closed, ["ece"])
        return dict.fromkeys(CALIBRATED, pd.concat([results, learned], ignore_index=True))

    def moved(self, sets: DataByPair, fitted: Fits) -> Frames:
        """Frames of the tables of transfer between all pairs; 07 keeps a run's."""
        return dict.fromkeys(TRANSFER_TABLES, transfer(sets, fitted, self.reading.bins, self.reading.closed))

    def learning(self, choices: Calibration, models: Sequence[str], sizes: Sequence[int], draws: int, seed: int
                 ) -> Frames:  # fmt: skip
        """The learning curves of some models on rows drawn by chance; 06 keeps a run's."""
        sets = {pair: rows for pair, rows in self.sets.items() if pair[0] in models}
        how = sizes, draws, seed, ("uniform",), 0.5, self.reading.bins, self.reading.closed, choices
        return {"learning": curve_bands(learning_curves(sets, *how))}

    def of_responses(self) -> Frames:
        """What the paper shows of responses as pictures or says in words, for every pair, and what no choice changes:
        evaluation questions, and tokens of verification."""
        answered = self.responses[self.responses.split == "evaluation"].groupby(PAIR, sort=False).parsed
        evaluation = self.generations[self.generations.split == "evaluation"]
        rows = evaluation.groupby("dataset", sort=False).example_id.nunique().rename("rows").reset_index()
        return {
            "running_mean": token_statistics.running_mean_curves_by_pair(self.responses),
            "tokens": token_statistics.summarize_tokens(self.responses),
            "positions": token_statistics.position_curves(self.responses),
            "unread": token_statistics.count_missed_answers(self.generations, self.reading),
            "answered": answered.agg(rows="size", parsed="sum").reset_index(),
            "calibration_rows": describe_calibration_split(self.sets),
            "rows": rows,
            "verification": verification_statistics.verification_costs(self.verification, self.generations),
        }

    def of_passes(self, counts: Sequence[int] = ()) -> Frames:
        """What it shows or says of the passes, on the rows whose answer was read; `counts`: as
        `dropout_statistics.by_passes`."""
        kept = dropout_statistics.answered(self.dropout, self.responses)
        selected = kept[kept.selected]
        if selected.empty:  # no answer was read anywhere: nothing to say of any pass
            return dict.fromkeys(("entropies", "passes", "by_passes", "by_rate"), selected)
        entropies = [dropout_statistics.entropy_curves(part).assign(**dict(zip(PAIR, pair, strict=True)))
                     for pair, part in selected.groupby(PAIR, sort=False)]  # fmt: skip
        return {"entropies": pd.concat(entropies, ignore_index=True), "passes": dropout_statistics.summary(selected),
                "by_passes": dropout_statistics.by_passes(self.responses, self.dropout, self.reading, counts),
                "by_rate": dropout_statistics.by_rate(kept)}  # fmt: skip

    def of_scores(self, n_bins_ablation: Sequence[int] = (10, 20, 30), counts: Sequence[int] = ()) -> Frames:
        """What raw confidence and passes show; of a kind that is not there, no frame, or an empty one."""
        evaluation = self.confidence[self.confidence.split == "evaluation"]
        gaps = (evaluation.confidence - evaluation.correct).groupby([evaluation[key] for key in (*PAIR, "estimator")])
        frames = self.estimation(n_bins_ablation) | self.of_passes(counts)
        frames["overconfidence"] = gaps.mean().rename("gap").reset_index()
        frames["by_phi"] = dropout_statistics.by_phi(self.responses, self.dropout, self.reading)
        return frames | (self.in_situ(frames["result_estimation"]) if len(self.verification) else {})


def scores(responses: pd.DataFrame, verification: pd.DataFrame, dropout: pd.DataFrame, reading: Reading
           ) -> pd.DataFrame:  # fmt: skip
    """The confidence of every estimator at the selected dropout rate."""
    return confidence_frame(responses, verification, rows_at_selected_rate(dropout, reading), reading)
