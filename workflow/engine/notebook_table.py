"""The rules of the workflow: each notebook, with its inputs and outputs, and the report
(notebooks.yaml)."""

from collections.abc import Iterable
from pathlib import Path

import pydantic

from lib.files import read_yaml


@pydantic.dataclasses.dataclass(frozen=True)
class Notebook:
    """One entry of notebooks.yaml.

    `runs_model`: once per (model, dataset), on a GPU if there is one. Its outputs depend on the
    files of model and dataset. They survive code changes if the profile has `on_code_change: keep`.
    A replay reads shipped ones. `imports_responses`: runs for a model whose weights are missing,
    and reads what its server answered. `minutes`: estimated time of a job; the longest chains of
    jobs start first. `reads`: notebooks, or one folder of a notebook's outputs
    (`01_generate/generations`). `writes`: paths below artifacts/<run>/; a manifest (.json) goes
    with each parquet file. `data`: files of the project that it reads. `exports`: produces what
    goes into the paper (workflow/output/paper_files.py). `module`: a module that is run in place of
    a notebook; it writes the report. `optional`: a replay works without its outputs. `of_shipped`:
    reads only shipped files; the demo and replays run it, and nothing depends on it. `of_table`: is
    of a run that judges a table of scores, and of no other. `of_model`: the report of a user's
    models, in place of the paper's. `folders`: folders below artifacts/<run>/ that only this
    notebook fills, with any number of files. `decided_by`: files or functions
    (`module.py:function`) that affect its outputs beside the
    modules that count. `shown_at_end`: estimators whose ECE ends the line of a job, computed from
    the first frame that it writes. `undeclared`: parameters that its parameters cell does not
    declare; run by hand, it uses the defaults of the code.
    """

    name: str
    runs_model: bool = False
    imports_responses: bool = False
    minutes: float = 0.05
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    exports: bool = False
    module: str = ""
    optional: bool = False
    of_shipped: bool = False
    of_table: bool = False
    of_model: bool = False
    folders: tuple[str, ...] = ()
    decided_by: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    shown_at_end: tuple[str, ...] = ()

    @property
    def per_pair(self) -> bool:
        """Whether it runs once per (model, dataset)."""
        return self.runs_model or self.imports_responses

    @property
    def number(self) -> str:
        return self.name.split("_")[0]

    def read_of(self, other: "Notebook") -> tuple[str, ...]:
        """Return the outputs of another notebook that this one reads."""
        paths = []
        for path in other.writes:
            folder = path.split("/")[0]
            if other.name in self.reads or f"{other.name}/{folder}" in self.reads:
                paths.append(path)
        return tuple(paths)

    @property
    def path(self) -> str:
        return self.module or f"notebooks/{self.name}.ipynb"


TABLE = read_yaml(Path(__file__).with_name("notebooks.yaml"))
NOTEBOOKS = tuple(Notebook(name, **row) for name, row in TABLE.items())


def needed(names: Iterable[str]) -> list[Notebook]:
    """Return the notebooks of these names and all upstream ones."""
    wanted = set(names)
    for row in reversed(NOTEBOOKS):  # readers come after what they read
        if row.name in wanted:
            wanted |= {word.split("/")[0] for word in row.reads}
    return [row for row in NOTEBOOKS if row.name in wanted]
