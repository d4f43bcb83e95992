"""Finished rows in shards: found again after a kill and by a larger run, noticed where damaged, never mixed."""

import pandas as pd
import pytest

from lib.row_cache import RowCache

pytestmark = pytest.mark.usefixtures("artifacts")


def shards(job="job", rows=2, facts=None, **more):
    return RowCache("mine", "generations", job, facts or {}, rows, known_by=("x",), **more)


class Work:
    """Makes rows of numbers, and remembers of which; killed at the number `stop`."""

    def __init__(self, stop=None):
        self.done, self.stop = [], stop

    def __call__(self, part):
        if self.stop in part:
            raise KeyboardInterrupt
        self.done.extend(part)
        return pd.DataFrame({"x": part})


@pytest.mark.parametrize("before, after", [(2, 2), (4, 2), (2, 3), (2, 100)])
def test_a_killed_run_goes_on_where_it_stopped(before, after):
    """Under other sizes of shards, too: every item is there once and in order, and what was saved is not made again."""
    killed, work = Work(stop=9), Work()
    with pytest.raises(KeyboardInterrupt):
        shards(rows=before).map(killed, list(range(11)))
    frame = shards(rows=after).map(work, list(range(11)))
    assert frame.x.tolist() == list(range(11)) and work.done == [8, 9, 10]


def test_a_shorter_and_a_larger_run_find_the_same_rows():
    """What one made, the other takes over; and a shorter one does not forget what the larger one left."""
    work, larger = Work(), shards(rows=3)
    shards(rows=3).map(work, [1, 2])
    assert larger.map(work, [1, 2, 3, 4]).x.tolist() == [1, 2, 3, 4] == work.done
    shorter = shards(rows=3)
    assert shorter.map(None, [2, 1]).x.tolist() == [2, 1]
    shorter.clear()
    assert larger.map(None, [1, 2, 3, 4]).x.tolist() == [1, 2, 3, 4]
    larger.clear()
    assert not larger.folder.exists()


def test_shards_are_of_the_same_facts_and_code(monkeypatch):
    """Under another budget of memory and on another card they are gone on with; not in another precision, with another
    kernel of attention, off the GPU, under another choice, or by other code where that is named."""

    def folder(device="NVIDIA H100", dtype="bfloat16", attention="sdpa", **parameters):
        parameters = {"max_batch_tokens": 100, "max_dropout_tokens": 100, "rows_per_shard": 9, "top_k": 5} | parameters
        loaded = {"device": device, "dtype": dtype, "attention": attention}
        return RowCache("run", "dropout", "job", {"loaded": loaded, "parameters": parameters}, more=["a"]).folder

    first = folder()
    assert first == folder(device="NVIDIA H200") == folder(max_batch_tokens=50) == folder(max_dropout_tokens=7)
    assert first == folder(rows_per_shard=4)
    others = [folder(device="cpu"), folder(dtype="float32"), folder(attention="eager"), folder(top_k=6)]
    monkeypatch.setattr(RowCache, "code", "other code")
    assert len({first, *others, folder()}) == 6


def test_shards_of_a_run_wait_for_its_record(monkeypatch):
    """Else a run killed after the last cell would do all of it again; a larger run takes them back from those to be
    forgotten."""
    monkeypatch.setattr(RowCache, "record", "0123")
    cache = shards()
    shards("nothing").clear()
    cache.map(Work(), [1, 2, 3])
    cache.clear()
    assert (cache.folder / "written").read_text() == "0123" and len(list(cache.folder.glob("*.parquet"))) == 2
    assert cache.map(None, [1, 2, 3]).x.tolist() == [1, 2, 3], "they are gone on with"
    cache.map(Work(), [1, 2, 3, 4, 5])
    assert not (cache.folder / "written").exists()


@pytest.mark.parametrize("damage", [
    lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(next(path.parent.parent.glob("*another-*/00002-*")).read_bytes()),
    lambda path: (path.unlink(), path.mkdir()),
    lambda path: path.rename(path.with_name("00002-0000000000000000.parquet")),
])  # fmt: skip
def test_a_damaged_shard_is_set_aside_by_name_and_computed_again(damage, capsys):
    items, work = list(range(1, 7)), Work()
    shards("another").map(Work(), items[::-1])
    cache = shards()
    cache.map(Work(), items)
    (path,) = cache.folder.glob("00002-*")
    damage(path)
    assert cache.map(work, items).x.tolist() == items and work.done == [3, 4]
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "damaged" in line]
    (aside,) = cache.folder.glob("*.damaged")
    assert said.startswith("shard from 2:") and aside.name.removesuffix(".damaged") in said


def test_rows_about_responses_are_found_by_a_larger_run_after_a_kill():
    """Though its file of responses is another; not where a response is another."""
    old = pd.DataFrame({"example_id": ["a", "b"], "prompt_tokens": 5, "token_ids": [[1, 2], [3]]})
    new = pd.DataFrame({"example_id": ["a", "b", "c"], "prompt_tokens": 5, "token_ids": [[1, 2], [4], [5]]})
    made: list = []

    def work(some):
        made.append(some)
        return pd.DataFrame({"example_id": some, "made": len(made)})

    for generations, sha in ((old, "0"), (new, "1")):
        cache = RowCache("mine", "verification", "m__d", {"inputs": {"x": sha}}, generations=generations)
        rows = cache.map(work, generations.example_id.tolist())
    assert made == [["a", "b"], ["b", "c"]] and rows.made.tolist() == [1, 2, 2]
    assert list(rows) == ["example_id", "made"]
    assert cache.map(work, ["a", "b", "c"]).equals(rows) and len(made) == 2
