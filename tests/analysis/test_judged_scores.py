"""A table of scores is judged: raw figures of all rows, calibrated ones of the second half."""

import numpy as np
import pandas as pd
import pytest
from sklearn.isotonic import IsotonicRegression

from lib.analysis import judged_scores as judging
from lib.analysis.answer_thresholds import judge_thresholds
from lib.analysis.group_resamples import SortedScores, draw_group_counts, measure_drawn
from lib.analysis.signals import load_signals
from lib.params import EvaluationChoices, TableJudgment
from lib.score.evaluation import evaluate
from lib.score.metrics import decompose_brier
from lib.score.score_files import ScoreTable, read_score_table
from lib.store import evaluation_rows

FEW = TableJudgment.of({"resamples": 200})
MODELS = ["qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"]
DATASETS = ["svamp", "gsm8k", "gsmhard"]


def make_table(groups, correct, **scores):
    rows = pd.DataFrame({"id": [f"{n:04}" for n in range(len(groups))], "group": groups})
    return ScoreTable("t", rows.assign(correct=correct), pd.DataFrame(scores), [], "0" * 64)


def random_table(n=200, seed=0, per_group=1):
    """Right with the probability that `good` says; `bad` is above it, `noise` tells nothing."""
    rng = np.random.default_rng(seed)
    good = rng.random(n)
    correct = rng.random(n) < good
    groups = [f"g{row // per_group:04}" for row in range(n)]
    return make_table(groups, correct, good=good, bad=good**0.2, noise=rng.random(n))


# ---- the tables' raw numbers


@pytest.mark.parametrize("model", MODELS)
def test_the_columns_of_replay_small_give_the_tables_raw_numbers(tmp_path, model):
    """By a CSV file, with every digit and every interval of `tab:result_estimation_full`."""
    choices = EvaluationChoices()
    signals = load_signals("replay-small", [model], DATASETS, choices, kinds=["verification"])
    names = ["ece", "brier", "auroc"]
    expected = evaluate(signals.confidence, choices.bins, names=names, resamples=200)
    for dataset in DATASETS:
        rows = evaluation_rows(signals.confidence)
        rows = rows[rows.dataset == dataset]
        wide = rows.pivot(index="example_id", columns="estimator", values="confidence")
        wide["correct"] = rows.groupby("example_id").correct.first()
        path = tmp_path / "scores.csv"
        wide.rename_axis("id").to_csv(path)
        judged = judging.judge_raw(read_score_table(str(path)), FEW).results
        ours = judged[judged.metric.isin(names)].set_index(["column", "metric"])
        theirs = expected[expected.dataset == dataset].set_index(["estimator", "metric"])
        assert len(ours) == len(theirs) >= 18
        for key, row in theirs.iterrows():
            number = ours.loc[key]
            assert number.value == pytest.approx(row.value, abs=1e-12)
            assert number.low == pytest.approx(row.low, abs=1e-12)
            assert number.high == pytest.approx(row.high, abs=1e-12)


def test_the_shipped_table_is_that_of_its_script():
    from docs.tables.scores import ROOT, score_table

    assert (ROOT / "demo" / "scores.csv").read_text(encoding="utf-8") == score_table()


# ---- groups


def test_a_group_is_drawn_whole_and_lies_in_one_half():
    table = random_table(per_group=3)
    groups = table.rows.group
    is_first = pd.Series(judging.mark_first_half(groups, seed=0))
    assert (is_first.groupby(groups).nunique() == 1).all()
    assert 90 <= is_first.sum() <= 110
    for counts in draw_group_counts(groups.tolist(), resamples=20, seed=0):
        for name in groups.unique():
            assert (np.ptp(counts[:, groups == name], axis=1) == 0).all()


def test_halves_follow_the_seed_and_not_the_order_of_rows():
    groups = pd.Series([f"g{n}" for n in range(50)])
    first = judging.mark_first_half(groups, seed=0)
    assert judging.mark_first_half(groups[::-1], seed=0).tolist() == first[::-1].tolist()
    assert judging.mark_first_half(groups, seed=1).tolist() != first.tolist()


def test_copies_of_rows_in_one_group_tell_nothing_new():
    """Each row four times: intervals stay those of the single rows."""
    table = random_table(n=60)
    once = measure_drawn(
        table.scores.good.to_numpy(),
        table.rows.correct.to_numpy(float),
        table.rows.group.tolist(),
        ["brier", "mcb", "auroc"],
        resamples=100,
    )
    copied = measure_drawn(
        np.repeat(table.scores.good.to_numpy(), 4),
        np.repeat(table.rows.correct.to_numpy(float), 4),
        np.repeat(table.rows.group, 4).tolist(),
        ["brier", "mcb", "auroc"],
        resamples=100,
    )
    for metric, number in once.items():
        assert copied[metric].value == pytest.approx(number.value)
        assert copied[metric].draws == pytest.approx(number.draws)


# ---- the parts of the Brier score


def test_weights_are_copies_of_rows():
    rng = np.random.default_rng(0)
    c = np.round(rng.random(40), 1)
    y = (rng.random(40) < c).astype(float)
    times = rng.integers(0, 4, 40)
    expected = decompose_brier(np.repeat(c, times), np.repeat(y, times))
    made = SortedScores(c, y).brier_parts(times.astype(float))
    assert made == pytest.approx((expected["mcb"], expected["dsc"]))


