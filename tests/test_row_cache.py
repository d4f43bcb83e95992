"""A run of more rows keeps those that a smaller one made, and makes the others alone."""

from functools import partial

import pandas as pd
import pytest

from lib import params, random_streams, row_cache, store
from lib.analysis import ablation_statistics
from lib.generate import generation, models, p_true
from lib.paper import footnotes
from lib.params import Dropout, Generation, Verification
from lib.row_cache import RowCache
from lib.score import ablation
from lib.tasks import datasets

SETTINGS = Generation(demonstration="none", max_new_tokens=60, top_logits=8, n_temperature_nodes=4)
PAIR = "tiny-llama__demo-easy"


@pytest.fixture(scope="module")
def lm():
    return models.load_language_model("tiny-llama", params.load_model_config("tiny-llama"))


@pytest.fixture
def places(tmp_path, monkeypatch):
    for module in (store, row_cache):
        monkeypatch.setattr(module, "ARTIFACTS", tmp_path)
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "shipped" / "demo")
    return tmp_path


def facts(lm, **changed):
    settings = generation.with_model_limits(lm.spec, SETTINGS.model_copy(update=changed))
    return {"model": lm.spec.model_dump(), "loaded": lm.facts, "parameters": settings.model_dump()}


def generate(lm, limit, asked=None, **changed):
    """As 01 does it; what was really asked goes to the list `asked`."""
    examples = datasets.load_examples(params.load_dataset_config("demo-easy"))

    def work(part):
        if asked is not None:
            asked.extend(part)
        return generation.generate_responses(lm, "demo-easy", part, SETTINGS.model_copy(update=changed))

    kept = row_cache.find_earlier_responses("mine", PAIR, facts(lm, **changed))
    made = RowCache("mine", "01", facts(lm, **changed), 4, earlier=kept).map(
        work, datasets.select_examples(examples, limit, 0, "demo-easy"), lambda line: None
    )
    return generation.in_dataset_order(made, examples), kept


def keep(frame, lm, folder, code=None, **changed):
    """The frames of a generations frame with verdicts, with their manifests, as 01 writes them."""
    path = store.write_frame(frame.drop(columns=p_true.IN_SITU_COLUMNS), folder / "generations" / f"{PAIR}.parquet",
                       **facts(lm, **changed), **({"code": code} if code else {}))  # fmt: skip
    store.write_frame(frame[[*store.KEYS, *p_true.IN_SITU_COLUMNS]], folder / "in_situ" / f"{PAIR}.parquet",
                generations=store.read_manifest(path)["sha256"], query="?")  # fmt: skip
    return path


def untimed(frame):
    """Without the seconds of a row, of which manifests hold the mean."""
    return frame.drop(columns=[name for name in frame if name.endswith("_seconds")])


@pytest.fixture(params=["shipped/mine", "mine/stale/0123/artifacts/mine"])
def earlier(request, places):
    """Where a smaller run may have left its rows."""
    return places / request.param


def test_only_new_rows_are_made(lm, earlier):
    small, none = generate(lm, 2)
    assert len(none) == 0 and small.split.tolist() == ["calibration"] * 2 + ["evaluation"] * 2
    keep(small, lm, earlier)
    asked: list = []
    large, kept = generate(lm, 5, asked)
    assert len(asked) == 6 and not {e.example_id for e in asked} & set(small.example_id)
    assert len(large) == 10 and set(small.example_id) < set(large.example_id)
    assert kept.attrs["kept_from"]["rows"] == 4
    same = large[large.example_id.isin(small.example_id)].reset_index(drop=True)
    pd.testing.assert_frame_equal(untimed(same), untimed(small), check_like=True)
    whole, _ = generate(lm, 5, seed=0, top_logits=7)  # other parameters: all anew, and the same tokens
    assert [list(x) for x in whole.token_ids] == [list(x) for x in large.token_ids]


HERE, THERE = "cpu, float32", "cpu, bfloat16"


