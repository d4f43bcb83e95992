"""A run of more rows keeps those that an earlier one left, shipped or set aside, and makes the others alone. What the
model of the demo made, as it is shipped, stands for the model."""

from collections import Counter
from functools import cache

import pandas as pd
import pytest

from lib import earlier_rows, params, random_streams, store
from lib.paper import footnotes
from lib.params import Verification
from lib.paths import SHIPPED
from lib.row_cache import RowCache
from lib.score import ablation
from lib.tasks import datasets

PAIR = "tiny-llama__demo-easy"
HERE, THERE = "cpu, float32", "cpu, bfloat16"


@pytest.fixture(params=["shipped/mine", pytest.param("mine/stale/0123/artifacts/mine", marks=pytest.mark.slow)])
def earlier(request, artifacts):
    """Where a smaller run may have left its rows."""
    return artifacts / request.param


@cache
def made(kind):
    """All rows of a kind, without their seconds."""
    return store.read_frame(SHIPPED / kind / f"{PAIR}.parquet").filter(regex="(?<!_seconds)$")


def respond(names):
    """The model's responses to some questions, with its verdicts."""
    frame = made("generations").merge(made("in_situ"), on=store.KEYS)
    return frame[frame.example_id.isin(names)].reset_index(drop=True)


def first(count):
    """The responses to so many questions of each split."""
    return respond(random_streams.first_rows(made("generations"), count, 0).example_id)


def facts(kind="generations", **changed):
    told = store.read_manifest(SHIPPED / kind / f"{PAIR}.parquet")
    return {part: told[part] | changed.get(part, {}) for part in ("model", "loaded", "parameters")}


def find(generations=None, kind="generations", about=None):
    return RowCache("mine", kind, PAIR, about or facts(kind), generations=generations).earlier


def keep(frame, folder, **told):
    """The frames of responses with verdicts, as 01 writes them."""
    path = folder / "generations" / f"{PAIR}.parquet"
    store.write_frame(frame.drop(columns=made("in_situ").columns.difference(store.KEYS)), path, **told)
    verdicts = frame[made("in_situ").columns]
    store.write_frame(verdicts, folder / "in_situ" / path.name, generations=store.sha256(path))
    return path


def keep_verified(path, **told):
    """What 03 writes of responses that are kept."""
    rows = made("verification")
    rows = rows[rows.example_id.isin(store.read_frame(path).example_id)].reset_index(drop=True)
    place = path.parent.parent / "verification" / path.name
    store.write_frame(rows, place, inputs=store.file_checksums([path]), **facts("verification"), **told)
    return rows


def test_only_new_rows_are_made(earlier):
    """And the manifest says where the others were made."""
    small, large, asked = first(2), first(5), []
    path = keep(small, earlier, **facts(loaded={"dtype": "bfloat16"}))
    cache = RowCache("mine", "generations", PAIR, facts(), 4)
    rows = cache.map(lambda names: asked.extend(names) or respond(names), large.example_id.tolist())
    assert len(asked) == 6 and {*asked} == {*large.example_id} - {*small.example_id}
    pd.testing.assert_frame_equal(rows, large, check_like=True)
    assert cache.facts()["kept_from"] == {"rows": 4, "sha256": store.sha256(path), "made_on": [THERE]}


@pytest.mark.parametrize("rows, kept, made_on", [
    (4, None, [HERE]),
    (4, {"rows": 4, "made_on": [THERE]}, [THERE]),  # this machine's own precision made none of them
    (6, {"rows": 4, "made_on": [THERE, HERE]}, [THERE, HERE]),
    (6, {"rows": 4, "device": "cpu", "dtype": "bfloat16"}, [THERE, HERE]),  # as manifests said it before
])  # fmt: skip
def test_rows_are_of_the_machine_that_made_them(rows, kept, made_on):
    loaded = {"device": "cpu", "dtype": "float32", "source": "x/a", "revision": None}
    (note,) = footnotes.provenance_notes([("A", {"rows": rows, "loaded": loaded, "kept_from": kept})])
    assert note == f"Made on {' and '.join(made_on)}: A (x/a)."


