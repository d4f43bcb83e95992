"""What of a cluster needs none: the file of --slurm, what SLURM is asked, what a node sees."""

from argparse import Namespace
from dataclasses import replace
from unittest.mock import Mock

import pytest
from small_project import ROOT, write
from test_fresh import complete, run_of

from lib.errors import UserError
from lib.files import digest
from workflow.engine import job_key, job_process, progress, slurm, slurm_options
from workflow.engine.notebook_table import NOTEBOOKS


def test_a_notebook_asks_for_its_own_before_what_all_ask_for_and_for_a_gpu_if_it_runs_a_model(
    tmp_path,
):
    def read(text):
        write(tmp_path / "mine.yaml", text)
        return slurm_options.read_options(tmp_path / "mine.yaml")

    options = read("all: {time: 10, exclusive: true}\n01_generate: {time: 20, gres: gpu:a100:1}")
    assert slurm_options.sbatch_words(options["01_generate"]) == [
        "--time=20",
        "--exclusive",
        "--gres=gpu:a100:1",
    ]
    assert slurm_options.sbatch_words(options["02_single_pass"]) == ["--time=10", "--exclusive"]
    assert slurm_options.requests_gpu(options["01_generate"])
    assert not slurm_options.requests_gpu(options["02_single_pass"])
    for text in ("01_generat: {gpus: 1}", "01_generate: 3"):
        with pytest.raises(
            UserError, match="^mine.yaml.*(did you mean '01_generate'|must name options of sbatch)"
        ):
            read(text)
    shipped = slurm_options.read_options(ROOT / "clusters/slurm.yaml")
    assert [slurm_options.requests_gpu(shipped[row.name]) for row in NOTEBOOKS] == [
        row.runs_model for row in NOTEBOOKS
    ]


def test_a_job_waits_until_it_sees_what_it_reads(inside, monkeypatch):
    monkeypatch.setattr(slurm, "VISIBLE_SECONDS", 0)
    complete(run_of())
    first, second, *_ = run_of().jobs
    job_process.wait_for_inputs(second)
    (inside.root / first.outputs[0]).write_text("half")
    with pytest.raises(UserError, match="do all nodes share the project's folder"):
        job_process.wait_for_inputs(second)


def test_a_file_of_another_node_may_come_late(inside, monkeypatch):
    """Whole only after a second: a shared folder has delays."""
    complete(run_of())
    first, second, *_ = run_of().jobs
    output = inside.root / first.outputs[0]
    content = output.read_bytes()
    output.write_text("half")
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        output.write_bytes(content)

    monkeypatch.setattr(job_process.time, "sleep", sleep)
    job_process.wait_for_inputs(second)
    assert waits == [1]


@pytest.fixture
def answers(monkeypatch):
    """What the programs of a SLURM say, by their names."""
    programs = Namespace(
        replies={"squeue": (0, ""), "scancel": (0, ""), "sbatch": (0, ""), "scontrol": (0, "")},
        calls=[],
    )

    def run_program(*words, **env):
        programs.calls.append(words)
        return programs.replies[words[0]]

    for module in (slurm, slurm_options):
        monkeypatch.setattr(module, "run_program", run_program)
    monkeypatch.setattr(slurm, "CANCEL_SECONDS", 0)
    return programs


def test_what_the_cluster_refuses_is_one_line(answers):
    run = replace(run_of(), slurm={row.name: {"partition": "gpus"} for row in NOTEBOOKS})
    slurm_options.check(run)
    assert len(answers.calls) == 1, "all ask for the same"
    answers.replies["sbatch"] = (1, "sbatch: error: Invalid account\nsbatch: error: more")
    with pytest.raises(UserError, match="^SLURM refuses the jobs of 01_generate: Invalid account$"):
        slurm_options.check(run)


BANNER = """-----------------------------------------------------------------
          Welcome to the Stampede3 Supercomputer, 2024
-----------------------------------------------------------------
No reservation for this job
--> Verifying valid submit host (login4)...OK
"""
TIMED_OUT = (
    1,
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
)
BUSY = [
    TIMED_OUT,
    (1, "sbatch: error: Unable to contact slurm controller (connect failure)"),
    (1, "sbatch: error: Batch job submission failed: Resource temporarily unavailable"),
]