@pytest.mark.parametrize("rows, kept, made_on", [
    (4, None, [HERE]),
    (4, {"rows": 4, "made_on": [THERE]}, [THERE]),  # this machine's own precision made none of them
    (2, {"rows": 4, "made_on": [THERE]}, [THERE]),
    (6, {"rows": 4, "made_on": [THERE]}, [THERE, HERE]),
    (6, {"rows": 4, "made_on": [THERE, HERE]}, [THERE, HERE]),
    (6, {"rows": 4, "device": "cpu", "dtype": "bfloat16"}, [THERE, HERE]),  # as manifests said it before
])  # fmt: skip
def test_rows_are_of_the_machine_that_made_them(rows, kept, made_on):
    facts = {"rows": rows, "loaded": {"device": "cpu", "dtype": "float32", "source": "x/a", "revision": None},
             **({"kept_from": kept} if kept else {})}  # fmt: skip
    assert row_cache.devices_of(facts) == made_on
    assert footnotes.made([("A", facts)]) == [f"Made on {' and '.join(made_on)}: A (x/a)."]


def test_what_a_manifest_says_of_kept_rows_goes_from_run_to_run(lm, places, earlier):
    small, _ = generate(lm, 2)
    other = facts(lm) | {"loaded": lm.facts | {"dtype": "bfloat16"}}
    path = earlier / "generations" / f"{PAIR}.parquet"
    manifest = store.read_manifest(
        store.write_frame(small.drop(columns=p_true.IN_SITU_COLUMNS), path, seconds=8.0, **other)
    )
    store.write_frame(small[[*store.KEYS, *p_true.IN_SITU_COLUMNS]], earlier / "in_situ" / f"{PAIR}.parquet",
                generations=manifest["sha256"])  # fmt: skip
    large, kept = generate(lm, 5)
    assert kept.attrs["kept_from"] == {"rows": 4, "sha256": manifest["sha256"], "made_on": [THERE]}
    path = store.write_frame(
        large.drop(columns=p_true.IN_SITU_COLUMNS), places / "now.parquet", **facts(lm), **kept.attrs
    )
    assert row_cache.devices_of(store.read_manifest(path)) == [THERE, HERE]


@pytest.mark.parametrize("change", ["parameters", "damaged", "verdicts"])
def test_rows_of_another_kind_are_not_kept(lm, earlier, change):
    small, _ = generate(lm, 2)
    path = keep(small, lm, earlier, **({"max_new_tokens": 61} if change == "parameters" else {}))
    if change == "damaged":
        path.write_bytes(path.read_bytes()[:-1])
    if change == "verdicts":
        verdicts = small[[*store.KEYS, *p_true.IN_SITU_COLUMNS]]
        store.write_frame(verdicts, earlier / "in_situ" / f"{PAIR}.parquet", generations="other")
    assert len(row_cache.find_earlier_responses("mine", PAIR, facts(lm))) == 0


def test_imported_responses_are_not_kept(lm, earlier):
    """A log's, set aside once its model is at hand: nothing was loaded when they were read."""
    small, _ = generate(lm, 2)
    path = keep(small, lm, earlier)
    imported = {name: value for name, value in facts(lm).items() if name != "loaded"}
    store.write_frame(small.drop(columns=p_true.IN_SITU_COLUMNS), path, **imported)
    assert len(row_cache.find_earlier_responses("mine", PAIR, facts(lm))) == 0


