"""The answer of a run in one figure and one table: the ECE of each pair's HEADLINE scores, and what chance gives."""

import pandas as pd

from lib.analysis.results import Results
from lib.paper.booktabs import ReportRecords
from lib.paper.cells import HEADLINE, label_rows, mark_calibrated
from lib.score.evaluation import BASE, RESULT_KEYS
from lib.store import PAIR


def headline_errors(here: Results) -> pd.DataFrame:
    """Return the ECE of each pair's HEADLINE scores (`score`): the frame `chance` of the results, which has the columns
    of `compare_with_chance`, with the 95% interval (low, high).
    """
    constants = here.frame("selective_scores", estimator=BASE)
    intervals = pd.concat([here.frame("result_isotonic"), constants], ignore_index=True)
    shown = here.frame("chance").merge(intervals[[*RESULT_KEYS, "low", "high"]], "left", RESULT_KEYS)
    shown["score"] = [HEADLINE.get(key) for key in zip(shown.estimator, shown["method"], strict=True)]
    return shown.dropna(subset="score")


def list_overview(here: Results) -> ReportRecords:
    """List the `headline_errors`, with the accuracy of the pair and the AUROC of each score."""
    ranks = here.frame("selective_scores", metric="auroc").rename(columns={"value": "auroc"})
    right = here.frame("result_estimation", metric="acc").rename(columns={"value": "accuracy"})
    frame = headline_errors(here).merge(ranks[[*RESULT_KEYS[:4], "auroc"]], "left").merge(right[[*PAIR, "accuracy"]])
    frame = label_rows(frame, here.models, here.datasets).sort_values(PAIR, kind="stable")
    frame = frame.astype(dict.fromkeys(("low", "high", "auroc", "accuracy"), float))
    shown = frame.assign(text=mark_calibrated(frame), accuracy=frame.accuracy.round(3))
    shown = shown.pivot(index=[*PAIR, "accuracy"], columns="score", values="text")[list(HEADLINE.values())]
    return ReportRecords(frame, shown.reset_index().rename_axis(columns=None))
