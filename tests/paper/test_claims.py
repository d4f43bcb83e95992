"""Each claim by hand: numbers for which it holds, and the change that turns it. Both are written here, and none is
computed by the code under test."""

import pandas as pd
import pytest

from lib.analysis.results import Results
from lib.paper.verdicts import CLAIMS, judge

MODELS, DATASETS = {"llama": "Llama-3", "qwen": "Qwen3"}, {"easy": "Easy", "hard": "Hard"}
NAMES = {claim.name: claim for claim in CLAIMS}
ACCURACY = [("llama", "easy", "", "acc", 0.9), ("llama", "hard", "", "acc", 0.3)]  # what makes a dataset the hardest


def results(**frames):
    return Results(MODELS, DATASETS, MODELS, (MODELS, DATASETS), (), frames)


def rows(columns, *values, **more):
    return pd.DataFrame(values, columns=columns.split()).assign(**more)


def table(name="result_estimation", metric="ece", hard=None, **easy):
    """A table of one model: errors by estimator on the easy dataset, and on the hard one."""
    values = [("llama", "easy", estimator, metric, value) for estimator, value in easy.items()]
    values += [("llama", "hard", estimator, metric, value) for estimator, value in (hard or {}).items()]
    return {name: rows("model dataset estimator metric value", *ACCURACY, *values)}


def statistics(name, **values):
    return {name: pd.DataFrame([{"model": "llama", "dataset": "easy"} | values])}


def gaps(**values):
    """Mean confidence minus accuracy by estimator."""
    return {"overconfidence": rows("estimator gap", *values.items(), model="llama", dataset="easy")}


def intervals(seq, ans):
    ends = rows("estimator low high", ("seq_avg", *seq), ("ans_avg", *ans), metric="ece", model="llama", dataset="easy")
    return {"result_estimation_full": ends}


def running(right, wrong):
    """Running means at four positions."""
    values = [(at, correct, mean) for correct, means in ((True, right), (False, wrong))
              for at, mean in zip((0.0, 0.1, 0.5, 1.0), means, strict=True)]  # fmt: skip
    return {"running_mean": rows("position correct mean", *values, model="llama", dataset="easy")}


def positions(*values):
    return {"positions": rows("position single running", *values, model="llama", dataset="easy")}


def entropies(term, *means):
    values = [(term, passes, mean) for passes, mean in enumerate(means, 1)]
    return {"entropies": rows("term passes mean", *values, model="llama", dataset="easy")}


def by_rate(*errors, estimator="c_bald"):
    frame = rows("rate value", *zip((0.1, 0.2, 0.3), errors, strict=False), model="llama", dataset="easy", metric="ece")
    return {"dropout_grid_search": frame.assign(estimator=estimator)}


def by_passes(**errors):
    values = [(int(passes[1:]), ece) for passes, ece in errors.items()]
    return {"by_passes": rows("passes ece", *values, model="llama", dataset="easy")}


def saved(*percent):
    return {"insitu_ptrue": rows("value", *[(p,) for p in percent], metric="token_reduction_pct", estimator="x",
                                 model=[*"ab"][: len(percent)], dataset="easy")}  # fmt: skip


def calibrated(*values, name="result_calibration", estimator="ans_avg"):
    """ECE and relative gain by method."""
    pair = {"model": "llama", "dataset": "easy", "metric": "ece"}
    return {name: rows("method value relative", *values, **pair, estimator=estimator)}


def learning(*values, dataset="easy"):
    """Mean ECE and 90th percentile of the draws by method and number of rows; the raw score has no method."""
    frame = rows("method n mean high", *values, model="llama", dataset=dataset)
    return frame