@pytest.mark.parametrize("made_by, kept", [("0123", 4), ("4567", 0), (None, 0)])
def test_rows_of_other_code_are_not_kept_where_that_counts(lm, earlier, monkeypatch, made_by, kept):
    """Where a profile has what other code made remade: the code that runs is named then."""
    small, _ = generate(lm, 2)
    path = keep(small, lm, earlier, code=made_by)
    about = {**facts(lm), "parameters": Verification().model_dump()}
    verified = p_true.verify_responses(lm, small, Verification())
    place, code = earlier / "verification" / f"{PAIR}.parquet", {"code": made_by} if made_by else {}
    store.write_frame(verified, place, inputs=store.file_checksums([path]), **about, **code)
    assert len(row_cache.find_earlier_responses("mine", PAIR, facts(lm))) == 4, "whatever the code, where none is named"
    monkeypatch.setattr(RowCache, "code", "0123")
    found = row_cache.find_earlier_responses("mine", PAIR, facts(lm))
    assert len(found) == len(row_cache.find_earlier_rows("mine", "verification", PAIR, about, small)) == kept
    assert ("kept_from" in found.attrs) == bool(kept)
    assert RowCache("mine", "01", {}, earlier=found).facts()["code"] == "0123"


def test_what_is_about_responses_is_kept_with_their_tokens(lm, earlier):
    small, _ = generate(lm, 2)
    path = keep(small, lm, earlier)
    about = {**facts(lm), "parameters": Verification().model_dump()}
    verified = p_true.verify_responses(lm, small, Verification())
    place = earlier / "verification" / f"{PAIR}.parquet"
    store.write_frame(verified, place, inputs=store.file_checksums([path]), **about)
    found = row_cache.find_earlier_rows("mine", "verification", PAIR, about, small)
    pd.testing.assert_frame_equal(untimed(found), untimed(verified))
    other = small.assign(token_ids=[small.token_ids[0][:3], *small.token_ids[1:]])
    assert set(row_cache.find_earlier_rows("mine", "verification", PAIR, about, other).example_id) == \
        set(small.example_id[1:])  # fmt: skip
    asked = {**about, "parameters": Verification(standard_prompt="as_drawn").model_dump()}
    assert row_cache.find_earlier_rows("mine", "verification", PAIR, asked, small).empty


def test_rows_about_responses_are_found_by_a_larger_run_after_a_kill(places):
    """Though its file of responses is another; not where a response is another."""
    old = pd.DataFrame({"example_id": ["a", "b"], "prompt_tokens": 5, "token_ids": [[1, 2], [3]]})
    new = pd.DataFrame({"example_id": ["a", "b", "c"], "prompt_tokens": 5, "token_ids": [[1, 2], [4], [5]]})
    made: list = []

    def work(some):
        made.append(some)
        return pd.DataFrame({"example_id": some, "made": len(made)})

    for generations, sha in ((old, "0"), (new, "1")):
        cache = RowCache("mine", "03", {"inputs": {"x": sha}}, generations=generations)
        rows = cache.map(work, generations.example_id.tolist(), lambda line: None)
    assert made == [["a", "b"], ["b", "c"]] and rows.made.tolist() == [1, 2, 2]
    assert list(rows) == ["example_id", "made"]
    assert cache.map(work, ["a", "b", "c"], lambda line: None).equals(rows) and len(made) == 2


def test_questions_that_were_asked_again_stay(lm, earlier):
    """The sample of more rows is another one; those that a smaller run asked come first, and are not asked anew."""
    small, _ = generate(lm, 4)
    path = keep(small, lm, earlier)
    about = {**facts(lm), "parameters": params.Generation(demonstration="none").model_dump()}
    rows, arm = ablation.choose_ablation_rows(small, 2), small.assign(answer="7")
    store.write_frame(ablation.combine_arms(rows, "none", {"one": arm[arm.example_id.isin(rows.example_id)]}),
                earlier / "ablation" / f"{PAIR}.parquet", inputs=store.file_checksums([path]), **about)  # fmt: skip
    larger, _ = generate(lm, 30)
    before = row_cache.find_earlier_rows("mine", "ablation", PAIR, about, larger)
    assert set(before.example_id) == set(rows.example_id) and "kept_from" in before.attrs
    again = ablation.choose_ablation_rows(larger, 4, before=before.example_id)
    assert set(rows.example_id) < set(again.example_id) and len(again) == 4
    assert set(rows.example_id) != set(ablation.choose_ablation_rows(larger, 2).example_id), (
        "by themselves they would be others"
    )
    assert again.example_id.tolist() == [name for name in larger.example_id if name in set(again.example_id)]
    cache = RowCache("mine", "04b", about, known_by=("demonstration", "example_id"), earlier=before)
    asked: list = []
    ask = {"one": lambda some: asked.extend(some) or small[small.example_id == some[0].example_id]}
    items = [("one", example) for example in ablation.examples_of_rows(small[small.example_id.isin(again.example_id)])]
    kept = cache.map(partial(ablation.ask_again, ask), items, lambda line: None)
    assert asked == [example for _, example in items if example.example_id not in set(rows.example_id)]
    assert kept[kept.example_id.isin(rows.example_id)].answer.tolist() == ["7", "7"]
    assert ablation_statistics.responses_to(rows.example_id.iloc[0], {"one": kept}, ["one"]) == {"one": "(not kept)"}


