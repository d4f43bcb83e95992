"""What the targets of 08_tables are called and say, in the order of the paper, for results.pdf and report.html."""

CAPTIONS = {
    "tab_estimators": ("Estimators", "How each estimator turns probabilities into one confidence for a response."),
    "tab_result_estimation": (
        "Raw confidence",
        "Accuracy, and ECE and MCE of each estimator before any calibration; the lowest ECE of a row is bold.",
    ),
    "fig_main_analysis": (
        "What the signals look like",
        "(a) Running mean of token probabilities against position, right and wrong responses apart. (b) Predictive and "
        "conditional entropy against the number of dropout passes. (c) ECE of verification in situ and by a prompt.",
    ),
    "tab_insitu_ptrue": (
        "In-situ verification",
        "ECE of P(True) on the live trajectory and by a prompt of its own, beside Ans Avg, and the tokens saved.",
    ),
    "tab_result_calibration": (
        "After calibration",
        "ECE after isotonic regression and after temperature (answer estimators) or Platt scaling (P(True)), change "
        "against the raw score in parentheses, and the learned parameters.",
    ),
    "fig_calibration_analysis": (
        "Calibration",
        "(a, b) Reliability before and after, with the number of rows in each bin. (c) ECE against the number of "
        "calibration rows, with the middle 80% of the draws.",
    ),
    "tab_calibration_transfer_summary": (
        "Transfer in short",
        "Change of ECE on the target when the calibrator was learned on the source; improvements on the hard dataset "
        "are bold.",
    ),
    "tab_inference_settings": ("Decoding settings", "How each model was sampled."),
    "tab_dropout_grid_search": (
        "Dropout rates",
        "c_BALD on the tuning examples for each rate of the grid; the rate of lowest ECE is bold.",
    ),
    "tab_bin_ablation": ("Number of bins", "The single-pass estimators measured with other numbers of bins."),
    "tab_result_estimation_full": (
        "Raw confidence with intervals",
        "Every metric with its 95% bootstrap percentile interval over evaluation rows.",
    ),
    "tab_result_calibration_full": (
        "After calibration, with intervals",
        "ECE after calibration with its 95% interval; the lower of the two methods is bold.",
    ),
    "tab_result_isotonic": (
        "Isotonic regression on every estimator",
        "ECE after isotonic regression, 95% interval, and change against the raw score.",
    ),
    "tab_calibration_transfer_full": (
        "Transfer in full",
        "Every calibrator on every target; bold where it was learned on the target itself.",
    ),
    "fig_prompt_example": ("One exchange", "A prompt as the model reads it, special tokens and all, and its response."),
    "fig_prompt_comparison": (
        "Two ways to ask",
        "The same response verified by a prompt of its own, and in situ, where the query follows the trajectory.",
    ),
}
