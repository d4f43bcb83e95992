"""Frames and manifests: whole or not at all, checked when read, the run's own before the
shipped."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from lib import store, stored_columns
from lib.errors import UserError
from lib.files import sha256, write_atomically
from lib.paths import ROOT
from lib.row_cache import RowCache

FRAME = pd.DataFrame(
    {"a": [1, 2], "b": [np.arange(3, dtype=np.int32), np.arange(1, dtype=np.int32)]}
)
CURVES = pd.DataFrame(
    {"model": ["m"], "dataset": ["d"], "sampling": ["uniform"], "n": [5], "ece": [0.1]}
)
VERDICTS = pd.DataFrame(
    {key: ["x", "y"] for key in store.KEYS}
    | {"in_situ_logits": [np.zeros(6)] * 2, "in_situ_logz": 0.5}
)


def row_of(kind, **values):
    """A row of a kind whose other values are missing."""
    return pd.DataFrame({name: [None] for name in stored_columns.empty_frame(kind)} | values)


# ---- files


def test_an_interrupted_write_leaves_the_old_file(artifacts):
    path = store.write_frame(FRAME, artifacts / "one.parquet")
    with pytest.raises(ZeroDivisionError):
        write_atomically(path, lambda partial: partial.write_text("half") / 0)
    assert store.read_frame(path).a.tolist() == [1, 2]
    assert len(list(artifacts.iterdir())) == 2, "the frame and its manifest"


@pytest.mark.parametrize(
    "place, cure", [("mine", "remove it and run again"), ("shipped/demo", "`git ")]
)
@pytest.mark.parametrize("manifest", ["", "[]", "{}", "[" * 5000, '{"sha256": "%s", "columns": []}',
                                      '{"sha256": "0", "rows": 2}'])  # fmt: skip
def test_a_manifest_that_does_not_describe_its_frame(artifacts, manifest, place, cure):
    """What was shipped is brought back by git, and what a run made by a run."""
    path = store.write_frame(FRAME, artifacts / place / "things" / "m__d.parquet")
    path.with_suffix(".json").write_text(manifest.replace("%s", sha256(path)))
    with pytest.raises(UserError, match=f"m__d.(json|parquet) is missing, .*: {cure}"):
        store.read_frame(path)


# ---- where frames are looked for


def ship(artifacts, profile, pair):
    path = artifacts / "shipped" / profile / "dropout" / f"{pair}.parquet"
    return store.write_frame(row_of("dropout"), path)


@pytest.mark.parametrize("run", ["lab", "lab-2", "replay", "replay-demo", "replay-small"])
def test_what_is_shipped_serves_replays_and_the_lab(artifacts, run):
    """The run of a model that makes no passes has none, though the demo ships some of the same
    pair."""
    shipped = {"m__d": ship(artifacts, "demo", "m__d"), "n__d": ship(artifacts, "small", "n__d")}
    pair = "n__d" if run == "replay-small" else "m__d"
    assert store.find_pairs(run, "dropout", ["m__d", "n__d"]) == [pair]
    assert store.find_frame(run, "dropout", pair) == shipped[pair]
    frame = store.load_frames(run, "dropout", ["m"], ["d"], may_lack=True)[0]
    assert frame.empty == (run == "replay-small")
    message = f"run '{run}' has no dropout 'm__e' in .*/{run}.*; did you mean '{pair}'"
    with pytest.raises(UserError, match=message):
        store.find_frame(run, "dropout", "m__e")


@pytest.mark.parametrize("run", ["traj", "demo", "small", "laboratory"])
def test_and_no_other_run(artifacts, run):
    ship(artifacts, "demo", "m__d")
    ship(artifacts, "small", "n__d")
    assert store.find_pairs(run, "dropout", ["m__d", "n__d"]) == []
    assert store.load_frames(run, "dropout", ["m"], ["d"], may_lack=True)[0].empty
    message = f"run '{run}' has no dropout 'm__e' in .*/{run}.*; there is: nothing"
    with pytest.raises(UserError, match=message):
        store.find_frame(run, "dropout", "m__e")


@pytest.mark.parametrize(
    "run", ["../../x", "..", "", "/tmp/x", "shipped/demo", "shipped", "a/b", ".models", None, 7]
)
def test_a_run_has_a_folder_of_its_own(artifacts, run):
    """Said before any work: where frames are looked for, where they are kept, and where shards
    are."""
    for ask in (
        lambda: store.frame_path(run, "things", "m__d"),
        lambda: RowCache(run, "in_situ", "m__d", {}),
    ):
        with pytest.raises(UserError, match=r"^run .* can't be a folder in artifacts/"):
            ask()


def test_signals_of_other_responses_are_refused(artifacts, monkeypatch):
    """New responses of the lab beside the shipped verdicts, made from others: one line that names
    the ways back, where they would be shown, and none elsewhere. What a run may lack it then
    lacks."""
    monkeypatch.setattr(store, "ROOT", artifacts)  # where manifests name files from
    shipped, lab = artifacts / "shipped" / "demo", artifacts / "lab"

    def rows(*datasets, **how):
        return len(store.load_frames("lab", "in_situ", ["m"], datasets, **how)[0])

    for pair in ("m__d", "m__e"):
        old = sha256(
            store.write_frame(row_of("generations"), shipped / "generations" / f"{pair}.parquet")
        )
        store.write_frame(
            VERDICTS,
            shipped / "in_situ" / f"{pair}.parquet",
            inputs={f"generations/{pair}.parquet": old},
        )
    store.write_frame(CURVES, shipped / "calibration" / "curves.parquet", inputs={"m__d": old[:12]})
    assert rows("d", "e") == 4
    new = sha256(
        store.write_frame(row_of("generations", eos=[1]), lab / "generations" / "m__d.parquet")
    )
    message = (
        "m__d.parquet was made from other responses than .*m__d.parquet: "
        "run 01_generate for run 'lab' first, or del"
    )
    with pytest.raises(UserError, match=message):
        rows("d", "e")
    with pytest.raises(UserError, match="run 06_sample_efficiency for run 'lab' first, or delete"):
        store.read_pairs("lab", "calibration", "curves", ["m"], ["d"])
    assert rows("e") == rows("d", "e", may_lack=True) == 2
    store.write_frame(VERDICTS, lab / "in_situ" / "m__d.parquet", inputs={"x/m__d.parquet": new})
    assert rows("d", "e") == 4


# ---- the columns, described once


@pytest.mark.parametrize("changed, message", [
    ({"in_situ_logs": 1}, "in_situ_logs not as 01_generate writes it .*: run that again"),
    ({"in_situ_logz": "five"}, "column in_situ_logz with type str"),
    ({"in_situ_logits": [[np.zeros(6)]] * 2}, "column in_situ_logits with type object"),
])  # fmt: skip
def test_a_frame_is_held_against_its_schema(artifacts, changed, message):
    """When it is written, which leaves the old one."""
    place = store.write_frame(VERDICTS, artifacts / "in_situ" / "m__d.parquet")
    with pytest.raises(UserError, match=message):
        store.write_frame(VERDICTS.assign(**changed), place)
    assert store.read_frame(place).in_situ_logz.equals(VERDICTS.in_situ_logz)


ORDER = """
import json, sys, yaml
load = yaml.safe_load
if sys.argv[1] == "reversed":
    yaml.safe_load = lambda text: dict(reversed(load(text).items()))
from lib import stored_columns
from lib.paper import booktabs
kinds = {kind: schema.names for kind, schema in stored_columns.SCHEMAS.items()}
texts = [booktabs.PAPER_CAPTIONS, booktabs.CAPTIONS, booktabs.CHOICES]
columns = [stored_columns.KEYS, kinds, stored_columns.OF_RESPONSE, stored_columns.WRITERS]
print(json.dumps([*columns, texts]))
"""


def test_the_order_of_the_parts_of_a_data_file_means_nothing():
    read = [
        subprocess.check_output([sys.executable, "-c", ORDER, how], cwd=ROOT)
        for how in ("as it is", "reversed")
    ]
    assert json.loads(read[0]) == json.loads(read[1])
