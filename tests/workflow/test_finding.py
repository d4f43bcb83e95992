"""What is said of results on the screen: one command per finding, and the line that ends a job."""

from lib import params, store
from workflow import run
from workflow.engine.jobs_of_run import Run
from workflow.output.first_numbers import first_numbers


def test_a_finding_from_shipped_signals(capsys):
    """Its claims are judged on what it needs, and no more is made."""
    assert run.main(["finding", "3", "replay"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("replay: 0 of 0 jobs ran, ")
    assert "   paper  holds: 11 pairs agree, 4 disagree" in lines
    assert "   here   open: 3 pairs agree, 3 open" in lines
    start = ["tiny-llama", "demo-easy", "0.246", "0.177"]
    (case,) = [line.split() for line in lines if line.split()[:4] == start]
    assert case[-1] == "open"
    assert len(case) == 8, "with its margin and interval"
    assert "Finding 3 on the paper's numbers: of 4 claims 3 hold, 1 not judged" in lines
    assert lines[-1] == "see: notebooks/03_ptrue_insitu.ipynb"


def test_the_line_that_ends_a_job_tells_what_the_tables_will(demo, monkeypatch):
    """Of shipped rows; where they are gone or damaged it says nothing, and fails nothing."""

    def shipped_path(run, kind, pair):
        return store.SHIPPED / kind / f"{pair}.parquet"

    monkeypatch.setattr(store, "frame_path", shipped_path)
    of_demo = Run("demo", params.load_profile("demo").model_dump())
    table = demo.frames["result_estimation"]
    rows = table[(table.model == "tiny-llama") & (table.dataset == "demo-easy")]
    value = rows.set_index(["estimator", "metric"]).value
    accuracy = f"; {value['', 'acc']:.1%} right; ECE of "
    for job in of_demo.jobs:
        if (job.model, job.dataset) == ("tiny-llama", "demo-easy"):
            line, names = first_numbers(job), job.notebook.shown_at_end
            for name in names:
                assert f" {value[name, 'ece']:.3f}" in line, job.name
            if job.notebook.number != "04":  # of fewer rows
                assert (accuracy in line) == bool(names)
    monkeypatch.setattr(store, "frame_path", lambda run, kind, pair: store.SHIPPED / "none.parquet")
    assert first_numbers(of_demo.jobs[0]) == ""
