"""Numbers by hand for which each claim of the paper holds, and the change that turns it.

None is computed by the code under test. Claims that only rows decide have their cases in
test_claims_by_rows.py.
"""

import numpy as np
import pandas as pd
import pytest


def case(claim, verdict, **frames):
    return pytest.param(claim, verdict, frames, id=f"{claim} {verdict}")


# ---- frames: of model llama and dataset easy, where they say no other


def table(**columns):
    """A column is a list, or a value that all rows have; there is at least one list."""
    return pd.DataFrame({"model": "llama", "dataset": "easy", **columns})


def row(**columns):
    return table(**{name: [value] for name, value in columns.items()})


def errors(method="", **by_estimator):
    """The ECE of estimators."""
    return table(
        estimator=list(by_estimator), value=list(by_estimator.values()), method=method, metric="ece"
    )


def errors_on(**by_dataset):
    """The ECE of estimators on datasets."""
    parts = [errors(**values).assign(dataset=name) for name, values in by_dataset.items()]
    return pd.concat(parts)


def gains(isotonic, platt):
    """The relative gains of both methods."""
    return table(
        method=["isotonic", "platt"],
        relative=[isotonic, platt],
        value=0.1,
        metric="ece",
        estimator="ans_avg",
    )


def entropies(term, *means):
    """An entropy after the first pass, the second, and so on."""
    return table(passes=list(range(1, len(means) + 1)), mean=list(means), term=term)


def rate_errors(*values, estimator="c_bald"):
    """The ECE at the rates .1, .2 and .3."""
    return table(rate=[0.1, 0.2, 0.3], value=list(values), metric="ece", estimator=estimator)


def interval(name, value, low, high):
    return row(**{name: value, f"{name}_low": low, f"{name}_high": high})


def curve(raw, isotonic, upper=None, dataset="easy"):
    """The mean ECE by number of calibration rows, raw and after isotonic regression; and the upper
    end of its band, where it counts."""
    upper = upper or dict.fromkeys(isotonic, 0)
    return table(
        method=["", *["isotonic"] * len(isotonic)],
        n=[50, *isotonic],
        mean=[raw, *isotonic.values()],
        high=[raw, *upper.values()],
        sampling="uniform",
    ).assign(dataset=dataset)


def curves(easy, hard):
    """Curves of two datasets, by the upper ends at 5, 10 and 50 calibration rows; raw, the ECE
    is .3."""
    parts = []
    for dataset, ends in [("easy", easy), ("hard", hard)]:
        sizes = (5, 10, 50)
        upper = dict(zip(sizes, ends, strict=True))
        parts.append(curve(0.3, dict.fromkeys(sizes, 0.1), upper, dataset))
    return pd.concat(parts)


def between_datasets(easy_to_hard, hard_to_easy):
    """What transfer of isotonic regression changes, in ECE."""
    return table(
        source_model="llama",
        source_dataset=["easy", "hard"],
        dataset=["hard", "easy"],
        value=[easy_to_hard, hard_to_easy],
        metric="delta_ece",
        method="isotonic",
    )


def between_models(dataset, llama_to_qwen, qwen_to_llama):
    return table(
        source_model=["llama", "qwen"],
        model=["qwen", "llama"],
        value=[llama_to_qwen, qwen_to_llama],
        metric="delta_ece",
        method="isotonic",
    ).assign(source_dataset=dataset, dataset=dataset)


def saved(*percent):
    """Tokens saved in situ by two models."""
    return table(model=["a", "b"], value=list(percent), metric="token_reduction_pct", estimator="x")


def in_situ(error):
    return errors(p_true_insitu=error)


# ---- the abstract and the introduction

SUMMARY = [
    case("multi_pass_calibrated", "holds", result_estimation=errors(p_true=0.05, c_bald=0.3)),
    case("multi_pass_calibrated", "holds", result_estimation=errors(p_true=0.3, c_bald=0.05)),
    case("multi_pass_calibrated", "fails", result_estimation=errors(p_true=0.051, c_bald=0.3)),
    case("calibration_substantial", "holds", result_calibration=gains(0.5, 0.7)),
    case("calibration_substantial", "fails", result_calibration=gains(0.49, 0.7)),
    case("calibration_substantial", "fails", result_calibration=gains(0.7, 0.49)),
]

# ---- one pass


