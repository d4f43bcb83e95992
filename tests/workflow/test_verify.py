"""A run held against the shipped one: on frames altered by hand, and on a run of other kernels."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from clone import SMALL, copy_of_project, edit, start

from lib import params
from lib.analysis import comparison_of_runs
from lib.analysis.comparison_of_runs import judge_reproduction, match_rows
from lib.analysis.run_results import Signals, load_signals
from lib.paths import UserError
from workflow import verify
from workflow.pipeline import Run

MODEL, DATASET = "tiny-llama", "demo-medium"
CHOICES, BINS = params.EvaluationChoices(), (10, 20)
OTHER_KERNELS = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}


@pytest.fixture(scope="module")
def theirs():
    return load_signals("shipped", [MODEL], [DATASET], CHOICES)


@pytest.fixture(scope="module")
def here(theirs):
    """What 08 would print of the shipped signals of one pair of the demo."""
    own = {"models": [MODEL], "transfer_models": [MODEL], "datasets": [DATASET], "transfer_datasets": [DATASET]}
    return verify.results_of(Run("lab", params.load_profile("demo").model_dump(mode="json") | own), theirs)


def altered(side, **columns):
    """The signals as a run would have left them with other columns in its generations."""
    return Signals(side.generations.assign(**columns), side.verification, side.dropout, side.choices)


def compared(here, ours, theirs):
    alike = match_rows(ours, theirs)
    table = verify.compare_runs(here, alike, BINS)
    return table, alike, *judge_reproduction(table, alike)


def test_the_shipped_run_is_the_same_as_itself_and_what_two_processors_round_otherwise_is_within(here, theirs):
    table, alike, held, line = compared(here, theirs, theirs)
    assert held and (table.difference == 0).all() and alike.outcomes == {"same": 500}
    assert line == f"the same: {len(table)} numbers within 0.002; 500 of 500 responses alike"
    assert comparison_of_runs.list_differing_numbers(table, "x.csv") == ["every number: x.csv"]
    rng = np.random.default_rng(5)
    noisy = [np.minimum(row + 3e-7 * rng.standard_normal(len(row)), 0) for row in theirs.generations.token_logprobs]
    table, alike, held, _ = compared(here, altered(theirs, token_logprobs=noisy), theirs)
    assert held and table.difference.max() > 0 and alike.outcomes == {"same": 500}


def test_a_number_that_differs_by_more_is_named(here, theirs):
    """Five evaluation rows whose probabilities were altered by hand: exactly what hangs on them differs."""
    rows = np.flatnonzero(theirs.generations.split == "evaluation")[:5]
    column = [row / 2 - 1 if place in rows else row for place, row in enumerate(theirs.generations.token_logprobs)]
    table, _, held, line = compared(here, altered(theirs, token_logprobs=column), theirs)
    beyond = table[~table.within]
    assert not held and line.startswith(f"NOT the same: {len(beyond)} of {len(table)} numbers differ by more")
    estimators = set(beyond.key.str.split("/").str[2])
    assert {"seq_avg", "seq_joint", "ans_avg", "ans_joint"} <= estimators and "p_true" not in estimators
    lines = comparison_of_runs.list_differing_numbers(table, "x.csv")
    assert "MORE than 0.002" in lines[0] and lines[0].split(":")[0].split()[0] in set(beyond.table)


def test_a_response_written_otherwise_is_left_out_and_counted(here, theirs):
    ids = [np.append(row, 7) if place == 3 else row for place, row in enumerate(theirs.generations.token_ids)]
    far = [row - 1 if place == 3 else row for place, row in enumerate(theirs.generations.token_logprobs)]
    table, alike, held, line = compared(here, altered(theirs, token_ids=ids, token_logprobs=far), theirs)
    assert held and "499 of 500 responses alike" in line and (table.difference == 0).all()
    assert alike.outcomes == {"same": 499, "diverged": 1}


def test_nothing_in_common_is_said(theirs):
    others = altered(theirs, token_ids=[np.append(row, 7) for row in theirs.generations.token_ids])
    with pytest.raises(UserError, match="no response in common with what is shipped: these are other models"):
        match_rows(others, theirs)


def test_what_jumps_after_isotonic_regression_is_listed_and_fails_nothing(theirs):
    names = [("seq_avg", ""), ("ans_avg", ""), ("seq_avg", "/isotonic"), ("p_true", "/isotonic")]
    keys = [f"{MODEL}/{DATASET}/{name}/ece{method}" for name, method in names]
    shipped = pd.DataFrame({"table": "tab_x", "key": keys, "value": 0.5})
    ours = shipped.assign(value=[0.5019, 0.5021, 0.54, np.nan])
    table = comparison_of_runs.compare_numbers(ours, shipped).set_index("key").loc[keys]
    assert table.within.tolist() == [True, False, True, False], "a number that is missing fails"
    held, line = judge_reproduction(table[table.within].reset_index(), match_rows(theirs, theirs))
    assert held and line.startswith("the same: 2 numbers within 0.002, but for 1 after isotonic regression; ")
    *_, moved, _ = comparison_of_runs.list_differing_numbers(table.reset_index(), "x.csv")
    assert moved == f"tab_x {keys[2]}: 0.5400 here, 0.5000 shipped, after isotonic regression"


# ---- what the run saved


def test_a_forged_result_of_05_is_noticed(here, theirs):
    made = comparison_of_runs.recompute_frames(theirs, params.load_profile("demo").n_bins_ablation)
    anew = replace(here, frames={**here.frames, **made})
    assert verify.list_differing_results(here, anew) == []
    kept = here.frames["result_isotonic"]
    one = (kept["method"] == "isotonic") & (kept.metric == "ece") & (kept.model == MODEL) & (kept.dataset == DATASET)
    forged = kept.assign(value=kept.value.where(~one, 0.001))
    lines = verify.list_differing_results(replace(here, frames={**here.frames, "result_isotonic": forged}), anew)
    assert len(lines) == 1 and lines[0].startswith("tab_result_isotonic: ")
    none = pd.DataFrame({"within": [], "prints_differently": [], "difference": []}, dtype=bool)
    line = "NOT the same: 1 of the run's tables are not what its signals give"
    assert judge_reproduction(none, match_rows(theirs, theirs), lines) == (False, line)


# ---- by the command


@pytest.mark.slow
def test_a_run_of_other_kernels_gives_what_is_shipped(tmp_path):
    """Twenty questions of each split, on another path through the processor, against those rows of the shipped run; the
    others are shipped alone."""
    folder = copy_of_project(tmp_path / "a folder")
    edit(folder / "params" / "demo.yaml", **SMALL | {"datasets": [DATASET], "limit": 20, "dropout_passes": 10})
    process = start(folder, "verify", **OTHER_KERNELS)
    said = process.communicate()[0].splitlines()
    assert process.returncode == 1
    assert said[-1] == "verify demo: NOT the same: 0 responses are only here, 460 only shipped"
    assert not any("what the run's" in line for line in said)
    rows = pd.read_csv(folder / "figures/demo/verify.csv")
    assert len(rows) > 100 and rows.within.all()
