"""What a run says of each model on each dataset: how often it is right, which of the paper's scores
to use, what calibration gives, and when to answer.

Nothing is chosen on rows that judge it. The first third of the calibration rows chooses scores, and
proposes thresholds, which the other two thirds test. All of them fit calibrators. The evaluation
rows only judge.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from lib.analysis.judged_scores import MIN_OF_CLASS, MIN_ROWS
from lib.analysis.resampled_scores import (
    Measure,
    ResampledScores,
    ResampleSettings,
    Score,
    draws_of,
)
from lib.analysis.run_thresholds import (
    AnsweringThreshold,
    Estimate,
    read_threshold,
    share_with_interval,
)
from lib.analysis.scores_of_run import collect_scores
from lib.analysis.signals import Signals, rows_of_pair
from lib.analysis.stages import score_further_estimators
from lib.calibrate.calibration_sets import Pair
from lib.params import SelectivePrediction
from lib.row_order import first_rows
from lib.score.baselines import BASE
from lib.score.bootstrap import percentile_interval
from lib.score.estimators import ESTIMATORS
from lib.score.interpretation import answer_coverage
from lib.score.metrics import measure
from lib.score.reliability import reliability_diagram
from lib.store import PAIR, calibration_rows, evaluation_rows

FALLBACK = "seq_avg"  # the paper's score, where too few rows choose one
METHOD = "isotonic"  # the calibrator of every score
LOWER_IS_BETTER = {"ece": True, "auroc": False}
NO_ORDER = 0.5  # AUROC of scores that tell nothing


@dataclass(frozen=True)
class ChosenScore:
    """The best score by a metric on the rows that choose, and what the evaluation rows say of it.

    `chance`: .5 of an AUROC; of an ECE the 95% point of what calibrated scores would have. Other
    scores are `worse` or `better` by the 95% interval of the paired difference, else `open_to`.
    """

    estimator: str
    metric: str
    estimate: Estimate
    chance: float
    worse: tuple[str, ...] = ()
    better: tuple[str, ...] = ()
    open_to: tuple[str, ...] = ()

    @property
    def within_chance(self) -> bool:
        """Whether it is an ECE that calibrated scores could have."""
        return self.metric == "ece" and self.estimate.value <= self.chance

    @property
    def is_best(self) -> bool:
        """Whether the evaluation rows decide that it is better than every other score."""
        return bool(self.worse) and not self.better and not self.open_to


class AfterCalibration(NamedTuple):
    """The ECE of a score after METHOD, what chance gives, and that of the constant."""

    estimate: Estimate
    chance: float
    constant: float


@dataclass(frozen=True)
class ModelAnswer:
    """What a run says of one model on one dataset.

    `choosing`, `calibrating` and `evaluated` are numbers of rows; of the last, `right` ones are
    right and `unread` ones have no answer that could be read. Where rows say too little
    (`shortage`), the other fields are empty. `has_calibrator`: whether the calibration rows fit one
    that says something.
    """

    pair: Pair
    choosing: int
    calibrating: int
    evaluated: int
    right: int
    unread: int
    shortage: str
    has_calibrator: bool
    ranking: ChosenScore | None = None
    raw: ChosenScore | None = None
    calibrated: AfterCalibration | None = None
    threshold: AnsweringThreshold | None = None
    diagrams: Mapping[str, pd.DataFrame] | None = None

    @property
    def estimator(self) -> str:
        """The score whose calibrator and threshold are shown."""
        return self.ranking.estimator if self.ranking else FALLBACK

    @property
    def accuracy(self) -> Estimate:
        """The share of right answers, with its exact interval; NaN without a row."""
        return share_with_interval(self.right, self.evaluated)


def name_shortage(right: int, total: int) -> str:
    """Say of what there is too little to conclude anything; empty if there is enough.

    Examples
    --------
    >>> name_shortage(37, 40), name_shortage(20, 40)
    ('fewer than 10 wrong answers (3 of 40)', '')
    """
    if total < MIN_ROWS:
        return f"fewer than {MIN_ROWS} evaluation questions ({total})"
    for kind, count in {"right": right, "wrong": total - right}.items():
        if count < MIN_OF_CLASS:
            return f"fewer than {MIN_OF_CLASS} {kind} answers ({count} of {total})"
    return ""


def answer_for_pairs(
    signals: Signals, thresholds: pd.DataFrame, settings: SelectivePrediction
) -> list[ModelAnswer]:
    """Return the answer for each pair of a run; `thresholds` is what 09 stored of it."""
    further = score_further_estimators(signals)
    is_own = further.raw.estimator.map(lambda name: ESTIMATORS[name].own).to_numpy(bool)
    raw = further.raw[~is_own]
    resampling = ResampleSettings(signals.choices.bins, settings.resamples, settings.seed)
    scores = collect_scores(raw, signals.sets, further.fits, resampling, moved=())
    coverage = answer_coverage(signals.generations).set_index(PAIR)
    answers = []
    for pair, rows in raw.groupby(PAIR, sort=False):
        unread = 0
        if pair in coverage.index:
            unread = round(coverage.unparsed[pair] * coverage.rows[pair])
        of_pair = rows_of_pair(thresholds, pair)
        answers.append(answer_for_pair(pair, rows, unread, scores, of_pair, settings))
    return answers


def answer_for_pair(
    pair: Pair,
    rows: pd.DataFrame,
    unread: int,
    scores: ResampledScores,
    thresholds: pd.DataFrame,
    settings: SelectivePrediction,
) -> ModelAnswer:
    """Return the answer for one pair, whose raw scores of both splits are `rows`; `unread`:
    evaluation rows without an answer."""
    judging = evaluation_rows(rows).drop_duplicates("example_id")
    calibrating = calibration_rows(rows)
    questions = calibrating.drop_duplicates("example_id")
    third = first_rows(questions, max(1, len(questions) // 3), settings.seed)
    choosing = calibrating[calibrating.example_id.isin(third.example_id)]
    right = int(judging.correct.sum())
    sizes = ModelAnswer(
        pair=pair,
        choosing=len(third),
        calibrating=len(questions),
        evaluated=len(judging),
        right=right,
        unread=unread,
        shortage=name_shortage(right, len(judging)),
        has_calibrator=not name_shortage(int(questions.correct.sum()), len(questions)),
    )
    if sizes.shortage:
        return sizes
    n_bins = scores.settings.n_bins
    ranking = judge_choice(scores, pair, choose_score(choosing, "auroc", n_bins), "auroc")
    raw = judge_choice(scores, pair, choose_score(choosing, "ece", n_bins), "ece")
    used = ranking.estimator
    return ModelAnswer(
        **vars(sizes)
        | {
            "ranking": ranking,
            "raw": raw,
            "calibrated": judge_calibrated_score(scores, pair, used),
            "threshold": read_threshold(thresholds, calibrating, used, settings),
            "diagrams": draw_diagrams(scores, pair, used),
        }
    )


# ---- which score


def choose_score(rows: pd.DataFrame, metric: str, n_bins: int = 10) -> str:
    """Return the score that is best by a metric on some rows, the first of equal ones; FALLBACK if
    the metric is undefined.

    Examples
    --------
    >>> rows = pd.DataFrame({"confidence": [0.1, 0.9, 0.9, 0.1], "correct": [False, True] * 2})
    >>> rows["estimator"] = ["seq_avg", "seq_avg", "ans_avg", "ans_avg"]
    >>> choose_score(rows, "auroc"), choose_score(rows.head(1), "auroc")
    ('seq_avg', 'seq_avg')
    """
    values = {}
    for name, part in rows.groupby("estimator", sort=False):
        correct = part.correct.to_numpy(float)
        value = float(measure(metric, part.confidence.to_numpy(), correct, n_bins))
        if not np.isnan(value):
            values[str(name)] = value if LOWER_IS_BETTER[metric] else -value
    return min(values, key=values.__getitem__) if values else FALLBACK


def judge_choice(scores: ResampledScores, pair: Pair, chosen: str, metric: str) -> ChosenScore:
    """Compare a raw score with every other one of a pair, on the rows that both have."""
    measured = scores.measure_all_rows(pair, Measure(Score(chosen), metric))
    low, high = percentile_interval(measured.draws)
    chance = measured.chance_high() if measured.chance_high else NO_ORDER
    verdicts: dict[str, list[str]] = {"worse": [], "better": [], "open_to": []}
    for other in raw_scores(scores, pair):
        if other != chosen:
            verdicts[compare_scores(scores, pair, chosen, other, metric)].append(other)
    return ChosenScore(
        chosen,
        metric,
        Estimate(measured.value, low, high),
        chance,
        **{name: tuple(others) for name, others in verdicts.items()},
    )


def raw_scores(scores: ResampledScores, pair: Pair) -> Iterable[str]:
    """Return the names of the raw scores of a pair, without the constant."""
    names = []
    for score in scores.scores[pair]:
        if not score.method and score.estimator != BASE:
            names.append(score.estimator)
    return names


def compare_scores(
    scores: ResampledScores, pair: Pair, chosen: str, other: str, metric: str
) -> str:
    """Return whether the other score is `worse` than the chosen one, `better`, or `open_to` both.

    Two ECEs within what chance gives to calibrated scores are not told apart.
    """
    measures = {"chosen": Measure(Score(chosen), metric), "other": Measure(Score(other), metric)}
    numbers = scores.compare(pair, measures)
    if numbers is None or all(number.within_chance for number in numbers.values()):
        return "open_to"
    draws = draws_of(numbers)
    gain = draws["other"] - draws["chosen"]
    if not LOWER_IS_BETTER[metric]:
        gain = -gain
    low, high = percentile_interval(gain)
    if low > 0:
        return "worse"
    return "better" if high < 0 else "open_to"


# ---- after calibration


def judge_calibrated_score(
    scores: ResampledScores, pair: Pair, estimator: str
) -> AfterCalibration | None:
    """Return the ECE of a score after METHOD, fitted again in each draw; None without one."""
    if Score(estimator, METHOD) not in scores.scores[pair]:
        return None
    measured = scores.measure_all_rows(pair, Measure(Score(estimator, METHOD)))
    low, high = percentile_interval(measured.draws)
    chance = measured.chance_high() if measured.chance_high else np.nan
    constant = scores.measure_all_rows(pair, Measure(Score(BASE)))
    return AfterCalibration(Estimate(measured.value, low, high), chance, constant.value)


def draw_diagrams(scores: ResampledScores, pair: Pair, estimator: str) -> dict[str, pd.DataFrame]:
    """Return the bins of a score's reliability diagram on the evaluation rows: raw, and after
    METHOD."""
    diagrams = {}
    for title, method in {"raw": "", METHOD: METHOD}.items():
        column = scores.scores[pair].get(Score(estimator, method))
        if column is not None:
            diagrams[title] = reliability_diagram(
                column.confidence, column.correct, scores.settings.n_bins
            )
    return diagrams