def sequence_and_answer(claim, sequence):
    """The sequence estimator is below both answer estimators, or not."""
    below = errors(**{sequence: 0.1}, ans_avg=0.2, ans_joint=0.3)
    equal = errors(**{sequence: 0.2}, ans_avg=0.2, ans_joint=0.3)
    above_one = errors(**{sequence: 0.3}, ans_avg=0.4, ans_joint=0.3)
    return [
        case(claim, "holds", result_estimation=below),
        case(claim, "fails", result_estimation=equal),
        case(claim, "fails", result_estimation=above_one),
    ]


def sequence_and_multi_pass(verdict, seq_avg, seq_joint, p_true, c_bald):
    values = errors(seq_avg=seq_avg, seq_joint=seq_joint, p_true=p_true, c_bald=c_bald)
    return case("seq_below_multi_pass", verdict, result_estimation=values)


def joint_and_average(verdict, **by_estimator):
    return case("joint_below_avg", verdict, result_estimation=errors(**by_estimator))


def gap_on_hard(claim, verdict, lower, higher, easy, hard):
    """ECE of two estimators on both datasets."""
    easy_errors = {lower: easy[0], higher: easy[1]}
    hard_errors = {lower: hard[0], higher: hard[1]}
    values = errors_on(easy=easy_errors, hard=hard_errors)
    return case(claim, verdict, result_estimation=values)


def joint_on_hard(verdict, easy, hard):
    return gap_on_hard("joint_below_avg_hard", verdict, "seq_joint", "seq_avg", easy, hard)


SINGLE_PASS = [
    case("answers_saturate", "holds", tokens=row(median=0.991)),
    case("answers_saturate", "fails", tokens=row(median=0.99)),
    *sequence_and_answer("seq_avg_below_answer", "seq_avg"),
    *sequence_and_answer("seq_joint_below_answer", "seq_joint"),
    case("substantially_better", "holds", result_estimation=errors(seq_avg=0.12, ans_avg=0.15)),
    case("substantially_better", "fails", result_estimation=errors(seq_avg=0.121, ans_avg=0.15)),
    sequence_and_multi_pass("holds", 0.1, 0.9, 0.2, 0.3),
    sequence_and_multi_pass("holds", 0.9, 0.1, 0.3, 0.2),
    sequence_and_multi_pass("fails", 0.2, 0.2, 0.2, 0.3),
    sequence_and_multi_pass("fails", 0.2, 0.2, 0.3, 0.1),
    joint_and_average("holds", seq_joint=0.1, seq_avg=0.101, ans_joint=0.2, ans_avg=0.3),
    joint_and_average("fails", seq_joint=0.1, seq_avg=0.1, ans_joint=0.2, ans_avg=0.3),
    joint_on_hard("holds", easy=(0.3, 0.4), hard=(0.2, 0.4)),
    joint_on_hard("fails", easy=(0.2, 0.4), hard=(0.3, 0.4)),
    joint_on_hard("fails", easy=(0.6, 0.4), hard=(0.4, 0.4)),
]

# ---- several passes


def bald_on_hard(verdict, easy, hard):
    return gap_on_hard("bald_below_p_true_hard", verdict, "c_bald", "p_true", easy, hard)


def in_situ_and_standard(verdict, in_situ_error, standard_error):
    frames = {
        "insitu_ptrue": in_situ(in_situ_error),
        "result_estimation": errors(p_true=standard_error),
    }
    return case("in_situ_comparable", verdict, **frames)


SETTLED = (1, 2, 3, 4, 5, 4.9, 5.1, 5)
UNSETTLED = (5, 5, 5, 5, 5, 9, 5, 5)
STILL_RISING = (1, 2, 3, 4, 5, 6, 7, 8)