def test_the_interval_of_mcb_holds_it_where_percentiles_do_not():
    """Scores c of answers that are right with probability c squared: MCB is the mean of (c -
    c^2)^2."""
    rng = np.random.default_rng(0)
    c = rng.beta(6, 2, 100_000)
    mcb = np.mean((c - c**2) ** 2)
    held = by_percentiles = 0
    for seed in range(40):
        c = rng.beta(6, 2, 150)
        y = (rng.random(150) < c**2).astype(float)
        groups = [str(row) for row in range(150)]
        number = measure_drawn(c, y, groups, ["mcb"], resamples=100, seed=seed)["mcb"]
        low, high = number.interval
        held += low <= mcb <= high
        low, high = np.percentile(number.draws, [2.5, 97.5])
        by_percentiles += low <= mcb <= high
    assert held >= 34 > 30 > by_percentiles


# ---- differences


def test_a_column_does_not_differ_from_its_copy():
    table = random_table()
    scores = table.scores.assign(copy=table.scores.good)
    copied = make_table(table.rows.group, table.rows.correct, **scores)
    rows = judging.judge_raw(copied, FEW).differences.set_index(["column", "than", "metric"])
    rows = rows.sort_index()
    assert len(rows) == 6 * 3
    same = rows.loc[("good", "copy")]
    assert (same[["difference", "low", "high"]] == 0).all(axis=None)
    assert rows.loc[("good", "noise", "brier")].high < 0
    assert rows.loc[("good", "bad", "auroc")].difference == 0


# ---- after calibration


def test_calibrators_are_fitted_on_one_half_and_judged_on_the_other():
    table = random_table()
    first = judging.mark_first_half(table.rows.group, FEW.seed)
    y = table.rows.correct.to_numpy(float)
    after = judging.judge_calibrated(table, FEW)
    for name in table.scores:
        c = table.scores[name].to_numpy()
        isotonic = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        expected = isotonic.fit(c[first], y[first]).predict(c[~first])
        rows = after.scores[(after.scores.column == name) & (after.scores.method == "isotonic")]
        assert rows.confidence.to_numpy() == pytest.approx(expected)
        assert rows.id.tolist() == table.rows.id[~first].tolist()
    constant = after.scores[after.scores.method == "constant"].confidence.unique()
    assert constant == pytest.approx([(y[first].sum() + 1) / (first.sum() + 2)])
    brier = after.results[after.results.metric == "brier"].set_index(["column", "method"])
    bad = brier.loc[("bad", "isotonic")]
    assert bad.difference_high < 0
    assert bad.difference == pytest.approx(bad.value - brier.loc[("bad", "")].value)


def test_platt_scaling_mends_a_tempered_confidence():
    """The log-odds of `bad` are three times those of `good`, so a is near a third."""
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 2, 4000)
    good = 1 / (1 + np.exp(-odds))
    table = make_table(
        [str(row) for row in range(4000)], rng.random(4000) < good, bad=1 / (1 + np.exp(-3 * odds))
    )
    fits = {fit.method.name: fit for fit in judging.fit_on_all_rows(table)}
    assert set(fits) == {"isotonic", "platt"}
    assert fits["platt"].calibrator.a_ == pytest.approx(1 / 3, abs=0.03)
    assert fits["platt"].calibrator.n_rows_ == 4000


# ---- thresholds


def test_a_threshold_holds_or_more_labels_are_asked_for():
    table = random_table(n=600)
    rows = judge_thresholds(table, FEW).set_index(["column", "target"])
    good = rows.loc[("good", 0.8)]
    assert 0.5 < good.threshold < 0.95
    assert good.low < good.precision <= good.high
    assert pd.isna(good.more_labels)
    assert pd.isna(rows.loc[("noise", 0.9)].threshold)
    assert pd.isna(rows.loc[("noise", 0.9)].more_labels)


def threshold_of(n, seed):
    """The row of a table with `good` alone, of the target 80%."""
    table = random_table(n, seed)
    alone = make_table(table.rows.group, table.rows.correct, good=table.scores.good)
    settings = TableJudgment.of({"target_precisions": [0.8]})
    return judge_thresholds(alone, settings).iloc[0]


def test_so_many_labels_are_enough_about_as_often_as_promised():
    """`good` of 40 rows guarantees no 80%; of as many more as it says, in most tables."""
    guaranteed = []
    for seed in range(30):
        more = threshold_of(40, seed).more_labels
        if pd.notna(more):
            row = threshold_of(40 + int(more), 1000 + seed)
            guaranteed.append(pd.notna(row.threshold))
    assert len(guaranteed) > 10
    assert np.mean(guaranteed) > 0.6


def test_one_row_of_a_group_counts_for_a_guarantee():
    """A hundred copies of each of six answers guarantee no more than six answers do."""
    rng = np.random.default_rng(0)
    groups = np.repeat([f"g{n}" for n in range(6)], 100).tolist()
    correct = np.repeat([True, True, True, True, True, False], 100)
    rows = judge_thresholds(make_table(groups, correct, p=rng.random(600)), FEW)
    assert rows.threshold.isna().all()
    assert (rows.tested <= 3).all()


@pytest.mark.parametrize(
    "right, wrong, message",
    [(5, 4, "only 9 rows"), (40, 9, "only 9 wrong"), (9, 40, "only 9 right"), (40, 40, "")],
)
def test_few_rows_are_told(right, wrong, message):
    rows = pd.DataFrame({"correct": [True] * right + [False] * wrong})
    rows["group"] = [f"row {number}" for number in rows.index]
    assert judging.warn_of_few_rows(rows).startswith(message)


@pytest.mark.parametrize("groups, message", [(29, "only 29 groups: label 1 more"), (30, "")])
def test_few_groups_are_told_however_many_rows_they_have(groups, message):
    rows = pd.DataFrame({"correct": [True, False] * 300})
    rows["group"] = rows.index % groups
    assert judging.warn_of_few_rows(rows) == message
