"""`python docs/tables/sentences.py` renews what README and docs/small-models.md say of the two
real models in sentences.

Each number is computed here from the shipped signals of `small`.
"""

import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pandas as pd
from scipy.stats import ttest_ind

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tables.replacing import replace_table
from docs.tables.small_models import CHOICES, PAGE, SMALL, resampled, results, signals
from lib.analysis.resampled_scores import Score
from lib.analysis.run_results import results_without_frames
from lib.analysis.score_differences import Pooled, pool_difference
from lib.calibrate.split_comparison import compare_on_resplits
from lib.paper.cells import format_3dp
from lib.paper.claim import AGREES, DISAGREES, OPEN
from lib.paper.verdicts import CLAIMS
from lib.score.confidence import confidence_frame
from lib.score.evaluation import evaluate
from lib.score.interpretation import answer_coverage, interpret_responses
from lib.store import PAIR, SCORE_CELL, evaluation_rows

README = ROOT / "README.md"
BEGIN = "<!-- sentences: python docs/tables/sentences.py renews these sentences -->\n"
PAIRS = len(SMALL.models) * len(SMALL.datasets)


def cases(name: str) -> pd.DataFrame:
    """The cases of a claim, by the rows of both models."""
    (claim,) = [claim for claim in CLAIMS if claim.name == name]
    labels = results_without_frames(SMALL.models, SMALL.datasets)
    return claim.count_cases(replace(labels, scores=resampled()))


def counts(name: str) -> dict[str, int]:
    """On how many pairs a claim agrees, is open, or disagrees."""
    outcomes = list(cases(name).outcome)
    return {kind: outcomes.count(kind) for kind in (AGREES, OPEN, DISAGREES)}


def mean_difference(first: Score, second: Score, metric: str = "ece") -> Pooled:
    pooled = pool_difference(resampled(), first, second, metric)
    assert pooled is not None
    return pooled


def with_interval(pooled: Pooled) -> str:
    low = format_3dp(pooled.low)
    high = format_3dp(pooled.high)
    return f"{format_3dp(pooled.value)} [{low}, {high}]"


def values(row: str) -> pd.Series:
    """The numbers of a row of docs/small-models.md, by model and dataset."""
    return pd.Series(results()[row]).astype(float)


def lower_errors(missing: str) -> int:
    """On how many pairs Seq Avg has a lower ECE than Ans Avg if responses without an answer are
    treated so."""
    choices = CHOICES.model_copy(update={"missing": missing})
    responses = interpret_responses(signals().generations, choices)
    scores = confidence_frame(responses, names=["seq_avg", "ans_avg"])
    errors = evaluate(scores, CHOICES.bins, names=["ece"])
    table = errors.pivot(index=PAIR, columns="estimator", values="value")
    return int((table.seq_avg < table.ans_avg).sum())


def mean_scores() -> tuple[int, int]:
    """On how many cells the ECE is the mean score minus the accuracy within .006, and the number of
    cells."""
    names = ["seq_avg", "ans_avg", "p_true", "p_true_insitu"]
    scores = confidence_frame(signals().responses, signals().verification, None, CHOICES, names)
    scores = evaluation_rows(scores)
    errors = evaluate(scores, CHOICES.bins, names=["ece"]).set_index(SCORE_CELL).value
    means = scores.groupby(SCORE_CELL)[["confidence", "correct"]].mean()
    is_near = (errors - (means.confidence - means.correct)).abs() < 0.006
    return is_near.sum(), len(is_near)


def easier_questions(dataset: str) -> tuple[float, float]:
    """How much more accurate both models are on a dataset's calibration questions, and the p-value
    (Welch's t test of each question's mean over models)."""
    rows = signals().responses
    means = rows[rows.dataset == dataset].groupby(["split", "example_id"]).correct.mean()
    calibration = means["calibration"]
    evaluation = means["evaluation"]
    test = ttest_ind(calibration, evaluation, equal_var=False)
    return calibration.mean() - evaluation.mean(), float(test.pvalue)


def span(row: str) -> str:
    numbers = values(row)
    return f"{format_3dp(numbers.min())} to {format_3dp(numbers.max())}"


# ---- bullets of docs/small-models.md

SEQ = Score("seq_avg")
ANS = Score("ans_avg")
ISOTONIC = Score("ans_avg", "isotonic")
P_TRUE = Score("p_true")
IN_SITU = Score("p_true_insitu")


def sequence_and_answer() -> str:
    error = mean_difference(SEQ, ANS)
    ranks = mean_difference(ANS, SEQ, "auroc")
    decided = counts("seq_ranks_above_answer")[DISAGREES]
    near, cells = mean_scores()
    wide = f"[{format_3dp(ranks.wide_low)}, {format_3dp(ranks.wide_high)}]"
    return (
        f"**Seq Avg has the lower ECE on {error.lower} of {PAIRS} pairs**, as in the paper: "
        f"{with_interval(error)} on average. But Seq Avg is badly calibrated, too (ECE "
        f"{span('ECE Seq Avg')}), and the comparison is one of mean scores: in {near} of {cells} "
        "cells the ECE is the mean score minus the accuracy, within .006. Ans Avg ranks answers "
        f"better on average (AUROC {with_interval(ranks)}), but on {decided} of {PAIRS} pairs "
        f"alone is this decided, and it is open if models and datasets are drawn, too {wide}."
    )


def unreadable_answers() -> str:
    coverage = answer_coverage(signals().generations)
    count = coverage.unparsed * coverage["rows"]
    unread = count.sum() / coverage["rows"].sum()
    return (
        f"**{unread:.1%} of responses have no readable answer** (mostly 0.5B), and none of these "
        f"is right. Seq Avg has the lower ECE on {lower_errors('zero')} of {PAIRS} if both scores "
        f"are 0 there, and on {lower_errors('drop')} of {PAIRS} without them."
    )


