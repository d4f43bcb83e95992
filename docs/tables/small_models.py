"""What docs/small-models.md says of the real models, from their shipped signals.

`python docs/tables/small_models.py` renews its tables.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lib import store
from lib.analysis.multi_pass_statistics import split_half_reliability
from lib.analysis.prompt_ablation import summarize_arms
from lib.analysis.resampled_scores import (
    Measure,
    ResampledScores,
    ResampleSettings,
    Score,
    draws_of,
)
from lib.analysis.run_results import resample_scores
from lib.analysis.signals import Signals, load_signals
from lib.calibrate import split_comparison
from lib.calibrate.calibration_sets import Pair, ScoredSplit
from lib.calibrate.calibrators import Isotonic
from lib.params import EvaluationChoices, load_dataset_config, load_model_config, load_profile
from lib.score import baselines, evaluation, metrics
from lib.score.confidence import confidence_frame, rows_at_selected_rate
from lib.score.interpretation import answer_coverage

PAGE = ROOT / "docs" / "small-models.md"
RUN = "replay-small"
SMALL = load_profile("small")
CHOICES = EvaluationChoices.of(SMALL.model_dump())
PAIRS = {}  # by model and dataset: 1.5B GSM8K
for model, dataset in product(SMALL.models, SMALL.datasets):
    size = load_model_config(model).label.rpartition("-")[2]
    PAIRS[model, dataset] = f"{size} {load_dataset_config(dataset).label}"
Rows = dict[str, dict[Pair, str]]  # of a table, by name; a cell for each pair
BEGIN = "<!-- {}: python docs/tables/small_models.py renews this table -->\n"
END = "<!-- end -->"
CONSTANT = "ECE of a constant, (right + 1) / (n + 2) of the calibration questions"
ISOTONIC = {"ece": "ECE Ans Avg, isotonic", "auroc": "AUROC Ans Avg, isotonic",
            "skill": "Brier skill of Ans Avg, isotonic, over this constant"}  # fmt: skip
DIFFERENCE = "ECE Ans Avg, isotonic, minus that of the constant"
ECE = {
    "ans_avg": "Ans Avg",
    "seq_avg": "Seq Avg",
    "p_true": "P(True)",
    "p_true_insitu": "P(True) in situ",
}
CHANCE = "ECE, chance mean, Ans Avg, isotonic"
HALF = "ECE of the constant .5"
EQUAL = "p of equal accuracy in both splits"
CONSTANT_LOWER = "re-splits in which a constant has the lower ECE"
ISOTONIC_LOWER = "re-splits in which isotonic has the lower Brier score"


def three(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)


@cache
def signals() -> Signals:
    return load_signals(RUN, SMALL.models, SMALL.datasets, CHOICES)


@cache
def resampled() -> ResampledScores:
    """Every score on shared resamples, with calibrators fitted again."""
    return resample_scores(signals(), ResampleSettings(CHOICES.bins, SMALL.resamples, SMALL.seed))


@cache
def results() -> Rows:
    """What is measured, as the page writes it."""
    rows: Rows = defaultdict(dict)
    scores = confidence_frame(signals().responses, signals().verification, None, CHOICES, ECE)
    evaluated = store.evaluation_rows(scores)
    describe_responses(rows)
    wrong = evaluated[(evaluated.estimator == "ans_avg") & ~evaluated.correct]
    for pair, value in wrong.groupby(store.PAIR).confidence.mean().items():
        rows["Ans Avg, mean on wrong answers"][pair] = three(value)
    describe_errors(rows, scores)
    describe_passes(rows)
    for pair, of_pair in evaluated.groupby(store.PAIR):
        for name, label in ECE.items():
            describe_score(rows, pair, label, of_pair[of_pair.estimator == name])
        accuracy = of_pair[of_pair.estimator == "ans_avg"].correct.mean()
        rows[HALF][pair] = three(abs(accuracy - 0.5))
    for pair, (old, new) in signals().sets.items():
        describe_calibrated(rows, pair, old, new)
    for row in split_comparison.describe_splits(signals().sets).itertuples():
        rows[EQUAL][row.model, row.dataset] = three(row.p)
    for row in split_comparison.compare_on_resplits(signals().sets, CHOICES.bins).itertuples():
        rows[CONSTANT_LOWER][row.model, row.dataset] = f"{row.constant_lower_ece:.0%}"
        rows[ISOTONIC_LOWER][row.model, row.dataset] = f"{row.isotonic_lower_brier:.0%}"
    return rows


def describe_responses(rows: Rows) -> None:
    """Add the number of questions and of right answers, and the share without an answer."""
    by_split = signals().responses.groupby([*store.PAIR, "split"])
    for (model, dataset, split), part in by_split:
        rows[f"{split} questions"][model, dataset] = str(len(part))
        rows[f"of these right, {split}"][model, dataset] = three(part.correct.mean())
    for row in answer_coverage(signals().generations).itertuples():
        rows["no answer after `####`"][row.model, row.dataset] = f"{row.unparsed:.1%}"


def describe_errors(rows: Rows, scores: pd.DataFrame) -> None:
    """Add the ECE and the AUROC of each score."""
    measured = evaluation.evaluate(scores, CHOICES.bins)
    values = measured.set_index(["metric", "estimator", *store.PAIR]).value.sort_index()
    for metric, name in product(("ece", "auroc"), ECE):
        for pair, value in values[metric, name].items():
            rows[f"{metric.upper()} {ECE[name]}"][pair] = three(value)


def describe_passes(rows: Rows) -> None:
    """Add the ECE and the AUROC of c_BALD, on the questions that have passes."""
    passes = rows_at_selected_rate(signals().dropout, CHOICES)
    scores = confidence_frame(signals().responses, None, passes, CHOICES, ["c_bald"])
    measured = evaluation.evaluate(scores, CHOICES.bins)
    for row in measured[measured.metric.isin(["ece", "auroc"])].itertuples():
        pair = row.model, row.dataset
        rows["questions with passes with dropout"][pair] = str(row.n)
        rows[f"of these, {row.metric.upper()} c_BALD"][pair] = three(row.value)


def describe_score(rows: Rows, pair: Pair, label: str, scores: pd.DataFrame) -> None:
    """Add the spread and the discrimination of a score."""
    parts = metrics.decompose_brier(scores.confidence, scores.correct)
    rows[f"spread of {label}"][pair] = three(scores.confidence.std(ddof=0))
    rows[f"DSC {label}"][pair] = three(parts["dsc"])


def describe_calibrated(rows: Rows, pair: Pair, old: ScoredSplit, new: ScoredSplit) -> None:
    """Add what Ans Avg is after isotonic regression, beside the constant of the calibration
    rows."""
    correct = new.correct
    isotonic = Isotonic().fit(old.confidence, old.correct).predict(new.confidence)
    constant = np.full(len(correct), baselines.smoothed_base_rate(old.correct))
    for label, values in {"Ans Avg, isotonic": isotonic, "constant": constant}.items():
        scores = pd.DataFrame({"confidence": values, "correct": correct})
        describe_score(rows, pair, label, scores)
    skill = 1 - metrics.brier(isotonic, correct) / metrics.brier(constant, correct)
    rows[CONSTANT][pair] = three(metrics.ece(constant, correct))
    rows[ISOTONIC["ece"]][pair] = three(metrics.ece(isotonic, correct))
    rows[ISOTONIC["auroc"]][pair] = three(metrics.auroc(isotonic, correct))
    rows[ISOTONIC["skill"]][pair] = three(skill)
    chance = baselines.draw_chance_errors(isotonic, CHOICES.bins, SMALL.resamples, SMALL.seed)
    rows[CHANCE][pair] = three(chance.mean())
    for name, (low, high) in against_the_constant(pair).items():
        if not np.isnan(low):  # a resample without a right answer has no AUROC
            rows[f"{name}, 95% interval"][pair] = f"{three(low)} to {three(high)}"


@cache
def retest() -> Rows:
    """How far c_BALD depends on the draw of its masks: both halves of the passes."""
    rows: Rows = defaultdict(dict)
    halves = split_half_reliability(signals().responses, signals().dropout, CHOICES)
    for row in halves.itertuples():
        pair = row.model, row.dataset
        rows["questions"][pair] = str(row.rows)
        rows["correlation of both halves"][pair] = three(row.correlation)
        rows["expected of two draws of ten passes"][pair] = three(row.expected)
        rows["ECE of each half"][pair] = f"{three(row.ece_1)} {three(row.ece_2)}"
        rows["AUROC of each half"][pair] = f"{three(row.auroc_1)} {three(row.auroc_2)}"
    return rows


def against_the_constant(pair: Pair) -> dict[str, np.ndarray]:
    """Ends of 95% intervals of what calibrated scores have before the constant, both learned again
    in each draw."""
    draws = {}
    for metric in ("ece", "brier", "auroc"):
        measures = {
            "isotonic": Measure(Score("ans_avg", "isotonic"), metric),
            "constant": Measure(Score(baselines.BASE), metric),
        }
        draws[metric] = draws_of(resampled().compare(pair, measures) or {})
    differences = {
        ISOTONIC["auroc"]: draws["auroc"]["isotonic"],
        ISOTONIC["skill"]: 1 - draws["brier"]["isotonic"] / draws["brier"]["constant"],
        DIFFERENCE: draws["ece"]["isotonic"] - draws["ece"]["constant"],
    }
    return {name: np.percentile(values, [2.5, 97.5]) for name, values in differences.items()}


@cache
def prompts() -> Rows:
    """The same of the beginnings of the prompt."""
    rows: Rows = defaultdict(dict)
    frame = store.load_frames(RUN, "ablation", SMALL.models, SMALL.datasets, may_lack=True)[0]
    for arm in summarize_arms(frame).sort_values("demonstration").itertuples():
        assert arm.rows == SMALL.ablation_limit
        pair = arm.model, arm.dataset
        rows[f"{arm.demonstration}: `####`"][pair] = three(arm.parsed)
        rows[f"{arm.demonstration}: right"][pair] = three(arm.accuracy)
    return rows


def as_table(columns: Iterable[str], lines: Iterable[list[str]]) -> str:
    """A table in Markdown whose first column has no name."""
    columns = list(columns)
    rows = ["| | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for line in lines:
        rows.append("| " + " | ".join(line) + " |")
    return "\n".join(rows)


def table(rows: Rows) -> str:
    lines = []
    for name, values in rows.items():
        cells = [values.get(pair, "-") for pair in PAIRS]
        lines.append([name, *cells])
    return as_table(PAIRS.values(), lines) + "\n"


TABLES = {"results": results, "retest": retest, "prompts": prompts}


def renewed(text: str) -> str:
    for name, rows in TABLES.items():
        before, mark, rest = text.partition(BEGIN.format(name))
        after = rest.partition(END)[2]
        text = before + mark + table(rows()) + END + after
    return text


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
