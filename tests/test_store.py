"""Frames, manifests and shards: whole or not at all, checked when read, resumed where they stopped."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib import schemas, store
from lib.paths import SHIPPED, UserError
from lib.row_cache import Meter, RowCache


@pytest.fixture
def artifacts(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "ARTIFACTS", tmp_path)
    monkeypatch.setattr("lib.row_cache.ARTIFACTS", tmp_path)
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "shipped" / "demo")
    return tmp_path


def shards(job, rows=2, facts=None):
    return RowCache("mine", job, facts or {}, rows, known_by=("x",))


FRAME = pd.DataFrame({"a": [1, 2], "b": [np.arange(3, dtype=np.int32), np.arange(1, dtype=np.int32)]})


def row_of(kind, **values):
    """A row of a kind whose other values are missing."""
    return pd.DataFrame({name: [None] for name in schemas.empty_frame(kind)} | values)


def test_a_frame_comes_back_with_its_manifest(artifacts):
    path = store.write_frame(FRAME, artifacts / "x" / "one.parquet", parameters={"seed": 0}, seconds=1.5)
    back = store.read_frame(path)
    assert back.a.tolist() == [1, 2] and back.b[0].tolist() == [0, 1, 2]
    facts = store.read_manifest(path)
    assert facts["rows"] == 2 and facts["parameters"] == {"seed": 0} and facts["sha256"] == store.sha256(path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["one.json", "one.parquet"]


def test_the_same_frame_is_the_same_bytes(artifacts):
    one, two = (store.write_frame(FRAME, artifacts / f"{name}.parquet") for name in "ab")
    assert one.read_bytes() == two.read_bytes()


def test_a_flipped_byte_is_caught(artifacts):
    path = store.write_frame(FRAME, artifacts / "one.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="not the file its manifest describes"):
        store.read_frame(path)


def test_a_missing_frame_is_one_line(artifacts):
    with pytest.raises(UserError, match="is missing; ./run_all.sh makes it"):
        store.read_frame(artifacts / "none.parquet")


@pytest.mark.parametrize("fact", [float("nan"), float("inf"), {"deep": [float("nan")]}])
def test_nan_never_enters_a_manifest(artifacts, fact):
    with pytest.raises(ValueError, match="Out of range float"):
        store.write_frame(FRAME, artifacts / "one.parquet", fact=fact)


def test_no_path_of_this_machine_enters_a_manifest(artifacts):
    with pytest.raises(ValueError, match="path of this machine"):
        store.write_frame(FRAME, artifacts / "one.parquet", source=str(store.ROOT / "demo"))


def test_an_interrupted_write_leaves_the_old_file(artifacts):
    path = store.write_frame(FRAME, artifacts / "one.parquet")

    def fail(partial):
        partial.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write_atomically(path, fail)
    assert store.read_frame(path).a.tolist() == [1, 2] and len(list(artifacts.iterdir())) == 2


def committed(monkeypatch) -> list[list]:
    """Files that are renamed from now on, each on the disk before and listed there after; and what was synced since."""
    steps, names = [], []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (steps.append(os.fstat(number).st_ino), sync(number)))

    def renamed(source, target):
        assert steps[-1] == Path(source).stat().st_ino and (not names or Path(names[-1]).parent.stat().st_ino in steps)
        names.append(str(target))
        steps.clear()
        replace(source, target)

    monkeypatch.setattr(os, "replace", renamed)
    return [names, steps]


def test_what_is_committed_outlives_a_loss_of_power(artifacts, monkeypatch):
    """Frames, manifests and shards: the bytes are on the disk before the name, and then the name is."""
    names, steps = committed(monkeypatch)
    store.write_frame(FRAME, artifacts / "one.parquet")
    shards("job").map(lambda part: pd.DataFrame({"x": part}), [1, 2, 3], print)
    assert [Path(name).name[:6] for name in names] == ["one.pa", "one.js", "00000-", "00002-"]
    assert steps == [Path(names[-1]).parent.stat().st_ino]


@pytest.mark.parametrize("manifest", ["", "[]", "null", "{}", '{"sha256": "%s", "rows": 3}', "[" * 5000])
def test_a_manifest_that_does_not_describe_its_frame(artifacts, manifest):
    """What was shipped is brought back by git, and what a run made by a run."""
    for place, cure in (("mine", "remove it and run again"), ("shipped/demo", "`git ")):  # of a long line
        path = store.write_frame(FRAME, artifacts / place / "things" / "m__d.parquet")
        path.with_suffix(".json").write_text(manifest.replace("%s", store.sha256(path)))
        with pytest.raises(UserError, match=f"m__d.(json|parquet) is not .*; {cure}"):
            store.read_frame(path)


def test_the_run_comes_before_the_shipped(artifacts):
    shipped = store.write_frame(FRAME, artifacts / "shipped" / "demo" / "things" / "m__d.parquet")
    assert store.find_frame("lab", "things", "m__d") == shipped
    own = store.write_frame(FRAME, artifacts / "lab" / "things" / "m__d.parquet")
    assert store.find_frame("lab", "things", "m__d") == own
    with pytest.raises(UserError, match="nor are they shipped; did you mean 'm__d'"):
        store.find_frame("lab", "things", "m__e")
    frame, source = store.load_frames("lab", "things", ["m"], ["d"])
    assert len(frame) == 2 and source["read from"].tolist() == ["lab/things"]


def test_what_is_shipped_serves_replays_and_the_lab_alone(artifacts):
    """The run of a model that makes no passes at the answer has none, though the demo ships some of the same pair."""
    row = row_of("dropout_answer")
    demo, small = (store.write_frame(row, artifacts / "shipped" / name / "dropout_answer" / f"{pair}.parquet")
                   for name, pair in (("demo", "m__d"), ("small", "n__d")))  # fmt: skip
    for run in ("traj", "demo", "small", "laboratory"):
        assert store.find_pairs(run, "dropout_answer", ["m__d", "n__d"]) == []
        assert store.load_frames(run, "dropout_answer", ["m", "n"], ["d"], may_lack=True)[0].empty
        with pytest.raises(UserError, match=f"run '{run}' has no .*what is shipped serves 'lab' and replays alone"):
            store.find_frame(run, "dropout_answer", "m__d")
    for run in ("lab", "lab-2", "replay", "replay-demo"):
        assert store.find_frame(run, "dropout_answer", "m__d") == demo
        assert store.find_pairs(run, "dropout_answer", ["m__d", "n__d"]) == ["m__d"]
    assert store.find_frame("replay-small", "dropout_answer", "n__d") == small
    assert store.find_pairs("replay-small", "dropout_answer", ["m__d", "n__d"]) == ["n__d"], "nothing of the demo"


@pytest.mark.parametrize("run", ["../../x", "..", "", "/tmp/x", "shipped/demo", "shipped", "a/b", ".models", None, 7])
def test_a_run_has_a_folder_of_its_own(artifacts, run):
    """Said before any work: where frames are looked for, where they are kept, and where shards are."""
    for ask in (lambda: store.frame_path(run, "things", "m__d"), lambda: RowCache(run, "job", {})):
        with pytest.raises(UserError, match=r"^run .* can't be a folder in artifacts/"):
            ask()
    if run != "shipped":  # whose frames are read by that name, and never written
        with pytest.raises(UserError, match=r"^run .* can't be a folder in artifacts/"):
            store.load_frames(run, "things", ["m"], ["d"])


def test_shards_resume_after_the_last_whole_one(artifacts):
    done = []

    def work(part, stop_at=None):
        if stop_at in part:
            raise KeyboardInterrupt
        done.extend(part)
        return pd.DataFrame({"x": part})

    cache = shards("job", facts={"seed": 0})
    with pytest.raises(KeyboardInterrupt):
        cache.map(lambda part: work(part, stop_at=4), list(range(7)), print)
    assert done == [0, 1, 2, 3]
    lines: list[str] = []
    frame = shards("job", facts={"seed": 0}).map(work, list(range(7)), lines.append)
    assert frame.x.tolist() == list(range(7)) and done == list(range(7))
    assert [line.endswith("kept from before") for line in lines] == [True, True, False, False]


@pytest.mark.parametrize("before, after", [(4, 2), (2, 4), (3, 2), (2, 3), (2, 100)])
def test_shards_may_become_smaller_or_larger_on_the_way(artifacts, before, after):
    """Every item is there once and in order, and what a kept shard begins with is not made again."""
    done = []

    def work(part, stop_at=None):
        if stop_at in part:
            raise KeyboardInterrupt
        done.extend(part)
        return pd.DataFrame({"x": part})

    with pytest.raises(KeyboardInterrupt):
        shards("job", before).map(lambda part: work(part, stop_at=9), list(range(11)), print)
    kept = len(done)
    frame = shards("job", after).map(work, list(range(11)), print)
    assert frame.x.tolist() == list(range(11)) and len(done) - kept < 11


def test_shards_of_other_parameters_or_code_are_not_mixed_in(artifacts, monkeypatch):
    one = shards("job", facts={"seed": 0}).folder
    assert shards("job", facts={"seed": 0}).folder == one
    assert shards("job", facts={"seed": 1}).folder != one
    monkeypatch.setattr(RowCache, "code", "other code")
    assert shards("job", facts={"seed": 0}).folder != one


def test_shards_are_forgotten_once_written(artifacts):
    cache = shards("job")
    cache.map(lambda part: pd.DataFrame({"x": part}), [1, 2, 3], print)
    cache.clear()
    assert not cache.folder.exists()


def test_shards_of_a_run_wait_for_its_record(artifacts, monkeypatch):
    """Else a run killed after the last cell would do all of it again."""
    monkeypatch.setattr(RowCache, "record", "0123")
    cache = shards("job")
    shards("nothing").clear()
    cache.map(lambda part: pd.DataFrame({"x": part}), [1, 2, 3], print)
    cache.clear()
    assert (cache.folder / "written").read_text() == "0123" and len(list(cache.folder.glob("*.parquet"))) == 2
    assert cache.map(None, [1, 2, 3], print).x.tolist() == [1, 2, 3], "they are gone on with"


def zeroed(path):
    pd.read_parquet(path).assign(x=0).to_parquet(path, index=False)


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [
    zeroed, flipped,
    lambda path: path.write_bytes(path.read_bytes()[:-20]),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(next(path.parent.parent.glob("another-0/00002-*")).read_bytes()),
    lambda path: (path.unlink(), path.mkdir()),
    lambda path: path.rename(path.with_name("00002-0000000000000000.parquet")),
])  # fmt: skip
def test_a_damaged_shard_is_set_aside_by_name_and_computed_again(artifacts, damage):
    made: list = []

    def work(part):
        made.extend(part)
        return pd.DataFrame({"x": part})

    items = list(range(1, 7))
    for job, rows in (("another", items[::-1]), ("job", items)):
        shards(job).map(work, rows, print)
    cache = shards("job")
    other = shards("another").folder
    other.rename(other.with_name("another-0"))
    (path,) = cache.folder.glob("00002-*")
    made.clear()
    damage(path)
    lines: list[str] = []
    assert cache.map(work, items, lines.append).x.tolist() == items
    assert made == [3, 4]
    (said,) = [line for line in lines if "damaged" in line]
    (aside,) = cache.folder.glob("*.damaged")
    assert said.startswith("shard from 2:") and aside.name.removesuffix(".damaged") in said
    assert len(list(cache.folder.glob("*.parquet"))) == 3


def test_a_shorter_and_a_larger_run_find_the_same_rows(artifacts):
    """What one made, the other takes over; and a shorter one does not forget what the larger one left."""
    made = []

    def work(part):
        made.extend(part)
        return pd.DataFrame({"x": part})

    cache = shards("job", 3)
    assert shards("job", 3).map(work, [1, 2], print).x.tolist() == [1, 2]
    assert cache.map(work, [1, 2, 3, 4], print).x.tolist() == [1, 2, 3, 4] and made == [1, 2, 3, 4]
    shorter = shards("job", 3)
    assert shorter.map(None, [2, 1], print).x.tolist() == [2, 1]
    shorter.clear()
    assert cache.map(None, [1, 2, 3, 4], print).x.tolist() == [1, 2, 3, 4]
    cache.clear()
    assert not cache.folder.exists()


def test_a_larger_run_that_is_killed_takes_its_shards_back_from_those_to_be_forgotten(artifacts, monkeypatch):
    monkeypatch.setattr(RowCache, "record", "0123")
    cache = shards("job")
    cache.map(lambda part: pd.DataFrame({"x": part}), [1], print)
    cache.clear()
    cache.map(lambda part: pd.DataFrame({"x": part}), [1, 2, 3], print)
    assert not (cache.folder / "written").exists()


def test_shards_are_forgotten_though_an_earlier_run_left_more(artifacts):
    earlier = pd.DataFrame({"x": [7, 8, 9]})
    cache = RowCache("mine", "job", {}, 2, known_by=("x",), earlier=earlier)
    assert cache.map(lambda part: pd.DataFrame({"x": part}), [1, 8, 2], print).x.tolist() == [1, 8, 2]
    assert cache.folder.exists()
    cache.clear()
    assert not cache.folder.exists()


def test_rows_may_be_known_by_several_columns(artifacts):
    cache = RowCache("mine", "job", {}, 3, known_by=("x", "rate"))
    items = [(x, rate) for rate in (0.1, 0.2) for x in "abc"]
    assert len(cache.map(lambda part: pd.DataFrame(part, columns=["x", "rate"]), items[:4], print)) == 4
    made = []
    rows = cache.map(lambda part: made.extend(part) or pd.DataFrame(part, columns=["x", "rate"]), items[::-1], print)
    assert list(rows.itertuples(index=False, name=None)) == items[::-1] and sorted(made) == items[4:]


def test_shards_of_the_version_before_are_gone_on_with(artifacts, monkeypatch):
    """Their key held the whole of the parameters, and of the record that the run waits for."""
    monkeypatch.setattr(RowCache, "record", "0123")
    monkeypatch.setattr(RowCache, "earlier_record", "0123")
    facts = {"model": {"label": "A", "source": "x"}, "parameters": {"seed": 0, "max_batch_tokens": 5}}
    old = [{"model": facts["model"] | {"mirror": [], "size": None}, "parameters": {"seed": 0}}, {"more": 1}]
    folder = artifacts / "mine" / "shards" / f"job-{store.digest(old, '0123')[:16]}"
    folder.mkdir(parents=True)
    path = folder / "scratch"
    pd.DataFrame({"x": [1, 2]}).to_parquet(path, index=False)
    path.rename(folder / f"00000-{store.digest(folder.name, 0, store.sha256(path))[:16]}.parquet")
    cache = RowCache("mine", "job", facts, 2, more=[{"more": 1}], known_by=("x",))
    assert cache.map(None, [1, 2], print).x.tolist() == [1, 2] and cache.folder != folder
    cache.clear()
    assert (folder / "written").read_text() == "0123"


def test_the_meter_counts(artifacts):
    with Meter() as meter:
        sum(range(1000))
    facts = meter.facts()
    assert facts["seconds"] >= 0 and facts["peak_memory_mb"] > 10
    json.dumps(facts, allow_nan=False)


def test_signals_of_other_responses_are_refused(artifacts, monkeypatch):
    """New responses of the lab beside the shipped verdicts, made from others: one line that names the ways back, where
    they would be shown, and none elsewhere. What a run may lack it then lacks."""
    monkeypatch.setattr(store, "ROOT", artifacts)
    rows = {key: ["x"] for key in store.KEYS} | {"in_situ_logits": [np.zeros(6)], "in_situ_logz": [0.5]}
    frame, shipped = pd.DataFrame(rows | {"in_situ_seconds": [0.1]}), artifacts / "shipped" / "demo"
    for pair in ("m__d", "m__e"):
        old = store.write_frame(row_of("generations"), shipped / "generations" / f"{pair}.parquet")
        inputs = {f"artifacts/demo/generations/{old.name}": store.sha256(old)}
        store.write_frame(frame, shipped / "in_situ" / f"{pair}.parquet", inputs=inputs)
    store.write_frame(CURVES, shipped / "calibration" / "curves.parquet", inputs={"m__d": store.sha256(old)[:12]})
    assert len(store.load_frames("lab", "in_situ", ["m"], ["d", "e"])[0]) == 2
    assert len(store.read_pairs("lab", "calibration", "curves", ["m"], ["d"])) == 1
    store.write_frame(row_of("generations", seed=[9]), artifacts / "lab" / "generations" / "m__d.parquet")
    message = (
        "^shipped/demo/in_situ/m__d.parquet was made from other responses than lab/generations/m__d.parquet: "
        r"run 01_generate for run 'lab' first, or delete artifacts/lab/\*/m__d\.\*$"
    )
    with pytest.raises(UserError, match=message):
        store.load_frames("lab", "in_situ", ["m"], ["d", "e"])
    assert len(store.load_frames("lab", "in_situ", ["m"], ["e"])[0]) == 1
    assert store.find_pairs("lab", "in_situ", ["m__d", "m__e"]) == ["m__e"]
    assert len(store.load_frames("lab", "in_situ", ["m"], ["d", "e"], may_lack=True)[0]) == 1
    with pytest.raises(UserError, match="run 06_sample_efficiency for run 'lab' first, or delete"):
        store.read_pairs("lab", "calibration", "curves", ["m"], ["d"])
    new = artifacts / "lab" / "generations" / "m__d.parquet"
    inputs = {"x/m__d.parquet": store.sha256(new)}
    store.write_frame(frame, artifacts / "lab" / "in_situ" / "m__d.parquet", inputs=inputs)
    assert len(store.load_frames("lab", "in_situ", ["m"], ["d", "e"])[0]) == 2
    for path in artifacts.glob("lab/*/m__d.*"):
        path.unlink()
    assert len(store.load_frames("lab", "in_situ", ["m"], ["d", "e"])[0]) == 2, "the way back"


def test_seconds_stand_in_the_manifest_and_make_no_two_files_differ(artifacts):
    """A row's seconds are never those of another run; they are read back as their mean."""
    rows = {key: ["x", "y"] for key in store.KEYS} | {"in_situ_logits": [np.zeros(6)] * 2, "in_situ_logz": [0.5, 1]}
    frame, place = pd.DataFrame(rows), artifacts / "in_situ" / "m__d.parquet"
    sums = set()
    for seconds in ([0.1, 0.3], [0.5, 0.6]):
        store.write_frame(frame.assign(in_situ_seconds=seconds), place)
        sums.add(store.sha256(place))
        means = store.read_manifest(place)["row_seconds"]
        assert means == {"in_situ_seconds": pytest.approx(np.mean(seconds))}
        assert store.read_frame(place).in_situ_seconds.tolist() == [means["in_situ_seconds"]] * 2
    store.write_frame(frame.assign(in_situ_seconds=np.nan), place)
    assert len(sums | {store.sha256(place)}) == 1 and "row_seconds" not in store.read_manifest(place)
    assert "in_situ_seconds" not in store.read_frame(place)