MULTI_PASS = [
    case("bald_below_p_true", "holds", result_estimation=errors(c_bald=0.199, p_true=0.2)),
    case("bald_below_p_true", "fails", result_estimation=errors(c_bald=0.2, p_true=0.2)),
    bald_on_hard("holds", easy=(0.3, 0.4), hard=(0.2, 0.4)),
    bald_on_hard("fails", easy=(0.2, 0.4), hard=(0.3, 0.4)),
    bald_on_hard("fails", easy=(0.6, 0.4), hard=(0.5, 0.4)),
    case("p_true_cost_grows", "holds", verification=row(r2=0.91)),
    case("p_true_cost_grows", "fails", verification=row(r2=0.9)),
    case("rate_matters", "holds", dropout_grid_search=rate_errors(0.3, 0.1, 0.121)),
    case("rate_matters", "fails", dropout_grid_search=rate_errors(0, 0.01, 0.02)),
    case("rate_matters", "fails", dropout_grid_search=rate_errors(0.3, 0.31, 0.315)),
    case(
        "rate_matters",
        "not judged",
        dropout_grid_search=rate_errors(0.3, 0.1, 0.2, estimator="p_true"),
    ),
    case("conditional_stays", "holds", entropies=entropies("conditional", 0.9, 1.1, 1)),
    case("conditional_stays", "fails", entropies=entropies("conditional", 0.7, 1, 1)),
    case("conditional_stays", "fails", entropies=entropies("conditional", 1.3, 1, 1)),
    case("conditional_stays", "holds", entropies=entropies("conditional", 4, 5)),
    case("conditional_stays", "not judged", entropies=entropies("conditional", 1)),
    case("entropy_grows", "holds", passes=interval("growth", 0.1, 0.01, 0.2)),
    case("entropy_grows", "fails", passes=interval("growth", -0.1, -0.2, -0.01)),
    case("entropy_grows", "open", passes=interval("growth", 0.1, -0.01, 0.2)),
    case("entropy_grows", "not judged", passes=interval("growth", 0.1, np.nan, np.nan)),
    case("predictive_settles", "holds", entropies=entropies("predictive", *SETTLED)),
    case("predictive_settles", "fails", entropies=entropies("predictive", *UNSETTLED)),
    case("predictive_settles", "fails", entropies=entropies("predictive", *STILL_RISING)),
    case("predictive_settles", "not judged", entropies=entropies("predictive", 5, 5, 5, 5, 5)),
    case("mostly_distributional", "holds", passes=interval("excess", 0.1, 0.01, 0.2)),
    case("mostly_distributional", "fails", passes=interval("excess", -0.1, -0.2, 0)),
    case("mostly_distributional", "open", passes=interval("excess", -0.1, -0.2, 0.01)),
    case("p_true_below_ans_avg", "holds", result_estimation=errors(p_true=0.1, ans_avg=0.2)),
    case("p_true_below_ans_avg", "fails", result_estimation=errors(p_true=0.2, ans_avg=0.2)),
    in_situ_and_standard("holds", 0.25, 0.2),
    in_situ_and_standard("holds", 0.1, 0.2),
    in_situ_and_standard("fails", 0.251, 0.2),
    case("token_reduction", "holds", insitu_ptrue=saved(80, 90)),
    case("token_reduction", "fails", insitu_ptrue=saved(80, 89)),
    case("saving_grows", "holds", verification=row(saving_with_length=0.1)),
    case("saving_grows", "fails", verification=row(saving_with_length=0)),
]

# ---- calibration


def isotonic_and_raw(verdict, isotonic, raw):
    frames = {
        "result_isotonic": errors("isotonic", seq_avg=isotonic),
        "result_estimation": errors(seq_avg=raw),
    }
    return case("isotonic_reduces", verdict, **frames)


def platt_and_raw(verdict, platt, raw, estimator="ans_avg"):
    frames = {
        "result_calibration": errors("platt", **{estimator: platt}),
        "result_estimation": errors(**{estimator: raw}),
    }
    return case("platt_reduces", verdict, **frames)


def isotonic_and_temperature(verdict, isotonic, temperature):
    frames = {
        "result_isotonic": errors("isotonic", ans_avg=isotonic),
        "result_calibration": errors("platt", ans_avg=temperature),
    }
    return case("isotonic_below_temperature", verdict, **frames)


def high_and_calibrated(verdict, raw, isotonic, temperature):
    frames = {
        "result_estimation": errors(ans_avg=raw),
        "result_isotonic": errors("isotonic", ans_avg=isotonic),
        "result_calibration": errors("platt", ans_avg=temperature),
    }
    return case("high_raw_mends", verdict, **frames)


def confident_errors(easy, hard):
    return table(dataset=["easy", "hard"], confident_errors=[easy, hard])


FIFTY = "fifty_suffice"  # half of the best gain, of a raw error of .5, at 50 rows
FEWER = "hard_needs_fewer"  # rows until the upper end of the band is below the raw error of .3

