"""`./run_all.sh requests PROFILE --models M`: write what a run asks a served model, and say how to send it.

The first call writes the questions. Once responses are there, the next one also writes both forms of P(True).
"""

import subprocess
from argparse import Namespace
from pathlib import Path

from lib import params
from lib.generate import batch_requests
from lib.generate.batch_requests import VERIFICATIONS, served_file
from lib.generate.imported_responses import ImportedResponses
from lib.paths import ROOT, UserError, relative_path
from lib.tasks import datasets
from workflow import hub
from workflow.pipeline import Run
from workflow.progress import say


def main(run: Run, args: Namespace) -> int:
    """Write the requests of every pair and return the exit code."""
    specs = {model: params.load_model_config(model) for model in run.values["models"]}
    files: dict[Path, str] = {}
    for model, dataset in run.pairs:
        path = served_file(specs[model], dataset, "requests")
        if (other := files.setdefault(path, model)) != model:
            raise UserError(f"models '{other}' and '{model}' have the same `responses`: give each a folder of its own")
        check_folder(path.parent, dataset)
    for model, dataset in run.pairs:
        write_pair(run, model, specs[model], dataset, args.model_name or model)
    answers = str(relative_path(path)).replace(".requests.", ".responses.")
    ask = f"./run_all.sh ask {run.name} --models {' '.join(specs)} --url URL"
    ask += f" --datasets {' '.join(run.values['datasets'])}" if args.datasets else ""
    batch = f"vllm run-batch -i {relative_path(path)} -o {answers} --model NAME"
    say(f"send each file: `{batch}`, a provider's batch service, or `{ask}`")
    return 0


def check_folder(folder: Path, dataset: str) -> None:
    """Raise UserError for a folder in which git would take the questions of others."""
    data = params.load_dataset_config(dataset)
    if folder.is_relative_to(ROOT) and (data.files or hub.names_repository(data.source)):
        ignored = subprocess.run(["git", "check-ignore", "--quiet", f"{folder}/x.jsonl"], cwd=ROOT, capture_output=True)
        if ignored.returncode == 1:  # 128 without git
            where = f"git does not ignore {relative_path(folder)}, and the questions of '{dataset}' belong to others"
            raise UserError(f"{where}: set `responses` to a folder such as artifacts/served/")


def write_pair(run: Run, model: str, spec: params.Model, dataset: str, model_name: str) -> None:
    """Write the questions, and both forms of P(True) if there are responses."""
    examples, values = datasets.load_examples(params.load_dataset_config(dataset)), run.values
    examples = datasets.select_examples(examples, values["limit"], values["seed"], dataset, values["example"])
    questions, answers = (served_file(spec, dataset, kind) for kind in ("requests", "responses"))
    settings = params.Generation.of(values)
    batch_requests.write_requests(
        questions, batch_requests.question_requests(spec, model_name, (model, dataset), examples, settings), answers
    )
    say(f"{relative_path(questions)}: {len(examples)} questions")
    if answers.exists():
        imported = ImportedResponses.read(spec, dataset, examples)
        written = batch_requests.verification_requests(imported, batch_requests.read_requests(questions))
        for line in imported.describe_coverage():
            say(line)
        for form in VERIFICATIONS:
            path, verdicts = (served_file(spec, dataset, kind, form) for kind in ("requests", "responses"))
            batch_requests.write_requests(path, written[form], verdicts)
            say(f"{relative_path(path)}: {len(written[form])} requests")