@pytest.fixture
def submit(inside, answers, monkeypatch):
    """What a job's number is, given what sbatch and squeue say one after the other, and how often
    sbatch was asked."""
    monkeypatch.setattr(slurm, "RETRY_SECONDS", (0, 0, 0))
    run = replace(run_of(), slurm={row.name: {} for row in NOTEBOOKS})
    job = run.jobs[0]

    def number_of(sbatch, squeue=()):
        replies = {"sbatch": iter(sbatch), "squeue": iter(squeue)}

        def run_program(*words, **env):
            answers.calls.append(words[0])
            return next(replies.get(words[0], iter(())), (0, ""))

        monkeypatch.setattr(slurm, "run_program", run_program)
        answers.calls.clear()
        submission = slurm.Submission(run, Namespace(jobs=[job], ended=set(), failed={}), {})
        submission.submit(job)
        return submission.numbers[job], answers.calls.count("sbatch")

    number_of.queued = f"{BANNER}4712 PENDING {slurm.name_prefix(run)}{job.name}\n"
    return number_of


@pytest.mark.parametrize(
    "output",
    ["4711", "4711;snellius", f"{BANNER}4711", f"{BANNER}4711;frontera\nbye", "4710\n4711"],
)
def test_a_job_s_number_is_known_by_its_form(submit, output):
    assert submit([(0, output)]) == ("4711", 1)


def test_a_job_without_a_number_is_looked_up_or_refused(submit):
    assert submit([(0, BANNER)], [(0, submit.queued)]) == ("4712", 1)
    with pytest.raises(
        UserError, match="^sbatch printed no number of a job for 01_generate tiny easy, but: ---"
    ):
        submit([(0, BANNER)])


def test_a_busy_controller_is_asked_again_three_times_at_most(submit):
    assert submit([*BUSY, (0, "4711")]) == ("4711", 4)
    with pytest.raises(
        UserError, match="^SLURM refuses 01_generate tiny easy: Batch job.*: Socket timed out"
    ):
        submit([*BUSY, TIMED_OUT, (0, "4711")])


def test_a_job_that_was_submitted_though_sbatch_timed_out_is_not_submitted_again(submit):
    """Nor one of which squeue can't tell; another's, or what remains of an earlier one, is not
    taken for it."""
    again = [TIMED_OUT, (0, "4711")]
    queued = (0, submit.queued)
    assert submit(again, [queued]) == ("4712", 1)
    assert submit(again, [(1, "down"), queued]) == ("4712", 1)
    nothing = (0, "")
    assert submit([TIMED_OUT] * 4, [nothing, nothing, nothing, queued]) == ("4712", 4)
    for before, now in (("01_", "02_"), ("PENDING", "COMPLETING")):
        other = submit.queued.replace(before, now)
        assert submit(again, [(0, other)]) == ("4711", 2)


@pytest.mark.parametrize(
    "reason",
    [
        "Invalid account",
        "Requested node configuration is not available",
        "QOSMaxSubmitJobPerUserLimit",
    ],
)
def test_any_other_refusal_is_final(submit, reason):
    refused = (
        1,
        f"sbatch: no partition specified\nsbatch: error: Batch job submission failed: {reason}",
    )
    with pytest.raises(
        UserError,
        match=f"^SLURM refuses 01_generate tiny easy: Batch job submission failed: {reason}$",
    ):
        submit([refused, (0, "4711")])


