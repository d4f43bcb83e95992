"""The table of notebooks: their numbers tell the order in which they run, but for what exports, which comes last."""

from lib.paths import ROOT
from workflow import fresh, pipeline, records
from workflow.cli import notebooks
from workflow.files import write_json
from workflow.pipeline import NOTEBOOKS, Run

NAMES = [row.name for row in NOTEBOOKS]


def test_numbers_tell_the_order():
    assert sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb")) == sorted(NAMES)
    assert notebooks(ROOT) == sorted({row.number for row in NOTEBOOKS})
    *before, last = NOTEBOOKS
    assert last.exports and [row.number for row in before] == sorted(row.number for row in before)


def test_each_reads_only_what_comes_before_it():
    for at, row in enumerate(NOTEBOOKS):
        assert {word.partition("/")[0] for word in row.reads} <= set(NAMES[:at])


def test_verdicts_taken_alive_are_an_input_of_the_notebook_alone_that_reads_them():
    """Their seconds differ from run to run, and everything would hang on them."""
    for name in ("demo", "replay"):
        run = Run(name, {"models": ["a"], "datasets": ["b"]})
        readers = {job.notebook.number for job in run.jobs if any("/in_situ/" in path for path in job.inputs)}
        assert readers == ({"03"} if name == "demo" else set())
        assert any("/generations/" in path for path in run.job("02_single_pass").inputs)


def test_what_most_hangs_on_is_begun_first(inside):
    run = Run("demo", {"models": ["tiny", "other"], "datasets": ["easy"]})
    first, second, *_, last = run.jobs
    assert run.urgency[first.name] == run.urgency[second.name] > run.urgency["02_single_pass"] > run.urgency[last.name]
    write_json(inside.root / "artifacts/demo/seconds.json", {second.name: 500})
    run = Run("demo", run.values)
    assert run.urgency[second.name] == 500 + run.urgency["02_single_pass"] > run.urgency[first.name]


def test_frames_of_passes_come_as_the_scope_asks():
    for scope, folders in (["trajectory"], ["dropout"]), (["answer", "trajectory"], ["dropout", "dropout_answer"]):
        run = Run("demo", {"models": ["a"], "datasets": ["b"], "dropout_scope": scope})
        written = [f"artifacts/demo/{name}/a__b.parquet" for name in folders]
        assert run.job("04_mc_dropout_grid__a__b").outputs == written
    run = Run("demo", {"models": ["a"], "datasets": ["b"], "dropout_scope": ["answer"]})
    assert run.job("04_mc_dropout_grid__a__b").outputs == ["artifacts/demo/dropout_answer/a__b.parquet"]
    read = run.job("08_tables").inputs
    assert "artifacts/demo/dropout_answer/a__b.parquet" in read and "artifacts/demo/dropout/a__b.parquet" not in read


def test_files_of_a_folder_of_its_own_are_recorded_and_retired(inside, monkeypatch):
    """As many as there are: they belong to the job's record, and go where its other outputs go."""
    row = pipeline.Notebook("01_alpha", writes=("x.parquet",), folders=("kept",))
    monkeypatch.setattr(pipeline, "NOTEBOOKS", (row,))
    job = pipeline.Run("demo", {"models": ["tiny"], "datasets": ["easy"]}).job("01_alpha")
    assert job.loose == []
    kept = ("kept/b.json", "kept/a.json", "kept/.c.json.1.partial")
    for name in (*kept, "x.parquet", "x.json", "notebooks/01_alpha.ipynb"):
        path = inside.root / "artifacts/demo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert job.loose == ["artifacts/demo/kept/a.json", "artifacts/demo/kept/b.json"]
    records.write_record(job, {f"code {row.path}": "the same"}, job.outputs + job.loose, 1)
    record = records.read_record(inside.root / job.record, job)
    assert set(job.loose) < set(record["outputs"]) and records.whole(job, record)
    (inside.root / job.loose[0]).write_text("edited")
    assert not records.whole(job, record)
    fresh.retire(job, record)
    assert job.loose == [] and len(list((inside.root / "artifacts/demo/stale").rglob("kept/*.json"))) == 2


def test_jobs_run_upstream_first():
    jobs = Run("demo", {"models": ["a", "b"], "datasets": ["c"]}).jobs
    for at, job in enumerate(jobs):
        assert set(job.upstream) <= set(jobs[:at])
    assert [job.notebook.number for job in jobs][-4:] == ["07", "09", "10", "08"]


def test_a_parameter_that_a_cell_leaves_out_is_given_where_the_notebook_takes_it():
    """And others are not: what P(True) compares makes no pass anew."""
    from lib import params

    values = params.load_profile("demo").model_dump()
    job = Run("demo", values).job("04_mc_dropout_grid__tiny-llama__demo-easy")
    assert {"grader", "max_dropout_tokens", "rows_per_shard", "bins"} <= set(job.parameters)
    assert not {"options", "logprobs_from", "max_batch_tokens"} & set(job.parameters)
    assert Run("demo", values | {"missing": "drop"}).job(job.name).parameters["missing"] == "drop"
