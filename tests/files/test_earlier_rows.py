"""A run of more rows keeps those that an earlier one left, shipped or set aside, and makes the others alone."""

from functools import partial

import pandas as pd
import pytest

from lib import earlier_rows, params, random_streams, row_cache, store
from lib.analysis import ablation_statistics
from lib.generate import generation, models, p_true
from lib.paper import footnotes
from lib.params import Dropout, Generation, Verification
from lib.row_cache import RowCache
from lib.score import ablation
from lib.tasks import datasets

SETTINGS = Generation(demonstration="none", max_new_tokens=60, top_logits=8, n_temperature_nodes=4)
PAIR = "tiny-llama__demo-easy"
HERE, THERE = "cpu, float32", "cpu, bfloat16"


@pytest.fixture(scope="module")
def lm():
    return models.load_language_model("tiny-llama", params.load_model_config("tiny-llama"))


@pytest.fixture(params=["shipped/mine", pytest.param("mine/stale/0123/artifacts/mine", marks=pytest.mark.slow)])
def earlier(request, tmp_path, monkeypatch):
    """Where a smaller run may have left its rows."""
    for module in (store, row_cache, earlier_rows):
        monkeypatch.setattr(module, "ARTIFACTS", tmp_path)
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "shipped" / "demo")
    return tmp_path / request.param


def facts(lm, **changed):
    settings = generation.with_model_limits(lm.spec, SETTINGS.model_copy(update=changed))
    return {"model": lm.spec.model_dump(), "loaded": lm.facts, "parameters": settings.model_dump()}


def find(lm):
    return RowCache("mine", "generations", PAIR, facts(lm), 4).earlier


def generate(lm, limit, asked=None):
    """As 01 does it; what was really asked goes to the list `asked`."""
    examples = datasets.load_examples(params.load_dataset_config("demo-easy"))

    def work(part):
        if asked is not None:
            asked.extend(part)
        return generation.generate_responses(lm, "demo-easy", part, SETTINGS)

    cache = RowCache("mine", "generations", PAIR, facts(lm), 4)
    rows = cache.map(work, datasets.select_examples(examples, limit, 0, "demo-easy"))
    return generation.in_dataset_order(rows, examples), cache.facts()


def keep(frame, folder, **told):
    """The frames of a generations frame with verdicts, with their manifests, as 01 writes them."""
    path = folder / "generations" / f"{PAIR}.parquet"
    store.write_frame(frame.drop(columns=p_true.IN_SITU_COLUMNS), path, **told)
    store.write_frame(
        frame[[*store.KEYS, *p_true.IN_SITU_COLUMNS]],
        folder / "in_situ" / f"{PAIR}.parquet",
        generations=store.read_manifest(path)["sha256"],
    )
    return path


def keep_verified(lm, frame, folder, path, **told):
    """As 03 writes them; and what they depend on."""
    about, verified = (
        facts(lm) | {"parameters": Verification().model_dump()},
        p_true.verify_responses(lm, frame, Verification()),
    )
    place = folder / "verification" / f"{PAIR}.parquet"
    store.write_frame(verified, place, inputs=store.file_checksums([path]), **about, **told)
    return about, verified


def untimed(frame):
    """Without the seconds of a row, of which manifests hold the mean."""
    return frame.drop(columns=[name for name in frame if name.endswith("_seconds")])


def test_only_new_rows_are_made(lm, earlier):
    """And the manifest says where the others were made, from run to run."""
    small, told = generate(lm, 2)
    assert "kept_from" not in told and small.split.tolist() == ["calibration"] * 2 + ["evaluation"] * 2
    path = keep(small, earlier, **facts(lm) | {"loaded": lm.facts | {"dtype": "bfloat16"}})
    asked: list = []
    large, told = generate(lm, 5, asked)
    assert len(asked) == 6 and not {e.example_id for e in asked} & set(small.example_id)
    assert len(large) == 10 and set(small.example_id) < set(large.example_id)
    same = large[large.example_id.isin(small.example_id)].reset_index(drop=True)
    pd.testing.assert_frame_equal(untimed(same), untimed(small), check_like=True)
    assert told["kept_from"] == {"rows": 4, "sha256": store.sha256(path), "made_on": [THERE]}
    assert earlier_rows.devices_of(facts(lm) | told | {"rows": 10}) == [THERE, HERE]


