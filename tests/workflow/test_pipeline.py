"""The table of notebooks: their numbers tell the order in which they run, but for what exports, which comes last."""

from importlib.util import find_spec

import pytest
from small_project import write

from lib import params
from workflow import fresh, pipeline, preload, records, schedule
from workflow.files import write_json
from workflow.pipeline import Run


def test_verdicts_taken_alive_are_an_input_of_the_notebook_alone_that_reads_them():
    """Their seconds differ from run to run, and everything would hang on them."""
    for name in ("demo", "replay"):
        run = Run(name, {"models": ["a"], "datasets": ["b"]})
        readers = {job.notebook.number for job in run.jobs if any("/in_situ/" in path for path in job.inputs)}
        assert readers == ({"03"} if name == "demo" else set())
        assert any("/generations/" in path for path in run.job("02_single_pass").inputs)


def test_what_most_hangs_on_is_begun_first(inside):
    run = Run("demo", {"models": ["tiny", "other"], "datasets": ["easy"]})
    first, second, third, last = (job.name for job in run.jobs)
    assert run.urgency[first] == run.urgency[second] > run.urgency[third] > run.urgency[last]
    thinks = Run("demo", run.values, thinking=("other",))
    assert thinks.urgency[second] > thinks.urgency[first], "a model that thinks takes longest"
    write_json(inside.root / "artifacts/demo/seconds.json", {second: 500})
    run = Run("demo", run.values)
    assert run.urgency[second] == 500 + run.urgency[third] > run.urgency[first]


@pytest.mark.parametrize("name, small", [("tiny-llama", True), ("qwen3-8b-thinking", False), ("logged", False)])
def test_a_model_is_small_by_its_weights_on_this_disk(name, small):
    assert pipeline.is_small(params.load_model_config(name)) == small


def test_what_is_imported_before_forking_is_there_and_holds_no_torch_where_no_model_runs():
    values = params.load_profile("demo").model_dump()
    light, heavy = (schedule.modules_to_import(list(Run(name, values).jobs)) for name in ("replay", "demo"))
    for module in (*preload.JUPYTER.split(), *heavy):
        assert find_spec(module), "its import would fail unseen, and each job would take longer"
    assert set(light) < set(heavy) and "transformers.models.llama.modeling_llama" in heavy
    assert not {module.split(".")[0] for module in light} & {"torch", "transformers"}


@pytest.mark.parametrize("scope, folders", [
    (["trajectory"], ["dropout"]), (["answer"], ["dropout_answer"]),
    (["answer", "trajectory"], ["dropout", "dropout_answer"]),
])  # fmt: skip
def test_frames_of_passes_come_as_the_scope_asks(scope, folders):
    run = Run("demo", {"models": ["a"], "datasets": ["b"], "dropout_scope": scope})
    written = [f"artifacts/demo/{name}/a__b.parquet" for name in folders]
    assert run.job("04_mc_dropout_grid__a__b").outputs == written
    assert [path for path in run.job("08_tables").inputs if "/dropout" in path] == written


def test_files_of_a_folder_of_its_own_are_recorded_and_retired(inside, monkeypatch):
    """As many as there are: they belong to the job's record, and go where its other outputs go."""
    row = pipeline.Notebook("01_alpha", writes=("x.parquet",), folders=("kept",))
    monkeypatch.setattr(pipeline, "NOTEBOOKS", (row,))
    job = pipeline.Run("demo", {"models": ["tiny"], "datasets": ["easy"]}).job("01_alpha")
    assert job.loose == []
    kept = ("kept/b.json", "kept/a.json", "kept/.c.json.1.partial")
    for name in (*kept, "x.parquet", "x.json", "notebooks/01_alpha.ipynb"):
        write(inside.root / "artifacts/demo" / name, "{}")
    assert job.loose == ["artifacts/demo/kept/a.json", "artifacts/demo/kept/b.json"]
    records.write_record(job, {f"code {row.path}": "the same"}, job.outputs + job.loose, 1)
    record = records.read_record(inside.root / job.record, job)
    assert set(job.loose) < set(record["outputs"]) and records.is_intact(record)
    (inside.root / job.loose[0]).write_text("edited")
    assert not records.is_intact(record)
    fresh.archive_outputs(job)
    assert job.loose == [] and len(list((inside.root / "artifacts/demo/stale").rglob("kept/*.json"))) == 2


def test_a_budget_that_a_cell_leaves_out_is_given_where_the_notebook_takes_it():
    """As test_remade.py asserts of the parameters that are part of a key."""
    job = Run("demo", params.load_profile("demo").model_dump()).job("04_mc_dropout_grid__tiny-llama__demo-easy")
    assert {"max_dropout_tokens", "rows_per_shard"} <= set(job.parameters) and "max_batch_tokens" not in job.parameters
