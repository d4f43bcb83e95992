"""What 08 tells first: the answer of a run, its pooled differences, its splits; and the prompt
ablations of 04b."""

import numpy as np
import pandas as pd

from lib.analysis.resampled_scores import Measure, Score
from lib.analysis.results import MissingFrameError, Results
from lib.analysis.score_differences import Pooled, pool_difference
from lib.analysis.signals import Signals
from lib.calibrate.split_comparison import compare_on_resplits, describe_splits
from lib.paper.cells import HEADLINE, OVERVIEW, format_overview, label_rows
from lib.paper.report_records import ReportRecords
from lib.score.baselines import BASE
from lib.score.bootstrap import percentile_interval
from lib.score.evaluation import RESULT_KEYS
from lib.store import PAIR

RESPLIT_SEED = 0
POOLED = {  # differences whose mean over pairs is told first: metric, first and second score
    "Seq Avg minus Ans Avg": ("ece", Score("seq_avg"), Score("ans_avg")),
    "Ans Avg minus Seq Avg": ("auroc", Score("ans_avg"), Score("seq_avg")),
    "Ans Avg, isotonic minus raw": ("ece", Score("ans_avg", "isotonic"), Score("ans_avg")),
    "Ans Avg, isotonic, minus a constant": ("ece", Score("ans_avg", "isotonic"), Score(BASE)),
    "P(True) minus Seq Avg": ("ece", Score("p_true"), Score("seq_avg")),
    "P(True), in situ minus fresh prompt": ("ece", Score("p_true_insitu"), Score("p_true")),
}


def overview_scores(here: Results) -> pd.DataFrame:
    """Return the OVERVIEW scores of each pair, a row each.

    Columns: PAIR, estimator, method, `score` (its label), n, `value` (ECE) with the ends `low` and
    `high` of its 95% interval (calibrators fitted again), what chance gives (`chance`,
    `chance_high`, `calibrated`), `spread` (standard deviation of the scores), `dsc` and `auroc`.
    """
    measured = here.frame("selective_scores").set_index(RESULT_KEYS).value.astype(float)
    chance = here.frame("chance").set_index(RESULT_KEYS)
    if here.scores is None:
        raise MissingFrameError("scores")
    records = []
    for pair, scores in here.scores.scores.items():
        for (estimator, method), label in OVERVIEW.items():
            score = Score(estimator, method)
            if score not in scores:
                continue
            key = (*pair, estimator, method, "ece")
            error = here.scores.measure_all_rows(pair, Measure(score))
            low, high = percentile_interval(error.draws)
            by_chance = chance.loc[key]
            record = dict(zip(RESULT_KEYS, key, strict=True)) | {
                "score": label,
                "n": len(scores[score].correct),
                "value": error.value,
                "low": low,
                "high": high,
                "chance": by_chance.chance,
                "chance_high": by_chance.chance_high,
                "calibrated": bool(by_chance.calibrated),
                "spread": scores[score].confidence.std(),
                "dsc": measured.get((*key[:-1], "dsc"), np.nan),
                "auroc": measured.get((*key[:-1], "auroc"), np.nan),
            }
            records.append(record)
    return pd.DataFrame(records)


def headline_errors(here: Results) -> pd.DataFrame:
    """Return the rows of `overview_scores` that the first figure draws."""
    scores = overview_scores(here)
    return scores[scores.score.isin(list(HEADLINE.values()))]


def list_overview(here: Results) -> ReportRecords:
    """List the `overview_scores`, with the accuracy of the pair."""
    accuracy = here.frame("result_estimation", metric="acc").rename(columns={"value": "accuracy"})
    frame = overview_scores(here).merge(accuracy[[*PAIR, "accuracy"]])
    frame = label_rows(frame, here.models, here.datasets).sort_values(PAIR, kind="stable")
    frame = frame.astype({"accuracy": float})
    texts = map(format_overview, frame.value, frame.spread, frame.dsc)
    in_words = frame.assign(text=list(texts), accuracy=frame.accuracy.round(3))
    table = in_words.pivot(index=[*PAIR, "accuracy"], columns="score", values="text")
    table = table[[label for label in OVERVIEW.values() if label in table]]
    return ReportRecords(frame, table.reset_index().rename_axis(columns=None))


def list_pooled(here: Results) -> ReportRecords:
    """List the mean differences over pairs, with their intervals and on how many pairs they are
    below 0.

    Columns as of `Pooled`, with the name of the `difference` and its `metric`.
    """
    records = []
    for name, (metric, first, second) in POOLED.items():
        pooled = pool_difference(here.scores, first, second, metric) if here.scores else None
        if pooled is not None:
            records.append({"difference": name, "metric": metric, **pooled._asdict()})
    frame = pd.DataFrame(records, columns=["difference", "metric", *Pooled._fields])
    return ReportRecords(frame, frame.round(3))


def list_splits(signals: Signals, here: Results) -> ReportRecords:
    """List by pair the accuracy of both splits, and isotonic regression beside a constant on random
    re-splits."""
    splits = describe_splits(signals.sets).drop(columns="confident_errors")
    again = compare_on_resplits(signals.sets, signals.choices.bins, seed=RESPLIT_SEED)
    frame = label_rows(splits.merge(again, on=PAIR), here.models, here.datasets)
    return ReportRecords(frame.sort_values(PAIR, kind="stable"), frame.round(3))


def list_ablation(here: Results) -> ReportRecords:
    """List the results of 04b by pair and arm, with the run's labels; empty if it was not run."""
    frame = here.frames.get("ablation", pd.DataFrame())
    frame = label_rows(frame, here.models, here.datasets)
    return ReportRecords(frame, frame.round(3))
