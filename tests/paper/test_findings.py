"""The claims on the paper's own numbers, counted by hand; its numbers beside a run's; claims under
other choices."""

import re
from dataclasses import replace
from importlib import import_module
from inspect import getmembers
from itertools import groupby
from pkgutil import walk_packages

import pandas as pd
import pytest
from latex import PAPER, paper

import lib.paper
from lib import store
from lib.analysis import run_results
from lib.analysis.signals import Signals
from lib.paper import comparison_with_paper, numbers_of_paper, table_notes, tables
from lib.paper.claims import Claim
from lib.paper.numbers_of_paper import paper_facts
from lib.paper.verdicts import CLAIMS, FINDINGS, judge_all, judge_alternatives
from lib.params import EvaluationChoices, load_dataset_config, load_profile

PUBLISHED = numbers_of_paper.published()

# Counted by hand from the printed tables (exceptions among them). Three claims state figures of the
# paper's own: 35 of 45 cells, and median gains of 79% and 57%.
ON_PAPER = {
    "multi_pass_calibrated": ("holds", "3 pairs agree, 12 disagree"),
    "calibration_substantial": ("holds", "isotonic 79%, platt 57%; 2 methods agree"),
    "seq_avg_below_answer": ("holds", "15 pairs agree"),
    # Llama-3.1-8B and Qwen3-8B-Thinking on SVAMP
    "seq_joint_below_answer": ("fails", "13 pairs agree, 2 disagree"),
    "substantially_better": ("holds", "11 pairs agree, 4 disagree"),
    "seq_below_multi_pass": ("holds", "8 pairs agree, 7 disagree"),
    "joint_below_avg": (
        "holds",
        "Seq 11 of 15, Ans 6 of 15 (8 equal); 17 cases agree, 13 disagree",
    ),
    "joint_below_avg_hard": ("holds", "hard 0.009, elsewhere 0.000"),
    "bald_below_p_true": ("holds", "10 pairs agree, 5 disagree"),
    "bald_below_p_true_hard": ("holds", "hard 0.173, elsewhere -0.001"),
    "rate_matters": ("holds", "15 pairs agree"),
    "p_true_below_ans_avg": ("holds", "12 pairs agree, 3 disagree"),
    "in_situ_comparable": ("holds", "11 pairs agree, 4 disagree"),  # higher by more than a quarter
    "token_reduction": ("holds", "88%"),
    "isotonic_reduces": ("holds", "82 cells agree, 8 disagree"),
    "platt_reduces": ("holds", "45 cells agree"),
    "isotonic_below_temperature": ("holds", "35 cells agree, 10 disagree"),
    "high_raw_mends": ("holds", "22 cells agree"),
    "easy_to_hard": ("holds", "4 arrows agree"),
    "hard_to_easy": ("holds", "3 arrows agree, 1 disagrees"),
    "models_on_hard": ("holds", "4 arrows agree"),
    "models_on_easy": ("holds", "2 cases agree"),
    "transfer_severe": ("holds", "largest 0.658"),
}


def test_every_finding_on_the_papers_numbers():
    judged = {}
    for name, verdict in judge_all(PUBLISHED).items():
        if verdict.kind != "not judged":
            judged[name] = (verdict.kind, verdict.summary)
    assert judged == ON_PAPER


def test_every_claim_that_is_defined_is_listed_once():
    defined = set()
    for module in walk_packages(lib.paper.__path__, "lib.paper."):
        members = getmembers(import_module(module.name), lambda member: isinstance(member, Claim))
        defined |= {claim.name for _, claim in members}
    assert sorted(claim.name for claim in CLAIMS) == sorted(defined)


def test_claims_are_listed_group_by_group():
    group_of_claim = [claim.group for claim in CLAIMS]
    groups = [group for group, _ in groupby(group_of_claim)]
    assert groups == ["Abstract", "Introduction", *FINDINGS]


def test_every_printed_number_has_its_words_and_an_empty_name_for_what_it_does_not_depend_on():
    """No name is missing: frames are joined and grouped by them."""
    numbers = numbers_of_paper.reference_numbers()
    names = ["table", "model", "dataset", "estimator", "metric", "method", "text"]
    assert not numbers[names].isna().any(axis=None)
    assert (numbers.dataset == "").any() and (numbers.estimator == "").any()


# ---- quotes


def words(latex):
    text = latex.replace(r"\ptrue", "P(True)").lower()
    return re.findall(r"[a-z0-9]+", re.sub(r"\\[a-z]+", " ", text))


def holds_in_order(passage, quote):
    """Whether all words of a quote stand within sixty words of a passage, in this order."""
    for start in range(len(passage)):
        stretch = iter(passage[start : start + 60])
        if all(word in stretch for word in quote):  # each goes on where the one before stood
            return True
    return False


