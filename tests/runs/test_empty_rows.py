"""Responses of which little or nothing is there, some in each split, through every notebook: one that ends at once, one
that never stops thinking, one token alone, an answer of one token, none after `####`."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import synthetic
from playing import QUICK, play

from lib import store
from lib.analysis import token_statistics
from lib.generate import models
from lib.paper import response_views
from lib.paths import UserError
from lib.tasks import answers

MODEL, DATASETS = "tiny-llama", ("demo-easy", "demo-medium")
PER_TOKEN = ["kept_positions", "chosen_logit", "top_logits", "top_ids", "tail_curve"]
NO_ANSWER = {"answer": None, "answer_start": -1, "answer_end": -1}
NO_NUMBER = {"last_number_start": -1, "last_number_end": -1}
NOTHING = NO_ANSWER | NO_NUMBER | {"text": ""}
ENDLESS = {"eos": 0, "finish_reason": "length"}
SHORT = {"eos": 0, "answer": "7"}
EXAMPLES = [("empty", "last_number"), ("", "zero"), ("", "drop")]
KINDS = ("empty", "thinking", "alone", "short", "unmarked")
WALK = {"models": [MODEL], "datasets": list(DATASETS), "calibration_sizes": [5, 20], "main_figure_dataset": DATASETS[0],
        "figure_dataset": DATASETS[0], "transfer_models": [], "transfer_datasets": []}  # fmt: skip
FEW = {"model": MODEL, "dataset": DATASETS[0], "limit": 3, "dropout_passes": 2, "n_tuning_examples": 2,
       "dropout_rates": [0.1, 0.2], "example": "", "ablation_limit": 2}  # fmt: skip


def of_kind(kind: str, row: dict) -> dict:
    """A generations row of an answer at its end as if the model had written less."""
    start = row["answer_start"]
    number = {"last_number_start": 0, "last_number_end": 1}
    return {
        "empty": tokens(row, [0]) | NOTHING | {"eos": 1, "finish_reason": "stop"},
        "thinking": tokens(row, range(start)) | NOTHING | ENDLESS | {"thinking_end": start + 1},
        "alone": tokens(row, [start]) | NOTHING | number | {"eos": 0},
        "short": tokens(row, range(start + 1)) | SHORT | {"answer_end": start + 1, "last_number_end": start + 1},
        "unmarked": row | NO_ANSWER,
    }[kind]


def tokens(row: dict, ids) -> dict:
    """The row with these tokens of its response alone; for the last one stand the logits of the answer's first."""
    columns = {name: row[name][list(ids)] for name in ("token_ids", "token_logprobs", "token_logprobs_sampling")}
    return row | columns | {name: row[name][:1] for name in PER_TOKEN} | {"kept_positions": np.array([len(ids) - 1])}


def thinned(dataset: str) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """The shipped responses of a pair with two rows of each kind in each split, and their ids by kind."""
    frame = store.read_frame(store.SHIPPED / "generations" / f"{MODEL}__{dataset}.parquet")
    names: dict[str, list[str]] = {kind: [] for kind in KINDS}
    rows = frame.to_dict("records")
    for split in ("calibration", "evaluation"):
        places = [i for i, row in enumerate(frame.itertuples()) if row.split == split and answers.has_answer(row)]
        for kind, i in zip(2 * KINDS, places, strict=False):
            rows[i] = of_kind(kind, rows[i])
            names[kind].append(rows[i]["example_id"])
    return pd.DataFrame(rows, columns=frame.columns), names


