"""The findings: exact counts on the paper's own numbers, and that each turns when its rows do."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lib import params
from lib.paper import comparison, findings, results, run_results, sensitivity

# Counted by hand from the printed tables (DESIGN's list of exceptions among them).
ON_PAPER = {
    "SeqAvgBelowAnswer": (True, "15 of 15 pairs"),
    "SeqJointBelowAnswer": (False, "13 of 15 pairs"),  # Llama-3.1-8B and Qwen3-8B-Thinking on SVAMP
    "SeqAnsOverlap": (True, "6 of 15 pairs"),
    "JointBelowAvg": (True, "11 of 15 pairs"),
    "JointBelowAvgHard": (True, "5 of 5 models"),
    "SeqBelowMultiPass": (True, "8 of 15 pairs"),
    "BaldBelowPTrue": (True, "10 of 15 pairs"),
    "BaldBelowPTrueHard": (True, "5 of 5 models"),
    "RateMatters": (True, "15 of 15 pairs"),
    "HardRateHigher": (True, "4 of 5 models"),
    "RatesHold": (True, "14 of 15 pairs"),
    "PTrueBelowAnsAvg": (True, "12 of 15 pairs"),
    "InSituMatches": (True, "10 of 15 pairs"),
    "InSituBelowAnsAvg": (True, "14 of 15 pairs"),
    "TokenReduction": (True, "88% on average, 15 of 15 pairs"),
    "IsotonicReduces": (True, "82 of 90 cells"),
    "PlattReduces": (True, "45 of 45 cells"),
    "IsotonicBelowTemperature": (True, "29 of 30 cells"),
    "PlattBelowIsotonic": (True, "9 of 15 pairs"),
    "EasyToHard": (True, "4 of 4 arrows"),
    "HardToEasy": (True, "3 of 4 arrows"),
    "ModelsOnHard": (True, "4 of 4 arrows"),
    "ModelsOnEasy": (True, "2 of 4 arrows"),
    "SummaryIsFull": (False, "14 of 16 cells"),  # Llama to Qwen on GSM8K: -.003 and -.002 against .000
    "ShortIsFull": (False, "89 of 90 cells"),  # .080 against .081
    "EceStable": (True, "24 of 24 cells"),
    "MceGrows": (True, "23 of 24 cells"),
    "BrierStays": (True, "24 of 24 cells"),
}
DEMO = params.load_profile("demo")


@pytest.fixture(scope="module")
def paper():
    return results.published()


@pytest.fixture(scope="module")
def on_paper(paper):
    return findings.verdicts(paper)


@pytest.fixture(scope="module")
def signals():
    return run_results.RunSignals.of("shipped", DEMO.models, DEMO.datasets, params.Reading.of(DEMO.model_dump()))


@pytest.fixture(scope="module")
def demo(signals):
    return run_results.of_run("shipped", signals, "demo models", DEMO.models, DEMO.datasets,
                           transfer_models=DEMO.transfer_models, transfer_datasets=DEMO.transfer_datasets)  # fmt: skip


def test_every_finding_on_the_papers_numbers(on_paper):
    assert {name: (v.held, v.said) for name, v in on_paper.items() if v.held is not None} == ON_PAPER
    unsaid = {name for name, v in on_paper.items() if v.held is None}
    assert unsaid == set(on_paper) - set(ON_PAPER)
    for name in unsaid:  # and only for want of numbers: the paper prints pictures and words there
        assert on_paper[name].lacks in {"running_mean", "answers", "entropies", "top_tokens", "learning", "ablation",
                                        "cost"}  # fmt: skip


def cases(verdict, agree):
    rows = verdict.rows[verdict.rows.agrees == agree]
    return set(zip(rows.model, rows.dataset, strict=True))


def test_the_exceptions_come_out_by_themselves(paper, on_paper):
    svamp = {("Llama-3.1-8B", "SVAMP"), ("Qwen3-8B-Thinking", "SVAMP")}
    assert cases(on_paper["SeqJointBelowAnswer"], False) == svamp
    worse = on_paper["IsotonicReduces"].rows.query("not agrees")
    assert len(worse) == 8 and worse.relative.min() == pytest.approx(-0.39)
    worst = worse.loc[worse.relative.idxmin()]
    assert (worst.model, worst.dataset, worst.estimator) == ("Llama-3.2-3B", "GSM8K", "p_true")
    off = on_paper["SummaryIsFull"].rows.query("not agrees")
    assert set(zip(off.source_model, off.model, off.dataset, strict=True)) == {("Llama", "Qwen", "GSM8K")}
    off = on_paper["ShortIsFull"].rows.query("not agrees").iloc[0]
    assert (off.model, off.dataset, off.value_short, off.value_full) == ("Llama-3.1-8B", "GSM8K", 0.08, 0.081)
    apart = on_paper["InSituMatches"].rows.query("model == 'Llama-3.2-3B' and dataset == 'GSMHard'").iloc[0]
    assert (apart.p_true_insitu, apart.p_true, apart.agrees) == (0.481, 0.251, False)
    assert on_paper["TokenReduction"].rows.value.mean() == pytest.approx(88.08, abs=0.005)
    assert paper.hard == "GSMHard"


def test_every_finding_is_judged_on_a_run(demo):
    found = findings.verdicts(demo)
    assert all(v.held is not None for v in found.values()), [n for n, v in found.items() if v.held is None]
    assert demo.hard == "demo-hard" and set(demo.frames) >= set(results.published().frames) - {"inference_settings"}


def swapped(e, table, one, other):
    """The evidence with two estimators' names exchanged in one frame."""
    frame = e.frames[table]
    names = frame.estimator.replace({one: other, other: one})
    return replace(e, frames={**e.frames, table: frame.assign(estimator=names)})


