"""What docs/small-models.md and README say of the real models, from their shipped signals.

`python docs/tables/small_models.py` renews the tables of both."""

import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tables.replacing import replace_table
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
from lib.calibrate import experiments
from lib.calibrate.calibrators import Isotonic
from lib.params import EvaluationChoices, load_dataset_config, load_model_config, load_profile
from lib.score import evaluation, metrics
from lib.score.confidence import confidence_frame, rows_at_selected_rate
from lib.score.reading import answer_coverage

PAGE, README, RUN = ROOT / "docs" / "small-models.md", ROOT / "README.md", "replay-small"
SMALL = load_profile("small")
CHOICES = EvaluationChoices.of(SMALL.model_dump())
PAIRS = {
    (
        model,
        dataset,
    ): f"{load_model_config(model).label.rpartition('-')[2]} {load_dataset_config(dataset).label}"
    for model in SMALL.models
    for dataset in SMALL.datasets
}
BEGIN, END = "<!-- {}: python docs/tables/small_models.py renews this table -->\n", "<!-- end -->"
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
# a column each: its head, and the name of the score in the rows of docs/small-models.md
IN_README = {
    "Seq Avg": "Seq Avg", "Ans Avg": "Ans Avg", "Ans Avg, isotonic": "Ans Avg, isotonic",
    "constant": "constant", "P(True)": "P(True)", "P(True) in situ": "P(True) in situ"}  # fmt: skip


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
def results() -> dict[str, dict[tuple[str, str], str]]:
    """What is measured: by pair of a model and a dataset, as the page writes it."""
    found: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    responses, generations = signals().responses, signals().generations
    scores = confidence_frame(responses, signals().verification, None, CHOICES, ECE)
    evaluated = store.evaluation_rows(scores)
    for (*pair, split), part in responses.groupby(["model", "dataset", "split"]):
        found[f"{split} questions"][tuple(pair)] = str(len(part))
        found[f"of these right, {split}"][tuple(pair)] = three(part.correct.mean())
    for row in answer_coverage(generations).itertuples():
        found["no answer after `####`"][row.model, row.dataset] = f"{row.unparsed:.1%}"
    wrong = evaluated[(evaluated.estimator == "ans_avg") & ~evaluated.correct]
    for pair, value in wrong.groupby(["model", "dataset"]).confidence.mean().items():
        found["Ans Avg, mean on wrong answers"][pair] = three(value)
    measured = evaluation.evaluate(scores, CHOICES.bins)
    measured = measured.set_index(["metric", "estimator", "model", "dataset"]).value.sort_index()
    for metric in ("ece", "auroc"):
        for name, label in ECE.items():
            for pair, value in measured[metric, name].items():
                found[f"{metric.upper()} {label}"][pair] = three(value)
    passes = rows_at_selected_rate(signals().dropout, CHOICES)
    passed = evaluation.evaluate(
        confidence_frame(responses, None, passes, CHOICES, ["c_bald"]), CHOICES.bins
    )
    for row in passed[passed.metric.isin(["ece", "auroc"])].itertuples():
        pair = row.model, row.dataset
        found["questions with passes with dropout"][pair] = str(row.n)
        found[f"of these, {row.metric.upper()} c_BALD"][pair] = three(row.value)
    for pair, scored in evaluated.groupby(["model", "dataset"]):
        for name, label in ECE.items():
            describe_score(found, pair, label, scored[scored.estimator == name])
        found[HALF][pair] = three(abs(scored[scored.estimator == "ans_avg"].correct.mean() - 0.5))
    for pair, (confidence, correct, constant) in calibrated().items():
        constants = np.full(len(correct), constant)
        for label, values in {"Ans Avg, isotonic": confidence, "constant": constants}.items():
            describe_score(
                found, pair, label, pd.DataFrame({"confidence": values, "correct": correct})
            )
        after = {
            name: metrics.measure(name, confidence, correct) for name in ("ece", "auroc", "brier")
        }
        after["skill"] = 1 - after["brier"] / metrics.brier(constants, correct)
        found[CONSTANT][pair] = three(metrics.ece(constants, correct))
        for measure, label in ISOTONIC.items():
            found[label][pair] = three(after[measure])
        chance = evaluation.draw_chance_errors(
            confidence, CHOICES.bins, SMALL.resamples, SMALL.seed
        )
        found[CHANCE][pair] = three(chance.mean())
        for what, (low, high) in against_the_constant(pair).items():
            if not np.isnan(low):  # a resample without a right answer has no AUROC
                found[f"{what}, 95% interval"][pair] = f"{three(low)} to {three(high)}"
    for row in experiments.describe_splits(signals().sets).itertuples():
        found[EQUAL][row.model, row.dataset] = three(row.p)
    for row in experiments.compare_on_resplits(signals().sets, CHOICES.bins).itertuples():
        found[CONSTANT_LOWER][row.model, row.dataset] = f"{row.constant_lower_ece:.0%}"
        found[ISOTONIC_LOWER][row.model, row.dataset] = f"{row.isotonic_lower_brier:.0%}"
    return found


