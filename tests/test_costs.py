"""What a confidence costs: tokens by hand, seconds that add up to what the manifests say, and who betters whom."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import params, store
from lib.analysis import answer_dropout, costs, run_signals
from lib.analysis.results import Results
from lib.paper import beyond_figures, beyond_paper
from lib.params import Reading
from lib.paths import SHIPPED
from lib.tasks import answers

DEMO = params.load_profile("demo")
RUN = "replay"  # has no signals of its own, which a run of the demo would put before the shipped
PAIR = ("tiny-qwen", "demo-hard")


@pytest.fixture(scope="module")
def frames():
    """Of the shipped signals."""
    signals = run_signals.RunSignals.of(RUN, DEMO.models, DEMO.datasets, Reading())
    made = signals.estimation([10]) | answer_dropout.in_situ(
        RUN, DEMO.models, DEMO.datasets, signals.generations, signals.responses, signals.dropout, Reading()
    )
    return made | costs.costs_of_run(RUN, DEMO.models, DEMO.datasets, signals.generations, signals.verification, made)


def value(frame, estimator, metric, pair=PAIR):
    found = frame[(frame.model == pair[0]) & (frame.dataset == pair[1]) & (frame.estimator == estimator)
                  & (frame.metric == metric)]  # fmt: skip
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
    monkeypatch.setattr(costs, "manifests", lambda run, kind, pair: [facts] if kind == "generations" else [])
    made = costs.seconds_of(RUN, ["m"], ["d"], pd.DataFrame(columns=["model", "dataset"])).set_index("metric").value
    assert made.get("seconds") == of_row and made.get("hours") == (None if whole is None else whole / 3600)


@pytest.mark.parametrize("model, pairs", [("tiny-qwen", 3), ("", 0)])
def test_hours_are_told_where_they_are_known_of_all_rows(frames, monkeypatch, model, pairs):
    """And not those of the last run alone, which kept some; nor a sum of which a part is not known."""
    manifest = store.read_manifest
    monkeypatch.setattr(store, "read_manifest", lambda path: manifest(path) | (
        {"kept_from": {"rows": 9}} if model in path.name else {}))  # fmt: skip
    verified = pd.DataFrame(columns=["model", "dataset"])
    made = costs.seconds_of(RUN, DEMO.models, DEMO.datasets, verified)
    assert made[made.metric == "hours"].groupby("model").size().sum() == pairs
    labels = (dict(zip(DEMO.models, DEMO.models, strict=True)), {name: name for name in DEMO.datasets})
    shown = beyond_paper.seconds(Results(*labels, labels[0], labels, (), {"costs": made})).records
    assert shown["response, s"].notna().all() and "all" not in set(shown.model)
    facts = manifest(SHIPPED / "generations" / f"{'__'.join(PAIR)}.parquet")
    assert value(made, "response", "seconds") == pytest.approx(facts["seconds"] / (facts["rows"] - 9))


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


def test_the_table_has_a_row_a_pair_and_says_what_was_saved(frames):
    table = beyond_paper.costs_table(
        frames["costs"], dict.fromkeys(DEMO.models, "M"), dict.fromkeys(DEMO.datasets, "D")
    )
    assert len(table.numbers) == 6 * 5
    (note,) = [note for note in table.notes if note.startswith("In situ")]
    by_hand = [1 - value(frames["costs"], "p_true_insitu", "tokens", (model, dataset))
               / value(frames["costs"], "p_true", "tokens", (model, dataset))
               for model in DEMO.models for dataset in DEMO.datasets]  # fmt: skip
    assert f"In situ saves {100 * np.mean(by_hand):.0f}% of the tokens of P(True) here, 88% in the paper" in note


def test_the_report_says_seconds_and_the_hours_of_all_jobs(frames):
    labels = ({name: name.title() for name in DEMO.models}, {name: name for name in DEMO.datasets})
    shown = beyond_paper.seconds(Results(*labels, labels[0], labels, (), frames)).records.set_index(
        ["model", "dataset"]
    )
    assert len(shown) == 7
    assert shown.loc["Tiny-Qwen", "demo-hard"]["P(True), s"] == value(frames["costs"], "p_true", "seconds")
    hours = shown["all jobs, hours"]
    assert hours["all", ""] == pytest.approx(hours.iloc[:6].sum())


def test_what_is_not_there_costs_nothing(frames):
    """As a run whose passes are to come."""
    kept = frames["costs"][~frames["costs"].estimator.isin(["c_bald", "c_bald_insitu"])]
    table = beyond_paper.costs_table(kept)
    assert len(table.numbers) == 6 * 3 and any("not computed" in note for note in table.notes)
    empty = frames["dropout_in_situ"].head(0)
    results = frames["result_estimation"][frames["result_estimation"].estimator != "c_bald"]
    assert not costs.cost_and_worth(kept, results, empty).estimator.str.startswith("c_bald").any()
    assert beyond_figures.pareto(costs.cost_and_worth(kept, results, empty)).png.startswith(b"\x89PNG")
    assert beyond_figures.pareto(frames["worth"].head(0)).png.startswith(b"\x89PNG")


def test_tokens_of_a_question_are_those_of_its_response_and_of_what_is_read_beyond(frames):
    rows = frames["worth"].set_index(["model", "dataset", "estimator"]).loc[PAIR]
    response = value(frames["costs"], "response", "tokens")
    assert rows.tokens["seq_avg"] == rows.tokens["ans_avg"] == pytest.approx(response)
    assert rows.tokens["p_true"] == pytest.approx(response + value(frames["costs"], "p_true", "tokens"))
    raw = frames["result_estimation"]
    assert rows.ece["p_true"] == pytest.approx(value(raw, "p_true", "ece"))
    assert rows.auroc["p_true"] == pytest.approx(value(raw, "p_true", "auroc"))


POINTS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=12)


@given(POINTS, st.sampled_from([1, -1]))
def test_who_is_bettered_by_a_loop(points, sign):
    """A point is on the line if no other of at most as many tokens is at least as good, itself aside."""
    line = [p for p in dict.fromkeys(points)
            if not any(q != p and q[0] <= p[0] and sign * q[1] <= sign * p[1] for q in points)]  # fmt: skip
    assert beyond_figures.bettered(points, sign) == sorted(line)
