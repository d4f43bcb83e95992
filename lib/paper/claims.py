"""The paper's findings as predicates over evidence: held or not, on the paper's own numbers and on a run's.

A claim counts cases (pairs, cells, arrows) and holds when its `quorum` of them does; where the paper says "often" or
"generally", that is more than half. The hard dataset is the least accurate one. Thresholds that the paper leaves to
the eye ("stable", "roughly") are stated in the claim itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from lib.paper import cases
from lib.paper.cases import Cases
from lib.paper.cells import escape
from lib.paper.results import Evidence

ALL, MOST, HALF = 1.0, 0.75, 0.5  # quorum: all; three in four; more than half


@dataclass(frozen=True)
class Claim:
    """`place` is the label of the table or figure that shows it; `needs` the frames without which nothing is said."""

    name: str
    place: str
    statement: str
    unit: str
    judge: Callable[[Evidence], Cases]
    needs: tuple[str, ...]
    quorum: float = HALF
    figure: Callable[[Evidence], str] | None = None  # what is quoted, where it is no count


@dataclass(frozen=True)
class Verdict:
    """`held` is None where the evidence lacks what the claim needs; `rows` (with `agrees`) decide it."""

    claim: Claim
    held: bool | None
    said: str
    rows: pd.DataFrame


# ---- what the paper says

_TABLE, _PTRUE = ("result_estimation",), ("insitu_ptrue",)
_GRID, _BINS, _MOVED = ("dropout_grid_search",), ("bin_ablation",), ("calibration_transfer_summary",)
CLAIMS: tuple[Claim, ...] = (
    Claim("SeqAvgBelowAnswer", "tab_result_estimation",
          "Finding 1: Seq Avg has a lower ECE than both answer estimators on all pairs", "pairs",
          cases.below("seq_avg", "ans_avg|ans_joint"), _TABLE, ALL),
    Claim("SeqJointBelowAnswer", "tab_result_estimation",
          "Finding 1: Seq Joint has a lower ECE than both answer estimators on all pairs", "pairs",
          cases.below("seq_joint", "ans_avg|ans_joint"), _TABLE, ALL),
    Claim("SeqAnsOverlap", "tab_result_estimation_full",
          "Finding 1: intervals of Seq Avg and Ans Avg overlap on some pairs, not on most", "pairs", cases.overlap,
          ("result_estimation_full",), 0.0),
    Claim("JointBelowAvg", "tab_result_estimation", "Finding 1: Seq Joint is often lower than Seq Avg", "pairs",
          cases.below("seq_joint", "seq_avg"), _TABLE),
    Claim("JointBelowAvgHard", "tab_result_estimation",
          "Finding 1: Seq Joint is lower than Seq Avg on the hard dataset in particular", "models",
          cases.below("seq_joint", "seq_avg", hard=True), _TABLE, MOST),
    Claim("SeqBelowMultiPass", "tab_result_estimation",
          "Finding 1: in several settings the best sequence estimator beats the best multi-pass one", "pairs",
          cases.below("seq_avg|seq_joint", "p_true|c_bald"), _TABLE, 0.25),
    Claim("MeansOverlapFirst", "fig_main_analysis",
          "Figure 1a: running means of right and wrong responses overlap in the first tenth (gap below .02)", "pairs",
          lambda e: cases.running(e, 0, 0.1, lambda gap: abs(gap) < 0.02), ("running_mean",), MOST),
    Claim("MeansPartLater", "fig_main_analysis",
          "Figure 1a: later they part, right responses above wrong ones in the last tenth", "pairs",
          lambda e: cases.running(e, 0.9, 1, lambda gap: gap > 0), ("running_mean",), MOST),
    Claim("AnswersSaturate", "fig_main_analysis",
          "Section 1: answer tokens are saturated (median probability above .99)", "pairs",
          cases.saturated, ("answers",), MOST),
    Claim("BaldBelowPTrue", "tab_result_estimation", "Finding 2: c_BALD often has a lower ECE than P(True)", "pairs",
          cases.below("c_bald", "p_true"), _TABLE),
    Claim("BaldBelowPTrueHard", "tab_result_estimation",
          "Finding 2: c_BALD has a lower ECE than P(True) particularly on the hard dataset", "models",
          cases.below("c_bald", "p_true", hard=True), _TABLE, MOST),
    Claim("PredictiveSettles", "fig_main_analysis",
          "Finding 2: predictive entropy settles after about five passes (90% of its last value)", "pairs",
          lambda e: cases.settles(e, "predictive", lambda row: row.iloc[min(4, len(row) - 1)] >= 0.9 * row.iloc[-1]),
          ("entropies",), MOST),
    Claim("ConditionalStays", "fig_main_analysis",
          "Finding 2: expected conditional entropy stays within 20% of its last value", "pairs",
          lambda e: cases.settles(e, "conditional", lambda row: (row - row.iloc[-1]).abs().max() <= 0.2 * row.iloc[-1]),
          ("entropies",), MOST),
    Claim("TopTokenUnchanged", "fig_main_analysis",
          "Introduction: distributions vary (BALD above 0) where the answer's most probable tokens never change",
          "pairs", cases.unchanged, ("top_tokens",), ALL),
    Claim("RateMatters", "tab_dropout_grid_search",
          "Finding 2: c_BALD is sensitive to the dropout rate (ECE moves by more than .02)", "pairs",
          cases.rate_matters, _GRID),
    Claim("HardRateHigher", "tab_dropout_grid_search",
          "Appendix: the hard dataset selects a higher rate than the others for most models", "models", cases.hard_rate,
          _GRID),
    Claim("RatesHold", "tab_dropout_grid_search",
          "Appendix: selected rates carry over to the evaluation split (ECE within .05)", "pairs", cases.rates_hold,
          (*_GRID, *_TABLE)),
    Claim("PTrueBelowAnsAvg", "tab_result_estimation", "Finding 3: P(True) is often better calibrated than Ans Avg",
          "pairs", cases.below("p_true", "ans_avg"), _TABLE),
    Claim("InSituMatches", "tab_insitu_ptrue", "Finding 3: in situ matches or improves on standard P(True)", "pairs",
          cases.below("p_true_insitu", "p_true", table="insitu_ptrue", equal=True), _PTRUE),
    Claim("InSituBelowAnsAvg", "tab_insitu_ptrue", "Finding 3: in situ is better calibrated than Ans Avg", "pairs",
          cases.below("p_true_insitu", "ans_avg", table="insitu_ptrue"), _PTRUE),
    Claim("TokenReduction", "tab_insitu_ptrue",
          "Finding 3: in situ saves most tokens of the standard prompt, on every pair", "pairs",
          cases.saved, _PTRUE, ALL, cases.percent),
    Claim("IsotonicReduces", "tab_result_isotonic", "Section 6: isotonic regression generally reduces ECE", "cells",
          cases.gains("isotonic", "result_isotonic"), ("result_isotonic",)),
    Claim("PlattReduces", "tab_result_calibration", "Section 6: temperature and Platt scaling generally reduce ECE",
          "cells", cases.gains("platt", "result_calibration"), ("result_calibration",)),
    Claim("IsotonicBelowTemperature", "tab_result_calibration",
          "Section 6: isotonic often reduces most, against temperature on the answer's tokens", "cells",
          cases.isotonic_below_platt("ans_avg", "ans_joint"), ("result_calibration",)),
    Claim("PlattBelowIsotonic", "tab_result_calibration",
          "Section 6: for P(True), Platt scaling beats isotonic regression", "pairs",
          cases.isotonic_below_platt("p_true", turned=True), ("result_calibration",)),
    Claim("FiftySuffice", "fig_calibration_analysis",
          "Finding 4: with 50 rows at least half of what all rows remove is removed (Ans Avg, isotonic)", "pairs",
          cases.fifty, ("learning",), ALL),
    Claim("HardNeedsFewer", "fig_calibration_analysis",
          "Finding 4: the hard dataset gets there with the fewest rows", "models",
          cases.hard_first, ("learning",), ALL),
    Claim("EasyToHard", "tab_calibration_transfer_summary",
          "Finding 4: calibrators learned on another dataset improve the hard one", "arrows",
          cases.arrows("model", True, True), _MOVED, ALL),
    Claim("HardToEasy", "tab_calibration_transfer_summary",
          "Finding 4: calibrators learned on the hard dataset generally worsen the others", "arrows",
          cases.arrows("model", False, False), _MOVED),
    Claim("ModelsOnHard", "tab_calibration_transfer_summary",
          "Finding 4: between models, both directions improve the hard dataset", "arrows",
          cases.arrows("dataset", True, True), _MOVED, ALL),
    Claim("ModelsOnEasy", "tab_calibration_transfer_summary",
          "Finding 4: between models, some directions worsen the other dataset, not all", "arrows",
          cases.arrows("dataset", False, False), _MOVED, 0.0),
    Claim("SummaryIsFull", "tab_calibration_transfer_summary",
          "Tables: the changes of the transfer summary are those of the full table", "cells", cases.summary_is_full,
          (*_MOVED, "calibration_transfer_full"), ALL),
    Claim("ShortIsFull", "tab_result_calibration_full", "Tables: calibration prints the same in short and in full",
          "cells", cases.short_is_full, ("result_calibration", "result_calibration_full"), ALL),
    Claim("EceStable", "tab_bin_ablation", "Appendix: ECE hardly moves with the number of bins (within .02)", "cells",
          cases.bins("ece", lambda w: w.max(axis=1) - w.min(axis=1) < 0.0205), _BINS),
    Claim("MceGrows", "tab_bin_ablation", "Appendix: MCE grows, or stays, with the number of bins", "cells",
          cases.bins("mce", lambda w: (w.diff(axis=1).iloc[:, 1:] >= 0).all(axis=1)), _BINS),
    Claim("BrierStays", "tab_bin_ablation", "Appendix: the Brier score does not depend on the bins", "cells",
          cases.bins("brier", lambda w: w.max(axis=1) - w.min(axis=1) < 1e-9), _BINS, ALL),
    Claim("CostLinear", "rep_ablation", "Finding 2: c_BALD's cost grows linearly with its passes (within 10%)", "pairs",
          cases.linear, ("cost",), ALL),
    Claim("DemonstrationAccuracy", "rep_ablation", "Appendix: the demonstration raises accuracy", "pairs",
          cases.ablated("accuracy"), ("ablation",)),
    Claim("DemonstrationExtraction", "rep_ablation", "Appendix: the demonstration raises the share of answers found",
          "pairs", cases.ablated("extracted"), ("ablation",)),
    Claim("BoxedFormat", "rep_ablation", "Appendix: accepting \\boxed{} finds right answers that #### misses", "pairs",
          cases.boxed, ("ablation",), 0.0),
)  # fmt: skip
SOME_NOT_ALL = {"SeqAnsOverlap", "ModelsOnEasy"}


def judge(claim: Claim, e: Evidence) -> Verdict:
    """A claim on some evidence."""
    if any(name not in e.frames or e.frames[name].empty for name in claim.needs):
        return Verdict(claim, None, "", pd.DataFrame())
    rows, agrees = claim.judge(e)
    agrees = agrees.reset_index(drop=True).astype(bool)
    count, total = int(agrees.sum()), len(agrees)
    if not total:
        return Verdict(claim, None, "", rows)
    held = count == total if claim.quorum == ALL else count > claim.quorum * total
    if claim.name in SOME_NOT_ALL:
        held = 0 < count < total
    rows = rows.reset_index(drop=True)
    rows = rows.assign(agrees=agrees) if len(rows) == total else rows
    figure = claim.figure(e) if claim.figure else ""
    said = f"{count} of {total} {claim.unit}"
    return Verdict(claim, held, f"{figure} on average, {said}" if figure else said, rows)


def macros(found: dict[str, Verdict]) -> str:
    """`numbers.tex`: a LaTeX macro for each figure that the text quotes (\\BaldBelowPTrue: 10 of 15)."""
    lines = [(v.claim, v.said.split(" on average")[0] if v.claim.figure else v.said.removesuffix(f" {v.claim.unit}"))
             for v in found.values() if v.said]  # fmt: skip
    return "".join(f"% {claim.statement} ({claim.unit})\n\\newcommand{{\\{claim.name}}}{{{escape(said)}}}\n"
                   for claim, said in lines)  # fmt: skip


def verdicts(e: Evidence) -> dict[str, Verdict]:
    """Every claim on some evidence, by name."""
    return {claim.name: judge(claim, e) for claim in CLAIMS}
