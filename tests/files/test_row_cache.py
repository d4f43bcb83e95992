"""Finished rows in shards: found again after a kill and by a larger run, noticed where damaged,
never mixed."""

import itertools
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import pandas as pd
import psutil
import pytest
import shared_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib import params, row_cache, store
from lib.files import digest
from lib.paths import ROOT
from lib.responses.formats import Response
from lib.row_cache import RowCache, digest_responses, measured_facts
from lib.tasks import datasets

pytestmark = pytest.mark.usefixtures("artifacts")


def shards(job="job", rows=2, facts=None):
    return RowCache("mine", "generations", job, facts or {}, rows)


class Work:
    """Makes rows of numbers, a second each, and remembers of which; killed at the number `stop`."""

    seconds = 0.0

    def __init__(self, stop=None, beside=lambda: None):
        self.done, self.stop, self.beside = [], stop, beside

    def __call__(self, part):
        if self.stop in part:
            raise KeyboardInterrupt
        if not self.done:
            self.beside()
        self.done.extend(part)
        Work.seconds += len(part)
        return pd.DataFrame({"x": part})


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(row_cache.time, "monotonic", lambda: Work.seconds)


ITEMS = st.lists(st.integers(0, 9), max_size=10, unique=True)
# asked for, rows of a shard, killed at
KILLED_AT = st.none() | st.integers(0, 9)
RUNS = st.tuples(ITEMS, st.integers(1, 4), KILLED_AT)
DAMAGE = st.sampled_from([b"", b"PAR1", b"x" * 3000])
NUMBER = itertools.count()


@given(st.lists(RUNS | DAMAGE, max_size=8))
@settings(max_examples=60, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)
def test_a_killed_run_goes_on_where_it_stopped(clock, steps):
    """Runs of other items and sizes, killed or not, and damaged shards between them: every row that
    was asked for is there, in its order, and with its time; what was saved is not made again, and
    what was lost or damaged is, once."""
    job = f"job {next(NUMBER)}"
    saved = set()
    for step in steps:
        if isinstance(step, bytes):
            for path in sorted(shards(job).folder.glob("*.parquet"))[:1]:
                with suppress(ValueError, OSError):  # damaged before
                    saved -= {*pd.read_parquet(path).x}
                path.write_bytes(step)
            continue
        items, rows, stop = step
        missing = [item for item in items if item not in saved]
        expected = []
        for start in range(0, len(missing), rows):
            part = missing[start : start + rows]
            if stop in part:
                break
            expected += part
        work, cache = Work(stop), shards(job, rows)
        try:
            frame = cache.map(work, items)
        except KeyboardInterrupt:
            assert stop in missing
        else:
            assert stop not in missing
            assert frame["x" if items else frame.columns[0]].tolist() == items
            assert measured_facts(cache, cache).get("seconds", 0) == 2 * len(items)
        assert work.done == expected
        saved |= {*work.done}