CALIBRATION = [
    isotonic_and_raw("holds", 0.1, 0.11),
    isotonic_and_raw("fails", 0.1, 0.1),
    platt_and_raw("holds", 0.1, 0.11),
    platt_and_raw("fails", 0.1, 0.1),
    platt_and_raw("not judged", 0.1, 0.2, estimator="seq_avg"),
    isotonic_and_temperature("holds", 0.1, 0.2),
    isotonic_and_temperature("fails", 0.2, 0.2),
    high_and_calibrated("holds", 0.31, 0.149, 0.2),
    high_and_calibrated("fails", 0.31, 0.15, 0.2),
    high_and_calibrated("not judged", 0.3, 0.149, 0.1),
    case(FIFTY, "holds", learning=curve(0.5, {10: 0, 50: 0.25, 400: 0})),
    case(FIFTY, "fails", learning=curve(0.5, {10: 0, 50: 0.26, 400: 0})),
    case(FIFTY, "fails", learning=curve(0.5, {10: 0, 50: 0.6, 400: 0})),
    case(FIFTY, "fails", learning=curve(0.5, {10: 0, 50: 0.5, 400: 0.75})),
    case(FIFTY, "holds", learning=curve(0.5, {10: 0, 50: 0.49, 400: 0.75})),
    case(FEWER, "holds", learning=curves(easy=(0.4, 0.2, 0.2), hard=(0.2, 0.2, 0.2))),
    case(FEWER, "fails", learning=curves(easy=(0.4, 0.2, 0.2), hard=(0.4, 0.2, 0.2))),
    case(FEWER, "fails", learning=curves(easy=(0.2, 0.2, 0.2), hard=(0.4, 0.2, 0.2))),
    case(FEWER, "fails", learning=curves(easy=(0.4, 0.2, 0.2), hard=(0.4, 0.4, 0.4))),
    case(FEWER, "holds", learning=curves(easy=(0.4, 0.4, 0.4), hard=(0.4, 0.2, 0.2))),
    case(FEWER, "not judged", learning=curves(easy=(0.2, 0.2, 0.2), hard=(0.2, 0.2, 0.2))),
    case(FEWER, "holds", learning=curves(easy=(0.3, 0.2, 0.2), hard=(0.2, 0.2, 0.2))),
    case("errors_on_hard", "holds", calibration_rows=confident_errors(easy=1, hard=2)),
    case("errors_on_hard", "fails", calibration_rows=confident_errors(easy=2, hard=2)),
]

# ---- transfer


def transfer(claim, verdict, frame):
    return case(claim, verdict, calibration_transfer_summary=frame)


TRANSFER = [
    transfer("easy_to_hard", "holds", between_datasets(-0.001, 0.9)),
    transfer("easy_to_hard", "holds", between_datasets(-0.001, -0.9)),
    transfer("easy_to_hard", "fails", between_datasets(0, -0.9)),
    transfer("hard_to_easy", "holds", between_datasets(-0.9, 0.001)),
    transfer("hard_to_easy", "holds", between_datasets(0.9, 0.001)),
    transfer("hard_to_easy", "fails", between_datasets(0.9, 0)),
    transfer("models_on_hard", "holds", between_models("hard", -0.001, -0.002)),
    transfer("models_on_hard", "fails", between_models("hard", -0.001, 0)),
    transfer("models_on_hard", "not judged", between_models("easy", -0.1, -0.1)),
    transfer("models_on_easy", "holds", between_models("easy", -0.001, 0.3)),
    transfer("models_on_easy", "holds", between_models("easy", 0.3, -0.001)),
    transfer("models_on_easy", "fails", between_models("easy", 0, 0.3)),
    transfer("models_on_easy", "fails", between_models("easy", 0.3, 0.4)),
    transfer("models_on_easy", "fails", between_models("easy", -0.3, -0.1)),
    transfer("models_on_easy", "not judged", between_models("hard", -0.1, 0.3)),
    transfer("transfer_severe", "holds", between_models("easy", 0, 0.201)),
    transfer("transfer_severe", "fails", between_models("easy", 0, 0.2)),
    transfer("transfer_severe", "not judged", between_models("hard", 0, 0.9)),
    transfer("transfer_severe", "not judged", between_datasets(0.9, 0.9)),
]

CASES = [*SUMMARY, *SINGLE_PASS, *MULTI_PASS, *CALIBRATION, *TRANSFER]