def needed(easy, hard, above=0.4):
    """Curves of which nine draws in ten improve on the raw .3 from so many rows on (None: never), and are `above`."""
    parts = [pd.DataFrame()]
    for dataset, enough in (("easy", easy), ("hard", hard)):
        curve = [("isotonic", n, 0.1, above if enough is None or n < enough else 0.2) for n in (5, 10, 50)]
        parts.append(learning(("", 50, 0.3, 0.3), *curve, dataset=dataset))
    return table() | {"learning": pd.concat(parts)}


def fifty(few, every):
    """Curves from raw .5: with 10 rows, with 50 (`few`), and with 400 (`every`)."""
    values = [("", 50, 0.5, 0.5), ("isotonic", 10, 0.0, 0), ("isotonic", 50, few, 0), ("isotonic", 400, every, 0)]
    return {"learning": learning(*values)}


def errors_of_rows(easy, hard, curved=0.5):
    frame = rows("dataset confident_errors", ("easy", easy), ("hard", hard), model="llama", curved=curved)
    return table() | {"calibration_rows": frame}


def arrows(*values):
    """Changes of ECE: source model, source dataset, model, dataset."""
    names = "source_model source_dataset model dataset value"
    frame = rows(names, *values, metric="delta_ece", method="isotonic")
    return table() | {"calibration_transfer_summary": frame}


def between_models(there, back, dataset="easy"):
    return arrows(("llama", dataset, "qwen", dataset, there), ("qwen", dataset, "llama", dataset, back))


def between_datasets(to_hard, to_easy):
    return arrows(("llama", "easy", "llama", "hard", to_hard), ("llama", "hard", "llama", "easy", to_easy))