def test_parameters_of_no_row_do_not_matter(lm, places):
    """More memory, or another grid, change no row."""
    more = facts(lm, max_batch_tokens=1000)
    path = store.write_frame(pd.DataFrame({"a": [1]}), places / "x" / "y.parquet", **more)
    was = store.read_manifest(path)
    assert row_cache.made_alike(was, facts(lm)) and not row_cache.made_alike(was, facts(lm, top_logits=9))
    dropout = Dropout().model_dump() | {"dropout_rates": [0.1], "n_tuning_examples": 10}
    path = store.write_frame(pd.DataFrame({"a": [1]}), places / "x" / "z.parquet", **more | {"parameters": dropout})
    was, grid = store.read_manifest(path), {"n_tuning_examples": 40, "dropout_rates": [0.1, 0.2]}
    assert row_cache.made_alike(was, more | {"parameters": dropout | grid})
    assert not row_cache.made_alike(was, more | {"parameters": dropout | {"dropout_passes": 5}})


def test_passes_over_more_rows_begin_with_those_over_fewer():
    """Else a killed run's shards, cut by place, would be gone on with for other rows."""
    names = [(split, f"{split[0]}{i}") for split in ("calibration", "evaluation") for i in range(20)]
    frame = pd.DataFrame(names, columns=["split", "example_id"]).assign(dataset="d")
    more = random_streams.first_places_of_frame(frame, 9, 3)
    assert random_streams.first_places_of_frame(frame, 4, 3) == more[:8] and sorted(
        random_streams.first_places_of_frame(frame, 0, 3)
    ) == list(range(40))
    examples = [datasets.Example(name, split, "q", "1") for split, name in names]
    assert frame.example_id[more].tolist() == [e.example_id for e in datasets.select_examples(examples, 9, 3, "d")]


def test_a_larger_number_of_rows_begins_with_the_smaller():
    examples = datasets.load_examples(params.load_dataset_config("demo-easy"))
    whole = datasets.select_examples(examples, 0, 0, "demo-easy")
    assert sorted(whole) == sorted(examples)
    for count in (1, 3, 50, 250):
        part = datasets.select_examples(examples, count, 0, "demo-easy")
        assert [e for e in whole if e in part] == part
        sizes = {split: sum(e.split == split for e in part) for split in ("calibration", "evaluation")}
        assert sizes == {"calibration": count, "evaluation": min(count, 200)}
    assert datasets.select_examples(examples, 9, 0, "demo-easy")[:6] == datasets.select_examples(
        examples, 3, 0, "demo-easy"
    )
    assert datasets.select_examples(examples, 9, 1, "demo-easy") != datasets.select_examples(
        examples, 9, 0, "demo-easy"
    )


def test_the_demos_models_really_run():
    """Its shipped signals are there, of the same models and parameters, and no row is taken from them."""
    assert store.find_frame("replay", "generations", "tiny-llama__demo-easy").exists()
    assert list(row_cache.earlier_frames("demo", "generations", "tiny-llama__demo-easy")) == []
    assert list(row_cache.earlier_frames("small", "generations", "qwen2.5-coder-1.5b__svamp"))
