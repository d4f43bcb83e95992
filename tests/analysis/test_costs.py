"""What a confidence costs: tokens by hand, seconds that add up to what the manifests say, and who betters whom."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import params, store
from lib.analysis import answer_dropout, costs, run_signals
from lib.paper import beyond_figures
from lib.paths import SHIPPED
from lib.tasks import answers

DEMO = params.load_profile("demo")
RUN = "replay"  # has no signals of its own, which a run of the demo would put before the shipped
PAIR = ("tiny-qwen", "demo-hard")


@pytest.fixture(scope="module")
def frames(shipped):
    run = RUN, DEMO.models, DEMO.datasets
    made = shipped.estimation([10]) | answer_dropout.in_situ(*run, shipped)
    return made | costs.costs_of_run(*run, shipped, made)


def value(frame, estimator, metric, pair=PAIR):
    found = frame[
        (frame.model == pair[0])
        & (frame.dataset == pair[1])
        & (frame.estimator == estimator)
        & (frame.metric == metric)
    ]
    return found.value.item()


def test_tokens_are_counted(frames):
    read = [pd.read_parquet(SHIPPED / kind / f"{'__'.join(PAIR)}.parquet") for kind in run_signals.SIGNAL_KINDS]
    asked, verified, passes = read
    asked, verified = asked[asked.split == "evaluation"], verified[verified.split == "evaluation"]
    counted = np.mean([prompt + len(ids) for prompt, ids in zip(asked.prompt_tokens, asked.token_ids, strict=True)])
    assert value(frames["costs"], "response", "tokens") == pytest.approx(counted)
    assert value(frames["costs"], "p_true", "tokens") == pytest.approx(verified.standard_tokens.mean())
    assert value(frames["costs"], "p_true_insitu", "tokens") == pytest.approx(verified.in_situ_tokens.mean())
    known = passes[passes.selected & (passes.split == "evaluation")].merge(asked, on=store.KEYS)
    ends = [row.prompt_tokens + answers.answer_span(row)[1] - 1 for _, row in known.iterrows()]
    of_passes = len(passes.predictive.iloc[0]) * np.mean(ends)
    assert value(frames["costs"], "c_bald", "tokens") == pytest.approx(of_passes)


@pytest.mark.parametrize("facts, whole, of_row", [
    ({"rows": 4, "seconds": 6.0, "grid_seconds": 2.0}, 8.0, 2.0),
    ({"rows": 4, "seconds": 6.0, "kept_from": {"rows": 2}}, None, 3.0),
    ({"rows": 4, "seconds": 0.0, "kept_from": {"rows": 4}}, None, None),
    ({"rows": 0, "seconds": 0.0}, 0.0, None),
])  # fmt: skip
def test_seconds_are_told_of_the_rows_that_a_run_made_itself(monkeypatch, facts, whole, of_row):
    there = {"generations": [("m__d", facts)]}
    monkeypatch.setattr(costs, "read_manifests", lambda run, kind, pairs: there.get(kind, []))
    made = costs.seconds_of(RUN, ["m"], ["d"], pd.DataFrame(columns=["model", "dataset"])).set_index("metric").value
    assert made.get("seconds") == of_row and made.get("hours") == (None if whole is None else whole / 3600)


def test_hours_add_up_to_what_the_manifests_say(frames):
    found = frames["costs"]
    hours, whole = found[found.estimator == costs.TOTAL].value.sum(), 0.0
    for kind in costs.WORK:
        for path in (SHIPPED / kind).glob("*.json"):
            facts = json.loads(path.read_text())
            whole += facts.get("seconds", 0) + facts.get("grid_seconds", 0)
    assert whole > 0 and hours == pytest.approx(whole / 3600)
    facts = store.read_manifest(SHIPPED / "generations" / f"{'__'.join(PAIR)}.parquet")
    assert value(found, "response", "seconds") == pytest.approx(facts["seconds"] / facts["rows"])


POINTS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=12)


@given(POINTS, st.sampled_from([1, -1]))
def test_who_is_bettered_by_a_loop(points, sign):
    """A point is on the line if no other of at most as many tokens is at least as good, itself aside."""
    line = [
        p
        for p in dict.fromkeys(points)
        if not any(q != p and q[0] <= p[0] and sign * q[1] <= sign * p[1] for q in points)
    ]
    assert beyond_figures.bettered(points, sign) == sorted(line)
