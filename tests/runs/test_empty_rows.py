"""Responses of which little or nothing is there, through every notebook: of a model that ends at
once, that ends somewhere in the middle of some responses, or that never ends."""

import dataclasses

import pytest
from playing import QUICK, play

from lib import store
from lib.errors import UserError
from lib.models import loading

HEAVY, LIGHT = ["01", "03", "04", "04b"], ["02", "05", "06", "07", "09", "08"]
FEW = {
    "limit": 12, "dropout_passes": 2, "n_tuning_examples": 2, "dropout_rates": [0.1, 0.2],
    "ablation_limit": 2, "calibration_sizes": [5], "max_new_tokens": 60, "example": "",
    "transfer_models": [], "transfer_datasets": [],
    "model": "tiny-llama", "models": ["tiny-llama"],
    "dataset": "demo-easy", "datasets": ["demo-easy"],
    "main_figure_dataset": "demo-easy", "figure_dataset": "demo-easy",
}  # fmt: skip
ENDS = {  # the tokens that end a response, beside those that end it as a rule
    "at once": lambda tokens, usual: [*tokens.values()],
    "at a seven": lambda tokens, usual: [*usual, tokens["7"]],
    "never": lambda tokens, usual: [tokens["<|begin_of_text|>"]],
}


@pytest.fixture
def walk(tmp_path, monkeypatch):
    """A function that plays notebooks of a run whose model ends in some way, and returns the names
    that each has at its end."""
    folder = tmp_path / "artifacts" / QUICK["run"]
    load = loading.load_language_model
    monkeypatch.setattr("lib.store.ARTIFACTS", folder.parent)

    def play_all(notebooks, ends, **parameters):
        def ending(*words):
            lm = load(*words)
            return dataclasses.replace(lm, eos=ENDS[ends](lm.tokenizer.get_vocab(), lm.eos))

        monkeypatch.setattr(loading, "load_language_model", ending)
        monkeypatch.setattr("playing.QUICK", QUICK | FEW | parameters)
        return {number: play(number, monkeypatch, folder).names for number in notebooks}

    return play_all


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["last_number", "zero"])
@pytest.mark.parametrize("ends", ENDS)
def test_every_table_and_figure_is_there(walk, ends, missing):
    names = walk(HEAVY + LIGHT, ends, missing=missing)
    frame = names["01"]["frame"]
    lengths = frame.token_ids.map(len)
    if ends == "at once":
        assert max(lengths) == 1
    elif ends == "never":
        assert min(lengths) == 60
    else:
        assert lengths.nunique() > 5
    assert frame.answer.isna().any()
    assert ends == "at a seven" or not names["02"]["followed"].correct
    estimation = names["08"]["here"].frames["result_estimation"]
    errors = estimation[(estimation.metric == "ece") & (estimation.estimator != "")]
    assert len(errors) > 5
    assert errors.value.notna().all()


def test_a_model_that_says_nothing_is_asked_and_measured_and_to_leave_all_out_is_one_line(walk):
    walk(HEAVY, "at once", limit=3)
    path = store.find_frame(QUICK["run"], "generations", "tiny-llama__demo-easy")
    frame = store.read_frame(path)
    assert frame.token_ids.map(len).tolist() == [1] * 6
    assert frame.answer.isna().all()
    message = "`missing: drop` leaves out all others; choose last_number or zero"
    for number in ("02", "09"):
        with pytest.raises(UserError, match=message):
            walk([number], "at once", missing="drop")
