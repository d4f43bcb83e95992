r"""The paper's claims, all of them, in the order in which it makes them: reading this table is reading the paper.

    "the paper's sentence in a few words": Claim(name, what shows it, quantifier, what is counted, view, predicate)

The predicate is text about the columns of a view of `claim_views`, a case a row, and `verdicts` counts the cases that
agree: what is computed is what is printed. Quantifiers: `verdicts.QUANTIFIERS`. Thresholds that the paper leaves to the
eye ("stable", "roughly") stand in the predicate; differences below 1e-9 are those of floats. What stands in parentheses
in place of a quotation is no sentence of the paper.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from lib.paper import signal_views  # noqa: F401  declares views
from lib.paper.calibration_views import count_directions
from lib.paper.claim_views import VIEWS, View, count_by, fill_in

MAIN, FULL, PICTURE = "tab_result_estimation", "tab_result_estimation_full", "fig_main_analysis"
RATES, IN_SITU, BINS = "tab_dropout_grid_search", "tab_insitu_ptrue", "tab_bin_ablation"
CALIBRATED, ISOTONIC, SIZES = "tab_result_calibration", "tab_result_isotonic", "fig_calibration_analysis"
SUMMARY, ASKED = "tab_calibration_transfer_summary", "rep_ablation"
SATURATED = "saturated: it cannot be computed on any pair"
FEW_PASSES = "no more than five passes"
BOTH = fill_in("hard {hard:.3f}, elsewhere {elsewhere:.3f}")


@dataclass(frozen=True)
class Claim:
    """`place` is the target that shows it. `where` chooses among the cases of the view; `otherwise` says why none is
    left. `summary` says more than a count, of the cases. `kind`: a claim of the paper, a check of consistency (true by
    construction of the program), or a reading of ours (that the paper does not claim)."""

    name: str
    place: str
    quantifier: str
    unit: str
    view: str
    predicate: str
    where: str = ""
    otherwise: str = "no case"
    summary: Callable[[pd.DataFrame], Any] | None = None
    kind: str = "claim"
    quote: str = ""
    group: str = ""

    @property
    def seen(self) -> View:
        return VIEWS[self.view]

    @property
    def statement(self) -> str:
        """What is counted, as it is evaluated: the cases, and the predicate."""
        return f"{self.seen.about}: {self.predicate}" + (f", where {self.where}" if self.where else "")


FINDINGS = {  # what the paper sets in a box; the claims of each group stand under it
    "Finding 1": "Calibrated confidence arises from aggregating weak but consistent probability differences across the "
    "reasoning trajectory",
    "Finding 2": "MC Dropout captures uncertainty from variation in predictive distributions, but requires "
    "dropout-rate selection and multiple stochastic passes",
    "Finding 3": "In-situ self-verification achieves calibration comparable to standard P(True) with substantially "
    "lower token-processing overhead",
    "Finding 4": "Calibration can be more data-efficient on harder datasets under random sampling, but learned "
    "mappings transfer asymmetrically",
}
DECLARED: Mapping[str, Mapping[str, Claim]] = {
    "Introduction": {
        "raw token probabilities often provide unreliable and saturated signals": Claim(
            "AnswersSaturate", PICTURE, "often", "pairs", "token_statistics", "median_answer_token > 0.99",
            otherwise=SATURATED,
        ),
        "highly likely when conditioned on an incorrect reasoning trajectory": Claim(
            "WrongAnswersSure", PICTURE, "can", "pairs", "token_statistics", "median_wrong_answer_token > 0.99",
            otherwise=SATURATED,
        ),
        "low-probability tokens along the trajectory may signal potential errors": Claim(
            "LowTokensSignal", PICTURE, "can", "pairs", "token_statistics", "auroc_of_smallest > 0.5",
            otherwise=SATURATED,
        ),
        "particularly pronounced for answer-token estimators": Claim(
            "OverconfidenceOfAnswers", MAIN, "generally", "pairs", "overconfidence",
            "ans_avg > seq_avg and ans_avg > seq_joint and ans_joint > seq_avg and ans_joint > seq_joint",
        ),
        "aggregating over the full reasoning trajectory yields discriminative confidence estimates": Claim(
            "SeqDiscriminates", MAIN, "generally", "pairs", "raw_auroc", "seq_avg > ans_avg",
            otherwise="one class only",
        ),
        "multi-pass methods can yield calibrated confidence estimates": Claim(
            "MultiPassCalibrated", MAIN, "can", "pairs", "raw_ece", "best_multi_pass <= 0.05"
        ),
        "uncertainty not reflected in the decoded output, even when the generated answer remains unchanged": Claim(
            "TopTokenUnchanged", PICTURE, "generally", "pairs", "pass_statistics", "auroc_where_unchanged > 0.5",
            where="unchanged >= 20", otherwise="no pair has 20 such responses, right ones and wrong ones",
        ),
        "both of which substantially reduce in-domain calibration error": Claim(
            "CalibrationSubstantial", CALIBRATED, "all", "methods", "median_gains", "median_gain >= 0.5",
            summary=fill_in("{method} {median_gain:.0%}"),
        ),
        "length normalization reduces the joint probability's inherent preference for shorter sequences": Claim(
            "JointNormalised", "tab_estimators", "generally", "pairs", "token_statistics",
            "abs(joint_with_length) < abs(product_with_length)", otherwise=SATURATED,
        ),
        "over two thousand evaluation examples in total": Claim(
            "OverTwoThousand", MAIN, "figure", "", "evaluation_questions", "questions > 2000",
            summary=fill_in("{questions:,} questions"),
        ),
    },
    "Finding 1": {
        "across all model-dataset pairs, sequence-based estimators achieve lower ECE": Claim(
            "SeqAvgBelowAnswer", MAIN, "all", "pairs", "raw_ece", "seq_avg < ans_avg and seq_avg < ans_joint"
        ),
        "across all model-dataset pairs, sequence-based estimators achieve lower ECE than answer-only": Claim(
            "SeqJointBelowAnswer", MAIN, "all", "pairs", "raw_ece", "seq_joint < ans_avg and seq_joint < ans_joint"
        ),
        "although the confidence intervals overlap in some settings": Claim(
            "SeqAnsOverlap", FULL, "some", "pairs", "interval_ends",
            "seq_avg_low <= ans_avg_high and ans_avg_low <= seq_avg_high",
        ),
        "the full generated sequence substantially improves calibration": Claim(
            "SubstantiallyBetter", MAIN, "generally", "pairs", "raw_ece", "seq_avg <= 0.8 * ans_avg + 1e-9"
        ),
        "in several settings, sequence-based estimators also achieve lower ECE than multi-pass estimators": Claim(
            "SeqBelowMultiPass", MAIN, "several", "pairs", "ece_beside_passes",
            "(seq_avg < p_true and seq_avg < c_bald) or (seq_joint < p_true and seq_joint < c_bald)",
        ),
        "the curves initially overlap": Claim(
            "MeansOverlapFirst", PICTURE, "generally", "pairs", "running_means", "abs(gap_first_tenth) < 0.02"
        ),
        "as generation progresses, the curves separate": Claim(
            "MeansPartLater", PICTURE, "generally", "pairs", "running_means", "gap_last_tenth > 0"
        ),
        "tend to increase for correct final answers and decrease for incorrect": Claim(
            "MeansDiverge", PICTURE, "generally", "pairs", "running_means", "slope_right > 0 and slope_wrong < 0"
        ),
        "the useful signal does not necessarily arise from any single token": Claim(
            "NoSingleToken", PICTURE, "can", "pairs", "position_aurocs", "best_position < mean_of_all"
        ),
        "small probability differences accumulate across the reasoning trajectory": Claim(
            "SignalAccumulates", PICTURE, "generally", "pairs", "position_aurocs", "at_the_end > after_a_tenth"
        ),
        "within each token subset, length-normalized joint probability often outperforms arithmetic averaging": Claim(
            "JointBelowAvg", MAIN, "often", "cases", "ece_by_subset", "joint < avg",
            summary=count_by("subset", "joint == avg"),
        ),
        "particularly on GSMHard": Claim(
            "JointBelowAvgHard", MAIN, "figure", "", "joint_margin", "hard > elsewhere and hard > 0", summary=BOTH
        ),
    },
    "Finding 2": {
        "c_BALD often achieves lower calibration error than P(True)": Claim(
            "BaldBelowPTrue", MAIN, "often", "pairs", "ece_beside_passes", "c_bald < p_true"
        ),
        "its advantage being particularly pronounced on GSMHard": Claim(
            "BaldBelowPTrueHard", MAIN, "figure", "", "bald_margin", "hard > elsewhere and hard > 0", summary=BOTH
        ),
        "the extra cost is roughly proportional to the length of the re-encoded pair": Claim(
            "PTrueCostGrows", IN_SITU, "generally", "pairs", "verification_tokens", "r2 > 0.9", otherwise=SATURATED
        ),
        "inference cost grows approximately linearly with the number of stochastic passes": Claim(
            "CostLinear", ASKED, "all", "pairs", "operations_per_pass", "0.9 <= ratio <= 1.1", kind="consistency"
        ),
        "its performance is sensitive to the dropout rate": Claim(
            "RateMatters", RATES, "generally", "pairs", "dropout_rates", "ece_range > 0.02"
        ),
        "the expected conditional entropy remains relatively stable": Claim(
            "ConditionalStays", PICTURE, "generally", "pairs", "entropy_curves_by_pair",
            "conditional_drift <= 0.2 * conditional", otherwise="one pass",
        ),
        "individual forward passes produce similarly sharp distributions": Claim(
            "PassesSharp", PICTURE, "generally", "pairs", "pass_statistics", "entropy_variation <= 0.2",
            otherwise=SATURATED,
        ),
        "the predictive entropy increases with T": Claim(
            "EntropyGrows", PICTURE, "generally", "pairs", "entropy_curves_by_pair", "predictive_least_growth > 0",
            otherwise="one pass",
        ),
        "stabilizes after roughly five samples": Claim(
            "PredictiveSettles", PICTURE, "generally", "pairs", "entropy_curves_by_pair",
            "predictive_drift <= 0.1 * predictive", otherwise=FEW_PASSES,
        ),
        "a five-fold overhead for a reliable estimation": Claim(
            "FiveReliable", PICTURE, "generally", "pairs", "ece_by_passes", "abs(after_five - after_all) <= 0.02",
            otherwise=FEW_PASSES,
        ),
        "MC Dropout primarily captures distributional uncertainty": Claim(
            "MostlyDistributional", PICTURE, "generally", "pairs", "pass_statistics", "bald_share > 0.5",
            otherwise=SATURATED,
        ),
    },
    "Finding 3": {
        "why is it often better calibrated than Ans Avg": Claim(
            "PTrueBelowAnsAvg", MAIN, "often", "pairs", "ece_beside_p_true", "p_true < ans_avg"
        ),
        "in-situ verification achieves ECE comparable to standard P(True)": Claim(
            "InSituComparable", IN_SITU, "most", "pairs", "ece_in_situ", "abs(p_true_insitu - p_true) <= 0.05 + 1e-9"
        ),
        "it matches or improves ECE in 10 of the 15 settings": Claim(
            "InSituMatches", IN_SITU, "generally", "pairs", "ece_in_situ", "p_true_insitu.round(3) <= p_true.round(3)"
        ),
        "(in situ beside Ans Avg)": Claim(
            "InSituBelowAnsAvg", IN_SITU, "generally", "pairs", "ece_in_situ", "p_true_insitu < ans_avg", kind="ours"
        ),
        "reduces token-processing overhead by 88% on average across all settings": Claim(
            "TokenReduction", IN_SITU, "figure", "", "mean_token_reduction", "mean_reduction >= 85",
            summary=fill_in("{mean_reduction:.0f}%"),
        ),
        "particularly relevant for long outputs": Claim(
            "SavingGrows", IN_SITU, "generally", "pairs", "verification_tokens", "saving_with_length > 0",
            otherwise=SATURATED,
        ),
    },
    "Finding 4": {
        "both methods generally reduce calibration error": Claim(
            "IsotonicReduces", ISOTONIC, "generally", "cells", "isotonic_gains", "relative > 0"
        ),
        "both methods generally reduce calibration error, including the strongly overconfident": Claim(
            "PlattReduces", CALIBRATED, "generally", "cells", "platt_gains", "relative > 0"
        ),
        "isotonic regression often produces the largest reductions": Claim(
            "IsotonicBelowTemperature", CALIBRATED, "often", "cells", "calibrated_ece",
            "isotonic < platt or (isotonic == platt and isotonic_gain > platt_gain)",
        ),
        "(Platt scaling of P(True))": Claim(
            "PlattBelowIsotonic", CALIBRATED, "generally", "pairs", "calibrated_ece",
            "platt < isotonic or (platt == isotonic and platt_gain > isotonic_gain)",
            where="estimator == 'p_true'", kind="ours",
        ),
        "can correct nonlinear curves that cannot be captured by global logit rescaling": Claim(
            "IsotonicMendsCurves", SIZES, "can", "pairs", "curved_reliability", "isotonic < platt",
            where="p_quadratic < 0.05", otherwise="no reliability curve departs from a sigmoid",
        ),
        "high raw ECE does not necessarily preclude effective post-hoc correction": Claim(
            "HighRawMends", CALIBRATED, "can", "cells", "raw_and_calibrated", "calibrated < 0.15",
            where="raw > 0.3", otherwise="no raw ECE above .3",
        ),
        "50 examples already yielding substantial improvements across datasets": Claim(
            "FiftySuffice", SIZES, "all", "curves", "learning_at_fifty",
            "few < raw and raw - few >= (raw - every) / 2",
        ),
        "GSM8K and SVAMP require larger calibration sets for stable improvement": Claim(
            "HardNeedsFewer", SIZES, "all", "curves", "rows_needed", "needed_on_hardest < needed"
        ),
        "harder datasets expose high-confidence errors more frequently": Claim(
            "ErrorsOnHard", SIZES, "generally", "models", "errors_by_model", "hard > elsewhere"
        ),
        "mappings learned on GSM8K consistently improve calibration on GSMHard": Claim(
            "EasyToHard", SUMMARY, "all", "arrows", "transfers", "delta_ece < 0",
            where="changed == 'dataset' and onto_hardest",
        ),
        "whereas the reverse direction generally worsens it": Claim(
            "HardToEasy", SUMMARY, "generally", "arrows", "transfers", "delta_ece > 0",
            where="changed == 'dataset' and from_hardest",
        ),
        "both directions improve calibration on GSMHard": Claim(
            "ModelsOnHard", SUMMARY, "all", "arrows", "transfers", "delta_ece < 0",
            where="changed == 'model' and onto_hardest",
        ),
        "transfer on GSM8K is asymmetric": Claim(
            "ModelsOnEasy", SUMMARY, "generally", "cases", "transfers_both_ways",
            "(delta_ece > 0.005) != (back > 0.005)",
        ),
        "can severely degrade calibration": Claim(
            "TransferSevere", SUMMARY, "figure", "", "largest_transfer", "largest > 0.2",
            summary=fill_in("largest {largest:.3f}"),
        ),
        "transfer from Llama to Qwen produces little change": Claim(
            "LittleChange", SUMMARY, "generally", "arrows", "transfers", "abs(delta_ece) <= 0.005",
            where="changed == 'model' and not onto_hardest and llama_to_qwen",
            otherwise="no arrow from a Llama model to a Qwen model",
        ),
    },
    "Appendix": {
        "across them, we found the scores to be sensitive to the dropout rate": Claim(
            "RateMattersEachPhi", RATES, "generally", "cells", "ece_range_by_phi", "ece_range > 0.02",
            where="phi != 'clip'", otherwise="one rate",
        ),
        "changing the dropout rate primarily changes the averaged predictive distribution": Claim(
            "RateMovesPredictive", RATES, "generally", "pairs", "entropies_by_rate",
            "predictive_growth > conditional_growth", otherwise="one rate",
        ),
        "a wider range of effective support sizes than the top-k approach": Claim(
            "TopPWider", RATES, "can", "pairs", "pass_statistics", "top_p_range > top_k_range", otherwise=SATURATED
        ),
        "BALD is not naturally bounded in [0,1]": Claim(
            "BaldUnbounded", RATES, "can", "pairs", "pass_statistics", "largest_bald > 1", otherwise=SATURATED
        ),
        "the selected rates generally transfer well to the evaluation split": Claim(
            "RatesHold", RATES, "generally", "pairs", "selected_rate_ece", "abs(lowest_ece - evaluation_ece) <= 0.05"
        ),
        "but vary across models and datasets": Claim(
            "RatesVary", RATES, "figure", "", "distinct_rates", "different_rates > 1", summary=fill_in("{rates}")
        ),
        "GSMHard favors a higher dropout rate for four of the five models": Claim(
            "HardRateHigher", RATES, "most", "models", "rate_by_model", "hard > elsewhere"
        ),
        "three benchmarks with varying difficulty": Claim(
            "HardestForAll", MAIN, "all", "models", "accuracy_by_model", "least_accurate == hardest"
        ),
        "malformed or nonconforming outputs may introduce extraction errors": Claim(
            "MalformedLost", ASKED, "can", "pairs", "unparsed_answers", "right_but_unparsed > 0", otherwise=SATURATED
        ),
        "this format mismatch is the main reason for its degraded performance": Claim(
            "BoxedFormat", ASKED, "generally", "pairs", "boxed_answers", "recovered >= 0.5"
        ),
        "essential for improving model accuracy": Claim(
            "DemonstrationAccuracy", ASKED, "generally", "pairs", "right_with_demonstration",
            "only_with > only_without and p < 0.05", summary=count_directions,
        ),
        "significantly increased the success rate of our answer extraction": Claim(
            "DemonstrationExtraction", ASKED, "generally", "pairs", "read_with_demonstration",
            "only_with > only_without and p < 0.05", summary=count_directions,
        ),
        "ECE remains relatively stable as the number of bins increases": Claim(
            "EceStable", BINS, "generally", "cells", "metrics_by_bins", "ece_range < 0.0205"
        ),
        "Brier score is unchanged because it does not depend on binning": Claim(
            "BrierStays", BINS, "all", "cells", "metrics_by_bins", "brier_range < 1e-9", kind="consistency"
        ),
        "MCE is more sensitive to the binning choice": Claim(
            "MceMoreSensitive", BINS, "generally", "cells", "metrics_by_bins", "mce_range > ece_range + 1e-9"
        ),
        "as bins become smaller, errors can produce larger maximum deviations": Claim(
            "MceGrows", BINS, "can", "cells", "metrics_by_bins", "mce_most_bins > mce_fewest_bins + 1e-9"
        ),
        "using each model's recommended configuration": Claim(
            "RecommendedSettings", "tab_inference_settings", "all", "models", "decoding_settings",
            "temperature == published_temperature and top_p == published_top_p and top_k == published_top_k",
        ),
        "their bootstrap distributions may be asymmetric": Claim(
            "IntervalsAsymmetric", FULL, "can", "intervals", "intervals", "longer_side > 1.5 * shorter_side + 1e-9",
            summary=count_by("metric"),
        ),
        "MCE intervals can be comparatively wide": Claim(
            "MceIntervalsWider", FULL, "can", "cells", "interval_widths", "mce > ece + 1e-9"
        ),
        "broadly consistent with the qualitative conclusions": Claim(
            "IntervalsAgree", FULL, "most", "cases", "paired_differences", "high < 0", where="difference < 0"
        ),
        "(the transfer summary beside the full table)": Claim(
            "SummaryIsFull", SUMMARY, "all", "cells", "transfers_twice", "abs(summary - full) < 0.0015",
            kind="consistency",
        ),
        "(calibration in short beside the full table)": Claim(
            "ShortIsFull", "tab_result_calibration_full", "all", "cells", "calibrated_twice", "short == full",
            kind="consistency",
        ),
    },
}  # fmt: skip
CLAIMS = tuple(
    replace(claim, group=group, quote="" if quote.startswith("(") else quote)
    for group, quoted in DECLARED.items()
    for quote, claim in quoted.items()
)
