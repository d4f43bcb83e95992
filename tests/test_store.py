"""Frames, manifests and shards: whole or not at all, checked when read, resumed where they stopped."""

import json

import numpy as np
import pandas as pd
import pytest

from lib import store
from lib.project import UserError


@pytest.fixture
def artifacts(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "ARTIFACTS", tmp_path)
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "shipped" / "demo")
    return tmp_path


FRAME = pd.DataFrame({"a": [1, 2], "b": [np.arange(3, dtype=np.int32), np.arange(1, dtype=np.int32)]})


def test_a_frame_comes_back_with_its_manifest(artifacts):
    path = store.write(FRAME, artifacts / "x" / "one.parquet", parameters={"seed": 0}, seconds=1.5)
    back = store.read(path)
    assert back.a.tolist() == [1, 2] and back.b[0].tolist() == [0, 1, 2]
    facts = store.manifest(path)
    assert facts["rows"] == 2 and facts["parameters"] == {"seed": 0} and facts["sha256"] == store.sha256(path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["one.json", "one.parquet"]


def test_the_same_frame_is_the_same_bytes(artifacts):
    one, two = (store.write(FRAME, artifacts / f"{name}.parquet") for name in "ab")
    assert one.read_bytes() == two.read_bytes()


def test_a_flipped_byte_is_caught(artifacts):
    path = store.write(FRAME, artifacts / "one.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="not the file its manifest describes"):
        store.read(path)


def test_a_missing_frame_is_one_line(artifacts):
    with pytest.raises(UserError, match="is missing; ./run_all.sh makes it"):
        store.read(artifacts / "none.parquet")


@pytest.mark.parametrize("fact", [float("nan"), float("inf"), {"deep": [float("nan")]}])
def test_nan_never_enters_a_manifest(artifacts, fact):
    with pytest.raises(ValueError, match="Out of range float"):
        store.write(FRAME, artifacts / "one.parquet", fact=fact)


def test_no_path_of_this_machine_enters_a_manifest(artifacts):
    with pytest.raises(ValueError, match="path of this machine"):
        store.write(FRAME, artifacts / "one.parquet", source=str(store.ROOT / "demo"))


def test_an_interrupted_write_leaves_the_old_file(artifacts):
    path = store.write(FRAME, artifacts / "one.parquet")

    def fail(partial):
        partial.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.atomically(path, fail)
    assert store.read(path).a.tolist() == [1, 2] and len(list(artifacts.iterdir())) == 2


def test_the_run_comes_before_the_shipped(artifacts):
    shipped = store.write(FRAME, artifacts / "shipped" / "demo" / "generations" / "m__d.parquet")
    assert store.locate("mine", "generations", "m__d") == shipped
    own = store.write(FRAME, artifacts / "mine" / "generations" / "m__d.parquet")
    assert store.locate("mine", "generations", "m__d") == own
    with pytest.raises(UserError, match="did you mean 'm__d'"):
        store.locate("mine", "generations", "m__e")
    frame, source = store.gather("mine", "generations", ["m"], ["d"])
    assert len(frame) == 2 and source["read from"].tolist() == ["mine/generations"]


def test_shards_resume_after_the_last_whole_one(artifacts):
    done = []

    def work(part, stop_at=None):
        if stop_at in part:
            raise KeyboardInterrupt
        done.extend(part)
        return pd.DataFrame({"x": part})

    shards = store.Shards("mine", "job", 2, {"seed": 0})
    with pytest.raises(KeyboardInterrupt):
        shards.map(lambda part: work(part, stop_at=4), list(range(7)), print)
    assert done == [0, 1, 2, 3]
    lines: list[str] = []
    frame = store.Shards("mine", "job", 2, {"seed": 0}).map(work, list(range(7)), lines.append)
    assert frame.x.tolist() == list(range(7)) and done == list(range(7))
    assert [line.endswith("kept from before") for line in lines] == [True, True, False, False]


def test_shards_of_other_parameters_or_code_are_not_mixed_in(artifacts, monkeypatch):
    one = store.Shards("mine", "job", 2, {"seed": 0}).folder
    assert store.Shards("mine", "job", 2, {"seed": 0}).folder == one
    assert store.Shards("mine", "job", 2, {"seed": 1}).folder != one
    monkeypatch.setattr(store.Shards, "code", "other code")
    assert store.Shards("mine", "job", 2, {"seed": 0}).folder != one


def test_shards_are_forgotten_once_written(artifacts):
    shards = store.Shards("mine", "job", 2, {})
    shards.map(lambda part: pd.DataFrame({"x": part}), [1, 2, 3], print)
    shards.clear()
    assert not shards.folder.exists()


def test_the_meter_counts(artifacts):
    with store.Meter() as meter:
        sum(range(1000))
    facts = meter.facts()
    assert facts["seconds"] >= 0 and facts["peak_memory_mb"] > 10
    json.dumps(facts, allow_nan=False)