@pytest.mark.parametrize("name, table, one, other", [
    ("SeqAvgBelowAnswer", "result_estimation", "seq_avg", "ans_avg"),
    ("BaldBelowPTrue", "result_estimation", "c_bald", "p_true"),
    ("BaldBelowPTrueHard", "result_estimation", "c_bald", "p_true"),
    ("JointBelowAvg", "result_estimation", "seq_joint", "seq_avg"),
    ("PTrueBelowAnsAvg", "result_estimation", "p_true", "ans_avg"),
    ("InSituMatches", "insitu_ptrue", "p_true_insitu", "p_true"),
    ("InSituBelowAnsAvg", "insitu_ptrue", "p_true_insitu", "ans_avg"),
])  # fmt: skip
def test_a_comparison_turns_with_its_sides(paper, on_paper, name, table, one, other):
    assert on_paper[name].held
    turned = findings.judge(next(c for c in findings.FINDINGS if c.name == name), swapped(paper, table, one, other))
    assert turned.held is False and turned.rows.agrees.sum() < len(turned.rows)


def changed(e, table, change):
    return findings.verdicts(replace(e, frames={**e.frames, table: change(e.frames[table].copy())}))


def negated(frame):
    return frame.assign(value=-frame.value.astype(float))


def test_the_others_turn_too(paper, demo):
    shrunk = changed(paper, "result_isotonic", lambda f: f.assign(relative=-f.relative))
    assert shrunk["IsotonicReduces"].held is False
    worse = changed(paper, "result_calibration", lambda f: f.assign(relative=-f.relative))
    assert worse["PlattReduces"].held is False
    moved = changed(paper, "calibration_transfer_summary", negated)
    assert [moved[n].held for n in ("EasyToHard", "HardToEasy", "ModelsOnHard")] == [False] * 3
    flat = changed(paper, "dropout_grid_search", lambda f: f.assign(value=0.1))
    assert not flat["RateMatters"].held and not flat["HardRateHigher"].held
    bins = changed(paper, "bin_ablation", lambda f: f.assign(value=f.value * (40 - f.bins.astype(float))))
    assert not bins["EceStable"].held and not bins["MceGrows"].held and not bins["BrierStays"].held
    few = changed(paper, "insitu_ptrue", lambda f: f.assign(value=f.value.where(f.metric == "ece", 10)))
    assert not few["TokenReduction"].held and few["TokenReduction"].said.startswith("10%")
    wide = changed(paper, "result_estimation_full", lambda f: f.assign(low=0.0, high=1.0))
    assert wide["SeqAnsOverlap"].held is False and wide["SeqAnsOverlap"].said == "15 of 15 pairs"