def test_rows_of_another_kind_are_not_kept(earlier):
    """Nor those of a log, set aside once its model is at hand: nothing was loaded when they were read."""
    small = first(2)
    imported = {part: fact for part, fact in facts().items() if part != "loaded"}
    for told, count in ((facts(parameters={"max_new_tokens": 61}), 0), (imported, 0), (facts(), 4)):
        path = keep(small, earlier, **told)
        assert len(find()) == count
    store.write_frame(made("in_situ"), earlier / "in_situ" / path.name, generations="other")
    assert find().empty, "verdicts on other responses"
    keep(small, earlier, **facts()).write_bytes(b"")
    assert find().empty, "damaged"


@pytest.mark.parametrize("made_by, kept", [("0123", 4), ("4567", 0), (None, 0)])
def test_rows_of_other_code_are_not_kept_where_that_counts(earlier, monkeypatch, made_by, kept):
    """Where a profile has what other code made remade: the code that runs is named then."""
    small, code = first(2), {"code": made_by} if made_by else {}
    keep_verified(keep(small, earlier, **facts(), **code), **code)
    assert len(find()) == 4, "whatever the code, where none is named"
    monkeypatch.setattr(RowCache, "code", "0123")
    assert len(find()) == len(find(small, "verification")) == kept
    assert RowCache("mine", "generations", PAIR, facts()).facts()["code"] == "0123"


def test_what_is_about_responses_is_kept_with_their_tokens(earlier):
    small = first(2)
    verified = keep_verified(keep(small, earlier, **facts()))
    pd.testing.assert_frame_equal(find(small, "verification"), verified)
    other = small.assign(token_ids=[small.token_ids[0][:3], *small.token_ids[1:]])
    assert set(find(other, "verification").example_id) == set(small.example_id[1:])
    asked = Verification(standard_prompt="as_drawn").model_dump()
    assert find(small, "verification", facts("verification", parameters=asked)).empty


def test_questions_that_were_asked_again_stay(earlier):
    """The sample of more rows is another one; those that a smaller run asked come first, and are not asked anew."""
    small, larger, about, asked = first(4), first(14), facts("ablation"), []
    rows = ablation.choose_ablation_rows(small, 2)
    first_asked = {*rows.example_id}
    arms = ablation.combine_arms(rows, "none", {"one": rows.assign(answer="7")})
    inputs = store.file_checksums([keep(small, earlier, **facts())])
    store.write_frame(arms, earlier / "ablation" / f"{PAIR}.parquet", inputs=inputs, **about)
    cache = RowCache("mine", "ablation", PAIR, about, known_by=("demonstration", "example_id"), generations=larger)
    again = ablation.choose_ablation_rows(larger, 4, before=cache.earlier.example_id)
    assert first_asked < {*again.example_id} and len(again) == 4
    assert first_asked != {*ablation.choose_ablation_rows(larger, 2).example_id}, "by themselves others"
    names = again.example_id.tolist()
    kept = cache.map(lambda some: asked.extend(some) or respond(some), names, demonstration="one")
    assert {*asked} == {*names} - first_asked
    assert kept[kept.example_id.isin(first_asked)].answer.tolist() == ["7", "7"]


def test_parameters_of_no_row_do_not_matter():
    """More memory, or another grid, change no row."""
    was, more = facts(), {"max_batch_tokens": 1000, "n_tuning_examples": 40, "dropout_rates": [0.2]}
    assert earlier_rows.made_alike(was, facts(parameters=more))
    assert not earlier_rows.made_alike(was, facts(parameters={"top_logits": 9}))


def test_a_larger_number_of_rows_begins_with_the_smaller():
    """Else a killed run's shards would be gone on with for other rows."""
    examples = datasets.load_examples(params.load_dataset_config("demo-easy"))
    whole = datasets.select_examples(examples, 0, 0, "demo-easy")
    assert sorted(whole) == sorted(examples)
    for count in (1, 3, 50, 250):
        part = datasets.select_examples(examples, count, 0, "demo-easy")
        assert whole[: len(part)] == part or count > 200, "the splits take turns"
        assert [e for e in whole if e in part] == part
        assert Counter(e.split for e in part) == {"calibration": count, "evaluation": min(count, 200)}
    assert datasets.select_examples(examples, 9, 1, "demo-easy") != whole[:18]


def test_the_demos_models_really_run():
    """Though shipped signals are there, of the same models and parameters, no row is taken from them."""
    assert list(earlier_rows.earlier_frames("demo", "generations", PAIR)) == []
    assert list(earlier_rows.earlier_frames("small", "generations", "qwen2.5-coder-1.5b__svamp"))
