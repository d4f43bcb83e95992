r"""The paper's claims, all of them, in the order in which it makes them: reading this table is reading the paper.

    Finding(name, place, "the paper's sentence in a few words", word of quorum, what is counted, predicate,
            "the predicate in words", the frames that it needs)

Words of quorum: `judging.QUORUMS`. Thresholds that the paper leaves to the eye ("stable", "roughly") stand in the
predicate's words. The hard dataset is the least accurate one.
"""

from collections.abc import Mapping
from dataclasses import replace

from lib.paper import counting as c
from lib.paper import signal_counting as s
from lib.paper.judging import Finding

MAIN, FULL, PICTURE = "tab_result_estimation", "tab_result_estimation_full", "fig_main_analysis"
RATES, IN_SITU, BINS = "tab_dropout_grid_search", "tab_insitu_ptrue", "tab_bin_ablation"
CALIBRATED, ISOTONIC, SIZES = "tab_result_calibration", "tab_result_isotonic", "fig_calibration_analysis"
SUMMARY, ASKED = "tab_calibration_transfer_summary", "rep_ablation"
MOVED = "calibration_transfer_summary result_estimation"
PTRUE, SEQ, ANS = "p_true", "seq_avg|seq_joint", "ans_avg|ans_joint"

HEADLINES = {  # what the paper sets in a box; the claims of each group stand under it
    "Finding 1": "Calibrated confidence arises from aggregating weak but consistent probability differences across the "
    "reasoning trajectory",
    "Finding 2": "MC Dropout captures uncertainty from variation in predictive distributions, but requires dropout-rate "
    "selection and multiple stochastic passes",
    "Finding 3": "In-situ self-verification achieves calibration comparable to standard P(True) with substantially lower "
    "token-processing overhead",
    "Finding 4": "Calibration can be more data-efficient on harder datasets under random sampling, but learned mappings "
    "transfer asymmetrically",
}
TWICE = (  # what the paper says twice, differently
    'The dropout rate is selected "separately for each model" (setup) and "for each model--dataset pair" (Finding 2).',
    'The appendix reports "mean estimates" with intervals, the captions "point estimates"; only these fit the numbers.',
    "GSMHard is split 70% to 30%, which would be 923 and 396 rows, and into 919 and 400.",
    "The example of the prompt figure, captioned GSM8K, is a question of SVAMP's test split (chal-363).",
    "Llama to Qwen on GSM8K changes ECE by -.003 and -.002 in the summary, by .000 and .000 in the full table; temperature "
    "on Llama-3.1-8B, GSM8K leaves .080 in one table and .081 in the other.",
    'Sequence estimators are lower than answer ones "across all pairs"; Seq Joint is not on two, both of SVAMP.',
    '"Recommended" settings were used; Llama-3.1-8B was published with temperature .6 and top-p .9, not 1.0 and 1.0.',
)

