"""Captions of the tables and figures that are exported, short and long, in the order of the paper.

The table `tab_x` is made by the function `x` of `tables`.
"""

OF_PAPER = {
    "tab_estimators": ("Estimators", "How each estimator turns probabilities into one confidence for a response."),
    "tab_result_estimation": ("Raw confidence",
        "Accuracy, and ECE and MCE of each estimator before any calibration; the lowest ECE of a row is bold."),
    "fig_main_analysis": ("What the signals look like",
        "(a) Running mean of token probabilities against position, correct and incorrect responses apart, and the "
        "difference with its interval. (b) Predictive and conditional entropy against the number of dropout passes; "
        "the gap is BALD. (c) ECE of verification in situ and by a prompt, with 95% intervals."),
    "tab_result_calibration": ("After calibration",
        "ECE after isotonic regression and after temperature (answer estimators) or Platt scaling (P(True)), change "
        "against the raw score in parentheses, and the learned parameters."),
    "fig_calibration_analysis": ("Calibration",
        "(a, b) Reliability before and after, with the ECE of either, 95% binomial intervals, the gap to the "
        "diagonal, and the number of rows in each bin; hollow where these are fewer than five. (c) ECE against the "
        "number of calibration rows, with the middle 80% of the draws; dotted the raw score's. In parentheses how "
        "many draws hold correct responses alone, or incorrect ones alone."),
    "tab_calibration_transfer_summary": ("Transfer in short",
        "Change of ECE on the target when the calibrator was learned on the source; improvements on the hard dataset "
        "are bold."),
    "tab_dropout_grid_search": ("Dropout rates",
        "c_BALD on the tuning examples for each rate of the grid; the rate of lowest ECE is bold."),
    "tab_inference_settings": ("Decoding settings", "How each model was sampled."),
    "fig_prompt_example": ("One exchange", "A prompt as the model reads it, special tokens and all, and its response."),
    "tab_result_estimation_full": ("Raw confidence with intervals",
        "Every metric with its 95% bootstrap percentile interval over evaluation rows."),
    "tab_result_calibration_full": ("After calibration, with intervals",
        "ECE after calibration with its 95% interval; the lower of the two methods is bold."),
    "tab_result_isotonic": ("Isotonic regression on every estimator",
        "ECE after isotonic regression, 95% interval, and change against the raw score."),
    "tab_calibration_transfer_full": ("Transfer in full",
        "Every calibrator on every target; bold where it was learned on the target itself."),
    "tab_insitu_ptrue": ("In-situ verification",
        "ECE of P(True) on the live trajectory and by a prompt of its own, beside Ans Avg, and the tokens saved."),
    "tab_bin_ablation": ("Number of bins", "The single-pass estimators measured with other numbers of bins."),
    "fig_prompt_comparison": ("Two ways to ask",
        "The same response verified by a prompt of its own, and in situ, where the query follows the trajectory."),
}  # fmt: skip
BEYOND = {
    "fig_costs": ("What the tokens buy (not in the paper)",
        "ECE (the lower the better) and AUROC (the higher) of raw scores against the tokens that a question takes, "
        "response and prompt included: a small mark for each pair, a large one for the mean of the pairs that have "
        "every estimator, and a line along the means that no cheaper estimator betters."),
    "fig_selective": ("When to answer (not in the paper)",
        "Accuracy of the answers given against the share of questions answered, the surest first: raw scores above, "
        "after isotonic regression below. A ring is a threshold that guarantees the precision of the gray line."),
    "tab_costs": ("What a confidence costs (not in the paper)",
        "Tokens read for a question: for the response with its prompt, which every single-pass estimator has for "
        "nothing, and for what the others read beyond it."),
    "tab_selective": ("What the confidence is good for (not in the paper)",
        "Each estimator beside a constant at the base rate of the calibration rows, which knows nothing and is nearly "
        "calibrated: Skill is the share of its Brier score that an estimator saves. Then the same after isotonic "
        "regression, and the share of questions answered where a precision is guaranteed. Bold is the best of a pair. "
        "Intervals are 95% bootstrap percentiles. Equal mass: ECE of bins with equally many rows. Log-loss: a score "
        "of exactly 0 or 1 that is wrong costs 36."),
}  # fmt: skip
CAPTIONS = OF_PAPER | BEYOND
