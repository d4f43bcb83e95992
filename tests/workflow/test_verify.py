"""A run held against the shipped one: on frames altered by hand, and on a run of other kernels."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from clone import SMALL, copy_of_project, edit, start

from lib import params
from lib.analysis.comparison_of_runs import compare_numbers, match_rows, recompute_frames
from lib.analysis.signals import load_signals
from lib.errors import UserError
from workflow.engine.jobs_of_run import Run
from workflow.output import verify as verification

MODEL, DATASET = "tiny-llama", "demo-medium"
OTHER_KERNELS = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
}


@pytest.fixture(scope="module")
def theirs():
    return load_signals("shipped", [MODEL], [DATASET], params.EvaluationChoices())


@pytest.fixture
def verify(theirs, monkeypatch, capsys, tmp_path):
    """Verifies the shipped signals with other columns in their generations: the exit code, the last
    line, those before it, and all numbers. `forged`: saved results of 05."""
    selection = {
        "models": [MODEL],
        "transfer_models": [MODEL],
        "all_transfers": False,
        "datasets": [DATASET],
        "transfer_datasets": [DATASET],
    }
    run = Run("lab", params.load_profile("demo").model_dump(mode="json") | selection)
    results_of = verification.results_of
    (tmp_path / run.figures).mkdir(parents=True)
    monkeypatch.setattr(verification, "ROOT", tmp_path)

    def verify(forged=None, **columns):
        ours = replace(theirs, generations=theirs.generations.assign(**columns))
        results = results_of(run, ours)
        saved = recompute_frames(ours, run.values["n_bins_ablation"]) | (forged or {})
        with_saved = replace(results, frames={**results.frames, **saved})

        def load_signals(name, *words):
            return ours if name == "lab" else theirs

        monkeypatch.setattr(verification, "load_signals", load_signals)
        monkeypatch.setattr(verification, "results_of", lambda *words: with_saved)
        code = verification.verify(run)
        *lines, last = capsys.readouterr().out.splitlines()
        numbers = pd.read_csv(tmp_path / run.figures / "verify.csv")
        return code, last.removeprefix("verify lab: "), lines, numbers

    return verify


def test_what_two_processors_round_otherwise_is_the_same(verify, theirs):
    rng = np.random.default_rng(5)
    noisy = [
        np.minimum(row + 3e-7 * rng.standard_normal(len(row)), 0)
        for row in theirs.generations.token_logprobs
    ]
    code, last, _, table = verify(token_logprobs=noisy)
    assert (code, last) == (
        0,
        f"the same: {len(table)} numbers within 0.002; 500 of 500 responses alike",
    )
    assert 0 < table.difference.max() < 0.002


def test_a_number_that_differs_by_more_is_named(verify, theirs):
    """Five evaluation rows whose probabilities were altered by hand: exactly what hangs on them
    differs."""
    rows = np.flatnonzero(theirs.generations.split == "evaluation")[:5]
    column = [
        row / 2 - 1 if place in rows else row
        for place, row in enumerate(theirs.generations.token_logprobs)
    ]
    code, last, lines, table = verify(token_logprobs=column)
    beyond = table[~table.within]
    assert code == 1
    count = f"{len(beyond)} of {len(table)}"
    assert last == f"NOT the same: {count} numbers differ by more than 0.002"
    estimators = set(beyond.key.str.split("/").str[2])
    assert {"seq_avg", "seq_joint", "ans_avg", "ans_joint"} <= estimators
    assert "p_true" not in estimators
    assert "MORE than 0.002" in lines[0]


def test_a_response_written_otherwise_is_left_out_and_counted(verify, theirs):
    ids, logprobs = theirs.generations.token_ids, theirs.generations.token_logprobs
    longer, further = list(ids), list(logprobs)
    longer[3] = np.append(ids[3], 7)
    further[3] = logprobs[3] - 1
    code, last, _, table = verify(token_ids=longer, token_logprobs=further)
    assert code == 0
    assert last.endswith("; 499 of 500 responses alike")
    assert (table.difference == 0).all()
    message = "no response in common with what is shipped: these are other models"
    with pytest.raises(UserError, match=message):
        verify(token_ids=[np.append(row, 7) for row in ids])


@pytest.mark.parametrize("fewer, message", [
    ("here", "0 responses are only here, 7 only shipped"),
    ("there", "7 responses are only here, 0 only shipped"),
])  # fmt: skip
def test_responses_that_one_side_lacks_are_not_the_same(theirs, fewer, message):
    rest = replace(theirs, generations=theirs.generations[7:])
    matched = match_rows(rest, theirs) if fewer == "here" else match_rows(theirs, rest)
    alike = pd.DataFrame({"within": [True], "difference": [0.0]})
    assert verification.assess_reproduction(alike, matched) == (False, f"NOT the same: {message}")


def test_what_jumps_after_isotonic_regression_is_listed_and_fails_nothing(theirs):
    keys = [
        "m/d/seq_avg/ece",
        "m/d/ans_avg/ece",
        "m/d/seq_avg/ece/isotonic",
        "m/d/p_true/ece/isotonic",
    ]
    shipped = pd.DataFrame({"table": "tab_x", "key": keys, "value": 0.5})
    ours = shipped.assign(value=[0.5019, 0.5021, 0.54, np.nan])
    table = compare_numbers(ours, shipped).set_index("key").loc[keys]
    assert table.within.tolist() == [True, False, True, False], "a number that is missing fails"
    held, line = verification.assess_reproduction(
        table[table.within].reset_index(), match_rows(theirs, theirs)
    )
    assert held and line.startswith(
        "the same: 2 numbers within 0.002, but for 1 after isotonic regression; "
    )


def test_a_forged_result_of_05_is_noticed(verify, theirs):
    results = recompute_frames(theirs, [10])["result_isotonic"]
    is_forged = (results["method"] == "isotonic") & (results.metric == "ece")
    forged = results.assign(value=results.value.where(~is_forged, 0.001))
    code, last, lines, _ = verify({"result_isotonic": forged})
    assert (code, last) == (1, "NOT the same: 1 of the run's tables are not what its signals give")
    assert lines[-1].startswith("tab_result_isotonic: ")


@pytest.mark.slow
def test_a_run_of_other_kernels_gives_what_is_shipped(tmp_path):
    """Twenty questions of each split, on another path through the processor, against those rows of
    the shipped run; the others are shipped alone."""
    folder = copy_of_project(tmp_path / "a folder")
    edit(
        folder / "params" / "demo.yaml",
        **SMALL | {"datasets": [DATASET], "limit": 20, "dropout_passes": 10},
    )
    process = start(folder, "verify", **OTHER_KERNELS)
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 1
    assert lines[-1] == "verify demo: NOT the same: 0 responses are only here, 460 only shipped"
    assert not any("what the run's" in line for line in lines)
    rows = pd.read_csv(folder / "figures/demo/verify.csv")
    assert len(rows) > 100 and rows.within.all()
