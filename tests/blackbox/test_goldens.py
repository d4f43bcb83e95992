"""Everything that a run's user sees is what it was: words, numbers, verdicts, frames, notebooks."""

import json

import goldens
import pytest

# How far numbers may move, for last digits are the processor's: those of a model that was run, and those of an optimum.
# Of an optimum the records alone hold so many.
NEAR = {"demo": 2e-3, "notebooks": 2e-3}
NEAR_RECORD = 1e-5


def part(texts, records):
    return {name: text for name, text in texts.items() if name.startswith("rep_") == records}


def same(name, found):
    kept, changed = goldens.read(name), []
    for records in (False, True):
        near = NEAR.get(name, NEAR_RECORD if records else 0)
        changed += goldens.differences(part(kept, records), part(found, records), near)
    goldens.same(changed, f"goldens.py {name}")


@pytest.mark.slow
def test_a_run_without_a_model(tmp_path):
    """Every byte of its tables and macros; its records, its report, each claim with verdict, count and reason."""
    same("replay-small", goldens.make("replay-small", tmp_path))


@pytest.mark.slow
def test_the_replay_of_what_was_unpacked_from_the_archive(replayed):
    same("replay", goldens.of_run(replayed, "replay"))


@pytest.mark.slow
def test_a_small_demo(alone):
    """Every frame, cell by cell, with its manifest; and the tables that come of them."""
    same("demo", goldens.small_demo(alone[0]))


@pytest.mark.slow
def test_every_notebook_as_it_stands(tmp_path):
    same("notebooks", goldens.make("notebooks", tmp_path))


def test_a_number_a_line_and_a_file_are_seen():
    kept = {"a": "x | 0.5\ny | 0.25", "b": "z"}
    assert goldens.differences(kept, kept) == []
    assert goldens.differences(kept, kept | {"a": "x | 0.5001\ny | 0.25"}, 2e-3) == []
    changed = ["a: 2 lines differ", "-x | 0.5", "+x | 0.51"]
    assert goldens.differences(kept, kept | {"a": "x | 0.51\ny | 0.25"}, 2e-3) == changed
    assert goldens.differences(kept, {"a": "x | 0.5"}) == ["a: 1 lines differ", "-y | 0.25", "b: is gone"]


def test_what_is_printed_in_pieces_is_one(tmp_path):
    """A kernel sends what a cell prints whenever its clock strikes; the numbers of a line are masked by itself."""
    line = "medium-0355 wrong\nin {} s: 12\n".format
    pieces = [line(0.3)], line(0.4).splitlines(keepends=True), [line(1)[:7], line(1)[7:]]
    path, found = tmp_path / "a.ipynb", set()
    for texts in pieces:
        printed = [{"output_type": "stream", "name": "stdout", "text": text} for text in texts]
        path.write_text(json.dumps({"cells": [{"outputs": printed}]}))
        found.add(goldens.shown(path))
    assert found == {"medium-0355 wrong\nin N s: N"}
