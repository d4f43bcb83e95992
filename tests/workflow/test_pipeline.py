"""The table of notebooks: their numbers tell the order in which they run, but for what exports, which comes last."""

from lib import params, store
from workflow import progress
from workflow.pipeline import Run


def test_verdicts_taken_alive_are_an_input_of_the_notebook_alone_that_reads_them():
    """Their seconds differ from run to run, and everything would hang on them."""
    for name in ("demo", "replay"):
        run = Run(name, {"models": ["tiny-llama"], "datasets": ["demo-easy"]})
        readers = {job.notebook.number for job in run.jobs if any("/in_situ/" in path for path in job.inputs)}
        assert readers == ({"03"} if name == "demo" else set())
        assert any("/generations/" in path for path in run.job("02_single_pass").inputs)


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