def test_two_processes_on_one_folder_lose_and_double_nothing():
    """One makes other parts of the rows while the other makes its first. Of no items there is a
    frame without rows."""

    def work_beside():
        shards(rows=3).map(Work(), [3, 1, 2, 0, 4])

    both = shards(rows=2).map(Work(beside=work_beside), range(5))
    assert both.x.tolist() == [0, 1, 2, 3, 4]
    assert shards().map(None, [4, 2]).x.tolist() == [4, 2]
    assert list(shards("none").map(None, [])) == store.stored_columns.SCHEMAS["generations"].names


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Start a process that makes the rows of one frame (shared_rows.py)."""
    processes = []

    def start(seconds):
        words = [sys.executable, shared_rows.__file__, tmp_path, str(seconds)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


WHOLE = digest([number * number for number in range(60)])


def ended(process):
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return output.splitlines()[-1].split()[0]


def begun(tmp_path):
    """The process and the first row of each shard that was begun."""
    path = tmp_path / "made"
    lines = path.read_text().splitlines() if path.exists() else []
    return [tuple(map(int, line.split())) for line in lines]


def test_three_processes_share_the_rows_of_a_frame(tmp_path, begin):
    """Each shard is made by one of them, and all have the same frame."""
    processes = [begin(0.3) for _ in range(3)]
    assert {ended(process) for process in processes} == {WHOLE}
    makers, firsts = zip(*begun(tmp_path), strict=True)
    assert sorted(firsts) == list(range(0, 60, 3))
    assert len({*makers}) == 3
    left = {path.suffix for path in tmp_path.rglob("shards/*/*")}
    assert left == {".parquet"}, "no lock is left"


@pytest.mark.slow
def test_of_three_processes_any_may_be_killed_at_any_moment(tmp_path, begin):
    """Ten times, each replaced by another: nothing that was saved is made again, and no more than
    the shard of a killed one is begun twice."""
    choose = random.Random(0)
    running = [begin(0.4) for _ in range(3)]
    lost = 0
    for _ in range(10):
        time.sleep(choose.uniform(0.1, 1.5))
        place = choose.randrange(3)
        saved = {path.name for path in tmp_path.rglob("*.parquet")}
        lost += running[place].poll() is None
        running[place].kill()
        running[place] = begin(0.4)
        assert saved <= {path.name for path in tmp_path.rglob("*.parquet")}
    assert {ended(process) for process in running} == {WHOLE}
    times = Counter(first for _, first in begun(tmp_path))
    assert times.keys() == {*range(0, 60, 3)}
    assert sum(times.values()) - 20 <= lost


def test_shards_are_of_the_same_facts_and_code(monkeypatch):
    """Under another budget of memory and on another card they are gone on with; not in another
    precision, with another kernel of attention, off the GPU, under another choice, or by other code
    where that is named. Where nothing tells that an edit of a module has made them old, they go."""

    def folder(device="NVIDIA H100", dtype="bfloat16", attention="sdpa", **parameters):
        loaded = {"device": device, "dtype": dtype, "attention": attention}
        parameters = {"max_batch_tokens": 100, "rows_per_shard": 9, "top_k": 5} | parameters
        facts = {"model": {"label": "A", "dtype": "auto"}, "inputs": {"x": "0"}}
        facts |= {"loaded": loaded, "parameters": parameters}
        return shards(facts=facts).folder

    same = [
        {"device": "NVIDIA H200"},
        {"max_batch_tokens": 50, "max_dropout_tokens": 7, "rows_per_shard": 4},
        {"dropout_rates": [0.3], "new": None},
    ]
    others = [{"device": "cpu"}, {"dtype": "float32"}, {"attention": "eager"}, {"top_k": 6}]
    first = folder()
    for changed in same:
        assert folder(**changed) == first
    folders = {folder(**changed) for changed in others}
    assert len({first, *folders}) == 1 + len(others)
    for code, remains in (("0123", True), ("", True), (None, False)):
        monkeypatch.setattr(RowCache, "code", code)
        cache = shards()
        cache.map(Work(), [1, 2, 3])
        assert measured_facts(cache).get("code", "") == (code or "") and (folder() == first) == (
            not code
        )
        cache.clear()
        assert cache.folder.exists() == remains, code


RESPONSES = pd.DataFrame(
    {
        "example_id": ["a", "b"],
        "question": ["1 + 1?", "1 + 2?"],
        "prompt_tokens": 5,
        "token_ids": [[1, 2], [3]],
        "answer_start": 0,
        "answer_end": 1,
        "last_number_start": 0,
        "last_number_end": 1,
        "thinking_end": 0,
        "in_situ_logits": [[0.25], [0.5]],
    }
)


@pytest.mark.parametrize(
    "column, other",
    [
        ("question", "2 + 1?"),
        ("prompt_tokens", 6),
        ("token_ids", [4]),
        ("answer_start", -1),
        ("answer_end", 2),
        ("last_number_end", 2),
        ("thinking_end", 1),
        ("in_situ_logits", [0.75]),
    ],
)
def test_rows_about_a_response_are_made_again_where_it_is_another(column, other):
    """Whatever else the run has: a larger one keeps the others."""
    larger = pd.concat([RESPONSES, RESPONSES.head(1).assign(example_id="c")], ignore_index=True)
    larger[column] = [larger[column][0], other, larger[column][2]]
    batches = []
    for place, responses in enumerate((RESPONSES, larger, larger.assign(answer="7"))):
        work = Work()
        shards(facts={"inputs": {"x": place}}).map(
            work, responses.example_id.tolist(), digest_responses(responses)
        )
        batches.append(work.done)
    assert batches == [["a", "b"], ["b", "c"], []]


def test_rows_are_of_their_question_and_of_the_response_that_a_file_gives():
    """Though the run's data and its file of responses are named as before. Responses to others
    change nothing."""
    first = datasets.Example("a", "evaluation", "1 + 1?", "2")
    other_question = first._replace(question="1 + 2?")
    other_reference = first._replace(reference="3")
    two, three = (Response(example_id="a", text=text) for text in "23")

    def made_for(example, responses):
        work = Work()
        shards().map(work, [example], responses)
        return work.done

    for example in (first, other_question, other_reference):
        assert made_for(example, {}) == [example]
    assert made_for(first, {"a": two}) == [first]
    assert made_for(first, {"a": three}) == [first]
    assert made_for(first, {"b": two}) == []
    for example in (first, other_question, other_reference):
        assert made_for(example, {}) == []


def test_a_larger_number_of_rows_begins_with_the_smaller():
    """Else a larger run would make rows that it already has. The splits take turns, as far as there
    are some."""
    examples = datasets.load_examples(params.load_dataset_config("demo-easy"))
    whole = datasets.select_examples(examples, 0, 0, "demo-easy")
    for count in (1, 3, 50, 250):
        part = datasets.select_examples(examples, count, 0, "demo-easy")
        assert [example for example in whole if example in part] == part
        assert whole[: len(part)] == part or count > 200
        rows = Counter(example.split for example in part)
        assert rows == {"calibration": count, "evaluation": min(count, 200)}
    assert datasets.select_examples(examples, 9, 1, "demo-easy") != whole[:18]


def test_the_peak_of_memory_is_in_megabytes():
    """At least what the process holds now, and not a hundred times that."""
    now = psutil.Process().memory_info().rss / 1e6
    assert 0.98 * now < measured_facts()["peak_memory_mb"] < 100 * now
