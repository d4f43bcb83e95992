"""A run's signals read pair by pair give what all of its frames at once give, and hold less."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from lib import params, store
from lib.analysis.pair_frames import collect_pair_frames
from lib.analysis.resampled_scores import Measure, ResampleSettings, Score
from lib.analysis.run_results import resample_scores
from lib.analysis.signals import UNSCORED, load_signals, stored_signals
from lib.analysis.stages import evaluate_calibration, score_further_estimators
from lib.errors import UserError

DEMO = params.load_profile("demo")
SOME = {"missing": "drop", "phi": "top_p"}  # choices that leave out rows, or read further columns


def read(way, **changed):
    choices = params.EvaluationChoices(**changed)
    return way("shipped", DEMO.models, DEMO.datasets, choices)


@pytest.fixture(scope="module", params=[{}, SOME], ids=["defaults", "others"])
def both(request):
    """The signals of the demo, pair by pair and at once."""
    return read(stored_signals, **request.param), read(load_signals, **request.param)


def test_scores_and_errors_are_the_same(both):
    """Row for row, in the same order."""
    stored, whole = both
    pd.testing.assert_frame_equal(stored.confidence, whole.confidence)
    pd.testing.assert_series_equal(stored.row_counts, whole.row_counts)
    pd.testing.assert_frame_equal(stored.row_counts.unstack(), whole.row_counts.unstack())
    pd.testing.assert_frame_equal(stored.token_reduction, whole.token_reduction)
    pd.testing.assert_frame_equal(stored.source, whole.source)
    pd.testing.assert_frame_equal(evaluate_calibration(stored), evaluate_calibration(whole))


def test_further_estimators_of_a_pair_are_its_rows_of_those_of_all_pairs(both):
    stored, whole = both
    of_all = score_further_estimators(whole)
    for model, dataset in product(DEMO.models, DEMO.datasets):
        ours = score_further_estimators(stored.of_pair((model, dataset)))
        for name in ("raw", "compared", "tuned"):
            theirs = getattr(of_all, name)
            theirs = theirs[(theirs.model == model) & (theirs.dataset == dataset)]
            pd.testing.assert_frame_equal(
                getattr(ours, name).reset_index(drop=True), theirs.reset_index(drop=True)
            )


def test_what_tables_need_of_pairs_is_the_same(both):
    """Also what notes say of texts, which no score reads."""
    stored, whole = both
    ours = collect_pair_frames(replace(stored, without=()))
    theirs = collect_pair_frames(whole)
    assert ours.keys() == theirs.keys()
    for name, frame in theirs.items():
        pd.testing.assert_frame_equal(ours[name], frame)
        assert [*frame[store.PAIR].drop_duplicates().itertuples(index=False, name=None)] == [
            *product(DEMO.models, DEMO.datasets)
        ], name


def test_resampled_scores_are_the_same(both):
    """Of an answer's tokens after a calibrator, of a part of a response, and of passes."""
    settings = ResampleSettings(resamples=50, refits=20)
    stored, whole = (resample_scores(signals, settings) for signals in both)
    assert stored.scores.keys() == whole.scores.keys()
    for pair, columns in whole.scores.items():
        assert stored.scores[pair].keys() == columns.keys()
        for score in (Score("ans_avg", "platt"), Score("last_tenth"), Score("c_bald_after_five")):
            if score in columns:
                ours = stored.measure_all_rows(pair, Measure(score))
                assert np.array_equal(
                    ours.draws, whole.measure_all_rows(pair, Measure(score)).draws
                )


def test_a_pair_is_read_without_the_columns_that_no_score_reads():
    """And what is kept of its responses has no array as long as they are."""
    signals = read(stored_signals)
    pair = next(iter(signals.by_pair()))
    for frame in (pair.generations, pair.verification, pair.dropout):
        assert not set(UNSCORED) & set(frame)
    assert "response" not in signals.responses
    for logprobs in signals.responses.answer:
        assert logprobs.base is None, "a part would keep the whole array"


def test_a_missing_pair_is_told_before_any_is_read(monkeypatch):
    monkeypatch.setattr(store, "read_frame", None)
    with pytest.raises(UserError, match="has no generations 'tiny-llama__gsm8k'"):
        stored_signals(
            "shipped", ["tiny-llama"], ["demo-hard", "gsm8k"], params.EvaluationChoices()
        )
