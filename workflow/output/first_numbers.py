"""The first numbers of a job, which end its line."""

from workflow.engine.jobs_of_run import Job


def first_numbers(job: Job) -> str:
    """Return what 02 to 04 compute of a finished job's evaluation rows: the share right and each
    estimator's ECE.

    They are shown and not kept. So any failure, of frames too, counts as having none.
    """
    if not job.notebook.shown_at_end:
        return ""
    try:
        return describe_frames(job)
    except Exception:
        return ""


def describe_frames(job: Job) -> str:
    """Return the accuracy, and the ECE of the job's estimators, from the frames of its pair."""
    from lib import store  # slow to import, and most jobs have no such numbers
    from lib.params import EvaluationChoices
    from lib.score import confidence, estimators, evaluation, interpretation

    names = job.notebook.shown_at_end
    choices = EvaluationChoices.of(job.run.values)
    pair = f"{job.model}__{job.dataset}"
    kind_written = job.notebook.writes[0].split("/")[0]
    frames = {}
    for kind in {"generations", kind_written}:
        frames[kind] = store.read_frame(store.frame_path(job.run.name, kind, pair))
    responses = interpretation.interpret_responses(frames["generations"], choices)
    passes = frames.get("dropout")
    if passes is not None:
        passes = confidence.rows_at_selected_rate(passes, choices)
    verification = frames.get("verification")
    scores = confidence.confidence_frame(responses, verification, passes, choices, names)
    table = evaluation.evaluate(scores, choices.bins)
    value = table.set_index(["estimator", "metric"]).value
    errors = []
    for name in names:
        label = estimators.ESTIMATORS[name].plain
        errors.append(f"{label} {value[name, 'ece']:.3f}")
    return f"; {value['', 'acc']:.1%} right; ECE of {', '.join(errors)}"