def keep(frame: pd.DataFrame, folder) -> None:
    """A generations frame in `folder`, and the shipped signals of its pair as if they were of these responses."""
    pair = f"{MODEL}__{frame.dataset.iloc[0]}"
    parameters = {"save_texts": True, "demonstration": "none"}
    source = store.write_frame(frame, folder / "generations" / f"{pair}.parquet", parameters=parameters)
    lengths = {row.example_id: np.subtract(*answers.answer_span(row)[::-1]) for row in frame.itertuples()}
    for kind in ("verification", "dropout"):
        path = store.SHIPPED / kind / f"{pair}.parquet"
        part, facts = store.read_frame(path), store.read_manifest(path)
        for column in [name for name in part if name in ("predictive", "conditional") or name.startswith("top_")]:
            cut = zip(part[column], part.example_id.map(lengths), strict=True)
            part[column] = [x[:m] if column == "top_changed" else [of_pass[:m] for of_pass in x] for x, m in cut]
        told = {name: facts[name] for name in ("parameters", "seconds", "rate") if name in facts}
        store.write_frame(part, folder / kind / f"{pair}.parquet", inputs=store.file_checksums([source]), **told)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Of a run: its artifacts."""
    folder = tmp_path / "artifacts" / QUICK["run"]
    monkeypatch.setattr("lib.store.ARTIFACTS", folder.parent)
    return folder


def walk(notebooks, monkeypatch, folder, **parameters) -> dict[str, dict]:
    """What stands in each notebook at its end; a parameter that one does not have is not set there."""
    monkeypatch.setattr("playing.QUICK", QUICK | parameters)
    return {name: play(name, monkeypatch, folder)[0] for name in notebooks}


@pytest.mark.parametrize("missing", ["last_number", "zero"])
def test_each_is_shown_token_by_token(missing):
    frame, names = thinned(DATASETS[0])
    responses = synthetic.responses(frame, missing=missing)
    for kind, ids in names.items():
        one = responses[responses.example_id == ids[-1]].iloc[0]
        view = response_views.view_tokens(frame, one, str, 10_000)
        row = token_statistics.rows_of_example(frame, one).iloc[0]
        assert len(view["tokens"]) == max(1, len(row.token_ids) - row.eos), kind
        assert view["title"].endswith(f"mean probability {np.exp(one.response).mean():.3f}"), kind


@pytest.mark.slow
@pytest.mark.parametrize("kind, missing", EXAMPLES)
def test_every_table_and_figure_is_there(kind, missing, folder, monkeypatch):
    """Where a row of little is the running example; and where a dataset has no answer at all, which stops no other."""
    made = [thinned(dataset) for dataset in DATASETS]
    for place, (frame, _) in enumerate(made):
        keep(frame if kind or place else frame.assign(**NO_ANSWER), folder)
    example = made[0][1][kind][-1] if kind else ""
    spaces = walk(["02", "05", "06", "07", "09", "08"], monkeypatch, folder, **WALK, example=example, missing=missing)
    one, results = spaces["02"]["one"], spaces["08"]["here"].frames["result_estimation"]
    assert set(results.dataset) == set(DATASETS[missing == "drop" :])
    if kind:
        assert {spaces[name]["one"].example_id for name in ("02", "05", "06", "07")} == {example}
        assert results.query("estimator in ['seq_avg', 'ans_avg', 'c_bald', 'p_true']").value.notna().all()
    else:
        assert one.dataset == DATASETS[missing == "drop"] and not one.correct


@pytest.mark.parametrize("name", ["02", "09"])
def test_where_the_reading_leaves_no_row_it_is_said_in_one_line(name, folder, monkeypatch):
    frame, _ = thinned(DATASETS[0])
    keep(frame.assign(**NO_ANSWER), folder)
    with pytest.raises(UserError, match="`missing: drop` leaves out all others; choose last_number or zero"):
        walk([name], monkeypatch, folder, **WALK | {"datasets": [*DATASETS[:1]]}, example="", missing="drop")


def test_a_model_that_says_nothing_is_asked_and_measured(folder, monkeypatch):
    """Every response ends at once, as each token is an end token."""
    load = models.load_language_model
    monkeypatch.setattr(models, "load_language_model", lambda *of: dataclasses.replace(load(*of), eos=[*range(820)]))
    walk(["01", "03", "04", "04b"], monkeypatch, folder, **FEW)
    frame = store.read_frame(folder / "generations" / f"{MODEL}__{DATASETS[0]}.parquet")
    assert (frame.token_ids.map(len) == 1).all() and frame.answer.isna().all() and len(frame) == 6


def test_where_no_tuning_row_has_an_answer_the_lowest_rate_is_taken_and_said(folder, monkeypatch):
    frame, _ = thinned(DATASETS[0])
    silent = frame.assign(**NO_ANSWER)
    keep(frame.where(frame.split == "evaluation", silent).astype(frame.dtypes), folder)
    space = walk(["04"], monkeypatch, folder, **FEW, missing="drop")["04"]
    assert space["rate"] == 0.1
