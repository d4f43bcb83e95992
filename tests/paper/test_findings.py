"""The claims on the paper's own numbers, counted by hand; its numbers beside a run's; claims under
other choices."""

import re
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
import yaml
from latex import PAPER, paper

from lib import params, store
from lib.analysis import run_results
from lib.analysis.signals import Signals
from lib.paper import comparison_with_paper, numbers_of_paper, table_notes, tables
from lib.paper.claim import Claim
from lib.paper.claims import (
    CLAIMS,
    abstract,
    finding_1,
    finding_2,
    finding_3,
    finding_4,
    introduction,
)
from lib.paper.numbers_of_paper import paper_facts
from lib.paper.verdicts import FINDINGS, judge_all, judge_alternatives

ON_PAPER = yaml.safe_load(Path(__file__).with_name("on_paper.yaml").read_text())  # counted by hand
PUBLISHED = numbers_of_paper.published()


def test_every_finding_on_the_papers_numbers():
    verdicts = judge_all(PUBLISHED)
    judged = {name: [v.kind, v.said] for name, v in verdicts.items() if v.kind != "not judged"}
    assert judged == ON_PAPER


def test_every_claim_is_listed_once_group_by_group():
    defined = []
    for module in (abstract, introduction, finding_1, finding_2, finding_3, finding_4):
        defined += [claim.name for claim in vars(module).values() if isinstance(claim, Claim)]
    assert sorted(claim.name for claim in CLAIMS) == sorted(defined)
    assert [group for group, _ in groupby(claim.group for claim in CLAIMS)] == [
        "Abstract",
        "Introduction",
        *FINDINGS,
    ]


@paper
def test_the_quotes_are_the_papers_below_its_own_headings():
    """Every word of a quote, in this order, within sixty words of that part of the paper."""
    text = re.sub("(?m)^ *%.*", "", PAPER.read_text("utf-8"))
    heads = (
        r"\\begin{abstract}|\\section{Introduction}|\\section{Related Work}|\\section{Conclusion}"
    )
    _, abstract, introduction, rest, _ = map(words, re.split(heads, text))
    said = {"Abstract": abstract, "Introduction": introduction}
    for claim in CLAIMS:
        there, quote = said.get(claim.group, rest), words(claim.quote)
        stretches = (iter(there[start : start + 60]) for start in range(len(there)))
        assert any(all(word in stretch for word in quote) for stretch in stretches), claim
    for boxed in FINDINGS.values():
        assert " ".join(words(boxed)) in " ".join(rest)


def words(text):
    return re.findall(
        r"[a-z0-9]+", re.sub(r"\\[a-zA-Z]+", " ", text.replace(r"\ptrue", "P(True)")).lower()
    )


# ---- numbers beside the paper's: its evidence, as a run of its own models would have it

SOURCES, ASKED = paper_facts()["models"], paper_facts()["questions"]
PRINTED = [type(spec)(**vars(spec), source=SOURCES[spec.label]) for spec in PUBLISHED.settings]
RUN = replace(
    PUBLISHED,
    settings=PRINTED,
    questions={name: tuple(one.values()) for name, one in ASKED.items()},
)


# printed with three decimals
@pytest.mark.parametrize("beyond, outside", [(None, 0), (0.0004, 0), (0.002, 1)])
def test_the_paper_lies_inside_its_own_intervals(beyond, outside):
    """And a number outside its interval is said so."""
    table = PUBLISHED.frames["result_estimation_full"].copy()
    row = table.query(
        "model == 'Llama-3.1-8B' and dataset == 'GSM8K' and estimator == 'seq_avg' and metric == 'ece'"
    )
    if beyond:
        table.loc[row.index, "value"] = row.high + beyond
    run = replace(RUN, frames=RUN.frames | {"result_estimation_full": table})
    found = comparison_with_paper.compare_with_paper(run, PUBLISHED).records
    assert (
        set(found.verdict) == {"inside", "no interval printed", *["outside"] * outside}
        and len(found) > 1300
    )
    assert (found.verdict == "inside").sum() == 195 + 285 + 30 + 90 + 90 + 90 - outside
    assert beyond or found.difference.abs().max() == 0


@pytest.mark.parametrize("reason, changed", [
    ("another model", {"source": "weights/random"}),  # the label alone makes no model the paper's
    ("other decoding settings", {"temperature": 0.55}),
    ("other questions", {"SVAMP": ("mine.jsonl", 700, 300)}),
    ("other numbers of questions", {"SVAMP": ("ChilleD/SVAMP", 20, 20)})])  # fmt: skip
def test_what_is_not_the_papers_is_compared_with_nothing(reason, changed):
    first, *others = PRINTED
    if "SVAMP" in changed:
        name, run = "SVAMP", replace(RUN, questions=RUN.questions | changed)
    else:
        name, run = (
            first.label,
            replace(RUN, settings=[type(first)(**vars(first) | changed), *others]),
        )
    assert comparison_with_paper.find_foreign(run, PUBLISHED) == {name: reason}


# ---- the profile `paper`: the paper's run, as files describe it

PROFILE = params.load_profile("paper")


