"""The outputs of 08 and 09 for the paper and the report: name, builder and captions, in the order of the paper.

An output with one of these names is exported: `tab_...` or `fig_...`; `rep_...` goes to the report only. The builders
are imported, so that the keys of 08 cover their code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lib.paper import beyond_paper, calibration_tables, tables


@dataclass(frozen=True)
class Exhibit:
    """An output. `short` and `long` make up the caption.

    A table has a `builder`, called with its `frame` of all results (`Results`; by default that of its name), or with
    the `arguments` that a function selects. `published`: the paper's own numbers suffice for it; if not, its cell has
    the tag `run`. `notebook`: the notebook that shows it.
    """

    name: str
    short: str = ""
    long: str = ""
    builder: Callable[..., Any] | None = None
    published: bool = False
    frame: str = ""
    notebook: str = "08_tables"
    arguments: Callable[[Any], tuple] | None = None

    def build(self, run: Any) -> Any:
        """Build a table from all results of a run, or of the paper."""
        if self.builder is None:
            raise ValueError(f"{self.name} is not a table")
        name = self.frame or self.name.removeprefix("tab_")
        arguments = self.arguments(run) if self.arguments else (run.frames[name], *run.labels(name), run.notes)
        return self.builder(*arguments)


EXHIBITS = (
    Exhibit("tab_estimators", "Estimators",
            "How each estimator turns probabilities into one confidence for a response.",
            builder=tables.estimators, published=True, arguments=lambda run: ()),
    Exhibit("tab_result_estimation", "Raw confidence",
            "Accuracy, and ECE and MCE of each estimator before any calibration; the lowest ECE of a row is bold.",
            builder=tables.result_estimation, published=True),
    Exhibit("fig_main_analysis", "What the signals look like",
            "(a) Running mean of token probabilities against position, correct and incorrect responses apart, and the "
            "difference with its interval. (b) Predictive and conditional entropy against the number of dropout "
            "passes; the gap is BALD. (c) ECE of verification in situ and by a prompt, with 95% intervals."),
    Exhibit("tab_result_calibration", "After calibration",
            "ECE after isotonic regression and after temperature (answer estimators) or Platt scaling (P(True)), "
            "change against the raw score in parentheses, and the learned parameters.",
            builder=calibration_tables.result_calibration, published=True),
    Exhibit("fig_calibration_analysis", "Calibration",
            "(a, b) Reliability before and after, with the ECE of either, 95% binomial intervals, the gap to the "
            "diagonal, and the number of rows in each bin; hollow where these are fewer than five. (c) ECE against the "
            "number of calibration rows, with the middle 80% of the draws; dotted the raw score's. In "
            "parentheses how many draws hold correct responses alone, or incorrect ones alone."),
    Exhibit("tab_calibration_transfer_summary", "Transfer in short",
            "Change of ECE on the target when the calibrator was learned on the source; improvements on the hard "
            "dataset are bold.", builder=calibration_tables.calibration_transfer_summary, published=True,
            arguments=lambda run: (run.frames["calibration_transfer_summary"], *run.transfer_labels, run.notes,
                                   run.hardest_dataset)),
    Exhibit("tab_dropout_grid_search", "Dropout rates",
            "c_BALD on the tuning examples for each rate of the grid; the rate of lowest ECE is bold.",
            builder=tables.dropout_grid_search, published=True),
    Exhibit("tab_inference_settings", "Decoding settings", "How each model was sampled.",
            builder=tables.inference_settings, published=True, arguments=lambda run: (run.settings, run.notes[:1])),
    Exhibit("fig_prompt_example", "One exchange",
            "A prompt as the model reads it, special tokens and all, and its response."),
    Exhibit("tab_result_estimation_full", "Raw confidence with intervals",
            "Every metric with its 95% bootstrap percentile interval over evaluation rows.",
            builder=tables.result_estimation_full, published=True),
    Exhibit("tab_result_calibration_full", "After calibration, with intervals",
            "ECE after calibration with its 95% interval; the lower of the two methods is bold.",
            builder=calibration_tables.result_calibration_full, published=True),
    Exhibit("tab_result_isotonic", "Isotonic regression on every estimator",
            "ECE after isotonic regression, 95% interval, and change against the raw score.",
            builder=calibration_tables.result_isotonic, published=True),
    Exhibit("tab_calibration_transfer_full", "Transfer in full",
            "Every calibrator on every target; bold where it was learned on the target itself.",
            builder=calibration_tables.calibration_transfer_full, published=True),
    Exhibit("tab_insitu_ptrue", "In-situ verification",
            "ECE of P(True) on the live trajectory and by a prompt of its own, beside Ans Avg, and the tokens saved.",
            builder=tables.insitu_ptrue, published=True),
    Exhibit("tab_bin_ablation", "Number of bins",
            "The single-pass estimators measured with other numbers of bins.",
            builder=tables.bin_ablation, published=True),
    Exhibit("fig_prompt_comparison", "Two ways to ask",
            "The same response verified by a prompt of its own, and in situ, where the query follows the trajectory."),
    # Beyond the paper:
    Exhibit("fig_costs", "What the tokens buy (not in the paper)",
            "ECE (the lower the better) and AUROC (the higher) of raw scores against the tokens that a question takes, "
            "response and prompt included: a small mark for each pair, a large one for the mean of the pairs that "
            "have every estimator, and a line along the means that no cheaper estimator betters."),
    Exhibit("fig_selective", "When to answer (not in the paper)",
            "Accuracy of the answers given against the share of questions answered, the surest first: raw scores "
            "above, after isotonic regression below. A ring is a threshold that guarantees the precision of the gray "
            "line."),
    Exhibit("tab_costs", "What a confidence costs (not in the paper)",
            "Tokens read for a question: for the response with its prompt, which every single-pass estimator has for "
            "nothing, and for what the others read beyond it.", builder=beyond_paper.costs_table),
    Exhibit("tab_dropout_in_situ",
            "Dropout at the answer only (not in the paper)",
            "c_BALD with dropout along the whole trajectory, and in situ: only where the answer's tokens are read, "
            "behind a trajectory that was encoded once; each at its own rate. The lower ECE of a row is bold.",
            builder=beyond_paper.dropout_in_situ_table),
    Exhibit("tab_dropout_in_situ_grid",
            "Dropout rates at the answer only (not in the paper)",
            "c_BALD in situ on the tuning examples for each rate of the grid; the rate of lowest ECE is bold.",
            builder=tables.dropout_grid_search,
            arguments=lambda run: (run.frames["dropout_in_situ_grid"], run.models, run.datasets, run.notes,
                                   "c_bald_insitu")),
    Exhibit("tab_selective", "What the confidence is good for (not in the paper)",
            "Each estimator beside a constant at the base rate of the calibration rows, which knows nothing and is "
            "nearly calibrated: Skill is the share of its Brier score that an estimator saves. Then the same after "
            "isotonic regression, and the share of questions answered where a precision is guaranteed. Bold is the "
            "best of a pair.",
            builder=beyond_paper.selective_table,
            arguments=lambda run: (run.frames["selective_scores"], run.frames["selective_thresholds"], run.models,
                                   run.datasets, run.notes)),
    Exhibit("rep_ablation"),
    Exhibit("rep_costs"),
    Exhibit("rep_findings", published=True),
    Exhibit("rep_microscope"),
    Exhibit("rep_numbers"),
    Exhibit("rep_sensitivity", notebook="09_robustness"),
    Exhibit("rep_stability", notebook="09_robustness"),
)  # fmt: skip
TABLES = [exhibit for exhibit in EXHIBITS if exhibit.name.startswith("tab_")]
BY_NAME = {exhibit.name: exhibit for exhibit in EXHIBITS}


def build(name: str, run: Any) -> Any:
    """Build the table `name` from all results (`Results`) of a run, or of the paper."""
    return BY_NAME[name].build(run)


def captions() -> dict[str, tuple[str, str]]:
    """Return the two parts of each caption by name, in the order of the paper."""
    return {exhibit.name: (exhibit.short, exhibit.long) for exhibit in EXHIBITS if exhibit.short}
