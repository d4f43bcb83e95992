"""The same run under everything that must not matter: cores, batches, shards, folder, link, locale, time zone."""

import re

import numpy as np
import pandas as pd
import pytest
from clone import SMALL, assert_same_tables, copy_of_project, edit, run
from PIL import Image

pytestmark = pytest.mark.slow

PAIR = "tiny-llama__demo-easy"
OTHERWISE = {"rows_per_shard": 100, "max_batch_tokens": 2500, "max_dropout_tokens": 700}
ELSEWHERE = {"TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "COLUMNS": "40"}
PICTURE = r"base64,[A-Za-z0-9+/=]+"
SECONDS = r'(?s)<h2 id="rep_costs">.*?</table>'  # what no two runs share
SHADES = 12  # of 255


@pytest.fixture(scope="module")
def both(alone, tmp_path_factory):
    """The run on one core, and on two, called through a link, with everything else otherwise, too."""
    there = copy_of_project(tmp_path_factory.mktemp("two") / "a folder, far & away")
    edit(there / "params" / "demo.yaml", **(SMALL | OTHERWISE))
    link = there.parent / "link"
    link.symlink_to(there)
    run(link, "--cores", "2", **ELSEWHERE)
    return alone[0], there


def test_tables_are_the_same_bytes(both):
    assert_same_tables(*both)


def test_reports_differ_in_nothing_but_the_shade_of_pixels(both):
    """Batches of another size move a probability by 1e-7, and a line drawn there by a shade that nobody sees."""
    one, other = (re.sub(SECONDS, "", (folder / "figures/demo/report.html").read_text("utf-8")) for folder in both)
    assert re.sub(PICTURE, "", one) == re.sub(PICTURE, "", other) and len(re.findall(PICTURE, one)) >= 5
    pictures = [[p for p in sorted((folder / "figures/demo").iterdir()) if p.suffix == ".png"] for folder in both]
    assert [p.name for p in pictures[0]] == [p.name for p in pictures[1]] and len(pictures[0]) >= 5
    for pair in zip(*pictures, strict=True):
        first, second = (np.asarray(Image.open(path).convert("RGB"), dtype=int) for path in pair)
        assert first.shape == second.shape and np.abs(first - second).max() <= SHADES, pair[0].name


def test_every_token_is_the_same(both):
    one, other = (pd.read_parquet(folder / f"artifacts/demo/generations/{PAIR}.parquet") for folder in both)
    assert len(one) == 24 and one.example_id.tolist() == other.example_id.tolist()
    assert [list(ids) for ids in one.token_ids] == [list(ids) for ids in other.token_ids]
    assert one[["text", "answer", "seed"]].equals(other[["text", "answer", "seed"]])
