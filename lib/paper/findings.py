"""The paper's findings as predicates over results: held or not, on the paper's own numbers and on a run's.

A finding counts cases (pairs, cells, arrows) and holds when its `quorum` of them agrees; where the paper says "often"
or "generally", that is more than half. The hard dataset is the least accurate one. Thresholds that the paper leaves to
the eye ("stable", "roughly") are stated in the finding itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd

from lib.paper import counting
from lib.paper.counting import Cases
from lib.paper.latex import escape
from lib.paper.results import NotThere, Results
from lib.paper.targets import target

ALL, MOST, HALF, SOME = 1.0, 0.75, 0.5, 0.0  # quorum: all of them; more than this share
SOME_NOT_ALL = "some, not all"


@dataclass(frozen=True)
class Finding:
    """`place` is the target that shows it; `judge` returns the rows that decide and which of them agree."""

    name: str
    place: str
    unit: str
    judge: Callable[[Results], Cases]
    statement: str
    quorum: float | str = HALF
    quote: Callable[[Results], str] | None = None  # what the text quotes, where it is no count


@dataclass(frozen=True)
class Verdict:
    """`held` is None where the results lack what the finding needs (the frame `lacks`) or have no case; `rows` (with
    `agrees`) decide it; `quoted` is the number in the text."""

    finding: Finding
    held: bool | None = None
    said: str = ""
    quoted: str = ""
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    lacks: str = ""


FINDINGS: tuple[Finding, ...] = (
    Finding("SeqAvgBelowAnswer", "tab_result_estimation", "pairs", counting.below("seq_avg", "ans_avg|ans_joint"),
            "Finding 1: Seq Avg has a lower ECE than both answer estimators on all pairs", ALL),
    Finding("SeqJointBelowAnswer", "tab_result_estimation", "pairs", counting.below("seq_joint", "ans_avg|ans_joint"),
            "Finding 1: Seq Joint has a lower ECE than both answer estimators on all pairs", ALL),
    Finding("SeqAnsOverlap", "tab_result_estimation_full", "pairs", counting.overlap,
            "Finding 1: intervals of Seq Avg and Ans Avg overlap on some pairs, not on most", SOME_NOT_ALL),
    Finding("JointBelowAvg", "tab_result_estimation", "pairs", counting.below("seq_joint", "seq_avg"),
            "Finding 1: Seq Joint is often lower than Seq Avg"),
    Finding("JointBelowAvgHard", "tab_result_estimation", "models", counting.below("seq_joint", "seq_avg", hard=True),
            "Finding 1: Seq Joint is lower than Seq Avg on the hard dataset in particular", MOST),
    Finding("SeqBelowMultiPass", "tab_result_estimation", "pairs", counting.below("seq_avg|seq_joint", "p_true|c_bald"),
            "Finding 1: in several settings the best sequence estimator beats the best multi-pass one", 0.25),
    Finding("MeansOverlapFirst", "fig_main_analysis", "pairs", counting.running(0, 0.1, lambda gap: gap.abs() < 0.02),
            "Figure 1a: running means of right and wrong responses overlap in the first tenth (gap below .02)", MOST),
    Finding("MeansPartLater", "fig_main_analysis", "pairs", counting.running(0.9, 1, lambda gap: gap > 0),
            "Figure 1a: later they part, right responses above wrong ones in the last tenth", MOST),
    Finding("AnswersSaturate", "fig_main_analysis", "pairs", counting.saturated,
            "Section 1: answer tokens are saturated (median probability above .99)", MOST),
    Finding("BaldBelowPTrue", "tab_result_estimation", "pairs", counting.below("c_bald", "p_true"),
            "Finding 2: c_BALD often has a lower ECE than P(True)"),
    Finding("BaldBelowPTrueHard", "tab_result_estimation", "models", counting.below("c_bald", "p_true", hard=True),
            "Finding 2: c_BALD has a lower ECE than P(True) particularly on the hard dataset", MOST),
    Finding("PredictiveSettles", "fig_main_analysis", "pairs",
            counting.settles("predictive", lambda row: row.iloc[min(4, len(row) - 1)] >= 0.9 * row.iloc[-1]),
            "Finding 2: predictive entropy settles after about five passes (90% of its last value)", MOST),
    Finding("ConditionalStays", "fig_main_analysis", "pairs",
            counting.settles("conditional", lambda row: (row - row.iloc[-1]).abs().max() <= 0.2 * row.iloc[-1]),
            "Finding 2: expected conditional entropy stays within 20% of its last value", MOST),
    Finding("TopTokenUnchanged", "fig_main_analysis", "pairs", counting.unchanged,
            "Introduction: distributions vary (BALD above 0) where the answer's most probable tokens never change",
            ALL),
    Finding("RateMatters", "tab_dropout_grid_search", "pairs", counting.rate_matters,
            "Finding 2: c_BALD is sensitive to the dropout rate (ECE moves by more than .02)"),
    Finding("HardRateHigher", "tab_dropout_grid_search", "models", counting.hard_rate,
            "Appendix: the hard dataset selects a higher rate than the others for most models"),
    Finding("RatesHold", "tab_dropout_grid_search", "pairs", counting.rates_hold,
            "Appendix: selected rates carry over to the evaluation split (ECE within .05)"),
    Finding("PTrueBelowAnsAvg", "tab_result_estimation", "pairs", counting.below("p_true", "ans_avg"),
            "Finding 3: P(True) is often better calibrated than Ans Avg"),
    Finding("InSituMatches", "tab_insitu_ptrue", "pairs",
            counting.below("p_true_insitu", "p_true", table="insitu_ptrue", equal=True),
            "Finding 3: in situ matches or improves on standard P(True)"),
    Finding("InSituBelowAnsAvg", "tab_insitu_ptrue", "pairs",
            counting.below("p_true_insitu", "ans_avg", table="insitu_ptrue"),
            "Finding 3: in situ is better calibrated than Ans Avg"),
    Finding("TokenReduction", "tab_insitu_ptrue", "pairs", counting.saved,
            "Finding 3: in situ saves most tokens of the standard prompt, on every pair", ALL,
            quote=counting.mean_saving),
    Finding("IsotonicReduces", "tab_result_isotonic", "cells", counting.gains("isotonic", "result_isotonic"),
            "Section 6: isotonic regression generally reduces ECE"),
    Finding("PlattReduces", "tab_result_calibration", "cells", counting.gains("platt", "result_calibration"),
            "Section 6: temperature and Platt scaling generally reduce ECE"),
    Finding("IsotonicBelowTemperature", "tab_result_calibration", "cells",
            counting.lower("isotonic", "platt", "ans_avg", "ans_joint"),
            "Section 6: isotonic often reduces most, against temperature on the answer's tokens"),
    Finding("PlattBelowIsotonic", "tab_result_calibration", "pairs", counting.lower("platt", "isotonic", "p_true"),
            "Section 6: for P(True), Platt scaling beats isotonic regression"),
    Finding("FiftySuffice", "fig_calibration_analysis", "pairs", counting.fifty,
            "Finding 4: with 50 rows at least half of what all rows remove is removed (Ans Avg, isotonic)", ALL),
    Finding("HardNeedsFewer", "fig_calibration_analysis", "models", counting.hard_first,
            "Finding 4: the hard dataset gets there with the fewest rows", ALL),
    Finding("EasyToHard", "tab_calibration_transfer_summary", "arrows",
            counting.arrows("model", to_hard=True, better=True),
            "Finding 4: calibrators learned on another dataset improve the hard one", ALL),
    Finding("HardToEasy", "tab_calibration_transfer_summary", "arrows",
            counting.arrows("model", to_hard=False, better=False),
            "Finding 4: calibrators learned on the hard dataset generally worsen the others"),
    Finding("ModelsOnHard", "tab_calibration_transfer_summary", "arrows",
            counting.arrows("dataset", to_hard=True, better=True),
            "Finding 4: between models, both directions improve the hard dataset", ALL),
    Finding("ModelsOnEasy", "tab_calibration_transfer_summary", "arrows",
            counting.arrows("dataset", to_hard=False, better=False),
            "Finding 4: between models, some directions worsen the other dataset, not all", SOME_NOT_ALL),
    Finding("SummaryIsFull", "tab_calibration_transfer_summary", "cells", counting.summary_is_full,
            "Tables: the changes of the transfer summary are those of the full table", ALL),
    Finding("ShortIsFull", "tab_result_calibration_full", "cells", counting.short_is_full,
            "Tables: calibration prints the same in short and in full", ALL),
    Finding("EceStable", "tab_bin_ablation", "cells",
            counting.bins("ece", lambda wide: wide.max(axis=1) - wide.min(axis=1) < 0.0205),
            "Appendix: ECE hardly moves with the number of bins (within .02)"),
    Finding("MceGrows", "tab_bin_ablation", "cells",
            counting.bins("mce", lambda wide: (wide.diff(axis=1).iloc[:, 1:] >= 0).all(axis=1)),
            "Appendix: MCE grows, or stays, with the number of bins"),
    Finding("BrierStays", "tab_bin_ablation", "cells",
            counting.bins("brier", lambda wide: wide.max(axis=1) - wide.min(axis=1) < 1e-9),
            "Appendix: the Brier score does not depend on the bins", ALL),
    Finding("CostLinear", "rep_ablation", "pairs", counting.linear,
            "Finding 2: c_BALD's cost grows linearly with its passes (within 10%)", ALL),
    Finding("DemonstrationAccuracy", "rep_ablation", "pairs", counting.ablated("accuracy"),
            "Appendix: the demonstration raises accuracy"),
    Finding("DemonstrationExtraction", "rep_ablation", "pairs", counting.ablated("extracted"),
            "Appendix: the demonstration raises the share of answers found"),
    Finding("BoxedFormat", "rep_ablation", "pairs", counting.boxed,
            "Appendix: accepting \\boxed{} finds right answers that #### misses", SOME),
)  # fmt: skip


def judge(finding: Finding, results: Results) -> Verdict:
    """A finding on some results."""
    try:
        rows, agrees = finding.judge(results)
    except NotThere as missing:
        return Verdict(finding, lacks=str(missing.args[0]))
    agrees = agrees.reset_index(drop=True).astype(bool)
    count, total = int(agrees.sum()), len(agrees)
    if not total:
        return Verdict(finding, rows=rows)
    rows = rows.reset_index(drop=True)
    if len(rows) == total:
        rows = rows.assign(agrees=agrees)
    held, said = _held(finding.quorum, count, total), f"{count} of {total} {finding.unit}"
    if finding.quote is None:
        return Verdict(finding, held, said, f"{count} of {total}", rows)
    quoted = finding.quote(results)
    return Verdict(finding, held, f"{quoted} on average, {said}", quoted, rows)


def _held(quorum: float | str, count: int, total: int) -> bool:
    if quorum == SOME_NOT_ALL:
        return 0 < count < total
    return count == total if quorum == ALL else count > float(quorum) * total


def verdicts(results: Results) -> dict[str, Verdict]:
    """Every finding on some results, by name."""
    return {finding.name: judge(finding, results) for finding in FINDINGS}


@target("numbers", published=True)
def macros(verdicts: dict[str, Verdict]) -> str:
    """`numbers.tex`: a LaTeX macro for each figure that the text quotes (\\BaldBelowPTrue: 10 of 15)."""
    lines = []
    for verdict in verdicts.values():
        if verdict.said:
            finding = verdict.finding
            lines.append(f"% {finding.statement} ({finding.unit})")
            lines.append(f"\\newcommand{{\\{finding.name}}}{{{escape(verdict.quoted)}}}")
    return "".join(f"{line}\n" for line in lines)
