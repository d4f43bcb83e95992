"""What of a cluster needs none: the file of --slurm, what SLURM is asked, what the run hears."""

from argparse import Namespace
from dataclasses import replace

import pytest
from small_project import ROOT, write
from test_fresh import complete, run_of

from lib import params
from lib.paths import UserError
from workflow import fingerprint, jobs, notebook, slurm
from workflow.pipeline import Run
from workflow.rules import NOTEBOOKS

DEMO = params.load_profile("demo").model_dump(mode="json")


def options(folder, text) -> dict:
    write(folder / "mine.yaml", text)
    return slurm.read_options(folder / "mine.yaml")


def test_the_shipped_file_asks_for_a_gpu_where_a_model_runs():
    found = slurm.read_options(ROOT / "clusters/slurm.yaml")
    assert [slurm.requests_gpu(found[row.name]) for row in NOTEBOOKS] == [row.runs_model for row in NOTEBOOKS]


def test_a_notebook_asks_for_its_own_before_what_all_ask_for(tmp_path):
    found = options(tmp_path, "all: {time: 10, exclusive: true}\n01_generate: {time: 20, gres: gpu:a100:1}")
    assert found["01_generate"] == {"time": 20, "exclusive": True, "gres": "gpu:a100:1"}
    assert slurm.sbatch_words(found["02_single_pass"]) == ["--time=10", "--exclusive"]
    assert slurm.requests_gpu(found["01_generate"]) and not slurm.requests_gpu(found["02_single_pass"])


@pytest.mark.parametrize("text", ["01_generat: {gpus: 1}", "01_generate: 3"])
def test_a_mistake_in_the_file_is_one_line(tmp_path, text):
    with pytest.raises(UserError, match="^mine.yaml.*(did you mean '01_generate'|must name options of sbatch)"):
        options(tmp_path, text)


def test_a_job_asks_the_hub_for_nothing():
    """What it needs was fetched before the first job."""
    job = Run("demo", DEMO | {"models": ["llama-3.2-3b"]}).jobs[0]
    assert notebook.fixed_environment(job)["HF_HUB_OFFLINE"] == "1"


def test_a_job_waits_until_it_sees_what_it_reads(inside, monkeypatch):
    monkeypatch.setattr(slurm, "VISIBLE_SECONDS", 0)
    complete(run_of())
    first, second, *_ = run_of().jobs
    jobs.wait_for_inputs(second)
    (inside.root / first.outputs[0]).write_text("half")
    with pytest.raises(UserError, match="do all nodes share the project's folder"):
        jobs.wait_for_inputs(second)


def test_a_job_goes_back_into_the_queue_if_it_has_got_on_since_its_last_start(inside, monkeypatch):
    """Whose events may end with half a line."""
    (job, *_), asked = run_of().jobs, []
    (inside.root / job.events).parent.mkdir(parents=True)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(jobs.machine, "run_program", lambda *words: asked.append(words))
    jobs.go_back_into_queue(job)
    for event in ("start", "progress", "start"):
        slurm.append_event(job, event)
        jobs.go_back_into_queue(job)
    with (inside.root / job.events).open("a") as file:
        file.write('{"event": "pro')
    jobs.go_back_into_queue(job)
    assert asked == [("scontrol", "requeue", "7")]


# ---- what SLURM is asked


@pytest.fixture
def answers(monkeypatch):
    """What the programs of a SLURM say, by their names."""
    found = Namespace(said={"squeue": (0, ""), "scancel": (0, ""), "sbatch": (0, "")}, asked=[])
    monkeypatch.setattr(slurm, "run_program", lambda *words, **env: found.asked.append(words) or found.said[words[0]])
    monkeypatch.setattr(slurm, "CANCEL_SECONDS", 0)
    return found


def test_what_the_cluster_refuses_is_one_line(answers):
    run = replace(run_of(), slurm={row.name: {"partition": "gpus"} for row in slurm.NOTEBOOKS})
    slurm.check(run)
    assert len(answers.asked) == 1, "all ask for the same"
    answers.said["sbatch"] = (1, "sbatch: error: Invalid account\nsbatch: error: more")
    with pytest.raises(UserError, match="^SLURM refuses the jobs of 01_generate: Invalid account$"):
        slurm.check(run)


def test_only_running_jobs_of_this_run_and_key_are_taken_on_and_all_others_cancelled(inside, answers):
    run = run_of(models=["tiny", "other"])
    first, second, third, *_ = run.jobs
    for job in (first, second):
        (inside.root / job.events).parent.mkdir(parents=True, exist_ok=True)
    slurm.append_event(first, "start", key=fingerprint.digest(slurm.keys.key_parts(first)))
    slurm.append_event(second, "start", key="of other code")
    name = slurm.name_prefix(run)
    queue = [f"7 RUNNING {name}{first.name}", f"8 RUNNING {name}{second.name}", f"9 PENDING {name}{third.name}"]
    queue += ["11 RUNNING another", f"12 RUNNING {name[:-1]}2_{first.name}"]
    answers.said["squeue"] = (0, "\n".join(queue))
    assert slurm.take_on(run, list(run.jobs)) == {first.name: "7"}
    assert ("scancel", "8", "9") in answers.asked