def test_its_models_settings_questions_and_tables_are_the_papers():
    here = run_results.results_without_frames(
        PROFILE.models, PROFILE.datasets, bin_models=PROFILE.bin_models
    )
    files = {name: params.load_dataset_config(name) for name in PROFILE.datasets}
    questions = {name: (one.source, one.calibration, one.evaluation) for name, one in files.items()}
    assert comparison_with_paper.find_foreign(replace(here, questions=questions), PUBLISHED) == {}
    for labels in ("models", "datasets", "bin_labels"):
        assert [*getattr(here, labels).values()] == [*getattr(PUBLISHED, labels)]
    assert all(re.fullmatch("[0-9a-f]{40}", spec.revision) for spec in here.settings)
    assert [spec.label for spec in here.settings if spec.thinking] == [
        "DeepSeek-R1-8B",
        "Qwen3-8B-Thinking",
    ]


def test_its_rates_bins_and_figures_are_the_papers():
    printed = numbers_of_paper.reference_numbers()
    assert sorted(printed.bins.dropna().unique()) == PROFILE.n_bins_ablation
    assert sorted(printed.rate.dropna().unique()) == PROFILE.dropout_rates
    assert (PROFILE.main_figure_model, PROFILE.figure_dataset) == ("llama-3.1-8b", "gsmhard")
    assert (
        PROFILE.transfer_models == ["llama-3.1-8b", "qwen3-4b-instruct"]
        and PROFILE.demonstration == "one"
    )
    assert PROFILE.transfer_datasets == ["gsm8k", "gsmhard"]


def test_the_pilot_is_the_papers_run_with_fewer_rows():
    """Of fewer models and datasets; whatever names one of them follows."""
    pilot, paper = params.load_profile("pilot").model_dump(), PROFILE.model_dump()
    less = {"title", "limit", "n_tuning_examples", "ablation_limit", "calibration_sizes"}
    assert less == {
        name
        for name in paper
        if pilot[name] != paper[name] and not re.search("models?$|datasets?$", name)
    }
    assert set(pilot["models"]) < set(paper["models"]) and set(pilot["datasets"]) < set(
        paper["datasets"]
    )
    assert 0 < pilot["limit"] <= 8


# ---- a run that lacks answers or passes


def test_a_run_whose_passes_are_to_come_shows_the_rest(shipped, monkeypatch):
    """Dashes for c_BALD where a pair has no passes, and it is said why. A model without any answer
    has its label."""
    first = shipped.generations.query("dataset == 'demo-hard'").groupby(["model", "split"]).head(8)
    first.loc[first.model == "tiny-qwen", ["answer", "answer_start"]] = None, -1
    verification, dropout = (
        part.merge(first[store.KEYS]) for part in (shipped.verification, shipped.dropout)
    )
    signals = Signals(first, verification, dropout.query("model == 'tiny-llama'"), shipped.choices)
    monkeypatch.setattr(
        table_notes.store, "read_manifests", lambda *of: [("tiny-llama__demo-hard", {})]
    )
    results = run_results.results_of_run(
        "shipped", signals, ["tiny-llama", "tiny-qwen"], ["demo-hard"]
    )
    said = table_notes.list_notes("shipped", signals, results).records.note.tolist()
    assert (
        "Of 16 responses to evaluation questions are 50.0% without a parsable answer, 0.0% cut by length."
        in said
    )
    missing = [line for line in said if line.startswith("No dropout passes")]
    assert missing == ["No dropout passes of Tiny-Qwen-Thinking on Demo-Hard: not made yet."]
    rows = [
        line for line in tables.result_estimation(results).latex.splitlines() if "Demo-Hard" in line
    ]
    assert ["--" in row for row in rows] == [False, True]


# ---- under other choices


def test_a_verdict_that_turns_is_said_with_both_counts(shipped):
    """Wrong responses without an answer, whose last number is nearly certain: P(True) has the lower
    error. With confidence 0 for every estimator, both errors are 0. A choice may leave no
    response."""
    rows = (
        shipped.generations.query("model == 'tiny-llama' and dataset == 'demo-medium'")
        .groupby("split")
        .head(40)
    )
    unread = rows.assign(answer=None, answer_start=-1, answer_end=-1, reference="no number")
    first = shipped.verification.merge(rows[store.KEYS], on=store.KEYS)
    nothing = Signals(unread, first, shipped.dropout.head(0), params.EvaluationChoices())
    found = judge_alternatives(
        nothing, run_results.results_without_frames(["tiny-llama"], ["demo-medium"])
    )
    zero = "a response without an answer (missing): zero, not last_number"
    turned = found[found.flips].set_index(["choice", "name"])[["here", "then"]]
    assert turned.loc[zero, "p_true_below_ans_avg"].tolist() == [
        "holds: 1 pair agrees",
        "open: 1 pair open",
    ]
    assert {"means_diverge", "no_single_token", "fifty_suffice"}.isdisjoint(found.name), (
        "they need more than errors"
    )
    (dropped,) = found[found.choice.str.contains("(missing): drop", regex=False)].itertuples()
    assert dropped.finding.startswith("no response has an answer") and not dropped.flips
