"""The same run under everything that must not matter: cores, batches, shards, folder, link, locale, time zone."""

import pandas as pd
import pytest
from clone import copy_of_project, edit, run, tables

pytestmark = pytest.mark.slow

MODEL, DATASET = "tiny-qwen", "demo-easy"
SMALL = {"models": [MODEL], "datasets": [DATASET], "limit": 12, "dropout_tuning": 5, "dropout_passes": 3,
         "resamples": 100, "draws": 2, "calibration_sizes": [5], "ablation_rows": 2}  # fmt: skip
PLAIN = {"shard_rows": 100}
OTHERWISE = {"shard_rows": 5, "batch_tokens": 2500, "dropout_tokens": 700}
ELSEWHERE = {"TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "COLUMNS": "40"}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The run on one core, and on two, called through a link, with everything else otherwise, too."""
    here = copy_of_project(tmp_path_factory.mktemp("one") / "project")
    edit(here / "params" / "demo.yaml", **SMALL, **PLAIN)
    run(here, "--cores", "1", TZ="UTC", LC_ALL="C")
    there = copy_of_project(tmp_path_factory.mktemp("two") / "a folder, far & away")
    edit(there / "params" / "demo.yaml", **SMALL, **OTHERWISE)
    link = there.parent / "link"
    link.symlink_to(there)
    run(link, "--cores", "2", **ELSEWHERE)
    return here, there


def test_tables_and_figures_are_the_same_bytes(both):
    one, other = (tables(folder) for folder in both)
    assert one.keys() == other.keys() and len(one) > 12
    assert [name for name in one if one[name] != other[name]] == []
    pictures = [{p.name: p.read_bytes() for p in (folder / "figures/demo").iterdir() if p.suffix in (".png", ".html")}
                for folder in both]  # fmt: skip
    assert pictures[0].keys() == pictures[1].keys() and len(pictures[0]) >= 5
    assert [name for name in pictures[0] if pictures[0][name] != pictures[1][name]] == []


def test_every_token_is_the_same(both):
    one, other = (pd.read_parquet(folder / f"artifacts/demo/generations/{MODEL}__{DATASET}.parquet") for folder in both)
    assert len(one) == 24 and one.example_id.tolist() == other.example_id.tolist()
    assert [list(ids) for ids in one.token_ids] == [list(ids) for ids in other.token_ids]
    assert one[["text", "answer", "seed"]].equals(other[["text", "answer", "seed"]])
