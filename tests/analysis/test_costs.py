"""What a confidence costs: seconds that add up to what the manifests say, and who betters whom."""

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import store
from lib.analysis import costs
from lib.paper import beyond_figures
from lib.paths import SHIPPED

PAIR = ("tiny-qwen", "demo-hard")


@pytest.fixture(scope="module")
def values(demo):
    """Of one pair, by estimator and metric."""
    frame = demo.frames["costs"].query(f"model == '{PAIR[0]}' and dataset == '{PAIR[1]}'")
    return frame.set_index(["estimator", "metric"]).value


@pytest.mark.parametrize("facts, whole, of_row", [
    ({"rows": 4, "seconds": 6.0, "grid_seconds": 2.0}, 8.0, 2.0),
    ({"rows": 4, "seconds": 6.0, "kept_from": {"rows": 2}}, None, 3.0),
    ({"rows": 4, "seconds": 0.0, "kept_from": {"rows": 4}}, None, None),
    ({"rows": 0, "seconds": 0.0}, 0.0, None),
])  # fmt: skip
def test_seconds_are_told_of_the_rows_that_a_run_made_itself(monkeypatch, facts, whole, of_row):
    there = {"generations": [("m__d", facts)]}
    monkeypatch.setattr(costs, "read_manifests", lambda run, kind, pairs: there.get(kind, []))
    none = pd.DataFrame(columns=["model", "dataset"])
    made = costs.seconds_per_question("a run", ["m"], ["d"], none).set_index("metric").value
    assert made.get("seconds") == of_row and made.get("hours") == (None if whole is None else whole / 3600)


def test_hours_add_up_to_what_the_manifests_say(demo, values):
    found = demo.frames["costs"]
    manifests = (json.loads(path.read_text()) for kind in costs.TIMED_KINDS for path in (SHIPPED / kind).glob("*.json"))
    whole = sum(facts.get("seconds", 0) + facts.get("grid_seconds", 0) for facts in manifests)
    assert whole > 0 and found[found.estimator == costs.ALL_JOBS].value.sum() == pytest.approx(whole / 3600)
    facts = store.read_manifest(SHIPPED / "generations" / f"{'__'.join(PAIR)}.parquet")
    assert values["response", "seconds"] == pytest.approx(facts["seconds"] / facts["rows"])


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=12), st.sampled_from([1, -1]))
def test_who_is_bettered_by_a_loop(points, sign):
    """A point is on the line if no other of at most as many tokens is at least as good, itself aside."""

    def betters(other, point):
        return other != point and other[0] <= point[0] and sign * other[1] <= sign * point[1]

    line = {point for point in points if not any(betters(other, point) for other in points)}
    assert beyond_figures.pareto_front(points, sign) == sorted(line)