def mechanism() -> str:
    first = counts("means_overlap_first")
    late = counts("means_part_later")
    position = counts("no_single_token")
    rising = cases("means_diverge")
    rising = rising[rising.outcome == DISAGREES]
    both_rise = (rising.rise_of_right > 0) & (rising.fall_of_wrong < 0)
    return (
        "**The paper's mechanism holds in part.** Right and wrong responses start alike (not "
        f"told apart on {first[AGREES]} of {PAIRS} pairs) and differ late on {late[AGREES]} "
        f"({late[OPEN]} open). But the running mean rises for both kinds on {both_rise.sum()} of "
        f"{PAIRS}, and a single late position, the answer, ranks as well as the whole response: "
        f"worse on {position[AGREES]}, better on {position[DISAGREES]}, open on {position[OPEN]}."
    )


def calibration() -> str:
    change = mean_difference(ISOTONIC, ANS)
    again = compare_on_resplits(signals().sets, CHOICES.bins)
    low = again.constant_lower_ece.min()
    high = again.constant_lower_ece.max()
    best_four = sorted(again.isotonic_lower_brier)[-4:]
    return (
        f"**Isotonic regression lowers the ECE of Ans Avg on {change.lower} of {PAIRS}** "
        f"({with_interval(change)}). On random re-splits a constant has a still lower ECE in "
        f"{low:.0%} to {high:.0%}, though it ranks nothing; by Brier score isotonic regression "
        f"wins in {best_four[0]:.0%} to {best_four[-1]:.0%} on four pairs. So a low ECE alone "
        "does not make a confidence useful."
    )


def verification() -> str:
    lower = mean_difference(P_TRUE, SEQ)
    in_situ = mean_difference(IN_SITU, P_TRUE)
    half = (values("ECE of the constant .5") < values("ECE P(True)")).sum()
    return (
        f"**P(True)** hardly varies (spread {span('spread of P(True)')}) and hardly ranks (AUROC "
        f"{span('AUROC P(True)')}). Its ECE is lower than that of Seq Avg on {lower.lower} of "
        f"{PAIRS} because it says about .6 to everything; the constant .5 has a still lower ECE "
        f"on {half}. In situ (asked right after the response) its ECE is lower on {in_situ.lower} "
        f"pairs, those of the 0.5B, and higher on the 1.5B: {with_interval(in_situ)} on average."
    )


def limits() -> str:
    right = 300 * values("of these right, evaluation")["qwen2.5-coder-0.5b"]
    gsm8k = round(right["gsm8k"])
    gsmhard = round(right["gsmhard"])
    easier = []
    for name, label in {"svamp": "SVAMP", "gsm8k": "GSM8K"}.items():
        difference, p = easier_questions(name)
        easier.append(f"{label} ({format_3dp(difference, '+')}, p {format_3dp(p)})")
    return (
        "**Limits.** Two models of one family are not six independent cases, and the 0.5B is "
        f"rarely right: on {gsm8k} of 300 questions of GSM8K and {gsmhard} of GSMHard. "
        f"Calibration questions are easier than evaluation questions on {' and '.join(easier)}, "
        "as published training splits are: a calibrator or a guarantee holds if new questions "
        "are like the calibration questions."
    )


# ---- README's bullets


def lower_error() -> str:
    error = mean_difference(SEQ, ANS)
    decided = counts("seq_ranks_above_answer")[DISAGREES]
    return (
        f"**Seq Avg has a lower ECE than Ans Avg on {error.lower} of {PAIRS} pairs**, as in the "
        f"paper: {with_interval(error)} on average. Both are far too high. Ans Avg ranks answers "
        f"better on {decided} of {PAIRS}; on the others it cannot be told."
    )


def repaired_error() -> str:
    change = mean_difference(ISOTONIC, ANS)
    again = compare_on_resplits(signals().sets, CHOICES.bins)
    low = again.constant_lower_ece.min()
    high = again.constant_lower_ece.max()
    return (
        f"**Isotonic regression lowers the ECE of Ans Avg on {change.lower} of {PAIRS}**: "
        f"{with_interval(change)}. But a constant, which ranks nothing, has a still lower ECE in "
        f"{low:.0%} to {high:.0%} of random re-splits. A low ECE alone does not make a confidence "
        "useful."
    )


def explanation() -> str:
    first = counts("means_overlap_first")
    late = counts("means_part_later")
    position = counts("no_single_token")
    return (
        f"**The paper's explanation holds in part.** Right and wrong responses start alike "
        f"({first[AGREES]} of {PAIRS} pairs) and differ late ({late[AGREES]}). But the answer "
        f"alone, a single position, ranks them as well as the whole response: better on "
        f"{position[DISAGREES]} of {PAIRS}, worse on {position[AGREES]}, open on {position[OPEN]}."
    )


# ---- the pages


def wrap(bullets: list[str], width: int) -> str:
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(wrapper.fill(f"- {bullet}") for bullet in bullets)


def renewed_readme(text: str) -> str:
    bullets = [lower_error(), repaired_error(), explanation()]
    return replace_table(text, BEGIN, wrap(bullets, 120))


def renewed_page(text: str) -> str:
    bullets = [
        sequence_and_answer(),
        unreadable_answers(),
        mechanism(),
        calibration(),
        verification(),
        limits(),
    ]
    return replace_table(text, BEGIN, wrap(bullets, 138))


if __name__ == "__main__":
    README.write_text(renewed_readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    PAGE.write_text(renewed_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