@pytest.mark.parametrize("rows, kept, made_on", [
    (4, None, [HERE]),
    (4, {"rows": 4, "made_on": [THERE]}, [THERE]),  # this machine's own precision made none of them
    (6, {"rows": 4, "made_on": [THERE, HERE]}, [THERE, HERE]),
    (6, {"rows": 4, "device": "cpu", "dtype": "bfloat16"}, [THERE, HERE]),  # as manifests said it before
])  # fmt: skip
def test_rows_are_of_the_machine_that_made_them(rows, kept, made_on):
    facts = {"rows": rows, "loaded": {"device": "cpu", "dtype": "float32", "source": "x/a", "revision": None},
             **({"kept_from": kept} if kept else {})}  # fmt: skip
    assert earlier_rows.devices_of(facts) == made_on
    assert footnotes.made([("A", facts)]) == [f"Made on {' and '.join(made_on)}: A (x/a)."]


@pytest.mark.parametrize("change", ["parameters", "damaged", "verdicts", "imported"])
def test_rows_of_another_kind_are_not_kept(lm, earlier, change):
    """Nor those of a log, set aside once its model is at hand: nothing was loaded when they were read."""
    small, _ = generate(lm, 2)
    told = facts(lm, **({"max_new_tokens": 61} if change == "parameters" else {}))
    path = keep(
        small, earlier, **{name: fact for name, fact in told.items() if change != "imported" or name != "loaded"}
    )
    if change == "damaged":
        path.write_bytes(path.read_bytes()[:-1])
    if change == "verdicts":
        verdicts = small[[*store.KEYS, *p_true.IN_SITU_COLUMNS]]
        store.write_frame(verdicts, earlier / "in_situ" / f"{PAIR}.parquet", generations="other")
    assert len(find(lm)) == 0


@pytest.mark.parametrize("made_by, kept", [("0123", 4), ("4567", 0), (None, 0)])
def test_rows_of_other_code_are_not_kept_where_that_counts(lm, earlier, monkeypatch, made_by, kept):
    """Where a profile has what other code made remade: the code that runs is named then."""
    small, _ = generate(lm, 2)
    code = {"code": made_by} if made_by else {}
    about, _ = keep_verified(lm, small, earlier, keep(small, earlier, **facts(lm), **code), **code)
    assert len(find(lm)) == 4, "whatever the code, where none is named"
    monkeypatch.setattr(RowCache, "code", "0123")
    found = find(lm)
    assert len(found) == len(RowCache("mine", "verification", PAIR, about, generations=small).earlier) == kept
    assert RowCache("mine", "generations", PAIR, facts(lm)).facts()["code"] == "0123"


def test_what_is_about_responses_is_kept_with_their_tokens(lm, earlier):
    small, _ = generate(lm, 2)
    about, verified = keep_verified(lm, small, earlier, keep(small, earlier, **facts(lm)))
    find_verified = partial(earlier_rows.find_earlier_rows, "mine", "verification", PAIR)
    pd.testing.assert_frame_equal(untimed(find_verified(about, small)), untimed(verified))
    other = small.assign(token_ids=[small.token_ids[0][:3], *small.token_ids[1:]])
    assert set(find_verified(about, other).example_id) == set(small.example_id[1:])
    asked = {**about, "parameters": Verification(standard_prompt="as_drawn").model_dump()}
    assert find_verified(asked, small).empty


