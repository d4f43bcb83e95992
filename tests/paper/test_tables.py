"""Tables and records of the demo's shipped signals, held against what `./run_all.sh replay` made
(blackbox/goldens); bold cells, missing ones and words of others in tables made here; and the
paper's macros, where its LaTeX is at hand."""

import re
from dataclasses import replace

import goldens
import pandas as pd
import pytest
from latex import PAPER, paper
from synthetic import results_of

from lib import params
from lib.analysis.results import as_sentence
from lib.analysis.signals import load_signals
from lib.paper import (
    beyond_tables,
    booktabs,
    comparison_with_paper,
    numbers_of_paper,
    report_contents,
    response_views,
    table_notes,
    tables,
    verdicts,
)
from lib.score import baselines

DEMO = params.load_profile("demo")
REPLAY = goldens.read("replay")
TABLES = tables.TABLES | {
    "tab_costs": beyond_tables.costs,
    "tab_selective": beyond_tables.selective,
}


@pytest.mark.parametrize("name", TABLES)
def test_every_table(name, demo):
    """And the key of each of its numbers is where the report looks for a link."""
    table = TABLES[name](replace(demo, title=as_sentence(DEMO.title)))
    assert table.latex == REPLAY[f"{name}.tex"]
    keys = table.numbers.drop_duplicates(["row", "column"]).key
    assert sorted(re.findall('data-key="([^"]*)"', table._repr_html_())) == sorted(keys)


def test_every_record(demo, shipped):
    """Verdicts with their counts, numbers beside the paper's, notes."""
    scored = baselines.add_base_rate(shipped.confidence, demo.frames["calibrated"])
    chance = baselines.compare_with_chance(scored, DEMO.bins, DEMO.resamples, DEMO.seed)
    with_chance = replace(demo, frames=demo.frames | {"chance": chance})
    published = numbers_of_paper.published()
    records_by_name = {
        "rep_overview": report_contents.list_overview(with_chance),
        "rep_pooled": report_contents.list_pooled(with_chance),
        "rep_splits": report_contents.list_splits(shipped, with_chance),
        "rep_findings": verdicts.list_claims(
            verdicts.judge_all(published), verdicts.judge_all(with_chance)
        ),
        "rep_numbers": comparison_with_paper.compare_with_paper(with_chance, published),
        "rep_ablation": report_contents.list_ablation(with_chance),
        "rep_notes": table_notes.list_notes("shipped", with_chance),
    }
    texts = {}
    for name, records in records_by_name.items():
        texts[name] = "\n".join(goldens.flat(records._repr_json_()))
    goldens.check("replay", REPLAY | texts)


@pytest.mark.parametrize("run, name", [("replay", "demo"), ("replay-small", "small")])
def test_the_prompts_of_a_run_with_texts_and_of_one_without(run, name):
    """Of the real models no text of others is part of the project."""
    profile = params.load_profile(name)
    signals = load_signals(
        run, profile.models, profile.datasets, params.EvaluationChoices(), ["verification"]
    )
    assert (signals.generations[["text", "question"]].isna() == (name == "small")).all(axis=None)
    exchange = response_views.load_exchange(
        run, signals, profile.main_figure_model, profile.main_figure_dataset
    )
    example = response_views.prompt_example(exchange["prompt"], exchange["text"])
    both = response_views.prompt_comparison(exchange["standard_prompt"], exchange["in_situ_prompt"])
    assert example._repr_latex_() == goldens.read(run)["fig_prompt_example.tex"]
    assert both._repr_latex_() == goldens.read(run)["fig_prompt_comparison.tex"]


@paper
def test_commands_and_macros_are_the_papers():
    text = re.sub(r"%\n|\n|  +", "", PAPER.read_text(encoding="utf-8"))
    assert len(booktabs.DEFINITIONS) == 9
    for definition in booktabs.DEFINITIONS:
        assert definition[0].replace("provide", "new").removesuffix("%") in text


# ---- made here


def make_table(ece, models=("m",)):
    """A table of models with an ECE for each of the estimators."""
    of_model = pd.DataFrame({"estimator": list(ece), "value": list(ece.values())})
    parts = [of_model] * len(models)
    frame = pd.concat(parts, keys=models, names=["model", None]).reset_index(level="model")
    frame = frame.assign(metric="ece", dataset="d", reason="").astype({"value": "Float64"})
    return tables.result_estimation(results_of(result_estimation=frame))


@pytest.mark.parametrize(
    "seq_avg, seq_joint, cells",
    [
        # unrounded
        (0.0530004, 0.0530001, r"-- & 0.053 & -- & \textbf{0.053} & --"),
        (0.05, 0.05, r"-- & \textbf{0.050} & -- & \textbf{0.050} & --"),
        (None, 0.05, r"-- & -- & -- & \textbf{0.050} & --"),
    ],
)
def test_the_lowest_error_is_bold_and_what_is_missing_a_dash(seq_avg, seq_joint, cells):
    table = make_table({"seq_avg": seq_avg, "seq_joint": seq_joint})
    assert rf"m & d & {cells} \\" in table.latex


def test_names_of_others_stay_words_in_both_languages():
    table = make_table({"seq_avg": 0.5}, ["x", "a_b & <c>"])
    assert "a_b &amp; &lt;c&gt;" in table._repr_html_()
    assert r"a\_b \& \textless{}c\textgreater{}" in table.latex
