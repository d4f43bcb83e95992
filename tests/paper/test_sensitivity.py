"""Verdicts under other choices: which are tried, what turns, and what the reader is told."""

import pytest

from lib import params, store
from lib.analysis import run_results
from lib.paper import verdicts
from lib.params import EvaluationChoices

PAIR = ["tiny-llama"], ["demo-medium"]
LABELS = run_results.results_without_frames(*PAIR)


@pytest.fixture(scope="module")
def unanswered(shipped):
    """Wrong responses without an answer, whose last number is nearly certain."""
    rows = shipped.generations.query("model in @PAIR[0] and dataset in @PAIR[1]").groupby("split").head(40)
    rows = rows.assign(answer=None, answer_start=-1, answer_end=-1, reference="no number")
    first = shipped.verification.merge(rows[store.KEYS], on=store.KEYS)
    return run_results.Signals(rows, first, shipped.dropout.head(0), EvaluationChoices())


def test_a_verdict_that_turns_is_said_with_both_counts(unanswered):
    """The sequence has the lower error beside a last number that is nearly 1, and the higher beside 0."""
    found = verdicts.judge_alternatives(unanswered, LABELS)
    of_zero = found[found.choice == "a response without an answer (missing): zero, not last_number"]
    (turned,) = of_zero.query("name == 'SeqAvgBelowAnswer'").itertuples()
    assert (turned.here, turned.then, turned.flips) == ("1 of 1 pairs", "0 of 1 pairs", True)
    graded = found[found.choice.str.contains("(grader)", regex=False)]
    assert len(graded) and not graded.flips.any(), "no answer is right under any grader"
    assert {"SeqAnsOverlap", "MeansDiverge", "FiftySuffice"}.isdisjoint(found.name), "they need more than errors"


def test_a_choice_may_leave_no_response(unanswered):
    found = verdicts.judge_alternatives(unanswered, LABELS)
    found = found[found.choice.str.contains("(missing): drop", regex=False)]
    assert found.finding.str.startswith("no response has an answer").tolist() == [True] and not found.flips.any()


@pytest.mark.slow
def test_it_is_what_a_run_with_that_choice_says(shipped):
    """The whole demo, whose own results under another choice are computed on their own."""
    demo = params.load_profile("demo")
    labels = run_results.results_without_frames(demo.models, demo.datasets)
    found = verdicts.judge_alternatives(shipped, labels)
    other = run_results.load_signals("shipped", demo.models, demo.datasets, EvaluationChoices(phi="top_k"))
    judged = verdicts.judge_errors(other, labels)
    rows = found[found.choice.str.contains("(phi): top_k", regex=False)].set_index("name")
    assert rows.then.to_dict() == {name: judged[name].said for name in rows.index}
    assert found.flips.any() and not found.flips.all()
