"""A loaded network, and batches that fit its budget (many architectures:
tests/field/test_architectures.py; on an accelerator: tests/generate/test_accelerator.py)."""

import json
import shutil

import torch
from architectures import load, plain_logits
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.models import batching
from lib.paths import ROOT


def test_a_loaded_network_draws_no_masks(llama, tmp_path):
    """Though its configuration names a rate of dropout, which is for training."""
    folder = shutil.copytree(ROOT / "demo" / "models" / "tiny-llama", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.5}))
    lm, ids = load("tiny-llama", source=str(folder)), list(range(5, 30))
    assert lm.model.config.attention_dropout == 0.5
    assert torch.equal(plain_logits(lm, ids), plain_logits(llama, ids))


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 4000), st.booleans())
@settings(max_examples=60)
def test_batches_hold_everyone_once_within_the_budget(lengths, budget, equal):
    groups = batching.batch_by_length(lengths, budget, equal=equal)
    places = []
    for group in groups:
        places += group
        of_group = [lengths[place] for place in group]
        assert len(group) == 1 or len(group) * max(of_group) <= budget
        if equal:
            assert len(set(of_group)) == 1
    assert sorted(places) == list(range(len(lengths)))