@paper
def test_the_quotes_are_the_papers_below_its_own_headings():
    text = re.sub("(?m)^ *%.*", "", PAPER.read_text("utf-8"))
    headings = [
        r"\\begin{abstract}",
        r"\\section{Introduction}",
        r"\\section{Related Work}",
        r"\\section{Conclusion}",
    ]
    parts = [words(part) for part in re.split("|".join(headings), text)]
    passages = {"Abstract": parts[1], "Introduction": parts[2]}
    rest = parts[3]
    for claim in CLAIMS:
        passage = passages.get(claim.group, rest)
        assert holds_in_order(passage, words(claim.quote)), claim
    for boxed in FINDINGS.values():
        assert " ".join(words(boxed)) in " ".join(rest)


# ---- numbers beside the paper's: its evidence, as a run of its own models would have it


def settings_with_sources():
    """The paper's models and their settings, from where the profile `paper` takes them."""
    sources = paper_facts()["models"]
    settings = []
    for spec in PUBLISHED.settings:
        settings.append(replace_setting(spec, source=sources[spec.label]))
    return settings


def replace_setting(spec, **changed):
    return type(spec)(**vars(spec) | changed)


SETTINGS = settings_with_sources()
QUESTIONS = {}
for label, facts in paper_facts()["questions"].items():
    QUESTIONS[label] = tuple(facts.values())
RUN = replace(PUBLISHED, settings=SETTINGS, questions=QUESTIONS)
IN_INTERVALS = 195 + 285 + 30 + 90 + 90 + 90


def test_the_paper_lies_inside_its_own_intervals():
    records = comparison_with_paper.compare_with_paper(RUN, PUBLISHED).records
    assert len(records) > 1300
    assert set(records.verdict) == {"inside", "no interval printed"}
    assert (records.verdict == "inside").sum() == IN_INTERVALS
    assert records.difference.abs().max() == 0


# printed with three decimals
@pytest.mark.parametrize("beyond, outside", [(0.0004, 0), (0.002, 1)])
def test_a_number_outside_its_interval_is_said_so(beyond, outside):
    table = PUBLISHED.frames["result_estimation_full"].copy()
    row = table[
        (table.model == "Llama-3.1-8B")
        & (table.dataset == "GSM8K")
        & (table.estimator == "seq_avg")
        & (table.metric == "ece")
    ]
    table.loc[row.index, "value"] = row.high + beyond
    run = replace(RUN, frames=RUN.frames | {"result_estimation_full": table})
    records = comparison_with_paper.compare_with_paper(run, PUBLISHED).records
    assert (records.verdict == "outside").sum() == outside
    assert (records.verdict == "inside").sum() == IN_INTERVALS - outside


@pytest.mark.parametrize(
    "reason, changed",
    [
        ("another model", {"source": "weights/random"}),  # the label makes no model the paper's
        ("other decoding settings", {"temperature": 0.55}),
    ],
)
def test_another_model_is_compared_with_nothing(reason, changed):
    first, *others = SETTINGS
    run = replace(RUN, settings=[replace_setting(first, **changed), *others])
    assert comparison_with_paper.reasons_not_comparable(run, PUBLISHED) == {first.label: reason}


@pytest.mark.parametrize(
    "reason, svamp",
    [
        ("other questions", ("mine.jsonl", 700, 300)),
        ("other numbers of questions", ("ChilleD/SVAMP", 20, 20)),
    ],
)
def test_another_dataset_is_compared_with_nothing(reason, svamp):
    run = replace(RUN, questions=QUESTIONS | {"SVAMP": svamp})
    assert comparison_with_paper.reasons_not_comparable(run, PUBLISHED) == {"SVAMP": reason}


# ---- the profile `paper`: the paper's run, as files describe it

PROFILE = load_profile("paper")


@pytest.fixture(scope="module")
def planned():
    """The run of the profile, before anything is made."""
    return run_results.results_without_frames(
        PROFILE.models, PROFILE.datasets, bin_models=PROFILE.bin_models
    )


def test_its_models_settings_and_questions_are_the_papers(planned):
    questions = {}
    for name in PROFILE.datasets:
        dataset = load_dataset_config(name)
        questions[name] = (dataset.source, dataset.calibration, dataset.evaluation)
    assert (
        comparison_with_paper.reasons_not_comparable(
            replace(planned, questions=questions), PUBLISHED
        )
        == {}
    )


def test_its_models_are_pinned_and_two_of_them_think(planned):
    for spec in planned.settings:
        assert re.fullmatch("[0-9a-f]{40}", spec.revision), spec.label
    thinking = [spec.label for spec in planned.settings if spec.thinking]
    assert thinking == ["DeepSeek-R1-8B", "Qwen3-8B-Thinking"]


def test_its_tables_have_the_papers_rows(planned):
    assert list(planned.models.values()) == list(PUBLISHED.models)
    assert list(planned.datasets.values()) == list(PUBLISHED.datasets)
    assert list(planned.bin_labels.values()) == list(PUBLISHED.bin_labels)


