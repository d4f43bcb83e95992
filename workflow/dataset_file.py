"""`--datasets mine.csv`: the parameter file of a user's file of questions.

The rows are split into halves by a seed. The run writes the file to params/datasets/ once its jobs
begin, as of any other dataset, and the user may change it there.
"""

import os
from pathlib import Path

import yaml

from lib import params
from lib.errors import UserError, nearest
from lib.files import write_text
from lib.parameter_schemas import Dataset
from lib.paths import ROOT, local_path, relative_path
from lib.run_names import make_word
from lib.tasks.question_files import read_records

FIELDS = {"question": "question", "answer": "answer"}  # the columns of the file
HEAD = "# Of a file that --datasets named. Its rows are split into halves by the seed.\n"


def take_names(words: list[str]) -> list[str]:
    """Return the names of datasets, which are words; a file gets a name and is known from now on.

    Raise UserError for a file without the columns, or with the name of another dataset.
    """
    names = []
    for word in words:
        names.append(take_file(Path(word)) if os.path.isabs(word) else word)
    return names


def take_file(path: Path) -> str:
    """Return the name of the dataset of a file, which is known from now on."""
    name = make_word(Path(path.name.removesuffix(".gz")).stem)
    if not name:
        raise UserError(f"the file '{path.name}' has no letters or digits: rename it")
    written = parameter_file(name)
    if written.exists():
        check_source(name, path)
        return name
    check_fields(path, name)
    source = os.path.relpath(path, ROOT)
    params.UNWRITTEN[name] = Dataset(label=name, source={"all": source}, seed=0)
    return name


def parameter_file(name: str) -> Path:
    return ROOT / "params" / "datasets" / f"{name}.yaml"


def check_source(name: str, path: Path) -> None:
    """Raise UserError unless the dataset of this name reads this file."""
    source = params.load_dataset_config(name).source
    files = source.values() if isinstance(source, dict) else [source]
    if not any(local_path(file).resolve() == path for file in files):
        where = relative_path(parameter_file(name))
        raise UserError(
            f"{where} is of other questions than {path.name}: rename one of these files"
        )


def check_fields(path: Path, name: str) -> None:
    """Raise UserError unless the first row has a question and an answer."""
    where, records = read_records(str(path))
    if not records or not isinstance(records[0], dict):
        raise UserError(f"{where}: no row with the columns {' and '.join(FIELDS)}")
    for field in FIELDS:
        if field not in records[0]:
            file = relative_path(parameter_file(name))
            raise UserError(
                f"{where}: no column '{field}'; {nearest(field, records[0])}: "
                f"rename it, or name it in {file} (docs/extending.md)"
            )


def write_files() -> None:
    """Write the parameter files of what was taken, for the jobs and later starts."""
    for name, spec in params.UNWRITTEN.items():
        values = {"label": spec.label, "source": spec.source, **FIELDS, "seed": spec.seed}
        text = yaml.safe_dump(values, sort_keys=False)
        write_text(parameter_file(name), HEAD + text)
    params.UNWRITTEN.clear()