def test_frames_that_hold_seconds_themselves_are_read(artifacts):
    """As they were written before."""
    rows = {key: ["x"] for key in store.KEYS} | {"in_situ_logits": [np.zeros(6)], "in_situ_logz": [0.5]}
    frame = pd.DataFrame(rows | {"in_situ_seconds": [0.25]})
    place = store.write_frame(frame, artifacts / "in_situ" / "m__d.parquet")
    frame.to_parquet(place, index=False)
    facts = {name: fact for name, fact in store.read_manifest(place).items() if name != "row_seconds"}
    place.with_suffix(".json").write_text(json.dumps(facts | {"sha256": store.sha256(place)}))
    assert store.read_frame(place).in_situ_seconds.tolist() == [0.25]


# ---- the columns, described once

CURVES = pd.DataFrame(
    {
        "model": ["m"],
        "dataset": ["d"],
        "sampling": ["uniform"],
        "method": [""],
        "n": [5],
        "draw": [0],
        "ece": [0.1],
        "one_class": [False],
    }
)


VERDICTS = pd.DataFrame(
    {key: ["x", "y"] for key in store.KEYS} | {"in_situ_logits": [np.zeros(6)] * 2, "in_situ_logz": 0.5}
)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda f: f.drop(columns="in_situ_logz"), "has no column 'in_situ_logz'; it is not what 01_generate writes"),
        (lambda f: f.rename(columns={"split": "part"}), "has no column 'split'"),
        (
            lambda f: f.assign(in_situ_logs=1),
            "'in_situ_logs' that lib/schemas.py does not describe; did you",
        ),
        (lambda f: f.assign(in_situ_logz="5"), "column 'in_situ_logz' is large_string, not double"),
        (lambda f: f.assign(in_situ_logits=0.5), r"'in_situ_logits' is double, not list<.*float>"),
        (lambda f: f.assign(in_situ_logits=[[np.zeros(6)]] * 2), r"'in_situ_logits' is list<.*list<.*>, not list<.*>"),
    ],
)
def test_a_frame_is_held_against_its_schema_when_it_is_written(artifacts, change, message):
    place = artifacts / "in_situ" / "m__d.parquet"
    assert (
        store.read_frame(store.write_frame(VERDICTS, place))
        .drop(columns="in_situ_logits")
        .equals(VERDICTS.drop(columns="in_situ_logits"))
    )
    before = place.read_bytes()
    with pytest.raises(UserError, match=message):
        store.write_frame(change(VERDICTS), place)
    assert place.read_bytes() == before


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda f: f.assign(in_situ_logz="5"), "column 'in_situ_logz' is large_string, not double"),
        (lambda f: f.assign(in_situ_logits=0.5), r"'in_situ_logits' is double, not list<.*float>"),
        (lambda f: f.assign(in_situ_logits=[[np.zeros(6)]] * 2), r"'in_situ_logits' is list<.*list<.*>, not list<.*>"),
        (lambda f: f.drop(columns="split"), "has no column 'split'"),
        (lambda f: f.assign(more=1), "has a column 'more'"),
    ],
)
def test_a_frame_is_held_against_its_schema_when_it_is_read(artifacts, change, message):
    """As an earlier version, or another hand, may have written it."""
    place = store.write_frame(VERDICTS, artifacts / "in_situ" / "m__d.parquet")
    change(VERDICTS).to_parquet(place, index=False)
    facts = store.read_manifest(place) | {"sha256": store.sha256(place)}
    place.with_suffix(".json").write_text(json.dumps(facts))
    with pytest.raises(UserError, match=message):
        store.read_frame(place)


