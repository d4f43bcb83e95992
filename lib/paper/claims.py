r"""All claims of the paper, in its order.

    "the paper's sentence in a few words": Claim(name, exhibit, quantifier, view, predicate)

The predicate is an expression over the columns of a view of `estimation_claims`, one case per row. `verdicts` evaluates the
printed predicate and counts the cases that agree. Quantifiers: `verdicts.QUANTIFIERS`. Predicates contain thresholds
that the paper leaves open ("stable", "roughly"). Differences below 1e-9 count as rounding. Text in parentheses instead
of a quotation is not from the paper.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import getdoc, isfunction
from typing import Any

import pandas as pd

from lib.analysis.results import Results
from lib.paper import calibration_claims, estimation_claims
from lib.paper.reference import paper_facts
from lib.paper.claim_cases import count_by, count_directions, fill_template

MAIN, FULL, PICTURE = "tab_result_estimation", "tab_result_estimation_full", "fig_main_analysis"
RATES, IN_SITU, BINS = "tab_dropout_grid_search", "tab_insitu_ptrue", "tab_bin_ablation"
POSTHOC, ISOTONIC, SIZES = "tab_result_calibration", "tab_result_isotonic", "fig_calibration_analysis"
SUMMARY, ASKED = "tab_calibration_transfer_summary", "rep_ablation"
SATURATED = "saturated: it cannot be computed on any pair"
FEW_PASSES = "no more than five passes"
VIEWS: dict[str, Callable[[Results], pd.DataFrame]] = {
    name: view
    for module in (estimation_claims, calibration_claims)
    for name, view in vars(module).items()
    if isfunction(view) and view.__module__ == module.__name__ and not name.startswith("_")
}
BOTH = fill_template("hard {hard:.3f}, elsewhere {elsewhere:.3f}")


@dataclass(frozen=True)
class Claim:
    """A claim and how it is counted.

    `place` is the target that shows it, `unit` what is counted. `where` selects cases of the view; `otherwise` is the
    reason if none is left. `summary` describes the cases beyond a count. `kind`: a claim of the paper, a check of
    consistency (true by construction of the program), or a reading of ours (that the paper does not claim).
    """

    name: str
    place: str
    quantifier: str
    view: str
    predicate: str
    unit: str = "pairs"
    where: str = ""
    otherwise: str = "no case"
    summary: Callable[[pd.DataFrame], Any] | None = None
    kind: str = "claim"
    quote: str = ""
    group: str = ""

    @property
    def cases(self) -> str:
        """What a case is, in words."""
        return getdoc(VIEWS[self.view]) or ""

    @property
    def statement(self) -> str:
        """What is counted, as evaluated: the cases, and the predicate."""
        return f"{self.cases}: {self.predicate}" + (f", where {self.where}" if self.where else "")


FINDINGS: Mapping[str, str] = paper_facts()["findings"]  # boxed in the paper, each with its claims
DECLARED: Mapping[str, Mapping[str, Claim]] = {
    "Introduction": {
        "raw token probabilities often provide unreliable and saturated signals":
            Claim("AnswersSaturate", PICTURE, "often", "token_statistics", "median_answer_token > 0.99",
                  otherwise=SATURATED),
        "highly likely when conditioned on an incorrect reasoning trajectory":
            Claim("WrongAnswersSure", PICTURE, "can", "token_statistics", "median_wrong_answer_token > 0.99",
                  otherwise=SATURATED),
        "low-probability tokens along the trajectory may signal potential errors":
            Claim("LowTokensSignal", PICTURE, "can", "token_statistics", "auroc_of_smallest > 0.5",
                  otherwise=SATURATED),
        "particularly pronounced for answer-token estimators":
            Claim("OverconfidenceOfAnswers", MAIN, "generally", "overconfidence",
                  "ans_avg > seq_avg and ans_avg > seq_joint and ans_joint > seq_avg and ans_joint > seq_joint"),
        "aggregating over the full reasoning trajectory yields discriminative confidence estimates":
            Claim("SeqDiscriminates", MAIN, "generally", "raw_auroc", "seq_avg > ans_avg", otherwise="one class only"),
        "multi-pass methods can yield calibrated confidence estimates":
            Claim("MultiPassCalibrated", MAIN, "can", "raw_ece", "best_multi_pass <= 0.05"),
        "uncertainty not reflected in the decoded output, even when the generated answer remains unchanged":
            Claim("TopTokenUnchanged", PICTURE, "generally", "pass_statistics", "auroc_where_unchanged > 0.5",
                  where="unchanged >= 20", otherwise="no pair has 20 such responses, right ones and wrong ones"),
        "both of which substantially reduce in-domain calibration error":
            Claim("CalibrationSubstantial", POSTHOC, "all", "median_gains", "median_gain >= 0.5", unit="methods",
                  summary=fill_template("{method} {median_gain:.0%}")),
        "length normalization reduces the joint probability's inherent preference for shorter sequences":
            Claim("JointNormalised", "tab_estimators", "generally", "token_statistics",
                  "abs(joint_with_length) < abs(product_with_length)", otherwise=SATURATED),
        "over two thousand evaluation examples in total":
            Claim("OverTwoThousand", MAIN, "figure", "evaluation_questions", "questions > 2000", unit="",
                  summary=fill_template("{questions:,} questions")),
    },
    "Finding 1": {
        "across all model-dataset pairs, sequence-based estimators achieve lower ECE":
            Claim("SeqAvgBelowAnswer", MAIN, "all", "raw_ece", "seq_avg < ans_avg and seq_avg < ans_joint"),
        "across all model-dataset pairs, sequence-based estimators achieve lower ECE than answer-only":
            Claim("SeqJointBelowAnswer", MAIN, "all", "raw_ece", "seq_joint < ans_avg and seq_joint < ans_joint"),
        "although the confidence intervals overlap in some settings":
            Claim("SeqAnsOverlap", FULL, "some", "interval_ends",
                  "seq_avg_low <= ans_avg_high and ans_avg_low <= seq_avg_high"),
        "the full generated sequence substantially improves calibration":
            Claim("SubstantiallyBetter", MAIN, "generally", "raw_ece", "seq_avg <= 0.8 * ans_avg + 1e-9"),
        "in several settings, sequence-based estimators also achieve lower ECE than multi-pass estimators":
            Claim("SeqBelowMultiPass", MAIN, "several", "ece_beside_passes",
                  "(seq_avg < p_true and seq_avg < c_bald) or (seq_joint < p_true and seq_joint < c_bald)"),
        "the curves initially overlap":
            Claim("MeansOverlapFirst", PICTURE, "generally", "running_means", "abs(gap_first_tenth) < 0.02"),
        "as generation progresses, the curves separate":
            Claim("MeansPartLater", PICTURE, "generally", "running_means", "gap_last_tenth > 0"),
        "tend to increase for correct final answers and decrease for incorrect":
            Claim("MeansDiverge", PICTURE, "generally", "running_means", "slope_right > 0 and slope_wrong < 0"),
        "the useful signal does not necessarily arise from any single token":
            Claim("NoSingleToken", PICTURE, "can", "position_aurocs", "best_position < mean_of_all"),
        "small probability differences accumulate across the reasoning trajectory":
            Claim("SignalAccumulates", PICTURE, "generally", "position_aurocs", "at_the_end > after_a_tenth"),
        "within each token subset, length-normalized joint probability often outperforms arithmetic averaging":
            Claim("JointBelowAvg", MAIN, "often", "ece_by_subset", "joint < avg", unit="cases",
                  summary=count_by("subset", "joint == avg")),
        "particularly on GSMHard":
            Claim("JointBelowAvgHard", MAIN, "figure", "joint_below_average", "hard > elsewhere and hard > 0", unit="",
                  summary=BOTH),
    },
    "Finding 2": {
        "c_BALD often achieves lower calibration error than P(True)":
            Claim("BaldBelowPTrue", MAIN, "often", "ece_beside_passes", "c_bald < p_true"),
        "its advantage being particularly pronounced on GSMHard":
            Claim("BaldBelowPTrueHard", MAIN, "figure", "bald_below_p_true", "hard > elsewhere and hard > 0", unit="",
                  summary=BOTH),
        "the extra cost is roughly proportional to the length of the re-encoded pair":
            Claim("PTrueCostGrows", IN_SITU, "generally", "verification_tokens", "r2 > 0.9", otherwise=SATURATED),
        "inference cost grows approximately linearly with the number of stochastic passes":
            Claim("CostLinear", ASKED, "all", "operations_per_pass", "0.9 <= ratio <= 1.1", kind="consistency"),
        "its performance is sensitive to the dropout rate":
            Claim("RateMatters", RATES, "generally", "dropout_rates", "ece_range > 0.02"),
        "the expected conditional entropy remains relatively stable":
            Claim("ConditionalStays", PICTURE, "generally", "entropy_curves_by_pair",
                  "conditional_drift <= 0.2 * conditional", otherwise="one pass"),
        "individual forward passes produce similarly sharp distributions":
            Claim("PassesSharp", PICTURE, "generally", "pass_statistics", "entropy_variation <= 0.2",
                  otherwise=SATURATED),
        "the predictive entropy increases with T":
            Claim("EntropyGrows", PICTURE, "generally", "entropy_curves_by_pair", "predictive_least_growth > 0",
                  otherwise="one pass"),
        "stabilizes after roughly five samples":
            Claim("PredictiveSettles", PICTURE, "generally", "entropy_curves_by_pair",
                  "predictive_drift <= 0.1 * predictive", otherwise=FEW_PASSES),
        "a five-fold overhead for a reliable estimation":
            Claim("FiveReliable", PICTURE, "generally", "ece_by_passes", "abs(after_five - after_all) <= 0.02",
                  otherwise=FEW_PASSES),
        "MC Dropout primarily captures distributional uncertainty":
            Claim("MostlyDistributional", PICTURE, "generally", "pass_statistics", "bald_share > 0.5",
                  otherwise=SATURATED),
    },
    "Finding 3": {
        "why is it often better calibrated than Ans Avg":
            Claim("PTrueBelowAnsAvg", MAIN, "often", "ece_beside_p_true", "p_true < ans_avg"),
        "in-situ verification achieves ECE comparable to standard P(True)":
            Claim("InSituComparable", IN_SITU, "most", "ece_in_situ", "abs(p_true_insitu - p_true) <= 0.05 + 1e-9"),
        "it matches or improves ECE in 10 of the 15 settings":
            Claim("InSituMatches", IN_SITU, "generally", "ece_in_situ", "p_true_insitu.round(3) <= p_true.round(3)"),
        "(in situ beside Ans Avg)":
            Claim("InSituBelowAnsAvg", IN_SITU, "generally", "ece_in_situ", "p_true_insitu < ans_avg", kind="ours"),
        "reduces token-processing overhead by 88% on average across all settings":
            Claim("TokenReduction", IN_SITU, "figure", "mean_token_reduction", "mean_reduction >= 85", unit="",
                  summary=fill_template("{mean_reduction:.0f}%")),
        "particularly relevant for long outputs":
            Claim("SavingGrows", IN_SITU, "generally", "verification_tokens", "saving_with_length > 0",
                  otherwise=SATURATED),
    },
    "Finding 4": {
        "both methods generally reduce calibration error":
            Claim("IsotonicReduces", ISOTONIC, "generally", "isotonic_gains", "relative > 0", unit="cells"),
        "both methods generally reduce calibration error, including the strongly overconfident":
            Claim("PlattReduces", POSTHOC, "generally", "platt_gains", "relative > 0", unit="cells"),
        "isotonic regression often produces the largest reductions":
            Claim("IsotonicBelowTemperature", POSTHOC, "often", "calibrated_ece",
                  "isotonic < platt or (isotonic == platt and isotonic_gain > platt_gain)", unit="cells"),
        "(Platt scaling of P(True))":
            Claim("PlattBelowIsotonic", POSTHOC, "generally", "calibrated_ece",
                  "platt < isotonic or (platt == isotonic and platt_gain > isotonic_gain)",
                  where="estimator == 'p_true'", kind="ours"),
        "can correct nonlinear curves that cannot be captured by global logit rescaling":
            Claim("IsotonicMendsCurves", SIZES, "can", "curved_reliability", "isotonic < platt",
                  where="p_quadratic < 0.05", otherwise="no reliability curve departs from a sigmoid"),
        "high raw ECE does not necessarily preclude effective post-hoc correction":
            Claim("HighRawMends", POSTHOC, "can", "raw_and_calibrated", "calibrated < 0.15", unit="cells",
                  where="raw > 0.3", otherwise="no raw ECE above .3"),
        "50 examples already yielding substantial improvements across datasets":
            Claim("FiftySuffice", SIZES, "all", "learning_at_fifty", "few < raw and raw - few >= (raw - every) / 2",
                  unit="curves"),
        "GSM8K and SVAMP require larger calibration sets for stable improvement":
            Claim("HardNeedsFewer", SIZES, "all", "rows_needed", "needed_on_hardest < needed", unit="curves"),
        "harder datasets expose high-confidence errors more frequently":
            Claim("ErrorsOnHard", SIZES, "generally", "errors_by_model", "hard > elsewhere", unit="models"),
        "mappings learned on GSM8K consistently improve calibration on GSMHard":
            Claim("EasyToHard", SUMMARY, "all", "transfers", "delta_ece < 0", unit="arrows",
                  where="changed == 'dataset' and onto_hardest"),
        "whereas the reverse direction generally worsens it":
            Claim("HardToEasy", SUMMARY, "generally", "transfers", "delta_ece > 0", unit="arrows",
                  where="changed == 'dataset' and from_hardest"),
        "both directions improve calibration on GSMHard":
            Claim("ModelsOnHard", SUMMARY, "all", "transfers", "delta_ece < 0", unit="arrows",
                  where="changed == 'model' and onto_hardest"),
        "transfer on GSM8K is asymmetric":
            Claim("ModelsOnEasy", SUMMARY, "generally", "transfers_both_ways", "(delta_ece > 0.005) != (back > 0.005)",
                  unit="cases"),
        "can severely degrade calibration":
            Claim("TransferSevere", SUMMARY, "figure", "largest_transfer", "largest > 0.2", unit="",
                  summary=fill_template("largest {largest:.3f}")),
        "transfer from Llama to Qwen produces little change":
            Claim("LittleChange", SUMMARY, "generally", "transfers", "abs(delta_ece) <= 0.005", unit="arrows",
                  where="changed == 'model' and not onto_hardest and llama_to_qwen",
                  otherwise="no arrow from a Llama model to a Qwen model"),
    },
    "Appendix": {
        "across them, we found the scores to be sensitive to the dropout rate":
            Claim("RateMattersEachPhi", RATES, "generally", "ece_range_by_phi", "ece_range > 0.02", unit="cells",
                  where="phi != 'clip'", otherwise="one rate"),
        "changing the dropout rate primarily changes the averaged predictive distribution":
            Claim("RateMovesPredictive", RATES, "generally", "entropies_by_rate",
                  "predictive_growth > conditional_growth", otherwise="one rate"),
        "a wider range of effective support sizes than the top-k approach":
            Claim("TopPWider", RATES, "can", "pass_statistics", "top_p_range > top_k_range", otherwise=SATURATED),
        "BALD is not naturally bounded in [0,1]":
            Claim("BaldUnbounded", RATES, "can", "pass_statistics", "largest_bald > 1", otherwise=SATURATED),
        "the selected rates generally transfer well to the evaluation split":
            Claim("RatesHold", RATES, "generally", "selected_rate_ece", "abs(lowest_ece - evaluation_ece) <= 0.05"),
        "but vary across models and datasets":
            Claim("RatesVary", RATES, "figure", "distinct_rates", "different_rates > 1", unit="",
                  summary=fill_template("{rates}")),
        "GSMHard favors a higher dropout rate for four of the five models":
            Claim("HardRateHigher", RATES, "most", "rate_by_model", "hard > elsewhere", unit="models"),
        "three benchmarks with varying difficulty":
            Claim("HardestForAll", MAIN, "all", "accuracy_by_model", "least_accurate == hardest", unit="models"),
        "malformed or nonconforming outputs may introduce extraction errors":
            Claim("MalformedLost", ASKED, "can", "unparsed_answers", "right_but_unparsed > 0", otherwise=SATURATED),
        "this format mismatch is the main reason for its degraded performance":
            Claim("BoxedFormat", ASKED, "generally", "boxed_answers", "recovered >= 0.5"),
        "essential for improving model accuracy":
            Claim("DemonstrationAccuracy", ASKED, "generally", "right_with_demonstration",
                  "only_with > only_without and p < 0.05", summary=count_directions),
        "significantly increased the success rate of our answer extraction":
            Claim("DemonstrationExtraction", ASKED, "generally", "read_with_demonstration",
                  "only_with > only_without and p < 0.05", summary=count_directions),
        "ECE remains relatively stable as the number of bins increases":
            Claim("EceStable", BINS, "generally", "metrics_by_bins", "ece_range < 0.0205", unit="cells"),
        "Brier score is unchanged because it does not depend on binning":
            Claim("BrierStays", BINS, "all", "metrics_by_bins", "brier_range < 1e-9", unit="cells", kind="consistency"),
        "MCE is more sensitive to the binning choice":
            Claim("MceMoreSensitive", BINS, "generally", "metrics_by_bins", "mce_range > ece_range + 1e-9",
                  unit="cells"),
        "as bins become smaller, errors can produce larger maximum deviations":
            Claim("MceGrows", BINS, "can", "metrics_by_bins", "mce_most_bins > mce_fewest_bins + 1e-9", unit="cells"),
        "using each model's recommended configuration":
            Claim("RecommendedSettings", "tab_inference_settings", "all", "decoding_settings",
                  "temperature == published_temperature and top_p == published_top_p and top_k == published_top_k",
                  unit="models"),
        "their bootstrap distributions may be asymmetric":
            Claim("IntervalsAsymmetric", FULL, "can", "intervals", "longer_side > 1.5 * shorter_side + 1e-9",
                  unit="intervals", summary=count_by("metric")),
        "MCE intervals can be comparatively wide":
            Claim("MceIntervalsWider", FULL, "can", "interval_widths", "mce > ece + 1e-9", unit="cells"),
        "broadly consistent with the qualitative conclusions":
            Claim("IntervalsAgree", FULL, "most", "paired_differences", "high < 0", unit="cases",
                  where="difference < 0"),
        "(the transfer summary beside the full table)":
            Claim("SummaryIsFull", SUMMARY, "all", "transfers_twice", "abs(summary - full) < 0.0015", unit="cells",
                  kind="consistency"),
        "(calibration in short beside the full table)":
            Claim("ShortIsFull", "tab_result_calibration_full", "all", "calibrated_twice", "short == full",
                  unit="cells", kind="consistency"),
    },
}  # fmt: skip
CLAIMS = tuple(
    replace(claim, group=group, quote="" if quote.startswith("(") else quote)
    for group, quoted in DECLARED.items()
    for quote, claim in quoted.items()
)