def test_the_pictures_are_judged_by_their_curves(demo):
    swapped_sides = changed(demo, "running_mean", lambda f: f.assign(correct=~f.correct.astype(bool)))
    assert findings.verdicts(demo)["MeansPartLater"].held and swapped_sides["MeansPartLater"].held is False
    apart = changed(demo, "running_mean", lambda f: f.assign(**{"mean": f["mean"] + f.correct * 0.5}))
    assert apart["MeansOverlapFirst"].held is False
    settled = changed(demo, "entropies", lambda f: f.assign(**{"mean": 0.5}))
    assert settled["PredictiveSettles"].held and settled["ConditionalStays"].held
    rising = changed(demo, "entropies", lambda f: f.assign(**{"mean": f.passes.astype(float)}))
    assert not rising["PredictiveSettles"].held and not rising["ConditionalStays"].held
    unsure = changed(demo, "answers", lambda f: f.assign(median=np.log(0.5)))
    assert not unsure["AnswersSaturate"].held
    frozen = changed(demo, "top_tokens", lambda f: f.assign(bald=0.0))
    assert not frozen["TopTokenUnchanged"].held
    square = changed(demo, "cost", lambda f: f.assign(operations=f.operations * f.passes))
    assert findings.verdicts(demo)["CostLinear"].held and not square["CostLinear"].held
    slow = changed(demo, "learning", lambda f: f.assign(**{"mean": f["mean"].where(f.n.isna() | (f.n > 100), 0.9)}))
    assert not slow["FiftySuffice"].held


def test_what_needs_rows_that_are_not_there_says_nothing(demo):
    poorer = replace(demo, frames={name: frame for name, frame in demo.frames.items() if name != "ablation"})
    assert findings.verdicts(poorer)["DemonstrationAccuracy"].held is None
    empty = replace(demo, frames={**demo.frames, "ablation": demo.frames["ablation"].head(0)})
    assert findings.verdicts(empty)["BoxedFormat"].held is None


def test_macros(on_paper):
    text = findings.macros(on_paper)
    found = dict(re.findall(r"\\newcommand\{\\([A-Za-z]+)\}\{(.*)\}", text))
    assert set(found) == set(ON_PAPER)
    assert found["TokenReduction"] == r"88\%" and found["PlattBelowIsotonic"] == "9 of 15"
    assert len({finding.name for finding in findings.FINDINGS}) == len(findings.FINDINGS)


# ---- numbers beside the paper's


def as_the_papers(paper, **values):
    """The paper's evidence as a run of its own models would have it."""
    settings = [type(spec)(**vars(spec) | {"source": comparison.SOURCES[spec.label]}) for spec in paper.settings]
    return replace(paper, settings=settings, **values)


def test_the_paper_lies_inside_its_own_intervals(paper):
    found = comparison.beside(as_the_papers(paper), paper).records
    assert set(found.verdict) == {"inside", "no interval printed"} and found.difference.abs().max() == 0
    assert len(found) > 1300 and (found.verdict == "inside").sum() == 195 + 285 + 30 + 90 + 90 + 90


def test_a_number_outside_its_interval_is_said_so(paper):
    table = paper.frames["result_estimation_full"].copy()
    row = table[(table.model == "Llama-3.1-8B") & (table.dataset == "GSM8K") & (table.estimator == "seq_avg")
                & (table.metric == "ece")].index[0]  # fmt: skip
    for beyond, verdict in ((0.0004, "inside"), (0.002, "outside")):  # printed with three decimals
        table.loc[row, "value"] = table.loc[row, "high"] + beyond
        run = as_the_papers(paper, frames={**paper.frames, "result_estimation_full": table})
        found = comparison.beside(run, paper).records.query("table == 'tab_result_estimation_full'")
        assert (found.verdict == "outside").sum() == (verdict == "outside")


def test_other_models_are_compared_with_nothing(paper, demo):
    found = comparison.beside(demo, paper).records
    assert set(found.verdict) == {"not comparable: another model"} and found.value_paper.isna().all()
    alike = replace(paper, settings=[type(s)(**vars(s) | {"source": "weights/random"}) for s in paper.settings])
    found = comparison.beside(alike, paper).records
    found = found[~found.table.str.contains("transfer")]  # whose models the paper calls by their family
    assert set(found.verdict) == {"not comparable: another model"}, "the label alone makes no model the paper's"


def test_another_model_beside_the_papers(paper):
    """A sixth model's numbers stand beside nothing, the others' beside the paper's."""
    more = {}
    for name, frame in paper.frames.items():
        sixth = frame[frame.model == frame.model.iloc[0]].assign(model="Mine")
        more[name] = pd.concat([frame, sixth], ignore_index=True)
    run = as_the_papers(paper)
    spec = type(run.settings[0])(**vars(run.settings[0]) | {"label": "Mine", "source": "me/mine"})
    run = replace(run, frames=more, models={**paper.models, "Mine": "Mine"}, settings=[*run.settings, spec])
    found = comparison.beside(run, paper).records
    assert set(found[found.model == "Mine"].verdict) == {"not comparable: another model"}
    assert "not comparable: another model" not in set(found[found.model != "Mine"].verdict)