DECLARED: Mapping[str, tuple[Finding, ...]] = {
    "Introduction": (
        Finding("AnswersSaturate", PICTURE, "token probabilities can be highly saturated", "generally", "pairs",
                s.pairs("tokens", "median", lambda rows: rows["median"] > 0.99),
                "the median probability of answer tokens is above .99", "tokens"),
        Finding("WrongAnswersSure", PICTURE, "highly likely when conditioned on an incorrect reasoning trajectory", "can",
                "pairs", s.pairs("tokens", "wrong", lambda rows: rows.wrong > 0.99),
                "so it is for the answer tokens of wrong responses", "tokens"),
        Finding("LowTokensSignal", PICTURE, "low-probability tokens along the trajectory may signal potential errors",
                "generally", "pairs", s.pairs("tokens", "smallest", lambda rows: rows.smallest > 0.5),
                "the smallest token probability tells right from wrong (AUROC above .5)", "tokens"),
        Finding("OverconfidenceOfAnswers", MAIN, "particularly pronounced for answer-token estimators", "generally",
                "pairs", s.overconfident, "mean confidence exceeds accuracy by more for answer than for sequence "
                "estimators", "overconfidence"),
        Finding("SeqDiscriminates", MAIN, "aggregating over the full reasoning trajectory yields discriminative confidence "
                "estimates", "generally", "pairs", c.higher("auroc", "seq_avg", "ans_avg"),
                "the AUROC of Seq Avg is above that of Ans Avg", "result_estimation"),
        Finding("MultiPassCalibrated", MAIN, "multi-pass methods can yield calibrated confidence estimates", "can", "pairs",
                c.least, "the best multi-pass estimator has an ECE of at most .05", "result_estimation"),
        Finding("TopTokenUnchanged", PICTURE, "uncertainty not reflected in the decoded output, even when the generated "
                "answer remains unchanged", "generally", "pairs", s.unchanged,
                "c_BALD tells right from wrong (AUROC above .5) where all passes agree on the most probable answer tokens; "
                "whether these are the written ones was not kept", "passes"),
        Finding("CalibrationSubstantial", CALIBRATED, "both of which substantially reduce in-domain calibration error", "all",
                "methods", c.median_gains, "the median relative improvement of ECE is at least 50%", "result_calibration",
                lambda rows: ", ".join(f"{method} {gain:.0%}" for method, gain, _ in rows.itertuples(index=False))),
        Finding("JointNormalised", "tab_estimators", "length normalization reduces the joint probability's inherent preference "
                "for shorter sequences", "generally", "pairs",
                s.pairs("tokens", "joint product", lambda rows: rows.joint.abs() < rows["product"].abs()),
                "Seq Joint's rank correlation with length is nearer to 0 than the plain product's", "tokens"),
        Finding("OverTwoThousand", MAIN, "over two thousand evaluation examples in total", "figure", "", c.over_two_thousand,
                "more than 2000 evaluation questions", "rows", lambda rows: f"{rows.rows.sum():,} questions"),
    ),
    "Finding 1": (
        Finding("SeqAvgBelowAnswer", MAIN, "across all model-dataset pairs, sequence-based estimators achieve lower ECE", "all",
                "pairs", c.below("seq_avg", ANS), "Seq Avg has a lower ECE than both answer estimators", "result_estimation"),
        Finding("SeqJointBelowAnswer", MAIN, "across all model-dataset pairs, sequence-based estimators achieve lower ECE",
                "all", "pairs", c.below("seq_joint", ANS), "so has Seq Joint", "result_estimation"),
        Finding("SeqAnsOverlap", FULL, "although the confidence intervals overlap in some settings", "some", "pairs", c.overlap,
                "the intervals of Seq Avg and Ans Avg overlap", "result_estimation_full"),
        Finding("SubstantiallyBetter", MAIN, "the full generated sequence substantially improves calibration", "generally",
                "pairs", c.below("seq_avg", "ans_avg", times=0.8), "the ECE of Seq Avg is at most .8 of Ans Avg's",
                "result_estimation"),
        Finding("SeqBelowMultiPass", MAIN, "in several settings, sequence-based estimators also achieve lower ECE than "
                "multi-pass estimators", "several", "pairs", c.below(SEQ, "p_true|c_bald"),
                "the best sequence estimator beats the best multi-pass one", "result_estimation"),
        Finding("MeansOverlapFirst", PICTURE, "the curves initially overlap", "generally", "pairs",
                s.running(0, 0.1, lambda gap: gap.abs() < 0.02),
                "running means of right and wrong responses are less than .02 apart in the first tenth", "running_mean"),
        Finding("MeansPartLater", PICTURE, "as generation progresses, the curves separate", "generally", "pairs",
                s.running(0.9, 1, lambda gap: gap > 0), "right responses stand above wrong ones in the last tenth",
                "running_mean"),
        Finding("MeansDiverge", PICTURE, "tend to increase for correct final answers and decrease for incorrect", "generally",
                "pairs", s.diverge, "after the first tenth the mean of right responses rises, that of wrong ones falls",
                "running_mean"),
        Finding("NoSingleToken", PICTURE, "the useful signal does not necessarily arise from any single token", "generally",
                "pairs", s.no_single_position, "the best single position has a lower AUROC than Seq Avg", "positions"),
        Finding("SignalAccumulates", PICTURE, "small probability differences accumulate across the reasoning trajectory",
                "generally", "pairs", s.accumulates, "the AUROC of the running mean is higher at the end than at a tenth",
                "positions"),
        Finding("JointBelowAvg", MAIN, "length-normalized joint probability often outperforms arithmetic averaging", "often",
                "pairs", c.below("seq_joint", "seq_avg"), "Seq Joint has a lower ECE than Seq Avg", "result_estimation"),
        Finding("JointBelowAvgHard", MAIN, "particularly on GSMHard", "figure", "", c.more_on_hard("seq_joint", "seq_avg"),
                "its median margin is larger on the hard dataset", "result_estimation", c.figures),
    ),
    "Finding 2": (
        Finding("BaldBelowPTrue", MAIN, "c_BALD often achieves lower calibration error than P(True)", "often", "pairs",
                c.below("c_bald", PTRUE), "c_BALD has a lower ECE than P(True)", "result_estimation"),
        Finding("BaldBelowPTrueHard", MAIN, "its advantage being particularly pronounced on GSMHard", "figure", "",
                c.more_on_hard("c_bald", PTRUE), "its median margin is larger on the hard dataset", "result_estimation",
                c.figures),
        Finding("PTrueCostGrows", IN_SITU, "the extra cost is roughly proportional to the length of the re-encoded pair",
                "generally", "pairs", s.pairs("verification", "r2", lambda rows: rows.r2 > 0.9),
                "the length of the response explains the tokens of P(True) (R squared above .9)", "verification"),
        Finding("CostLinear", ASKED, "inference cost grows approximately linearly with the number of stochastic passes", "all",
                "pairs", s.linear, "operations per pass change by at most 10%", "cost", kind="consistency"),
        Finding("RateMatters", RATES, "its performance is sensitive to the dropout rate", "generally", "pairs", c.rate_matters,
                "the ECE of c_BALD moves by more than .02 over the rates", "dropout_grid_search"),
        Finding("ConditionalStays", PICTURE, "the expected conditional entropy remains relatively stable", "generally", "pairs",
                s.settles("conditional", lambda row: (row - row.iloc[-1]).abs().max() <= 0.2 * row.iloc[-1]),
                "it stays within 20% of its last value", "entropies"),
        Finding("PassesSharp", PICTURE, "individual forward passes produce similarly sharp distributions", "generally", "pairs",
                s.pairs("passes", "sharp", lambda rows: rows.sharp <= 0.2),
                "the entropy of a response's passes varies by at most 20% (SD over mean)", "passes"),
        Finding("EntropyGrows", PICTURE, "the predictive entropy increases with T", "generally", "pairs",
                s.settles("predictive", lambda row: row.is_monotonic_increasing), "it grows, or stays, with every pass",
                "entropies"),
        Finding("PredictiveSettles", PICTURE, "stabilizes after roughly five samples", "generally", "pairs",
                s.settles("predictive", lambda row: row.iloc[min(4, len(row) - 1)] >= 0.9 * row.iloc[-1]),
                "after five passes it has reached 90% of its last value", "entropies"),
        Finding("FiveReliable", PICTURE, "a five-fold overhead for a reliable estimation", "generally", "pairs",
                s.five_are_reliable, "the ECE of c_BALD after five passes is within .02 of that after all", "by_passes"),
        Finding("MostlyDistributional", PICTURE, "MC Dropout primarily captures distributional uncertainty", "generally",
                "pairs", s.pairs("passes", "share", lambda rows: rows.share > 0.5),
                "BALD is more than half of the predictive entropy", "passes"),
    ),
    "Finding 3": (
        Finding("PTrueBelowAnsAvg", MAIN, "why is it often better calibrated than Ans Avg", "often", "pairs",
                c.below(PTRUE, "ans_avg"), "P(True) has a lower ECE than Ans Avg", "result_estimation"),
        Finding("InSituComparable", IN_SITU, "in-situ verification achieves ECE comparable to standard P(True)", "most",
                "pairs", c.near("p_true_insitu", PTRUE, "insitu_ptrue", 0.05), "both ECEs are at most .05 apart",
                "insitu_ptrue"),
        Finding("InSituMatches", IN_SITU, "it matches or improves ECE in 10 of the 15 settings", "generally", "pairs",
                c.below("p_true_insitu", PTRUE, "insitu_ptrue", equal=True),
                "in situ has a lower ECE than the standard prompt, or the same", "insitu_ptrue"),
        Finding("InSituBelowAnsAvg", IN_SITU, "", "generally", "pairs", c.below("p_true_insitu", "ans_avg", "insitu_ptrue"),
                "in situ has a lower ECE than Ans Avg", "insitu_ptrue", kind="ours"),
        Finding("TokenReduction", IN_SITU, "reduces token-processing overhead by 88% on average across all settings", "figure",
                "", c.saved, "the mean reduction is at least 85%", "insitu_ptrue", c.mean_saving),
        Finding("SavingGrows", IN_SITU, "particularly relevant for long outputs", "generally", "pairs",
                s.pairs("verification", "saving", lambda rows: rows.saving > 0),
                "the share saved grows with the response (rank correlation)", "verification"),
    ),
    "Finding 4": (
        Finding("IsotonicReduces", ISOTONIC, "both methods generally reduce calibration error", "generally", "cells",
                c.gains("result_isotonic", "isotonic"), "isotonic regression lowers the ECE", "result_isotonic"),
        Finding("PlattReduces", CALIBRATED, "both methods generally reduce calibration error", "generally", "cells",
                c.gains("result_calibration", "platt"), "temperature or Platt scaling lowers the ECE", "result_calibration"),
        Finding("IsotonicBelowTemperature", CALIBRATED, "isotonic regression often produces the largest reductions", "often",
                "cells", c.lower, "isotonic regression ends below temperature or Platt scaling", "result_calibration"),
        Finding("PlattBelowIsotonic", CALIBRATED, "", "generally", "pairs", c.platt_below,
                "for P(True), Platt scaling ends below isotonic regression", "result_calibration", kind="ours"),
        Finding("IsotonicMendsCurves", SIZES, "can correct nonlinear curves that cannot be captured by global logit rescaling",
                "can", "pairs", s.mends_curves, "isotonic ends below temperature where a quadratic term in the logit improves "
                "the fit (p below .05)", "calibration_rows result_calibration"),
        Finding("HighRawMends", CALIBRATED, "high raw ECE does not necessarily preclude effective post-hoc correction", "can",
                "cells", c.mended, "a raw ECE above .3 ends below .15", "result_estimation result_calibration"),
        Finding("FiftySuffice", SIZES, "50 examples already yielding substantial improvements across datasets", "all",
                "curves", s.fifty, "with 50 rows at least half of what all rows remove is removed (Ans Avg)", "learning"),
        Finding("HardNeedsFewer", SIZES, "GSM8K and SVAMP require larger calibration sets for stable improvement", "all",
                "curves", s.hard_needs_fewer, "nine draws in ten improve with fewer rows on the hard dataset than on another",
                "learning result_estimation"),
        Finding("ErrorsOnHard", SIZES, "harder datasets expose high-confidence errors more frequently", "generally", "models",
                s.errors_on_hard, "most confident errors (above .9) in 50 rows are on the hard dataset",
                "calibration_rows result_estimation"),
        Finding("EasyToHard", SUMMARY, "mappings learned on GSM8K consistently improve calibration on GSMHard", "all", "arrows",
                c.moved("dataset", c.better, onto_hard=True), "from another dataset to the hard one ECE falls", MOVED),
        Finding("HardToEasy", SUMMARY, "whereas the reverse direction generally worsens it", "generally", "arrows",
                c.moved("dataset", c.worse, onto_hard=False), "from the hard dataset to another one it grows", MOVED),
        Finding("ModelsOnHard", SUMMARY, "both directions improve calibration on GSMHard", "all", "arrows",
                c.moved("model", c.better, onto_hard=True), "between models it falls on the hard dataset", MOVED),
        Finding("ModelsOnEasy", SUMMARY, "transfer on GSM8K is asymmetric", "some", "arrows",
                c.moved("model", c.worse, onto_hard=False), "between models it grows off the hard dataset", MOVED),
        Finding("TransferSevere", SUMMARY, "can severely degrade calibration", "figure", "", c.severe,
                "the largest growth is above .2", "calibration_transfer_summary", c.figures),
        Finding("LittleChange", SUMMARY, "transfer from Llama to Qwen produces little change", "some", "arrows",
                c.moved("model", lambda change: change.abs() <= 0.005, onto_hard=False),
                "between models it changes by at most .005 off the hard dataset", MOVED),
    ),
    "Appendix": (
        Finding("RateMattersEachPhi", RATES, "across them, we found the scores to be sensitive to the dropout rate", "generally",
                "cells", s.rate_matters_under_each, "the ECE moves by more than .02 under top-k and top-p, too", "by_phi"),
        Finding("RateMovesPredictive", RATES, "changing the dropout rate primarily changes the averaged predictive distribution",
                "generally", "pairs", s.rate_moves_predictive, "predictive entropy grows by a larger share than conditional "
                "entropy from the lowest rate to the highest", "by_rate"),
        Finding("TopPWider", RATES, "a wider range of effective support sizes than the top-k approach", "can", "pairs",
                s.pairs("passes", "top_k top_p", lambda rows: rows.top_p > rows.top_k),
                "sizes of the support range wider under top-p", "passes"),
        Finding("BaldUnbounded", RATES, "BALD is not naturally bounded in [0,1]", "can", "pairs",
                s.pairs("passes", "largest", lambda rows: rows.largest > 1), "the BALD of some token exceeds 1", "passes"),
        Finding("RatesHold", RATES, "the selected rates generally transfer well to the evaluation split", "generally", "pairs",
                c.rates_hold, "the ECE there is within .05", "dropout_grid_search result_estimation"),
        Finding("RatesVary", RATES, "but vary across models and datasets", "figure", "", c.rates_vary,
                "more than one rate is selected", "dropout_grid_search",
                lambda rows: ", ".join(f"{rate:.2f}" for rate in sorted(rows.selected.unique()))),
        Finding("HardRateHigher", RATES, "GSMHard favors a higher dropout rate for four of the five models", "most", "models",
                c.hard_rate, "the hard dataset selects a higher rate than each other one",
                "dropout_grid_search result_estimation"),
        Finding("HardestForAll", MAIN, "three benchmarks with varying difficulty", "all", "models", c.hardest_for_all,
                "the hard dataset is the hardest for each model", "result_estimation"),
        Finding("MalformedLost", ASKED, "malformed or nonconforming outputs may introduce extraction errors", "can", "pairs",
                s.pairs("unread", "unparsed lost", lambda rows: rows.lost > 0),
                "a response without a parsed answer ends in the right number", "unread"),
        Finding("BoxedFormat", ASKED, "this format mismatch is the main reason for its degraded performance", "generally",
                "pairs", s.boxed, "at least half of DeepSeek's wrong answers are right once \\boxed{} counts", "ablation"),
        Finding("DemonstrationAccuracy", ASKED, "essential for improving model accuracy", "generally", "pairs",
                s.demonstrated("accuracy"), "accuracy is higher with the demonstration (McNemar, p below .05)",
                "demonstration"),
        Finding("DemonstrationExtraction", ASKED, "significantly increased the success rate of our answer extraction",
                "generally", "pairs", s.demonstrated("extracted"),
                "so is the share of answers found (McNemar, p below .05)", "demonstration"),
        Finding("EceStable", BINS, "ECE remains relatively stable as the number of bins increases", "generally", "cells",
                c.bins("ece", lambda table: c.spread(table) < 0.0205), "it moves by at most .02", "bin_ablation"),
        Finding("BrierStays", BINS, "Brier score is unchanged because it does not depend on binning", "all", "cells",
                c.bins("brier", lambda table: c.spread(table) < 1e-9), "it is the same for every number of bins",
                "bin_ablation", kind="consistency"),
        Finding("MceMoreSensitive", BINS, "MCE is more sensitive to the binning choice", "generally", "cells",
                c.mce_more_sensitive, "it moves more than ECE", "bin_ablation"),
        Finding("MceGrows", BINS, "as bins become smaller, errors can produce larger maximum deviations", "generally", "cells",
                c.bins("mce", lambda table: (table.diff(axis=1).iloc[:, 1:] >= 0).all(axis=1)),
                "MCE grows, or stays, with every step", "bin_ablation"),
        Finding("RecommendedSettings", "tab_inference_settings", "using each model's recommended configuration", "all", "models",
                c.recommended, "temperature, top-p and top-k are those that the model was published with", ""),
        Finding("IntervalsAsymmetric", FULL, "their bootstrap distributions may be asymmetric", "can", "intervals",
                c.asymmetric, "one side is more than 1.5 times the other", "result_estimation_full", c.by_metric),
        Finding("MceIntervalsWider", FULL, "MCE intervals can be comparatively wide", "generally", "cells", c.wider,
                "the interval of MCE is wider than that of ECE", "result_estimation_full"),
        Finding("IntervalsAgree", FULL, "broadly consistent with the qualitative conclusions", "most", "cases",
                s.intervals_agree, "where Seq Avg is below Ans Avg, c_BALD below P(True), or calibration below the raw score, "
                "so is the paired 95% interval", "paired"),
        Finding("SummaryIsFull", SUMMARY, "", "all", "cells", c.summary_is_full,
                "the changes of the transfer summary are those of the full table",
                "calibration_transfer_summary calibration_transfer_full", kind="consistency"),
        Finding("ShortIsFull", "tab_result_calibration_full", "", "all", "cells", c.short_is_full,
                "calibration prints the same in short and in full", "result_calibration result_calibration_full",
                kind="consistency"),
    ),
}  # fmt: skip
FINDINGS = tuple(replace(finding, group=group) for group, some in DECLARED.items() for finding in some)