def test_columns_say_what_they_mean_in_the_file(artifacts):
    place = store.write_frame(VERDICTS, artifacts / "in_situ" / "m__d.parquet")
    assert b"after the query" in pq.read_schema(place).field("in_situ_logits").metadata[b"meaning"]


def test_an_optional_column_may_lack_and_texts_that_are_not_kept_are_of_their_type(artifacts, monkeypatch):
    more = [*schemas.SCHEMAS["in_situ"], schemas.column("spread_*", schemas.NUMBER, "nats", optional=True)]
    monkeypatch.setitem(schemas.SCHEMAS, "in_situ", pa.schema(more))
    place = artifacts / "in_situ" / "m__d.parquet"
    assert "spread_1" not in store.read_frame(store.write_frame(VERDICTS, place))
    store.write_frame(VERDICTS.assign(spread_1=1.0, dataset=None), place)
    assert store.read_frame(place).spread_1.tolist() == [1.0, 1.0]
    assert pq.read_schema(place).field("dataset").type == pa.large_string()


@pytest.mark.skipif(not SHIPPED.exists(), reason="the shipped demo signals are not in this copy")
def test_every_shipped_frame_is_as_described():
    kinds = set()
    for path in SHIPPED.glob("*/*.parquet"):
        store.read_frame(path)
        kinds |= {path.parent.name} & set(schemas.SCHEMAS)
    assert kinds == set(schemas.SCHEMAS) and kinds <= set(schemas.WRITERS)


def test_unfinished_work_goes_on_under_another_budget_and_on_another_card(artifacts):
    """And not in another precision, with another kernel of attention, off the GPU, or under another choice."""

    def folder(device="NVIDIA H100", dtype="bfloat16", attention="sdpa", **parameters):
        facts = {
            "loaded": {"device": device, "dtype": dtype, "attention": attention},
            "parameters": {"max_batch_tokens": 100, "max_dropout_tokens": 100, "rows_per_shard": 9, "top_k": 5}
            | parameters,
        }
        return RowCache("run", "job", facts, more=[{"other": 1}]).folder

    first = folder()
    assert first == folder(device="NVIDIA H200") == folder(max_batch_tokens=50) == folder(max_dropout_tokens=7)
    assert first == folder(rows_per_shard=4)
    others = [folder(device="cpu"), folder(dtype="float32"), folder(attention="eager"), folder(top_k=6)]
    assert len({first, *others}) == 5