LARGE = {"p_true_insitu": 0.9, "ans_joint": 0.9}
BY_HAND = {  # by claim: what holds, and what turns it
    "MultiPassCalibrated": [
        (table(p_true=0.05, c_bald=0.3), True), (table(p_true=0.051, c_bald=0.3), False),
        (table(p_true=0.3, c_bald=0.05), True)],
    "CalibrationSubstantial": [
        (calibrated(("isotonic", 0.1, 0.5), ("platt", 0.1, 0.7)), True),
        (calibrated(("isotonic", 0.1, 0.49), ("platt", 0.1, 0.7)), False),
        (calibrated(("isotonic", 0.1, 0.7), ("platt", 0.1, 0.49)), False)],
    "AnswersSaturate": [(statistics("tokens", median=0.991), True), (statistics("tokens", median=0.99), False)],
    "OverconfidenceOfAnswers": [
        (gaps(ans_avg=0.3, ans_joint=0.3, seq_avg=0.2, seq_joint=0.2), True),
        (gaps(ans_avg=0.3, ans_joint=0.2, seq_avg=0.2, seq_joint=0.1), False),
        (gaps(ans_avg=0.2, ans_joint=0.3, seq_avg=0.1, seq_joint=0.2), False)],
    "SeqDiscriminates": [
        (table(metric="auroc", seq_avg=0.8, ans_avg=0.7), True),
        (table(metric="auroc", seq_avg=0.7, ans_avg=0.7), False)],
    "TopTokenUnchanged": [
        (statistics("passes", unchanged=20, auroc_where_unchanged=0.6), True),
        (statistics("passes", unchanged=20, auroc_where_unchanged=0.5), False),
        (statistics("passes", unchanged=19, auroc_where_unchanged=0.6), None)],
    "SeqAvgBelowAnswer": [
        (table(seq_avg=0.1, ans_avg=0.2, ans_joint=0.3), True), (table(seq_avg=0.2, ans_avg=0.2, ans_joint=0.3), False),
        (table(seq_avg=0.3, ans_avg=0.4, ans_joint=0.3), False)],
    "SeqJointBelowAnswer": [
        (table(seq_joint=0.1, ans_avg=0.2, ans_joint=0.3), True),
        (table(seq_joint=0.2, ans_avg=0.2, ans_joint=0.3), False),
        (table(seq_joint=0.3, ans_avg=0.4, ans_joint=0.3), False)],
    "SeqAnsOverlap": [
        (intervals((0.1, 0.2), (0.2, 0.3)), True), (intervals((0.1, 0.19), (0.2, 0.3)), False),
        (intervals((0.3, 0.4), (0.2, 0.3)), True), (intervals((0.31, 0.4), (0.2, 0.3)), False)],
    "SubstantiallyBetter": [
        (table(seq_avg=0.12, ans_avg=0.15), True), (table(seq_avg=0.121, ans_avg=0.15), False)],
    "SeqBelowMultiPass": [
        (table(seq_avg=0.1, seq_joint=0.9, p_true=0.2, c_bald=0.3), True),
        (table(seq_avg=0.9, seq_joint=0.1, p_true=0.3, c_bald=0.2), True),
        (table(seq_avg=0.2, seq_joint=0.2, p_true=0.2, c_bald=0.3), False),
        (table(seq_avg=0.2, seq_joint=0.2, p_true=0.3, c_bald=0.1), False)],
    "MeansOverlapFirst": [
        (running((0.9, 0.9, 0.5, 0.5), (0.89, 0.89, 0.9, 0.9)), True),
        (running((0.9, 0.9, 0.9, 0.9), (0.87, 0.87, 0.9, 0.9)), False),
        (running((0.87, 0.87, 0.9, 0.9), (0.9, 0.9, 0.9, 0.9)), False),
        (running((0.02, 0.02, 0.9, 0.9), (0.0, 0.0, 0.9, 0.9)), False)],
    "MeansPartLater": [
        (running((0.1, 0.1, 0.1, 0.9), (0.9, 0.9, 0.9, 0.8)), True),
        (running((0.9, 0.9, 0.9, 0.9), (0.1, 0.1, 0.1, 0.9)), False)],
    "MeansDiverge": [
        (running((0.9, 0.5, 0.6, 0.7), (0.0, 0.7, 0.6, 0.5)), True),
        (running((0.0, 0.7, 0.6, 0.5), (0.0, 0.7, 0.6, 0.5)), False),
        (running((0.9, 0.5, 0.6, 0.7), (0.9, 0.5, 0.6, 0.7)), False),
        (running((0.9, 0.0, 0.0, 0.0), (0.0, 0.7, 0.6, 0.5)), False),
        (running((0.9, 0.5, 0.6, 0.7), (0.9, 0.0, 0.0, 0.0)), False)],
    "NoSingleToken": [
        (positions((0, 0.5, 0.5), (0.5, 0.7, 0.6), (1, 0.6, 0.8)), True),
        (positions((0, 0.5, 0.9), (0.5, 0.8, 0.9), (1, 0.6, 0.8)), False)],
    "SignalAccumulates": [
        (positions((0, 0.5, 0.9), (0.1, 0.9, 0.6), (1, 0.5, 0.7)), True),
        (positions((0, 0.5, 0.1), (0.1, 0.1, 0.7), (1, 0.9, 0.7)), False)],
    "JointBelowAvg": [
        (table(seq_joint=0.1, seq_avg=0.101, ans_joint=0.2, ans_avg=0.3), True),
        (table(seq_joint=0.1, seq_avg=0.1004, ans_joint=0.2, ans_avg=0.3), False)],
    "JointBelowAvgHard": [
        (table(seq_joint=0.3, seq_avg=0.4, hard=dict(seq_joint=0.2, seq_avg=0.4)), True),
        (table(seq_joint=0.2, seq_avg=0.4, hard=dict(seq_joint=0.3, seq_avg=0.4)), False),
        (table(seq_joint=0.6, seq_avg=0.4, hard=dict(seq_joint=0.4, seq_avg=0.4)), False)],
    "BaldBelowPTrue": [(table(c_bald=0.199, p_true=0.2), True), (table(c_bald=0.2, p_true=0.2), False)],
    "BaldBelowPTrueHard": [
        (table(c_bald=0.3, p_true=0.4, hard=dict(c_bald=0.2, p_true=0.4)), True),
        (table(c_bald=0.2, p_true=0.4, hard=dict(c_bald=0.3, p_true=0.4)), False),
        (table(c_bald=0.6, p_true=0.4, hard=dict(c_bald=0.5, p_true=0.4)), False)],
    "PTrueCostGrows": [(statistics("verification", r2=0.91), True), (statistics("verification", r2=0.9), False)],
    "RateMatters": [
        (by_rate(0.3, 0.1, 0.121), True), (by_rate(0.0, 0.01, 0.02), False),
        (by_rate(0.3, 0.1, 0.2, estimator="p_true"), None)],
    "ConditionalStays": [
        (entropies("conditional", 0.9, 1.1, 1.0), True), (entropies("conditional", 0.7, 1.0, 1.0), False),
        (entropies("conditional", 1.3, 1.0, 1.0), False), (entropies("conditional", 4.0, 5.0), True),
        (entropies("conditional", 1.0), None)],
    "PassesSharp": [
        (statistics("passes", entropy_variation=0.2), True), (statistics("passes", entropy_variation=0.21), False)],
    "EntropyGrows": [
        (entropies("predictive", 1, 2, 3, 4, 5, 4.9, 5.1, 5), True), (entropies("predictive", 1, 2, 3, 2.9, 5), False),
        (entropies("predictive", 5, 5, 5, 5, 5), False), (entropies("predictive", 1), None)],
    "PredictiveSettles": [
        (entropies("predictive", 1, 2, 3, 4, 5, 4.9, 5.1, 5), True),
        (entropies("predictive", 5, 5, 5, 5, 5, 9, 5, 5), False),
        (entropies("predictive", 1, 2, 3, 4, 5, 6, 7, 8), False), (entropies("predictive", 5, 5, 5, 5, 5), None)],
    "FiveReliable": [
        (by_passes(t1=0.9, t5=0.2, t8=0.9, t10=0.22), True), (by_passes(t1=0.2, t5=0.2, t8=0.2, t10=0.23), False),
        (by_passes(t5=0.23, t10=0.2), False), (by_passes(t5=0.02, t10=0.0), True),
        (by_passes(t1=0.2, t5=0.2), None), (by_passes(t8=0.2, t10=0.2), None)],
    "MostlyDistributional": [
        (statistics("passes", bald_share=0.51), True), (statistics("passes", bald_share=0.5), False)],
    "PTrueBelowAnsAvg": [(table(p_true=0.1, ans_avg=0.2), True), (table(p_true=0.2, ans_avg=0.2), False)],
    "InSituComparable": [
        (table("insitu_ptrue", p_true_insitu=0.25, p_true=0.2), True),
        (table("insitu_ptrue", p_true_insitu=0.251, p_true=0.2), False),
        (table("insitu_ptrue", p_true_insitu=0.149, p_true=0.2), False)],
    "TokenReduction": [(saved(80.0, 90.0), True), (saved(80.0, 89.0), False)],
    "SavingGrows": [
        (statistics("verification", saving_with_length=0.1), True),
        (statistics("verification", saving_with_length=0.0), False)],
    "IsotonicReduces": [
        (calibrated(("isotonic", 0.1, 0.1), name="result_isotonic", estimator="seq_avg"), True),
        (calibrated(("isotonic", 0.1, 0.0), ("platt", 0.1, 0.9), name="result_isotonic"), False)],
    "PlattReduces": [
        (calibrated(("platt", 0.1, 0.1)), True), (calibrated(("platt", 0.1, 0.0), ("isotonic", 0.1, 0.9)), False),
        (calibrated(("platt", 0.1, 0.1), estimator="seq_avg"), None)],
    "IsotonicBelowTemperature": [
        (calibrated(("isotonic", 0.1, 0.5), ("platt", 0.2, 0.6)), True),
        (calibrated(("isotonic", 0.2, 0.6), ("platt", 0.1, 0.5)), False),
        (calibrated(("isotonic", 0.1, 0.6), ("platt", 0.1, 0.5)), True),
        (calibrated(("isotonic", 0.1, 0.5), ("platt", 0.1, 0.5)), False)],
    "IsotonicMendsCurves": [
        (errors_of_rows(1, 1, curved=0.049) | calibrated(("isotonic", 0.1, 0.5), ("platt", 0.2, 0.5)), True),
        (errors_of_rows(1, 1, curved=0.049) | calibrated(("isotonic", 0.2, 0.5), ("platt", 0.2, 0.5)), False),
        (errors_of_rows(1, 1, curved=0.05) | calibrated(("isotonic", 0.1, 0.5), ("platt", 0.2, 0.5)), None),
        (errors_of_rows(1, 1, curved=0.049) | calibrated(("isotonic", 0.1, 0.5)), None)],
    "HighRawMends": [
        (table(ans_avg=0.31) | calibrated(("isotonic", 0.149, 0.5)), True),
        (table(ans_avg=0.31) | calibrated(("isotonic", 0.15, 0.5)), False),
        (table(ans_avg=0.3) | calibrated(("isotonic", 0.149, 0.5)), None)],
    "FiftySuffice": [
        (fifty(0.25, 0), True), (fifty(0.26, 0), False), (fifty(0.6, 0), False), (fifty(0.5, 0.75), False),
        (fifty(0.49, 0.75), True)],
    "HardNeedsFewer": [
        (needed(10, 5), True), (needed(10, 10), False), (needed(5, 10), False), (needed(10, None), False),
        (needed(None, 10), True), (needed(5, 5), None),
        (needed(10, 5, above=0.3), True)],
    "ErrorsOnHard": [(errors_of_rows(1, 2), True), (errors_of_rows(2, 2), False)],
    "EasyToHard": [
        (between_datasets(-0.001, 0.9), True), (between_datasets(-0.001, -0.9), True),
        (between_datasets(0.0, -0.9), False)],
    "HardToEasy": [
        (between_datasets(-0.9, 0.001), True), (between_datasets(0.9, 0.001), True),
        (between_datasets(0.9, 0.0), False)],
    "ModelsOnHard": [
        (between_models(-0.001, -0.002, "hard"), True), (between_models(-0.001, 0.0, "hard"), False),
        (between_models(-0.1, -0.1, "easy"), None)],
    "ModelsOnEasy": [
        (between_models(0.0, 0.3), True), (between_models(0.3, 0.005), True), (between_models(0.3, 0.4), False),
        (between_models(-0.3, 0.005), False), (between_models(0.0, 0.3, "hard"), None)],
    "TransferSevere": [
        (between_models(0.0, 0.201), True), (between_models(0.0, 0.2), False), (between_models(0.0, 0.9, "hard"), None),
        (between_datasets(0.9, 0.9), None)],
}  # fmt: skip
TOLD = [(name, *case) for name, cases in BY_HAND.items() for case in cases]


@pytest.mark.parametrize("name, frames, held", TOLD, ids=[f"{name}-{held}" for name, _, held in TOLD])
def test_a_claim_holds_for_these_numbers_and_not_for_others(name, frames, held):
    assert judge(NAMES[name], results(**frames)).held is held


def test_every_claim_has_such_numbers():
    assert set(BY_HAND) == set(NAMES)
    assert all({True, False} <= {held for _, held in cases} for cases in BY_HAND.values())


def test_a_claim_without_its_frame_says_what_it_lacks():
    for name, ((frames, _), *_) in BY_HAND.items():
        lacks = judge(NAMES[name], results()).lacks
        assert lacks in frames, name
        without = {other: frame for other, frame in frames.items() if other != lacks}
        assert judge(NAMES[name], results(**without)).lacks == lacks, name