@cache
def retest() -> dict[str, dict[tuple[str, str], str]]:
    """How far c_BALD depends on the draw of its masks: both halves of the passes."""
    found: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for row in split_half_reliability(signals().responses, signals().dropout, CHOICES).itertuples():
        pair = row.model, row.dataset
        found["questions"][pair] = str(row.rows)
        found["correlation of both halves"][pair] = three(row.correlation)
        found["expected of two draws of ten passes"][pair] = three(row.expected)
        for metric in ("ece", "auroc"):
            both = (three(getattr(row, f"{metric}_{half}")) for half in (1, 2))
            found[f"{metric.upper()} of each half"][pair] = " ".join(both)
    return found


def calibrated() -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray, float]]:
    """Of each pair, the evaluation rows' Ans Avg after isotonic regression, their correctness, and
    the constant that the calibration rows teach."""
    return {
        pair: (
            Isotonic().fit(old.confidence, old.correct).predict(new.confidence),
            new.correct,
            evaluation.base_rate(old.correct),
        )
        for pair, (old, new) in signals().sets.items()
    }


def describe_score(found: dict, pair: tuple[str, str], label: str, scored: pd.DataFrame) -> None:
    """Add the spread and the discrimination of a score to what is measured."""
    found[f"spread of {label}"][pair] = three(scored.confidence.std(ddof=0))
    found[f"DSC {label}"][pair] = three(
        metrics.decompose_brier(scored.confidence, scored.correct)["dsc"]
    )


def against_the_constant(pair: tuple[str, str]) -> dict[str, np.ndarray]:
    """Ends of 95% intervals of what calibrated scores have before the constant, both learned again
    in each draw."""
    drawn = {}
    for metric in ("ece", "brier", "auroc"):
        measures = {
            "isotonic": Measure(Score("ans_avg", "isotonic"), metric),
            "constant": Measure(Score(evaluation.BASE), metric),
        }
        drawn[metric] = draws_of(resampled().compare(pair, measures) or {})
    values = {
        ISOTONIC["auroc"]: drawn["auroc"]["isotonic"],
        ISOTONIC["skill"]: 1 - drawn["brier"]["isotonic"] / drawn["brier"]["constant"],
        DIFFERENCE: drawn["ece"]["isotonic"] - drawn["ece"]["constant"],
    }
    return {what: np.percentile(draws, [2.5, 97.5]) for what, draws in values.items()}


@cache
def prompts() -> dict[str, dict[tuple[str, str], str]]:
    """The same of the beginnings of the prompt."""
    frame = store.load_frames(RUN, "ablation", SMALL.models, SMALL.datasets, may_lack=True)[0]
    found: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for row in summarize_arms(frame).sort_values("demonstration").itertuples():
        assert row.rows == SMALL.ablation_limit
        shares = {"`####`": row.parsed, "right": row.accuracy}
        for what, value in shares.items():
            found[f"{row.demonstration}: {what}"][row.model, row.dataset] = three(value)
    return found


def table(rows: dict[str, dict[tuple[str, str], str]]) -> str:
    lines = ["| | " + " | ".join(PAIRS.values()) + " |", "|---|" + "---:|" * len(PAIRS)]
    lines += [
        f"| {what} | " + " | ".join(values.get(pair, "-") for pair in PAIRS) + " |"
        for what, values in rows.items()
    ]
    return "\n".join(lines) + "\n"


TABLES = {"results": results, "retest": retest, "prompts": prompts}


def renewed(text: str) -> str:
    for name, rows in TABLES.items():
        before, mark, rest = text.partition(BEGIN.format(name))
        text = before + mark + table(rows()) + END + rest.partition(END)[2]
    return text


def table_of_readme() -> str:
    """Accuracy, and each score's ECE with its spread and DSC."""
    lines = [
        "| | accuracy | " + " | ".join(IN_README) + " |",
        "|---|---:|" + "---:|" * len(IN_README),
    ]
    ece = {
        f"ECE {label}": results()[f"ECE {label}"] for label in (*ECE.values(), "Ans Avg, isotonic")
    }
    ece["ECE constant"] = results()[CONSTANT]
    for pair, label in PAIRS.items():
        cells = [results()["of these right, evaluation"][pair]]
        for score in IN_README.values():
            spread, dsc = results()[f"spread of {score}"][pair], results()[f"DSC {score}"][pair]
            cells.append(f"{ece[f'ECE {score}'][pair]} ({spread}; {dsc})")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def renewed_readme(text: str) -> str:
    return replace_table(text, BEGIN.format("readme"), table_of_readme())


if __name__ == "__main__":
    for path, again in ((PAGE, renewed), (README, renewed_readme)):
        path.write_text(again(path.read_text(encoding="utf-8")), encoding="utf-8")