def test_questions_that_were_asked_again_stay(lm, earlier):
    """The sample of more rows is another one; those that a smaller run asked come first, and are not asked anew."""
    small, _ = generate(lm, 4)
    path = keep(small, earlier, **facts(lm))
    about = {**facts(lm), "parameters": Generation(demonstration="none").model_dump()}
    rows, arm = ablation.choose_ablation_rows(small, 2), small.assign(answer="7")
    store.write_frame(
        ablation.combine_arms(rows, "none", {"one": arm[arm.example_id.isin(rows.example_id)]}),
        earlier / "ablation" / f"{PAIR}.parquet",
        inputs=store.file_checksums([path]),
        **about,
    )
    larger, _ = generate(lm, 14)
    before = earlier_rows.find_earlier_rows("mine", "ablation", PAIR, about, larger)
    assert set(before.example_id) == set(rows.example_id)
    again = ablation.choose_ablation_rows(larger, 4, before=before.example_id)
    assert set(rows.example_id) < set(again.example_id) and len(again) == 4
    assert set(rows.example_id) != set(ablation.choose_ablation_rows(larger, 2).example_id), "by themselves others"
    cache = RowCache("mine", "ablation", PAIR, about, known_by=("demonstration", "example_id"), generations=larger)
    asked: list = []
    items = ablation.examples_of_rows(small[small.example_id.isin(again.example_id)])

    def ask(some):
        asked.extend(some)
        return small[small.example_id == some[0].example_id]

    kept = cache.map(ask, items, demonstration="one")
    assert asked == [example for example in items if example.example_id not in set(rows.example_id)]
    assert kept[kept.example_id.isin(rows.example_id)].answer.tolist() == ["7", "7"]
    assert ablation_statistics.responses_to(rows.example_id.iloc[0], {"one": kept}, ["one"]) == {"one": "(not kept)"}


def test_parameters_of_no_row_do_not_matter(lm):
    """More memory, or another grid, change no row."""
    assert earlier_rows.made_alike(facts(lm, max_batch_tokens=1000), facts(lm))
    assert not earlier_rows.made_alike(facts(lm, top_logits=9), facts(lm))
    dropout = Dropout().model_dump() | {"dropout_rates": [0.1], "n_tuning_examples": 10}
    was, grid = facts(lm) | {"parameters": dropout}, {"n_tuning_examples": 40, "dropout_rates": [0.1, 0.2]}
    assert earlier_rows.made_alike(was, facts(lm) | {"parameters": dropout | grid})
    assert not earlier_rows.made_alike(was, facts(lm) | {"parameters": dropout | {"dropout_passes": 5}})


def test_a_larger_number_of_rows_begins_with_the_smaller():
    """Of examples and of rows of a frame alike: else a killed run's shards would be gone on with for other rows."""
    examples = datasets.load_examples(params.load_dataset_config("demo-easy"))
    whole = datasets.select_examples(examples, 0, 0, "demo-easy")
    frame = pd.DataFrame(examples).assign(dataset="demo-easy")
    assert sorted(whole) == sorted(examples)
    for count in (1, 3, 50, 250):
        part = datasets.select_examples(examples, count, 0, "demo-easy")
        assert whole[: len(part)] == part or count > 200, "the splits take turns"
        assert [e for e in whole if e in part] == part
        sizes = {split: sum(e.split == split for e in part) for split in ("calibration", "evaluation")}
        assert sizes == {"calibration": count, "evaluation": min(count, 200)}
        assert [examples[place] for place in random_streams.first_places(frame, count, 0)] == part
    assert datasets.select_examples(examples, 9, 1, "demo-easy") != whole[:18]


def test_the_demos_models_really_run():
    """Its shipped signals are there, of the same models and parameters, and no row is taken from them."""
    assert store.find_frame("replay", "generations", PAIR).exists()
    assert list(earlier_rows.earlier_frames("demo", "generations", PAIR)) == []
    assert list(earlier_rows.earlier_frames("small", "generations", "qwen2.5-coder-1.5b__svamp"))
