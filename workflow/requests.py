"""`./run_all.sh requests PROFILE --models M`: write what a run asks a served model, and say how to send it.

The first call writes the questions. Once responses are there, the next one also writes both forms of P(True).
"""

import subprocess
from argparse import Namespace

from lib import params
from lib.generate import batch_requests
from lib.generate.batch_requests import VERIFICATIONS, served_file
from lib.generate.imported_responses import ImportedResponses
from lib.paths import ROOT, UserError, public_path, relative_path
from lib.tasks import datasets
from lib.tasks.datasets import Example
from workflow import hub
from workflow.pipeline import Run
from workflow.progress import say


def main(run: Run, args: Namespace) -> int:
    """Write the requests of every pair and return the exit code."""
    check_folders(run)
    for model, dataset in run.pairs:
        write_questions(run, model, dataset, args.model_name or model)
        if served_file(params.load_model_config(model), dataset, "responses").exists():
            write_verification(run, model, dataset)
    example = served_file(params.load_model_config(model), dataset, "requests")
    sent, answers = public_path(str(example)), public_path(str(example).replace(".requests.", ".responses."))
    ask = f"./run_all.sh ask {run.name} --models {' '.join(run.values['models'])} --url URL"
    ask += f" --datasets {' '.join(run.values['datasets'])}" if args.datasets else ""
    say(f"send each file: `vllm run-batch -i {sent} -o {answers} --model ...`, a provider's batch service, or `{ask}`")
    return 0


def check_folders(run: Run) -> None:
    """Raise UserError for two models with the same file, or a folder that git would publish others' questions from."""
    files: dict[object, str] = {}
    for model, dataset in run.pairs:
        path, data = (
            served_file(params.load_model_config(model), dataset, "requests"),
            params.load_dataset_config(dataset),
        )
        if (other := files.setdefault(path, model)) != model:
            raise UserError(f"models '{other}' and '{model}' have the same `responses`: give each a folder of its own")
        of_others = data.files or hub.names_repository(data.source)
        command = ["git", "check-ignore", "--quiet", str(path)]
        if of_others and path.is_relative_to(ROOT) and subprocess.run(command, cwd=ROOT, stderr=-3).returncode == 1:
            where = (
                f"{relative_path(path.parent)} is not ignored by git, and the questions of '{dataset}' belong to others"
            )
            raise UserError(f"{where}: set `responses` to a folder such as artifacts/{model}/")


def read_examples(run: Run, dataset: str) -> list[Example]:
    """Return the questions of a dataset that the run asks."""
    examples = datasets.load_examples(params.load_dataset_config(dataset))
    return datasets.select_examples(examples, run.values["limit"], run.values["seed"], dataset, run.values["example"])


def write_questions(run: Run, model: str, dataset: str, model_name: str) -> None:
    spec, settings = params.load_model_config(model), params.Generation.of(run.values)
    path, answers = (served_file(spec, dataset, kind) for kind in ("requests", "responses"))
    examples = read_examples(run, dataset)
    asked = batch_requests.question_requests(spec, model_name, (model, dataset), examples, settings)
    batch_requests.write_requests(path, asked, answers)
    say(f"{public_path(str(path))}: {len(examples)} questions")


def write_verification(run: Run, model: str, dataset: str) -> None:
    spec = params.load_model_config(model)
    imported = ImportedResponses.read(spec, dataset, read_examples(run, dataset))
    asked = batch_requests.read_requests(served_file(spec, dataset, "requests"))
    written = batch_requests.verification_requests(imported, asked)
    for line in imported.describe_coverage():
        say(line)
    for form in VERIFICATIONS:
        path, answers = (served_file(spec, dataset, kind, form) for kind in ("requests", "responses"))
        batch_requests.write_requests(path, written[form], answers)
        say(f"{public_path(str(path))}: {len(written[form])} requests")
