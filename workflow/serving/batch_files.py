"""`./run_all.sh requests PROFILE --model-name NAME`: what a model that only a server has is asked,
as files for a batch service: the questions, and once responses are there, both forms of P(True).
"""

import subprocess
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

from lib import params
from lib.errors import UserError
from lib.parameter_schemas import Model
from lib.paths import ROOT, relative_path
from lib.responses import server_requests
from lib.responses.formats import Response
from lib.responses.imported import ImportedResponses
from lib.responses.server_requests import RequestFile
from lib.tasks.datasets import Example
from workflow.check import select_examples
from workflow.engine.jobs_of_run import Run
from workflow.engine.progress import say


def main(run: Run, args: Namespace) -> int:
    """Write the requests of every pair, and return the exit code."""
    check_folders(run)
    for model, dataset in run.pairs:
        write_files(run, model, dataset, args.model_name)
    requests, answers = server_requests.exchange_files(run.specs[model], dataset)
    files = f"-i {relative_path(requests)} -o {relative_path(answers)}"
    say(
        f"send each file: `vllm run-batch {files} --model NAME`, or a provider's batch service; "
        "the same command then writes what is asked about the responses"
    )
    return 0


def check_folders(run: Run) -> None:
    """Raise UserError for the folder of two models, and for one in which git would take the
    questions of others."""
    model_of: dict[Path, str] = {}
    for model, dataset in run.pairs:
        path, _ = server_requests.exchange_files(run.specs[model], dataset)
        other = model_of.setdefault(path, model)
        if other != model:
            problem = f"models '{other}' and '{model}' have the same `responses`"
            raise UserError(f"{problem}: give each a folder of its own")
        data = params.load_dataset_config(dataset)
        of_others = data.files or data.repository
        if of_others and path.is_relative_to(ROOT) and would_be_committed(path):
            raise UserError(
                f"git does not ignore {relative_path(path.parent)}, and "
                f"the questions of '{dataset}' belong to others: "
                "set `responses` to a folder such as artifacts/served/"
            )


def would_be_committed(path: Path) -> bool:
    """Whether git would take a file of the project."""
    if not which("git"):
        return False
    command = ["git", "check-ignore", "--quiet", str(path)]
    ignored = subprocess.run(command, cwd=ROOT, capture_output=True)
    return ignored.returncode == 1  # 128 outside a clone


def write_files(run: Run, model: str, dataset: str, model_name: str) -> None:
    """Write the questions, and both forms of P(True) if there are responses."""
    spec = run.specs[model]
    examples = select_examples(run, dataset)
    questions, answers = server_requests.exchange_files(spec, dataset)
    write_questions(run, model, dataset, model_name, examples)
    written = [questions]
    if answers.exists():
        imported = ImportedResponses.read(spec, dataset, examples)
        for line in imported.describe_coverage():
            say(line)
        for form in server_requests.VERIFICATIONS:
            write_verification(spec, dataset, form, examples, imported.responses)
            written.append(server_requests.exchange_files(spec, dataset, form)[0])
    for path in written:
        say(f"{relative_path(path)}: {len(RequestFile(path))} requests")


def write_questions(
    run: Run, model: str, dataset: str, model_name: str, examples: Sequence[Example]
) -> None:
    """Write the requests for a dataset's questions. `model_name`: what the server calls it."""
    spec = run.specs[model]
    settings = params.Generation.of(run.values)
    requests = server_requests.question_requests(
        spec, model_name, (model, dataset), examples, settings
    )
    path, answers = server_requests.exchange_files(spec, dataset)
    server_requests.write_requests(path, requests, answers)


def write_verification(
    spec: Model,
    dataset: str,
    form: str,
    examples: Sequence[Example],
    responses: Mapping[str, Response],
) -> None:
    """Write the requests for one form of P(True) about the responses."""
    questions = RequestFile(server_requests.exchange_files(spec, dataset)[0])
    requests = server_requests.verification_requests(form, spec, questions, examples, responses)
    path, answers = server_requests.exchange_files(spec, dataset, form)
    server_requests.write_requests(path, requests, answers)
