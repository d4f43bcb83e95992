"""What 09 stores of a run whose pairs it reads one by one."""

from dataclasses import replace

import pandas as pd
import pytest

from lib import store
from lib.analysis.stages import store_selective
from lib.errors import UserError
from lib.params import EvaluationChoices, SelectivePrediction

SETTINGS = SelectivePrediction(resamples=20)


def without_answers(shipped, models):
    """Eighty responses of each demo model to demo-hard; those of some models have no answer, and
    do not count."""
    hard = shipped.generations[shipped.generations.dataset == "demo-hard"]
    rows = hard.groupby(["model", "split"]).head(40).reset_index(drop=True)
    is_unread = rows.model.isin(models)
    rows["answer"] = rows.answer.mask(is_unread, None)
    rows["answer_start"] = rows.answer_start.mask(is_unread, -1)
    choices = EvaluationChoices(missing="drop")
    return replace(shipped, generations=rows, choices=choices)


def test_a_pair_without_a_response_that_counts_has_no_row(shipped, monkeypatch, tmp_path):
    """The other pair has the rows that it has by itself."""
    monkeypatch.setattr(store, "ARTIFACTS", tmp_path)
    signals = without_answers(shipped, ["tiny-qwen"])
    of_both = store_selective("a-run", signals, SETTINGS)
    first = signals.of_pair(("tiny-llama", "demo-hard"))
    of_first = store_selective("another", replace(first, source=signals.source), SETTINGS)
    for name in ("scores", "thresholds", "curves"):
        frame = getattr(of_both, name)
        assert set(frame.model) == {"tiny-llama"}
        pd.testing.assert_frame_equal(frame, getattr(of_first, name))
        path = store.frame_path("a-run", "selective", name)
        assert len(store.read_frame(path)) == len(frame)
    assert {fit.pair for fit in of_both.fits} == {("tiny-llama", "demo-hard")}


def test_choices_that_leave_no_response_are_refused_and_nothing_is_written(
    shipped, monkeypatch, tmp_path
):
    monkeypatch.setattr(store, "ARTIFACTS", tmp_path)
    signals = without_answers(shipped, ["tiny-llama", "tiny-qwen"])
    with pytest.raises(UserError, match="^no response has an answer"):
        store_selective("a-run", signals, SETTINGS)
    assert not list(tmp_path.iterdir())
