"""The table of notebooks: their numbers tell the order in which they run, but for what exports, which comes last."""

from small_project import write

from lib import params, store
from workflow import fresh, keys, pipeline, progress, rules
from workflow.pipeline import Run


def test_verdicts_taken_alive_are_an_input_of_the_notebook_alone_that_reads_them():
    """Their seconds differ from run to run, and everything would hang on them."""
    for name in ("demo", "replay"):
        run = Run(name, {"models": ["tiny-llama"], "datasets": ["demo-easy"]})
        readers = {job.notebook.number for job in run.jobs if any("/in_situ/" in path for path in job.inputs)}
        assert readers == ({"03"} if name == "demo" else set())
        assert any("/generations/" in path for path in run.job("02_single_pass").inputs)


def test_files_of_a_folder_of_its_own_are_recorded_and_retired(inside, monkeypatch):
    """As many as there are: they belong to the job's record, and go where its other outputs go."""
    row = rules.Notebook("01_alpha", writes=("x.parquet",), folders=("kept",))
    monkeypatch.setattr(rules, "NOTEBOOKS", (row,))
    job = pipeline.Run("demo", {"models": ["tiny"], "datasets": ["easy"]}).job("01_alpha")
    kept = ("kept/b.json", "kept/a.json", "kept/.c.json.1.partial")
    for name in (*kept, "x.parquet", "x.json", "notebooks/01_alpha.ipynb"):
        write(inside.root / "artifacts/demo" / name, "{}")
    assert job.extra_outputs == ["artifacts/demo/kept/a.json", "artifacts/demo/kept/b.json"]
    keys.write_record(job, {f"code {row.path}": "the same"}, job.outputs + job.extra_outputs, 1)
    record = keys.read_record(inside.root / job.record, job)
    assert set(job.extra_outputs) < set(record["outputs"]) and keys.is_intact(record)
    (inside.root / job.extra_outputs[0]).write_text("edited")
    assert not keys.is_intact(record)
    fresh.set_aside(job)
    assert job.extra_outputs == [] and len(list((inside.root / "artifacts/demo/stale").rglob("kept/*.json"))) == 2


def test_the_line_that_ends_a_job_tells_what_the_tables_will(demo, monkeypatch):
    """Of shipped rows; where they are gone or damaged it says nothing, and fails nothing."""
    monkeypatch.setattr(store, "frame_path", lambda run, kind, pair: store.SHIPPED / kind / f"{pair}.parquet")
    pair, run = ["tiny-llama", "demo-easy"], Run("demo", params.load_profile("demo").model_dump())
    shown = demo.frames["result_estimation"].query("model == @pair[0] and dataset == @pair[1]")
    value = shown.set_index(["estimator", "metric"]).value
    said = {job.notebook.number: progress.first_numbers(job) for job in run.jobs if [job.model, job.dataset] == pair}
    for number, names in {"01": ["ans_avg", "seq_avg"], "03": ["p_true", "p_true_insitu"], "04": ["c_bald"]}.items():
        assert number == "04" or f"; {value['', 'acc']:.1%} right; ECE of " in said[number]  # of fewer rows in 04
        assert all(f" {value[name, 'ece']:.3f}" in said[number] for name in names), number
    assert said["04b"] == ""
    monkeypatch.setattr(store, "frame_path", lambda run, kind, pair: store.SHIPPED / "none.parquet")
    assert progress.first_numbers(run.jobs[0]) == ""