def test_its_rates_bins_and_figures_are_the_papers():
    printed = numbers_of_paper.reference_numbers()
    assert sorted(printed.bins.dropna().unique()) == PROFILE.n_bins_ablation
    assert sorted(printed.rate.dropna().unique()) == PROFILE.dropout_rates
    assert PROFILE.main_figure_model == "llama-3.1-8b"
    assert PROFILE.figure_dataset == "gsmhard"
    assert PROFILE.demonstration == "one"
    assert PROFILE.transfer_models == ["llama-3.1-8b", "qwen3-4b-instruct"]
    assert PROFILE.transfer_datasets == ["gsm8k", "gsmhard"]


def test_the_pilot_is_the_papers_run_with_fewer_rows():
    """Of fewer models and datasets; whatever names one of them follows."""
    pilot = load_profile("pilot").model_dump()
    paper = PROFILE.model_dump()
    changed = set()
    for name in paper:
        if pilot[name] != paper[name] and not re.search("models?$|datasets?$", name):
            changed.add(name)
    assert changed == {"title", "limit", "n_tuning_examples", "ablation_limit", "calibration_sizes"}
    assert set(pilot["models"]) < set(paper["models"])
    assert set(pilot["datasets"]) < set(paper["datasets"])
    assert 0 < pilot["limit"] <= 8


# ---- a run that lacks answers or passes


@pytest.fixture(scope="module")
def unfinished(shipped):
    """Sixteen rows of two models; of the second there are neither answers nor passes."""
    hard = shipped.generations[shipped.generations.dataset == "demo-hard"]
    rows = hard.groupby(["model", "split"]).head(8)
    rows.loc[rows.model == "tiny-qwen", ["answer", "answer_start"]] = None, -1
    verification = shipped.verification.merge(rows[store.KEYS])
    dropout = shipped.dropout.merge(rows[store.KEYS])
    dropout = dropout[dropout.model == "tiny-llama"]
    signals = Signals(rows, verification, dropout, shipped.choices)
    results = run_results.results_of_run(
        "shipped", signals, ["tiny-llama", "tiny-qwen"], ["demo-hard"]
    )
    return signals, results


def test_notes_say_what_is_to_come_and_what_has_no_answer(unfinished, monkeypatch):
    _, results = unfinished

    def read_manifests(*stage):
        return [("tiny-llama__demo-hard", {})]

    monkeypatch.setattr(table_notes.store, "read_manifests", read_manifests)
    notes = table_notes.list_notes("shipped", results).records.note.tolist()
    assert (
        "Of 16 responses to evaluation questions are 50.0% without a parsable answer, "
        "0.0% cut by length."
    ) in notes
    missing = [line for line in notes if line.startswith("No dropout passes")]
    assert missing == ["No dropout passes of Tiny-Qwen-Thinking on Demo-Hard: not made yet."]


def test_shares_of_responses_without_an_answer_are_of_all_pairs_together():
    """Of 30 responses 3 and 6, and of 10 others 5 and 4."""
    coverage = pd.DataFrame({"rows": [30, 10], "unparsed": [0.1, 0.5], "cut": [0.2, 0.4]})
    assert table_notes.describe_unanswered(coverage) == (
        "Of 40 responses to evaluation questions are 20.0% without a parsable answer, "
        "25.0% cut by length."
    )


def test_a_table_has_dashes_where_a_pair_has_no_passes(unfinished):
    """A model without any answer has its label."""
    _, results = unfinished
    lines = tables.result_estimation(results).latex.splitlines()
    llama, qwen = [line for line in lines if "Demo-Hard" in line]
    assert "--" not in llama
    assert "--" in qwen


# ---- under other choices


def test_a_verdict_that_turns_is_said_with_both_counts(shipped):
    """Wrong responses without an answer, whose last number is nearly certain: P(True) has the lower
    error. With confidence 0 for every estimator, both errors are 0. A choice may leave no
    response."""
    rows = shipped.generations[
        (shipped.generations.model == "tiny-llama") & (shipped.generations.dataset == "demo-medium")
    ]
    rows = rows.groupby("split").head(40)
    unread = rows.assign(answer=None, answer_start=-1, answer_end=-1, reference="no number")
    verification = shipped.verification.merge(rows[store.KEYS], on=store.KEYS)
    signals = Signals(unread, verification, shipped.dropout.head(0), EvaluationChoices())
    labels = run_results.results_without_frames(["tiny-llama"], ["demo-medium"])
    verdicts = judge_alternatives(signals, labels)

    zero = "a response without an answer (missing): zero, not last_number"
    turned = verdicts[verdicts.flips].set_index(["choice", "name"])
    verdict = turned.loc[(zero, "p_true_below_ans_avg")]
    assert verdict["here"] == "holds: 1 pair agrees"
    assert verdict["then"] == "open: 1 pair open"

    need_more_than_errors = {"means_diverge", "no_single_token", "fifty_suffice"}
    assert need_more_than_errors.isdisjoint(verdicts.name)
    is_dropped = verdicts.choice.str.contains("(missing): drop", regex=False)
    (dropped,) = verdicts[is_dropped].itertuples()
    assert dropped.finding.startswith("no response has an answer")
    assert not dropped.flips