def test_only_running_jobs_of_this_run_and_key_are_taken_on_and_all_others_cancelled(
    inside, answers
):
    """Though what one tells ends in half a line."""
    run = run_of(models=["tiny", "other"])
    first, second, third, *_ = run.jobs
    (inside.root / first.events).parent.mkdir(parents=True)
    slurm.append_event(first, "start", key=digest(job_key.key_parts(first)))
    with (inside.root / first.events).open("a") as file:
        file.write('{"event": "pro')
    slurm.append_event(second, "start", key="of other code")
    name = slurm.name_prefix(run)
    queue = [
        f"7 RUNNING {name}{first.name}",
        f"8 RUNNING {name}{second.name}",
        f"9 PENDING {name}{third.name}",
    ]
    queue += ["11 RUNNING another", f"12 RUNNING {name[:-1]}2_{first.name}"]
    answers.replies["squeue"] = (0, "\n".join(queue))
    assert slurm.take_on_or_cancel(run, list(run.jobs)) == {first.name: "7"}
    assert ("scancel", "8", "9") in answers.calls


def test_processes_that_help_wait_behind_all_jobs_and_are_canceled_with_theirs(
    inside, answers, monkeypatch, tmp_path
):
    """sbatch is not told of them. Those that run since an earlier start are taken on."""
    write(tmp_path / "mine.yaml", "all: {time: 10}\n01_generate: {jobs_per_pair: 3}")
    options = slurm_options.read_options(tmp_path / "mine.yaml")
    assert slurm_options.sbatch_words(options["01_generate"]) == ["--time=10"]
    for count in ("0", "two", "true", "1000"):
        write(tmp_path / "mine.yaml", f"all: {{jobs_per_pair: {count}}}")
        with pytest.raises(UserError, match="^mine.yaml: jobs_per_pair of all is .*from 1 to 100"):
            slurm_options.read_options(tmp_path / "mine.yaml")

    run = replace(run_of(), slurm=options)
    job = run.jobs[0]
    submitted, canceled = [], []

    def submit(run, job, words):
        submitted.append(job.process)
        assert words[-1].endswith(f" {job.process}'") or words[-1].endswith(f" {job.process}")
        return str(len(submitted))

    monkeypatch.setattr(slurm, "submit", submit)
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0)
    monkeypatch.setattr(slurm, "run_program", lambda *words: canceled.append(words) or (0, ""))
    monkeypatch.setattr(slurm, "list_queue", lambda run: {"9": slurm.Queued("", "RUNNING")})
    board = Namespace(jobs=list(run.jobs), ended={job}, failed={}, upstream=lambda job: set())
    submission = slurm.Submission(run, board, {job.helpers[1].process: "9"})
    with pytest.raises(StopIteration):
        monkeypatch.setattr(submission, "look_at_jobs", Mock(side_effect=StopIteration))
        submission.run_jobs()
    helper = f"{job.name}+1"
    assert submitted == [*(each.name for each in run.jobs), helper]
    number = str(submitted.index(helper) + 1)
    assert {number, "9"} <= {*canceled[-1]}, "at the end, however it comes"
    canceled.clear()
    submission.end_helpers(job)
    assert canceled == [("scancel", number, "9")]
    assert run.job(helper) == job.helpers[0]


def test_a_job_of_the_queue_is_followed_until_it_tells_its_end(inside, answers):
    run = run_of()
    first, second, *_ = run.jobs
    numbers = {job.process: str(number) for number, job in enumerate(run.jobs, 1)}
    rows = [f"{number} RUNNING {slurm.name_prefix(run)}{name}" for name, number in numbers.items()]
    answers.replies["squeue"] = (0, "\n".join(rows))
    submission = slurm.Submission(run, progress.Board(run.jobs), numbers)
    submission.look_at_jobs()
    assert submission.open == list(run.jobs)
    (inside.root / first.events).parent.mkdir(parents=True, exist_ok=True)
    slurm.append_event(first, "fail", text="too little room")
    slurm.append_event(second, "start")
    submission.look_at_jobs()
    assert first not in submission.open and second in submission.open


def test_a_job_goes_back_into_the_queue_if_it_has_got_on_since_its_last_start(
    inside, answers, monkeypatch
):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(job_process.machine, "run_program", slurm.run_program)
    job, *_ = run_of().jobs
    (inside.root / job.events).parent.mkdir(parents=True)
    for event in ("start", "progress", "start"):
        slurm.append_event(job, event)
        job_process.go_back_into_queue(job)
    assert answers.calls == [("scontrol", "requeue", "7")]