# ---- sensitivity


def test_sensitivity(demo, signals, monkeypatch):
    found = sensitivity.sensitivity(demo, signals, variants=[("closed", "left"), ("grader", "numeric")])
    assert set(found.records.choice) == {"closed: left"}, "the run's own choice is no variant"
    assert "SeqAnsOverlap" not in set(found.records.name), "intervals are not made anew"
    assert {"BaldBelowPTrue", "EasyToHard", "MeansPartLater"} <= set(found.records.name)
    turned = replace(demo, frames={**demo.frames, "dropout_grid_search":
                                   demo.frames["dropout_grid_search"].assign(value=0.1)})  # fmt: skip
    found = sensitivity.sensitivity(turned, signals, variants=[("closed", "left")])
    assert "RateMatters" in set(found.records[found.records.flips].name) and len(found.shown) >= 1


def test_listings_hold_records_and_show_a_table(paper, on_paper):
    bundle = comparison.findings(on_paper)._repr_mimebundle_()
    assert "<table" in bundle["text/html"] and len(bundle["application/json"]) == len(findings.FINDINGS)
    first = bundle["application/json"][0]
    assert first["paper"] == "holds" and len(first["paper_rows"]["data"]) == 15 and "here" not in first
    bundle = comparison.beside(as_the_papers(paper), paper)._repr_mimebundle_()
    assert None in {one["low"] for one in bundle["application/json"]}, "what is missing is null, never NaN"


def test_a_run_that_is_not_the_papers_says_its_name(signals, demo, monkeypatch):
    assert demo.notes[0] == "demo models."
    assert demo.notes[1].startswith("Made on cpu, float32: Tiny-Llama (demo/models/tiny-llama), Tiny-Qwen")
    chosen = (signals, "", DEMO.models, DEMO.datasets)
    assert run_results.of_run("mine", *chosen).notes[0] == "Run mine."
    assert run_results.of_run("paper", *chosen).notes[0].startswith("Made on cpu"), "and which models they were"


# ---- what can be held against the paper


def test_another_decoding_or_other_questions_are_compared_with_nothing(paper):
    run = as_the_papers(paper)
    hotter = [type(spec)(**vars(spec) | {"temperature": spec.temperature + 0.1}) for spec in run.settings]
    verdicts = comparison.beside(replace(run, settings=hotter), paper).records
    shown = verdicts[~verdicts.table.str.contains("transfer")]  # whose models the paper calls by their family
    assert set(shown.verdict) == {"not comparable: other decoding settings"}
    own = {name: comparison.QUESTIONS[name] for name in paper.datasets}
    assert comparison.foreign_questions(replace(run, questions=own)) == {}
    limited = own | {"SVAMP": ("ChilleD/SVAMP", 20, 20), "GSM8K": ({"all": "mine.jsonl"}, 7473, 1319)}
    verdicts = comparison.beside(replace(run, questions=limited), paper).records
    by_dataset = verdicts[verdicts.table == "tab_result_estimation"].groupby("dataset").verdict.unique().map(set)
    assert by_dataset["SVAMP"] == {"not comparable: other numbers of questions"}
    assert by_dataset["GSM8K"] == {"not comparable: other questions"}
    assert not any("not comparable" in verdict for verdict in by_dataset["GSMHard"])


def test_a_faithful_rerun_is_not_expected_inside_as_often_as_the_interval_says():
    """Two runs with the same spread, simulated: how often the second lies in the first's 95% interval."""
    first, second = np.random.default_rng(0).normal(size=(2, 200_000))
    assert pytest.approx(np.mean(abs(second - first) < 1.96), abs=0.003) == comparison.INSIDE_EXPECTED
    assert pytest.approx(0.834, abs=0.001) == comparison.INSIDE_EXPECTED


def test_a_choice_may_leave_no_response(signals, demo):
    """As with `missing: drop` where no model ever writes an answer: nothing is judged, and nothing fails."""
    silent = signals.generations.assign(answer=None)
    none = run_results.RunSignals._read(signals.reading, silent, signals.verification, signals.dropout)
    found = sensitivity.sensitivity(demo, none, variants=[("missing", "drop")])
    assert set(found.records.columns) == set(sensitivity.COLUMNS)
