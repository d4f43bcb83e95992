"""The parameter file of a model that is asked by `--url` or `--model-name` alone: it is named after
the model, written before the first request, and then a file like any other.

Decoding, `thinking` and `request` may be set in it. `--models` names it in later commands.
"""

import asyncio
from argparse import Namespace
from pathlib import Path

import yaml

from lib import params
from lib.errors import UserError
from lib.files import write_text
from lib.parameter_schemas import Model
from lib.paths import PARAMS, of_project
from lib.run_names import make_word
from workflow.engine.progress import say
from workflow.serving.address import parse_address
from workflow.serving.connection import Server
from workflow.serving.errors import ServerError

HEAD = """\
# A model that a server was asked for. Decoding, `thinking` and `request` may be set here before
# its first question: docs/extending.md
"""
MOST_NAMES = 8  # in a message


def choose_model(args: Namespace) -> Namespace:
    """Return the arguments with the one model that a server is asked for: its parameter file, and
    its name there. Raise UserError if it is not one, or has weights of its own."""
    if args.add_models or len(args.models) > 1:
        raise UserError("a server is asked for one model: name its file by --models, or none")
    if args.models and args.url:
        check_asked(args.models[0])
    args.model_name = args.model_name or find_only_model(args)
    if not args.models:
        args.models = [find_or_write_file(args.model_name)]
    return args


def check_asked(model: str) -> None:
    """Raise UserError for a model whose weights are read, or that names no folder of answers."""
    spec = params.load_model_config(model)
    if spec.at_hand:
        raise UserError(
            f"model '{model}' has a `source`, so its weights are read: leave out --models, or name "
            "a file without a `source` (docs/extending.md)"
        )


def find_only_model(args: Namespace) -> str:
    """Return the name of the only model that the server has."""
    if not args.url:
        raise UserError("requests takes what the server calls the model, as --model-name NAME")
    names = asyncio.run(list_models(args))
    if len(names) != 1:
        listed = ", ".join(sorted(names)[:MOST_NAMES])
        raise UserError(f"{args.url} has {len(names)} models, name one: --model-name ({listed})")
    return names[0]


async def list_models(args: Namespace) -> list[str]:
    """Return the names of the models that the server lists."""
    async with Server(parse_address(args.url), args.timeout, say) as server:
        try:
            return await server.list_models()
        except ServerError as problem:
            raise UserError(f"{args.url}: {problem}") from None


# ---- the file


def find_or_write_file(model_name: str) -> str:
    """Return the name of the parameter file of a model that a server has; write it if there is
    none."""
    label = label_of(model_name)
    folder = of_project(PARAMS) / "models"
    short = label.rpartition("/")[2]
    owner = label.replace("/", "-")
    for word in (short, owner, f"{short}-served", f"{owner}-served"):
        name = make_word(word)
        path = folder / f"{name}.yaml"
        if not path.exists():
            write_file(path, name, label)
            return name
        spec = params.load_model_config(name)
        if not spec.at_hand and spec.label == label:
            return name
    raise UserError(f"params/models/ has other models of the name '{label}': name one by --models")


def label_of(model_name: str) -> str:
    """Return what tables call a model: its name, without the folder of a file."""
    is_file = model_name.startswith(("/", ".")) or "\\" in model_name
    label = model_name.replace("\\", "/").rpartition("/")[2] if is_file else model_name
    return label.removesuffix(".gguf")


def write_file(path: Path, name: str, label: str) -> None:
    """Write the parameter file of a model with plain sampling, and a folder of its own."""
    content = {
        "label": label,
        "responses": f"artifacts/served/{name}/",
        "temperature": 1.0,
        "system_prompt": False,
        "thinking": False,
    }
    Model.model_validate(content)
    write_text(path, HEAD + yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    say(f"params/models/{name}.yaml: written; decoding and `request` may be set there")
